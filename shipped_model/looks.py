"""Choose the rules for second looks at clauses: each rule against every window, on validation contracts.

    python -m shipped_model.looks --prepared prepared --model results/twice --out results/looks.json

Each passage that a rule may read is read once. Rules are then replayed on the results: hundreds cost as much as one.
Seconds are those of reading, of the first reading and of the passages a rule reads, measured in the same run. What was
read is kept contract by contract: a run that was ended goes on with the next, and another machine can replay it.
"""

import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch

from shipped_model.data import Page, Unit, load
from shipped_model.find import KEPT, line, wait
from shipped_model.score import contracts, load_texts
from shipped_model.ways import ReadByWindows
from vcc.commands.options import call
from vcc.core.tree import SegmentTree
from vcc.data.answers import ScoredSpan, without_overlaps
from vcc.documents.shipped import SHIPPED, load_asker
from vcc.errors import UsageError
from vcc.files import sha256_of
from vcc.qa.agreement import View
from vcc.qa.model import QaModel, Seen
from vcc.qa.second_look import (
    Looks,
    best_nodes,
    for_clauses,
    passages_to_reread,
    room_for_passage,
    with_a_chance,
)
from vcc.qa.windows import ChosenPassage, Found, best_found
from vcc.qa.words import best_matches

BEHIND = 0.3  # points that a rule may lose against every window


