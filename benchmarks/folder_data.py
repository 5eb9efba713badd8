"""A folder of thousands of real documents, and questions about some of them that no model was trained on.

Documents are whole articles, health pages, tales, contracts, policies, books and chapters. Questions come from the
validation files alone, and only from sets whose questions say what they are about: "Which law governs this agreement?"
fits every contract.
"""

import json
import lzma
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shipped_model.prepare import squad_halves
from vcc.data.example import Example


@dataclass(frozen=True)
class Asked:
    """A question and the document that answers it."""

    kind: str
    question: str
    document: str


@dataclass(frozen=True)
class Folder:
    """Texts by name, and questions about them."""

    texts: dict[str, str]
    asked: tuple[Asked, ...]

    def sample(self, documents: int, questions: int, longest: int, seed: int = 0) -> "Folder":
        """Return so many questions, evenly from all sets, their documents, and others up to `documents` in all. No text
        has more than `longest` characters."""
        chance = random.Random(seed)
        texts = {name: text for name, text in self.texts.items() if len(text) <= longest}
        by_kind: dict[str, list[Asked]] = {}
        for asked in chance.sample(self.asked, len(self.asked)):
            if asked.document in texts:
                by_kind.setdefault(asked.kind, []).append(asked)
        chosen: list[Asked] = []
        while len(chosen) < questions and any(by_kind.values()):
            chosen += [left.pop() for left in by_kind.values() if left]
        chosen = chosen[:questions]
        names = dict.fromkeys(asked.document for asked in chosen)
        others = [name for name in texts if name not in names]
        names |= dict.fromkeys(chance.sample(others, max(0, min(documents - len(names), len(others)))))
        return Folder({name: texts[name] for name in sorted(names)}, tuple(chosen))


def load_folder(data: Path) -> Folder:
    texts: dict[str, str] = {}
    asked: list[Asked] = []
    taught, tested = squad_halves(str(data))
    for name, text in articles(taught):
        texts[f"squad/{name}"] = text
    for name, text in articles(tested):
        texts[f"squad/{name}"] = text
    asked += [Asked("squad", one.question, f"squad/{one.group}") for one in tested if one.answers]
    for name, text in by_title(records(data / "squad11/train.jsonl.xz")):
        texts.setdefault(f"squad/{name}", text)
    for kind in ("squadshifts", "nq", "afriqa"):
        for split in ("train", "validation"):
            found = [one for one in records(data / kind / f"{split}.jsonl.xz") if is_encyclopedic(kind, one)]
            texts |= {f"{kind}/{split}/{name}": text for name, text in by_title(found)}
            if split == "validation" and kind == "afriqa":  # the others were published as tests
                asked += [Asked(kind, one["question"], f"{kind}/{split}/{title(one)}") for one in found]
    for kind in ("timeqa", "medquad", "fairytaleqa", "maud", "cuad", "contractnli", "privacyqa"):
        texts |= {f"{kind}/{one['doc_id']}": one["document"] for one in records(data / kind / "docs.jsonl.xz")}
    for kind in ("timeqa", "medquad", "fairytaleqa", "maud"):
        asked += [
            Asked(kind, one.get("query", one["question"]).strip(), f"{kind}/{one['doc_id']}")
            for one in records(data / kind / "validation.jsonl.xz")
            if one["answers"]
        ]
    for kind, split in (("wikipedia_schools", "train"), ("wikipedia_schools", "validation"), ("books", "train"),
                        ("books", "validation"), ("openstax", "train")):  # fmt: skip
        texts |= {f"{kind}/{one['title']}": one["text"] for one in records(data / kind / f"{split}.jsonl.xz")}
    return Folder(texts, tuple(one for one in asked if one.document in texts))


def records(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def title(record: dict[str, Any]) -> str:
    return str(record.get("title") or record["id"])


def is_encyclopedic(kind: str, record: dict[str, Any]) -> bool:
    """Reviews and forum comments are no articles."""
    return kind != "squadshifts" or record["source"] == "new_wiki"


def by_title(found: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """The paragraphs of each article, as one text."""
    paragraphs: dict[str, dict[str, None]] = {}
    for one in found:
        paragraphs.setdefault(title(one), {})[one["context"]] = None
    return [(name, "\n\n".join(parts)) for name, parts in paragraphs.items()]


def articles(examples: Sequence[Example]) -> list[tuple[str, str]]:
    paragraphs: dict[str, dict[str, None]] = {}
    for example in examples:
        paragraphs.setdefault(example.group, {})[example.document] = None
    return [(name, "\n\n".join(parts)) for name, parts in paragraphs.items()]
