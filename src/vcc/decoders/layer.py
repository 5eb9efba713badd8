"""`TreeLayer`: the cache layer that keeps keys and values in a tree."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from vcc.decoders.config import DecoderConfig
from vcc.decoders.counts import CPU, TokenCounts
from vcc.decoders.outside import OutsideRows, places_of, take_rows
from vcc.decoders.tree import (
    NOWHERE,
    KeyTree,
    NewNodes,
    cut_back,
    empty_tree,
    in_order_of_columns,
    order_of_pieces,
    room_for,
    select,
    write_nodes,
)
from vcc.errors import UsageError


@dataclass(frozen=True)
class RowTally:
    """Sums over the tokens of all steps, for the report. Prefill is not counted."""

    queries: int = 0
    read: float | Tensor = 0.0
    keys: float = 0.0  # that a dense layer would have read

    def plus(self, first: int, new: int, rows: float | Tensor | None) -> "RowTally":
        """Count the rows that `new` columns from `first` on have read on average; None: all."""
        keys = first + (new + 1) / 2
        read = self.read + new * (keys if rows is None else rows)
        return RowTally(self.queries + new, read, self.keys + new * keys)


class TreeLayer(DynamicLayer):
    """First and last tokens exactly, all between them in a `KeyTree`.

    `update` adds new tokens. They must be read before the next update: `newest` is the `TreeStep` that reads them.
    Padding is never in a tree, and no query attends to it. A sequence in a batch is kept exactly as it would be alone.
    """

    _layer_type = "vcc_tree"
    causal = True  # False: a query sees every token (cross-attention)
    rows: OutsideRows  # this, the tree and the counts exist after the first update
    tree: KeyTree
    counts: TokenCounts
    tally: RowTally
    shares_tree: bool

    def __init__(
        self,
        settings: DecoderConfig | None = None,
        leaves_on: torch.device | None = None,
        exact: bool = False,
        expected: int = 0,
        **kwargs: Any,
    ) -> None:
        self.settings = settings or DecoderConfig()
        self.leaves_on = leaves_on  # where the tree's tokens are kept; None: where the model is
        self.exact = exact  # whether all input is one text, which is read exactly
        self.expected = expected  # tokens of a text of known length: storage is made for them at once
        self.forget()

    @classmethod
    def filled(
        cls, settings: DecoderConfig, keys: Tensor, values: Tensor, real: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """A layer that has read tokens (B, H, n, D), of which (B, n) are real; None: all."""
        layer = cls(settings, **kwargs)
        layer.update(keys, values)
        layer.newest(real).settle()
        return layer

    @classmethod
    def restored(
        cls, settings: DecoderConfig, rows: OutsideRows, tree: KeyTree, tokens: Tensor, length: int
    ) -> "TreeLayer":
        """A layer as saved. The tree may be in read-only memory."""
        layer = cls(settings)
        layer.start(rows.keys, rows.values)
        in_tree = torch.tensor(tree.lengths, device=CPU)
        layer.rows, layer.tree, layer.length, layer.shares_tree = rows, tree, length, True
        layer.counts = layer.counts.more(tokens).grown(in_tree)
        return layer

    def continued(self, batch: int) -> "TreeLayer":
        """A layer for `batch` continuations of this one's text. It shares the tree until that grows."""
        layer = copy.copy(self)
        self.shares_tree = layer.shares_tree = True
        layer.exact, layer.tally = False, RowTally()
        layer.counts = self.counts.after_document()
        layer.rows = OutsideRows(self.rows.keys, self.rows.values, self.rows.columns, self.rows.live)
        layer.batch_repeat_interleave(batch)
        return layer

    def with_settings(self, settings: DecoderConfig) -> "TreeLayer":
        """The same layer with other settings. It shares the tree until that grows."""
        other = self.settings.other_tree(settings)
        if other:
            raise UsageError(f"{', '.join(other)} differ: these need another tree, so the text must be read again")
        layer = copy.copy(self)
        self.shares_tree = layer.shares_tree = True
        layer.settings = settings
        if self.is_initialized:
            layer.counts = self.counts.with_settings(settings)
            layer.rows = OutsideRows(*(part.clone() for part in self.rows.parts))
        return layer

    def forget(self) -> None:
        self.is_initialized = False
        self.length = 0  # columns seen, padding included
        self.unread = 0  # newest columns that no query has read yet
        self.owner: Tensor | None = None  # (B,) the tree's sequence of each; None: one each, or one for all
        self.shares_tree = False  # whether another layer reads the same storage
        self.counts = TokenCounts.none(self.settings, 0)
        self.tally = RowTally()

    def start(self, keys: Tensor, values: Tensor) -> None:
        self.dtype, self.device = keys.dtype, keys.device
        self.rows = OutsideRows.none(keys, values)
        self.counts = TokenCounts.none(self.settings, len(keys))
        self.tree = empty_tree(self.settings.scales, keys, self.leaves_on or self.device, self.settings.spread)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Add new tokens. `holds` recognises this layer by the returned keys."""
        if self.unread:
            raise UsageError(
                f"{self.unread} tokens of this cache were never read: a forward was interrupted, or another "
                "model than the one that vcc.wrap returned used the cache. Start with a new cache"
            )
        if not self.is_initialized:
            self.start(key_states, value_states)
        self.unread = key_states.shape[2]
        self.rows.append(key_states, value_states, self.length, self.counts.room)
        self.length += self.unread
        return self.keys, self.values

    def holds(self, keys: Any) -> bool:
        """Whether these are the keys that `update` returned."""
        return self.is_initialized and keys is self.rows.storage.keys

    def newest(self, real: Tensor | None) -> "TreeStep":
        """The columns of the last update, of which (B, q) are real tokens; None: all."""
        return TreeStep(self, real)

    def reads_all(self, new: int, tokens_in_tree: int) -> bool:
        """Whether this many new tokens attend exactly, with this many in the tree."""
        settings = self.settings
        if self.exact or (new > settings.block and settings.prefill == "exact"):
            return True
        if settings.budgets is None:
            return settings.mass == 1 or tokens_in_tree == 0
        return all(h >= tokens_in_tree // scale for h, scale in zip(settings.budgets, settings.scales, strict=False))

    def note_rows(self, first: int, new: int, rows: float | Tensor | None) -> None:
        self.tally = self.tally.plus(first, new, rows)

    def grow(self, target: Tensor) -> None:
        """Move tokens into the tree until it has `target` (B,) of each sequence."""
        grow_together([self], target)

    def own_tree(self) -> None:
        """Give sequences that share a tree their own."""
        batch = len(self.counts.tokens)
        if self.owner is None and len(self.tree.lengths) == batch:
            return
        owner = torch.zeros(batch, dtype=torch.int64, device=CPU) if self.owner is None else self.owner
        shared = self.shares_tree or len(self.tree.lengths) != batch
        self.tree, self.owner = select(self.tree, owner, in_place=not shared), None
        self.shares_tree = False

    def in_columns(self) -> tuple[Tensor, Tensor]:
        """All keys and values (B, H, n, D) in text order; zeros for dropped padding."""
        rows = self.rows
        if not sum(self.tree.lengths) and rows.used == self.length:
            return rows.keys, rows.values
        batch, heads = rows.keys.shape[:2]
        tree = self.tree if self.owner is None else select(self.tree, self.owner)
        places = tree.columns.to(self.device, torch.int64).expand(batch, -1, -1)
        places = torch.where(places == NOWHERE, self.length, places)
        outside = rows.columns[:, None].expand(-1, heads, -1)
        outside = torch.where(rows.live[:, None], outside, self.length)
        index = torch.cat([places, outside], 2)[..., None]

        def spread(inside: Tensor, outside: Tensor) -> Tensor:
            tokens = torch.cat([inside.to(self.device).expand(batch, -1, -1, -1), outside], 2)
            target = tokens.new_zeros(batch, heads, self.length + 1, tokens.shape[3])
            return target.scatter_(2, index.expand(tokens.shape), tokens)[:, :, : self.length]

        return spread(tree.keys, rows.keys), spread(tree.values, rows.values)

    # Required by transformers

    @property
    def keys(self) -> Any:  # type: ignore[override]
        """The storage of the rows outside the tree, (B, H, M, D); None before the first update."""
        return self.rows.storage.keys if self.is_initialized else None

    @property
    def values(self) -> Any:  # type: ignore[override]
        return self.rows.storage.values if self.is_initialized else None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.start(key_states, value_states)

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def reset(self) -> None:
        self.forget()

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -tokens_to_remove columns, exactly as if they had never been added."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop({tokens_to_remove}): it must be negative, the number of tokens to remove")
        if tokens_to_remove == 0 or not self.is_initialized:
            return
        length = max(0, self.length + tokens_to_remove)
        seen = self.rows.columns < length
        left = (self.rows.live & seen).sum(1).cpu() + self.in_tree_before(length)
        counts = self.counts.cropped(left)
        target = counts.belongs(left)
        if bool((target < counts.in_tree).any()):
            counts = counts.grown(self.take_back(target))
        self.rows.keep(self.rows.live & (self.rows.columns < length), counts.room)
        self.length, self.counts, self.unread = length, counts, 0
        self.grow(target)

    def in_tree_before(self, length: int) -> Tensor:
        """(B,) tokens in the tree before a column; on the CPU."""
        columns = self.tree.columns[:, 0].cpu()
        counts = ((columns < length) & (columns != NOWHERE)).sum(1)
        return counts[self.owner.cpu()] if self.owner is not None else counts.expand(len(self.counts.tokens))

    def take_back(self, target: Tensor) -> Tensor:
        """Move pieces that are not completely below `target` (B,) from the tree back to the rows. -> (B,) tokens left
        in the tree."""
        self.own_tree()
        piece, lengths = self.settings.piece, self.counts.in_tree.tolist()
        starts = [min(had, int(t) // piece * piece) for had, t in zip(lengths, target, strict=True)]
        most = max(had - start for had, start in zip(lengths, starts, strict=True))
        rows = self.rows
        keys, values = (rows.keys.new_zeros(*part.shape[:2], most, part.shape[3]) for part in (rows.keys, rows.values))
        columns, live = (part.new_zeros(len(lengths), most) for part in (rows.columns, rows.live))
        for element, (had, start) in enumerate(zip(lengths, starts, strict=True)):
            old = in_order_of_columns(self.tree, torch.tensor([element], device=CPU), start, had)
            for target_part, part in zip((keys, values), old[:2], strict=True):
                target_part[element, :, : had - start] = part[0].to(self.device)
            columns[element, : had - start] = old[2][0].to(self.device)
            live[element, : had - start] = True
        rows.put_back(keys, values, columns, live)
        self.tree = cut_back(self.tree, tuple(starts))
        return torch.tensor(starts, device=CPU)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Beams share the tree: only the few rows outside it are copied."""
        if self.get_seq_length() > 0:
            self.choose(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.get_seq_length() > 0:
            self.choose(torch.arange(len(self.counts.tokens), device=CPU).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.get_seq_length() > 0:
            whole = torch.arange(len(self.counts.tokens), device=indices.device)
            self.choose(whole[indices])

    def choose(self, elements: Tensor) -> None:
        """Replace sequence i by sequence elements[i]."""
        # Beam search passes a strided view of int32; the kernels read contiguous owners.
        at = elements.to(self.device, torch.int64).contiguous()
        self.counts = self.counts.chosen(elements.cpu())
        self.rows.choose(at, self.counts.room)
        if len(self.tree.lengths) > 1 or self.owner is not None:
            self.owner = at if self.owner is None else self.owner.index_select(0, at)

    def offload(self) -> None:
        raise UsageError("a tree's leaves are offloaded by model.read(..., leaves='cpu'), not by the cache")


class TreeStep:
    """The newest columns of a layer, from `update` until they have been read: the only access to them."""

    def __init__(self, layer: TreeLayer, real: Tensor | None) -> None:
        self.layer, self.new, self.first = layer, layer.unread, layer.length - layer.unread
        self.before = layer.counts
        if real is None:
            self.real = torch.ones(len(self.before.tokens), self.new, dtype=torch.bool, device=CPU)  # (B, q)
        else:
            self.real = real.cpu()
            if not bool(self.real.all()):
                layer.rows.mark(real)

    @property
    def reads_all(self) -> bool:
        """Whether the new tokens attend exactly."""
        reached = int(self.before.belongs(self.tokens_after(self.new)).max())
        return self.layer.reads_all(self.new, reached)

    def tokens_after(self, read: int) -> Tensor:
        return self.before.tokens + self.real[:, :read].sum(1)

    def parts(self) -> list[int]:
        """Where the columns must be split for each part to see the tree it would see if given alone."""
        reached = self.before.belongs(self.before.tokens[:, None] + self.real.cumsum(1))  # (B, q)
        changes = reached.diff(dim=1, prepend=self.before.belongs(self.before.tokens)[:, None]).any(0)
        return sorted({*(changes.nonzero()[:, 0] + 1).tolist(), self.new})

    def advance(self, read: int) -> None:
        """Count the first `read` columns as read; the tree does not change yet."""
        self.layer.counts = self.layer.counts.with_tokens(self.tokens_after(read))

    def settle(self, read: int | None = None, whole_pieces: bool = False) -> None:
        """Move due tokens into the tree after `read` columns (default: all) have been read.

        `whole_pieces`: leave the others outside for now. A piece is reordered whenever tokens join it.
        """
        read = self.new if read is None else read
        self.advance(read)
        counts, piece = self.layer.counts, self.layer.settings.piece
        self.layer.grow(torch.maximum(counts.in_tree, counts.due // piece * piece) if whole_pieces else counts.due)
        self.layer.unread = self.new - read

    def leave_growth(self) -> None:
        """Mark all columns as read. Due tokens move into the tree together with other layers'."""
        self.advance(self.new)
        self.layer.unread = 0


def grow_together(layers: Sequence[TreeLayer], target: Tensor) -> None:
    """Move tokens into the trees of layers that have seen the same columns, until each has `target` (B,).

    Everything up to writing is done for all layers together: it is many small operations.
    """
    first, done = layers[0], layers[0].counts.in_tree
    if bool((target <= done).all()):
        return
    for layer in layers:
        layer.own_tree()
    settings, live = first.settings, first.rows.live
    piece, moving = settings.piece, (target - done).to(first.device)[:, None]
    rank = live.cumsum(1) - 1
    moved = live & (rank >= settings.first) & (rank < settings.first + moving)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, (had, wanted) in enumerate(zip(done.tolist(), target.tolist(), strict=True)):
        if wanted > had:
            groups.setdefault((had, wanted), []).append(number)
    for (had, wanted), elements in groups.items():
        element, start = torch.tensor(elements, device=CPU), had // piece * piece
        at = element.to(first.device)
        place = (~moved[at]).sort(dim=1, stable=True).indices[:, : wanted - had]
        some = slice(None) if len(elements) == len(live) else at  # a slice does not copy
        moving_in = [joining(layer, some, place, element, start, had) for layer in layers]
        keys, values, columns = (
            parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*moving_in, strict=True)
        )
        order = order_of_pieces(keys, piece, settings.scales) if settings.order == "key" else None
        nodes = NewNodes.of(keys, values, columns, order, settings.scales, settings.spread)
        for layer, own in zip(layers, nodes.split(len(elements)), strict=True):
            room = room_for(max(wanted, layer.tree.longest), piece, layer.expected)
            layer.tree = write_nodes(layer.tree, element, start, own, room, in_place=not layer.shares_tree)
            layer.shares_tree = False
    kept = live & ~moved
    place = places_of(kept)
    counts = first.counts.grown(torch.maximum(done, target))
    for layer in layers:
        layer.counts = counts
        layer.rows.take(place, kept.gather(1, place), counts.room)


def joining(
    layer: TreeLayer, some: Any, place: Tensor, element: Tensor, start: int, had: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values (e, H, n, D) and columns (e, n), in the order of the text, of the rows at place (e, k) and of the
    tree's last piece where it is not full: it is ordered anew, with what comes."""
    keys, values = (take_rows(part[some], place) for part in (layer.rows.keys, layer.rows.values))
    columns = layer.rows.columns[some].gather(1, place)
    if start < had:
        old = in_order_of_columns(layer.tree, element, start, had)
        keys, values = (torch.cat([a.to(b.device), b], 2) for a, b in zip(old[:2], (keys, values), strict=True))
        columns = torch.cat([old[2].to(columns.device), columns], 1)
    return keys, values, columns
