"""A JSON Schema, or a Pydantic class, as the fields of a form.

A schema may come from a stranger: its size, depth and number of fields are limited, no reference leaves it or leads
back to itself, and a regular expression in it has a deadline.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vcc.documents.extract.values import package
from vcc.documents.formats.encoding import decode
from vcc.documents.formats.gate import open_file
from vcc.errors import UsageError

MOST_FIELDS, DEEPEST, LARGEST = 100, 8, 200_000  # LARGEST: characters of the schema as JSON
PATTERN_SECONDS = 0.05
SIMPLE = ("string", "number", "integer", "boolean")
FORMATS = {"date": "date", "duration": "duration"}
NOT_READ = ("date-time", "time")
UNREAD = ("oneOf", "not", "if", "dependentSchemas", "patternProperties", "prefixItems", "contains", "$dynamicRef")
RANGES = (
    *(("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")),
    *(("minProperties", "maxProperties"), ("exclusiveMinimum", "maximum"), ("minimum", "exclusiveMaximum")),
)


@dataclass(frozen=True)
class FormField:
    """A place in a form. `kind`: text, date, duration, sum, number, boolean, choice, object or list."""

    name: str
    kind: str
    schema: Mapping[str, Any]  # of its value, references resolved
    path: str = ""  # for people: parties[].name
    title: str = ""
    description: str = ""
    nullable: bool = False
    required: bool = False
    choices: tuple[Any, ...] = ()
    fields: "tuple[FormField, ...]" = ()  # of an object
    item: "FormField | None" = None  # of a list

    @property
    def label(self) -> str:
        """Its name as words: governingLaw and governing_law are "governing law"."""
        words = "".join(
            f" {letter}" if before.islower() and letter.isupper() else letter
            for before, letter in zip(" " + self.name, self.name, strict=False)
        )
        words = " ".join(words.replace("_", " ").replace("-", " ").split())
        return words if words.isupper() else words.lower()

    def leaves(self) -> "Iterator[FormField]":
        """The fields that are asked for: neither objects nor lists of objects."""
        if self.kind == "object":
            for field in self.fields:
                yield from field.leaves()
        elif self.item is not None and self.item.kind == "object":
            yield from self.item.leaves()
        else:
            yield self


@dataclass(frozen=True)
class FormSchema:
    """A schema that can be filled."""

    schema: dict[str, Any]
    root: FormField
    source: str = "the schema"

    def as_json(self) -> str:
        """The schema as text, which `form_schema` reads back in another process."""
        return json.dumps(self.schema)

    @property
    def leaves(self) -> tuple[FormField, ...]:
        return tuple(self.root.leaves())

    @cached_property
    def validator(self) -> Any:
        return validator_of(self.schema)

    def allows(self, field: FormField, value: Any) -> bool:
        """Whether a value is valid for a field."""
        return bool(self.validator.evolve(schema=field.schema).is_valid(value))


def form_schema(given: Any, source: str = "the schema") -> FormSchema:
    """The fields of a JSON Schema, as a mapping or in a .json file, or of a Pydantic class."""
    if isinstance(given, FormSchema):
        return given
    if isinstance(given, (str, Path)):
        source, given = str(given), load_json(Path(given))
    elif hasattr(given, "model_json_schema"):
        source, given = getattr(given, "__name__", source), given.model_json_schema()
    if not isinstance(given, Mapping):
        raise UsageError(f"{source} is {type(given).__name__}: it must be a JSON Schema or a Pydantic class")
    schema = checked_schema(given, source)
    root = SchemaReader(schema, source).field("", schema, "", (), True)
    if root.kind != "object":
        raise UsageError(f"{source} is of type {root.kind}: it must be an object with properties")
    return FormSchema(schema, root, source)


def load_json(path: Path) -> Any:
    if path.suffix.lower() != ".json":
        raise UsageError(f"{path} must be a JSON Schema in a .json file")
    try:
        return json.loads(decode(open_file(path)))
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error


def checked_schema(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A copy as plain JSON, after a check of its size and of its grammar."""
    jsonschema = package("jsonschema")
    try:
        text = json.dumps(given)
        if len(text) > LARGEST:
            raise UsageError(f"{source} has {len(text):,} characters: at most {LARGEST:,} are read")
        schema: dict[str, Any] = json.loads(text)
        jsonschema.Draft202012Validator.check_schema(schema)
    except RecursionError as error:
        raise UsageError(f"{source} is nested too deeply") from error
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{source} is not JSON: {error}") from error
    except jsonschema.SchemaError as error:
        place = "/".join(map(str, error.path)) or "its top level"
        raise UsageError(f"{source} is not a valid JSON Schema, at {place}: {error.message[:200]}") from error
    return schema


