"""Replies in the terminal: the sentence around each answer with the answer lit up, its place and its score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vcc.documents.answers import Answer, Reply, excerpt, place_of
from vcc.documents.text import Document

LIT = "bold black on yellow"
NOTHING = Text("no answer found", style="dim italic")


def print_replies(console: Console, document: Document, replies: Iterable[Reply], facts: Mapping[str, str]) -> None:
    """One question after the other, for `vcc ask`."""
    for reply in replies:
        console.print(Text(reply.heading, style="bold cyan"))
        print_answers(console, document, reply)
        console.print()
    print_facts(console, document, facts)


def print_answers(console: Console, document: Document, reply: Reply) -> None:
    for number, answer in enumerate(reply.answers, 1):
        where = (f"  {place_of(document, answer)}", "dim")
        print_indented(console, Text.assemble((f"{number}  ", "dim"), score_text(answer.score), where), 2)
        print_indented(console, lit_text(document, answer, bool(console.color_system)), 5)
    if reply.nearest is not None:
        nearest = f"no sure answer; the nearest, {place_of(document, reply.nearest)}:"
        print_indented(console, Text(nearest, style="dim italic"), 2)
        print_indented(console, lit_text(document, reply.nearest, False), 5)
    elif not reply.answers:
        print_indented(console, NOTHING, 2)


def print_review(console: Console, document: Document, replies: Iterable[Reply], facts: Mapping[str, str]) -> None:
    """A table of the clauses found, group by group, and a list of those that were not, for `vcc review`."""
    replies = list(replies)
    missing = [reply.heading for reply in replies if not reply.answers]
    table = Table(title=document.title, title_style="bold", show_lines=False, expand=True, box=None, padding=(0, 1))
    table.add_column("Clause", style="cyan", ratio=2)
    table.add_column("Found", ratio=7)
    table.add_column("Where", style="dim", ratio=2)
    table.add_column("Score", justify="right", width=7)
    found = (reply for reply in replies if reply.answers)
    for group, members in groupby(found, key=lambda reply: reply.group):
        if group:
            table.add_row()
            table.add_row("", Text(group, style="bold"))
        for reply in members:
            for number, answer in enumerate(reply.answers):
                text, place = Text(excerpt(document, answer, margin=0, longest=300)[1]), place_of(document, answer)
                table.add_row("" if number else reply.heading, text, place, score_text(answer.score))
    console.print(table)
    console.print()
    if missing:
        console.print(Text(f"not found ({len(missing)}): {', '.join(missing)}", style="dim"))
    print_facts(console, document, facts)


def print_facts(console: Console, document: Document, facts: Mapping[str, str]) -> None:
    """How the document was read: nothing is cut in silence."""
    if facts:
        console.print(Text(" · ".join(f"{name} {value}" for name, value in facts.items()), style="dim"))
    for note in document.notes:
        console.print(Text(f"note: {note}", style="yellow"))


def score_text(score: float) -> Text:
    """A score between 0 and 1 as a number, greener when surer."""
    style = "green" if score >= 0.5 else "yellow" if score >= 0.1 else "red"
    return Text(f"{score:.2f}", style=style)


def print_indented(console: Console, text: Text, blanks: int) -> None:
    """Wrapped, without blanks at the ends of lines, which would be copied along."""
    for line in text.wrap(console, max(console.width - blanks, 1)):
        line.rstrip()
        console.print(Text(" " * blanks).append_text(line))


def lit_text(document: Document, answer: Answer, colours: bool) -> Text:
    before, inside, after = excerpt(document, answer)
    return Text.assemble(before, (inside, LIT) if colours else f"»{inside}«", after)
