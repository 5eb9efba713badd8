"""What a run reads, and in which order.

A run is one stream of draws. Draw d is item d % n of epoch d // n, and all its randomness is a function of d: step k
reads the same after a restart and on any number of processes.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import torch
from torch.utils.data import Dataset, Sampler

from vcc.data.example import Example
from vcc.data.features import ExampleTokenizer, Features
from vcc.data.haystack import Generated
from vcc.data.pretrain import Masked, PretrainDataset


class Stream(Sampler[int]):
    """The draws of a whole run, epoch after epoch, each epoch in its own order."""

    def __init__(self, examples: int, draws: int, seed: int) -> None:
        self.examples, self.draws, self.seed = examples, draws, seed

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[int]:
        for start in range(0, self.draws, self.examples):
            generator = torch.Generator().manual_seed(self.seed + 1_000_003 * (start // self.examples))
            order = torch.randperm(self.examples, generator=generator)[: self.draws - start]
            yield from (start + order).tolist()


class TaskExamples(Dataset[Features]):
    """Draw d is example d % n, the same in every epoch: tokenization is deterministic."""

    def __init__(self, examples: Sequence[Example], tokenize: ExampleTokenizer) -> None:
        self.examples, self.tokenize = examples, tokenize

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, draw: int) -> Features:
        return self.tokenize(self.examples[draw % len(self.examples)])


class MaskedSequences(Dataset[Masked]):
    """Draw d is sequence d of an endless corpus: text and mask differ in every epoch."""

    def __init__(self, sequences: PretrainDataset) -> None:
        self.sequences = sequences

    def __len__(self) -> int:
        return self.sequences.per_epoch

    def __getitem__(self, draw: int) -> Masked:
        return self.sequences[draw]


def some_of(examples: Sequence[Example], number: int | None) -> Sequence[Example]:
    """A fixed random sample of the examples, in their order; None: all of them.

    The first ones would not be representative: questions on one document or subject are adjacent.
    """
    if number is None or number >= len(examples):
        return examples
    drawn = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))[:number]
    return [examples[i] for i in sorted(drawn.tolist())]


def fingerprint(examples: Sequence[Example]) -> str:
    """A digest of all examples of a data set, independent of file paths.

    For generated ones, of their settings and nine examples: generating all could take as long as training.
    """
    digest = hashlib.sha256(f"{len(examples)} examples".encode())
    documents: dict[str, str] = {}  # many questions share a document, which is long

    def add(item: object) -> None:
        if isinstance(item, Example):
            if item.document not in documents:
                documents[item.document] = hashlib.sha256(as_bytes(item.document)).hexdigest()
            item = replace(item, document="", answer_spans=()), item.answer_spans, documents[item.document]
        digest.update(as_bytes(repr(item)))

    if isinstance(examples, Generated):
        for item in chain.from_iterable(examples.made_of):
            add(item)
        examples = [examples[i * (len(examples) - 1) // 8] for i in range(9)]
    for example in examples:
        add(example)
    return digest.hexdigest()[:32]


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # JSON may contain lone surrogates
