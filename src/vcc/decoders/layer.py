"""`TreeLayer`: what a wrapped decoder layer keeps of the keys and values it has seen, as transformers' caches do."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from vcc.decoders.config import DecoderConfig
from vcc.decoders.tree import NOWHERE, KeyTree, cut_back, empty_tree, in_order_of_columns, select, write_tokens
from vcc.errors import UsageError

CPU = torch.device("cpu")  # named wherever tensors must be there: torch.set_default_device may say otherwise


class TreeLayer(DynamicLayer):
    """First and last tokens as they are, all between them in a `KeyTree`.

    `keys`, `values` (B, H, m, D) are the tokens outside the tree, in the order of the text; `columns` (B, m) says where
    each stands, `live` (B, m) which are real: padding, wherever it is, is in no tree and attended by nobody. A sequence
    in a batch is kept exactly as it would be alone: its first and last tokens, and its pieces, are its own.
    """

    _layer_type = "vcc_tree"
    keys: Any  # (B, H, m, D)
    values: Any
    tree: KeyTree  # from the first update on

    def __init__(self, settings: DecoderConfig | None = None, causal: bool = True, **kwargs: Any) -> None:
        super().__init__()
        self.settings = settings or DecoderConfig()
        self.causal = causal  # False: a query sees every token, wherever it stands (cross-attention)
        self.leaves_on: torch.device | None = None  # where the tree's tokens are kept; None: where the model is
        self.reading_all = False  # whether what comes is a part of a longer text that is read exactly
        self.entered = False  # whether the attention that knows this layer is about to read it
        self.forget()

    def forget(self) -> None:
        self.length = 0  # columns seen, padding included
        self.tokens = torch.zeros(0, dtype=torch.int64, device=CPU)  # (B,) real tokens of each sequence
        self.in_tree = self.tokens  # (B,) those of them that are in the tree
        self.since = self.tokens  # (B,) tokens in the tree when the document ended
        self.coming = torch.zeros(0, 0, dtype=torch.bool, device=CPU)  # (B, q) which of the newest columns are real
        self.owner: Tensor | None = None  # (B,) the tree's sequence of each; None: one each, or one for all
        self.every = self.settings.fresh  # tokens that join the tree at a time; after a document, whole pieces
        self.queries, self.rows_of = 0, 0.0  # for the report: sums over the tokens of all steps
        self.rows_read: float | Tensor = 0.0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        batch = len(key_states)
        self.columns = torch.zeros(batch, 0, dtype=torch.int64, device=self.device)
        self.live = torch.zeros(batch, 0, dtype=torch.bool, device=self.device)
        self.tokens = torch.zeros(batch, dtype=torch.int64, device=CPU)
        self.since = self.in_tree = torch.zeros_like(self.tokens)
        self.coming = torch.zeros(batch, 0, dtype=torch.bool, device=CPU)
        self.tree = empty_tree(self.settings.scales, self.keys, self.leaves_on or self.device, self.settings.spread)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Take new tokens in. What comes back leads the attention function here, by its attribute `tree_layer`."""
        if not self.entered:
            raise UsageError(
                "this cache keeps its keys in a tree, and only the model that vcc.wrap gave, or another of its family "
                "and size, can read it; pass the wrapped model the cache, or this model a DynamicCache"
            )
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        batch, _, new, _ = key_states.shape
        if self.columns.shape[1]:
            key_states, value_states = (
                torch.cat(both, 2) for both in ((self.keys, key_states), (self.values, value_states))
            )
        self.keys, self.values = key_states, value_states
        fresh = torch.arange(self.length, self.length + new, device=self.device).expand(batch, new)
        self.columns = torch.cat([self.columns, fresh], 1)
        self.live = torch.cat([self.live, torch.ones_like(fresh, dtype=torch.bool)], 1)
        self.coming = torch.ones(batch, new, dtype=torch.bool, device=CPU)
        self.length += new
        keys = self.keys.view_as(self.keys)  # a view: the layer must not hold what holds the layer
        keys.tree_layer = self  # type: ignore[attr-defined]
        return keys, self.values

    def note_padding(self, real: Tensor | None) -> None:
        """Which of the newest columns are real (B, q); None: all. Once after each update."""
        self.entered = False
        if real is not None:
            new = real.shape[1]
            self.live = torch.cat([self.live[:, : self.live.shape[1] - new], real], 1)
            self.coming = real.cpu()

    def reached(self, read: int | None = None) -> Tensor:
        """(B,): tokens that belong in the tree when `read` of the newest columns (all of them) have been read."""
        return self.belongs(self.tokens + self.coming[:, :read].sum(1))

    def belongs(self, tokens: Tensor) -> Tensor:
        """How many of so many tokens (B, ...) belong in the tree: all but the first, the local, and those that collect.

        It depends on nothing else, so that tokens that come one by one and tokens that come at once are kept alike.
        """
        since = self.since.view(-1, *(1,) * (tokens.ndim - 1))
        beyond = tokens - self.settings.first - self.settings.local - since
        return beyond.clamp(min=0) // self.every * self.every + since

    def steps(self) -> list[int]:
        """Where the newest columns must be parted so that each part sees the tree it would see if it came alone."""
        reached = self.belongs(self.tokens[:, None] + self.coming.cumsum(1))  # (B, q)
        changes = reached.diff(dim=1, prepend=self.belongs(self.tokens)[:, None]).any(0)
        return sorted({*(changes.nonzero()[:, 0] + 1).tolist(), reached.shape[1]})

    def reads_all(self, new: int) -> bool:
        """Whether so many new tokens are to see every token as it is."""
        settings = self.settings
        if self.reading_all or (new > settings.block and settings.prefill == "exact"):
            return True
        room = int(self.reached().max()) if self.coming.numel() else max(self.tree.lengths)
        if settings.budget is None:
            return settings.mass == 1 or room == 0
        return all(h >= room // scale for h, scale in zip(settings.budget, settings.scales, strict=False))

    def note_rows(self, first: int, new: int, rows: Tensor | None) -> None:
        """For the report: the tokens of `new` columns from `first` on have read so many rows (B, c) each; None: all."""
        keys = first + (new + 1) / 2
        self.rows_read = self.rows_read + new * (keys if rows is None else rows.double().mean())
        self.rows_of += new * keys
        self.queries += new

    def settle(self, read: int | None = None) -> None:
        """Let the tree have what belongs in it, now that `read` of the newest columns (all of them) have been read."""
        reached = self.reached(read)
        if read is None or read == self.coming.shape[1]:
            self.tokens = self.tokens + self.coming.sum(1)
            self.coming = self.coming[:, :0]
        self.grow(reached)

    def grow(self, target: Tensor) -> None:
        """Move tokens into the tree until it has `target` (B,) of each sequence, those after the first."""
        done = self.in_tree
        if bool((target <= done).all()):
            return
        self.own_tree()
        piece = self.settings.piece
        moving = (target - done).to(self.device)[:, None]
        rank = self.live.cumsum(1) - 1
        moved = self.live & (rank >= self.settings.first) & (rank < self.settings.first + moving)
        groups: dict[tuple[int, int], list[int]] = {}
        for number, (had, wanted) in enumerate(zip(done.tolist(), target.tolist(), strict=True)):
            if wanted > had:
                groups.setdefault((had, wanted), []).append(number)
        for (had, wanted), elements in groups.items():
            element, start = torch.tensor(elements, device=CPU), had // piece * piece
            at = element.to(self.device)
            place = (~moved[at]).sort(dim=1, stable=True).indices[:, : wanted - had]
            some = slice(None) if len(elements) == len(self.live) else at  # a slice does not copy
            keys, values = (take_rows(part[some], place) for part in (self.keys, self.values))
            columns = self.columns[some].gather(1, place)
            if start < had:  # the last piece is not full: it is ordered anew, with what comes
                old = in_order_of_columns(self.tree, element, start, had)
                keys, values = (torch.cat([a.to(b.device), b], 2) for a, b in zip(old[:2], (keys, values), strict=True))
                columns = torch.cat([old[2].to(columns.device), columns], 1)
            by_key = self.settings.order == "key"
            self.tree = write_tokens(self.tree, element, start, (keys, values, columns), piece, by_key)
        self.in_tree = torch.maximum(done, target)
        self.keep(self.live & ~moved)

    def keep(self, kept: Tensor) -> None:
        """Only the rows `kept` (B, m) stay, in their order; where others keep more, rows that are not live follow."""
        most = int(kept.sum(1).max()) if kept.numel() else 0
        place = (~kept).sort(dim=1, stable=True).indices[:, :most]
        self.keys, self.values = take_rows(self.keys, place), take_rows(self.values, place)
        self.columns, self.live = self.columns.gather(1, place), kept.gather(1, place)

    def own_tree(self) -> None:
        """Sequences that share a tree get one each."""
        batch = len(self.live)
        if self.owner is None and len(self.tree.lengths) == batch:
            return
        owner = torch.zeros(batch, dtype=torch.int64, device=CPU) if self.owner is None else self.owner
        self.tree, self.owner = select(self.tree, owner), None

    def in_columns(self) -> tuple[Tensor, Tensor]:
        """All keys and values (B, H, n, D) as they stood in the text; zeros where padding is not kept."""
        if not sum(self.tree.lengths) and self.keys.shape[2] == self.length:
            return self.keys, self.values
        batch, heads, _, width = self.keys.shape
        tree = self.tree if self.owner is None else select(self.tree, self.owner)
        places = tree.columns.to(self.device, torch.int64).expand(batch, -1, -1)
        places = torch.where(places == NOWHERE, self.length, places)
        outside = self.columns[:, None].expand(-1, heads, -1)
        outside = torch.where(self.live[:, None], outside, self.length)
        index = torch.cat([places, outside], 2)[..., None]

        def spread(inside: Tensor, rows: Tensor) -> Tensor:
            tokens = torch.cat([inside.to(self.device).expand(batch, -1, -1, -1), rows], 2)
            target = tokens.new_zeros(batch, heads, self.length + 1, tokens.shape[3])
            return target.scatter_(2, index.expand(tokens.shape), tokens)[:, :, : self.length]

        return spread(tree.keys, self.keys), spread(tree.values, self.values)

    def continue_document(self) -> None:
        """What comes from here on is no part of the text: it joins the tree in whole pieces only."""
        self.since, self.every = self.in_tree, self.settings.piece
        self.queries, self.rows_read, self.rows_of = 0, 0.0, 0.0

    # What transformers asks of a cache layer

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def reset(self) -> None:
        super().reset()
        self.forget()

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last columns, -tokens_to_remove of them: what is left is as if they had never come."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop({tokens_to_remove}): the number of tokens to remove is given as a negative number")
        if tokens_to_remove == 0 or not self.is_initialized:
            return
        length = max(0, self.length + tokens_to_remove)
        seen = self.columns < length
        left = (self.live & seen).sum(1).cpu() + self.in_tree_before(length)
        if bool((left < self.since + self.settings.first + self.settings.local).any()):  # into the document
            self.since, self.every = torch.zeros_like(left), self.settings.fresh
        target = self.belongs(left)
        if bool((target < self.in_tree).any()):
            self.take_back(target)
        self.keep(self.live & (self.columns < length))
        self.length, self.tokens = length, left
        self.grow(target)

    def in_tree_before(self, length: int) -> Tensor:
        """(B,) tokens in the tree that stand before a column; on the CPU."""
        columns = self.tree.columns[:, 0].cpu()
        counts = ((columns < length) & (columns != NOWHERE)).sum(1)
        return counts[self.owner.cpu()] if self.owner is not None else counts.expand(len(self.live))

    def take_back(self, target: Tensor) -> None:
        """Take out of the tree all pieces that are not whole below `target` (B,), back among the rows."""
        self.own_tree()
        piece, lengths = self.settings.piece, self.in_tree.tolist()
        starts = [min(had, int(t) // piece * piece) for had, t in zip(lengths, target, strict=True)]
        most = max(had - start for had, start in zip(lengths, starts, strict=True))
        batch, heads, _, width = self.keys.shape
        keys, values = self.keys.new_zeros(batch, heads, most, width), self.values.new_zeros(batch, heads, most, width)
        columns, live = self.columns.new_zeros(batch, most), self.live.new_zeros(batch, most)
        for element, (had, start) in enumerate(zip(lengths, starts, strict=True)):
            old = in_order_of_columns(self.tree, torch.tensor([element], device=CPU), start, had)
            for target_part, part in zip((keys, values), old[:2], strict=True):
                target_part[element, :, : had - start] = part[0].to(self.device)
            columns[element, : had - start] = old[2][0].to(self.device)
            live[element, : had - start] = True
        order = torch.cat([self.columns, columns], 1).sort(dim=1, stable=True).indices
        self.keys = take_rows(torch.cat([self.keys, keys], 2), order)
        self.values = take_rows(torch.cat([self.values, values], 2), order)
        self.columns = torch.cat([self.columns, columns], 1).gather(1, order)
        self.live = torch.cat([self.live, live], 1).gather(1, order)
        self.tree, self.in_tree = cut_back(self.tree, tuple(starts)), torch.tensor(starts, device=CPU)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """The tree is shared by beams: only the few rows outside it are copied."""
        if self.get_seq_length() > 0:
            self.choose(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.get_seq_length() > 0:
            self.choose(torch.arange(len(self.live), device=CPU).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.get_seq_length() > 0:
            whole = torch.arange(len(self.live), device=indices.device)
            self.choose(whole[indices])

    def choose(self, elements: Tensor) -> None:
        """From here on, sequence i is what sequence elements[i] was."""
        at, on_cpu = elements.to(self.device), elements.cpu()
        self.keys, self.values = self.keys.index_select(0, at), self.values.index_select(0, at)
        self.columns, self.live = self.columns.index_select(0, at), self.live.index_select(0, at)
        self.tokens, self.coming = self.tokens[on_cpu], self.coming[on_cpu]
        self.since, self.in_tree = self.since[on_cpu], self.in_tree[on_cpu]
        if len(self.tree.lengths) > 1 or self.owner is not None:
            self.owner = at if self.owner is None else self.owner.index_select(0, at)

    def offload(self) -> None:
        raise UsageError("a tree's leaves are offloaded by model.read(..., leaves='cpu'), not by the cache")


def take_rows(rows: Tensor, place: Tensor) -> Tensor:
    """Of rows (B, H, m, D), those at place (B, k), the same for every head."""
    index = place[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[3])
    return rows.gather(2, index)
