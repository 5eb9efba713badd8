"""Compare three ways to find passages for the same reader: VCC, the 12 best passages by BM25, and every window.

    python -m shipped_model.compare --prepared prepared --questions 24 --out results/compare.json

All use the bundled model, on validation texts of more than one window. The file is written after every set; finished
sets are skipped.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
from transformers import AutoTokenizer

from shipped_model.data import Haystack, Page, TokenSets, Unit, hide, load, moved
from shipped_model.find import KEPT, line
from shipped_model.score import answers, load_texts, shown
from shipped_model.ways import ReadByVcc, ReadByWindows
from vcc.commands.options import call
from vcc.data.answers import without_overlaps
from vcc.documents.shipped import SHIPPED, load_asker
from vcc.qa.model import QaModel
from vcc.qa.second_look import passages_to_reread
from vcc.qa.windows import ChosenPassage, Found, room
from vcc.qa.words import best_matches

Set = Literal["timeqa", "fairytaleqa", "contractnli", "privacyqa", "medquad", "hotpot", "musique", "maud"]
SETS: tuple[Set, ...] = get_args(Set)
HIDDEN_AT = (0, 4_096, 8_192)  # tokens of the documents that paragraphs are hidden in; 0: single paragraphs


@dataclass(frozen=True)
class CompareOptions:
    """Settings of the comparison."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    out: Annotated[Path, "output file"]
    model: Annotated[Path, "folder of the model"] = SHIPPED
    questions: Annotated[int, "questions per set"] = 24
    longest: Annotated[int, "maximum tokens of a text; longer ones are skipped"] = 12_000
    hidden: Annotated[tuple[int, ...], "tokens of the documents that paragraphs are hidden in"] = HIDDEN_AT
    sets: Annotated[tuple[Set, ...], 'sets of questions; "": only hidden paragraphs'] = SETS
    ways: Annotated[tuple[Literal["vcc", "words", "windows"], ...], "ways to find"] = ("vcc", "words", "windows")
    threads: Annotated[int, "CPU threads"] = 2


@dataclass
class ReadByWords:
    """The passages that share the most words with a question, by BM25."""

    qa: QaModel

    @torch.inference_mode()
    def find(self, page: Page) -> Sequence[Sequence[Found]]:
        windows, settings = self.qa.windows, self.qa.settings
        asked = [question.ids for question in page.questions]
        rooms = [room(ids, windows.frame, windows.size) for ids in asked]
        matches = best_matches(page.ids, asked, settings.matches)
        chosen = [
            ChosenPassage(i, start, size)
            for i, (some, size) in enumerate(zip(matches, rooms, strict=True))
            for start in passages_to_reread([some], size, len(page.ids), settings.second_looks) or [0]
        ]
        return windows.look(page.ids, asked, chosen, settings.candidates)


def compare(options: CompareOptions) -> None:
    """F1 of the best span, whatever its score, by each way on the same questions, with 95% intervals."""
    torch.set_num_threads(options.threads)
    qa = load_asker(str(options.model)).qa
    known: dict[str, Callable[[Page], Sequence[Sequence[Found]]]] = {
        "vcc": ReadByVcc(qa).find,
        "words": ReadByWords(qa).find,
        "windows": ReadByWindows(qa.windows).find,
    }
    ways = {name: known[name] for name in options.ways}
    data, texts = load(options.prepared / "tokens.npz.xz"), load_texts(options.prepared)
    tokenizer = AutoTokenizer.from_pretrained(options.prepared)
    scores = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name, pages in all_pages(data, options):
        left = [kind for kind in ways if kind not in scores.get(name, {})]
        if not left or not pages:
            continue
        own = texts["squad" if name.startswith("hidden") else name]
        scores.setdefault(name, {"tokens": sum(len(page.ids) for page in pages) // len(pages)})
        for kind in left:
            lines = [
                line(name, question, page, without_overlaps(found, KEPT))
                for page in pages
                for question, found in zip(page.questions, ways[kind](page), strict=True)
            ]
            scores[name][kind] = answers(lines, own, tokenizer)
        options.out.write_text(json.dumps(scores, indent=1))
        print(name, *(shown(scores[name][kind], "f1") for kind in ways), flush=True)
    print(markdown(scores, list(ways)))


def all_pages(data: TokenSets, options: CompareOptions) -> Iterator[tuple[str, list[Page]]]:
    chance = random.Random(4)
    paragraphs = data.units["squad_validation"]
    asked = [(unit, q) for unit in paragraphs for q in unit.questions if q.spans]
    haystack = Haystack(data.books["validation"], paragraphs)
    some = chance.sample(asked, min(options.questions, len(asked)))
    for length in options.hidden:
        pages = []
        for unit, question in some:
            ids, (place,) = hide([unit], haystack, length, chance)
            pages.append(Page(ids, (moved(question, place),)))
        yield f"hidden-{length}", pages
    for name in options.sets:
        units = [unit for unit in data.units.get(f"{name}_validation", ()) if 512 < len(unit.ids) <= options.longest]
        yield name, some_pages(units, options.questions, chance)


def some_pages(units: Sequence[Unit], wanted: int, chance: random.Random) -> list[Page]:
    """A few questions per text, from as many texts as possible."""
    each = max(1, -(-wanted // max(len(units), 1)))
    pages: list[Page] = []
    for unit in chance.sample(units, len(units)):
        answerable = [question for question in unit.questions if question.spans]
        some = tuple(chance.sample(answerable, min(each, len(answerable))))
        if some and sum(len(page.questions) for page in pages) < wanted:
            pages.append(replace(Page(unit.ids, ()), questions=some))
    return pages


def markdown(scores: dict[str, Any], ways: Sequence[str]) -> str:
    lines = ["| set | questions on texts | tokens | " + " | ".join(ways) + " |", "|---" * (len(ways) + 3) + "|"]
    for name, found in scores.items():
        first = found[ways[0]]
        cells = [shown(found[way], "f1") for way in ways]
        counts = f"{first['questions']} on {first['texts']}"
        lines.append(f"| {name} | {counts} | {found['tokens']:,} | " + " | ".join(cells) + " |")
    means = [sum(found[way]["f1"] for found in scores.values()) / max(len(scores), 1) for way in ways]
    lines.append("| mean | | | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    call(compare, sys.argv[1:], "python -m shipped_model.compare")
