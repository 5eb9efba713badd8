"""The request and response types of the service, as in its OpenAPI file, and conversions to them."""

from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict, Field

from vcc.documents.answer import Reply, place_at
from vcc.documents.layer_view import LayerView, closest_passages, heat
from vcc.documents.text import Text

if TYPE_CHECKING:  # they import torch, which clients of the types do not need
    from vcc.serve.library import LibraryEntry
    from vcc.serve.reviews import Review


class StrictSchema(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorSchema(BaseModel):
    error: str = Field(description="what is wrong")


class BoxSchema(BaseModel):
    """A rectangle on a page, as fractions of the displayed page from its top left corner."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


class AnswerSchema(BaseModel):
    """text[start:end] of the document, found as the answer to a question."""

    text: str = Field(description="the characters start..end - 1 of the document")
    start: int
    end: int
    score: float = Field(description="0 to 1: the probability that it is right")
    place: str = Field(description='for people: "page 3", "12. GOVERNING LAW", "41% into the text"')
    page: int | None = Field(description="the page it begins on; null if the document has no pages")
    sentence: str = Field(description="the sentence around it, on one line")
    sure: bool = Field(description="false: below the threshold; a person should check it")
    boxes: list[BoxSchema] = Field(description="its words on the pages of a PDF, one box per line")


class ReplySchema(BaseModel):
    """The answers to one question, best first; a single doubtful one if none is sure."""

    question: str
    name: str
    group: str
    answers: list[AnswerSchema]

    @classmethod
    def of(cls, reply: Reply, top: int) -> Self:
        values = reply.as_dict()
        return cls.model_validate({**values, "answers": values["answers"][:top]})


class RepliesSchema(BaseModel):
    replies: list[ReplySchema]


class DocumentSchema(BaseModel):
    """A document and the progress of reading it."""

    id: str
    name: str
    title: str
    state: str = Field(description="waiting, reading, ready or failed")
    done: int = Field(description="tokens read")
    total: int
    error: str
    code: int = Field(description="the HTTP code of the error; 0: none")
    pdf: bool
    size: int
    characters: int
    tokens: int
    pages: int
    notes: list[str]
    uploaded: float = Field(description="seconds since 1970")

    @classmethod
    def of(cls, entry: "LibraryEntry") -> Self:
        return cls.model_validate(vars(entry))


class DocumentsSchema(BaseModel):
    documents: list[DocumentSchema]


class PartSchema(BaseModel):
    label: str
    start: int
    end: int


class TextSchema(BaseModel):
    text: str
    parts: list[PartSchema]

    @classmethod
    def of(cls, text: Text) -> Self:
        return cls(text=text.text, parts=[PartSchema(**vars(part)) for part in text.parts])


class SpanSchema(BaseModel):
    start: int
    end: int
    place: str
    boxes: list[BoxSchema]

    @classmethod
    def of(cls, text: Text, start: int, end: int) -> Self:
        boxes = [BoxSchema(**box._asdict()) for box in text.boxes(start, end)]
        return cls(start=start, end=end, place=place_at(text, start), boxes=boxes)


class AskRequest(StrictSchema):
    questions: list[str] = Field(min_length=1, examples=[["Which law governs this agreement?"]])
    top: int = Field(3, ge=1, le=5, description="maximum answers per question")


class FindRequest(StrictSchema):
    question: str = Field(examples=["Which contracts end in 2031?"])
    top: int = Field(10, ge=1, le=100, description="documents to list, at most")
    ask: int = Field(5, ge=0, le=20, description="documents to ask, of those that match best")


class MatchSchema(BaseModel):
    """A document and how well it matches a question."""

    id: str
    name: str
    match: float = Field(description="larger is better; compares within one question")


class FoundAnswerSchema(AnswerSchema):
    """An answer and the document that holds it."""

    document: str
    name: str


class FoundSchema(BaseModel):
    """The documents that match best, and the answers of all that were asked, best first."""

    documents: list[MatchSchema]
    answers: list[FoundAnswerSchema]


class HeatmapRequest(StrictSchema):
    question: str
    cells: int = Field(200, ge=10, le=1000)


class LayerSchema(BaseModel):
    name: str
    rows: int = Field(description="rows of document and question that the layer saw")
    heat: list[float] = Field(description="openness of each cell, from 0 to 1")


class PassageSchema(BaseModel):
    start: int
    end: int
    openness: float


class HeatmapSchema(BaseModel):
    question: str
    tokens: int
    starts: list[int] = Field(description="the first character of each cell")
    layers: list[LayerSchema]
    passages: list[PassageSchema]

    @classmethod
    def of(cls, view: LayerView, cells: int) -> Self:
        tokens = len(view.offsets)
        cells = min(cells, tokens)
        layers = [
            LayerSchema(name=name, rows=rows, heat=[round(float(value), 4) for value in row])
            for name, row, rows in zip(view.layers, heat(view.openness, cells), view.rows, strict=True)
        ]
        passages = [
            PassageSchema(
                start=int(view.offsets[first, 0]), end=int(view.offsets[last - 1, 1]), openness=round(float(share), 4)
            )
            for first, last, share in closest_passages(view, 20)
        ]
        starts = [int(view.offsets[cell * tokens // cells, 0]) for cell in range(cells)]
        return cls(question=view.question, tokens=tokens, starts=starts, layers=layers, passages=passages)


class QuestionSchema(StrictSchema):
    question: str
    name: str = ""
    group: str = ""


class ReviewRequest(StrictSchema):
    documents: list[str] = Field(min_length=1)
    questions: list[QuestionSchema] | None = Field(None, description="default: the 41 clauses of CUAD")


class ReviewRowSchema(BaseModel):
    id: str
    document: str
    error: str
    notes: list[str]
    cells: list[list[AnswerSchema]]


class ReviewSchema(BaseModel):
    """A review and its progress; rows appear as they are finished."""

    id: str
    state: str
    done: int
    total: int
    error: str
    questions: list[QuestionSchema]
    rows: list[ReviewRowSchema]

    @classmethod
    def of(cls, review: "Review") -> Self:
        rows = zip(review.row_documents, review.rows, strict=True)
        return cls(
            id=review.id,
            state=review.state,
            done=review.done,
            total=review.total,
            error=review.error,
            questions=[QuestionSchema(**vars(question)) for question in review.questions],
            rows=[ReviewRowSchema(id=id, **row.as_dict()) for id, row in rows],
        )


class VersionSchema(BaseModel):
    version: str
    model: str = Field(description="hash of the model that answers")
    limits: dict[str, float]
