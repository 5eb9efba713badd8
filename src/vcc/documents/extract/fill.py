"""Fill a form from a document: ask each field's questions, read values from the spans found, keep what is valid."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vcc.documents.answer import Answer, Reply, answer_at, merge_overlaps, on_one_line
from vcc.documents.askable import Askable
from vcc.documents.extract.names import names_in, parties_in
from vcc.documents.extract.schema import FormField, FormSchema
from vcc.documents.extract.terms import end_of_term
from vcc.documents.extract.values import ReadValue, values_in
from vcc.documents.extract.wordings import clause_question, is_about, plain_question, questions_of
from vcc.documents.verify import CONTRADICTED, SUPPORTED, verify_document
from vcc.errors import UsageError

MOST_ITEMS = 8  # of a list
FURTHER = 0.02  # a further item of a list may be this unlikely: the calibration is that of single answers
LONG = 60  # characters; a longer span is a clause, and the value is a part of it
NAME = 4  # words; a longer span that ends in a full stop is a sentence
BEGINNINGS = ("effective_date", "agreement_date")
REPAIRS = 20  # values that are withdrawn because the whole form is not valid with them


@dataclass(frozen=True)
class Filled:
    """What was found for one field: a value with its evidence. The value is None below the threshold."""

    path: str  # parties[0].name
    value: Any
    answer: Answer | None = None
    number: int = 0  # of the field among the schema's leaves
    rank: int = 0  # from 1, of a value in a list; 0: no value

    @property
    def shown(self) -> str:
        """The value for people, and for a cell of a table."""
        return shown_value(self.value)

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "value": self.value,
            "evidence": None if self.answer is None else self.answer.as_dict(),
        }


@dataclass(frozen=True)
class Form:
    """A filled form. `values` is valid against the schema but for required fields that were not found: `missing`."""

    schema: FormSchema
    values: dict[str, Any]
    fields: tuple[Filled, ...]
    missing: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "values": self.values,
            "missing": list(self.missing),
            "fields": [filled.as_dict() for filled in self.fields],
        }


def fill(document: Askable, schema: FormSchema, threshold: float | None = None, model: str | None = None) -> Form:
    """Return the form with what the document says."""
    filler = Filler(document, schema, threshold, model)
    filler.ask(schema.leaves)
    found = filler.value(schema.root)
    values = found if isinstance(found, dict) else {}
    fields = sorted(filler.filled, key=lambda one: (one.number, one.rank))
    return checked(schema, values, fields)


@dataclass
class Filler:
    """One document and one schema, while the form is filled."""

    document: Askable
    schema: FormSchema
    threshold: float | None
    model: str | None
    begins: str | None = None  # the day on which the agreement takes effect, "" if unknown; None: not asked yet
    replies: dict[str, Reply] = field(default_factory=dict)
    tops: dict[str, int] = field(default_factory=dict)  # how many answers each question was asked for
    filled: list[Filled] = field(default_factory=list)

    @property
    def needed(self) -> float:
        settings = self.document.asker(self.model).qa.settings
        return settings.threshold if self.threshold is None else self.threshold

    def ask(self, leaves: Sequence[FormField]) -> None:
        """The surest question of every field in one batch; the other wordings in another, where that one failed."""
        for some, top in (
            ([leaf for leaf in leaves if leaf.item is None], 1),
            ([leaf for leaf in leaves if leaf.item is not None], MOST_ITEMS),
        ):
            self.ask_all([questions_of(leaf)[0] for leaf in some], top)
            doubtful = [leaf for leaf in some if self.best_score(questions_of(leaf)[0]) < self.needed]
            self.ask_all([question for leaf in doubtful for question in questions_of(leaf)], top)

    def best_score(self, question: str) -> float:
        return max((answer.score for answer in self.replies[question].all_answers), default=0.0)

    def ask_all(self, questions: Sequence[str], top: int = 1) -> None:
        new = [question for question in dict.fromkeys(questions) if self.tops.get(question, 0) < top]
        if new:
            found = self.document.ask_all(new, top, 0.0, self.model)
            self.replies |= dict(zip(new, found, strict=True))
            self.tops |= dict.fromkeys(new, top)

    def number(self, leaf: FormField) -> int:
        return self.schema.leaves.index(leaf)

    def value(self, wanted: FormField, path: str = "", of: str = "") -> Any:
        """The value of a field, None if it was not found; notes the evidence of each leaf."""
        if wanted.kind == "object":
            values = {
                inner.name: self.value(inner, f"{path}.{inner.name}" if path else inner.name, of)
                for inner in wanted.fields
            }
            return without_nulls(wanted, values)
        if wanted.item is not None and wanted.item.kind == "object":
            return self.list_of_objects(wanted, path)
        if wanted.item is not None:
            found = self.items(wanted, wanted.item)
            return self.noted_list(wanted, found, path)
        value, answer = self.single(wanted, of)
        self.filled.append(Filled(path, value, answer, self.number(wanted), int(value is not None)))
        return value

    def single(self, wanted: FormField, of: str = "") -> tuple[Any, Answer | None]:
        if wanted.kind == "boolean":
            return self.boolean(wanted)
        value, answer = self.best_value(wanted, of)
        if value is None and answer is not None and answer.score >= self.needed:  # sure, but without a value
            self.ask_all(self.asked(wanted, of), MOST_ITEMS)
            value, answer = self.best_value(wanted, of)
        return value, answer

    def best_value(self, wanted: FormField, of: str) -> tuple[Any, Answer | None]:
        """The value in the likeliest answer that has one, and where it stands; without one, the likeliest answer."""
        doubtful: Answer | None = None
        for score, question, answer in self.candidates(self.asked(wanted, of)):
            if score < self.needed:
                doubtful = doubtful or replace(answer, sure=False)
                break
            for value, evidence in self.read(wanted, question, answer, of):
                if self.schema.allows(wanted, value):
                    return value, evidence
            doubtful = doubtful or replace(answer, sure=False)
        return None, doubtful

    def asked(self, wanted: FormField, of: str = "", top: int = 1) -> list[str]:
        """The wordings of a field that were asked for `top` answers, at least one."""
        questions = questions_of(wanted, of)
        if not any(self.tops.get(question, 0) >= top for question in questions):
            self.ask_all(questions, top)
        return [question for question in questions if question in self.replies]

    def candidates(self, questions: Sequence[str]) -> list[tuple[float, str, Answer]]:
        """The best answer of each wording, then their second ones; the likeliest first."""
        found = [
            (answer.score, question, answer)
            for question in questions
            for answer in self.replies[question].all_answers[:2]
        ]
        return sorted(found, key=lambda one: -one[0])

    def read(self, wanted: FormField, question: str, answer: Answer, of: str = "") -> Iterator[tuple[Any, Answer]]:
        """The values in an answer, the likeliest first. Of several in one clause, the one that answers the plain
        question best."""
        kind = wanted.kind
        text, at = answer.text, answer.start
        sentence = text.endswith(".") and len(text.split()) > NAME
        if kind == "text" and len(text) <= LONG and not sentence:
            yield " ".join(text.split()), answer
            return
        values = values_in(kind, text, wanted.choices)
        if kind == "date" and is_about(wanted, "Expiration Date"):
            around = self.document.sentence_around(answer.start, answer.end)
            for first, last in ((answer.start, answer.end), around):
                if (end := end_of_term(self.document.text[first:last], self.beginning)) is not None:
                    yield end.value, answer
                    return
        if not values and kind != "text":  # the span may hold half of an expression
            first, last = self.document.sentence_around(answer.start, answer.end)
            text, at = self.document.text[first:last], first
            values = values_in(kind, text, wanted.choices)
        if len(values) > 1 or kind == "text":
            narrow = best_span_in(self.document, self.model, plain_question(wanted, of), text)
            if kind == "text":
                values = [ReadValue(" ".join(text[slice(*narrow)].split()), *narrow)] if narrow else values
            elif narrow is not None:
                values = sorted(values, key=lambda one: distance((one.start, one.end), narrow))
        for one in values:
            evidence = answer_at(self.document.content, at + one.start, at + one.end, answer.score)
            yield one.value, evidence if kind != "text" else answer

    def beginning(self) -> str | None:
        """The day on which the agreement takes effect, or was made."""
        if self.begins is None:
            days = [FormField(name, "date", {"type": "string", "format": "date"}) for name in BEGINNINGS]
            self.ask_all([questions_of(day)[0] for day in days])
            found = (self.single(day)[0] for day in days)
            self.begins = next((day for day in found if day is not None), "")
        return self.begins or None

    def boolean(self, wanted: FormField) -> tuple[bool | None, Answer | None]:
        """By a verdict on its description if the model judges statements; else by whether the clause is there."""
        if clause_question(wanted) is not None:
            settings = self.document.asker(self.model).qa.settings
            best = next((answer for _, _, answer in self.candidates(self.asked(wanted))), None)
            if best is None or best.score < settings.doubt:  # every wording is sure that the clause is not there
                return False, None
            return (True, best) if best.score >= self.needed else (None, replace(best, sure=False))
        said = wanted.description.strip()
        if said and not said.endswith("?"):
            verdict = verify_document(self.document, said, self.model)[0]
            if verdict.verdict in (SUPPORTED, CONTRADICTED):
                return verdict.verdict == SUPPORTED, verdict.passage
            if verdict.judged:
                return None, None
        for score, _, answer in self.candidates(self.asked(wanted)):
            return (True, answer) if score >= self.needed else (None, replace(answer, sure=False))
        return None, None

    def items(self, wanted: FormField, item: FormField) -> list[tuple[Any, Answer]]:
        """The values of a list: those of the wording whose best answer is the likeliest, without repetitions."""
        best = max(self.asked(wanted, top=MOST_ITEMS), key=self.best_score)
        answers = self.replies[best].all_answers
        if not answers or answers[0].score < self.needed:
            return []
        found: list[tuple[Any, Answer]] = []
        likely = [one for one in merge_overlaps(answers) if one.score >= FURTHER]
        if item.kind == "text" and is_about(wanted, "Parties"):
            parties = ((on_one_line(one.text), one) for one in parties_in(self.document.content, likely))
            found, likely = [one for one in parties if self.schema.allows(item, one[0])], []
        for answer in likely:
            if item.kind == "text":
                read = self.names(answer)
            elif item.kind == "boolean":
                raise UsageError(f"{self.schema.source}: {wanted.path} is a list of booleans, which a form cannot fill")
            else:
                read = self.read(item, best, answer)
            for value, evidence in read:
                if not said_before(value, [one for one, _ in found]) and self.schema.allows(item, value):
                    found.append((value, evidence))
        most = wanted.schema.get("maxItems", MOST_ITEMS)
        kept = found[:most]
        return kept if self.schema.allows(wanted, [value for value, _ in kept]) else []

    def names(self, answer: Answer) -> Iterator[tuple[str, Answer]]:
        """The names in an answer, or else all its words."""
        found = names_in(answer.text) or [ReadValue(on_one_line(answer.text), 0, len(answer.text))]
        for one in found:
            at = answer.start + one.start, answer.start + one.end
            yield one.value, answer if len(found) == 1 else answer_at(self.document.content, *at, answer.score)

    def noted_list(self, wanted: FormField, found: list[tuple[Any, Answer]], path: str) -> list[Any] | None:
        number = self.number(wanted)
        if not found:
            self.filled.append(Filled(path, None, None, number))
            return None
        for rank, (value, answer) in enumerate(found, 1):
            self.filled.append(Filled(f"{path}[{rank - 1}]", value, answer, number, rank))
        return [value for value, _ in found]

    def list_of_objects(self, wanted: FormField, path: str) -> list[Any] | None:
        """Its first text field names the items; the others are asked of each."""
        assert wanted.item is not None
        head = next((one for one in wanted.item.fields if one.kind == "text"), None)
        if head is None:
            raise UsageError(f"{self.schema.source}: {wanted.path} is a list of objects without a text field")
        asked = replace(wanted, item=head, schema={}, description=wanted.description)
        found = self.items(asked, head)
        values = []
        for rank, (name, answer) in enumerate(found, 1):
            self.filled.append(Filled(f"{path}[{rank - 1}].{head.name}", name, answer, self.number(head), rank))
            rest = {
                inner.name: self.value(inner, f"{path}[{rank - 1}].{inner.name}", str(name))
                for inner in wanted.item.fields
                if inner is not head
            }
            values.append(without_nulls(wanted.item, {head.name: name, **rest}))
        if not values:
            self.filled += [Filled(path, None, None, self.number(leaf)) for leaf in wanted.item.leaves()]
        return values or None


def shown_value(value: Any) -> str:
    """A value for people: 5 USD, 2024-02-12, true."""
    parts = value.values() if isinstance(value, dict) else [value]
    return " ".join(part if isinstance(part, str) else json.dumps(part) for part in parts if part is not None)


def said_before(value: Any, values: Sequence[Any]) -> bool:
    """Whether a list has a value already; of text, also whether its words all stand in other items: "Acme and Beta"."""
    if not isinstance(value, str):
        return value in values
    known = {word for one in values for word in str(one).lower().replace(",", " ").split()}
    return set(value.lower().replace(",", " ").split()) - {"and", "or", "the"} <= known


def distance(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Characters between two spans; 0 if they overlap."""
    return max(0, one[0] - other[1], other[0] - one[1])


