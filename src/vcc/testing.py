"""For tests, examples and authors of hosts: a tiny host, the paper's matrices, and `check_host`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcc.config import VccConfig
from vcc.core.cut import Cut
from vcc.core.rows import UNSEEN, Rows, log_counts, sum_dtype
from vcc.core.score import vip_attention
from vcc.core.tree import SegmentTree
from vcc.encode import Host, encode

# --------------------------------------------------------------------------------------------------------- a tiny host


class TinyHost(nn.Module):
    """Pre-norm or post-norm layers with multi-head attention. Only log(counts) is specific to compression.

    With `distance` a key's score falls with its distance from the query, so positions matter too.
    """

    def __init__(
        self, layers: int = 3, width: int = 8, heads: int = 2, pre_norm: bool = True, distance: float = 0.0
    ) -> None:
        super().__init__()
        self.heads, self.pre_norm, self.distance = heads, pre_norm, distance
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.norm1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.norm2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    @property
    def num_layers(self) -> int:
        return len(self.qkv)

    def project(self, index: int, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.norm1[index](hidden) if self.pre_norm else hidden
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv[index](x).chunk(3, dim=2))
        return q, k, v

    def bias(self, queries: Rows, keys: Rows) -> Tensor:
        """(B, 1, p, m)"""
        gap = (queries.positions[:, None, :, None] - keys.positions[:, None, None]).abs()
        return -self.distance * gap.to(torch.promote_types(queries.hidden.dtype, torch.float32))

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        q, (_, k, _) = self.project(index, vips.hidden)[0], self.project(index, nodes.hidden.to(vips.hidden.dtype))
        return vip_attention(q, k, vips, nodes, q.shape[-1] ** -0.5, self.bias(vips, nodes))

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return self.layer_seeing(index, rows)

    def layer_near(self, index: int, rows: Rows, vips: int, reach: int, ordered: bool = False) -> Tensor:
        later = torch.arange(len(rows)) >= vips
        gap = (rows.positions[:, :, None] - rows.positions[:, None]).abs()
        return self.layer_seeing(index, rows, ~((gap > reach) & later & later[:, None]))

    def layer_seeing(self, index: int, rows: Rows, sees: Tensor | None = None) -> Tensor:
        """`sees` (B, r, r): whether a row sees another; None: all do."""
        x = rows.hidden
        q, k, v = self.project(index, x)
        logits = q @ k.mT * q.shape[-1] ** -0.5 + self.bias(rows, rows).to(q.dtype)
        logits = logits + log_counts(rows.counts, q.dtype)[:, None, None]
        if sees is not None:
            logits = logits.masked_fill(~sees[:, None], UNSEEN)
        x = x + self.out[index]((logits.softmax(-1) @ v).transpose(1, 2).flatten(2))
        if self.pre_norm:
            return x + self.down[index](F.gelu(self.up[index](self.norm2[index](x))))
        x = self.norm1[index](x)
        return self.norm2[index](x + self.down[index](F.gelu(self.up[index](x))))


def tiny_host(seed: int = 0, dtype: torch.dtype = torch.float64, **kwargs: Any) -> TinyHost:
    torch.manual_seed(seed)
    return TinyHost(**kwargs).to(dtype).eval()


def random_rows(batch: int, n: int, width: int = 8, seed: int = 0, dtype: torch.dtype = torch.float64) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(batch, n, width, generator=generator, dtype=torch.float64).to(dtype)
    positions = torch.arange(n, dtype=torch.float64).expand(batch, n).to(dtype)
    return Rows(hidden, torch.ones(batch, n, dtype=dtype), positions)


def dense(host: Host, rows: Rows) -> Tensor:
    """Run every layer on the whole sequence: what the algorithm approximates."""
    for index in range(host.num_layers):
        rows = rows.with_hidden(host.layer(index, rows))
    return rows.hidden


# ------------------------------------------------------------------------------------------------- the paper's matrices
# Dense and slow: an independent oracle for everything the tree does lazily. Each function takes one batch element; n is
# the number of tokens in the tree, padding included.


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
    """The cut's nodes in reading order, and the opened nodes."""
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
    """[[I, 0], [0, S_c]]: VIPs are never compressed. Works for S and for its pseudo-inverse."""
    return torch.block_diag(torch.eye(vips, dtype=S.dtype), S)


