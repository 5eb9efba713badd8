"""A conversation about a document: passages for every question, an answer in sentences, and what it rests on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcc.chat.model import ChatModel, Message
from vcc.chat.passages import GivenPassage, find_passages
from vcc.documents.document import Document
from vcc.errors import UsageError

# In words that were tried on SmolLM2: it follows what stands last, and minds no system message.
ORDER = "Answer the question in one full sentence, using the text and the hint."
PLAIN_ORDER = "Answer the question in one or two full sentences, using the text."
LONGEST = 120  # tokens of an answer
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclass(frozen=True)
class Said:
    """An answer in the model's own words, and the passages it was given."""

    question: str
    text: str
    passages: tuple[GivenPassage, ...]
    unfounded: tuple[str, ...]  # names and numbers of the answer that neither passages nor question have


@dataclass(frozen=True)
class Talk:
    """A conversation so far. `room`: tokens of passages given with a question."""

    document: Document
    model: ChatModel
    room: int
    longest: int = LONGEST
    said: tuple[Said, ...] = ()
    messages: tuple[Message, ...] = ()

    def ask(self, question: str, streamer: Any = None) -> "Talk":
        """The conversation with one more question and its answer, which is the last of `said`."""
        bare = self.model.ids_of([told("user", prompt((), "", question))])
        room = min(self.room, (self.model.positions - self.longest - len(bare)) // 2)
        if room < 1:
            raise UsageError(
                f"the question has {len(bare)} tokens, too many for a model that reads {self.model.positions}"
            )
        found = find_passages(self.document, question, room, self.model.length)
        messages = self.fitting([*self.messages, told("user", prompt(found.passages, found.hint, question))])
        text = self.model.reply(messages, self.longest, streamer)
        said = Said(question, text, found.passages, unfounded(text, question, found.passages))
        return replace(self, said=(*self.said, said), messages=(*messages, told("assistant", text)))

    def fitting(self, messages: list[Message]) -> list[Message]:
        """Without the oldest questions and answers, where all are more than the model can read."""
        while len(messages) > 1 and len(self.model.ids_of(messages)) + self.longest > self.model.positions:
            messages = messages[2:]
        return messages


def told(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def prompt(passages: Sequence[GivenPassage], hint: str, question: str) -> str:
    """The best passage stands last, next to the question: small models mind most what is near."""
    text = "\n\n".join(" ".join(passage.text.split()) for passage in reversed(passages))
    hinted = [f'Hint: "{hint}"', ORDER] if hint else [PLAIN_ORDER]
    return "\n".join([f"Text: {text}", "", f"Question: {question}", *hinted])


def unfounded(text: str, question: str, passages: Sequence[GivenPassage]) -> tuple[str, ...]:
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
