"""The layer's state depends on the tokens it has seen, not on how they came; it is cropped, reordered, repeated."""

import pytest
import torch

from tests.decoders.models import SMALL
from vcc.decoders.config import DecoderConfig
from vcc.decoders.layer import TreeLayer

SETTINGS = DecoderConfig(**SMALL)


def tokens(batch: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(batch, 2, n, 5, generator=draw), torch.randn(batch, 2, n, 5, generator=draw)


def feed(layer: TreeLayer, keys: torch.Tensor, values: torch.Tensor, real: torch.Tensor | None = None) -> TreeLayer:
    layer.update(keys, values)
    step = layer.newest(real)
    for end in step.parts():
        step.settle(end)
    return layer


def state(layer: TreeLayer, element: int) -> list[torch.Tensor]:
    """All that one sequence is kept as."""
    layer.own_tree()
    tree, rows, live = layer.tree, layer.rows, layer.rows.live[element]
    length = tree.lengths[element]
    inside = [part[element, :, :length] for part in (tree.keys, tree.values, tree.columns)]
    means = [part[element, :, : length // 4] for part in (*tree.key_means, *tree.value_means)]
    outside = [part[element][:, live] for part in (rows.keys, rows.values)]
    return [*inside, *means, *outside, rows.columns[element][live]]


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("parts", [[1] * 77, [40, 1, 1, 35], [7] * 11])
def test_tokens_are_kept_alike_however_they_come(parts: list[int]) -> None:
    keys, values = tokens(2, 77)
    layer = TreeLayer(SETTINGS)
    for k, v in zip(keys.split(parts, 2), values.split(parts, 2), strict=True):
        feed(layer, k, v)
    whole = feed(TreeLayer(SETTINGS), keys, values)
    for element in range(2):
        assert same(state(layer, element), state(whole, element))


@pytest.mark.parametrize("left", [1, 20, 33, 60, 70, 76])
def test_what_is_cropped_has_never_been(left: int) -> None:
    keys, values = tokens(2, 77)
    layer = feed(TreeLayer(SETTINGS), keys, values)
    layer.crop(left - 77)
    fresh = feed(TreeLayer(SETTINGS), keys[:, :, :left], values[:, :, :left])
    assert layer.get_seq_length() == left
    for element in range(2):
        assert same(state(layer, element), state(fresh, element))


def test_a_padded_batch_is_cropped_like_its_sequences_alone() -> None:
    keys, values = tokens(2, 77)
    real = torch.ones(2, 77, dtype=torch.bool)
    real[1, :30] = False
    layer = feed(TreeLayer(SETTINGS), keys, values, real)
    layer.crop(-30)
    alone = feed(TreeLayer(SETTINGS), keys[1:, :, 30:47], values[1:, :, 30:47])
    theirs, ours = state(alone, 0), state(layer, 1)
    assert same(ours[:2], theirs[:2]) and same(ours[5:7], theirs[5:7])
    assert torch.equal(ours[7], theirs[7] + 30)


def test_keys_stand_in_the_text_again() -> None:
    keys, values = tokens(2, 77)
    layer = feed(TreeLayer(SETTINGS), keys, values)
    assert all(torch.equal(a, b) for a, b in zip(layer.in_columns(), (keys, values), strict=True))
    layer.batch_repeat_interleave(2)
    again = layer.in_columns()[0]
    assert torch.equal(again, keys.repeat_interleave(2, 0))


def test_beams_share_a_tree_until_they_grow_apart() -> None:
    keys, values = tokens(2, 77)
    layer = feed(TreeLayer(SETTINGS), keys, values)
    before = layer.tree
    layer.batch_repeat_interleave(2)
    layer.reorder_cache(torch.tensor([3, 0, 0, 1]))
    assert layer.tree is before
    more, others = tokens(4, 9)
    for k, v in zip(more.split(1, 2), others.split(1, 2), strict=True):
        feed(layer, k, v)
    for element, source in enumerate([1, 0, 0, 0]):
        own = torch.cat([keys[source], more[element]], 1)[None], torch.cat([values[source], others[element]], 1)[None]
        assert same(state(layer, element), state(feed(TreeLayer(SETTINGS), *own), 0))


def test_a_selection_and_a_reset() -> None:
    keys, values = tokens(3, 77)
    layer = feed(TreeLayer(SETTINGS), keys, values)
    layer.batch_select_indices(torch.tensor([2, 0]))
    assert same(state(layer, 0), state(feed(TreeLayer(SETTINGS), keys[2:], values[2:]), 0))
    layer.reset()
    assert layer.get_seq_length() == 0
    feed(layer, keys[:1], values[:1])
    assert same(state(layer, 0), state(feed(TreeLayer(SETTINGS), keys[:1], values[:1]), 0))


def test_storage_is_made_at_once_for_a_text_of_known_length_and_seldom_otherwise() -> None:
    keys, values = tokens(1, 600)

    def storages(layer: TreeLayer) -> list[int]:
        """The room of the tree whenever it was made anew."""
        found = [0]
        for k, v in zip(keys.split(1, 2), values.split(1, 2), strict=True):
            feed(layer, k, v)
            if layer.tree.keys.shape[2] != found[-1]:
                found.append(layer.tree.keys.shape[2])
        return found[1:]

    assert storages(TreeLayer(SETTINGS, expected=600)) == [608], "in whole pieces of 16"
    grown = storages(TreeLayer(SETTINGS))
    assert grown[-1] <= 600 * 9 // 8 + 16 and len(grown) < 20, "600 tokens are 38 pieces"
    short = TreeLayer.filled(SETTINGS, keys, values, expected=30)
    assert short.tree.lengths[0] > 580 and short.tree.keys.shape[2] <= 600 * 9 // 8 + 16, "more came than expected"
