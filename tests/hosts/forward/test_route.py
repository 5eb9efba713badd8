"""Each input of a batch goes where it would go alone, and nothing is looked at that need not be."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import vcc
from tests.hosts.models import REAL, TABLE, build
from vcc.hosts.forward.encoder import find_encoder
from vcc.hosts.forward.request import Request
from vcc.hosts.forward.route import CompressedRoute, DenseRoute, MixedRoute, Route, route


def request(n: int, lengths: list[int] | None, **vips: Any) -> Request:
    """A batch of three, padded on the right; without lengths, without a mask."""
    inputs = {"input_ids": torch.ones(3, n, dtype=torch.long)}
    if lengths is not None:
        inputs["attention_mask"] = (torch.arange(n) < torch.tensor(lengths)[:, None]).long()
    return Request.of(inputs, vips.get("vip_mask"), vips.get("vip_length"), None)


def chosen(n: int, lengths: list[int] | None, dense_below: Any = 20, family: str = "bert") -> Route:
    host = find_encoder(vcc.wrap(build(family), REAL)).host
    return route(request(n, lengths), replace(REAL, dense_below=dense_below), host, compiled=False)


def test_a_batch_goes_one_way_where_its_inputs_do() -> None:
    assert chosen(19, None) == chosen(19, [3, 19, 7]) == DenseRoute()
    assert chosen(45, [3, 19, 7]) == DenseRoute(), "as wide as it is, all of its inputs are short"
    for found in (chosen(20, None), chosen(45, [45, 20, 30]), chosen(1, [1, 1, 1], dense_below=0)):
        assert isinstance(found, CompressedRoute)
    real = chosen(45, [45, 20, 30])
    assert isinstance(real, CompressedRoute) and real.real.sum(1).tolist() == [45, 20, 30]


def test_short_and_long_inputs_part() -> None:
    found = chosen(45, [45, 19, 20])
    assert isinstance(found, MixedRoute) and found.short == (False, True, False)
    assert found.extent.lengths == [45, 19, 20]


def test_a_batch_that_is_too_wide_for_the_untouched_model_loses_its_padding() -> None:
    found = chosen(TABLE + 1, [3, 19, 7])
    assert isinstance(found, MixedRoute) and all(found.short)
    assert chosen(TABLE + 1, [3, 19, 7], family="t5") == DenseRoute(), "a family without a table has no such limit"


def test_only_a_batch_that_may_be_compressed_needs_a_mask_over_its_tokens() -> None:
    host = find_encoder(vcc.wrap(build("bert"), REAL)).host
    for n, dense in ((10, True), (30, False)):
        square = torch.ones(3, n, n)  # as Hugging Face's own forward takes it
        given = Request.of({"input_ids": torch.ones(3, n).long(), "attention_mask": square}, None, None, None)
        if dense:
            assert route(given, replace(REAL, dense_below=20), host, compiled=False) == DenseRoute()
        else:
            with pytest.raises(ValueError, match="attention_mask has shape"):
                route(given, replace(REAL, dense_below=20), host, compiled=False)


def test_some_rows_of_a_request_are_a_request() -> None:
    rows = torch.tensor([2, 0])
    mask = torch.eye(3, 45).long()
    whole, part = request(45, [45, 20, 30], vip_mask=mask), request(45, [45, 20, 30], vip_mask=mask).rows(rows)
    assert part.vip_mask is not None and part.vip_mask.equal(mask[rows])
    assert part.real_tokens().equal(whole.real_tokens()[rows]) and part.tokens.shape == (2, 45)
    assert request(45, None, vip_length=torch.tensor([1, 2, 3])).rows(rows).vip_length.tolist() == [3, 1]
    assert request(45, None, vip_length=7).rows(rows).vip_length == 7
