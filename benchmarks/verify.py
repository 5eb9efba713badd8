"""How well sentences are checked: changed and true sentences of contracts, and ContractNLI's statements.

    python -m benchmarks.verify --data ../shared/data quotes          # 300 changed and 300 true sentences; no model
    python -m benchmarks.verify --data ../shared/data nli --model MODEL --documents 10

`quotes` takes sentences of CUAD's validation contracts and changes one name, sum or date in each. True sentences are
taken as they stand, without their last words, or without their articles. `nli` needs a model with a verdict head;
evidence is compared with ContractNLI's spans by characters.
"""

import argparse
import json
import lzma
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from vcc.documents.document import Document
from vcc.documents.quotes import find_quote
from vcc.documents.text import Text, join_pieces, sentence_ends
from vcc.documents.verify import Verdict, verdict_on

NAME = re.compile(r"(?<=[a-z] )(?:[A-Z][a-z]{2,}|[A-Z]{3,})\b")
SUM = re.compile(r"[$€£] ?\d[\d,]*(?:\.\d+)?")
DAY = re.compile(
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December) \d{1,2}, \d{4}"
)
LABELS = {"Entailment": "supported", "Contradiction": "contradicted", "NotMentioned": "not found"}


def lines(path: Path) -> list[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def document_of(name: str, text: str) -> Document:
    body, parts = join_pieces([("", text)])
    return Document(Text(body, name, name, parts))


def sentences(text: str) -> list[str]:
    edges = [0, *(start for _, start in sentence_ends(text)), len(text)]
    found = (" ".join(text[a:b].split()) for a, b in zip(edges, edges[1:], strict=False))
    return [one for one in found if 10 <= len(one.split()) <= 60 and one[-1] in ".;"]


def changed(sentence: str, kind: re.Pattern[str], others: list[str], chance: random.Random) -> str | None:
    """The sentence with one name, sum or date exchanged for another one of the same contract."""
    places = list(kind.finditer(sentence))
    if not places:
        return None
    place = chance.choice(places)
    new = [other for other in others if other.lower() not in sentence.lower()]
    return sentence[: place.start()] + chance.choice(new) + sentence[place.end() :] if new else None


def reworded(sentence: str, way: int) -> str:
    """True still: as it stands, without its last words, or without its articles."""
    words = sentence.rstrip(".;").split()
    if way == 1:
        return " ".join(words[: max(8, len(words) * 4 // 5)])
    if way == 2:
        return " ".join(word for i, word in enumerate(words) if i == 0 or word not in ("the", "a", "an"))
    return sentence


def quotes(data: Path, number: int, model: str | None) -> None:
    """Print how many changed sentences are not called supported, and how many true ones are."""
    chance = random.Random(0)
    wanted = {row["doc_id"] for row in lines(data / "cuad/validation.jsonl.xz")}
    texts = [row["document"] for row in lines(data / "cuad/docs.jsonl.xz") if row["doc_id"] in wanted]
    documents = [document_of("contract", text) for text in texts if len(text) < 120_000]
    kinds = {"name": NAME, "sum": SUM, "date": DAY}
    ways = ("true, as it stands", "true, shortened", "true, without articles")
    made: dict[str, list[tuple[int, str]]] = {kind: [] for kind in (*kinds, *ways)}
    for place, document in enumerate(documents):
        own = sentences(document.text)
        for kind, pattern in kinds.items():
            others = sorted({match.group() for match in pattern.finditer(document.text)})
            twisted = (changed(one, pattern, others, chance) for one in own if pattern.search(one))
            made[kind] += [(place, one) for one in twisted if one is not None]
        made |= {kind: [*made[kind], *((place, reworded(one, way)) for one in own)] for way, kind in enumerate(ways)}
    tally: Counter[tuple[str, str]] = Counter()
    few = {kind: min(number // 3, len(made[kind])) for kind in made}
    few["name"] = number - few["sum"] - few["date"]  # contracts have more names than sums and dates
    for kind, some in made.items():
        for place, one in sorted(chance.sample(some, few[kind])):  # words of a contract are kept
            tally[kind, "all"] += 1
            tally[kind, verdict(documents[place], one, model)] += 1
    for kind in made:
        found = {word: tally[kind, word] for word in ("supported", "contradicted", "not found")}
        print(f"{kind:<24} {tally[kind, 'all']:>4}  {found}")
    false = sum(tally[kind, "all"] for kind in kinds)
    right = sum(tally[kind, "all"] - tally[kind, "supported"] for kind in kinds)
    true = sum(count for (kind, word), count in tally.items() if kind.startswith("true") and word == "all")
    kept = sum(count for (kind, word), count in tally.items() if kind.startswith("true") and word == "supported")
    print(f"changed, not called supported: {right} of {false} ({100 * right / max(false, 1):.1f}%)")
    print(f"true, supported: {kept} of {true} ({100 * kept / max(true, 1):.1f}%)")


def verdict(document: Document, sentence: str, model: str | None) -> str:
    """By quotes; with a model, also by its verdict head."""
    if model is not None:
        return verdict_on(document, sentence, model).verdict
    quote = find_quote(document.text, sentence)
    if quote is None or (quote.changed is None and not quote.faithful):
        return "not found"
    return "supported" if quote.changed is None else "contradicted"


def nli(data: Path, documents: int, model: str | None, sample: int | None = None) -> None:
    """Print accuracy and evidence F1 on the first documents of ContractNLI's validation set, or on a sample of the
    statements that have evidence."""
    texts = {row["doc_id"]: row["document"] for row in lines(data / "contractnli/docs.jsonl.xz")}
    rows = lines(data / "contractnli/validation.jsonl.xz")
    if sample is not None:
        rows = [row for row in rows if row["answers"]]
        random.Random(7).shuffle(rows)
        rows, documents = rows[:sample], len(rows)
    kept = set(list(dict.fromkeys(row["doc_id"] for row in rows))[:documents])
    right, number, scores = 0, 0, []
    confused: Counter[tuple[str, str]] = Counter()
    for row in (one for one in rows if one["doc_id"] in kept):
        text = texts[row["doc_id"]]
        document = Document(Text(text, row["doc_id"], "", join_whole(text)))
        found = verdict_on(document, row["hypothesis"], model)
        gold = LABELS[row["label"]]
        right, number = right + (found.verdict == gold), number + 1
        confused[gold, found.verdict] += 1
        print(f"\r{number} statements", end="", file=sys.stderr, flush=True)
        if gold != "not found":
            scores.append(overlap(row, found))
    print(f"accuracy {100 * right / number:.1f} ({number} statements, {len(kept)} documents)")
    print(f"evidence F1 {100 * sum(scores) / max(len(scores), 1):.1f} ({len(scores)} statements)")
    print({f"{gold} -> {said}": count for (gold, said), count in sorted(confused.items())})


def join_whole(text: str) -> Any:
    from vcc.documents.text import Part

    return (Part("", 0, len(text)),)


def overlap(row: dict[str, Any], found: Verdict) -> float:
    """F1 of characters between ContractNLI's evidence and the passages."""
    gold = {c for a, words in zip(row["answer_starts"], row["answers"], strict=True) for c in range(a, a + len(words))}
    passages = [] if found.passage is None else [found.passage, *found.also]
    shown = {c for passage in passages for c in range(passage.start, passage.end)}
    both = len(gold & shown)
    return 2 * both / (len(gold) + len(shown)) if both else 0.0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("quotes", "nli"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--sample", type=int, help="nli: only so many statements, drawn among those with evidence")
    return parser.parse_args()


if __name__ == "__main__":
    given = parsed()
    if given.part == "quotes":
        quotes(given.data, given.number, given.model)
    else:
        nli(given.data, given.documents, given.model, given.sample)
