"""Short texts: the product against plain windows, F1 and forward passes per question.

    python benchmarks/short_texts.py --prepared PREPARED [--model FOLDER] --questions 40

Plain windows are 512 tokens with the question, 256 apart; one window if the text fits. `PREPARED` is the output folder
of `shipped_model.prepare`. A forward pass is one window through the whole model: layers are counted by hooks, with the
share of the model that each call runs.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from shipped_model.compare import some_pages
from shipped_model.data import Page, load
from shipped_model.score import load_texts, slice_of
from shipped_model.ways import ReadByVcc, ReadByWindows
from vcc.data.answers import without_overlaps
from vcc.documents.shipped import SHIPPED, load_asker
from vcc.qa.windows import Found
from vcc.tasks.metrics import best_of, word_f1

SETS = ("squad", "squadshifts", "nq", "tatqa", "hotpot", "medquad", "timeqa")
Find = Callable[[Page], Sequence[Sequence[Found]]]


class Passes:
    """Counts the rows of a batch through each layer; a pass is all layers once."""

    def __init__(self, model: Any) -> None:
        self.layers = list(model.base_model.encoder.layer)
        self.rows = 0
        for layer in self.layers:
            layer.register_forward_hook(self.count)

    def count(self, module: Any, given: tuple[Any, ...], out: Any) -> None:
        self.rows += len(out[0] if isinstance(out, tuple) else out)

    @property
    def whole(self) -> float:
        return self.rows / len(self.layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--model", default=str(SHIPPED))
    parser.add_argument("--questions", type=int, default=40, help="of each set")
    parser.add_argument("--longest", type=int, default=1536, help="tokens of a text")
    parser.add_argument("--sets", nargs="+", default=SETS)
    given = parser.parse_args()
    qa = load_asker(given.model).qa
    data, texts = load(given.prepared / "tokens.npz.xz"), load_texts(given.prepared)
    passes = Passes(qa.model)
    ways: dict[str, Find] = {"product": ReadByVcc(qa).find, "windows": ReadByWindows(qa.windows).find}
    print(
        "| set | questions | tokens | F1: product | windows | passes: product | windows | seconds: product | windows |"
    )
    print("|---" * 9 + "|")
    for name in given.sets:
        units = [unit for unit in data.units[f"{name}_validation"] if len(unit.ids) <= given.longest]
        pages = some_pages(units, given.questions, random.Random(4))
        asked = sum(len(page.questions) for page in pages)
        cells: dict[str, tuple[float, float, float]] = {}
        for way, find in ways.items():
            before, start, f1s = passes.whole, time.perf_counter(), []
            for page in pages:
                for question, found in zip(page.questions, find(page), strict=True):
                    best = without_overlaps(found, 1)[0]
                    record, text, _ = texts[name][question.number]
                    f1s.append(best_of(word_f1, slice_of(text, best.first, best.last), record["answers"]))
            seconds = (time.perf_counter() - start) / asked
            cells[way] = 100 * sum(f1s) / len(f1s), (passes.whole - before) / asked, seconds
        tokens = sum(len(page.ids) for page in pages) // len(pages)
        numbers = [f"{cells[way][i]:.{digits}f}" for i, digits in ((0, 1), (1, 2), (2, 2)) for way in ways]
        print(f"| {name} | {asked} | {tokens} | " + " | ".join(numbers) + " |", flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
