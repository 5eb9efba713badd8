"""Train MiniLM to answer questions on documents, through VCC or in windows, and note what it finds; one GPU.

    python -m shipped_model.train --prepared prepared --way twice --minutes 6.5 --out results &
    python -m shipped_model.train --prepared prepared --way windows --minutes 6.5 --out results

Both may share the GPU, as above: then they train for the same time side by side, and are timed one after the other.
`score` turns what was found into scores.
"""

import copy
import itertools
import json
import queue
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import vcc
from shipped_model.data import Mixture, Page, Prepared, load
from shipped_model.find import find_all
from shipped_model.practice import Lessons, Practice, batches, load_taught, practice_loss
from shipped_model.sources import SOURCES
from shipped_model.ways import ReadByVcc, ReadByWindows, Way
from vcc.commands.options import call
from vcc.data.features import Frame
from vcc.errors import UsageError
from vcc.files import one_at_a_time
from vcc.hosts.forward.wrapped import Wrapped
from vcc.qa.model import QaModel
from vcc.qa.settings import QaSettings, keep_settings, load_settings
from vcc.qa.windows import WindowReader

COMPRESSED = vcc.VccConfig(scales=(128, 16, 1), budget=(128, 32), vip_window="own", explore=0.0, dense_below=513)


@dataclass(frozen=True)
class TrainOptions:
    """What is trained, and how."""

    prepared: Annotated[Path, "what `prepare` wrote"]
    way: Annotated[Literal["vcc", "windows", "twice"], "through VCC, in windows, or through VCC with a second look"]
    out: Annotated[Path, "folder to write to"] = Path("out")
    name: Annotated[str | None, "of what is written; unless given, the way"] = None
    layers: Annotated[int, "of the model that VCC reads with; MiniLM has 6"] = 7
    window_layers: Annotated[int, "of these, layers on windows"] = 6
    score: Annotated[Literal["attention", "similarity"], "what opens a segment"] = "similarity"
    budget: Annotated[tuple[int, ...], "segments of 128 and 16 tokens opened"] = (128, 32)
    minutes: Annotated[float, "of training"] = 6.5
    rate: Annotated[float, "learning rate"] = 1e-4
    examples: Annotated[int, "to score of each set of hidden paragraphs; 0: score nothing"] = 300
    practice: Annotated[int, "steps of practice in windows, for each batch of pages"] = 3
    taught: Annotated[Path | None, "what `teacher` said of the paragraphs"] = None
    soft: Annotated[float, "share of the teacher in what is learned where it was asked"] = 0.6
    each: Annotated[bool, "learn each of several answers, not one of them"] = False
    keep: Annotated[float, "share of what --model itself said before in what is learned where there is an answer"] = 0.0
    clauses: Annotated[float, "how often a clause is practised in windows, beside a question of SQuAD's"] = 0.4
    workers: Annotated[int, "processes that make windows to practise on"] = 8
    contracts: Annotated[float, "share of the batches that are contracts"] = 0.4
    shortest: Annotated[int, "tokens in a page, at most, to begin with"] = 1_500
    longest: Annotated[int, "and at the end"] = 98_304
    looks: Annotated[int, "passages that are read again, at most"] = 12
    model: Annotated[Path | None, "go on with this one, or only score it with --minutes 0"] = None

    def __post_init__(self) -> None:
        if self.keep and self.model is None:
            raise UsageError(f"--keep is {self.keep}: what --model said before is to be learned, and none is given")
        if self.keep and self.taught is not None:
            raise UsageError(f"--keep is {self.keep}, and --taught is {self.taught}: only one of them can teach")


def train(options: TrainOptions) -> None:
    """Train MiniLM to answer questions on documents, through VCC or in windows, and note what it finds."""
    out, name = options.out, options.name or options.way
    out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    random.seed(0)
    data, tokenizer = load(options.prepared / "tokens.npz.xz"), AutoTokenizer.from_pretrained(options.prepared)
    way = start(options, tokenizer, device)
    note: dict[str, Any] = {"way": options.way, "minutes": options.minutes, "rate": options.rate}
    if isinstance(way, ReadByVcc):
        note["settings"] = way.qa.config.to_dict()
    if options.minutes:
        mixture = Mixture(data, contracts=options.contracts, shortest=options.shortest, longest=options.longest)
        lessons = practice_of(data, options, Frame.of(tokenizer)) if options.practice else None
        note |= learn(way, mixture, options, lessons)
        way.model.half().save_pretrained(out / name)
        tokenizer.save_pretrained(out / name)
        way.model.float()
    if options.examples:
        with one_at_a_time(out / "lock"):  # what is timed has the machine for itself, where both ways run at once
            note |= find_all(way, data, options.examples, out / f"found-{name}.jsonl.xz")
    if device == "cuda":
        note |= {"gpu": torch.cuda.get_device_name(), "peak_gib": torch.cuda.max_memory_allocated() / 2**30}
    (out / f"run-{name}.json").write_text(json.dumps(note, indent=1))
    print(json.dumps(note, indent=1), flush=True)


