"""`KeyTree`: ordered keys and values with the means of their segments.

`core.tree.SegmentTree` keeps differences in float32, because layers add to its nodes. Here nothing is added: tokens
keep the model's dtype and are read back bit for bit.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from vcc.core.rows import sum_dtype
from vcc.core.tree import siblings
from vcc.decoders.order import order_by_key
from vcc.decoders.outside import has_gradient

NOWHERE = -1  # the column of storage that holds no token


@dataclass(frozen=True)
class KeyTree:
    """Ordered tokens of E sequences and H KV heads, in storage for N, a multiple of the coarsest scale.

    A sequence fills its storage up to its length; what lies beyond is not read.
    """

    scales: tuple[int, ...]
    keys: Tensor  # (E, H, N, D); keys and values may be on another device, or on disk, than the means
    values: Tensor  # (E, H, N, D)
    columns: Tensor  # (E, H, N) of the sequence, where each token stands
    key_means: tuple[Tensor, ...]  # (E, H, N / s, D) for each scale s but the last
    value_means: tuple[Tensor, ...]
    spreads: tuple[Tensor, ...]  # (E, H, N / s, G) how far keys are from their mean, for each scale s but the last
    lengths: tuple[int, ...]  # tokens of each sequence, all of them in whole nodes

    @cached_property
    def node_counts(self) -> Tensor:
        """(E,) nodes of each sequence at the coarsest scale; on the device of the means."""
        counts = [length // self.scales[0] for length in self.lengths]
        return torch.tensor(counts, dtype=torch.int32, device=self.key_means[0].device)

    @property
    def spread_rows(self) -> float:
        """The size of a node's spread in rows; a row is a key and a value."""
        return self.spreads[0].shape[3] / (self.keys.shape[3] + self.values.shape[3])

    @cached_property
    def in_reach(self) -> bool:
        """Whether the device of the means can read the tokens: they are on it or in pinned memory."""
        here = self.key_means[0].device
        return all(part.device == here or part.is_pinned() for part in (self.keys, self.values))

    @property
    def longest(self) -> int:
        return max(self.lengths)

    def real_nodes(self) -> Tensor | None:
        """(E, v) which of the first v nodes of the coarsest scale hold tokens; v is the maximum. None: all."""
        if min(self.lengths) == self.longest:
            return None
        nodes = torch.arange(self.longest // self.scales[0], device=self.node_counts.device)
        return nodes < self.node_counts[:, None]


def empty_tree(scales: tuple[int, ...], keys: Tensor, leaves_on: torch.device, spread: int) -> KeyTree:
    """An empty tree for keys like these (B, H, n, D), which may be kept on another device, with at most `spread`
    numbers per node for the spread of its keys."""
    none = keys[:, :, :0]
    means, leaves = (none,) * (len(scales) - 1), none.to(leaves_on)
    columns = torch.zeros(none.shape[:3], dtype=torch.int32, device=leaves_on)
    spreads = tuple(grouped(part, groups(keys.shape[3], spread)) for part in means)
    return KeyTree(scales, leaves, leaves, columns, means, means, spreads, (0,) * len(keys))


def select(tree: KeyTree, elements: Tensor, in_place: bool = False) -> KeyTree:
    """The sequences `elements` (B,) of a tree as a tree; in the same storage if requested and equally many."""

    def taken(values: Tensor) -> Tensor:
        found = values.index_select(0, elements.to(values.device))
        return values.copy_(found) if in_place and found.shape == values.shape else found

    return replace(
        tree,
        keys=taken(tree.keys),
        values=taken(tree.values),
        columns=taken(tree.columns),
        key_means=tuple(map(taken, tree.key_means)),
        value_means=tuple(map(taken, tree.value_means)),
        spreads=tuple(map(taken, tree.spreads)),
        lengths=tuple(tree.lengths[element] for element in elements.tolist()),
    )


def in_order_of_columns(tree: KeyTree, element: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [start, stop) of some sequences (e,) in text order: keys, values (e, H, n, D), columns (e, n).

    `start` is the start of a piece: tokens are reordered only inside pieces.
    """
    element = element.to(tree.keys.device)
    columns, back = tree.columns[element, :, start:stop].sort(2)
    keys, values = (take_tokens(part[element, :, start:stop], back) for part in (tree.keys, tree.values))
    return keys, values, columns[:, 0].long()


@dataclass(frozen=True)
class NewNodes:
    """Tokens of e sequences in the order of the tree, with the means and spreads of their nodes."""

    keys: Tensor  # (e, H, n, D)
    values: Tensor
    columns: Tensor  # (e, H, n)
    key_means: tuple[Tensor, ...]
    value_means: tuple[Tensor, ...]
    spreads: tuple[Tensor, ...]

    @classmethod
    def of(
        cls, keys: Tensor, values: Tensor, columns: Tensor, order: Tensor | None, scales: tuple[int, ...], spread: int
    ) -> "NewNodes":
        """From tokens in text order, keys and values (e, H, n, D) and columns (e, n), and their `order` (e, H, n)."""
        columns = columns[:, None].expand(keys.shape[:3])
        if order is not None:
            keys, values, columns = take_tokens(keys, order), take_tokens(values, order), columns.gather(2, order)
        above = scales[:-1]
        return cls(
            keys,
            values,
            columns,
            tuple(segment_means(keys, scale) for scale in above),
            tuple(segment_means(values, scale) for scale in above),
            tuple(segment_spreads(keys, scale, groups(keys.shape[3], spread)) for scale in above),
        )

    def split(self, size: int) -> Iterator["NewNodes"]:
        """Those of each `size` sequences."""
        tensors = (self.keys, self.values, self.columns, *self.key_means, *self.value_means, *self.spreads)
        depth = len(self.key_means)
        for keys, values, columns, *above in zip(*(part.split(size) for part in tensors), strict=True):
            key_means, value_means, spreads = (tuple(above[i * depth : (i + 1) * depth]) for i in range(3))
            yield NewNodes(keys, values, columns, key_means, value_means, spreads)


def write_nodes(tree: KeyTree, element: Tensor, start: int, nodes: NewNodes, room: int, in_place: bool) -> KeyTree:
    """The tree with sequences `element` (e,) continued by new nodes from token `start` on.

    `in_place`: only this tree uses the storage; it is written if it is large enough. New storage has `room` tokens.
    """
    lengths = list(tree.lengths)
    for each in element.tolist():
        lengths[each] = start + nodes.keys.shape[2]
    fits = in_place and max(lengths) <= tree.keys.shape[2] and not has_gradient(nodes.keys, nodes.values)
    all_of_them = len(element) == len(lengths)

    def written(old: Tensor, new: Tensor, scale: int = 1, empty: float = 0.0) -> Tensor:
        target, begin = old, start // scale
        if not fits:
            shape = (*old.shape[:2], room // scale, *old.shape[3:])
            pinned = old.device.type == "cpu" and tree.key_means[0].is_cuda  # GPU kernels read it there
            with torch.inference_mode(False):  # what is made in that mode could not be written to outside of it
                target = torch.full(shape, empty, dtype=old.dtype, device=old.device, pin_memory=pinned)
            kept = min(room // scale, old.shape[2], begin if all_of_them else old.shape[2])
            target[:, :, :kept] = old[:, :, :kept]
        some = slice(None) if all_of_them else element.to(old.device)
        target[some, :, begin : begin + new.shape[2]] = new.to(old.device, old.dtype)
        return target

    def above(old: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(written(*both) for both in zip(old, new, tree.scales[:-1], strict=True))

    return replace(
        tree,
        keys=written(tree.keys, nodes.keys),
        values=written(tree.values, nodes.values),
        columns=written(tree.columns, nodes.columns, empty=NOWHERE),
        key_means=above(tree.key_means, nodes.key_means),
        value_means=above(tree.value_means, nodes.value_means),
        spreads=above(tree.spreads, nodes.spreads),
        lengths=tuple(lengths),
    )


def room_for(tokens: int, piece: int, expected: int) -> int:
    """Tokens of new storage, in whole pieces: as many as are expected, or else an eighth more than there are now.

    Growing by a constant amount would copy a long tree again and again, and record its step again.
    """
    wanted = expected if expected >= tokens else tokens + tokens // 8 + 1
    return -(-wanted // piece) * piece


def trimmed(tree: KeyTree) -> KeyTree:
    """The tree with storage trimmed to its longest sequence."""
    nodes = [tree.longest // scale for scale in tree.scales]
    return replace(
        tree,
        keys=tree.keys[:, :, : tree.longest],
        values=tree.values[:, :, : tree.longest],
        columns=tree.columns[:, :, : tree.longest],
        key_means=tuple(part[:, :, :count] for part, count in zip(tree.key_means, nodes, strict=False)),
        value_means=tuple(part[:, :, :count] for part, count in zip(tree.value_means, nodes, strict=False)),
        spreads=tuple(part[:, :, :count] for part, count in zip(tree.spreads, nodes, strict=False)),
    )


def cut_back(tree: KeyTree, lengths: tuple[int, ...]) -> KeyTree:
    """The tree without the tokens from `lengths` on, where pieces start, in the same storage."""
    ends = torch.tensor(lengths, device=tree.columns.device)[:, None, None]
    gone = torch.arange(tree.columns.shape[2], device=tree.columns.device) >= ends
    return replace(tree, columns=tree.columns.masked_fill(gone, NOWHERE), lengths=lengths)


def order_of_pieces(keys: Tensor, piece: int, scales: tuple[int, ...]) -> Tensor:
    """(e, H, n) the order of keys (e, H, n, D), by pieces; the remainder is a piece."""
    n = keys.shape[2]
    whole = n // piece * piece
    parts = []
    if whole:
        pieces = order_inside(keys[:, :, :whole].unflatten(2, (whole // piece, piece)), scales)
        starts = torch.arange(0, whole, piece, device=keys.device)[:, None]
        parts.append((pieces + starts).flatten(2))
    if n > whole:
        parts.append(order_inside(keys[:, :, whole:], scales) + whole)
    return torch.cat(parts, 2)


def order_inside(keys: Tensor, scales: tuple[int, ...]) -> Tensor:
    """The order of one piece (..., n, D): by the coarsest scale, then inside each of its nodes by the next."""
    order = order_by_key(keys, scales[0])
    for coarse, fine in zip(scales[:-2], scales[1:-1], strict=True):
        blocks = order.unflatten(-1, (order.shape[-1] // coarse, coarse))
        members = keys.gather(-2, order[..., None].expand(keys.shape)).unflatten(-2, blocks.shape[-2:])
        order = blocks.gather(-1, order_by_key(members, fine)).flatten(-2)
    return order


def segment_means(tokens: Tensor, scale: int) -> Tensor:
    """(e, H, n, D) -> (e, H, n / s, D)."""
    flat = tokens.flatten(0, 1)
    means = siblings(flat, scale).mean(2, dtype=sum_dtype(tokens.dtype))
    return means.to(tokens.dtype).unflatten(0, tokens.shape[:2])


def segment_spreads(keys: Tensor, scale: int, count: int) -> Tensor:
    """(e, H, n, D) -> (e, H, n / s, G): the variance of a segment's keys, summed over groups of features."""
    variances = keys.unflatten(2, (keys.shape[2] // scale, scale)).var(3, correction=0).to(sum_dtype(keys.dtype))
    return (grouped(variances, count) * (count / keys.shape[3])).to(keys.dtype)


def groups(width: int, wanted: int) -> int:
    """The number of groups of a head's features: at most as many as wanted, all of one size."""
    return math.gcd(width // 2, wanted) if wanted and width % 2 == 0 else min(wanted, 1)


def grouped(features: Tensor, count: int) -> Tensor:
    """(..., D) -> (..., G): sums of neighbouring features, in both halves, which rotary positions turn together."""
    if count == 0:
        return features[..., :0]
    width = features.shape[-1]
    halves = features.unflatten(-1, (2, count, width // 2 // count) if width % 2 == 0 else (1, 1, width))
    return halves.sum((-3, -1))


def take_tokens(tokens: Tensor, index: Tensor) -> Tensor:
    """The tokens of (e, H, n, D) at index (e, H, k)."""
    return tokens.gather(2, index[..., None].expand(-1, -1, -1, tokens.shape[3]))