def best_span_in(document: Askable, model: str | None, question: str, passage: str) -> tuple[int, int] | None:
    """The span of a short passage that answers a question best, however unlikely."""
    import torch

    from vcc.data.features import tokenize_text
    from vcc.qa.windows import ChosenPassage, room

    qa = document.asker(model).qa
    asked, tokens = qa.ids_of(question), tokenize_text(passage, qa.tokenizer)
    size = min(room(asked, qa.frame, qa.config.window), len(tokens.ids))
    if not size:
        return None
    with torch.inference_mode():
        found = qa.windows.look(tokens.ids, [asked], [ChosenPassage(0, 0, size)], 1)[0]
    return (int(tokens.offsets[found[0].first, 0]), int(tokens.offsets[found[0].last, 1])) if found else None


def without_nulls(wanted: FormField, values: Mapping[str, Any]) -> dict[str, Any]:
    """An object without the fields that were not found, except where the schema allows null."""
    allowed = {inner.name: inner.nullable for inner in wanted.fields}
    return {name: value for name, value in values.items() if value is not None or allowed.get(name)}


def checked(schema: FormSchema, values: dict[str, Any], fields: Sequence[Filled]) -> Form:
    """The form, after values that make the whole invalid are withdrawn."""
    for _ in range(REPAIRS):
        errors = [error for error in schema.validator.iter_errors(values) if error.validator != "required"]
        if not errors:
            missing = (
                f"{'.'.join(map(str, (*error.absolute_path, name)))}"
                for error in schema.validator.iter_errors(values)
                for name in error.validator_value
                if name not in error.instance
            )
            return Form(schema, values, tuple(fields), tuple(dict.fromkeys(missing)))
        path = list(errors[0].absolute_path)
        if not path:
            break
        withdraw(values, path)
        shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
        fields = [replace(one, value=None, rank=0) if one.path.startswith(shown) else one for one in fields]
    raise UsageError(f"{schema.source} contradicts itself: {errors[0].message[:200]}")


def withdraw(values: Any, path: Sequence[str | int]) -> None:
    """Remove a value, with the list that holds it: what is left of a list may be too short."""
    for step in path[:-1]:
        if isinstance(values[step], list):
            break
        values = values[step]
    else:
        step = path[-1]
    del values[step]
