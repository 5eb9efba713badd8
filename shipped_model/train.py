"""Train MiniLM to answer questions on documents, through VCC or in windows, and store its answers; on one GPU.

    python -m shipped_model.train --prepared prepared --way twice --minutes 6.5 --out results &
    python -m shipped_model.train --prepared prepared --way windows --minutes 6.5 --out results

Both may share the GPU, as above: they train concurrently for the same time and are timed sequentially. `score` scores
the answers. --pause 9 saves and stops after nine minutes; the same command with --resume continues.
"""

import itertools
import json
import queue
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import vcc
from reproduction import loop
from reproduction.loop import BETWEEN, LoopPlan
from shipped_model import finding, verdicts
from shipped_model.data import Mixture, Page, TokenSets, load
from shipped_model.find import find_all
from shipped_model.grow import grow, window_layers_of
from shipped_model.packed import PackedWindows
from shipped_model.practice import Lessons, Practice, batches, practice_loss, practice_of
from shipped_model.teacher import load_teacher
from shipped_model.ways import ReadByVcc, ReadByWindows, Way
from vcc.commands.options import call
from vcc.data.features import Frame
from vcc.files import one_at_a_time
from vcc.qa.model import QaModel
from vcc.qa.settings import QaSettings, keep_settings, load_settings
from vcc.qa.verdicts import load_head
from vcc.qa.windows import WindowReader

COMPRESSED = vcc.VccConfig(scales=(128, 16, 1), budget=(128, 32), vip_window="own", explore=0.0, dense_below=513)