def validator_of(schema: Mapping[str, Any]) -> Any:
    """A validator that checks formats, and gives a regular expression of the schema little time."""
    jsonschema = package("jsonschema")
    regex = package("regex")

    def matches(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(value, str):
            return
        try:
            if not regex.search(pattern, value, timeout=PATTERN_SECONDS):
                yield jsonschema.ValidationError(f"does not match {pattern!r}")
        except (regex.error, TimeoutError):
            yield jsonschema.ValidationError(f"{pattern!r} cannot be checked")

    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": matches})
    return kind(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


class SchemaReader:
    """Turns a schema into fields, within the limits."""

    def __init__(self, schema: Mapping[str, Any], source: str) -> None:
        self.schema, self.source = schema, source
        self.left = MOST_FIELDS

    def error(self, path: str, rule: str) -> UsageError:
        return UsageError(f"{self.source}: {path or 'the top level'} {rule}")

    def resolved(self, schema: Any, path: str, seen: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """A schema without references at its top, and the references that led to it."""
        if schema is False:
            raise self.error(path, "is false: no value is valid")
        if schema is True:
            schema = {}
        while "$ref" in schema or len(schema.get("allOf", ())) == 1:
            if "$ref" not in schema:
                schema = {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
                continue
            reference = schema["$ref"]
            if not isinstance(reference, str) or not reference.startswith("#"):
                raise self.error(path, f"refers to {str(reference)[:100]!r}: it must stay inside the schema")
            if reference in seen:
                raise self.error(path, f"refers to {reference!r}, which leads back to itself: a form has no recursion")
            seen = (*seen, reference)
            target: Any = self.schema
            for step in filter(None, reference[1:].split("/")):
                step = step.replace("~1", "/").replace("~0", "~")
                if not isinstance(target, Mapping) or step not in target:
                    raise self.error(path, f"refers to {reference!r}, which is not in the schema")
                target = target[step]
            if not isinstance(target, Mapping):
                raise self.error(path, f"refers to {reference!r}, which is no schema")
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        return dict(schema), seen

    def field(
        self, name: str, given: Any, path: str, seen: tuple[str, ...], required: bool, depth: int = 0
    ) -> FormField:
        if depth > DEEPEST:
            raise self.error(path, f"is more than {DEEPEST} levels deep")
        schema, seen = self.resolved(given, path, seen)
        about: dict[str, str] = {
            key: " ".join(str(schema[key]).split()) for key in ("title", "description") if key in schema
        }
        nullable = False
        if "anyOf" in schema:
            options = [option for option in schema["anyOf"] if option != {"type": "null"}]
            nullable = len(options) < len(schema["anyOf"])
            if len(options) != 1:
                raise self.error(
                    path, f"may be one of {len(options)} types (anyOf): one type, with or without null, is read"
                )
            rest = {key: value for key, value in schema.items() if key != "anyOf"}
            schema, seen = self.resolved({**options[0], **rest}, path, seen)
            about = {**about, **{key: str(schema[key]) for key in ("title", "description") if key in schema}}
        for word in (*UNREAD, *(["allOf"] if "allOf" in schema else [])):
            if word in schema:
                raise self.error(path, f"has {word}, which a form cannot fill")
        self.check_ranges(schema, path)
        kind, nullable = self.kind(schema, path, nullable)
        shared: dict[str, Any] = {"path": path, "nullable": nullable, "required": required, **about}
        if kind == "object":
            return self.object(name, schema, path, seen, depth, shared)
        if kind == "list":
            if "items" not in schema or schema["items"] is True:
                schema = {**schema, "items": {"type": "string"}}
            item = self.field(name, schema["items"], f"{path}[]", seen, False, depth + 1)
            if item.kind == "list":
                raise self.error(path, "is a list of lists, which a form cannot fill")
            return FormField(name, "list", schema, item=item, **shared)
        self.left -= 1
        if self.left < 0:
            raise self.error(path, f"is one field too many: a form has at most {MOST_FIELDS}")
        choices = tuple(schema.get("enum", [schema["const"]] if "const" in schema else ()))
        if kind == "choice":
            choices = tuple(choice for choice in choices if choice is not None)
            self.check_choices(schema, choices, path)
        return FormField(name, kind, schema, choices=choices, **shared)

    def kind(self, schema: Mapping[str, Any], path: str, nullable: bool) -> tuple[str, bool]:
        types = schema.get("type")
        if isinstance(types, list):
            nullable = nullable or "null" in types
            types = [one for one in types if one != "null"]
            if len(types) != 1:
                raise self.error(path, f"is of type {types}: one type, or one type and null, is read")
            types = types[0]
        if "enum" in schema or "const" in schema:
            return "choice", nullable or None in schema.get("enum", ())
        if types is None:
            types = "object" if "properties" in schema else "array" if "items" in schema else "string"
        if types == "string":
            name = schema.get("format")
            if name in NOT_READ:
                raise self.error(path, f"has the format {name!r}: only date and duration are read")
            return FORMATS.get(str(name), "text"), nullable
        kinds = {"integer": "number", "number": "number", "boolean": "boolean", "array": "list", "object": "object"}
        if types not in kinds:
            raise self.error(path, f"is of type {types!r}: it must be object, array, {', '.join(SIMPLE)}")
        return kinds[types], nullable

    def object(
        self,
        name: str,
        schema: Mapping[str, Any],
        path: str,
        seen: tuple[str, ...],
        depth: int,
        shared: Mapping[str, Any],
    ) -> FormField:
        properties, needed = schema.get("properties", {}), schema.get("required", ())
        if not properties:
            raise self.error(path, "is an object without properties: there is nothing to fill")
        for missing in needed:
            if missing not in properties:
                raise self.error(path, f"requires {missing!r}, which is not among its properties")
        if set(properties) == {"amount", "currency"}:
            self.left -= 1
            return FormField(name, "sum", schema, **shared)
        fields = tuple(
            self.field(key, value, f"{path}.{key}" if path else key, seen, key in needed, depth + 1)
            for key, value in properties.items()
        )
        return FormField(name, "object", schema, fields=fields, **shared)

    def check_ranges(self, schema: Mapping[str, Any], path: str) -> None:
        for low, high in RANGES:
            if low in schema and high in schema and schema[low] > schema[high]:
                raise self.error(path, f"contradicts itself: {low} is {schema[low]}, {high} is {schema[high]}")

    def check_choices(self, schema: Mapping[str, Any], choices: tuple[Any, ...], path: str) -> None:
        validator = validator_of(self.schema).evolve(schema=schema)
        if not any(validator.is_valid(choice) for choice in choices):
            raise self.error(path, "contradicts itself: none of its choices is valid")
