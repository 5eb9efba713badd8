"""Tokenize texts, on a CPU: for `train` and, with the offsets of validation tokens, for `score`.

python -m shipped_model.prepare --data DATA --minilm FOLDER --out prepared
"""

import json
import lzma
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from reproduction.cuad_split import contracts
from shipped_model.data import (
    ABSENT,
    ASKED,
    CONTRADICTED,
    REWORDED,
    SUPPORTED,
    TWISTED,
    Ints,
    TokenQuestion,
    TokenSets,
    Unit,
    save,
)
from shipped_model.sources import SOURCES
from shipped_model.twists import names_of, twist
from shipped_model.wordings import WORDINGS
from vcc.commands.options import call
from vcc.data.example import Example
from vcc.data.features import token_spans, tokenize_text
from vcc.data.records import load_records
from vcc.tasks.hotpotqa import YES_NO, MultiHop
from vcc.tasks.squad import Squad

BOOK_TOKENS = {"train": 2_400_000, "validation": 600_000}
TWISTED_SHARE = 0.5  # of SQuAD's questions, also asked in an unanswerable form
VERDICTS = {"Entailment": SUPPORTED, "Contradiction": CONTRADICTED, "NotMentioned": ABSENT}
HELD_OUT = "Wuthering Heights"  # an example that ships with the package: not read in training


@dataclass(frozen=True)
class PrepareOptions:
    """Inputs and outputs."""

    data: Annotated[Path, "folder of the data sets"]
    minilm: Annotated[Path, "folder of MiniLM-L6"]
    out: Annotated[Path, "output folder"]


def prepare(options: PrepareOptions) -> None:
    """Tokenize texts, on a CPU: for `train` and, with the offsets of validation tokens, for `score`."""
    minilm, out = options.minilm, options.out
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    source = str(options.data)
    sets = {
        f"{name}_{split}": list(task.load(split, source))
        for split in ("train", "validation")
        for name, task in (("hotpot", MultiHop("hotpotqa")), ("musique", MultiHop("musique")))
    }
    for split in ("train", "validation", "test"):
        sets[f"cuad_{split}"] = list(contracts(split, source))
    for split in ("train", "validation"):
        sets[f"verdicts_{split}"] = list(statements(split, source))
    for kind in SOURCES:
        sets |= {f"{kind.name}_{split}": kind.load(split, source) for split in kind.splits}
    sets["squad2_train"], sets["squad_validation"] = squad_halves(source)
    for name in ("hotpot_train", "hotpot_validation", "musique_train", "musique_validation"):
        sets[name] = [without_yes_no(e) for e in sets[name] if e.answers[0].lower() not in ("yes", "no")]
    units, texts = {}, {}
    for name, examples in sets.items():
        units[name], texts[name] = to_units(name, examples, tokenizer)
        print(
            name,
            len(units[name]),
            "texts",
            sum(len(u.questions) for u in units[name]),
            "questions",
            sum(len(u.ids) for u in units[name]),
            "tokens",
        )
    books = {split: book_text(split, source, tokenizer) for split in BOOK_TOKENS}
    save(TokenSets(units, books), out / "tokens.npz.xz")
    with lzma.open(out / "validation.jsonl.xz", "wt") as file:  # only scoring needs it
        for name in sets:
            if name.endswith(("validation", "test")):
                file.writelines(json.dumps({"set": name, **text}) + "\n" for text in texts[name])
    weights = load_file(minilm / "model.safetensors")
    save_file(
        {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in weights.items()}, out / "model.safetensors"
    )
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (out / name).write_bytes((minilm / name).read_bytes())


def statements(split: str, source: str) -> Iterator[Example]:
    """The hypotheses of ContractNLI, each with the clauses that decide it."""
    for record in load_records("contractnli", split, source, ""):
        if record.get("label") in VERDICTS:
            answers, starts = record.texts("answers"), record.get("answer_starts", kind=list)
            yield Example(
                record.get("id"),
                record.get("hypothesis"),
                record.get("document"),
                answers,
                tuple((start, start + len(answer)) for start, answer in zip(starts, answers, strict=True)),
                group=record.get("doc_id"),
                meta={"label": record.get("label")},
            )


def squad_halves(source: str) -> tuple[list[Example], list[Example]]:
    """Only the published validation set has unanswerable questions: half of its articles train, the others test."""
    return list(Squad("first").load("validation", source)), list(Squad("second").load("validation", source))


def to_units(name: str, examples: Sequence[Example], tokenizer: Any) -> tuple[tuple[Unit, ...], list[dict[str, Any]]]:
    """One unit per text; questions keep their order and are numbered over the set."""
    by_text: dict[str, list[Example]] = {}
    for example in examples:
        by_text.setdefault(example.document, []).append(example)
    first = 1000 if name == "squad2_train" else 0  # its articles differ from those of squad11_train
    owners = {group: first + i for i, group in enumerate(dict.fromkeys(example.group for example in examples))}
    twists = names_of(examples) if name == "squad11_train" else {}
    chance, units, texts = random.Random(0), [], []
    for document, asked in by_text.items():
        tokens = tokenize_text(document, tokenizer)
        questions: list[TokenQuestion] = []
        for example in asked:
            spans = tuple(token_spans(example.answer_spans, tokens.offsets))
            if name.endswith("train") and example.answers and not spans:
                continue  # the text does not contain the answer
            wordings = [(example.question, VERDICTS.get(str(example.meta.get("label")), ASKED), spans)]
            if name == "cuad_train":
                wordings.append((chance.choice(WORDINGS[str(example.meta["category"])]), REWORDED, spans))
            elif (
                name == "squad11_train"
                and chance.random() < TWISTED_SHARE
                and (twisted := twist(example, twists[example.group], chance))
            ):
                wordings.append((twisted, TWISTED, ()))
            questions += [
                TokenQuestion(tokenize_text(text, tokenizer).ids, spans, kind) for text, kind, spans in wordings
            ]
        units.append(Unit(tokens.ids, tuple(questions), owners[asked[0].group]))
        texts.append(
            {
                "text": document,
                "offsets": tokens.offsets.tolist(),
                "group": asked[0].group,
                "questions": [{"id": e.id, "question": e.question, "answers": e.answers} for e in asked],
            }
        )
    return tuple(units), texts


def without_yes_no(example: Example) -> Example:
    """Remove the words yes and no, which the task puts before every document for questions that we leave out."""
    by = len(YES_NO)
    return replace(
        example,
        document=example.document[by:],
        answer_spans=tuple((a - by, b - by) for a, b in example.answer_spans if a >= by),
    )


def book_text(split: str, source: str, tokenizer: Any) -> Ints:
    """One passage per book, until there is enough."""
    books = [r for r in load_records("books", split, source, "") if HELD_OUT not in r.get("title")]
    each = BOOK_TOKENS[split] // len(books)
    parts = []
    for book in books:
        text = book.get("text")
        start = len(text) // 10  # past the title pages
        parts.append(tokenize_text(text[start : start + 6 * each], tokenizer).ids[:each])
    return np.concatenate(parts)


if __name__ == "__main__":
    call(prepare, sys.argv[1:], "python -m shipped_model.prepare")
