"""The routes that fill forms and check sentences."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, HTTPException
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from vcc.documents.document import Document
from vcc.documents.extract.fill import fill
from vcc.documents.extract.schema import form_schema
from vcc.documents.verify import has_head, sentences_of, verify_document
from vcc.serve.engine import Engine
from vcc.serve.routes import ready_text, refused, too_late
from vcc.serve.schemas import AnswerSchema, StrictSchema

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


class VerdictsSchema(BaseModel):
    verdicts: list[VerdictSchema]
    head: bool = Field(description="false: the model has no verdict head, only quotes are checked")


def form_routes(engine: Engine) -> APIRouter:
    """Fill a form from a document; check sentences against it."""
    routes, settings = APIRouter(prefix="/v1/documents", tags=["documents"]), engine.settings

    async def on_document(id: str, work: Callable[[Document], Got]) -> Got:
        """Work on a document that was read, within the time that a call waits."""
        await run_in_threadpool(ready_text, engine, id)

        def turn() -> Got:
            document = engine.ready(id)
            with engine.metrics.stage("asking"), engine.turns.urgent():
                return work(document)

        started = asyncio.ensure_future(run_in_threadpool(turn))
        done, _ = await asyncio.wait([started], timeout=settings.wait_seconds)
        if not done:
            raise too_late(settings.wait_seconds)
        return started.result()

    @routes.post("/{id}/extract", responses=refused(404, 409, 413, 422, 504))
    async def extract(id: str, asked: ExtractRequest) -> FormResultSchema:
        """Fill the fields of a JSON Schema, each value with its evidence."""
        form = await run_in_threadpool(form_schema, asked.json_schema)
        if len(form.leaves) > settings.questions:
            raise HTTPException(413, f"{len(form.leaves)} fields, above the limit of {settings.questions} questions")
        filled = await on_document(id, lambda document: fill(document, form, asked.threshold))
        return FormResultSchema.model_validate(filled.as_dict())

    @routes.post("/{id}/verify", responses=refused(404, 409, 413, 422, 504))
    async def verify(id: str, asked: VerifyRequest) -> VerdictsSchema:
        """Check sentences: supported, contradicted or not found, with the passage."""
        if len(sentences_of(asked.text)) > settings.questions:
            raise HTTPException(413, f"more sentences than the limit of {settings.questions}")

        def work(document: Document) -> VerdictsSchema:
            found = [one.as_dict() for one in verify_document(document, asked.text)]
            return VerdictsSchema.model_validate({"verdicts": found, "head": has_head(document)})

        return await on_document(id, work)

    return routes
