"""`vcc verify`: whether a document supports sentences, contradicts them or is silent."""

from typing import Annotated

from rich.console import Console

from vcc.commands.shared.documents import (
    DEFAULT_READ_LIMITS,
    File,
    Json,
    Model,
    NoCache,
    ReadLimits,
    print_json,
    read_file,
    remark,
)
from vcc.documents.answer import on_one_line
from vcc.documents.document import Document
from vcc.documents.verify import NO_HEAD, Verdict, sentences_of
from vcc.errors import UsageError
from vcc.printable import printable

STYLES = {"supported": "green", "contradicted": "red", "not found": "yellow"}


def verify(
    file: File,
    sentence: Annotated[tuple[str, ...], "what to check: one or more sentences"],
    json: Json = False,
    model: Model = None,
    no_cache: NoCache = False,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
) -> None:
    """Check sentences against a document: supported, contradicted or not found, with the passage.

    Exact and near quotes are found without a model: a changed name, number, sum or date in a near quote is a
    contradiction. A model with a verdict head judges the rest.
    """
    if not sentence:
        raise UsageError("no sentence: name at least one to check")
    wanted = [one for text in sentence for one in sentences_of(text)]
    text = read_file(file, reading)
    from vcc.documents.store import default_store  # imports torch

    document = Document(text, model, None if no_cache else default_store(remark))
    found = [verdict for one in wanted for verdict in document.verify(one)]
    if any(verdict.reason == NO_HEAD for verdict in found):
        remark(NO_HEAD)
    if json:
        print_json({"document": text.title, "source": text.source, "verdicts": [one.as_dict() for one in found]})
    else:
        for verdict in found:
            print_verdict(Console(highlight=False), verdict)


def print_verdict(console: Console, verdict: Verdict) -> None:
    console.print(f"{verdict.verdict:<12}", style=STYLES[verdict.verdict], end=" ")
    console.print(printable(verdict.sentence), markup=False)
    passage = verdict.passage
    if passage is not None:
        said = f"{passage.score:.2f}  {passage.place}  {verdict.by}"
        console.print(f"             {printable(said)}", style="dim", markup=False)
        for one in (passage, *verdict.also):
            console.print(f"             »{printable(on_one_line(one.text))}«", markup=False)
    if verdict.reason:
        console.print(f"             {printable(verdict.reason)}", style="dim", markup=False)
