"""Attention over a tree equals dense attention in which the tokens of every closed node are replaced by their mean."""

import dataclasses

import pytest
import torch
from torch import Tensor

from tests.decoders.models import SMALL
from vcc.decoders.config import DecoderConfig
from vcc.decoders.interface import attend_layer
from vcc.decoders.layer import TreeLayer
from vcc.decoders.tree import grouped, groups

B, H, GROUP, D = 2, 2, 3, 5


def filled(settings: DecoderConfig, n: int, real: Tensor | None = None) -> tuple[TreeLayer, Tensor, Tensor]:
    """A layer that has read n random tokens; their keys and values."""
    draw = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(B, H, n, D, generator=draw, dtype=torch.float64) for _ in range(2))
    return TreeLayer.filled(settings, 2 * keys, values, real), 2 * keys, values


def queries(new: int) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(B, H * GROUP, new, D, generator=draw, dtype=torch.float64)


def by_hand(layer: TreeLayer, keys: Tensor, values: Tensor, query: Tensor, real: Tensor | None = None) -> Tensor:
    """One query token (B, heads, D): opens, closes and attends in plain loops over heads -> (B, heads, D)."""
    settings, n = layer.settings, keys.shape[2]
    output = torch.zeros_like(query)
    for b in range(B):
        there = torch.ones(n, dtype=torch.bool) if real is None else real[b]
        for h in range(H):
            columns = [c for c in layer.tree.columns[b, h].tolist() if c >= 0]
            vips = query[b, h * GROUP : (h + 1) * GROUP]
            nodes = [torch.tensor(columns[i : i + settings.leaf]) for i in range(0, len(columns), settings.leaf)]
            assert all(there[node].all() for node in nodes)
            outside = torch.tensor([c for c in range(n) if c not in columns and there[c]])
            scores = [vips @ keys[b, h, node].mean(0) * D**-0.5 + torch.tensor(len(node)).log() for node in nodes]
            exact = vips @ keys[b, h, outside].T * D**-0.5
            total = torch.cat([torch.stack(scores, 1), exact], 1).logsumexp(1, keepdim=True)
            spread = [keys[b, h, node].var(0, correction=0).mean() * (vips**2).sum(1) / D for node in nodes]  # D is odd
            share = (torch.stack(scores, 1) + 0.25 * torch.stack(spread, 1) - total).exp().mean(0)
            if settings.mass is None:
                opened = share.argsort(descending=True)[: settings.budget[0]]
            else:
                ranks = share.argsort()
                closed = int((share[ranks].cumsum(0) <= 1 - settings.mass).sum())
                opened = ranks[closed:]
            seen_keys, seen_values = keys[b, h].clone(), values[b, h].clone()
            for number, node in enumerate(nodes):
                if number not in opened.tolist():
                    seen_keys[node], seen_values[node] = keys[b, h, node].mean(0), values[b, h, node].mean(0)
            weights = (vips @ seen_keys.T * D**-0.5).masked_fill(~there, -torch.inf).softmax(1)
            output[b, h * GROUP : (h + 1) * GROUP] = weights @ seen_values
    return output


@pytest.mark.parametrize("order", ["key", "position"])
@pytest.mark.parametrize("choice", [{"budget": 0}, {"budget": 3}, {"budget": 100}, {"mass": 0.8}, {"mass": 1.0}])
def test_closed_nodes_are_their_means(choice: dict[str, float], order: str) -> None:
    settings = DecoderConfig(**SMALL, **choice, order=order)
    layer, keys, values = filled(settings, 70)
    query = queries(1)
    found = attend_layer(layer, query, 1, D**-0.5, False)[:, 0]
    torch.testing.assert_close(found, by_hand(layer, keys, values, query[:, :, 0]), rtol=0, atol=1e-12)


def test_padding_is_in_no_node_and_seen_by_nobody() -> None:
    settings = DecoderConfig(**SMALL, budget=2)
    real = torch.ones(B, 70, dtype=torch.bool)
    real[0, :23] = real[1, 40:51] = False  # on the left; in the middle, as when a padded prompt is continued
    layer, keys, values = filled(settings, 70, real)
    assert layer.tree.lengths == (32, 48)
    query = queries(1)
    found = attend_layer(layer, query, 1, D**-0.5, False)[:, 0]
    torch.testing.assert_close(found, by_hand(layer, keys, values, query[:, :, 0], real), rtol=0, atol=1e-12)


