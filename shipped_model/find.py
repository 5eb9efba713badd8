"""Answers on the validation pages and their time, for `score`."""

import json
import lzma
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from shipped_model.data import Haystack, Page, TokenQuestion, TokenSets, Unit, hide, moved
from shipped_model.sources import SOURCES
from shipped_model.ways import ReadByVcc, Way
from vcc.data.answers import without_overlaps
from vcc.qa.windows import Found

HIDDEN_AT = (4_096, 16_384, 65_536, 131_072)  # tokens of the documents that paragraphs are hidden in
KEPT = 20  # spans of a question


def test_pages(data: TokenSets, examples: int) -> Iterator[tuple[str, Page]]:
    """Every page to score, with the name of its set; deterministic."""
    for unit in data.units["squad_validation"]:
        yield "squad", Page(unit.ids, unit.questions)
    others = [*(kind.name for kind in SOURCES), "hotpot", "musique"]
    for name in others:
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


def find_all(way: Way, data: TokenSets, examples: int, path: Path) -> dict[str, Any]:
    """Write the best spans for each question of each page; return seconds per page by set."""
    seconds: dict[str, list[float]] = {}
    opened: dict[str, list[float]] = {}
    with lzma.open(path, "wt") as file:
        for name, page in test_pages(data, examples):
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
    if opened:
        note["answers_opened"] = {name: 100 * sum(some) / max(len(some), 1) for name, some in opened.items()}
    return note


def line(name: str, question: TokenQuestion, page: Page, found: list[Found]) -> dict[str, Any]:
    """Spans as tokens of the page, and the right spans, from which scoring finds the text."""
    best = found[:1] if name.startswith("hidden") else []  # it may be in the surrounding text
    return {
        "set": name,
        "question": question.number,
        "right": question.spans[:1],
        "found": [[round(one.score + one.none, 4), one.first, one.last, round(one.none, 4)] for one in found],
        "words": [page.ids[one.first : one.last + 1].tolist() for one in best],
    }


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
