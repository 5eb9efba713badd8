"""How well values are read: CUAD's validation contracts with their normalised answers, and TAT-QA's numbers.

    python -m benchmarks.extract --data ../shared/data spans                    # from the annotated spans
    python -m benchmarks.extract --data ../shared/data whole --documents 10     # from whole contracts
    python -m benchmarks.extract --data ../shared/data tatqa --documents 20     # numbers from short notes
    python -m benchmarks.extract --data ../shared/data time                     # 30 pages, 15 fields

`spans` measures reading alone, the case in which the span is right. A date that has to be computed from a term is
computed from the effective date.
"""

import argparse
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.verify import document_of, lines
from vcc.documents.answer import answer_at
from vcc.documents.extract.fill import Filler
from vcc.documents.extract.names import defined_terms, names_in, parties_among
from vcc.documents.extract.schema import FormField, form_schema
from vcc.documents.extract.values import read_duration, values_in
from vcc.documents.extract.wordings import clause_question

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "agreement_date": {"type": "string", "format": "date"},
        "effective_date": {"type": "string", "format": "date"},
        "expiration_date": {"type": "string", "format": "date"},
        "renewal_term": {"type": "string", "format": "duration"},
        "notice_period_to_terminate_renewal": {"type": "string", "format": "duration"},
        "governing_law": {"type": "string"},
        "parties": {"type": "array", "items": {"type": "string"}},
    },
}


OWN_FIELDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "exclusivity": {"type": "boolean"},
        "insurance": {"type": "boolean"},
        "cap_on_liability": {"type": "string"},
        "warranty_duration": {"type": "string", "format": "duration"},
        "audit_rights": {"type": "boolean"},
        "payment_term": {"type": "string", "format": "duration", "description": "Within how many days must be paid?"},
        "interest_rate": {"type": "number", "description": "What interest is charged on late payments?"},
        "place_of_disputes": {"type": "string", "description": "Where are disputes settled?"},
    },
}
PAGES, PAGE = 30, 2_500  # characters of a page


def gold_value(field: FormField, short: str) -> Any:
    """CUAD's normalised answer as we write it; None where it has none."""
    if field.kind == "date":
        if (match := re.fullmatch(r"(\d+)/(\d+)/(\d\d)", short)) is None:
            return None
        month, day, year = map(int, match.groups())
        return f"{year + (1900 if year > 50 else 2000)}-{month:02}-{day:02}"
    if field.kind == "duration":
        return read_duration(short) if re.search(r"\d", short) and ";" not in short else None
    if field.kind == "list":
        brackets = r"\([^()]*\)?"
        names = [re.sub(brackets, "", name).strip(" )") for name in re.split(r";(?![^()]*\))", short.lstrip("("))]
        terms = {*re.findall(r"\w+", " ".join(re.findall(brackets, short)).lower()), "and", "together"}
        # The others say what the parties are called: Seller and Buyer (the "Parties").
        called = re.compile(r"\b(?:collectively|individually|together|Party|Parties)\b", re.IGNORECASE)
        kept = [name for name in names if {*re.findall(r"\w+", name.lower())} - terms and not called.search(name)]
        return kept or None
    return short or None


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower().replace(".", ""))) - {
        "the",
        "state",
        "of",
        "and",
        "laws",
        "usa",
        "uk",
        "canada",
    }


def same(field: FormField, found: Any, gold: Any) -> bool:
    """Dates and durations exactly; a law by its words; parties if each of them is among the values."""
    if found is None:
        return False
    if field.kind == "list":
        return all(any(words(name) <= words(one) or words(one) <= words(name) for one in found) for name in gold)
    return words(found) == words(gold) if field.kind == "text" else bool(found == gold)


