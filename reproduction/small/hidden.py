"""Test questions with hidden paragraphs as a file: at 16K tokens it takes minutes to put them together."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vcc.data.example import Example
from vcc.files import write_whole


def save_examples(file: Path, examples: Sequence[Example]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps([asdict(one) for one in examples]))


def load_examples(file: Path) -> list[Example]:
    found = []
    for one in json.loads(file.read_text(encoding="utf-8")):
        spans = tuple((start, end) for start, end in one["answer_spans"])
        as_tuples = {"answers": tuple(one["answers"]), "choices": tuple(one["choices"]), "answer_spans": spans}
        found.append(Example(**{**one, **as_tuples}))
    return found
