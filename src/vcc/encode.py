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
from vcc.core.cut import Cut, add_to_cut, choose_cut, read_cut_and_pass_tree
from vcc.core.norm import at_token_norm
from vcc.core.rows import Rows, check_counts, concat_rows, split_rows
from vcc.core.score import SCORES
from vcc.core.state import Compressed, Windowed
from vcc.core.tree import SegmentTree, build_tree, copy_tree
from vcc.core.vips import check_mask, pack, split_vips
from vcc.core.windows import WindowLayout
from vcc.errors import UsageError

WINDOWED_AT_ONCE = 2**18  # tokens per batch of windows; the feed-forward part needs many times their memory


class Host(Protocol):
    """What the algorithm needs from a Transformer."""

    @property
    @abstractmethod
    def num_layers(self) -> int: ...

    @property
    @abstractmethod
    def training(self) -> bool: ...

    @abstractmethod
    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        """Return the hidden states (B, r, D) after layer `index`. As a key, a row has the weight of `counts` tokens:
        attention adds log(counts) to its score. `consecutive` rows are neighbouring single tokens."""

    def layer_near(self, index: int, rows: Rows, vips: int, reach: int, ordered: bool = False) -> Tensor:
        """Like `layer`, where rows further than `reach` tokens apart do not see each other. The first `vips` rows see
        all and are seen by all. `ordered`: the others are single tokens in their order. A host need not have
        it: only `VccConfig(reach=...)` and `vip_window="every"` use it."""
        raise UsageError(f'reach or vip_window="every": {type(self).__name__} has no layer_near')

    @abstractmethod
    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        """Return the attention of the VIPs to the nodes, with layer `index`'s queries and keys: (B, nodes)."""


@dataclass(frozen=True)
class Step:
    """What one layer did, for `watch`."""

    layer: int
    rows: int  # rows the layer saw, per batch element (in a window layer, per window)
    cut: Cut | None  # None in a window layer
    tree: SegmentTree | None
    whole: Callable[[], Rows]  # the whole sequence after this layer, rebuilt on demand


Watch = Callable[[Step], None]


def encode(host: Host, rows: Rows, vip_mask: Tensor, config: VccConfig, watch: Watch | None = None) -> Rows:
    """Run every layer of `host` on the VIPs and a cut through the rest of `rows`. Return Rows like `rows`."""
    check_mask(vip_mask, rows.counts, "vip_mask")
    check_counts(rows.counts)
    config = config.resolved(host.num_layers)
    windows = run_windows(host, to_windows(rows, vip_mask, config), config, watch)
    return run_layers(host, to_tree(windows, vip_mask, config), config, watch).whole()


def read_once(host: Host, pieces: Iterable[Rows], config: VccConfig) -> SegmentTree:
    """Return the tree of contexts after the window layers, which do not depend on VIPs: read once, `ask` many times.

    `pieces` are consecutive stretches of contexts that are padded at their end; each but the last must be a whole
    number of windows. A single piece may have padding anywhere. With `vip_window="own"`, asking gives what
    `encode` gives on VIPs and context together.
    """
    config = config.resolved(host.num_layers)
    read: list[Rows] = []
    for piece in pieces:
        check_counts(piece.counts)
        if read and len(read[-1]) % config.window:
            raise ValueError(f"a piece of {len(read[-1])} rows, not the last, must be a multiple of {config.window=}")
        read.append(in_windows(host, pack(piece)[0], config))
    return build_tree(read[0] if len(read) == 1 else concat_rows(*read), config.scales)


def ask(
    host: Host,
    vips: Rows,
    tree: SegmentTree,
    config: VccConfig,
    watch: Watch | None = None,
    owner: Tensor | None = None,
    in_place: bool = False,
) -> tuple[Rows, SegmentTree]:
    """Run the layers for VIPs (B, p) over trees from `read_once`. Element i uses tree owner[i]; without `owner` (B,),
    the one tree, or one each.

    Return the VIPs and their trees after the last layer. The given tree is unchanged, and gradients reach it. With
    `in_place`, without gradients, it is changed itself, only at the cuts: a tree on disk may be larger than memory.
    """
    config = config.resolved(host.num_layers)
    vips = in_windows(host, vips, config)
    own = tree if in_place else copy_tree(tree, len(vips.hidden), owner)
    state = run_layers(host, Compressed(vips, own), config, watch)
    return state.vips, state.tree


def to_windows(rows: Rows, vip_mask: Tensor, config: VccConfig) -> Windowed:
    """Split rows into windows: VIPs and context separately, or VIPs among their neighbours. If every row sees the VIPs,
    windows slide, and VIPs and context stay together."""
    if config.vip_window == "own":
        vips, context, layout = split_vips(rows, vip_mask, config.max_vips)
        return Windowed.split([vips, context], config.window, layout)
    if config.vip_window == "every":
        vips, context, layout = split_vips(rows, vip_mask, config.max_vips)
        together = concat_rows(vips, context)
        return Windowed((together,), (WindowLayout(together, None),), layout, len(vips))
    packed, packing = pack(rows)
    return Windowed.split([packed], config.window, packing)


