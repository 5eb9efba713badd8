"""The first layers run on windows: short separate pieces that do not see each other."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vcc.core.rows import Pattern, Rows, pad_rows


@dataclass(frozen=True)
class Frame:
    """What `join_windows` needs to undo `split_windows`."""

    rows: Rows  # as they were
    kept: Tensor | None  # (windows,) which pieces are there; None: all of them


def split_windows(rows: Rows, size: int) -> tuple[Rows, Frame]:
    """(B, n) rows -> (windows, size) rows: consecutive pieces, all pieces of all batch elements as one batch.

    Pieces that are all padding are left out, except in a compiled graph, whose shapes are fixed. Leaving them out
    waits for the device once.
    """
    batch, n, features = rows.hidden.shape
    size = max(1, min(size, n))
    number = -(-n // size)
    padded = pad_rows(rows, number * size)
    pieces = Rows(
        padded.hidden.reshape(batch * number, size, features),
        padded.counts.reshape(batch * number, size),
        padded.positions.reshape(batch * number, size),
        # Padding is at the end: of the windows of a batch element, at most one holds some beside tokens.
        Pattern(((size, 1),), batch) if rows.pattern == Pattern(((n, 1),), batch) else None,
    )
    if torch.compiler.is_compiling():
        return pieces, Frame(rows, None)
    kept = (pieces.counts > 0).any(1).nonzero().squeeze(1)
    if len(kept) == batch * number:
        return pieces, Frame(rows, None)
    some = Rows(pieces.hidden[kept], pieces.counts[kept], pieces.positions[kept], pieces.pattern)
    return some, Frame(rows, kept)


def join_windows(windows: Rows, frame: Frame) -> Rows:
    """The inverse of `split_windows`; a piece that was left out keeps its hidden states."""
    batch, n, features = frame.rows.hidden.shape
    hidden, size = windows.hidden, windows.hidden.shape[1]
    number = -(-n // size)
    if frame.kept is not None:
        every = pad_rows(frame.rows, number * size).hidden.reshape(batch * number, size, features)
        hidden = every.to(hidden.dtype).index_copy(0, frame.kept, hidden)
    return frame.rows.with_hidden(hidden.reshape(batch, number * size, features)[:, :n])
