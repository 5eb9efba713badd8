"""A conversation about a document: passages for every question, an answer in sentences, and what it rests on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcc.chat.model import ChatModel, Message
from vcc.chat.passages import Passage, find_passages
from vcc.documents.document import Document

SYSTEM = "You answer questions about a document. Use only the passages that are given. Answer in one or two sentences."
LONGEST = 120  # tokens of an answer
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclass(frozen=True)
class Said:
    """An answer in the model's own words, and the passages it was given."""

    question: str
    text: str
    passages: tuple[Passage, ...]
    unfounded: tuple[str, ...]  # names and numbers of the answer that neither passages nor question have


@dataclass(frozen=True)
class Talk:
    """A conversation so far. `room`: tokens of passages given with a question."""

    document: Document
    model: ChatModel
    room: int
    longest: int = LONGEST
    said: tuple[Said, ...] = ()

    def ask(self, question: str, streamer: Any = None) -> "Talk":
        """The conversation with one more question and its answer, which is the last of `said`."""
        room = min(self.room, self.model.positions - self.longest - self.model.length(SYSTEM + question) - 64)
        passages = find_passages(self.document, question, max(room, 0), self.model.length)
        messages = self.fitting([*self.messages, told("user", prompt(passages, question))])
        text = self.model.reply(messages, self.longest, streamer)
        return replace(self, said=(*self.said, Said(question, text, passages, unfounded(text, question, passages))))

    @property
    def messages(self) -> list[Message]:
        both = [(told("user", prompt(one.passages, one.question)), told("assistant", one.text)) for one in self.said]
        return [told("system", SYSTEM), *(message for pair in both for message in pair)]

    def fitting(self, messages: list[Message]) -> list[Message]:
        """Without the oldest questions and answers, where all are more than the model can read."""
        while len(messages) > 2 and len(self.model.ids_of(messages)) + self.longest > self.model.positions:
            messages = [messages[0], *messages[3:]]
        return messages


def told(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def prompt(passages: Sequence[Passage], question: str) -> str:
    """The best passage stands last, next to the question: small models mind most what is near."""
    numbered = [f"[{number}] {' '.join(passage.text.split())}" for number, passage in enumerate(passages, 1)]
    return "\n\n".join([*reversed(numbered), f"Question: {question}"])


def unfounded(text: str, question: str, passages: Sequence[Passage]) -> tuple[str, ...]:
    """Names and numbers of an answer that stand in none of what the model was given: likely made up.

    A capital at the start of a sentence makes no name.
    """
    given = {word.lower() for source in (question, *(one.text for one in passages)) for word in WORD.findall(source)}
    found = []
    for match in WORD.finditer(text):
        word, before = match.group(), text[: match.start()].rstrip("\"'“‘( ")
        named = word[0].isupper() and before[-1:] not in ("", ".", "!", "?", ":", "\n")
        if (named or word[0].isdigit()) and word.lower().removesuffix("'s").removesuffix("’s") not in given | {"i"}:
            found.append(word)
    return tuple(dict.fromkeys(found))
