"""Replies and heat maps in the terminal: the sentence, place and score of each answer; one row per layer."""

from collections.abc import Iterable, Mapping
from itertools import groupby, islice

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text as Styled

from vcc.documents.answer import Answer, Reply, excerpt, on_one_line
from vcc.documents.layer_view import LayerView, closest_passages, heat
from vcc.documents.review_table import ReviewTable
from vcc.documents.text import Text, without_overlaps
from vcc.printable import printable

LIT = "bold black on yellow"
GLOW = ((0.0, "#6b5a3a"), (0.5, "#f59e0b"), (1.0, "#f43f2f"))  # low to high, for light and dark terminals
NOTHING = Styled("no answer found", style="dim italic")


def print_replies(console: Console, text: Text, replies: Iterable[Reply], facts: Mapping[str, str]) -> None:
    """Each question with its answers, for `vcc ask`."""
    for reply in replies:
        console.print(Styled(reply.heading, style="bold cyan"))
        print_answers(console, text, reply)
        console.print()
    print_facts(console, text, facts)


def print_answers(console: Console, text: Text, reply: Reply) -> None:
    for number, answer in enumerate(reply.answers, 1):
        where = (f"  {answer.place}", "dim")
        print_indented(console, Styled.assemble((f"{number}  ", "dim"), score_text(answer.score), where), 2)
        print_indented(console, lit_text(text, answer, bool(console.color_system)), 5)
    if reply.nearest is not None:
        nearest = f"no sure answer; the nearest, {reply.nearest.place}:"
        print_indented(console, Styled(nearest, style="dim italic"), 2)
        print_indented(console, lit_text(text, reply.nearest, False), 5)
    elif not reply.answers:
        print_indented(console, NOTHING, 2)


def print_review(console: Console, text: Text, replies: Iterable[Reply], facts: Mapping[str, str]) -> None:
    """A table of the clauses found, group by group, and a list of those that were not, for `vcc review`."""
    replies = list(replies)
    missing = [reply.heading for reply in replies if not reply.answers]
    table = Table(title=text.title, title_style="bold", show_lines=False, expand=True, box=None, padding=(0, 1))
    table.add_column("Clause", style="cyan", ratio=2)
    table.add_column("Found", ratio=7)
    table.add_column("Place", style="dim", ratio=2)
    table.add_column("Score", justify="right", width=7)
    found = (reply for reply in replies if reply.answers)
    for group, members in groupby(found, key=lambda reply: reply.group):
        if group:
            table.add_row()
            table.add_row("", Styled(group, style="bold"))
        for reply in members:
            for number, answer in enumerate(reply.answers):
                words = Styled(excerpt(text, answer, margin=0, longest=300)[1])
                name = "" if number else reply.heading
                table.add_row(name, words, answer.place, score_text(answer.score))
    console.print(table)
    console.print()
    if missing:
        console.print(Styled(f"not found ({len(missing)}): {', '.join(missing)}", style="dim"))
    print_facts(console, text, facts)


def print_table(console: Console, table: ReviewTable) -> None:
    """Many documents, a few lines each: the answers, then their number."""
    for row in table.rows:
        console.print(Styled(printable(row.document), style="bold"))
        if row.error:
            print_indented(console, Styled(f"not read: {printable(row.error)}", style="red"), 2)
            continue
        found = [(question, cell[0]) for question, cell in zip(table.questions, row.cells, strict=True) if cell]
        for question, answer in found:
            doubt = ("doubtful  ", "magenta") if not answer.sure else ""
            head = Styled.assemble((f"{question.heading}  ", "cyan"), doubt, score_text(answer.score))
            line = Styled.assemble(head, (f"  {answer.place}  ", "dim"), on_one_line(answer.text))
            line.truncate(2 * (console.width - 4), overflow="ellipsis")
            print_indented(console, line, 2)
        for note in row.notes:
            print_indented(console, Styled(f"note: {note}", style="yellow"), 2)
        print_indented(console, Styled(f"{len(found)} of {len(row.cells)} found\n", style="dim"), 2)


def print_facts(console: Console, text: Text, facts: Mapping[str, str]) -> None:
    """Statistics of reading, and notes on what could not be read."""
    if facts:
        console.print(Styled(" · ".join(f"{name} {value}" for name, value in facts.items()), style="dim"))
    for note in text.notes:
        console.print(Styled(f"note: {note}", style="yellow"))


def print_heatmap(console: Console, view: LayerView) -> None:
    """One row of coloured cells per layer, below marks at the answers."""
    margin = max(len(name) for name in view.layers) + 2
    width = max(min(console.width - margin - 16, 160), 10)
    console.print(Styled(view.question, style="bold cyan"))
    marks = [" "] * width
    for answer in view.answers:
        marks[view.token_at(answer.start) * width // len(view.offsets)] = "▼"
    if view.answers:
        console.print(Styled(" " * margin + "".join(marks).rstrip(), style="bold green"))
    for name, row, seen in zip(view.layers, heat(view.openness, width), view.rows, strict=True):
        line = Styled().append(name.ljust(margin), style="dim")
        for value in row:
            if console.color_system and value:
                line.append("█", style=_glow(float(value)))
            else:
                line.append("·░▒▓█"[int(np.ceil(value * 4))], style="" if value else "dim")
        console.print(line.append(f"  {seen:,} rows", style="dim"))
    console.print(Styled(f"{' ' * margin}0{len(view.offsets):>{width - 1},} tokens", style="dim"))


def print_passages(console: Console, text: Text, view: LayerView, top: int = 5) -> None:
    """The most opened sentences, with their mean openness over the layers."""
    sentences = ((_sentence(text, view, first, last), share) for first, last, share in closest_passages(view, 20 * top))
    for (start, end), share in islice(without_overlaps(sentences, lambda found: found[0]), top):
        line = Styled(" ".join(text.text[start:end].split()))
        line.truncate(3 * (console.width - 6), overflow="ellipsis")
        console.print(Styled.assemble((f"{share:4.0%}", "bold yellow"), (f"  {text.part_at(start).label}", "dim")))
        print_indented(console, line, 6)


def _sentence(text: Text, view: LayerView, first: int, last: int) -> tuple[int, int]:
    """The sentence around the best token of first..last - 1: the middle of its best node."""
    score = view.scores[:, first:last].mean(0)
    best = first + int(np.flatnonzero(score == score.max()).mean())
    return text.sentence_around(*map(int, view.offsets[best]))


def _glow(value: float) -> str:
    """The colour for a heat from 0 to 1, as #rrggbb."""
    stops = np.array([stop for stop, _ in GLOW])
    colours = np.array([[int(code[i : i + 2], 16) for i in (1, 3, 5)] for _, code in GLOW])
    red, green, blue = (int(np.interp(value, stops, colours[:, channel])) for channel in range(3))
    return f"#{red:02x}{green:02x}{blue:02x}"


def score_text(score: float) -> Styled:
    """A score between 0 and 1 as a number, greener if higher."""
    style = "green" if score >= 0.5 else "yellow" if score >= 0.1 else "red"
    return Styled(f"{score:.2f}", style=style)


def print_indented(console: Console, styled: Styled, blanks: int) -> None:
    """Print wrapped lines without trailing blanks, which would be copied along."""
    for line in styled.wrap(console, max(console.width - blanks, 1)):
        line.rstrip()
        console.print(Styled(" " * blanks).append_text(line))


def lit_text(text: Text, answer: Answer, colours: bool) -> Styled:
    before, inside, after = excerpt(text, answer)
    return Styled.assemble(before, (inside, LIT) if colours else f"»{inside}«", after)
