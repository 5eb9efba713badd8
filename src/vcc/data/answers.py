"""From a model's output to predictions: spans of the document, a choice, or text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d, pad

from vcc.data.collate import IGNORED, NULL_POSITION
from vcc.data.example import Example, Prediction
from vcc.data.features import Features
from vcc.has_triton import why_not_on

KERNEL_TOKENS = 1024  # a kernel program keeps this many in registers


@dataclass(frozen=True)
class ScoredSpan:
    """Tokens first..last, both included, and the sum of their start and end logits."""

    first: int
    last: int
    score: float


Span = TypeVar("Span", bound=ScoredSpan)


def without_overlaps(spans: Iterable[Span], most: int) -> list[Span]:
    """Return the best spans that do not overlap, best first."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: -span.score):
        if len(kept) == most:
            break
        if all(span.last < other.first or span.first > other.last for other in kept):
            kept.append(span)
    return kept


def best_spans(start: Tensor, end: Tensor, top: int, max_tokens: int) -> list[ScoredSpan]:
    """Return the best span, then the best one that does not overlap it, and so on, at most `top`. start, end (n,).

    Exact: every span of at most `max_tokens` tokens competes. -inf marks places where no answer may start or end.
    """
    return best_spans_of_rows(start[None], end[None], top, max_tokens)[0]


def best_spans_of_rows(start: Tensor, end: Tensor, top: int, max_tokens: int) -> list[list[ScoredSpan]]:
    """`best_spans` for each row of start and end (R, n), in a batch; synchronises with the device once, at the end."""
    rows = span_table(start, end, top, max_tokens).tolist()
    return [[ScoredSpan(int(a), int(b), score) for score, a, b in row if score > -torch.inf] for row in rows]


def span_table(start: Tensor, end: Tensor, top: int, max_tokens: int) -> Tensor:
    """The same as a tensor on the device, (R, spans, 3) float64: score, first, last. If a row has no more spans, the
    score is -inf and the rest is undefined."""
    n = start.shape[1]
    if min(n, max_tokens) < 1:
        raise ValueError(f"max_tokens {max_tokens} must be at least 1, and the row not empty (it has {n} tokens)")
    if start.is_cuda and max_tokens <= KERNEL_TOKENS and why_not_on(start.device) is None:
        from vcc.data.kernels.best_spans import choose_spans as chosen_by_kernel

        return chosen_by_kernel(start, end, min(top, n), max_tokens)
    return choose_spans(start, end, min(top, n), max_tokens)


def choose_spans(start: Tensor, end: Tensor, rounds: int, max_tokens: int) -> Tensor:
    """One span per round, at a cost of R n."""
    n, L = start.shape[1], min(max_tokens, start.shape[1])
    margin = L - 1  # padding before the first token: every start has this many before it
    start, end = (pad(logits.float(), (margin, 0), value=-torch.inf) for logits in (start, end))
    longer = pad(end, (0, margin), value=-torch.inf)[:, None]
    best, where = (out[:, 0] for out in max_pool1d(longer, L, stride=1, return_indices=True))  # each start's best end
    places, steps = torch.arange(margin + n, device=start.device), torch.arange(margin, device=start.device)
    taken = (places < margin).repeat(len(start), 1)
    found: list[Tensor] = []
    for _ in range(rounds):
        score, first = (start + best).max(1, keepdim=True)
        first = first.clamp(min=margin)
        last = where.gather(1, first)
        found.append(torch.cat([score.double(), first - margin, last - margin], 1))
        taken |= (places >= first) & (places <= last)
        start.masked_fill_(taken, -torch.inf)
        # The starts just before this span, back to the previous span found: their ends must now come before it.
        before = first - 1 - steps
        free = taken.gather(1, before).cumsum(1) == 0
        nearer, back = end.gather(1, before).cummax(1)
        best.scatter_(1, before, torch.where(free, nearer, best.gather(1, before)))
        where.scatter_(1, before, torch.where(free, before.gather(1, back), where.gather(1, before)))
    return torch.stack(found, 1)


def predict_spans(
    example: Example,
    features: Features,
    start_logits: Tensor,
    end_logits: Tensor,
    *,
    allow_none: bool,
    top: int = 20,
    max_tokens: int = 128,
) -> Prediction:
    """The answer and all candidates of one row; logits (n,), padding past the row's end is not read.

    Probabilities are a softmax over the scores of the candidates and of "no answer", as in CUAD's script.
    With `allow_none`, "no answer" wins if its score is above the best candidate's.
    """
    row = features.row
    n = len(row.input_ids)
    start, end = start_logits[:n].detach().float().cpu(), end_logits[:n].detach().float().cpu()
    none_score = float(start[NULL_POSITION] + end[NULL_POSITION])
    outside = torch.from_numpy(row.offsets[:, 0] < 0)
    found = best_spans(start.masked_fill(outside, -torch.inf), end.masked_fill(outside, -torch.inf), top, max_tokens)
    if not found:
        return Prediction(example.id)
    scores = torch.tensor([span.score for span in found] + ([none_score] if allow_none else []))
    chances = scores.softmax(0).tolist()
    # T5's tokens include the space before the word.
    texts = [example.document[row.offsets[span.first, 0] : row.offsets[span.last, 1]].strip() for span in found]
    text = "" if allow_none and none_score > found[0].score else texts[0]
    return Prediction(example.id, text, spans=tuple(zip(texts, chances, strict=False)))


def predict_choice(example: Example, logits: Tensor) -> Prediction:
    """Return the best of the example's choices; logits (C,), padding past them is not read."""
    choice = int(logits[: len(example.choices)].argmax())
    return Prediction(example.id, example.choices[choice], choice=choice)


def predict_text(example: Example, ids: Sequence[int] | Tensor, tokenizer: Any) -> Prediction:
    """Decode the generated tokens; "unanswerable" is kept, because SCROLLS scores it as an answer."""
    kept = [int(i) for i in ids if int(i) != IGNORED]
    return Prediction(example.id, tokenizer.decode(kept, skip_special_tokens=True).strip())
