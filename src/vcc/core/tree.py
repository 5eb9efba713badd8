"""`SegmentTree`, the paper's T(C): means at the coarsest scale and, below, each node's difference from its parent."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from vcc.core.rows import Rows, pad_rows, sum_dtype
from vcc.errors import UsageError


@dataclass(frozen=True)
class SegmentTree:
    """All tokens of the context, as c_x^s at scales[0] and delta c_x^s = c_parent - c_x^s at every finer scale.

    Node x of scale s covers tokens s*x .. s*x + s - 1. The last node of a scale may be ragged: its mean is over its
    real tokens, and storage beyond the end is padding (count 0). Values are float32 or float64, whatever the model's
    dtype: 24 layers of small updates would lose 2% in bf16. Storage is padded to a multiple of the coarsest scale, so
    the children of a node are one contiguous block.
    """

    scales: tuple[int, ...]
    length: int
    means: Tensor  # (B, m_0, D): c^s at s = scales[0]
    differences: tuple[Tensor, ...]  # (B, m_i, D) for each scale after the first
    counts: tuple[Tensor, ...]  # (B, m_i) real tokens under each node, per scale
    positions: tuple[Tensor, ...]  # (B, m_i) mean position of those tokens, per scale
    regular: bool = (
        False  # built from single tokens with padding last: all nodes of a scale but the last have equal counts
    )

    @property
    def fan_outs(self) -> tuple[int, ...]:
        """Children of a node, for each scale but the last."""
        return tuple(coarse // fine for coarse, fine in pairwise(self.scales))

    def roots(self) -> Rows:
        """The nodes of the coarsest scale, the only ones stored as means."""
        return Rows(self.means, self.counts[0], self.positions[0])


def tree_parts(tree: SegmentTree) -> dict[str, Tensor]:
    """The tensors of a tree by name, for files. Scales and length are kept beside them."""
    named = {"differences": tree.differences, "counts": tree.counts, "positions": tree.positions}
    return {"means": tree.means} | {
        f"{name}.{depth}": part for name, parts in named.items() for depth, part in enumerate(parts)
    }


def tree_from_parts(scales: tuple[int, ...], length: int, parts: Mapping[str, Tensor]) -> SegmentTree:
    """The inverse of `tree_parts`. Parts that do not fit scales and length raise a ValueError."""
    check_scales(scales)
    depths = range(len(scales))
    tree = SegmentTree(
        scales,
        length,
        parts["means"],
        tuple(parts[f"differences.{depth}"] for depth in depths[:-1]),
        tuple(parts[f"counts.{depth}"] for depth in depths),
        tuple(parts[f"positions.{depth}"] for depth in depths),
    )
    nodes = [tree.means.shape[1], *(part.shape[1] for part in tree.differences)]
    if [count * scale for count, scale in zip(nodes, scales, strict=True)] != [nodes[0] * scales[0]] * len(scales):
        raise ValueError(f"nodes {nodes} do not fit the scales {scales}")
    if any([part.shape[1] for part in kept] != nodes for kept in (tree.counts, tree.positions)):
        raise ValueError(f"counts or positions do not fit the nodes {nodes}")
    if not 0 <= nodes[0] * scales[0] - length < scales[0]:
        raise ValueError(f"length {length} does not fit {nodes[0]} nodes of {scales[0]}")
    return tree


def check_scales(scales: tuple[int, ...]) -> None:
    rule = "scales must be positive integers, coarse to fine, each a multiple of the next, ending in 1"
    if not scales or any(not isinstance(s, int) or isinstance(s, bool) or s < 1 for s in scales):
        raise UsageError(f"scales={scales!r}: {rule}")
    if scales[-1] != 1 or any(coarse % fine or coarse == fine for coarse, fine in pairwise(scales)):
        raise UsageError(f"scales={scales!r}: {rule}")


def siblings(values: Tensor, fan_out: int) -> Tensor:
    """(B, m * f, ...) -> (B, m, f, ...): the children of one node side by side."""
    return values.unflatten(1, (values.shape[1] // fan_out, fan_out))


def child_weights(counts: Tensor) -> Tensor:
    """The share of each child in its parent's mean, from the counts of siblings (B, m, f); zero for padding."""
    return counts / counts.sum(2, keepdim=True).clamp(min=1)


