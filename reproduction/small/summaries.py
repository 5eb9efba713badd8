"""Summaries on a question as token ids: a document is tokenized once, and loaders keep up with a GPU."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from reproduction.small.questions import Ints, joined
from vcc.data.example import Example
from vcc.data.features import ExampleTokenizer, Features, Row
from vcc.errors import DataError
from vcc.train.predict import LONGEST

END = 1  # token that ends a row or a target


@dataclass(frozen=True)
class SummaryTokens:
    """All pairs of a document with a question and a target; a document with several references has several pairs."""

    documents: Ints  # (N,) ids of all documents
    document_ends: Ints  # (D,)
    vips: Ints  # (M,) ids before the document: the question in the task's format
    vip_ends: Ints  # (P,)
    targets: Ints  # (T,) ids of all targets, each with its end token
    target_ends: Ints  # (P,)
    about: Ints  # (P,) the document of each pair

    @staticmethod
    def of(examples: Sequence[Example], tokenizer: Any) -> "SummaryTokens":
        if tokenizer.cls_token_id is not None:
            raise DataError("the tokenizer has a CLS token: it must be T5's, whose rows begin with the question")
        tokenize = ExampleTokenizer(tokenizer, "text", LONGEST, LONGEST)
        known: dict[str, int] = {}
        documents, vips, targets, about = [], [], [], []
        for example in examples:
            for answer in example.answers:
                found = tokenize(replace(example, answers=(answer,)))
                row = found.row
                if example.document not in known:
                    known[example.document] = len(known)
                    documents.append(row.input_ids[row.vip_count : -END])
                vips.append(row.input_ids[: row.vip_count])
                assert found.target_ids is not None, "the text head gives each answer a target"
                targets.append(found.target_ids)
                about.append(known[example.document])
        if not about:
            raise DataError("no example has a target: some must have one")
        return SummaryTokens(*joined(documents), *joined(vips), *joined(targets), np.asarray(about))

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, **asdict(self))

    @staticmethod
    def load(file: Path) -> "SummaryTokens":
        if not file.is_file():
            raise DataError(f"{file}: no such file; made by --pack true with --data and --t5")
        with np.load(file) as held:
            return SummaryTokens(**held)

    def __len__(self) -> int:
        return len(self.about)

    def most_vips(self) -> int:
        return int(np.diff(self.vip_ends, prepend=0).max())


class SummaryRows(Dataset[Features]):
    """Draw d is pair d % P, as the tokenizer of the task would make it from the text."""

    def __init__(self, tokens: SummaryTokens, end_id: int, length: int, target_length: int) -> None:
        self.tokens, self.length, self.target_length = tokens, length, target_length
        self.end = np.asarray([end_id], dtype=np.int32)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, draw: int) -> Features:
        tokens, number = self.tokens, draw % len(self.tokens)
        vips = part(tokens.vips, tokens.vip_ends, number)[: max(self.length // 2 - END, 1)]
        document = part(tokens.documents, tokens.document_ends, int(tokens.about[number]))
        target = part(tokens.targets, tokens.target_ends, number)
        if len(target) > self.target_length:  # keep the end token, or the model never learns to stop
            target = np.concatenate([target[: self.target_length - END], target[-END:]])
        ids = np.concatenate([vips, document[: self.length - len(vips) - END], self.end]).astype(np.int32)
        row = Row(ids, np.zeros_like(ids), np.broadcast_to(np.int32(-1), (len(ids), 2)), len(vips))
        return Features(str(number), row, target_ids=target.astype(np.int32), tokens=len(ids))


def part(ids: Ints, ends: Ints, number: int) -> Ints:
    return ids[ends[number - 1] if number else 0 : ends[number]]
