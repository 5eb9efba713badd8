"""The frame of our HTML pages: one file, no network, light and dark.

A page is a Jinja template beside this file that extends `page.html`; style sheets and scripts are inlined.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from vcc.documents.text import BEGINNING, BELOW, Text

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Block:
    """A stretch of the text that a browser lays out separately: characters start..end - 1."""

    start: int
    end: int
    heading: str = ""  # shown above it
    headed: bool = False  # it begins with the heading of its part


def render(template: str, **values: Any) -> str:
    """A complete HTML page. All values are escaped; only our own files are inserted verbatim."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.globals["asset"] = lambda name: Markup(_asset(name))
    return made


def _asset(name: str) -> str:
    """A file beside this one."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def blocks(text: Text, size: int) -> Iterator[Block]:
    """Consecutive stretches of about `size` characters that cover the text; they end at blank lines."""
    for part in text.parts:
        headed = bool(part.label) and text.text.startswith(part.label.split(BELOW)[-1], part.start)
        heading = "" if headed or part.label == BEGINNING else part.label
        start = part.start
        while start < part.end:
            stop = text.text.find("\n\n", min(start + size, part.end), part.end)
            stop = part.end if stop < 0 else stop + 2
            yield Block(start, stop, heading, headed)
            heading, headed, start = "", False, stop


def cuts(start: int, end: int, edges: Iterable[int]) -> list[tuple[int, int]]:
    """start..end split at every edge inside it."""
    inner = sorted({edge for edge in edges if start < edge < end})
    return list(zip([start, *inner], [*inner, end], strict=True))
