"""The labelled documents of each task, from a folder of data sets, and what is removed from their texts.

A document is in the training part or in the test part as a whole.

| file | documents | split |
|---|---|---|
| books | books with a year, at most two per author | by author: a style that is known gives no year away |
| contracts | CUAD's contracts whose name has one type | the official test contracts are the test part |
| pairs | ContractNLI's agreements | the data folder's |
| tags | CUAD's contracts | the official test contracts are the test part |
| choices | FairytaleQA's tales | the published one |
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from reproduction.cuad_split import contracts as cuad_examples
from reproduction.tasks.specs import CHOICES
from vcc.data.example import Example
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.metrics import normalize


@dataclass(frozen=True)
class LabelledText:
    """One item on a document. `asked` are texts before the document; `spans` are tagged characters, end excluded."""

    name: str  # of the document
    document: str
    test: bool
    label: int = 0
    asked: tuple[str, ...] = ()
    spans: tuple[tuple[int, int, int], ...] = ()  # start, end, tag


@dataclass(frozen=True)
class Labelled:
    """The items of a task; several may share a document."""

    labels: tuple[str, ...]
    items: tuple[LabelledText, ...]


# ---------------------------------------------------------------------------------------------------------------- books

PERIODS = ("before 1860", "1860 to 1899", "1900 on")
PER_AUTHOR = 2
TEST_AUTHORS = 4  # every fourth author, in a random order
HEADER_ENDS = "-------"
YEAR = re.compile(r"## Year:\s*(\d{4})\b")
FOUR_DIGITS = re.compile(r"\b\d{4}\b")


def books(data: str) -> Labelled:
    """Removed: the header with title, author and year, and every number of four digits."""
    records = [record for split in ("train", "validation") for record in load_records("books", split, data, "")]
    by_author: dict[str, list[LabelledText]] = defaultdict(list)
    for record in sorted(records, key=lambda one: str(one.get("title"))):
        text, author, title = record.get("text"), record.get("author"), record.get("title")
        header, _, rest = text.partition(HEADER_ENDS)
        year = YEAR.search(header)
        if year is None or len(by_author[author]) == PER_AUTHOR:
            continue
        document = FOUR_DIGITS.sub("", rest)
        by_author[author].append(LabelledText(f"{author}: {title}", document, False, period(int(year[1]))))
    authors = sorted(by_author)
    random.Random(0).shuffle(authors)
    items = [
        LabelledText(one.name, one.document, i % TEST_AUTHORS == 0, one.label)
        for i, author in enumerate(authors)
        for one in by_author[author]
    ]
    return Labelled(PERIODS, tuple(items))


def period(year: int) -> int:
    return int(year >= 1860) + int(year >= 1900)


# ------------------------------------------------------------------------------------------------------------ contracts

TYPES = {
    "agency": "agency", "co-branding": "co-?branding", "collaboration": "collaboration|co-?operation",
    "consulting": "consulting", "development": "development", "distribution": "distribut(?:or|ion)",
    "endorsement": "endorsement", "franchise": "franchise", "hosting": "hosting",
    "intellectual property": "intellectual property", "joint venture": "joint venture",
    "license": "licens(?:e|ing)", "maintenance": "maintenance", "outsourcing": "outsourcing",
    "service": "servic(?:es?|ing)", "sponsorship": "sponsorship", "supply": "supply",
    "strategic alliance": "strategic alliance",
}  # fmt: skip
EXHIBIT = re.compile(r"EX-?[\d.]+(?:\([^)]*\))?(?:\.\d+)?[_-]| - ")  # before the type in a contract's name
NAMED = re.compile(
    rf"\b(?:{'|'.join(TYPES.values())})(?:\s+\w+){{0,2}}?\s+(?=agreements?\b|contracts?\b)", re.IGNORECASE
)
TITLE_WORDS = 100


def contracts(data: str) -> Labelled:
    """Removed: the first 100 words (the title page), and a type before "agreement" or "contract" wherever it is."""
    items = []
    for name, examples, test in cuad(data):
        label = contract_type(name)
        if label is not None:
            items.append(LabelledText(name, without_type(examples[0].document), test, label))
    return Labelled(tuple(TYPES), tuple(items))


def contract_type(name: str) -> int | None:
    """The one type in a contract's name; None if it has none or several."""
    end = EXHIBIT.split(name)[-1]
    found = [i for i, pattern in enumerate(TYPES.values()) if re.search(pattern, end, re.IGNORECASE)]
    return found[0] if len(found) == 1 else None


def without_type(text: str) -> str:
    words = list(re.finditer(r"\S+", text))
    start = words[TITLE_WORDS].start() if len(words) > TITLE_WORDS else 0
    return NAMED.sub("", text[start:])