@dataclass(frozen=True)
class TrainOptions:
    """Settings of the training."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    way: Annotated[Literal["vcc", "windows", "twice"], "through VCC, in windows, or through VCC with a second look"]
    out: Annotated[Path, "output folder"] = Path("out")
    name: Annotated[str | None, "name of the output (default: the way)"] = None
    window_layers: Annotated[int | None, "layers on windows, grown if it has fewer (default: the model's own)"] = None
    layers: Annotated[int | None, "all layers (default: the model's own, and at least one above the windows)"] = None
    score: Annotated[Literal["attention", "similarity"], "score that opens segments"] = "similarity"
    budget: Annotated[tuple[int, ...], "segments of 128 and 16 tokens opened"] = (128, 32)
    minutes: Annotated[float, "minutes of training"] = 6.5
    rate: Annotated[float, "learning rate"] = 1e-4
    examples: Annotated[int, "examples to score per set of hidden paragraphs; 0: none"] = 300
    practice: Annotated[int, "practice steps in windows per batch of pages"] = 3
    teacher: Annotated[Path | None, "model that reads the same windows, whose predictions are learned"] = None
    soft: Annotated[float, "share of the teacher in the loss of windows"] = 0.6
    consistent: Annotated[float, "weight of saying the same of windows that begin later"] = 0.0
    each: Annotated[bool, "learn all of several answers, not just one"] = False
    clauses: Annotated[float, "how often clauses are practised in windows, relative to SQuAD's questions"] = 0.4
    workers: Annotated[int, "processes that prepare windows"] = 8
    contracts: Annotated[float, "share of batches that are contracts"] = 0.4
    documents: Annotated[float, "share of batches that are other whole documents"] = 0.2
    shortest: Annotated[int, "maximum tokens per page at the start"] = 1_500
    longest: Annotated[int, "maximum tokens per page at the end"] = 98_304
    looks: Annotated[int, "maximum second looks"] = 12
    finding: Annotated[bool, "also learn to find the question's document"] = False
    verdicts: Annotated[bool, "also learn whether a passage supports a statement"] = False
    average_last: Annotated[float | None, "final share of the training over which weights are averaged"] = None
    model: Annotated[Path | None, "model to continue from, or only to score with --minutes 0"] = None
    seed: Annotated[int, "of the order of lessons: a second sitting takes another"] = 0
    steps: Annotated[int | None, "maximum steps, within --minutes"] = None
    ema: Annotated[float | None, "decay of an exponential average of the weights, which becomes the model"] = None
    compile: Annotated[bool, "compile the layers that read windows"] = False
    pause: Annotated[float | None, "save and stop after this many minutes of this call; --resume continues"] = None
    resume: Annotated[bool, "continue from the last checkpoint of the same training"] = False


def train(options: TrainOptions) -> None:
    """Train MiniLM to answer questions on documents, through VCC or in windows, and store its answers."""
    out, name = options.out, options.name or options.way
    out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    data, tokenizer = load(options.prepared / "tokens.npz.xz"), AutoTokenizer.from_pretrained(options.prepared)
    way = start(options, tokenizer, device)
    note: dict[str, Any] = {"way": options.way, "minutes": options.minutes, "rate": options.rate}
    if isinstance(way, ReadByVcc):
        note["settings"] = way.qa.config.to_dict()
    if options.minutes:
        mixture = Mixture(
            data,
            seed=options.seed,
            contracts=options.contracts,
            documents=options.documents,
            shortest=options.shortest,
            longest=options.longest,
        )
        if options.compile or device == "cuda":
            way.reader = PackedWindows(way.model, options.compile)
        practice = (
            practice_of(data, Frame.of(tokenizer), options.clauses, seed=options.seed) if options.practice else None
        )
        extra = extra_lessons(way, data, options, Frame.of(tokenizer))
        note |= learn(way, mixture, options, practice, extra)
        if not note.pop("finished"):
            print("paused; the same command with --resume continues", flush=True)
            return
        way.model.half().save_pretrained(out / name)
        tokenizer.save_pretrained(out / name)
        way.model.float()
        if extra.head is not None:
            verdicts.save_head(extra.head, out / name)
            statements = data.units.get("verdicts_validation", ())
            reader = way.qa.windows if isinstance(way, ReadByVcc) else way.windows
            note["verdict_accuracy"] = verdicts.accuracy(reader, extra.head, statements)
        if options.finding and isinstance(way, ReadByVcc):
            note["found_first"] = finding.recall(way.qa, data.units["squad_validation"])
    if options.examples:
        with one_at_a_time(out / "lock"):  # timing needs the machine alone, even if both ways run concurrently
            note |= find_all(way, data, options.examples, out / f"found-{name}.jsonl.xz")
    if device == "cuda":
        note |= {"gpu": torch.cuda.get_device_name(), "peak_gib": torch.cuda.max_memory_allocated() / 2**30}
    (out / f"run-{name}.json").write_text(json.dumps(note, indent=1))
    print(json.dumps(note, indent=1), flush=True)


def start(options: TrainOptions, tokenizer: Any, device: str) -> ReadByVcc | ReadByWindows:
    """The initial model, for the way it reads."""
    model = AutoModelForQuestionAnswering.from_pretrained(
        options.model or options.prepared, dtype=torch.float32, attention_probs_dropout_prob=0.0
    )
    held = window_layers_of(model)
    model = vcc.unwrap(model)  # if it is wrapped
    model.eval()
    teacher = load_teacher(options.teacher, options.soft, device) if options.teacher else None
    if options.way == "windows":
        frame, longest = Frame.of(tokenizer), QaSettings().longest_answer
        return ReadByWindows(
            WindowReader(model.to(device), frame, COMPRESSED.window, longest), each=options.each, teacher=teacher
        )
    windows = held if options.window_layers is None else options.window_layers
    grow(model, held, windows, options.layers)
    compressed = replace(COMPRESSED, window_layers=windows, score=options.score, budget=options.budget)
    model = vcc.wrap(model, compressed).to(device)
    looks = options.looks if options.way == "twice" else 0
    keep_settings(model.config, replace(load_settings(model.config), framed_windows=True, second_looks=looks))
    return ReadByVcc(QaModel(model, tokenizer), each=options.each, teacher=teacher)


@dataclass(frozen=True)
class ExtraLessons:
    """Additional objectives: one step of each after each batch of pages."""

    pairs: Iterator[finding.Pairs] | None = None
    judged: Iterator[verdicts.Judgements] | None = None
    head: nn.Linear | None = None  # that judges

    def losses(self, way: Way) -> Iterator[Tensor]:
        if self.pairs is not None and isinstance(way, ReadByVcc):
            yield finding.finding_loss(way.qa, next(self.pairs))
        if self.judged is not None and self.head is not None:
            yield verdicts.verdict_loss(way.model, self.head, next(self.judged))


def extra_lessons(way: Way, data: TokenSets, options: TrainOptions, frame: Frame) -> ExtraLessons:
    head, workers = None, min(options.workers, 2)
    if options.verdicts:
        head = load_head(options.model, way.model) if options.model else None
        head = head or verdicts.new_head(way.model)
    return ExtraLessons(
        finding.stream(data.units, workers, options.seed) if options.finding else None,
        verdicts.stream(data.units, frame, workers, options.seed) if options.verdicts else None,
        head,
    )


class WithVerdicts(nn.Module):
    """A reader and the head that judges statements, trained and saved as one."""

    def __init__(self, reader: Any, head: nn.Linear) -> None:
        super().__init__()
        self.reader, self.head = reader, head

    @property
    def base_model(self) -> Any:
        return self.reader.base_model


def learn(
    way: Way,
    mixture: Mixture,
    options: TrainOptions,
    practice: Practice | None = None,
    extra: ExtraLessons = ExtraLessons(),  # noqa: B008  a frozen value
    every: int = 100,
    **more: Any,
) -> dict[str, Any]:
    """AdamW with a linear schedule over wall-clock time; the head learns five times as fast. `more` is the loop's."""
    model = way.model
    work = PagesAndPractice(way, mixture, options, practice, extra)
    head = {id(p) for p in model.qa_outputs.parameters()}
    groups = [
        {"params": [p for p in model.parameters() if (id(p) in head) == heads], "times": 5.0 if heads else 1.0}
        for heads in (False, True)
    ]
    if extra.head is not None:
        groups.append({"params": list(extra.head.parameters()), "times": 5.0})
    optimizer = torch.optim.AdamW(groups, lr=options.rate, weight_decay=0.01, fused=model.device.type == "cuda")
    plan = LoopPlan(
        options.rate,
        options.steps,
        60 * options.minutes,
        warmup=0.04,
        ema=options.ema,
        average_last=options.average_last,
        pause_after=None if options.pause is None else 60 * options.pause,
        log_every=every,
    )
    folder = options.out / f"{options.name or options.way}-training"
    if not options.resume and folder.exists():
        shutil.rmtree(folder)
    learned = model if extra.head is None else WithVerdicts(model, extra.head)
    done = loop.learn(learned, optimizer, work, plan, folder, say=partial(print, flush=True), **more)
    return {"steps": done.steps, **work.counts, "finished": done.finished}


