"""Tasks as token numbers in one folder, for another machine: `--pack` writes them, trainings read them."""

import io
import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel

from reproduction.small.pack import MODEL
from reproduction.tasks.sources import SOURCES, Labelled, check_parts
from reproduction.tasks.specs import LONG_TASKS, ROW
from vcc.data.features import token_spans, tokenize_text
from vcc.errors import DataError, UsageError
from vcc.files import write_whole
from vcc.hosts import load

Tokens = NDArray[np.uint16]
Numbers = NDArray[np.int32]
CHARACTERS = 12  # of a token at most, on average: what is behind is cut before it is tokenized


@dataclass(frozen=True)
class PackedTask:
    """The tokens and labels of one task. A document is in one part only, because the part is its property."""

    tokens: Tokens  # of all documents, one after another
    ends: Numbers  # (documents,)
    test: NDArray[np.bool_]  # (documents,)
    text_tokens: Tokens  # of all texts before documents: statements, questions, choices, names of tags
    text_ends: Numbers  # (texts,)
    items: Numbers  # (items, 2): document, label
    asked: Numbers  # (items, A): texts before the document
    spans: Numbers  # (spans, 4): document, first and last token, tag
    names: tuple[str, ...]  # of documents
    labels: tuple[str, ...]

    def document(self, i: int) -> Tokens:
        return self.tokens[self.ends[i - 1] if i else 0 : self.ends[i]]

    def text(self, i: int) -> Tokens:
        return self.text_tokens[self.text_ends[i - 1] if i else 0 : self.text_ends[i]]

    def save(self, folder: Path, name: str) -> None:
        arrays = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("names", "labels")}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        with lzma.open(folder / f"{name}.npz.xz", "wb", preset=6) as file:
            file.write(buffer.getvalue())
        write_whole(folder / f"{name}.json", json.dumps({"names": self.names, "labels": self.labels}, indent=1))

    @staticmethod
    def load(folder: Path, name: str) -> "PackedTask":
        path = folder / f"{name}.npz.xz"
        if not path.is_file():
            raise DataError(f"{folder} has no {path.name}: make it with `vcc reproduce tasks --pack`")
        with lzma.open(path, "rb") as file:
            arrays = dict(np.load(io.BytesIO(file.read())))
        words = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        return PackedTask(**arrays, names=tuple(words["names"]), labels=tuple(words["labels"]))


def pack(data: Path, model: str, out: Path, names: Sequence[str]) -> Path:
    """Write the weights in bf16 and the tokens of these tasks."""
    if not data.is_dir():
        raise UsageError(f"--data {data}: no such folder")
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = load.load_tokenizer(model)
    network: Any
    network, _ = load.load_model(model, AutoModel, new_head=True)
    network.to(torch.bfloat16).save_pretrained(out / MODEL)  # compresses better than fp16
    tokenizer.save_pretrained(out / MODEL)
    lengths: dict[str, int] = {}
    for name in names:
        file = LONG_TASKS[name].data or name
        longest = max(task.length for key, task in LONG_TASKS.items() if (task.data or key) == file)
        lengths[file] = longest
    for file, length in lengths.items():
        found = SOURCES[file](str(data))
        check_parts(file, found)
        tokenized(found, tokenizer, length).save(out, file)
    return out


def tokenized(found: Labelled, tokenizer: Any, length: int) -> PackedTask:
    """Every document once, its first `length` tokens; the names of tags are the texts of a tagging task."""
    documents: dict[str, int] = {}
    texts: dict[str, int] = {}
    tokens: list[NDArray[Any]] = []
    spans: list[tuple[int, int, int, int]] = []
    items, asked, test = [], [], []
    for item in found.items:
        if item.name not in documents:
            documents[item.name] = len(documents)
            read = tokenize_text(item.document[: length * CHARACTERS], tokenizer)
            tokens.append(read.ids[:length])
            test.append(item.test)
            for start, end, tag in item.spans:
                for first, last in token_spans([(start, end)], read.offsets):
                    if first < length:
                        spans.append((documents[item.name], first, min(last, length - 1), tag))
        items.append((documents[item.name], item.label))
        asked.append([texts.setdefault(text, len(texts)) for text in item.asked])
    if spans:
        texts = {label: i for i, label in enumerate(found.labels)}
    text_tokens = [tokenize_text(text, tokenizer).ids for text in texts]
    return PackedTask(
        joined(tokens), ends(tokens), np.array(test), joined(text_tokens), ends(text_tokens),
        np.array(items, dtype=np.int32), np.array(asked, dtype=np.int32).reshape(len(items), -1),
        np.array(spans, dtype=np.int32).reshape(-1, 4), tuple(documents), found.labels,
    )  # fmt: skip


def joined(rows: Sequence[NDArray[Any]]) -> Tokens:
    return np.concatenate([np.zeros(0, dtype=np.uint16), *rows]).astype(np.uint16)


def ends(rows: Sequence[NDArray[Any]]) -> Numbers:
    return np.cumsum([len(row) for row in rows], dtype=np.int32)


@dataclass(frozen=True)
class LongItem:
    """A document or a piece of it, the texts before it (of a tagging task, the names of all tags), and its label or the
    tags of its tokens."""

    group: str  # the document's name
    document: Tokens
    asked: tuple[Tokens, ...]
    label: int
    tags: NDArray[np.int64] | None = None  # per token, 0 = none

    @property
    def length(self) -> int:
        return len(self.document)


def items_of(packed: PackedTask, length: int, pieces: bool, test: bool, row: int = ROW) -> list[LongItem]:
    """The items of a part, as much of each document as fits in `length` tokens, or all its full pieces of that size."""
    return [
        item
        for number, (document, _) in enumerate(packed.items)
        if packed.test[document] == test
        for item in parts(packed, number, length, pieces, row)
    ]


def parts(packed: PackedTask, number: int, length: int, pieces: bool, row: int) -> Iterator[LongItem]:
    """The same tokens for every way: they fit behind the texts in one sequence of `length` tokens, and as whole rows
    with a CLS and a separator each."""
    document, label = map(int, packed.items[number])
    tokens = packed.document(document)
    tags = tags_of(packed, document) if len(packed.spans) else None
    texts = packed.asked[number] if tags is None else range(len(packed.text_ends))
    asked = tuple(packed.text(int(i)) for i in texts)
    room = min(max(1, length // row) * (row - 2), length - 2 - sum(len(text) + 1 for text in asked))
    if room < 1:
        raise DataError(f"the texts before {packed.names[document]!r} do not fit in {length} tokens")
    for start in range(0, max(len(tokens) - room + 1, 1), room) if pieces else (0,):
        piece = slice(start, start + room)
        yield LongItem(packed.names[document], tokens[piece], asked, label, None if tags is None else tags[piece])


def tags_of(packed: PackedTask, document: int) -> NDArray[np.int64]:
    tags = np.zeros(len(packed.document(document)), dtype=np.int64)
    for _, first, last, tag in packed.spans[packed.spans[:, 0] == document]:
        tags[first : last + 1] = 1 + tag
    return tags
