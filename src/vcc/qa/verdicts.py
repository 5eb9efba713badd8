"""Whether a passage supports a statement, contradicts it or is silent: a linear head on the CLS state of a window.

The window is that of a second look, `[CLS] statement [SEP] passage [SEP]`. One pass gives the verdict and, by the head
for answers, the words that decide it. The head is a small file beside the model's weights; a model may have none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vcc.data.answers import without_overlaps
from vcc.errors import ModelError
from vcc.qa.second_look import passages_to_reread
from vcc.qa.windows import Found, Ints, WindowReader, any_shape, batch, best_found, room, token_types
from vcc.qa.words import best_matches

FILE = "verdict.safetensors"
SUPPORTED, CONTRADICTED, ABSENT = range(3)  # the order of the head's outputs
ALL_BELOW = 24  # a document with at most so many overlapping windows is read whole
PASSAGES = 12  # of a longer one
LONGEST_EVIDENCE = 256  # tokens
EVIDENCE = 3  # spans at most: half of ContractNLI's statements are decided by several
BEHIND = 3.0  # logits by which a further span may be behind the best one


@dataclass(frozen=True)
class WindowVerdict:
    """The passage that says most about a statement: three probabilities, and the tokens that decide."""

    chances: tuple[float, float, float]
    evidence: tuple[Found, ...]  # that of the passage first, then what other passages say, apart from each other
    start: int  # of the passage, in tokens
    end: int


def load_head(folder: Path, model: Any) -> nn.Linear | None:
    """The head beside a model, on the model's device; None if there is none."""
    if not (folder / FILE).is_file():
        return None
    from safetensors.torch import load_file

    width = model.config.hidden_size
    saved = load_file(folder / FILE)
    if {name: tuple(value.shape) for name, value in saved.items()} != {"weight": (3, width), "bias": (3,)}:
        raise ModelError(f"{folder / FILE} does not fit its model: it must hold weight (3, {width}) and bias (3,)")
    head = nn.Linear(width, 3)
    head.load_state_dict({name: value.float() for name, value in saved.items()})
    return head.to(model.device).eval()


def passages(
    reader: WindowReader, ids: Ints, statement: Ints, pointers: Sequence[Sequence[Any]]
) -> tuple[list[int], int]:
    """Where the windows of a statement start, and their size: all of a short document, else the likeliest."""
    size = room(statement, reader.frame, reader.size)
    if size < reader.size // 4:
        return [], 0
    step = size // 2
    if len(ids) <= step * (ALL_BELOW + 1):
        return [start for start in range(0, max(len(ids) - size, 0) + step, step) if start < len(ids)], size
    return passages_to_reread([*pointers, best_matches(ids, [statement], PASSAGES)[0]], size, len(ids), PASSAGES), size


@torch.inference_mode()
def judge(
    reader: WindowReader, head: nn.Linear, ids: Ints, statement: Ints, pointers: Sequence[Sequence[Any]] = ()
) -> WindowVerdict | None:
    """The verdict of the window that is least silent; None where a statement is too long for a window."""
    starts, size = passages(reader, ids, statement, pointers)
    if not starts:
        return None
    chances: list[Tensor] = []
    found: list[list[Found]] = []
    for states, given, some in states_of_windows(reader, ids, statement, starts, size):
        chances.append(head(states[:, 0].float()).softmax(1))
        found += evidence_in(reader.model, states, given, some)
    all_chances = torch.cat(chances)
    best = int(all_chances[:, ABSENT].argmin())
    support, against, silent = all_chances[best].tolist()
    end = min(starts[best] + size, len(ids))
    return WindowVerdict((support, against, silent), likeliest(found, best), starts[best], end)


def states_of_windows(
    reader: WindowReader, ids: Ints, statement: Ints, starts: Sequence[int], size: int
) -> Iterator[tuple[Tensor, Any, Sequence[int]]]:
    """The last states of a statement's windows, with their input and starts, as many at once as the reader reads."""
    for first in range(0, len(starts), reader.at_once):
        some = starts[first : first + reader.at_once]
        given = batch([(statement, ids[start : start + size]) for start in some], reader.frame)
        yield window_states(reader.model, given), given, some


def likeliest(found: Sequence[Sequence[Found]], best: int) -> tuple[Found, ...]:
    """The best span of passage number `best`, then the best ones of all passages that come close to it."""
    if not found[best]:
        return ()
    first = found[best][0]
    others = (span for spans in found for span in spans if span.last < first.first or span.first > first.last)
    return first, *without_overlaps((span for span in others if span.score >= first.score - BEHIND), EVIDENCE - 1)


def window_states(model: Any, given: Any) -> Tensor:
    """Return the last states (W, n, D) of windows with `ids`, `mask` and `types`."""
    device = model.device
    types = token_types(model.config, given.types.to(device))
    with any_shape(device):
        out = model.base_model(input_ids=given.ids.to(device), attention_mask=given.mask.to(device), **types)
    return out.last_hidden_state


def evidence_in(model: Any, states: Tensor, given: Any, starts: Sequence[int]) -> list[list[Found]]:
    """The best spans of each passage as answers to its statement, by the head for answers."""
    logits = model.qa_outputs(states).float()
    place = torch.arange(logits.shape[1], device=logits.device)
    outside = (place < given.first.to(logits.device)[:, None]) | (place >= given.end.to(logits.device)[:, None])
    outside[:, 0] = False
    logits = logits.masked_fill(outside[..., None], -torch.inf)
    places = [1 + start - first for start, first in zip(starts, given.first.tolist(), strict=True)]
    return best_found(logits, places, EVIDENCE, LONGEST_EVIDENCE)
