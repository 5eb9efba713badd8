"""Windows: short separate pieces, which do not attend to each other, for the first layers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vcc.core.rows import Pattern, Rows, pad_rows


@dataclass(frozen=True)
class WindowLayout:
    """What `join_windows` needs to undo `split_windows`."""

    rows: Rows  # as they were
    kept: Tensor | None  # (windows,) indices of the pieces that were kept; None: all


def split_windows(rows: Rows, size: int) -> tuple[Rows, WindowLayout]:
    """(B, n) rows -> (windows, size) rows: consecutive pieces, all pieces of all batch elements as one batch.

    Pieces that are all padding are skipped, which synchronises with the device once; not in a compiled graph, whose
    shapes are fixed.
    """
    batch, n, features = rows.hidden.shape
    size = max(1, min(size, n))
    number = -(-n // size)
    padded = pad_rows(rows, number * size)
    pieces = Rows(
        padded.hidden.reshape(batch * number, size, features),
        padded.counts.reshape(batch * number, size),
        padded.positions.reshape(batch * number, size),
        # Padding is at the end, so at most one window of a batch element holds both tokens and padding.
        Pattern.of_tokens(batch, size) if rows.packed_tokens else None,
    )
    if torch.compiler.is_compiling():
        return pieces, WindowLayout(rows, None)
    kept = (pieces.counts > 0).any(1).nonzero().squeeze(1)
    if len(kept) == batch * number:
        return pieces, WindowLayout(rows, None)
    some = Rows(pieces.hidden[kept], pieces.counts[kept], pieces.positions[kept], pieces.pattern)
    return some, WindowLayout(rows, kept)


def join_windows(windows: Rows, layout: WindowLayout) -> Rows:
    """The inverse of `split_windows`; a skipped piece keeps its hidden states."""
    batch, n, features = layout.rows.hidden.shape
    hidden, size = windows.hidden, max(1, windows.hidden.shape[1])
    number = -(-n // size)
    if layout.kept is not None:
        every = pad_rows(layout.rows, number * size).hidden.reshape(batch * number, size, features)
        hidden = every.to(hidden.dtype).index_copy(0, layout.kept, hidden)
    return layout.rows.with_hidden(hidden.reshape(batch, number * size, features)[:, :n])
