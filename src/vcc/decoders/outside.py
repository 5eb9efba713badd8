"""`OutsideRows`: the tokens that a layer keeps outside its tree, in storage written in place.

A recorded step writes to fixed addresses, so the storage has room for all tokens until the next ones join the tree.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_ROOM = 256  # rows; storage grows by doubling, so steps are rarely recorded again


@dataclass(frozen=True)
class RowStorage:
    """Memory for M tokens of B sequences, never shared by layers."""

    keys: Tensor  # (B, H, M, D)
    values: Tensor
    columns: Tensor  # (B, M) the place of each token in its sequence
    live: Tensor  # (B, M) which rows hold real tokens; False where there is no row
    writable: bool  # False: made by others, possibly in inference mode or with a gradient; it is replaced, not written

    @property
    def room(self) -> int:
        return self.live.shape[1]


class OutsideRows:
    """Tokens in text order. Padding has rows too until rows move, but they are not live.

    `keys`, `values`, `columns` and `live` are views of the rows in use.
    """

    def __init__(self, keys: Tensor, values: Tensor, columns: Tensor, live: Tensor) -> None:
        self.storage = RowStorage(keys, values, columns, live, writable=False)
        self.used = live.shape[1]
        self.unlabelled, self.next_column = 0, 0  # last rows whose keys a recorded step wrote, and nothing else of them

    @classmethod
    def none(cls, keys: Tensor, values: Tensor) -> "OutsideRows":
        """Empty rows for keys and values like these (B, H, n, D)."""
        columns = torch.zeros(len(keys), 0, dtype=torch.int64, device=keys.device)
        return cls(keys[:, :, :0], values[:, :, :0], columns, columns.bool())

    @property
    def keys(self) -> Tensor:
        return self.storage.keys[:, :, : self.used]

    @property
    def values(self) -> Tensor:
        return self.storage.values[:, :, : self.used]

    @property
    def columns(self) -> Tensor:
        return self.labelled().columns[:, : self.used]

    @property
    def live(self) -> Tensor:
        return self.labelled().live[:, : self.used]

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.keys, self.values, self.columns, self.live

    def labelled(self) -> RowStorage:
        """The storage, with the columns of all rows in it."""
        if self.unlabelled:
            rows = slice(self.used - self.unlabelled, self.used)
            first = self.next_column - self.unlabelled
            self.storage.columns[:, rows] = torch.arange(first, self.next_column, device=self.storage.columns.device)
            self.storage.live[:, rows] = True
            self.unlabelled = 0
        return self.storage

    def append(self, keys: Tensor, values: Tensor, first: int, most: int) -> None:
        """Add tokens (B, H, q, D) that stand in columns from `first` on; of up to `most` rows there will be more."""
        new = keys.shape[2]
        end, storage = self.used + new, self.labelled()
        columns = torch.arange(first, first + new, device=keys.device).expand(len(keys), new)
        live = torch.ones_like(columns, dtype=torch.bool)
        if storage.writable and end <= storage.room and not has_gradient(keys, values):
            storage.keys[:, :, self.used : end] = keys
            storage.values[:, :, self.used : end] = values
            storage.columns[:, self.used : end] = columns
            storage.live[:, self.used : end] = True
            self.used = end
        elif self.used:
            keys, values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
            columns, live = torch.cat([self.columns, columns], 1), torch.cat([self.live, live], 1)
            self.replace(keys, values, columns, live, most)
        else:
            self.replace(keys, values, columns, live, most)

    def appended_by_graph(self, column: int) -> None:
        """Count the row that a recorded step has written: one real token of each sequence."""
        self.used, self.unlabelled, self.next_column = self.used + 1, self.unlabelled + 1, column + 1

    def make_room(self, most: int) -> None:
        """Make room for another row, up to `most`."""
        if not self.storage.writable or self.used == self.storage.room:
            self.replace(*self.parts, most, spare=1)

    def mark(self, real: Tensor) -> None:
        """Of the newest rows, those that are real tokens (B, q)."""
        storage, start = self.labelled(), self.used - real.shape[1]
        live = torch.cat([storage.live[:, :start], real, storage.live[:, self.used :]], 1)
        if storage.writable:
            storage.live.copy_(live)
        else:
            self.storage = RowStorage(storage.keys, storage.values, storage.columns, live, writable=False)

    def keep(self, kept: Tensor, most: int) -> None:
        """Keep only the rows `kept` (B, m), in order; shorter sequences are filled with rows that are not live."""
        place = places_of(kept)
        self.take(place, kept.gather(1, place), most)

    def take(self, place: Tensor, live: Tensor, most: int) -> None:
        """Keep only the rows at place (B, k), of which some are live (B, k)."""
        keys, values = take_rows(self.keys, place), take_rows(self.values, place)
        self.replace(keys, values, self.columns.gather(1, place), live, most)

    def choose(self, elements: Tensor, most: int) -> None:
        """Replace sequence i by sequence elements[i]."""
        keys, values, columns, live = (part.index_select(0, elements) for part in self.parts)
        self.replace(keys, values, columns, live, most)

    def put_back(self, keys: Tensor, values: Tensor, columns: Tensor, live: Tensor) -> None:
        """Insert tokens that precede some of the rows; the rest is filled with rows that are not live."""
        order = torch.cat([self.columns, columns], 1).sort(dim=1, stable=True).indices
        self.replace(
            take_rows(torch.cat([self.keys, keys], 2), order),
            take_rows(torch.cat([self.values, values], 2), order),
            torch.cat([self.columns, columns], 1).gather(1, order),
            torch.cat([self.live, live], 1).gather(1, order),
            0,
        )

    def replace(self, keys: Tensor, values: Tensor, columns: Tensor, live: Tensor, most: int, spare: int = 0) -> None:
        """Replace all rows, in the same storage if possible, with room for up to `most`."""
        batch, count = live.shape
        if count > most or has_gradient(keys, values):
            self.storage = RowStorage(keys, values, columns, live, writable=False)
        else:
            old = self.storage
            if not (old.writable and count + spare <= old.room <= most and len(old.live) == batch):
                self.storage = empty_storage(
                    keys, values, min(most, max(LEAST_ROOM, 1 << (count + spare).bit_length()))
                )
            for target, rows in zip((self.storage.keys, self.storage.values), (keys, values), strict=True):
                target[:, :, :count] = rows
            self.storage.columns[:, :count] = columns
            self.storage.live[:, :count] = live
            self.storage.live[:, count:] = False
        self.used, self.unlabelled = count, 0


@torch.inference_mode(False)  # what is made in that mode could not be written to outside of it
def empty_storage(keys: Tensor, values: Tensor, room: int) -> RowStorage:
    def zeros(*shape: int, dtype: torch.dtype = keys.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=keys.device)

    batch, heads = keys.shape[:2]
    return RowStorage(
        zeros(batch, heads, room, keys.shape[3]),
        zeros(batch, heads, room, values.shape[3]),
        zeros(batch, room, dtype=torch.int64),
        zeros(batch, room, dtype=torch.bool),
        writable=True,
    )


def places_of(kept: Tensor) -> Tensor:
    """(B, k) the places of the rows `kept` (B, m), in order; shorter sequences are filled with others."""
    count = int(kept.sum(1).max()) if kept.numel() else 0
    return (~kept).sort(dim=1, stable=True).indices[:, :count]


def has_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def take_rows(rows: Tensor, place: Tensor) -> Tensor:
    """The rows of (B, H, m, D) at place (B, k), the same for every head."""
    index = place[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[3])
    return rows.gather(2, index)
