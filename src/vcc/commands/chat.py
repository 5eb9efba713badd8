"""`vcc chat`: questions about a document, answered with its own sentences or by a language model of the user's."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.text import Text as Styled

from vcc.commands.ask import prompt
from vcc.commands.shared.documents import (
    DEFAULT_READ_LIMITS,
    File,
    Json,
    NoCache,
    ReadLimits,
    check_questions,
    open_document,
    print_json,
    remark,
)
from vcc.commands.verify import STYLES
from vcc.documents.show.terminal import lit_text, print_indented, score_text
from vcc.documents.verify import NOT_FOUND
from vcc.errors import UsageError
from vcc.printable import printable

if TYPE_CHECKING:
    from vcc.chat.passages import GivenPassage
    from vcc.chat.said import Said
    from vcc.chat.talk import Talk
    from vcc.documents.document import Document
    from vcc.documents.text import Text
    from vcc.documents.verify import Verdict

    Answerer = Callable[[str], Said]

SHOWN = 300  # characters of a passage
UNCHECKED = "unchecked"  # no quote, and the model judges no statements


def chat(
    file: File,
    question: Annotated[tuple[str, ...], "one or more independent questions; without any, a prompt opens"],
    model: Annotated[
        str | None, "folder of a causal language model that writes the answers, or smollm2 (default: quote sentences)"
    ] = None,
    finder: Annotated[str | None, "folder of the model that finds passages (default: the bundled model)"] = None,
    context: Annotated[int, "maximum tokens of passages given to the language model"] = 600,
    longest: Annotated[int, "maximum tokens that the language model writes"] = 120,
    json: Json = False,
    no_cache: NoCache = False,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
) -> None:
    """Answer questions about a document with the sentences that answer them.

    With --model, a local language model writes the answers from the passages. Every sentence is checked like in vcc
    verify and marked; sentences that the document contradicts or does not support are withheld.
    """
    if context < 64:
        raise UsageError(f"--context is {context}: it must be at least 64 tokens")
    if longest < 1:
        raise UsageError(f"--longest is {longest}: it must be at least 1 token")
    prompted = not question and not json and file != "-" and sys.stdin.isatty()
    if not prompted:
        check_questions(question)
    document = open_document(file, finder, no_cache, reading)
    talk = None if model is None else start_talk(document, model, context, longest, keep=not no_cache)
    if prompted:
        return converse(document, talk)
    answer = quoting(document) if talk is None else lambda one: talk.ask(one).said[-1]  # each by itself, as in vcc ask
    said: list[Said] = []
    for one in question:
        said.append(answer(one))
        if not json:
            show(Console(highlight=False), document.content, said[-1])
    if json:
        print_json(as_dict(document.content, said))


def start_talk(document: "Document", model: str, context: int, longest: int, keep: bool) -> "Talk":
    from vcc.chat.model import load_chat_model
    from vcc.chat.talk import Talk

    return Talk(document, load_chat_model(model, remark, keep), context, longest)


def quoting(document: "Document") -> "Answerer":
    from vcc.chat.said import quote

    return lambda question: quote(document, question)


def converse(document: "Document", talk: "Talk | None") -> None:
    """Answer questions until an empty line."""
    console = Console(highlight=False)
    console.print(f"{printable(document.title)}. An empty line ends.", markup=False)
    answer = quoting(document)
    while question := prompt():
        check_questions([question])
        if talk is not None:
            talk = talk.ask(question)
        show_answer(console, document.content, answer(question) if talk is None else talk.said[-1])


def show(console: Console, content: "Text", said: "Said") -> None:
    console.print(Styled(printable(said.question), style="bold cyan"))
    show_answer(console, content, said)


def show_answer(console: Console, content: "Text", said: "Said") -> None:
    """The answer, and what it rests on: of each passage the sentence that seems to answer, lit where it does."""
    if not said.text:
        print_indented(console, Styled("(no answer that the document supports)"), 2)
    elif not said.quoted:  # what is quoted stands below, where it was found
        print_indented(console, marked(said.verdicts), 2)
    if said.unsupported:
        withheld = f"{len(said.unsupported)} withheld: the document does not support what the model wrote"
        print_indented(console, Styled(withheld, style="yellow"), 2)
    for number, passage in enumerate(said.passages, 1):
        head = Styled.assemble((f"[{number}] ", "dim"), score_text(passage.score), (f"  {passage.part}", "dim"))
        print_indented(console, head, 2)
        best = lit_text(content, passage.best, bool(console.color_system)) if passage.best else shortened(passage)
        print_indented(console, best, 6)
    console.print()


def marked(verdicts: "Sequence[Verdict]") -> Styled:
    """The sentences of an answer, each with its verdict."""
    parts: list[str | tuple[str, str]] = []
    for one in verdicts:
        mark = UNCHECKED if one.verdict == NOT_FOUND and not one.judged else one.verdict
        parts += [printable(one.sentence), " ", (f"[{mark}]", STYLES.get(mark, "dim")), " "]
    return Styled.assemble(*parts[:-1])


def shortened(passage: "GivenPassage") -> Styled:
    words = printable(" ".join(passage.text.split()))
    return Styled(words if len(words) <= SHOWN else f"{words[:SHOWN]} …", style="dim")


def as_dict(content: "Text", replies: "Sequence[Said]") -> dict[str, Any]:
    return {
        "document": {"title": content.title, "source": content.source, "sha256": content.sha256},
        "replies": [
            {
                "question": said.question,
                "answer": said.text,
                "quoted": said.quoted,
                "unsupported": list(said.unsupported),
                "verdicts": [verdict.as_dict() for verdict in said.verdicts],
                "passages": [passage_dict(passage) for passage in said.passages],
            }
            for said in replies
        ],
    }


def passage_dict(passage: "GivenPassage") -> dict[str, Any]:
    best = passage.best.as_dict() if passage.best else None
    return {"start": passage.start, "end": passage.end, "part": passage.part, "text": passage.text, "best": best}
