"""Split VIPs from the context, and join them again at the end."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vcc.core.rows import Pattern, Rows, concat_rows, reseat_rows, running_count

COMPILED_VIPS = 512  # VIP rows reserved in a compiled graph, whose shapes cannot depend on the mask's values


@dataclass(frozen=True)
class Layout:
    """The place of each token in [vips; context], and the token in each place."""

    places: Tensor  # (B, n)
    tokens: Tensor  # (B, vips + context); arbitrary for an empty place
    filled: Tensor  # (B, vips + context)

    def then(self, second: "Layout") -> "Layout":
        """The composition of this layout, whose places are all filled, with a second split."""
        places, tokens = second.places.gather(1, self.places), self.tokens.gather(1, second.tokens)
        return Layout(places, tokens, second.filled)


def split_vips(rows: Rows, vip_mask: Tensor, capacity: int | None = None) -> tuple[Rows, Rows, Layout]:
    """Rows -> vips, context, layout. Order is kept within each part; padding is never a VIP and goes last.

    `capacity` fixes the number of VIP rows, so no shape depends on the mask's values. Without it the largest number of
    VIPs in the batch is read, which synchronises with the device once.
    """
    check_mask(vip_mask, rows.counts, "vip_mask")
    batch, n = rows.counts.shape
    real = rows.counts > 0
    vip = (vip_mask != 0) & real
    number = vip.sum(1, keepdim=True)  # (B, 1)
    fewest = 0
    if capacity is None and torch.compiler.is_compiling():
        capacity = COMPILED_VIPS
    if capacity is not None:
        capacity = min(n, capacity)
        torch._assert_async(
            (number <= capacity).all(), f"a sequence has more VIPs than the {capacity} rows reserved (max_vips)"
        )
    elif batch:
        capacity, fewest = torch.cat([number.max()[None], number.min()[None]]).tolist()
    else:
        capacity = 0
    context = real & ~vip
    rank = torch.where(real, running_count(context) - 1, context.sum(1, keepdim=True) + running_count(~real) - 1)
    places = torch.where(vip, running_count(vip) - 1, capacity + rank)
    size = n - fewest
    tokens = torch.arange(n, device=places.device).expand(batch, n)
    tokens = torch.zeros_like(places[:, :1]).expand(batch, capacity + size).scatter(1, places, tokens)

    place = torch.arange(capacity + size, device=places.device)
    filled = torch.where(place < capacity, place < number, place - capacity < n - number)
    seated = reseat_rows(rows, tokens, places, torch.ones_like(real))
    counts = (seated.counts * filled).to(torch.float32 if rows.counts.dtype == torch.bool else rows.counts.dtype)

    def part(start: int, stop: int) -> Rows:
        pattern = Pattern.of_tokens(batch, stop - start) if rows.single_tokens else None
        return Rows(seated.hidden[:, start:stop], counts[:, start:stop], seated.positions[:, start:stop], pattern)

    return part(0, capacity), part(capacity, capacity + size), Layout(places, tokens, filled)


def pack(rows: Rows) -> tuple[Rows, Layout]:
    """Move padding to the end, so windows and segments do not depend on where it was."""
    _, packed, layout = split_vips(rows, torch.zeros_like(rows.counts, dtype=torch.bool), capacity=0)
    return packed, layout


def join_vips(vips: Rows, context: Rows, layout: Layout) -> Rows:
    """The inverse of `split_vips`."""
    return unseat(concat_rows(vips, context), layout)


def unseat(rows: Rows, layout: Layout) -> Rows:
    """Reorder rows from [vips; context] to the order of the tokens."""
    return reseat_rows(rows, layout.places, layout.tokens, layout.filled)


def check_mask(mask: Tensor, tokens: Tensor, name: str) -> None:
    """Raise unless the mask has the shape (B, n) of the tokens and no NaN."""
    if mask.shape != tokens.shape:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; it must be {tuple(tokens.shape)}, one entry per token")
    if mask.is_floating_point() and not torch.compiler.is_compiling() and bool(mask.isnan().any()):
        raise ValueError(f"{name} contains NaN; it must hold 1 for the tokens it marks and 0 for the others")
