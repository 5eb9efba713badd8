"""CUAD by its published test: what is learned from, what is chosen by, and the 102 contracts that are only tested."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from vcc.data.example import Example
from vcc.tasks.cuad import Cuad


def official_test(data: str) -> frozenset[str]:
    """The names of the 102 contracts that CUAD was published with as its test."""
    return frozenset(json.loads((Path(data) / "cuad/official/test_doc_ids.json").read_text(encoding="utf-8")))


def contracts(split: Literal["train", "validation", "test"], data: str) -> Sequence[Example]:
    """CUAD by its official test: nothing of it is learned from or chosen by; seven of its contracts have files of their
    own."""
    tested = official_test(data)
    if split != "test":
        return [example for example in Cuad().load(split, data) if example.group not in tested]
    own = [example for part in ("train", "validation") for example in Cuad().load(part, data)]
    own += Cuad().load("test", str(Path(data) / "cuad/official"))
    return [example for example in own if example.group in tested]
