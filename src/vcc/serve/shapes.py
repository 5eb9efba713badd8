"""Our values as the service's results."""

from vcc.documents.answers import Answer, Reply, place_of
from vcc.documents.layer_view import LayerView, closest_passages, heat
from vcc.documents.review_table import Finding
from vcc.documents.text import Text
from vcc.serve import models
from vcc.serve.library import LibraryEntry
from vcc.serve.reviews import Review


def document_model(entry: LibraryEntry) -> models.DocumentModel:
    return models.DocumentModel(**{**vars(entry), "notes": list(entry.notes)})


def reply_model(text: Text, reply: Reply, top: int) -> models.ReplyModel:
    answers = [answer_model(text, answer) for answer in reply.answers[:top]]
    if not answers and reply.nearest is not None:
        answers = [answer_model(text, reply.nearest, sure=False)]
    return models.ReplyModel(question=reply.question, found=bool(reply.answers), answers=answers)


def answer_model(text: Text, answer: Answer, sure: bool = True) -> models.AnswerModel:
    first, last = text.sentence_around(answer.start, answer.end)
    return models.AnswerModel(
        text=answer.text,
        start=answer.start,
        end=answer.end,
        score=round(float(answer.score), 4),
        place=place_of(text, answer),
        page=answer.page,
        sentence=" ".join(text.text[first:last].split()),
        sure=sure,
        boxes=box_models(text, answer.start, answer.end),
    )


def box_models(text: Text, start: int, end: int) -> list[models.BoxModel]:
    return [models.BoxModel(**box._asdict()) for box in text.boxes(start, end)]


def span_model(text: Text, start: int, end: int) -> models.SpanModel:
    boxes = box_models(text, start, end)
    return models.SpanModel(start=start, end=end, place=text.part_at(start).label, boxes=boxes)


def text_model(text: Text) -> models.TextModel:
    return models.TextModel(text=text.text, parts=[models.PartModel(**vars(part)) for part in text.parts])


def heatmap_model(view: LayerView, cells: int) -> models.HeatmapModel:
    tokens = len(view.offsets)
    cells = min(cells, tokens)
    layers = [
        models.LayerModel(name=name, rows=rows, heat=[round(float(value), 4) for value in row])
        for name, row, rows in zip(view.layers, heat(view.openness, cells), view.rows, strict=True)
    ]
    passages = [
        models.PassageModel(
            start=int(view.offsets[first, 0]), end=int(view.offsets[last - 1, 1]), openness=round(float(share), 4)
        )
        for first, last, share in closest_passages(view, 20)
    ]
    starts = [int(view.offsets[cell * tokens // cells, 0]) for cell in range(cells)]
    return models.HeatmapModel(question=view.question, tokens=tokens, starts=starts, layers=layers, passages=passages)


def review_model(review: Review, texts: dict[str, Text]) -> models.ReviewModel:
    """`texts` of those documents that are still there: they know the boxes."""
    rows = [
        models.ReviewRowModel(
            id=id,
            document=row.document,
            error=row.error,
            notes=list(row.notes),
            cells=[[finding_model(finding, texts.get(id)) for finding in cell] for cell in row.cells],
        )
        for id, row in zip(review.row_documents, review.rows, strict=True)
    ]
    questions = [models.QuestionModel(**vars(question)) for question in review.questions]
    facts = {"id": review.id, "state": review.state, "done": review.done, "total": review.total, "error": review.error}
    return models.ReviewModel(**facts, questions=questions, rows=rows)  # type: ignore[arg-type]


def finding_model(finding: Finding, text: Text | None) -> models.FindingModel:
    boxes = [] if text is None else box_models(text, finding.start, finding.end)
    return models.FindingModel(**vars(finding), boxes=boxes)
