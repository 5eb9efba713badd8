"""The paper's matrices, dense and slow: the tests' second opinion on everything the tree does lazily.

Every function is for one batch element; n is the number of tokens in the tree, padding included.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vcc import Cut, Host, Rows, SegmentTree


@dataclass(frozen=True)
class Node:
    """Node x (from 0) of scale s, which is scales[depth]."""

    depth: int
    s: int
    x: int

    @property
    def tokens(self) -> range:
        return range(self.s * self.x, self.s * (self.x + 1))


def nodes_of_cut(tree: SegmentTree, cut: Cut, element: int) -> tuple[list[Node], list[Node]]:
    """The cut's nodes in the order in which it is read, and the nodes opened on the way."""
    visited = list(range(tree.means.shape[1]))
    rows: list[Node] = []
    inner: list[Node] = []
    for depth, s in enumerate(tree.scales):
        rows += [Node(depth, s, visited[place]) for place in cut.kept[depth][element].tolist()]
        if depth + 1 < len(tree.scales):
            opened = [visited[place] for place in cut.opened[depth][element].tolist()]
            inner += [Node(depth, s, x) for x in opened]
            fan_out = s // tree.scales[depth + 1]
            visited = [x * fan_out + child for x in opened for child in range(fan_out)]
    return rows, inner


def compression(tree: SegmentTree, cut: Cut, element: int) -> tuple[Tensor, Tensor, Tensor]:
    """S_c (r, n), its pseudo-inverse S_c^T D (n, r), and D (r, r). A segment is the mean of its real tokens."""
    real = (tree.counts[-1][element, : tree.length] > 0).tolist()
    rows, _ = nodes_of_cut(tree, cut, element)
    S = torch.zeros(len(rows), tree.length, dtype=torch.float64)
    D = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for i, node in enumerate(rows):
        under = [j for j in node.tokens if j < tree.length and real[j]]
        if under:
            S[i, under] = 1 / len(under)
            D[i, i] = len(under)
    return S, S.T @ D, D


def with_vips(S: Tensor, vips: int) -> Tensor:
    """[[I, 0], [0, S_c]]: VIPs have reserved seats. Works for S and for its pseudo-inverse."""
    return torch.block_diag(torch.eye(vips, dtype=S.dtype), S)


def mean(rows: Rows, element: int, node: Node) -> Tensor:
    """c_x^s by its definition: the average of the real tokens of the segment, zero if there is none."""
    tokens = [j for j in node.tokens if j < len(rows) and rows.counts[element, j] > 0]
    return rows.hidden[element, tokens].mean(0) if tokens else torch.zeros_like(rows.hidden[0, 0])


def layer_by_matrices(host: Host, index: int, X: Tensor, vips: int, tree: SegmentTree, cut: Cut) -> Tensor:
    """X_new = S^+ gamma(S X) + X, with gamma(x) = layer(x) - x, for X = [P; C] without padding, (vips + n_c, D).

    Of the tree only the shape is used: scales, counts and length.
    """
    S_c, inverse, D = compression(tree, cut, 0)
    n = len(X) - vips
    S, S_inverse = with_vips(S_c[:, :n], vips), with_vips(inverse[:n], vips)
    weights = torch.cat([torch.ones(vips, dtype=X.dtype), D.diag()])[None]
    SX = Rows((S @ X)[None], weights, torch.zeros_like(weights))
    gamma = host.layer(index, SX) - SX.hidden
    return S_inverse @ gamma[0] + X
