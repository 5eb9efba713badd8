"""A batch of short and long inputs. The short ones run through the untouched model, without their padding.

Each input is read as it would be alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcc.hosts.families.host import Inputs


@dataclass(frozen=True)
class Extent:
    """The place of each input in its row: columns `starts` to `ends` - 1, both (B,)."""

    starts: Tensor
    ends: Tensor

    @staticmethod
    def of(real: Tensor, own_positions: bool) -> "Extent":
        """The extents of the real tokens (B, n). If positions count from the first column, left padding belongs to the
        text; with `own_positions`, counted from the text's first token, it does not."""
        columns = torch.arange(1, real.shape[1] + 1, device=real.device)
        ends = (real * columns).amax(1)
        starts = real.to(torch.int8).argmax(1) if own_positions else torch.zeros_like(ends)
        return Extent(starts, ends)

    @property
    def lengths(self) -> list[int]:
        """Waits for the device."""
        return (self.ends - self.starts).tolist()

    def columns(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """For some rows (b,) without their padding: the column of each token, and whether it is one, (b, m)."""
        starts, lengths = self.starts[rows, None], (self.ends - self.starts)[rows, None]
        steps = torch.arange(max(int(lengths.max()), 1), device=rows.device)
        return (starts + steps).clamp(max=int(self.ends.max()) - 1).clamp(min=0), steps < lengths


def some_rows(inputs: Inputs, rows: Tensor, shape: torch.Size, columns: Tensor | None = None) -> dict[str, Any]:
    """The arguments for some rows (b,) of a batch of shape (B, n), restricted to columns (b, m)."""
    return {name: pick(value, rows, shape, columns) for name, value in inputs.items()}


def pick(value: Any, rows: Tensor, shape: torch.Size, columns: Tensor | None = None) -> Any:
    """One argument for some rows; tensors without a batch dimension stay as they are."""
    if not isinstance(value, Tensor) or value.ndim == 0 or value.shape[0] not in (1, shape[0]):
        return value
    value = value.expand(shape[0], *value.shape[1:])[rows]
    if columns is None or value.ndim < 2 or value.shape[1] != shape[1]:
        return value
    index = columns.view(*columns.shape, *[1] * (value.ndim - 2)).expand(-1, -1, *value.shape[2:])
    return value.gather(1, index)


def read_mixed(
    inputs: Inputs,
    real: Tensor,
    extent: Extent,
    short: Sequence[bool],
    dense: Callable[[dict[str, Any]], Any],
    compressed: Callable[[Tensor], Any],
) -> tuple[Tensor, tuple[Tensor | None, ...] | None]:
    """The last hidden states (B, n, D) of a batch and, if requested, those of every layer. `dense` reads its `short`
    inputs, given their arguments; `compressed` reads the others, given their rows."""
    which = torch.tensor(short, device=real.device)
    rows, others = which.nonzero()[:, 0], (~which).nonzero()[:, 0]
    columns, held = extent.columns(rows)
    given = some_rows(inputs, rows, real.shape, columns)
    given["attention_mask"] = given["attention_mask"] * held
    near = dense(given)
    far = compressed(others) if len(others) else None

    def join(part: Tensor | None, long: Tensor | None) -> Tensor | None:
        """(B, n, D) from (b, m, D) and (B - b, n, D); None if either is."""
        if part is None or (far is not None and long is None):
            return None
        whole = part.new_zeros(*real.shape, part.shape[2])
        if long is not None:
            whole = whole.index_copy(0, others, long.to(whole.dtype))
        return whole.index_put((rows[:, None].expand_as(columns)[held], columns[held]), part[held])

    last = join(near.last_hidden_state, None if far is None else far.last_hidden_state)
    assert last is not None
    if near.hidden_states is None:
        return last, None
    farther = [None] * len(near.hidden_states) if far is None else far.hidden_states
    return last, tuple(join(*pair) for pair in zip(near.hidden_states, farther, strict=True))
