"""`vcc see`: a heat map of what each layer opened for a question."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text as Styled

from vcc.commands.shared.documents import (
    DEFAULT_READ_LIMITS,
    File,
    Json,
    Model,
    NoCache,
    Page,
    ReadLimits,
    Top,
    check_folder,
    check_questions,
    check_top,
    open_document,
    print_json,
    write_page,
    wrote,
)
from vcc.documents.answer import Reply, as_dict
from vcc.documents.layer_view import closest_passages
from vcc.documents.show.figure import save_png
from vcc.documents.show.heatmap import heatmap_html
from vcc.documents.show.terminal import print_answers, print_facts, print_heatmap, print_passages
from vcc.errors import UsageError


def see(
    file: File,
    question: Annotated[str, "question"],
    top: Top = 3,
    json: Json = False,
    html: Page = None,
    png: Annotated[Path | None, "figure to write, for a paper"] = None,
    model: Model = None,
    no_cache: NoCache = False,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
) -> None:
    """Show what each layer read closely for a question, as a heat map over the document."""
    if png is not None and png.suffix.lower() != ".png":
        raise UsageError(f"--png is {png}: its name must end in .png")
    check_questions([question])
    check_top(top)
    check_folder(html, png)
    document = open_document(file, model, no_cache, reading, shown=True)
    view, facts = document.see(question, top)
    text = document.content
    if html is not None:
        write_page(html, heatmap_html(text, view, facts.shown()))
    if png is not None:
        save_png(png, text, view)
        wrote(png)
    if json:
        closest = [
            {"start": int(view.offsets[first, 0]), "end": int(view.offsets[last - 1, 1]), "openness": share}
            for first, last, share in closest_passages(view, 20)
        ]
        replies = [Reply(question, view.answers)]
        print_json({**as_dict(text, replies), "facts": facts.as_dict(), "passages": closest})
        return
    console = Console(highlight=False)
    print_heatmap(console, view)
    console.print()
    print_answers(console, text, Reply(question, view.answers))
    console.print(Styled("\nread most closely", style="bold"))
    print_passages(console, text, view)
    console.print()
    print_facts(console, text, facts.shown())
