"""Read questions from YAML or CSV. An entry has a question, and optionally a name and a group."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vcc.documents.formats.encoding import decode
from vcc.documents.formats.gate import open_file
from vcc.documents.review_table import Question
from vcc.errors import UsageError
from vcc.qa.clauses import CLAUSES

CLAUSE_QUESTIONS = tuple(Question(clause.question, clause.name, clause.group) for clause in CLAUSES)
FIELDS = ("question", "name", "group")
SHAPES = (
    "a list of questions; a list of entries with question, name and group; or names with their questions "
    "(Governing law: Which law governs this agreement?)"
)


def read_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a .yaml or .yml file, or of a .csv file with the columns question, name and group, in order."""
    readers = {".yaml": from_yaml, ".yml": from_yaml, ".csv": from_csv}
    if path.suffix.lower() not in readers:
        raise UsageError(f"{path}: a list of questions must be .yaml or .csv")
    return parse_questions(decode(open_file(path)), path.suffix, str(path))


def parse_questions(text: str, suffix: str, source: str) -> tuple[Question, ...]:
    """The questions in the text of a file with this suffix; `source` is its name in messages."""
    read = from_csv if suffix.lower() == ".csv" else from_yaml
    questions = tuple(read(text.removeprefix("\ufeff"), source))
    if not questions:
        raise UsageError(f"{source} has no questions: it must be {SHAPES}")
    seen: set[str] = set()
    for question in questions:
        if not question.question.strip():
            raise UsageError(f"{source}: the question {question.name!r} has no words")
        if question.heading in seen:
            raise UsageError(f"{source}: {question.heading!r} occurs twice: each question needs its own name")
        seen.add(question.heading)
    return questions


def from_yaml(text: str, source: str) -> Iterator[Question]:
    import yaml

    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from error
    if isinstance(values, Mapping):
        values = [{"name": name, "question": question} for name, question in values.items()]
    if not isinstance(values, list):
        raise UsageError(f"{source} must be {SHAPES}, not {type(values).__name__}")
    for number, value in enumerate(values, 1):
        yield entry({"question": value} if isinstance(value, str) else value, f"{source}, entry {number}")


def from_csv(text: str, source: str) -> Iterator[Question]:
    try:
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if "question" not in (rows.fieldnames or ()):
            raise UsageError(f"{source}: the columns are {rows.fieldnames}: question must be one of them")
        for row in rows:
            values = {name: value for name, value in row.items() if name in FIELDS and value}
            yield entry({"question": "", **values}, f"{source}, line {rows.line_num}")
    except csv.Error as error:
        raise UsageError(f"{source} is not valid CSV: {error}") from error


def entry(values: Any, where: str) -> Question:
    if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
        raise UsageError(f"{where}: {values!r} must be a question, or question, name and group, all strings")
    unknown = [str(name) for name in values if name not in FIELDS]
    if unknown or "question" not in values:
        raise UsageError(f"{where}: {', '.join(unknown) or 'no question'}; an entry has question, name and group")
    return Question(**{name: " ".join(values[name].split()) for name in FIELDS if name in values})
