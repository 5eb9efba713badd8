"""A command line from a typed function: its signature gives the options, its docstring the help.

A parameter without a default is positional; a tuple then takes any number of words. A parameter whose type is a
dataclass gives one option per field. A parameter whose annotation carries a registry (name -> constructor) takes one of
its names, first on the line, and adds what the constructed value lists as its `options`, as `--task-seed` where the
recipe has a `--seed` of its own.
`Annotated[type, "help"]` says what an option is for. Unknown options are errors.
"""

import argparse
import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

MISSING = inspect.Parameter.empty


def call(function: Callable[..., Any], arguments: Sequence[str], program: str) -> Any:
    """Parse `arguments` by the signature of `function` and call it."""
    summary = inspect.getdoc(function) or ""
    parser = argparse.ArgumentParser(
        program, description=summary, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parameters = {
        name: (*_split(hint), inspect.signature(function).parameters[name].default)
        for name, hint in get_type_hints(function, include_extras=True).items()
        if name != "return"
    }
    builders: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {}  # parameter -> constructor, field -> option
    chosen: dict[str, tuple[Mapping[str, Any], str]] = {}
    for name, (kind, notes, default) in parameters.items():
        registry = next((note for note in notes if isinstance(note, Mapping)), None)
        if registry is not None:
            names = ", ".join(registry)
            parser.add_argument(name, choices=registry, metavar=name.upper(), help=f"{_help(notes)}: {names}")
            if arguments and arguments[0] in registry:
                chosen[name] = registry, arguments[0]
        elif dataclasses.is_dataclass(kind):
            builders[name] = kind, _add_fields(parser, kind)  # type: ignore[assignment,arg-type]
        else:
            _add(parser, name, kind, default, _help(notes))
    for name, (registry, choice) in chosen.items():
        builders[name] = registry[choice], _add_options(parser, name, registry[choice](), choice)
    needed = [action for action in parser._actions if action.required]
    shown = [f"{a.option_strings[0]} {a.metavar}" if a.option_strings else str(a.metavar) for a in needed]
    parser.usage = " ".join([program, *sorted(shown, key=lambda text: text.startswith("--")), "[options]"])
    values = vars(parser.parse_args(arguments))
    keywords = {}
    for name in parameters:
        if name not in builders:
            keywords[name] = values[name]
            continue
        build, names_of = builders[name]
        try:
            keywords[name] = build(**{key: values[option] for key, option in names_of.items()})
        except ValueError as error:  # they check themselves
            parser.error(str(error))
    return function(**keywords)


def _add_options(parser: argparse.ArgumentParser, parameter: str, made: Any, choice: str) -> dict[str, str]:
    """The options of a constructed value, its own values as defaults; field -> option."""
    taken = {action.dest for action in parser._actions}
    names = {name: f"{parameter}_{name}" if name in taken else name for name in made.options}
    hints = get_type_hints(type(made), include_extras=True)
    section = parser.add_argument_group(f"options of {choice}", (inspect.getdoc(type(made)) or "").partition("\n\n")[0])
    for name, option in names.items():
        kind, notes = _split(hints[name])
        _add(section, option, kind, getattr(made, name), _help(notes), positional=False)
    return names


def _add_fields(parser: argparse.ArgumentParser, group: type) -> dict[str, str]:
    """One option per field of a dataclass; field -> option."""
    hints = get_type_hints(group, include_extras=True)
    title, _, rest = (inspect.getdoc(group) or group.__name__).partition(".")
    section = parser.add_argument_group(title.lower(), rest.strip())
    for field in dataclasses.fields(group):
        kind, notes = _split(hints[field.name])
        default = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory
            default = made() if made is not dataclasses.MISSING else MISSING
        _add(section, field.name, kind, default, _help(notes), positional=False)
    return {field.name: field.name for field in dataclasses.fields(group)}


def _add(parser: Any, name: str, kind: Any, default: Any, text: str, positional: bool = True) -> None:
    read, shown = _reader(kind)
    text = text.replace("%", "%%")
    if default is MISSING and positional:
        several: dict[str, Any] = {}
        if get_origin(_plain(kind)) is tuple:  # the words of the line as they are; a comma may stand inside one
            read, several = _reader(get_args(_plain(kind))[0])[0], {"nargs": "*"}
        parser.add_argument(name, type=read, metavar=name.upper(), help=text, **several)
        return
    if default is not MISSING and default not in (None, ()):
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
    if kind in (int, float, str, Path):
        return kind, {int: "N", float: "X", str: "TEXT", Path: "PATH"}[kind]
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


def _read_bool(text: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise argparse.ArgumentTypeError(f"{text!r} must be true or false")
    return words[text.lower()]


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
