"""A data folder with a few documents of every task, in the formats of the real one."""

import json
from pathlib import Path

from reproduction.small.settings import Small
from reproduction.tasks.packed import pack
from reproduction.tasks.specs import LONG_TASKS
from tests.reproduction import tiny

SMALL = Small(cell_seconds=0.2, longest=96, device="cpu", loaders=0, compile=False, together=1)
TYPES = ("Supply Agreement", "Franchise Agreement")


def contract(i: int) -> str:
    return f"X_{i}-EX-10.1-{TYPES[i % 2]} {'' if i < 2 else i}".strip()


def data(folder: Path) -> Path:
    for split, authors in (("train", range(9)), ("validation", range(9, 12))):
        tiny.write(folder / "books" / f"{split}.jsonl", [book(i) for i in authors])
    texts = {contract(i): clauses(i) for i in range(8)}
    names = list(texts)
    tiny.write(folder / "cuad" / "docs.jsonl", [{"doc_id": name, "document": texts[name]} for name in names[:7]])
    tiny.write(folder / "cuad" / "train.jsonl", [one for name in names[:5] for one in questions(name, texts[name])])
    tiny.write(
        folder / "cuad" / "validation.jsonl", [one for i in (5, 6) for one in questions(names[i], texts[names[i]])]
    )
    official = folder / "cuad" / "official"
    tiny.write(official / "docs.jsonl", [{"doc_id": names[7], "document": texts[names[7]]}])
    tiny.write(official / "test.jsonl", questions(names[7], texts[names[7]]))
    (official / "test_doc_ids.json").write_text(json.dumps([names[4], names[6], names[7]]))
    verdicts = ("Entailment", "Contradiction", "NotMentioned", "")
    agreements = [{"doc_id": f"a{i}", "document": tiny.text(31 * i, 60)} for i in range(4)]
    tiny.write(folder / "contractnli" / "docs.jsonl", agreements)
    tales = [{"doc_id": f"t{i}", "document": tiny.text(17 * i, 80)} for i in range(4)]
    tiny.write(folder / "fairytaleqa" / "docs.jsonl", tales)
    for part, (first, second) in enumerate((("train", "train"), ("validation", "test"))):
        tiny.write(folder / "contractnli" / f"{first}.jsonl", [
            {"doc_id": f"a{2 * part + i}", "hypothesis": f"w{i} w{j}", "label": verdict}
            for i in range(2) for j, verdict in enumerate(verdicts)
        ])  # fmt: skip
        tiny.write(folder / "fairytaleqa" / f"{second}.jsonl", [
            {"doc_id": f"t{2 * part + i}", "question": f"what w{j} ?", "answers": [f"w{j + 10}"], "attribute": "a"}
            for i in range(2) for j in range(6)
        ])  # fmt: skip
    return folder


def book(i: int) -> dict[str, object]:
    year = (1820, 1880, 1910)[i % 3]
    author = f"A{i % 5}"  # two books each, and a third of the first two, which is left out
    text = f"# Title: T{i}\n## Author: {author}\n## Year: {year}\n-------\nin {year} {tiny.text(13 * i, 300)}"
    return {"id": str(i), "author": author, "title": f"T{i:02}", "text": text}


def clauses(i: int) -> str:
    kind = TYPES[i % 2]
    return f"{tiny.text(7 * i, 110)} this {kind} and each {kind} w1 w2 w{i} {tiny.text(5 * i, 40)}"


def questions(name: str, text: str) -> list[dict[str, object]]:
    clause = text.partition(" this ")[2].rsplit(" and each ")[1][:30]
    return [
        {"id": f"{name}__{kind}", "doc_id": name, "category": kind, "question": kind, "answers": [clause] * has}
        for kind, has in (("Insurance", 1), ("Exclusivity", 0), ("Parties", 1))
    ]


def packed(folder: Path) -> Path:
    return pack(data(folder / "data"), str(tiny.model(folder / "model")), folder / "packed", list(LONG_TASKS))