def mean(rows: Rows, element: int, node: Node) -> Tensor:
    """c_x^s by its definition: the average of the real tokens of the segment, zero if there is none."""
    tokens = [j for j in node.tokens if j < len(rows) and rows.counts[element, j] > 0]
    return rows.hidden[element, tokens].mean(0) if tokens else torch.zeros_like(rows.hidden[0, 0])


def layer_by_matrices(host: Host, index: int, X: Tensor, vips: int, tree: SegmentTree, cut: Cut) -> Tensor:
    """X_new = S^+ gamma(S X) + X, with gamma(x) = layer(x) - x, for X = [P; C] without padding, (vips + n_c, D).

    Only the tree's scales, counts and length are used.
    """
    S_c, inverse, D = compression(tree, cut, 0)
    n = len(X) - vips
    S, S_inverse = with_vips(S_c[:, :n], vips), with_vips(inverse[:n], vips)
    weights = torch.cat([torch.ones(vips, dtype=X.dtype), D.diag()])[None]
    SX = Rows((S @ X)[None], weights, torch.zeros_like(weights))
    gamma = host.layer(index, SX) - SX.hidden
    return S_inverse @ gamma[0] + X


# ------------------------------------------------------------------------------------------------------ any other host


def check_host(host: Host, width: int, dtype: torch.dtype = torch.float64, tolerance: float = 1e-9) -> None:
    """Check that a host, whose layers take hidden states of this width and dtype, does what `encode` relies on.

    Raises AssertionError with the problem and the layer. The host must be in evaluation mode.
    """
    if host.training:
        raise AssertionError("the host is in training mode: it must be in evaluation mode, where nothing is random")
    with torch.no_grad():
        for index in range(host.num_layers):
            given = host, index, width, dtype
            for claim in chain(claims_on_layer(*given), claims_on_score(*given)):
                claim.check(tolerance, f"layer {index}")
        claim_on_open_cut(host, width, dtype).check(tolerance, "all layers")


@dataclass(frozen=True)
class Claim:
    """Two tensors that must be equal, and the problem if they are not."""

    problem: str
    actual: Tensor
    expected: Tensor

    def check(self, tolerance: float, where: str) -> None:
        if self.actual.shape != self.expected.shape:
            shapes = f"{tuple(self.actual.shape)}; it must be {tuple(self.expected.shape)}"
            raise AssertionError(f"{where}: {self.problem}: the shape is {shapes}")
        error = float((self.actual - self.expected).abs().max() / self.expected.abs().max())
        if not error < tolerance:  # NaN too
            raise AssertionError(f"{where}: {self.problem}: the error is {error:.1e}; it must be below {tolerance:.0e}")