def to_tree(state: Windowed, vip_mask: Tensor, config: VccConfig) -> Compressed:
    """Join the windows, and build the tree of the context."""
    layout = state.layout
    if config.vip_window == "own":
        vips, context = state.joined()
    elif config.vip_window == "every":
        (together,) = state.joined()
        vips, context = split_rows(together, state.vips)
    else:
        assert layout is not None
        (packed,) = state.joined()
        vips, context, second = split_vips(packed, vip_mask.gather(1, layout.tokens), config.max_vips)
        layout = layout.then(second)
    return Compressed(vips, build_tree(context, config.scales), layout)


def run_windows(host: Host, state: Windowed, config: VccConfig, watch: Watch | None = None) -> Windowed:
    """Run the first layers, on windows."""
    for index in range(config.window_layers or 0):
        run = partial(layer_on_windows, host, index, config=config, vips=state.vips)
        state = replace(state, parts=tuple(map(run, state.parts)))
        if watch:
            watch(Step(index, max(map(len, state.parts)), None, None, state.whole))
    return state


def in_windows(host: Host, rows: Rows, config: VccConfig) -> Rows:
    """Run the first layers on rows, in windows of their own."""
    if config.vip_window == "every":
        raise UsageError(
            'vip_window="every": the states of the document depend on the VIPs, so it cannot be read once and asked '
            'later; vip_window must be "own" or "inline"'
        )
    (after,) = run_windows(host, Windowed.split([rows], config.window), config).joined()
    return after


def run_layers(host: Host, state: Compressed, config: VccConfig, watch: Watch | None) -> Compressed:
    """Run the other layers, on the VIPs and a cut. Without gradients the tree is changed in place."""
    for index in range(config.window_layers or 0, host.num_layers):
        state, cut = layer_step(host, index, state, config)
        if watch:
            watch(Step(index, len(state.vips) + cut.rows, cut, state.tree, state.whole))
    return state


def layer_step(host: Host, index: int, state: Compressed, config: VccConfig) -> tuple[Compressed, Cut]:
    """Choose, read, layer, write: X_new = S^+ gamma(S X) + X without ever forming S, S^+ or X.

    With `mean_norm` the layer sees means at the norm of a token. The update is still computed against the mean as it
    was: after the layer the mean of a closed node is what the layer gave for it.
    """
    vips, number = state.vips, len(state.vips)

    def score(nodes: Rows) -> Tensor:
        asked = at_token_norm(nodes, vips) if config.mean_norm else nodes
        return SCORES[config.score](partial(host.score, index), vips, asked)

    explore = config.explore if host.training else 0.0
    cut = choose_cut(state.tree, score, config.budget, explore, config.mass, config.gate_closed)
    chosen, tree = read_cut_and_pass_tree(state.tree, cut)
    seen = concat_rows(vips, chosen)  # S X, in the model's own precision
    given = at_token_norm(seen, vips) if config.mean_norm else seen
    after = host.layer(index, given) if config.reach is None else host.layer_near(index, given, number, config.reach)
    # The update is the output minus the rounded input, so rounding to bf16 does not leak into the tree.
    update = after[:, number:].to(tree.means.dtype) - seen.hidden[:, number:].to(tree.means.dtype)
    if cut.closed_gates:
        update = update * torch.cat(cut.closed_gates, 1)[..., None].to(update.dtype)
    in_place = not torch.is_grad_enabled()  # we own the tree, and no gradient needs the old one
    tree = add_to_cut(tree, cut, update, in_place)
    return replace(state, vips=vips.with_hidden(after[:, :number]), tree=tree), cut


def layer_on_windows(host: Host, index: int, rows: Rows, config: VccConfig, vips: int) -> Rows:
    """Run one layer on all windows; without gradients in batches, to save memory. With `vip_window="every"` the rows
    are not split: a token sees half a window on each side and the VIPs, the first rows, which see everything."""
    if not rows.hidden.numel():
        return rows

    def run(part: Rows) -> Tensor:
        if config.vip_window == "every":
            return host.layer_near(index, part, vips, config.window // 2, ordered=True)
        return host.layer(index, part, consecutive=True)

    some = max(1, WINDOWED_AT_ONCE // len(rows))
    if torch.is_grad_enabled() or len(rows.hidden) <= some:
        return rows.with_hidden(run(rows))
    parts = zip(rows.hidden.split(some), rows.counts.split(some), rows.positions.split(some), strict=True)
    return rows.with_hidden(torch.cat([run(Rows(*part, rows.pattern)) for part in parts]))