@dataclass(frozen=True)
class LooksOptions:
    """Settings of the replay."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    out: Annotated[Path, "output file: every rule with its scores"]
    model: Annotated[Path, "folder of the model"] = SHIPPED
    contracts: Annotated[int, "number of validation contracts"] = 100
    longest: Annotated[int, "maximum tokens of a contract; longer ones are skipped"] = 10**6
    most: Annotated[tuple[int, ...], "second looks at most"] = (6, 8, 12)
    shares: Annotated[tuple[float, ...], "shares of a window that passages fill"] = (1.0,)
    half: Annotated[bool, "compute in 16 bits, for a GPU"] = False
    kept: Annotated[Path, "file of what was read, by contract"] = Path("out/looks/read.jsonl")
    threads: Annotated[int, "CPU threads"] = 2


@dataclass
class Seconds:
    """Measured on a contract, or on all."""

    reading: float = 0.0
    first: float = 0.0
    windows: float = 0.0
    passage: dict[float, tuple[float, int]] = field(default_factory=dict)  # by share: seconds and passages

    def of(self, passages: int, share: float) -> float:
        """The seconds of a rule that reads so many passages."""
        seconds, number = self.passage[share]
        return self.reading + self.first + passages * seconds / max(number, 1)


def total(some: Sequence[Seconds]) -> Seconds:
    sums = Seconds(*(sum(getattr(one, name) for one in some) for name in ("reading", "first", "windows")))
    for share in some[0].passage:
        seconds, passages = zip(*(one.passage[share] for one in some), strict=True)
        sums.passage[share] = (sum(seconds), sum(passages))
    return sums


@dataclass(frozen=True)
class Replayed:
    """A question of a contract: what the first reading found, and what each passage says, in the order of looks."""

    first: Sequence[Found]
    passages: dict[float, list[View]]  # by share

    def follow(self, looks: Looks, top: int) -> tuple[list[Found], int]:
        """The spans that a rule gives, and the passages it reads."""
        views: list[View] = []
        for view in self.passages[looks.share][: looks.most]:
            if not looks.undecided(views):
                break
            views.append(view)
        return without_overlaps(looks.judged(views) or self.first, top), len(views)


class ReadContract(NamedTuple):
    """A contract whose passages and windows were read with all questions."""

    name: str  # of the contract, the model and the precision: its tokens, a hash, and whether in 16 bits
    questions: list[Replayed]
    windows: Sequence[Sequence[Found]]  # by question
    seconds: Seconds

    def to_line(self) -> str:
        questions = [
            {
                "first": rows(one.first),
                "passages": {s: [(v.start, v.end, rows(v.spans)) for v in views] for s, views in one.passages.items()},
            }
            for one in self.questions
        ]
        windows = [rows(some) for some in self.windows]
        return json.dumps([self.name, questions, windows, asdict(self.seconds)]) + "\n"

    @classmethod
    def from_line(cls, text: str) -> "ReadContract":
        name, questions, windows, seconds = json.loads(text)
        seconds["passage"] = {float(share): tuple(some) for share, some in seconds["passage"].items()}
        replayed = [
            Replayed(
                spans(one["first"]),
                {float(s): [View(a, b, spans(some)) for a, b, some in views] for s, views in one["passages"].items()},
            )
            for one in questions
        ]
        return cls(name, replayed, [spans(some) for some in windows], Seconds(**seconds))


def rows(found: Sequence[Found]) -> list[tuple[int, int, float, float]]:
    return [(one.first, one.last, one.score, one.none) for one in found]


def spans(some: Sequence[Sequence[Any]]) -> list[Found]:
    return [Found(*one) for one in some]


def rules(options: LooksOptions) -> Iterator[Looks]:
    """The rule of the product first, then the grid."""
    yield for_clauses(max(options.most))
    for most, share, agree in itertools.product(options.most, options.shares, (False, True)):
        for few, hopeless, recent in itertools.product((2, 3), (-3.0, -1.0, 0.0), (3, 4, 5, 6, 1000)):
            if few <= most:
                yield Looks(most, few, hopeless, recent, clear=math.inf, share=share, agree=agree)


def choose_looks(options: LooksOptions) -> None:
    """Print the rules that lose at most 0.3 of AUPR and of F1 against every window, the fastest first."""
    units = [
        u for u in load(options.prepared / "tokens.npz.xz").units["cuad_validation"] if len(u.ids) <= options.longest
    ]
    units = units[:: max(1, len(units) // options.contracts)][: options.contracts]
    texts = load_texts(options.prepared)["cuad"]
    read = read_contracts(options, units)
    seconds = total([one.seconds for one in read])
    lines = [
        line("cuad", question, Page(unit.ids, unit.questions), without_overlaps(found, KEPT))
        for unit, one in zip(units, read, strict=True)
        for question, found in zip(unit.questions, one.windows, strict=True)
    ]
    base = contracts(lines, texts)
    aupr, p80, f1 = (base[name] for name in ("aupr", "p80", "best_span_f1"))
    print(f"every window: AUPR {aupr:.1f}, P@80R {p80:.1f}, F1 {f1:.1f}, {seconds.windows:.1f} s")
    table = []
    for rule in rules(options):
        table.append(scored(rule, units, [one.questions for one in read], texts, seconds))
        print(shown(table[-1]), flush=True)
    options.out.write_text(json.dumps({"windows": base | {"seconds": seconds.windows}, "rules": table}, indent=1))
    print("the product's rule:", shown(table[0]))
    good = [one for one in table if min(one["aupr"] - base["aupr"], one["f1"] - base["best_span_f1"]) >= -BEHIND]
    for one in sorted(good, key=lambda one: one["seconds"])[:12]:
        print("  ", shown(one))
    if not good:
        print(f"no rule is within {BEHIND}; the best:")
        for one in sorted(table, key=lambda one: -one["aupr"] - one["f1"])[:6]:
            print("  ", shown(one))


def read_contracts(options: LooksOptions, units: Sequence[Unit]) -> list[ReadContract]:
    """Read what was not read before."""
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    lines = options.kept.read_text(encoding="utf-8").splitlines() if options.kept.is_file() else []
    read = [ReadContract.from_line(text) for text in lines]
    model = sha256_of(options.model / "model.safetensors")[:12]
    names = [f"{len(unit.ids)} {model} {options.half}" for unit in units]
    if [one.name for one in read] != names[: len(read)]:
        raise UsageError(
            f"--kept {options.kept} holds other contracts or another model: it must be of a run with the same options"
        )
    if len(read) == len(units):
        return read
    torch.set_num_threads(options.threads)
    qa = load_asker(str(options.model)).qa
    if options.half:
        qa.model.half()
    shares = sorted({rule.share for rule in rules(options)})
    replay(qa, units[0], shares, Seconds())  # warm-up
    with options.kept.open("a", encoding="utf-8") as file:
        for name, unit in list(zip(names, units, strict=True))[len(read) :]:
            seconds = Seconds()
            replayed = replay(qa, unit, shares, seconds)
            took = time.perf_counter()
            found = ReadByWindows(qa.windows).find(Page(unit.ids, unit.questions))
            wait()
            seconds.windows = time.perf_counter() - took
            read.append(ReadContract(name, replayed, found, seconds))
            file.write(read[-1].to_line())
            file.flush()
            print(len(unit.ids), "tokens", seconds, flush=True)
    return read


@torch.inference_mode()
def replay(qa: QaModel, unit: Unit, shares: Sequence[float], seconds: Seconds) -> list[Replayed]:
    """Read a contract, ask all questions, and read every passage that a rule may choose."""
    asked, settings = [q.ids for q in unit.questions], qa.settings
    start = time.perf_counter()
    tree = qa.read([unit.ids])
    wait()
    seconds.reading += time.perf_counter() - start
    start = time.perf_counter()
    pointed, nodes = first_reading(qa, tree, unit, asked)
    matches = best_matches(unit.ids, asked, settings.matches)
    wait()
    seconds.first += time.perf_counter() - start
    passages: dict[float, list[list[View]]] = {}
    for share in shares:
        rooms = [int(room_for_passage(ids, qa.windows) * share) for ids in asked]
        chosen = []
        for i, (own, near, alike, size) in enumerate(zip(pointed, nodes, matches, rooms, strict=True)):
            starts = passages_to_reread(with_a_chance(own, near, alike), size, len(unit.ids), settings.second_looks)
            chosen += [ChosenPassage(i, at, size) for at in starts]
        start = time.perf_counter()
        # Each passage is a question of its own: `look` joins the spans of a question.
        alone = [ChosenPassage(j, at, size) for j, (_, at, size) in enumerate(chosen)]
        found = qa.windows.look(unit.ids, [asked[one.question] for one in chosen], alone, settings.candidates)
        wait()
        seconds.passage[share] = (time.perf_counter() - start, len(chosen))
        by_question: list[list[View]] = [[] for _ in asked]
        for (i, at, size), some in zip(chosen, found, strict=True):
            by_question[i].append(View(at, at + size, some))
        passages[share] = by_question
    return [Replayed(first, {s: passages[s][i] for s in shares}) for i, first in enumerate(pointed)]


def first_reading(
    qa: QaModel, tree: SegmentTree, unit: Unit, asked: Sequence[Any], at_once: int = 8
) -> tuple[list[list[Found]], list[list[ScoredSpan]]]:
    pointed: list[list[Found]] = []
    nodes: list[list[ScoredSpan]] = []
    for first in range(0, len(asked), at_once):
        some, seen = asked[first : first + at_once], Seen()
        logits = qa.logits(tree, [len(unit.ids)], some, watch=seen)
        pointed += best_found(logits, [0] * len(some), qa.settings.candidates, qa.settings.longest_answer)
        assert seen.cut is not None
        nodes += best_nodes(seen.cut, tree, qa.places(len(unit.ids)), qa.settings.nodes)
    return pointed, nodes


def scored(
    looks: Looks, units: Sequence[Unit], replayed: Sequence[Sequence[Replayed]], texts: list[Any], seconds: Seconds
) -> dict[str, Any]:
    lines, passages = [], 0
    for unit, some in zip(units, replayed, strict=True):
        page = Page(unit.ids, unit.questions)
        for question, one in zip(page.questions, some, strict=True):
            found, number = one.follow(looks, KEPT)
            passages += number
            lines.append(line("cuad", question, page, found))
    scores, took = contracts(lines, texts), seconds.of(passages, looks.share)
    return {
        "rule": asdict(looks),
        "aupr": scores["aupr"],
        "p80": scores["p80"],
        "f1": scores["best_span_f1"],
        "passages": passages / max(len(lines), 1),
        "seconds": took,
        "times_as_fast": seconds.windows / took,
    }


def shown(one: dict[str, Any]) -> str:
    rule = ", ".join(f"{name} {value}" for name, value in one["rule"].items())
    return (
        f"AUPR {one['aupr']:.1f}, P@80R {one['p80']:.1f}, F1 {one['f1']:.1f}, {one['passages']:.2f} passages per "
        f"question, {one['times_as_fast']:.1f} times as fast as every window ({rule})"
    )


if __name__ == "__main__":
    call(choose_looks, sys.argv[1:], "python -m shipped_model.looks")