def claims_on_layer(host: Host, index: int, width: int, dtype: torch.dtype) -> Iterator[Claim]:
    rows = random_rows(2, 12, width, dtype=dtype)
    after = host.layer(index, rows)
    yield Claim("a layer must keep the shape of its rows", torch.ones_like(after), torch.ones_like(rows.hidden))
    yield Claim(
        "consecutive=True changes the result for neighbouring tokens", host.layer(index, rows, consecutive=True), after
    )
    yield Claim("a batch element depends on another", after[:1], host.layer(index, first_element(rows)))
    turned = Rows(rows.hidden.roll(5, 1), rows.counts, rows.positions.roll(5, 1))
    yield Claim("the order of rows matters (are their positions used?)", host.layer(index, turned).roll(-5, 1), after)

    padded, noisy = with_padding(rows), with_padding(rows, noise=1e3)
    real, after = padded.counts > 0, host.layer(index, padded)
    yield Claim("the content of padding changes other rows", host.layer(index, noisy)[real], after[real])
    short = Rows(rows.hidden[:1, :8], rows.counts[:1, :8], rows.positions[:1, :8])
    yield Claim("padding changes other rows", after[:1, :8], host.layer(index, short))

    counts = torch.tensor([1, 3, 1, 2, 4, 1])
    some = Rows(rows.hidden[:, :6], counts.expand(2, 6).to(dtype), rows.positions[:, :6])
    which = torch.arange(6).repeat_interleave(counts)  # (12,) as many equal tokens as each row stands for
    equal = Rows(some.hidden[:, which], rows.counts, some.positions[:, which])
    problem = "a row of count c does not weigh as much as c equal tokens (is log(counts) added to its score as a key?)"
    yield Claim(problem, host.layer(index, some), host.layer(index, equal)[:, counts.cumsum(0) - counts])

    if type(host).layer_near is Host.layer_near:  # a host need not have it
        return
    problem = "layer_near differs from layer where everything is near"
    yield Claim(problem, host.layer_near(index, rows, 0, 11), host.layer(index, rows))
    other = rows.with_hidden(torch.cat([rows.hidden[:, :9], rows.hidden[:, 9:].roll(1, 2)], 1))
    near, same = (host.layer_near(index, each, 2, 3)[:, 2:6] for each in (rows, other))
    yield Claim("a row further away than `reach` changes another in layer_near", near, same)
    whole, ordered = (host.layer_near(index, padded, 2, 3, ordered=each)[real] for each in (False, True))
    yield Claim("ordered=True changes the result of layer_near for tokens in their order", ordered, whole)


def claims_on_score(host: Host, index: int, width: int, dtype: torch.dtype) -> Iterator[Claim]:
    vips = with_padding(random_rows(2, 6, width, 1, dtype))
    nodes = with_padding(random_rows(2, 12, width, 2, sum_dtype(dtype)))  # a tree's own type
    real, score = nodes.counts > 0, host.score(index, vips, nodes)
    yield Claim("a score must be one number per node", torch.ones_like(score), torch.ones_like(nodes.counts))
    noisy = host.score(index, vips, with_padding(nodes, noise=1e3))
    yield Claim("the score of nodes changes with padding among them", noisy[real], score[real])
    noisy = host.score(index, with_padding(vips, noise=1e3), nodes)
    yield Claim("the score of nodes changes with padding among the VIPs", noisy[real], score[real])
    alone = host.score(index, first_element(vips), first_element(nodes))
    yield Claim("the score of a batch element depends on another", score[:1], alone)
    nobody = host.score(index, Rows(vips.hidden, torch.zeros_like(vips.counts), vips.positions), nodes)
    yield Claim(
        "a score must be finite, also without VIPs", nobody.isfinite().double(), torch.ones_like(nobody).double()
    )


def claim_on_open_cut(host: Host, width: int, dtype: torch.dtype) -> Claim:
    rows = with_padding(random_rows(2, 23, width, dtype=dtype))
    vip_mask = (torch.arange(23) % 7 == 3).expand(2, 23)
    config = VccConfig(scales=(4, 2, 1), budget=(99, 99), window_layers=0)
    real, after = rows.counts > 0, encode(host, rows, vip_mask, config).hidden
    problem = "with every node opened, encode differs from the layers on the whole sequence"
    return Claim(problem, after[real], dense(host, rows)[real])


def with_padding(rows: Rows, noise: float = 0.0) -> Rows:
    """The last third of the first batch element, and the first third of the others, are padding that holds noise."""
    batch, n, width = rows.hidden.shape
    place = torch.arange(n)
    real = torch.stack([place < n - n // 3, *[place >= n // 3] * (batch - 1)])
    random = random_rows(batch, n, width, 9, rows.hidden.dtype).hidden
    hidden = torch.where(real[..., None], rows.hidden, rows.hidden + noise * random)
    return Rows(hidden, real.to(rows.counts.dtype), torch.where(real, rows.positions, rows.positions + noise))


def first_element(rows: Rows) -> Rows:
    """The first element of a batch, alone."""
    return Rows(rows.hidden[:1], rows.counts[:1], rows.positions[:1])
