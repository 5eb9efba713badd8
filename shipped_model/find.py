"""Answers on the validation pages and their time, for `score`: after a training, or of a finished model as users run
it, in 16 bits on a GPU and in 8 on a CPU that has instructions for it.

python -m shipped_model.find --prepared prepared --name bundled --out results
"""

import json
import lzma
import random
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from shipped_model.data import Haystack, Page, TokenQuestion, TokenSets, Unit, hide, load, moved
from shipped_model.sources import SOURCES
from shipped_model.ways import ReadByVcc, Way
from vcc.commands.options import call
from vcc.data.answers import without_overlaps
from vcc.documents.shipped import load_asker
from vcc.errors import UsageError
from vcc.qa.windows import Found

HIDDEN_AT = (4_096, 16_384, 65_536, 131_072)  # tokens of the documents that paragraphs are hidden in
KEPT = 20  # spans of a question
SAMPLED = (*(kind.name for kind in SOURCES), "hotpot", "musique")  # of which some questions are asked
SETS = ("squad", *SAMPLED, "hidden-0", *(f"hidden-{length}" for length in HIDDEN_AT), "cuad_test", "cuad")


@dataclass(frozen=True)
class FindOptions:
    """Inputs and outputs."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    out: Annotated[Path, "output folder"]
    name: Annotated[str, "of the answers: found-NAME.jsonl.xz, run-NAME.json"]
    model: Annotated[str | None, "folder of the model; unless given, the bundled one"] = None
    sets: Annotated[tuple[str, ...], "sets to answer"] = SETS
    examples: Annotated[int, "paragraphs hidden in documents of each length; half the questions of a smaller set"] = 120


def find(options: FindOptions) -> None:
    """Write a model's answers on validation pages, as users would get them."""
    if unknown := [name for name in options.sets if name not in SETS]:
        raise UsageError(f"unknown sets: {', '.join(unknown)}; there are {', '.join(SETS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    way = ReadByVcc(load_asker(options.model).qa)
    data, path = load(options.prepared / "tokens.npz.xz"), options.out / f"found-{options.name}.jsonl.xz"
    note = find_all(way, data, options.examples, path, options.sets)
    (options.out / f"run-{options.name}.json").write_text(json.dumps(note, indent=1))


def test_pages(data: TokenSets, examples: int) -> Iterator[tuple[str, Page]]:
    """Every page to score, with the name of its set; deterministic."""
    for unit in data.units["squad_validation"]:
        yield "squad", Page(unit.ids, unit.questions)
    for name in SAMPLED:
        for unit in some_units(data.units.get(f"{name}_validation", ()), 2 * examples):
            yield name, Page(unit.ids, unit.questions)
    chance = random.Random(1)
    asked = [(unit, q) for unit in data.units["squad_validation"] for q in unit.questions if q.spans]
    asked = chance.sample(asked, min(examples, len(asked)))
    haystack = Haystack(data.books["validation"], data.units["squad_validation"])
    for unit, q in asked:
        yield "hidden-0", Page(unit.ids, (q,))
    for length in HIDDEN_AT:
        for unit, q in asked:
            ids, (place,) = hide([unit], haystack, length, chance)
            yield f"hidden-{length}", Page(ids, (moved(q, place),))
    for name, part in (("cuad_test", "cuad_test"), ("cuad", "cuad_validation")):  # last, because they are timed
        for unit in data.units.get(part, ()):
            yield name, Page(unit.ids, unit.questions)


def some_units(units: Sequence[Unit], questions: int) -> Iterator[Unit]:
    """Texts spread over the set, up to this many questions."""
    asked = 0
    for unit in random.Random(2).sample(units, len(units)):
        if asked >= questions:
            return
        asked += len(unit.questions)
        yield unit


def find_all(
    way: Way, data: TokenSets, examples: int, path: Path, sets: Collection[str] | None = None
) -> dict[str, Any]:
    """Write the best spans for each question of each page; return seconds per page by set."""
    seconds: dict[str, list[float]] = {}
    opened: dict[str, list[float]] = {}
    with lzma.open(path, "wt") as file:
        for name, page in test_pages(data, examples):
            if sets is not None and name not in sets:
                continue
            if isinstance(way, ReadByVcc):
                way.opened.clear()
            wait()
            start = time.perf_counter()
            found = way.find(page)
            wait()
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            if isinstance(way, ReadByVcc):
                opened.setdefault(name, []).extend(way.opened)
            for question, spans in zip(page.questions, found, strict=True):
                file.write(json.dumps(line(name, question, page, without_overlaps(spans, KEPT))) + "\n")
    note: dict[str, Any] = {
        "seconds_a_page": {name: sum(some[1:]) / max(len(some) - 1, 1) for name, some in seconds.items()}
    }
    if opened:  # not of short texts, which are read without a tree
        note["answers_opened"] = {name: 100 * sum(some) / len(some) for name, some in opened.items() if some}
    return note


def line(name: str, question: TokenQuestion, page: Page, found: list[Found]) -> dict[str, Any]:
    """Spans as tokens of the page, and the right spans, from which scoring finds the text."""
    some = found if name.startswith("hidden") else []  # they may be in the surrounding text
    return {
        "set": name,
        "question": question.number,
        "right": question.spans[:1],
        "found": [[round(one.score + one.none, 4), one.first, one.last, round(one.none, 4)] for one in found],
        "words": [page.ids[one.first : one.last + 1].tolist() for one in some],
    }


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    call(find, sys.argv[1:], "python -m shipped_model.find")
