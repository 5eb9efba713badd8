"""A command line from a typed function: its signature gives the options, its docstring the help.

- A parameter without a default is positional; a tuple takes any number of words.
- A parameter whose type is a dataclass gives one option per field.
- `Annotated[dict[str, Any], Settings]`, where Settings is a dataclass, gives one option per field of Settings; the dict
  holds those that were given. It may be a parameter, a field of such a dataclass, or `**given`, then annotated with
  `Annotated[Any, Settings]`.
- A parameter annotated with a registry (name -> constructor) takes one of its names, first on the line. It adds the
  `options` of the constructed value, such as `--task-seed` if the recipe already has a `--seed`.

`Annotated[type, "help"]` is the help text of a parameter or field. Unknown options are errors.
"""

import argparse
import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from vcc.errors import UsageError
from vcc.printable import printable

MISSING = inspect.Parameter.empty
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
Take = Callable[[dict[str, Any]], Any]  # from all parsed values, the value of one parameter


def call(function: Callable[..., Any], arguments: Sequence[str], program: str) -> Any:
    """Parse `arguments` by the signature of `function` and call it."""
    parser = Parser(
        program,
        description=inspect.getdoc(function) or "",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    signature = inspect.signature(function).parameters
    takes: dict[str, Take] = {}
    registries: dict[str, Mapping[str, Any]] = {}
    for name, hint in get_type_hints(function, include_extras=True).items():
        kind, notes = _split(hint)
        registry = next((note for note in notes if isinstance(note, Mapping)), None)
        if name == "return":
            continue
        if registry is not None:
            registries[name] = registry
            names = ", ".join(registry)
            parser.add_argument(name, choices=registry, metavar=name.upper(), help=f"{_help(notes)}: {names}")
        elif settings := _overridden(notes):
            takes[name] = _add_overrides(_section(parser, settings), settings)
        elif dataclasses.is_dataclass(kind):
            takes[name] = _add_fields(_section(parser, kind), kind)
        else:
            _add(parser, name, kind, signature[name].default, _help(notes))
            takes[name] = itemgetter(name)
    for name, registry in registries.items():
        if arguments and arguments[0] in registry:
            takes[name] = _add_options(parser, name, registry, arguments[0])
    needed = [action for action in parser._actions if action.required]
    shown = [f"{a.option_strings[0]} {a.metavar}" if a.option_strings else str(a.metavar) for a in needed]
    parser.usage = " ".join([program, *sorted(shown, key=lambda text: text.startswith("--")), "[options]"])
    # Words of a tuple may stand on both sides of an option: vcc ask FILE --top 1 "Q".
    words = any(action.nargs == "*" for action in parser._actions)
    values = vars((parser.parse_intermixed_args if words else parser.parse_args)(_with_values(parser, arguments)))
    if late := registries.keys() - takes.keys():
        parser.error(f"{', '.join(late).upper()} must come first, before the options")
    try:
        keywords = {name: take(values) for name, take in takes.items()}
    except UsageError as error:  # dataclasses check themselves
        parser.error(str(error))
    for name in [name for name in keywords if signature[name].kind is inspect.Parameter.VAR_KEYWORD]:
        keywords |= keywords.pop(name)
    return function(**keywords)


def _with_values(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """The arguments with the value of each flag. In `vcc ask FILE --json "Q"` the last word is a question."""
    if all(action.option_strings or action.choices for action in parser._actions):
        return list(arguments)  # no free words: what follows a flag is its value, perhaps a wrong one
    flags = {option for action in parser._actions if action.const is True for option in action.option_strings}
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    following = [*arguments[1:], ""]
    return [
        f"{word}=true" if place < end and word in flags and following[place].lower() not in BOOLEANS else word
        for place, word in enumerate(arguments)
    ]


class Parser(argparse.ArgumentParser):
    """A parser whose error messages contain no control characters."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def at_least(least: int, **given: float | None) -> None:
    """Raise for numbers below `least`, with the names of their options; None means not given."""
    for name, value in given.items():
        if value is not None and not value >= least:
            raise UsageError(f"--{name.replace('_', '-')} is {value}: it must be at least {least}")


def _section(parser: argparse.ArgumentParser, kind: Any) -> Any:
    """The help section of a dataclass, headed by its docstring's first sentence."""
    title, _, rest = (inspect.getdoc(kind) or kind.__name__).partition(".")
    return parser.add_argument_group(title.lower(), rest.strip())


def _add_fields(section: Any, kind: Any) -> Take:
    """One option per field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    takes: dict[str, Take] = {}
    for field in dataclasses.fields(kind):
        type_, notes = _split(hints[field.name])
        if settings := _overridden(notes):
            takes[field.name] = _add_overrides(section, settings)
            continue
        default = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory
            default = made() if made is not dataclasses.MISSING else MISSING
        _add(section, field.name, type_, default, _help(notes), positional=False)
        takes[field.name] = itemgetter(field.name)
    return lambda values: kind(**{name: take(values) for name, take in takes.items()})


def _add_overrides(section: Any, kind: Any) -> Take:
    """One option per field of a dataclass, without defaults; a dict of those that were given."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind)]
    for name in names:
        type_, notes = _split(hints[name])
        _add(section, name, type_, None, _help(notes))
    return lambda values: {name: values[name] for name in names if values[name] is not None}


def _add_options(parser: argparse.ArgumentParser, parameter: str, registry: Mapping[str, Any], choice: str) -> Take:
    """The options of the value that the registry makes, with its own values as defaults."""
    made = registry[choice]()
    taken = {action.dest for action in parser._actions}
    names = {name: f"{parameter}_{name}" if name in taken else name for name in made.options}
    hints = get_type_hints(type(made), include_extras=True)
    section = parser.add_argument_group(f"options of {choice}", (inspect.getdoc(type(made)) or "").partition("\n\n")[0])
    for name, option in names.items():
        kind, notes = _split(hints[name])
        _add(section, option, kind, getattr(made, name), _help(notes), positional=False)
    return lambda values: registry[choice](**{name: values[option] for name, option in names.items()})


def _add(parser: Any, name: str, kind: Any, default: Any, text: str, positional: bool = True) -> None:
    read, shown = _reader(kind)
    text = text.replace("%", "%%")
    if default is MISSING and positional:
        several: dict[str, Any] = {}
        if get_origin(_plain(kind)) is tuple:  # words are taken as they are: they may contain commas
            read, several = _reader(get_args(_plain(kind))[0])[0], {"nargs": "*"}
        parser.add_argument(name, type=read, metavar=name.upper(), help=text, **several)
        return
    if default is not MISSING and default not in (None, (), ""):
        text = f"{text} (default: {_shown(default)})".lstrip()
    extra: dict[str, Any] = {"nargs": "?", "const": True} if _plain(kind) is bool else {}
    required = default is MISSING
    option = "--" + name.replace("_", "-")
    parser.add_argument(
        option,
        dest=name,
        type=read,
        default=None if required else default,
        required=required,
        metavar=shown,
        help=text,
        **extra,
    )


def _split(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(annotation) is Annotated:
        kind, *notes = get_args(annotation)
        return kind, tuple(notes)
    return annotation, ()


def _overridden(notes: tuple[Any, ...]) -> Any:
    """The dataclass whose fields are options, if the annotation carries one."""
    return next((note for note in notes if dataclasses.is_dataclass(note)), None)


def _help(notes: tuple[Any, ...]) -> str:
    return " ".join(note for note in notes if isinstance(note, str))


def _plain(kind: Any) -> Any:
    """`X | None` -> X."""
    if get_origin(kind) in (Union, types.UnionType):
        rest = [part for part in get_args(kind) if part is not type(None)]
        return rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007
    return kind


def _reader(kind: Any) -> tuple[Callable[[str], Any], str]:
    """How to read a value of this type from text, and how to show the type."""
    kind = _plain(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is bool:
        return _read_bool, "true|false"
    if kind is float:
        return _read_finite, "X"
    if kind is int:
        return _read_whole, "N"
    if kind in (str, Path):
        return kind, {str: "TEXT", Path: "PATH"}[kind]
    if origin is Literal:
        return _read_literal(arguments), "|".join(str(value) for value in arguments)
    if origin is Union:
        readers = [_reader(part) for part in arguments]
        return _read_first([read for read, _ in readers]), "|".join(shown for _, shown in readers)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        read, shown = _reader(arguments[0])

        def read_tuple(text: str) -> tuple[Any, ...]:
            return tuple(read(part) for part in text.split(",") if part)

        read_tuple.__name__ = f"list such as {shown},{shown}"
        return read_tuple, f"{shown},..."
    raise TypeError(f"an option of type {kind} is not supported")


def _read_whole(text: str) -> int:
    value = int(text)
    if not -(2**63) < value < 2**63:  # the range of int64
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is too large: it must be less than 2^63")
    return value


_read_whole.__name__ = "int"  # the type's name in the parser's errors


def _read_finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} must be a finite number")
    return value


def _read_bool(text: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} must be true or false")
    return BOOLEANS[text.lower()]


def _read_literal(values: tuple[Any, ...]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        for value in values:
            if str(value) == text:
                return value
        raise argparse.ArgumentTypeError(f"{text!r} must be one of {', '.join(map(str, values))}")

    return read


def _read_first(readers: list[Callable[[str], Any]]) -> Callable[[str], Any]:
    """The first reader that accepts the text."""

    def read(text: str) -> Any:
        for attempt in readers:
            try:
                return attempt(text)
            except (ValueError, argparse.ArgumentTypeError):
                continue
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read")

    return read


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