def cuad(data: Path, documents: int | None) -> None:
    """From annotated spans, or with a number of documents from whole contracts."""
    schema = form_schema(FORM)
    by_question = {clause_question(leaf): leaf for leaf in schema.leaves}
    rows = [row for row in lines(data / "cuad/validation.jsonl.xz") if row["answers"]]
    rows = [row for row in rows if row["question"] in by_question]
    texts = {row["doc_id"]: row["document"] for row in lines(data / "cuad/docs.jsonl.xz")}
    short = [name for name in dict.fromkeys(row["doc_id"] for row in rows) if len(texts[name]) < 40_000]
    kept, forms = set(short[:documents]), {}
    begins = beginnings(schema, rows, by_question) if documents is None else {}
    right: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for row in rows:
        field = by_question[row["question"]]
        gold = gold_value(field, row.get("short_answer") or "")
        if gold is None or (documents is not None and row["doc_id"] not in kept):
            continue
        if documents is not None:
            if row["doc_id"] not in forms:
                forms[row["doc_id"]] = document_of(row["doc_id"], texts[row["doc_id"]]).extract(schema).values
            found = forms[row["doc_id"]].get(field.name)
        elif field.kind == "list":
            found = parties_of(texts[row["doc_id"]], row["answers"])
        else:
            found = from_spans(schema, field, row["answers"], begins.get(row["doc_id"]))
        number[field.name] += 1
        right[field.name] += same(field, found, gold)
        if field.kind == "list":
            number["parties and nobody else"] += 1
            right["parties and nobody else"] += same(field, found, gold) and same(field, gold, found)
    for name, count in number.items():
        print(f"{name:<36} {right[name]:>3} of {count:>3}  {100 * right[name] / count:.0f}%", flush=True)


def parties_of(text: str, answers: list[str]) -> list[str]:
    """The parties that the annotated spans of a contract name. They also hold the terms by which it calls them."""
    names = [one.value for answer in answers for one in names_in(answer)]
    return [names[i] for i in parties_among(names, defined_terms(text))]


def from_spans(schema: Any, field: FormField, answers: list[str], begins: str | None = None) -> Any:
    """The first value that is read from the annotated spans of a field. `begins`: when the contract takes effect."""
    for answer in answers:
        document = document_of("span", answer)
        span = answer_at(document.content, 0, len(document.text), 1.0)
        for value, _ in Filler(document, schema, None, None, begins or "").read(field, "", span):
            return value
    return None


def beginnings(schema: Any, rows: list[dict[str, Any]], by_question: dict[str | None, FormField]) -> dict[str, str]:
    """By contract, the day read from the annotated spans of the effective date, or else of the agreement's date."""
    found: dict[str, str] = {}
    for name in ("effective_date", "agreement_date"):
        for row in rows:
            field = by_question[row["question"]]
            wanted = field.name == name and row["doc_id"] not in found
            if wanted and (day := from_spans(schema, field, row["answers"])) is not None:
                found[row["doc_id"]] = day
    return found


def tatqa(data: Path, number: int) -> None:
    """Questions whose answer holds one number: asked, read, compared."""
    right, asked = 0, 0
    for row in lines(data / "tatqa/validation.jsonl.xz"):
        gold = [one.value for one in values_in("number", row["answers"][0])]
        if len(gold) != 1 or asked == number:
            continue
        answers = document_of("note", row["context"]).ask(row["question"], 1, 0.0)
        found = [one.value for answer in answers for one in values_in("number", answer.text)]
        right, asked = right + (found[:1] == gold), asked + 1
    print(f"TAT-QA numbers: {right} of {asked}")


def timed(data: Path) -> None:
    """Seconds that 15 fields of 30 pages take; processor seconds hold where others use the machine too."""
    texts = sorted((row["document"] for row in lines(data / "cuad/docs.jsonl.xz")), key=len)
    text = next(text for text in texts if len(text) >= PAGES * PAGE)[: PAGES * PAGE]
    document_of("warm", "The rent is $5.").extract(OWN_FIELDS)
    document = document_of("contract", text)
    wall, processor = time.perf_counter(), time.process_time()
    document.read()
    read, read_processor = time.perf_counter(), time.process_time()
    filled = document.extract({**FORM, "properties": {**FORM["properties"], **OWN_FIELDS["properties"]}})
    end, end_processor = time.perf_counter(), time.process_time()
    print(f"{PAGES} pages, {document.index().tokens:,} tokens, {len(filled.schema.leaves)} fields")
    print(f"reading: {read - wall:.1f} s, {read_processor - processor:.1f} processor seconds")
    print(f"filling: {end - read:.1f} s, {end_processor - read_processor:.1f} processor seconds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("spans", "whole", "tatqa", "time"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=10)
    given = parser.parse_args()
    if given.part == "time":
        timed(given.data)
    elif given.part == "tatqa":
        tatqa(given.data, given.documents)
    else:
        cuad(given.data, given.documents if given.part == "whole" else None)
