"""HotpotQA as VCC's authors train it: paragraphs in another order in every epoch, and supporting facts learned too.

The document is that of the task (`vcc/tasks/hotpotqa.py`): a line "yes no", then each paragraph with its title. From
the state of the first token of each paragraph and of each sentence, a linear layer says whether it supports the answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import Dataset

from reproduction.small.small_tasks import FACT_F1
from vcc.data.collate import IGNORED
from vcc.data.features import ExampleTokenizer, Features
from vcc.data.losses import span_loss
from vcc.data.records import Record
from vcc.hosts.forward.wrapped import Openings
from vcc.tasks.hotpotqa import YES_NO, multi_hop_example, paragraphs_of, sentences_of
from vcc.train.objectives import Answering, inputs_of
from vcc.train.opening import answer_opening_loss, openings_of
from vcc.train.trainer import Batch

PARAGRAPH, SENTENCE = 0, 1  # outputs of the linear layer
FILE = "facts.safetensors"
FACTS = "facts"  # the name of the layer in the model, and of its targets in a batch


@dataclass(frozen=True)
class Fact:
    """A paragraph or a sentence, where it starts in the document, and whether it supports the answer."""

    start: int
    kind: int
    supports: bool


def facts_of(record: Record) -> Iterator[Fact]:
    """All paragraphs of a document, and the sentences of those whose sentences are given."""
    marked = set(listed(record.fields.get("supporting_facts")))
    titles = {title for title, _ in marked}
    start = len(YES_NO)
    marks = [len(pair) > 2 and pair[2] is True for pair in record.fields.get("paragraphs") or ()]
    for number, (title, text) in enumerate(paragraphs_of(record)):
        yield Fact(start, PARAGRAPH, title in titles or (number < len(marks) and marks[number]))
        place = start + len(title) + 1
        for i, sentence in enumerate(sentences_of(record, number)):
            if sentence:
                yield Fact(place, SENTENCE, (title, i) in marked)
            place += len(sentence) + 1
        start += len(title) + 1 + len(text) + 2


def listed(facts: Any) -> list[tuple[str, int]]:
    """[title, number] pairs, or the hub's {title: [...], sent_id: [...]}."""
    if isinstance(facts, dict):
        return list(zip(facts["title"], facts["sent_id"], strict=True))
    return [(fact[0], fact[1]) for fact in facts or ()]


def shuffled(record: Record, draw: int, seed: int) -> Record:
    """The same question with its paragraphs in another order."""
    fields = dict(record.fields)
    name = "context" if "context" in fields else "paragraphs"
    value = fields[name]
    pairs = list(zip(*value.values(), strict=True)) if isinstance(value, dict) else value
    order = np.random.default_rng([seed, draw]).permutation(len(pairs))
    new = [pairs[i] for i in order]
    fields[name] = {key: [pair[i] for pair in new] for i, key in enumerate(value)} if isinstance(value, dict) else new
    return Record(record.where, fields)


@dataclass(frozen=True)
class FactFeatures(Features):
    """With (token, kind, supports) for each fact that was not cut."""

    facts: tuple[tuple[int, int, int], ...] = ()


def tokenized(record: Record, tokenize: ExampleTokenizer) -> FactFeatures:
    features = tokenize(multi_hop_example(record))
    starts = features.row.offsets[:, 0]
    inside = np.flatnonzero(starts >= 0)
    found = []
    for fact in facts_of(record):
        place = int(np.searchsorted(starts[inside], fact.start))
        if place < len(inside):
            found.append((int(inside[place]), fact.kind, int(fact.supports)))
    return FactFeatures(**{name: getattr(features, name) for name in features.__dataclass_fields__}, facts=tuple(found))


class ShuffledHops(Dataset[FactFeatures]):
    """Draw d is question d % n with its paragraphs in an order of its own."""

    def __init__(self, records: Sequence[Record], tokenize: ExampleTokenizer, seed: int) -> None:
        self.records, self.tokenize, self.seed = records, tokenize, seed

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, draw: int) -> FactFeatures:
        return tokenized(shuffled(self.records[draw % len(self.records)], draw, self.seed), self.tokenize)