def weighted_mean(weights: Tensor, children: Tensor) -> Tensor:
    """(B, m, f), (B, m, f, D) -> (B, m, D). Not a matrix product, which may round its input to TF32."""
    return (weights[..., None] * children).sum(2)


def build_tree(rows: Rows, scales: tuple[int, ...]) -> SegmentTree:
    """Means from the bottom up (the paper's recursive pooling, weighted by counts), then differences: O(n D), once."""
    scales = tuple(scales)
    check_scales(scales)
    dtype = sum_dtype(rows.hidden.dtype)
    padded = pad_rows(rows, -(-len(rows) // scales[0]) * scales[0])
    nodes = padded.hidden.to(dtype).contiguous()
    counts, positions = [padded.counts.to(dtype).contiguous()], [padded.positions.to(dtype).contiguous()]
    differences: list[Tensor] = []
    for coarse, fine in reversed(list(pairwise(scales))):
        children = siblings(nodes, coarse // fine)
        weights = child_weights(siblings(counts[0], coarse // fine))
        parents = weighted_mean(weights, children)
        differences.insert(0, (parents[:, :, None] - children).view(nodes.shape))
        positions.insert(0, (weights * siblings(positions[0], coarse // fine)).sum(2))
        counts.insert(0, siblings(counts[0], coarse // fine).sum(2))
        nodes = parents
    return SegmentTree(
        scales, len(rows), nodes, tuple(differences), tuple(counts), tuple(positions), rows.packed_tokens
    )


def flatten_tree(tree: SegmentTree) -> Rows:
    """The inverse of `build_tree`: c_x^s = c_parent - delta c_x^s from the top down, to single tokens."""
    nodes = tree.means
    for difference, fan_out in zip(tree.differences, tree.fan_outs, strict=True):
        nodes = (nodes[:, :, None] - siblings(difference, fan_out)).flatten(1, 2)
    n = tree.length
    return Rows(nodes[:, :n], tree.counts[-1][:, :n], tree.positions[-1][:, :n])


def read_tokens(tree: SegmentTree, tokens: Tensor) -> Tensor:
    """Return what `flatten_tree` gives at tokens (k,), reading only their nodes: (B, k, D)."""
    hidden = tree.means.index_select(1, tokens // tree.scales[0])
    for difference, scale in zip(tree.differences, tree.scales[1:], strict=True):
        hidden = hidden - difference.index_select(1, tokens // scale)
    return hidden


def project_tree(tree: SegmentTree, weight: Tensor) -> SegmentTree:
    """Return the tree of x @ weight (D, k): a linear map commutes with means and differences."""
    means, differences = tree.means @ weight, tuple(difference @ weight for difference in tree.differences)
    return replace(tree, means=means, differences=differences)


def copy_tree(tree: SegmentTree, batch: int, owner: Tensor | None = None) -> SegmentTree:
    """Copy trees for `batch` elements, to be changed in place. Element i gets tree `owner[i]`; without `owner`
    (batch,), the one tree, or one each. Gradients reach the tree it was copied from."""
    number, device = tree.means.shape[0], tree.means.device
    if owner is None:
        if number not in (1, batch):
            raise ValueError(f"a tree of {number} sequences cannot serve a batch of {batch}")
        owner = torch.arange(batch, device=device) % number
    if owner.shape != (batch,):
        raise ValueError(f"owner has shape {tuple(owner.shape)}; it must be {(batch,)}, the number of a tree for each")

    def copied(values: Tensor) -> Tensor:
        return values.index_select(0, owner)  # its gradient is a sum; that of indexing sorts

    return replace(
        tree,
        means=copied(tree.means),
        differences=tuple(map(copied, tree.differences)),
        counts=tuple(map(copied, tree.counts)),
        positions=tuple(map(copied, tree.positions)),
    )
