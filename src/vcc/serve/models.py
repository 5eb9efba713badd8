"""The shapes of requests and results, as the OpenAPI file shows them."""

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorMessage(BaseModel):
    error: str = Field(description="what is wrong, in plain words")


class BoxModel(BaseModel):
    """A rectangle on a page: 0 to 1 of the page as it is shown, from its top left corner."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


class AnswerModel(BaseModel):
    """text[start:end] of the document answers the question."""

    text: str
    start: int
    end: int
    score: float = Field(description="0 to 1")
    place: str = Field(description='where to find it: "page 3", "12. GOVERNING LAW"')
    page: int | None
    sentence: str = Field(description="the sentence around it")
    sure: bool = Field(
        description="false: the nearest passage, where the model would rather say that there is no answer"
    )
    boxes: list[BoxModel] = Field(description="where its words stand on the pages of a PDF")


class ReplyModel(BaseModel):
    question: str
    found: bool
    answers: list[AnswerModel]


class RepliesModel(BaseModel):
    replies: list[ReplyModel]


class DocumentModel(BaseModel):
    """A document and how far its reading is."""

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


class DocumentsModel(BaseModel):
    documents: list[DocumentModel]


class PartModel(BaseModel):
    label: str
    start: int
    end: int


class TextModel(BaseModel):
    text: str
    parts: list[PartModel]


class SpanModel(BaseModel):
    start: int
    end: int
    place: str
    boxes: list[BoxModel]


class AskModel(Strict):
    questions: list[str] = Field(min_length=1, examples=[["Which law governs this agreement?"]])
    top: int = Field(3, ge=1, le=5, description="answers for each question, at most")


class HeatmapRequest(Strict):
    question: str
    cells: int = Field(200, ge=10, le=1000)


class LayerModel(BaseModel):
    name: str
    rows: int = Field(description="rows of document and question that the layer saw")
    heat: list[float] = Field(description="0 to 1 for each cell: how closely it was read")


class PassageModel(BaseModel):
    start: int
    end: int
    openness: float


class HeatmapModel(BaseModel):
    question: str
    tokens: int
    starts: list[int] = Field(description="the first character of each cell")
    layers: list[LayerModel]
    passages: list[PassageModel]


class QuestionModel(Strict):
    question: str
    name: str = ""
    group: str = ""


class ReviewRequest(Strict):
    documents: list[str] = Field(min_length=1)
    questions: list[QuestionModel] | None = Field(None, description="unless given, the 41 clauses of CUAD")


class FindingModel(BaseModel):
    text: str
    quote: str
    place: str
    page: int | None
    start: int
    end: int
    score: float
    sure: bool
    boxes: list[BoxModel]


class ReviewRowModel(BaseModel):
    id: str
    document: str
    error: str
    notes: list[str]
    cells: list[list[FindingModel]]


class ReviewModel(BaseModel):
    """A review and how far it is; rows are there as soon as they are ready."""

    id: str
    state: str
    done: int
    total: int
    error: str
    questions: list[QuestionModel]
    rows: list[ReviewRowModel]


class VersionModel(BaseModel):
    version: str
    model: str = Field(description="hash of the model that answers")
    limits: dict[str, float]
