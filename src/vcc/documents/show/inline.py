"""Answers and heat maps as small pieces of HTML, which notebooks show by themselves."""

from collections.abc import Iterable
from html import escape
from typing import Any

CELLS = 120  # of a strip


def answer_html(answer: Any) -> str:
    """An `Answer` inside its sentence, with its score and place."""
    words = " ".join(answer.text.split())
    before, found, after = answer.sentence.partition(words)
    marked = f"<mark>{escape(words)}</mark>"
    sentence = f"{escape(before)}{marked}{escape(after)}" if found else marked
    doubt = "" if answer.sure else " · doubtful"
    return f"<p>{sentence}<br><small>{answer.score:.2f} · {escape(answer.place)}{doubt}</small></p>"


def answers_html(heading: str, answers: Iterable[Any], between: str = "") -> str:
    """Answers under a heading; `between` is HTML."""
    shown = "".join(map(answer_html, answers)) or "<p><em>no answer found</em></p>"
    return f"<div><strong>{escape(heading)}</strong>{between}{shown}</div>"


def strips_html(strips: Iterable[tuple[str, int, Iterable[float]]]) -> str:
    """A row for each layer, with the rows it saw and a strip of cells from 0 to 1: dark where it read closely."""
    rows = "".join(
        f"<tr><th>{escape(layer)}</th><td>{strip_svg(cells)}</td><td>{seen:,} rows</td></tr>"
        for layer, seen, cells in strips
    )
    return f"<table>{rows}</table>"


def strip_svg(cells: Iterable[float]) -> str:
    drawn = [
        f'<rect x="{number}" width="1" height="10" fill="#c33" fill-opacity="{value:.2f}"/>'
        for number, value in enumerate(cells)
    ]
    size = f'width="480" height="12" viewBox="0 0 {len(drawn)} 10" preserveAspectRatio="none"'
    return f"<svg {size}>{''.join(drawn)}</svg>"
