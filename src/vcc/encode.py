"""The algorithm, one loop. Start here.

windows -> split VIPs from context -> tree -> each layer: choose, read, layer, write -> flatten -> join
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from vcc.config import VccConfig
from vcc.core.cut import Cut, add_to_cut, choose_cut, tap_cut
from vcc.core.rows import Rows, check_counts, concat_rows
from vcc.core.score import vip_similarity
from vcc.core.tree import SegmentTree, build_tree, copy_tree, flatten_tree
from vcc.core.vips import Layout, check_mask, join_vips, split_vips, unseat
from vcc.core.windows import join_windows, split_windows

WINDOWED_AT_ONCE = 2**18  # tokens; a layer needs many times their memory for its feed-forward part


class Host(Protocol):
    """What the algorithm asks of a Transformer."""

    @property
    @abstractmethod
    def num_layers(self) -> int: ...

    @property
    @abstractmethod
    def training(self) -> bool: ...

    @abstractmethod
    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        """The hidden states (B, r, D) after layer `index`. Each row weighs `counts` tokens as a key: attention adds
        log(counts) to its score. `consecutive` rows are neighbouring single tokens, in every batch element."""

    @abstractmethod
    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        """How much the VIPs attend to the nodes, with layer `index`'s queries and keys: (B, nodes)."""


@dataclass(frozen=True)
class Step:
    """What one layer did, for whoever watches."""

    layer: int
    rows: int  # rows the layer saw, per batch element (in a window layer, per window)
    cut: Cut | None  # None in a window layer
    tree: SegmentTree | None
    whole: Callable[[], Rows]  # the whole sequence after this layer, rebuilt on demand


def encode(
    host: Host,
    rows: Rows,
    vip_mask: Tensor,
    config: VccConfig,
    watch: Callable[[Step], None] | None = None,
) -> Rows:
    """Run every layer of `host` over `rows`, seeing only the VIPs and a cut through the rest. -> Rows like `rows`."""
    check_mask(vip_mask, rows.counts, "vip_mask")
    check_counts(rows.counts)
    config = config.resolved(host.num_layers)

    # Padding moves to the end, so that windows and segments do not depend on where it was.
    _, packed, seats = split_vips(rows, torch.zeros_like(vip_mask), capacity=0)
    vip_mask = vip_mask.gather(1, seats.tokens)

    def unpack(packed: Rows) -> Rows:
        return unseat(packed, seats)

    if config.vip_window == "inline":
        (packed,) = run_windows(host, [packed], config, watch, lambda parts: unpack(parts[0]))
        vips, context, layout = split_vips(packed, vip_mask, config.max_vips)
    else:
        vips, context, layout = split_vips(packed, vip_mask, config.max_vips)
        together = lambda parts: unpack(join_vips(parts[0], parts[1], layout))
        vips, context = run_windows(host, [vips, context], config, watch, together)

    whole = partial(materialise, layout=layout, unpack=unpack)
    return whole(*run_layers(host, vips, build_tree(context, config.scales), config, watch, whole))


def read_once(host: Host, pieces: Iterable[Rows], config: VccConfig) -> SegmentTree:
    """The windows and the tree of contexts, which no VIP has a part in: read a document once, `ask` it many times.

    The contexts come in pieces, in order, each but the last a whole number of windows long. With `vip_window="own"`,
    asking gives what `encode` gives on VIPs and context together.
    """
    config = config.resolved(host.num_layers)
    parts: list[Rows] = []
    for piece in pieces:
        check_counts(piece.counts)
        _, packed, _ = split_vips(piece, torch.zeros_like(piece.counts), capacity=0)
        parts += run_windows(host, [packed], config, None, lambda parts: parts[0])
    return build_tree(concat_rows(*parts), config.scales)


def ask(
    host: Host,
    vips: Rows,
    tree: SegmentTree,
    config: VccConfig,
    watch: Callable[[Step], None] | None = None,
    owner: Tensor | None = None,
) -> tuple[Rows, SegmentTree]:
    """Run the layers for VIPs (B, p) over a tree that was read before, of B contexts or of one that all share; or, with
    `owner` (B,), of any number of contexts, owner[i] being the one that row i of the VIPs asks.

    -> the VIPs and the tree after the last layer. The tree given stays as it is.
    """
    config = config.resolved(host.num_layers)
    (vips,) = run_windows(host, [vips], config, None, lambda parts: parts[0])
    own = copy_tree(tree, vips.hidden.shape[0]) if owner is None else pick_trees(tree, owner)
    return run_layers(host, vips, own, config, watch, lambda vips, tree: flatten_tree(tree))


