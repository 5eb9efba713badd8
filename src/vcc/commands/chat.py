"""`vcc chat`: a conversation about a document with a small local language model."""

import sys
from collections.abc import Sequence
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
from vcc.documents.show.terminal import lit_text, print_indented, score_text
from vcc.errors import UsageError
from vcc.printable import printable, printable_lines

if TYPE_CHECKING:
    from vcc.chat.passages import GivenPassage
    from vcc.chat.talk import Said, Talk
    from vcc.documents.text import Text

SHOWN = 300  # characters of a passage


def chat(
    file: File,
    question: Annotated[
        tuple[str, ...], "one or more questions, each answered separately; without any, a conversation starts"
    ],
    model: Annotated[str | None, "folder of a causal language model (default: SmolLM2-135M-Instruct)"] = None,
    finder: Annotated[str | None, "folder of the model that finds passages (default: the bundled model)"] = None,
    context: Annotated[int, "passage tokens given to the language model per question"] = 600,
    longest: Annotated[int, "maximum tokens of an answer"] = 120,
    json: Json = False,
    no_cache: NoCache = False,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
) -> None:
    """Answer questions about a document in full sentences, and show the passages used.

    Passages are found as in vcc ask; a language model then writes the answer from them. A small model can be wrong
    even if the passages are right: check them.
    """
    if context < 64:
        raise UsageError(f"--context is {context}: it must be at least 64 tokens")
    if longest < 1:
        raise UsageError(f"--longest is {longest}: it must be at least 1 token")
    prompted = not question and not json and file != "-" and sys.stdin.isatty()
    if not prompted:
        check_questions(question)
    document = open_document(file, finder, no_cache, reading)
    from vcc.chat.model import load_chat_model
    from vcc.chat.talk import Talk

    talk = Talk(document, load_chat_model(model, remark), context, longest)
    if prompted:
        return converse(talk)
    said: list[Said] = []
    for one in question:  # without history, as in vcc ask: a small model mixes it up
        said += talk.ask(one).said
        if not json:
            show(Console(highlight=False), document.content, said[-1])
    if json:
        print_json(as_dict(document.content, said))


def converse(talk: "Talk") -> None:
    """Answer questions at a prompt until an empty line, printing words as they are generated."""
    from transformers import TextStreamer

    console = Console(highlight=False)
    console.print(f"{printable(talk.document.title)}. An empty line quits.", markup=False)
    while question := prompt():
        check_questions([question])
        streamer = TextStreamer(talk.model.tokenizer, skip_prompt=True, skip_special_tokens=True)
        streamer.on_finalized_text = written  # type: ignore[method-assign]
        talk = talk.ask(question, streamer)
        show_passages(console, talk.document.content, talk.said[-1])


def written(text: str, stream_end: bool = False) -> None:
    print(printable_lines(text), end="\n" if stream_end else "", flush=True)


def show(console: Console, content: "Text", said: "Said") -> None:
    console.print(Styled(printable(said.question), style="bold cyan"))
    print_indented(console, Styled(printable_lines(said.text) or "(no answer)"), 2)
    show_passages(console, content, said)


def show_passages(console: Console, content: "Text", said: "Said") -> None:
    """Print the passages used: the best sentence of each, with its answer highlighted."""
    if said.unfounded:
        words = printable(", ".join(said.unfounded))
        print_indented(console, Styled(f"not in the passages: {words}", style="yellow"), 2)
    for number, passage in enumerate(said.passages, 1):
        head = Styled.assemble((f"[{number}] ", "dim"), score_text(passage.score), (f"  {passage.part}", "dim"))
        print_indented(console, head, 2)
        best = lit_text(content, passage.best, bool(console.color_system)) if passage.best else shortened(passage)
        print_indented(console, best, 6)
    console.print()


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
                "unfounded": list(said.unfounded),
                "passages": [passage_dict(passage) for passage in said.passages],
            }
            for said in replies
        ],
    }


def passage_dict(passage: "GivenPassage") -> dict[str, Any]:
    best = passage.best.as_dict() if passage.best else None
    return {"start": passage.start, "end": passage.end, "part": passage.part, "text": passage.text, "best": best}
