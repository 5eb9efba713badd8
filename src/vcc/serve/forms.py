"""The routes that fill forms and check sentences."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fastapi import APIRouter, HTTPException, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from vcc.documents.document import Document
from vcc.documents.extract.fill import Form
from vcc.documents.extract.form_table import form_table
from vcc.documents.extract.schema import FormSchema, form_schema
from vcc.documents.show.spreadsheet import xlsx_bytes
from vcc.documents.verify import has_head, sentences_of
from vcc.serve.engine import Engine
from vcc.serve.routes import XLSX, attachment, in_pool, ready_text, refused
from vcc.serve.schemas import AnswerSchema, StrictSchema

KEPT_FORMS = 4  # of a document: the table of a form that was just filled needs no second filling
Got = TypeVar("Got")


class ExtractRequest(StrictSchema):
    json_schema: dict[str, Any] = Field(
        alias="schema", description="a JSON Schema of an object: its properties are the fields"
    )
    threshold: float | None = Field(None, ge=0, le=1, description="how likely a value must be right")


class FilledSchema(BaseModel):
    path: str = Field(description="parties[0].name")
    value: Any = Field(description="null below the threshold")
    evidence: AnswerSchema | None


class FormResultSchema(BaseModel):
    """A filled form; `values` is valid against the schema but for the required fields in `missing`."""

    values: dict[str, Any]
    missing: list[str]
    fields: list[FilledSchema]


class VerifyRequest(StrictSchema):
    text: str = Field(description="one or more sentences")


class VerdictSchema(BaseModel):
    sentence: str
    verdict: str = Field(description="supported, contradicted or not found")
    by: str = Field(description='"exact quote", "near quote" or "model"')
    reason: str
    passage: AnswerSchema | None
    also: list[AnswerSchema] = Field(description="further passages about it")


class VerdictsSchema(BaseModel):
    verdicts: list[VerdictSchema]
    head: bool = Field(description="false: the model has no verdict head, only quotes are checked")


class FilledForms:
    """The latest forms of each document; they go with the document."""

    def __init__(self) -> None:
        self.of: WeakKeyDictionary[Document, OrderedDict[tuple[str, float | None], Form]] = WeakKeyDictionary()

    def fill(self, document: Document, schema: FormSchema, threshold: float | None) -> Form:
        own, key = self.of.setdefault(document, OrderedDict()), (schema.as_json(), threshold)
        if key not in own:
            own[key] = document.extract(schema, threshold)
            while len(own) > KEPT_FORMS:
                own.popitem(last=False)
        return own[key]


def form_routes(engine: Engine) -> APIRouter:
    """Fill a form from a document; check sentences against it."""
    routes, settings, forms = APIRouter(prefix="/v1/documents", tags=["documents"]), engine.settings, FilledForms()

    async def on_document(id: str, stage: str, work: Callable[[Document], Got]) -> Got:
        """Work on a document that was read, within the time that a call waits."""
        await run_in_threadpool(ready_text, engine, id)
        return await in_pool(engine.workers, lambda: engine.use(id, stage, work), settings.wait_seconds)

    async def filled(id: str, asked: ExtractRequest) -> Form:
        form = await run_in_threadpool(form_schema, asked.json_schema)
        if len(form.leaves) > settings.questions:
            raise HTTPException(413, f"{len(form.leaves)} fields, above the limit of {settings.questions} questions")
        return await on_document(id, "filling", lambda document: forms.fill(document, form, asked.threshold))

    @routes.post("/{id}/extract", responses=refused(404, 409, 413, 422, 504))
    async def extract(id: str, asked: ExtractRequest) -> FormResultSchema:
        """Fill the fields of a JSON Schema, each value with its evidence."""
        return FormResultSchema.model_validate((await filled(id, asked)).as_dict())

    @routes.post("/{id}/form.xlsx", responses=refused(404, 409, 413, 422, 504), response_class=Response)
    async def as_xlsx(id: str, asked: ExtractRequest) -> Response:
        """The filled form as a spreadsheet: a column per field, evidence as comments, colours by score."""
        table = form_table(await filled(id, asked), engine.library.get(id).name)
        return attachment(await run_in_threadpool(xlsx_bytes, table), XLSX, "form.xlsx")

    @routes.post("/{id}/verify", responses=refused(404, 409, 413, 422, 504))
    async def verify(id: str, asked: VerifyRequest) -> VerdictsSchema:
        """Check sentences: supported, contradicted or not found, with the passage."""
        if len(sentences_of(asked.text)) > settings.questions:
            raise HTTPException(413, f"more sentences than the limit of {settings.questions}")

        def work(document: Document) -> VerdictsSchema:
            found = [one.as_dict() for one in document.verify(asked.text)]
            return VerdictsSchema.model_validate({"verdicts": found, "head": has_head(document)})

        return await on_document(id, "checking", work)

    return routes