@dataclass
class PagesAndPractice:
    """Batches of pages, each followed by batches of practice windows."""

    way: Way
    mixture: Mixture
    options: TrainOptions
    practice: Practice | None
    extra: ExtraLessons = ExtraLessons()
    progress: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: {"batches": 0, "questions": 0, "practised": 0})
    drawn: Any = None  # the mixture's generator after the pages at hand
    practised: dict[int, tuple[Any, int]] = field(default_factory=dict)  # by loader, the place of its last batch

    def steps(self, first: int, state: Any) -> Iterator[loop.Losses]:
        if state is not None:
            self.drawn, self.practised = state["drawn"], state["practised"]
            self.mixture.chance.setstate(self.drawn)
        lessons = None
        if self.practice is not None:
            self.practice.taken, self.practice.turn = self.practised, self.counts["practised"]
            lessons = batches(self.practice, self.options.workers)
        return self.batches(lessons)

    def batches(self, lessons: Iterator[Lessons] | None) -> Iterator[loop.Losses]:
        for pages, drawn in ahead(self.mixture):
            self.drawn = drawn
            self.mixture.progress = self.progress
            self.counts["batches"] += 1
            self.counts["questions"] += sum(len(page.questions) for page in pages)
            for loss in itertools.chain(self.way.losses(pages), self.practise(lessons), self.extra.losses(self.way)):
                yield (loss,)
            yield BETWEEN

    def practise(self, lessons: Iterator[Lessons] | None) -> Iterator[Tensor]:
        if lessons is None:
            return
        options = self.options
        for _ in range(options.practice):
            some = next(lessons)
            self.practised[some.loader] = some.place
            self.counts["practised"] += 1
            yield practice_loss(self.way.reader, some, options.each, self.way.teacher, options.consistent)

    def state(self) -> Any:
        return {"drawn": self.drawn, "practised": self.practised}


def ahead(mixture: Mixture) -> Iterator[tuple[list[Page], Any]]:
    """Batches with the generator's state after each, made in a thread while the GPU works."""
    made: queue.Queue[tuple[list[Page], Any]] = queue.Queue(8)

    def make() -> None:
        for pages in mixture:
            made.put((pages, mixture.chance.getstate()))

    threading.Thread(target=make, daemon=True).start()
    while True:
        yield made.get()


if __name__ == "__main__":
    call(train, sys.argv[1:], "python -m shipped_model.train")
