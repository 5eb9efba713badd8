"""The best non-overlapping spans of rows, in one launch: a program takes the spans of a row sequentially.

The plain version in `vcc.data.answers` launches about 25 small kernels per span: 48 of the 161 ms that the 41 questions
on a contract took. Imported only if Triton is installed.
"""

# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import max_pool1d, pad

BLOCK = 1024  # places whose maximum is kept: finding the next span need not read the whole row
FEWEST = 128  # the least room for blocks: one kernel serves all rows of up to 131,072 places


def choose_spans(start: Tensor, end: Tensor, rounds: int, max_tokens: int, block: int = BLOCK) -> Tensor:
    """What `vcc.data.answers.choose_spans` gives, for rows of at least one place and max_tokens from 1 to a few
    thousand. NaN is never chosen."""
    rows, n = start.shape
    longest = min(max_tokens, n)
    start, end = start.float().contiguous(), pad(end.float(), (0, longest - 1), value=-torch.inf)
    best, where = max_pool1d(end[:, None], longest, stride=1, return_indices=True)  # each start's best end
    total, where = start + best[:, 0], where[:, 0].contiguous()
    found = torch.empty(rows, rounds, 3, dtype=torch.float64, device=start.device)
    with torch.cuda.device_of(start):
        take_spans[(rows,)](
            start, end, total, where, found, n, rounds, longest, BLOCK=block,
            BLOCKS=max(FEWEST, triton.next_power_of_2(triton.cdiv(n, block))), REACH=triton.next_power_of_2(max_tokens),
        )  # fmt: skip
    return found


@triton.jit
def block_of(total, which, n, BLOCK: tl.constexpr):
    """(BLOCK,) the scores of a block, -inf beyond the row."""
    place = which * BLOCK + tl.arange(0, BLOCK)
    return tl.load(total + place, mask=place < n, other=float("-inf"))


@triton.jit
def larger(a, at_a, b, at_b):
    """The larger of two numbers and its place; the first place on a tie."""
    ours = (a > b) | ((a == b) & (at_a < at_b))
    return tl.where(ours, a, b), tl.where(ours, at_a, at_b)


@triton.jit(do_not_specialize=["n", "rounds", "longest"])
def take_spans(
    start, end, total, where, found, n, rounds, longest, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, REACH: tl.constexpr
):
    """`total` (R, n) is the score of the best span from each start, `where` (R, n) its end. Both are changed: taken
    spans get total -inf and where -1."""
    row = tl.program_id(0).to(tl.int64)
    start += row * n
    end += row * (n + longest - 1)
    total += row * n
    where += row * n
    found += row * rounds * 3
    block, place, step = tl.arange(0, BLOCKS), tl.arange(0, BLOCK), tl.arange(0, REACH)
    maxima = tl.full((BLOCKS,), float("-inf"), tl.float32)
    for b in range(0, tl.cdiv(n, BLOCK)):
        maxima = tl.where(block == b, tl.max(block_of(total, b, n, BLOCK), 0), maxima)
    for i in range(0, rounds):
        score = tl.max(maxima, 0)
        best = tl.min(tl.where(maxima == score, block, 0x7FFFFFFF), 0)
        best = tl.minimum(best, tl.cdiv(n, BLOCK) - 1)  # if none equals it, all are NaN: stay inside the row
        at = tl.where(block_of(total, best, n, BLOCK) == score, best * BLOCK + place, n - 1)
        first = tl.min(at, 0)
        last = tl.load(where + first).to(tl.int32)
        tl.store(found + 3 * i, score.to(tl.float64))
        tl.store(found + 3 * i + 1, first.to(tl.float64))
        tl.store(found + 3 * i + 2, last.to(tl.float64))

        # The starts just before this span, back to another one that was taken: their ends must now come before it.
        before = first - 1 - step
        near = (before >= 0) & (step < longest - 1)
        taken = tl.load(where + before, mask=near, other=0) < 0
        free = near & (before > tl.max(tl.where(taken, before, -1), 0))
        ends = tl.load(end + before, mask=free, other=float("-inf"))
        nearer, back = tl.associative_scan((ends, before), 0, larger)
        again = tl.load(start + before, mask=free, other=float("-inf")) + nearer
        tl.debug_barrier()  # all threads have read `where` before any changes it,
        tl.store(total + before, again, mask=free)
        tl.store(where + before, back.to(tl.int64), mask=free)
        tl.store(total + first + step, float("-inf"), mask=step <= last - first)
        tl.store(where + first + step, -1, mask=step <= last - first)
        tl.debug_barrier()  # and all see what was changed
        for b in range(tl.maximum(first - longest + 1, 0) // BLOCK, last // BLOCK + 1):
            maxima = tl.where(block == b, tl.max(block_of(total, b, n, BLOCK), 0), maxima)