def start(options: TrainOptions, tokenizer: Any, device: str) -> Way:
    """The model to begin with, in the way it shall read."""
    model = AutoModelForQuestionAnswering.from_pretrained(
        options.model or options.prepared, dtype=torch.float32, attention_probs_dropout_prob=0.0
    )
    if isinstance(model, Wrapped):
        model = vcc.unwrap(model)
    model.eval()
    if options.way == "windows":
        frame, longest = Frame.of(tokenizer), QaSettings().longest_answer
        return ReadByWindows(WindowReader(model.to(device), frame, COMPRESSED.window, longest), each=options.each)
    grow(model, options.layers)
    compressed = replace(COMPRESSED, window_layers=options.window_layers, score=options.score, budget=options.budget)
    model = vcc.wrap(model, compressed).to(device)
    looks = options.looks if options.way == "twice" else 0
    keep_settings(model.config, replace(load_settings(model.config), framed_windows=True, second_looks=looks))
    return ReadByVcc(QaModel(model, tokenizer), each=options.each)


def grow(model: Any, layers: int) -> None:
    """Copies of the last layer on top, to read compressed: those below keep what makes their mean states comparable."""
    stack = model.base_model.encoder.layer
    while len(stack) < layers:
        stack.append(copy.deepcopy(stack[-1]))
    model.config.num_hidden_layers = len(stack)


def practice_of(data: Prepared, options: TrainOptions, frame: Frame) -> Iterator[Lessons]:
    """Windows to practise on, of all sets."""
    shares = {f"{kind.name}_train": kind.share for kind in SOURCES} | {
        "squad2_train": 4.0,
        "cuad_train": options.clauses,
    }
    shares = {name: share for name, share in shares.items() if name in data.units}
    others = [unit.ids for name in ("squad11_train", "medquad_train", "cuad_train") for unit in data.units[name]]
    filler = [data.books["train"].astype("int32"), np.concatenate(others)]
    taught = load_taught(options.taught) if options.taught else {}
    return batches(Practice(data.units, shares, filler, taught, frame), options.workers)


def learn(
    way: Way, mixture: Mixture, options: TrainOptions, lessons: Iterator[Lessons] | None = None, every: int = 100
) -> dict[str, Any]:
    """AdamW with a linear schedule over wall-clock time; the head learns five times as fast."""
    minutes, rate, soft = options.minutes, options.rate, options.keep or options.soft
    before = copy.deepcopy(way.model).eval().requires_grad_(False) if options.keep else None
    model = way.model.train()
    head = {id(p) for p in model.qa_outputs.parameters()}
    groups = [
        {"params": [p for p in model.parameters() if (id(p) in head) == heads], "times": 5.0 if heads else 1.0}
        for heads in (False, True)
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.01, fused=model.device.type == "cuda")
    start, step, batches, asked, losses = time.time(), 0, 0, 0, []
    for pages in ahead(mixture):
        mixture.progress = (time.time() - start) / (60 * minutes)
        batches += 1
        asked += sum(len(page.questions) for page in pages)
        practised = (
            (practice_loss(model, next(lessons), soft, options.each, before) for _ in range(options.practice))
            if lessons is not None
            else ()
        )
        for loss in itertools.chain(way.losses(pages), practised):
            part = (time.time() - start) / (60 * minutes)
            for group in optimizer.param_groups:
                group["lr"] = rate * group["times"] * max(min(part / 0.04, (1 - part) / 0.96), 0.0)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
            step += 1
            if step % every == 0:
                print(
                    f"{time.time() - start:6.0f} s  step {step}  batches {batches}  questions {asked}  "
                    f"loss {torch.stack(losses[-every:]).mean():.3f}",
                    flush=True,
                )
        if time.time() - start > 60 * minutes:
            break
    model.eval()
    return {"steps": step, "batches": batches, "questions": asked}


def ahead(mixture: Mixture) -> Iterator[list[Page]]:
    """Batches, made by another thread while the GPU works."""
    made: queue.Queue[list[Page]] = queue.Queue(8)

    def make() -> None:
        for pages in mixture:
            made.put(pages)

    threading.Thread(target=make, daemon=True).start()
    while True:
        yield made.get()


if __name__ == "__main__":
    call(train, sys.argv[1:], "python -m shipped_model.train")
