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
from vcc.core.rows import Rows, check_counts, concat_rows
from vcc.core.score import SCORES
from vcc.core.state import Compressed, Windowed
from vcc.core.tree import SegmentTree, build_tree, copy_tree
from vcc.core.vips import check_mask, pack, split_vips
from vcc.core.windows import WindowLayout, join_windows, split_windows
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

    def layer_among(self, index: int, rows: Rows, keys: Rows) -> Tensor:
        """Return the hidden states (B, r, D) of `rows` after layer `index`, in which they attend to `keys`, (B, m) rows
        of any number. A host need not have it: only `vip_window="every"` uses it."""
        raise UsageError(f'vip_window="every": {type(self).__name__} has no layer_among')

    def layer_near(self, index: int, rows: Rows, vips: int, reach: int) -> Tensor:
        """Like `layer`, where rows further than `reach` tokens apart do not see each other. The first `vips` rows see
        all and are seen by all. A host need not have it: only `VccConfig(reach=...)` uses it."""
        raise UsageError(f"reach={reach}: {type(self).__name__} has no layer_near")

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
    """Split rows into windows: VIPs and context separately, or VIPs among their neighbours. If every window sees the
    VIPs, these are a part of their own, and the windows are those of the context."""
    if config.vip_window == "own":
        vips, context, layout = split_vips(rows, vip_mask, config.max_vips)
        return Windowed.split([vips, context], config.window, layout)
    if config.vip_window == "every":
        vips, context, layout = split_vips(rows, vip_mask, config.max_vips)
        windows, pieces = split_windows(context, config.window)
        return Windowed((vips, windows), (WindowLayout(vips, None), pieces), layout)
    packed, packing = pack(rows)
    return Windowed.split([packed], config.window, packing)


def to_tree(state: Windowed, vip_mask: Tensor, config: VccConfig) -> Compressed:
    """Join the windows, and build the tree of the context."""
    layout = state.layout
    if config.vip_window != "inline":
        vips, context = state.joined()
    else:
        assert layout is not None
        (packed,) = state.joined()
        vips, context, second = split_vips(packed, vip_mask.gather(1, layout.tokens), config.max_vips)
        layout = layout.then(second)
    return Compressed(vips, build_tree(context, config.scales), layout)


def run_windows(host: Host, state: Windowed, config: VccConfig, watch: Watch | None = None) -> Windowed:
    """Run the first layers, on windows."""
    for index in range(config.window_layers or 0):
        if config.vip_window == "every":
            vips, windows = state.parts
            state = replace(state, parts=layer_with_vips(host, index, vips, windows, state.windows[1]))
        else:
            state = replace(state, parts=tuple(layer_on_windows(host, index, part) for part in state.parts))
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


def layer_on_windows(host: Host, index: int, windows: Rows) -> Rows:
    """Run one layer on all windows; without gradients in batches, to save memory."""
    if not windows.hidden.numel():
        return windows
    some = max(1, WINDOWED_AT_ONCE // len(windows))
    if torch.is_grad_enabled() or len(windows.hidden) <= some:
        return windows.with_hidden(host.layer(index, windows, consecutive=True))
    parts = zip(windows.hidden.split(some), windows.counts.split(some), windows.positions.split(some), strict=True)
    after = [host.layer(index, Rows(*part, windows.pattern), consecutive=True) for part in parts]
    return windows.with_hidden(torch.cat(after))


def layer_with_vips(host: Host, index: int, vips: Rows, windows: Rows, pieces: WindowLayout) -> tuple[Rows, Rows]:
    """Run one layer on VIPs (B, p) and all windows: a window sees the VIPs and its own tokens, the VIPs see each other
    and the whole context."""
    if not vips.hidden.numel():
        return vips, layer_on_windows(host, index, windows)
    everything = concat_rows(vips, join_windows(windows, pieces))
    after = vips.with_hidden(host.layer_among(index, vips, everything))
    owners = pieces.owners(len(windows))
    some = len(owners) if torch.is_grad_enabled() else max(1, WINDOWED_AT_ONCE // (len(windows) + len(vips)))
    found = []
    for start in range(0, len(owners), max(some, 1)):
        these = slice(start, start + some)
        part = Rows(windows.hidden[these], windows.counts[these], windows.positions[these])
        asking = copy_vips(vips, owners[these])
        found.append(host.layer_among(index, part, concat_rows(asking, part)))
    return after, windows.with_hidden(torch.cat(found)) if found else windows


def copy_vips(vips: Rows, owners: Tensor) -> Rows:
    """The VIPs of batch elements `owners` (k,): (k, p). The gradient of `index_select` is a sum; that of indexing
    sorts."""
    hidden, counts, positions = (each.index_select(0, owners) for each in (vips.hidden, vips.counts, vips.positions))
    return Rows(hidden, counts, positions)