def pick_trees(tree: SegmentTree, owner: Tensor) -> SegmentTree:
    """A tree for each of `owner` (B,), which may be changed in place: a copy of the tree with that number."""

    def pick(values: Tensor) -> Tensor:
        return values.index_select(0, owner)  # whose gradient is a sum; that of indexing sorts

    return replace(
        tree,
        means=pick(tree.means),
        differences=tuple(map(pick, tree.differences)),
        counts=tuple(map(pick, tree.counts)),
        positions=tuple(map(pick, tree.positions)),
    )


def layer_on_windows(host: Host, index: int, windows: Rows) -> Tensor:
    """One layer on all windows; without gradients some at a time, because nothing but memory is gained by more."""
    some = max(1, WINDOWED_AT_ONCE // len(windows))
    if torch.is_grad_enabled() or windows.hidden.shape[0] <= some:
        return host.layer(index, windows, consecutive=True)
    parts = zip(windows.hidden.split(some), windows.counts.split(some), windows.positions.split(some), strict=True)
    return torch.cat([host.layer(index, Rows(*part, windows.pattern), consecutive=True) for part in parts])


def run_layers(
    host: Host,
    vips: Rows,
    tree: SegmentTree,
    config: VccConfig,
    watch: Callable[[Step], None] | None,
    whole: Callable[[Rows, SegmentTree], Rows],
) -> tuple[Rows, SegmentTree]:
    """The compressed layers. Without gradients the tree is changed in place."""
    for index in range(config.window_layers or 0, host.num_layers):
        vips, tree, cut = layer_step(host, index, vips, tree, config)
        if watch:
            seen = len(vips) + sum(kept.shape[1] for kept in cut.kept)
            watch(Step(index, seen, cut, tree, partial(whole, vips, tree)))
    return vips, tree


def run_windows(
    host: Host,
    parts: list[Rows],
    config: VccConfig,
    watch: Callable[[Step], None] | None,
    whole: Callable[[list[Rows]], Rows],
) -> list[Rows]:
    """The first layers, on windows of each part."""
    pieces, frames = zip(*(split_windows(part, config.window) for part in parts), strict=True)

    def joined(pieces: tuple[Rows, ...]) -> list[Rows]:
        return [join_windows(piece, frame) for piece, frame in zip(pieces, frames, strict=True)]

    def rebuilt(pieces: tuple[Rows, ...]) -> Rows:
        return whole(joined(pieces))

    for index in range(config.window_layers or 0):
        pieces = tuple(
            piece.with_hidden(layer_on_windows(host, index, piece)) if piece.hidden.numel() else piece
            for piece in pieces
        )
        if watch:
            seen = max(len(piece) for piece in pieces)
            watch(Step(index, seen, None, None, partial(rebuilt, pieces)))
    return joined(pieces)


def layer_step(
    host: Host, index: int, vips: Rows, tree: SegmentTree, config: VccConfig
) -> tuple[Rows, SegmentTree, Cut]:
    """Choose, read, layer, write: X_new = S^+ gamma(S X) + X without ever forming S, S^+ or X."""
    explore = config.explore if host.training else 0.0
    score = partial(host.score, index, vips) if config.score == "attention" else partial(vip_similarity, vips)
    cut = choose_cut(tree, score, config.budget, explore)
    chosen, tree = tap_cut(tree, cut)
    seen = concat_rows(vips, chosen)  # S X, in the model's own precision
    after = host.layer(index, seen)
    number = len(vips)
    # The update is taken from what the layer was given, so that rounding it to bf16 does not leak into the tree.
    update = after[:, number:].to(tree.means.dtype) - seen.hidden[:, number:].to(tree.means.dtype)
    in_place = not torch.is_grad_enabled()  # the tree is ours alone, and no gradient needs the old one
    return vips.with_hidden(after[:, :number]), add_to_cut(tree, cut, update, in_place), cut


def materialise(vips: Rows, tree: SegmentTree, layout: Layout, unpack: Callable[[Rows], Rows]) -> Rows:
    """The whole sequence in its original order: O(n D), at the end or when someone watches."""
    return unpack(join_vips(vips, flatten_tree(tree), layout))
