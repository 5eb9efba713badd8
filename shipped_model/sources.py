"""The sets that the model is trained and tested on, as examples: paragraphs, and whole documents.

Their licences allow shipping the model (see the model card). A set's file has one JSON object per line; if a record
names a document, its text is in the set's `docs.jsonl.xz`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vcc.data.example import Example, text_key
from vcc.data.records import Record, load_records, read_records

Split = Literal["train", "validation"]


@dataclass(frozen=True)
class Source:
    """A set of questions: on paragraphs of a few hundred tokens, or on whole documents."""

    name: str
    whole: bool = False  # whether its texts are documents, longer than a window
    share: float = 1.0  # how often its questions are practised in windows, relative to SQuAD's
    splits: tuple[Split, ...] = ("train", "validation")

    def load(self, split: Split, data: str) -> list[Example]:
        records = load_records(self.name, split, data, "")
        more = Path(data) / self.name / f"{split}_unanswerable.jsonl.xz"
        return [self.example(record) for record in (*records, *(read_records(more) if more.is_file() else ()))]

    def example(self, record: Record) -> Example:
        text = record.get("document", "context")
        answers = record.texts("answers")
        starts = record.get("answer_starts", kind=list)
        spans = tuple((start, start + len(answer)) for start, answer in zip(starts, answers, strict=True))
        group = str(record.fields.get("doc_id") or record.fields.get("title") or text_key(text))
        return Example(record.get("id"), record.get("question"), text, answers, spans, group=group)


SOURCES: tuple[Source, ...] = (
    Source("squad11", splits=("train",)),
    Source("squadshifts"),
    Source("nq", share=1.5),
    Source("ropes", share=0.3),
    Source("afriqa"),
    Source("tatqa", share=1.5),
    Source("qasper_para", share=1.5, splits=("train",)),
    Source("tweetqa", share=0.7),
    Source("qamr", share=0.5),
    Source("qadiscourse", share=0.7),
    Source("timeqa", whole=True),
    Source("fairytaleqa", whole=True),
    Source("maud", whole=True, share=3.0),
    Source("contractnli", whole=True, share=2.0),
    Source("privacyqa", whole=True, share=2.0),
    Source("medquad", whole=True),
)