@dataclass(frozen=True)
class FactAnswering(Answering):
    """Spans and supporting facts; the model has the layer `facts`."""

    def collate(self, items: Sequence[Features]) -> Batch:
        rows = [getattr(one, FACTS, ()) for one in items]
        facts = torch.full((len(rows), max([1, *map(len, rows)]), 3), IGNORED)
        for b, row in enumerate(rows):
            if row:
                facts[b, : len(row)] = torch.tensor(row)
        return {**super().collate(items), FACTS: facts}

    def loss(self, model: Any, batch: Batch) -> Tensor:
        given = {name: value for name, value in inputs_of(batch).items() if name != FACTS}
        seen: Openings | None = None
        if self.opening:
            with openings_of(model) as seen:
                hidden = model.base_model(**given).last_hidden_state
        else:
            hidden = model.base_model(**given).last_hidden_state
        starts, ends = model.qa_outputs(hidden).unbind(-1)
        loss = span_loss(starts, ends, batch["spans"], batch["attention_mask"])
        if seen is not None:
            loss = loss + self.opening * answer_opening_loss(seen, batch["spans"])
        return (loss + fact_loss(self.fact_logits(model, hidden, batch), batch[FACTS])) * len(batch["spans"])

    def fact_logits(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """(B, F) the logit of each fact."""
        facts = batch[FACTS].clamp(min=0)
        states = hidden.gather(1, facts[..., :1].expand(-1, -1, hidden.shape[2]))
        return model.facts(states).gather(2, facts[..., 1:2])[..., 0].float()


def fact_loss(logits: Tensor, facts: Tensor) -> Tensor:
    """The mean binary cross entropy of paragraphs, plus that of sentences."""
    total = logits.new_zeros(())
    for kind in (PARAGRAPH, SENTENCE):
        mine = (facts[..., 1] == kind).float()
        each = nn.functional.binary_cross_entropy_with_logits(logits, facts[..., 2].float(), reduction="none")
        total = total + (each * mine).sum() / mine.sum().clamp(min=1)
    return total


def with_facts(objective: Answering) -> FactAnswering:
    """The objective that also trains or reads the layer `facts`."""
    return FactAnswering(objective.head, objective.collator, objective.vips, objective.opening)


def add_facts(model: Any) -> None:
    model.facts = nn.Linear(model.config.hidden_size, 2)


def save_facts(model: Any, folder: Path) -> None:
    """Save the layer by itself, and take it off: the model is saved as Hugging Face knows it."""
    layer = model._modules.pop(FACTS)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().cpu().contiguous() for name, value in layer.state_dict().items()}, folder / FILE)


def load_facts(model: Any, folder: Path) -> None:
    add_facts(model)
    model.facts.load_state_dict(load_file(folder / FILE))


@torch.no_grad()
def fact_scores(
    model: Any, objective: FactAnswering, tokenize: ExampleTokenizer, records: Sequence[Record], batch: int, device: str
) -> dict[str, float]:
    """F1 and exact match of the supporting sentences, in %, as HotpotQA's script has them: the mean over questions,
    cut sentences counting as not found."""
    f1, exact = [], []
    for start in range(0, len(records), batch):
        some = records[start : start + batch]
        features = [tokenized(record, tokenize) for record in some]
        given = {name: value.to(device) for name, value in objective.collate(features).items()}
        hidden = model.base_model(**{k: v for k, v in inputs_of(given).items() if k != FACTS}).last_hidden_state
        said = (objective.fact_logits(model, hidden, given) > 0).cpu()
        for row, facts, record in zip(said, given[FACTS].cpu(), some, strict=True):
            right = sum(fact.supports for fact in facts_of(record) if fact.kind == SENTENCE)
            mine = facts[:, 1] == SENTENCE
            hits, predicted = int((row & mine & (facts[:, 2] == 1)).sum()), int((row & mine).sum())
            f1.append(200 * hits / (predicted + right) if predicted + right else 100.0)
            exact.append(100.0 * (hits == predicted == right))
    return {FACT_F1: sum(f1) / len(f1), "fact_em": sum(exact) / len(exact)}
