"""Forms are filled from what was found, stay valid, and hold nothing below the threshold."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from vcc.documents.answer import Reply, answer_at
from vcc.documents.extract import fill as filling
from vcc.documents.extract.fill import fill
from vcc.documents.extract.schema import form_schema
from vcc.documents.text import Text, join_pieces
from vcc.errors import UsageError
from vcc.qa.settings import QaSettings

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("dateparser")
pytest.importorskip("text_to_num")


WORDS = (
    "This lease is made on March 15, 2000 between Acme Corporation and Beta Limited. The rent is $1,250 a month. "
    "The term is three (3) years, and notice of ninety (90) days must be given. The licence is non-exclusive."
)


@dataclass
class Answering:
    """A document that knows its answers: (a word of the question, the span, its score)."""

    knows: tuple[tuple[str, str, float], ...]
    model: None = None

    def __post_init__(self) -> None:
        text, parts = join_pieces([("", WORDS)])
        self.content, self.text = Text(text, "lease", "lease.txt", parts), text
        self.sentence_around = self.content.sentence_around
        self.asked: list[tuple[str, int]] = []

    def ask_all(self, questions: Any, top: int, threshold: float, model: Any) -> list[Reply]:
        self.asked += [(question, top) for question in questions]
        return [Reply(question, tuple(self.answers(question))[:top]) for question in questions]

    def answers(self, question: str) -> Any:
        for word, span, score in self.knows:
            if word in question:
                start = WORDS.index(span)
                yield answer_at(self.content, start, start + len(span), score)

    def asker(self, model: Any) -> Any:
        return SimpleNamespace(qa=SimpleNamespace(settings=QaSettings()))


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's choice between several values of one clause: here, where "ninety" stands."""
    place = lambda document, model, question, text: (text.index("ninety"),) * 2 if "ninety" in text else None
    monkeypatch.setattr(filling, "best_span_in", place)


def form(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def filled(schema: dict[str, Any], *knows: tuple[str, str, float]) -> Any:
    made = fill(Answering(knows), form_schema(schema))  # type: ignore[arg-type]
    wrong = [e for e in jsonschema.Draft202012Validator(schema).iter_errors(made.values) if e.validator != "required"]
    assert not wrong and bool(made.missing) == bool(set(schema["required"]) - set(made.values))
    return made


DATE = {"type": "string", "format": "date"}


def test_a_value_comes_with_the_characters_it_was_read_from() -> None:
    made = filled(form(begin=DATE), ("begin", "This lease is made on March 15, 2000 between", 0.9))
    assert made.values == {"begin": "2000-03-15"}
    (field,) = made.fields
    assert field.answer.text == "March 15, 2000" == WORDS[field.answer.start : field.answer.end]
    assert field.answer.score == 0.9 and field.answer.sure


def test_below_the_threshold_there_is_no_value_but_doubtful_evidence() -> None:
    made = filled(form(("begin",), begin=DATE), ("begin", "March 15, 2000", 0.3))
    assert made.values == {} and made.missing == ("begin",)
    assert made.fields[0].value is None and not made.fields[0].answer.sure


def test_null_is_given_where_the_schema_allows_it() -> None:
    assert filled(form(begin={"type": ["string", "null"], "format": "date"})).values == {"begin": None}


def test_of_several_values_the_one_beside_the_answer_is_taken() -> None:
    clause = "The term is three (3) years, and notice of ninety (90) days must be given."
    made = filled(form(warning={"type": "string", "format": "duration"}), ("warning", clause, 0.9))
    assert made.values == {"warning": "P90D"}


def test_sums_choices_lists_and_nested_objects() -> None:
    schema = form(
        rent={"type": "object", "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}}},
        licence={"enum": ["exclusive", "non-exclusive"]},
        tenants={"type": "array", "items": {"type": "string"}},
        term={"type": "object", "properties": {"length": {"type": "string", "format": "duration"}}},
    )
    made = filled(
        schema,
        ("rent", "$1,250 a month", 0.9),
        ("licence", "The licence is non-exclusive", 0.9),
        ("tenants", "Acme Corporation", 0.9),
        ("tenants", "Beta Limited", 0.4),
        ("length", "three (3) years", 0.9),
    )
    assert made.values == {
        "rent": {"amount": 1250, "currency": "USD"},
        "licence": "non-exclusive",
        "tenants": ["Acme Corporation", "Beta Limited"],
        "term": {"length": "P3Y"},
    }
    assert [one.path for one in made.fields] == ["rent", "licence", "tenants[0]", "tenants[1]", "term.length"]


def test_a_list_of_objects_is_named_by_its_first_text() -> None:
    item = form(name={"type": "string"}, since=DATE)
    made = filled(
        form(tenants={"type": "array", "items": item}),
        ("tenants", "Acme Corporation", 0.9),
        ("since of Acme", "March 15, 2000", 0.8),
    )
    assert made.values == {"tenants": [{"name": "Acme Corporation", "since": "2000-03-15"}]}


def test_a_single_field_is_asked_for_one_answer_and_for_more_only_if_that_one_has_no_value() -> None:
    schema = form_schema(form(begin=DATE))
    readable = Answering((("begin", "March 15, 2000", 0.9),))
    fill(readable, schema)  # type: ignore[arg-type]
    assert {top for _, top in readable.asked} == {1}
    other = Answering((("begin", "The licence is non-exclusive", 0.9), ("begin", "March 15, 2000", 0.8)))
    assert fill(other, schema).values == {"begin": "2000-03-15"}  # type: ignore[arg-type]
    assert max(top for _, top in other.asked) > 1


def test_a_value_outside_its_schema_is_not_given() -> None:
    made = filled(form(rent={"type": "number", "maximum": 1000}), ("rent", "$1,250", 0.9))
    assert made.values == {}


def test_a_clause_that_is_not_there_is_false_and_one_that_is_there_true() -> None:
    schema = form(insurance={"type": "boolean"}, exclusivity={"type": "boolean"})
    made = filled(schema, ("Exclusivity", "The licence is non-exclusive", 0.8))
    assert made.values == {"insurance": False, "exclusivity": True}


def test_rules_between_fields_that_cannot_hold_are_an_error() -> None:
    schema = {**form(begin=DATE), "minProperties": 5}
    with pytest.raises(UsageError, match="contradicts itself"):
        filled(schema, ("begin", "March 15, 2000", 0.9))
