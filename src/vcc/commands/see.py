"""`vcc see`: what each layer opened for a question, over the length of the document."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text

from vcc.commands.ask import (
    File,
    Json,
    Model,
    NoCache,
    Page,
    Top,
    asked_wrongly,
    check_folder,
    check_questions,
    check_top,
    open_document,
    print_json,
    write_page,
    wrote,
)
from vcc.documents.answers import Reply, as_dict
from vcc.documents.reading import passages, print_heatmap, print_passages
from vcc.documents.show.figure import save_png
from vcc.documents.show.heatmap import heatmap_html
from vcc.documents.show.terminal import print_answers, print_facts
from vcc.errors import UsageError


def see(
    file: File,
    question: Annotated[str, "what to ask"],
    top: Top = 3,
    json: Json = False,
    html: Page = None,
    png: Annotated[Path | None, "write a figure for a paper to this file"] = None,
    model: Model = None,
    no_cache: NoCache = False,
) -> None:
    """Show what each layer read closely for a question, as a heat map over the document."""
    if png is not None and png.suffix.lower() != ".png":
        raise UsageError(f"--png is {png}: its name must end in .png")
    with asked_wrongly():
        check_questions([question])
        check_top(top)
        check_folder(html, png)
        opened = open_document(file, model, no_cache)
        reading, facts = opened.asker.see(opened.document, opened.index, question, top)
    document = opened.document
    if html is not None:
        write_page(html, heatmap_html(document, reading, facts.shown()))
    if png is not None:
        try:
            save_png(png, document, reading)
        except ImportError as error:
            raise UsageError(str(error)) from error
        wrote(png)
    if json:
        closest = [
            {"start": int(reading.offsets[first, 0]), "end": int(reading.offsets[last - 1, 1]), "openness": share}
            for first, last, share in passages(reading, 20)
        ]
        replies = [Reply(question, reading.answers)]
        print_json({**as_dict(document, replies), "facts": facts.as_dict(), "passages": closest})
        return
    console = Console(highlight=False)
    print_heatmap(console, reading)
    console.print()
    print_answers(console, document, Reply(question, reading.answers))
    console.print(Text("\nread most closely", style="bold"))
    print_passages(console, document, reading)
    console.print()
    print_facts(console, document, facts.shown())
