"""The frame of our HTML pages: one file, no network, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from string import Template

from vcc.documents.text import Document

STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #fff; --ink: #1d2129; --soft: #6a7280; --line: #e5e2da;
  --heat: 245 158 11; --lit: #ffe39b; --lit-ink: #3b2a00; --link: #92580a; --good: #2f8f5b; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171c; --card: #1c1f26; --ink: #e9e6df; --soft: #939aa6;
  --line: #2d313a; --heat: 251 191 36; --lit: #6b4e0a; --lit-ink: #ffedbf; --link: #f5c04f; --good: #57c98a; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", "Liberation Sans", sans-serif; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
h1 { font-size: 1.35rem; line-height: 1.25; margin: 0; } h2 { font-size: .8rem; letter-spacing: .06em; margin: 0;
  text-transform: uppercase; color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; color: var(--soft); font-size: .85rem; margin: .35rem 0 0; }
.facts b { color: var(--ink); font-weight: 600; }
.note { color: var(--link); font-size: .85rem; margin: .2rem 0 0; }
.text { font: 16.5px/1.7 Charter, "Iowan Old Style", Georgia, "Liberation Serif", "DejaVu Serif", serif;
  overflow-wrap: anywhere; }
.block { white-space: pre-wrap; margin: 0 0 1.7em; content-visibility: auto; contain-intrinsic-size: auto 14em; }
.part { font: 600 .75rem system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; color: var(--soft);
  letter-spacing: .05em; border-top: 1px solid var(--line); padding-top: .6rem; margin: 2.4rem 0 1rem; }
"""

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="vcc">
<title>$title</title>
<style>$style</style>
</head>
<body>
$body
$script
</body>
</html>
""")


def page(title: str, style: str, body: str, script: str = "") -> str:
    """A complete HTML page; `title` is plain text, the rest is HTML."""
    code = f"<script>{script}</script>" if script else ""
    return PAGE.substitute(title=escape(title), style=STYLE + style, body=body, script=code)


def facts_html(document: Document, facts: Mapping[str, str]) -> str:
    shown = "".join(f"<span>{escape(name)} <b>{escape(value)}</b></span>" for name, value in facts.items())
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in document.notes)
    return f'<p class="facts"><span>{escape(document.source)}</span>{shown}</p>{notes}'


def blocks(document: Document, size: int) -> Iterator[tuple[str, int, int]]:
    """(label, start, end) of consecutive stretches of about `size` characters that cover the text.

    They end at blank lines, so that a browser can lay each out alone; the label stands at the first of its part.
    """
    for part in document.parts:
        label, start = part.label, part.start
        while start < part.end:
            stop = document.text.find("\n\n", min(start + size, part.end), part.end)
            stop = part.end if stop < 0 else stop + 2
            yield label, start, stop
            label, start = "", stop


def cuts(start: int, end: int, edges: Iterable[int]) -> list[tuple[int, int]]:
    """start..end cut at every edge inside it."""
    inner = sorted({edge for edge in edges if start < edge < end})
    return list(zip([start, *inner], [*inner, end], strict=True))
