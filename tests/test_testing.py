"""`check_host` accepts hosts that keep their word and names what is wrong with the others."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import vcc
from tests.hosts.models import FAMILIES, OPEN, build
from vcc import Rows
from vcc.hosts.forward.encoder import find_encoder
from vcc.testing import TinyHost, check_host, tiny_host


@pytest.mark.parametrize(("pre_norm", "distance"), [(True, 0.0), (False, 0.1)])
def test_the_tiny_host_passes(pre_norm: bool, distance: float) -> None:
    check_host(tiny_host(pre_norm=pre_norm, distance=distance), width=8)


def test_a_float32_host_passes_with_a_tolerance_of_its_own() -> None:
    check_host(tiny_host(dtype=torch.float32), 8, torch.float32, tolerance=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrapped_model_passes(family: str) -> None:
    """Rotations are float32, also in a float64 model: they differ by that much where rows are in another order."""
    wrapped: Any = vcc.wrap(build(family), OPEN)
    check_host(find_encoder(wrapped).host, width=32)


class NoLogCounts(TinyHost):
    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return super().layer(index, replace(rows, counts=(rows.counts > 0).double()), consecutive)


class NoMask(TinyHost):
    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return super().layer(index, replace(rows, counts=rows.counts.clamp(min=1)), consecutive)


class Mixing(TinyHost):
    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        hidden = super().layer(index, rows, consecutive)
        return hidden + 1e-6 * hidden.mean(0)


class Restarting(TinyHost):
    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return super().layer(index, replace(rows, positions=rows.positions * 0) if consecutive else rows)


class OneRowLess(TinyHost):
    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return super().layer(index, rows)[:, 1:]


class CountingPlaces(TinyHost):
    """Takes the place of a row for its position."""

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return super().layer(index, replace(rows, positions=torch.arange(len(rows)).expand_as(rows.counts)))


class CountingRows(TinyHost):
    """Its layers give more where there are many rows."""

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return super().layer(index, rows) * (1 + 1e-3 * max(0, len(rows) - 20))


class NearSeesAll(TinyHost):
    def layer_near(self, index: int, rows: Rows, vips: int, reach: int, ordered: bool = False) -> Tensor:
        return self.layer(index, rows)


class NearSeesTooLittle(TinyHost):
    def layer_near(self, index: int, rows: Rows, vips: int, reach: int, ordered: bool = False) -> Tensor:
        return super().layer_near(index, rows, vips, reach // 2, ordered)


class NearByIndex(TinyHost):
    """Takes rows that are in order for neighbours, VIPs too."""

    def layer_near(self, index: int, rows: Rows, vips: int, reach: int, ordered: bool = False) -> Tensor:
        return super().layer_near(index, rows, 0 if ordered else vips, reach)


class ScoreOfPadding(TinyHost):
    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        return super().score(index, vips, replace(nodes, counts=nodes.counts.clamp(min=1)))


class ScoreByPadding(TinyHost):
    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        return super().score(index, replace(vips, counts=vips.counts.clamp(min=1)), nodes)


class ScorePerVip(TinyHost):
    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        return super().score(index, vips, nodes)[:, None].expand(-1, len(vips), -1)


class ScoreOfNobody(TinyHost):
    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        share = (vips.counts > 0).sum(1, keepdim=True) / vips.counts.sum(1, keepdim=True)
        return super().score(index, vips, nodes) * share


FAULTS = [
    (NoLogCounts, "layer 0: a row of count c does not weigh as much as c equal tokens"),
    (NoMask, "layer 0: the content of padding changes other rows"),
    (Mixing, "layer 0: a batch element depends on another"),
    (Restarting, "layer 0: consecutive=True changes the result for neighbouring tokens"),
    (OneRowLess, r"must keep the shape of its rows: the shape is \(2, 11, 8\); it must be \(2, 12, 8\)"),
    (CountingPlaces, "layer 0: the order of rows matters"),
    (CountingRows, "all layers: with every node opened, encode differs from the layers"),
    (NearSeesAll, "layer 0: a row further away than `reach` changes another in layer_near"),
    (NearSeesTooLittle, "layer 0: layer_near differs from layer where everything is near"),
    (NearByIndex, "layer 0: ordered=True changes the result of layer_near"),
    (ScoreOfPadding, "layer 0: the score of nodes changes with padding among them"),
    (ScoreByPadding, "layer 0: the score of nodes changes with padding among the VIPs"),
    (ScorePerVip, "layer 0: a score must be one number per node"),
    (ScoreOfNobody, "layer 0: a score must be finite, also without VIPs"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_fault_is_named(fault: type[TinyHost], message: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match=message):
        check_host(fault(distance=0.1).double().eval(), width=8)


def test_a_host_in_training_mode_is_refused() -> None:
    with pytest.raises(AssertionError, match="training mode"):
        check_host(tiny_host().train(), width=8)