@cache
def cuad(data: str) -> list[tuple[str, list[Example], bool]]:
    """Every contract with its questions, and whether it is one of the official test; two tasks read them."""
    found = []
    for test in (False, True):
        by_name: dict[str, list[Example]] = defaultdict(list)
        for split in ("test",) if test else ("train", "validation"):
            for example in cuad_examples(split, data):  # type: ignore[arg-type]
                by_name[example.group].append(example)
        found += [(name, examples, test) for name, examples in sorted(by_name.items())]
    return found


# ----------------------------------------------------------------------------------------------------------------- tags

TAGS = (
    "Anti-Assignment", "Audit Rights", "Cap On Liability", "Exclusivity", "Expiration Date", "Governing Law",
    "Insurance", "License Grant", "Minimum Commitment", "Post-Termination Services",
)  # fmt: skip


def tags(data: str) -> Labelled:
    """The ten most frequent clauses that are not on the title page; where two overlap, the later one here counts."""
    items = []
    for name, examples, test in cuad(data):
        spans = tuple(
            (start, end, TAGS.index(str(example.meta["category"])))
            for example in sorted(examples, key=lambda one: str(one.meta["category"]))
            if example.meta["category"] in TAGS
            for start, end in example.answer_spans
        )
        items.append(LabelledText(name, examples[0].document, test, asked=(), spans=spans))
    return Labelled(TAGS, tuple(items))


# ---------------------------------------------------------------------------------------------------------------- pairs

VERDICTS = ("Entailment", "Contradiction", "NotMentioned")


def pairs(data: str) -> Labelled:
    """Statements with a verdict; the label is the verdict."""
    items = []
    for split in ("train", "validation"):
        for record in load_records("contractnli", split, data, ""):
            verdict = record.get("label")
            if verdict in VERDICTS:
                name, statement = record.get("doc_id"), record.get("hypothesis")
                label = VERDICTS.index(verdict)
                items.append(LabelledText(name, record.get("document"), split != "train", label, asked=(statement,)))
    return Labelled(VERDICTS, tuple(items))


# -------------------------------------------------------------------------------------------------------------- choices


def choices(data: str) -> Labelled:
    return Labelled(tuple("ABCD"), tuple(item for split in ("train", "test") for item in tale_choices(split, data)))


def tale_choices(split: str, data: str) -> list[LabelledText]:
    """The answer among three answers to other questions on the same tale, of the same kind where there are enough."""
    items = []
    by_tale: dict[str, list[Record]] = defaultdict(list)
    for record in load_records("fairytaleqa", split, data, ""):
        if record.texts("answers"):
            by_tale[record.get("doc_id")].append(record)
    for name, records in sorted(by_tale.items()):
        draw = random.Random(name)
        for record in records:
            wrong = wrong_answers(record, records, draw)
            if len(wrong) == CHOICES - 1:
                label = draw.randrange(CHOICES)
                options = (*wrong[:label], record.texts("answers")[0], *wrong[label:])
                asked = (record.get("question"), *options)
                items.append(LabelledText(name, record.get("document", "context"), split == "test", label, asked))
    return items


def wrong_answers(record: Record, others: Sequence[Record], draw: random.Random) -> list[str]:
    """Answers to other questions that share no word sequence with the right one."""
    taken = [normalize(text) for text in record.texts("answers")]
    kind = record.fields.get("attribute")
    order = draw.sample(others, len(others))
    order.sort(key=lambda other: other.fields.get("attribute") != kind)  # stable: the same kind first
    wrong: list[str] = []
    for other in order:
        text = other.texts("answers")[0]
        plain = normalize(text)
        if plain and len(wrong) < CHOICES - 1 and not any(plain in one or one in plain for one in taken):
            wrong.append(text)
            taken.append(plain)
    return wrong


# ----------------------------------------------------------------------------------------------------------------- all

SOURCES: dict[str, Callable[[str], Labelled]] = {
    "books": books, "contracts": contracts, "pairs": pairs, "tags": tags, "choices": choices,
}  # fmt: skip


def check_parts(name: str, found: Labelled) -> None:
    """Raise if a document, or its text under another name, is in both parts, or a part is empty."""
    for key in ("name", "document"):
        parts: dict[str, set[bool]] = defaultdict(set)
        for item in found.items:
            parts[getattr(item, key)].add(item.test)
        both = [one for one, seen in parts.items() if len(seen) > 1]
        if both:
            raise DataError(f"{name}: {len(both)} documents are in both parts, such as {both[0][:80]!r}")
    counts = Counter(item.test for item in found.items)
    if len(counts) < 2:
        raise DataError(f"{name}: {counts[False]} items to train on, {counts[True]} to test on: neither may be 0")