def test_first_and_last_tokens_are_never_in_the_tree() -> None:
    layer, _, _ = filled(DecoderConfig(**SMALL), 71)
    assert layer.rows.columns.tolist() == [[0, 1, 2, *range(59, 71)]] * B
    assert layer.tree.columns[1, 0, :56].sort().values.tolist() == list(range(3, 59))


def test_all_of_three_scales_open_is_dense() -> None:
    settings = DecoderConfig(**SMALL | {"scales": (8, 4, 1)}, budget=1000)
    layer, keys, values = filled(settings, 70)
    query = queries(1)
    dense = torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
    found = attend_layer(layer, query, 1, D**-0.5, False)
    torch.testing.assert_close(found, dense.transpose(1, 2), rtol=0, atol=1e-12)


def test_three_scales_with_all_coarse_nodes_open_are_two() -> None:
    """Where the coarse nodes do not choose, (8, 4, 1) is (4, 1) over the same leaves."""
    three = DecoderConfig(**SMALL | {"scales": (8, 4, 1)}, budget=(1000, 3))
    layer, keys, values = filled(three, 70)
    query = queries(1)
    found = attend_layer(layer, query, 1, D**-0.5, False)
    layer.tree = dataclasses.replace(
        layer.tree,
        scales=(4, 1),
        key_means=layer.tree.key_means[1:],
        value_means=layer.tree.value_means[1:],
        spreads=layer.tree.spreads[1:],
    )
    layer.settings = dataclasses.replace(three, scales=(4, 1), budget=(3,))
    torch.testing.assert_close(found, by_hand(layer, keys, values, query[:, :, 0])[:, None], rtol=0, atol=1e-12)


def test_vips_of_a_block_choose_together() -> None:
    """Two equal query tokens choose what one alone does; a block reports as many rows."""
    settings = DecoderConfig(**SMALL, budget=2)
    layer, keys, values = filled(settings, 70)
    layer.causal = False
    query = queries(1).expand(-1, -1, 2, -1)
    found = attend_layer(layer, query, 2, D**-0.5, True)
    expected = by_hand(layer, keys, values, query[:, :, 0])
    torch.testing.assert_close(found, expected[:, None].expand_as(found), rtol=0, atol=1e-12)


def test_one_far_key_opens_its_leaf() -> None:
    """Two leaves with the same mean; the one whose keys differ is opened, though by their means they are alike."""
    settings = DecoderConfig(**SMALL, budget=1, order="position")
    keys = torch.zeros(1, 1, 25, 4, dtype=torch.float64)
    keys[0, 0, 3:19:4] = torch.tensor([0, 0, 0, 0.1], dtype=torch.float64)  # the first leaves: a little off
    keys[0, 0, 7:11] = torch.tensor([[0, 0, 0, 8], [0, 0, 0, -8], [0, 0, 0, 0.0], [0, 0, 0, 0.0]], dtype=torch.float64)
    values = torch.randn(1, 1, 25, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer = TreeLayer.filled(settings, keys, values)
    query = torch.tensor([0, 0, 0, 4.0], dtype=torch.float64).view(1, 1, 1, 4)
    dense = torch.nn.functional.scaled_dot_product_attention(query, keys, values)
    torch.testing.assert_close(attend_layer(layer, query, 1, 0.5, False)[:, 0], dense[:, :, 0], rtol=0, atol=1e-4)
    layer.tree = dataclasses.replace(layer.tree, spreads=(layer.tree.spreads[0][..., :0],))
    assert not torch.allclose(attend_layer(layer, query, 1, 0.5, False)[:, 0], dense[:, :, 0], atol=0.1)


def test_features_of_one_rotation_are_one_group() -> None:
    features = torch.arange(64.0)
    expected = [sum(features[i + half] for i in (2 * g, 2 * g + 1) for half in (0, 32)) for g in range(16)]
    assert torch.equal(grouped(features, 16), torch.stack(expected))
    assert (groups(64, 16), groups(24, 16), groups(5, 16), groups(64, 0)) == (16, 4, 1, 0)
