"""HTML as a stream of tags and text, in linear time for any input.

The standard library's parser takes quadratic time on some pages, except in the newest Python releases, and fails on
others. Here a failed search scans the rest of the page once; the rest is then text.
"""

import html
import re
from collections.abc import Iterator
from typing import Literal

Token = tuple[Literal["start", "end", "empty", "text"], str]

NAME = re.compile(r"[a-zA-Z][^\t\n\r\f />]*+")
# To the end of a tag. A quote counts only after "=" and only if it is closed; it may then contain ">".
REST = re.compile(r"""(?:[^=>]++|=[\t\n\r\f ]*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
RAW = {name: re.compile(rf"</{name}(?=[\t\n\r\f />])", re.IGNORECASE) for name in ("script", "style")}
LONG_NUMBER = re.compile(r"&#(?:([0-9]{8,})|[xX]([0-9a-fA-F]{8,}));?")


def html_tokens(page: str) -> Iterator[Token]:
    """Tags by lower-case name; `empty` closes itself. Comments, declarations, scripts and styles are dropped."""
    place = 0
    while (tag := page.find("<", place)) >= 0:
        if tag > place:
            yield "text", unescape(page[place:tag])
        kind, name, place = _tag_at(page, tag)
        if place < 0:  # it never ends: the rest is text
            yield "text", unescape(page[tag:])
            return
        if kind == "text":
            yield "text", name
        elif kind is not None:
            yield kind, name
        if kind == "start" and name in RAW:
            closing = RAW[name].search(page, place)
            place = closing.start() if closing else len(page)
    if place < len(page):
        yield "text", unescape(page[place:])


def _tag_at(page: str, place: int) -> tuple[Literal["start", "end", "empty", "text"] | None, str, int]:
    """What starts at this "<", its name, and its end, or -1 without one."""
    if name := NAME.match(page, place + 1):
        rest = REST.match(page, name.end())
        if rest is None:
            return None, "", -1
        return "empty" if rest.group().endswith("/>") else "start", name.group().lower(), rest.end()
    if page.startswith("</", place):
        end = page.find(">", place) + 1 or -1
        name = NAME.match(page, place + 2)
        return "end" if name else None, name.group().lower() if name else "", end
    if page.startswith("<!--", place):
        end = page.find("-->", place + 2)
        return None, "", end + 3 if end >= 0 else -1
    if page.startswith("<![CDATA[", place):
        end = page.find("]]>", place)
        return None, "", end + 3 if end >= 0 else -1
    if page.startswith(("<!", "<?"), place):
        return None, "", page.find(">", place) + 1 or -1
    return "text", "<", place + 1


def unescape(text: str) -> str:
    """Replace character references; an invalid number becomes U+FFFD."""
    return html.unescape(LONG_NUMBER.sub(_long_number, text))


def _long_number(found: re.Match[str]) -> str:
    digits = (found.group(1) or found.group(2)).lstrip("0")
    return f"&#{'x' if found.group(2) else ''}{digits or '0'};" if len(digits) < 8 else "\ufffd"
