"""A conversation about a document: passages for every question, and an answer in sentences that they support."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vcc.chat.model import ChatModel, Message
from vcc.chat.passages import GivenPassage, find_passages
from vcc.chat.said import Said
from vcc.chat.support import is_supported, sentences_of
from vcc.documents.answer import on_one_line
from vcc.documents.document import Document
from vcc.documents.verify import CONTRADICTED, SUPPORTED, Verdict, verdict_on
from vcc.errors import UsageError

# In words that were tried on SmolLM2: it follows what stands last, and ignores system messages.
ORDER = "Answer the question in one full sentence, using the text and the hint."
PLAIN_ORDER = "Answer the question in one or two full sentences, using the text."
LONGEST = 120  # tokens of an answer


@dataclass(frozen=True)
class Talk:
    """A conversation so far. `room`: tokens of passages given with a question."""

    document: Document
    model: ChatModel
    room: int
    longest: int = LONGEST
    said: tuple[Said, ...] = ()
    messages: tuple[Message, ...] = ()

    def ask(self, question: str) -> "Talk":
        """The conversation with one more question and its answer, which is the last of `said`."""
        bare = self.model.ids_of([told("user", prompt((), "", question))])
        room = min(self.room, (self.model.positions - self.longest - len(bare)) // 2)
        if room < 1:
            raise UsageError(
                f"the question has {len(bare)} tokens, too many for a model that reads {self.model.positions}"
            )
        found = find_passages(self.document, question, room, self.model.length)
        if not found.passages:  # a model could only invent an answer
            return replace(self, said=(*self.said, Said(question, "", (), quoted=False)))
        messages = self.fitting([*self.messages, told("user", prompt(found.passages, found.hint, question))])
        if found.whole and len(messages) == 1:
            self.model.start_with(self.text_ids(found.passages))
        text = self.model.reply(messages, self.longest)
        said = checked(self.document, question, text, found.passages)
        return replace(self, said=(*self.said, said), messages=(*messages, told("assistant", text)))

    def text_ids(self, passages: Sequence[GivenPassage]) -> list[int]:
        """The tokens with which every first question about these passages begins."""
        one, other = (self.model.ids_of([told("user", prompt(passages, "", word))]).tolist() for word in ("0", "?"))
        differ = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        return one[: max(next(differ, 0) - 2, 0)]  # the last ones could merge with a question's first

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


def checked(document: Document, question: str, text: str, passages: Sequence[GivenPassage]) -> Said:
    """What a model wrote, each sentence with the document's verdict, without those that do not stand."""
    given = [passage.text for passage in passages]
    verdicts = [verdict_on(document, on_one_line(sentence)) for sentence in sentences_of(text)]
    kept = tuple(one for one in verdicts if stands(one, given))
    lost = tuple(one.sentence for one in verdicts if one not in kept)
    return Said(question, " ".join(one.sentence for one in kept), tuple(passages), False, lost, kept)


def stands(verdict: Verdict, passages: Sequence[str]) -> bool:
    """Whether the document supports a sentence, or is silent while a passage has its names, numbers and most words."""
    if verdict.verdict == CONTRADICTED:
        return False
    return verdict.verdict == SUPPORTED or is_supported(verdict.sentence, passages)
