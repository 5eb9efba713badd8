"""Short texts: the product against plain windows of the same reader, F1 and forward passes per question.

    VCC_PRECISION=float32 python -m benchmarks.short_texts --data DATA --questions 60

The product is `document.ask`, with the rules that turn spans into answers. Plain windows are 512 tokens with the
question, 256 apart; one window if the text fits. Texts of at most `--longest` tokens, from validation splits; questions
with an answer. A forward pass is one window through the whole model: layers are counted by hooks, with the share of the
model that each call runs (in 8 bits they are not called: VCC_PRECISION=float32).
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.verify import document_of
from shipped_model.prepare import without_yes_no
from shipped_model.sources import SOURCES
from shipped_model.ways import ReadByWindows
from vcc.data.answers import without_overlaps
from vcc.data.example import Example
from vcc.data.features import tokenize_text
from vcc.documents.document import Document
from vcc.documents.shipped import load_asker
from vcc.qa.settings import QaSettings
from vcc.qa.windows import ChosenPassage
from vcc.tasks.hotpotqa import MultiHop
from vcc.tasks.metrics import best_of, word_f1
from vcc.tasks.squad import Squad

SETS = ["squad", "squadshifts", "nq", "afriqa", "tatqa", "tweetqa", "qamr", "medquad", "timeqa"]
SETS += ["fairytaleqa", "hotpotqa"]
Said = Callable[[Document, str], str]


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


def examples_of(name: str, data: str) -> list[Example]:
    """The answerable questions of a validation split."""
    if name == "squad":
        found = list(Squad(half="second").load("validation", data))
    elif name == "hotpotqa":
        told = MultiHop("hotpotqa").load("validation", data)
        found = [without_yes_no(one) for one in told if one.answers[0].lower() not in ("yes", "no")]
    else:
        found = next(source for source in SOURCES if source.name == name).load("validation", data)
    return [one for one in found if one.answers]


def by_windows(document: Document, question: str) -> str:
    """The best span of all windows, as it stands."""
    qa = document.asker().qa
    tokens, asked = tokenize_text(document.text, qa.tokenizer), qa.ids_of(question)
    plain = ReadByWindows(qa.windows)
    size = plain.room(asked)
    chosen = [ChosenPassage(0, start, size) for start in plain.starts(len(tokens.ids), size)]
    [found] = qa.windows.look(tokens.ids, [asked], chosen, QaSettings().candidates)
    best = without_overlaps(found, 1)[0]
    return document.text[int(tokens.offsets[best.first, 0]) : int(tokens.offsets[best.last, 1])]


def by_product(document: Document, question: str) -> str:
    return next((answer.text for answer in document.ask(question, 1, 0.0)), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--questions", type=int, default=60, help="of each set")
    parser.add_argument("--longest", type=int, default=1536, help="tokens of a text")
    parser.add_argument("--sets", nargs="+", default=SETS)
    given = parser.parse_args()
    asker = load_asker(given.model)
    passes = Passes(asker.model)
    ways: dict[str, Said] = {"product": by_product, "windows": by_windows}
    print("| set | questions | tokens | F1: product | windows | passes: product | windows | s: product | windows |")
    print("|---" * 9 + "|")
    for name in given.sets:
        examples = examples_of(name, str(given.data))
        random.Random(4).shuffle(examples)
        kept: list[tuple[Example, Document, int]] = []
        for example in examples:
            length = len(tokenize_text(example.document, asker.tokenizer).ids)
            if length <= given.longest and len(kept) < given.questions:
                document = document_of(name, example.document)
                document.model = given.model
                kept.append((example, document, length))
        cells: dict[str, tuple[float, float, float]] = {}
        for way, said in ways.items():
            before, start = passes.whole, time.perf_counter()
            f1s = [best_of(word_f1, said(document, one.question), one.answers) for one, document, _ in kept]
            seconds = (time.perf_counter() - start) / len(kept)
            cells[way] = 100 * sum(f1s) / len(f1s), (passes.whole - before) / len(kept), seconds
        tokens = sum(length for *_, length in kept) // len(kept)
        numbers = [f"{cells[way][i]:.{digits}f}" for i, digits in ((0, 1), (1, 2), (2, 2)) for way in ways]
        print(f"| {name} | {len(kept)} | {tokens} | " + " | ".join(numbers) + " |", flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
