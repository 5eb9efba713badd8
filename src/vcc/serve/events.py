"""Progress as server-sent events, one per change, until the work is done."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from fastapi.responses import StreamingResponse

from vcc.serve.library import LibraryEntry
from vcc.serve.reviews import Review
from vcc.serve.schemas import DocumentSchema, ReviewSchema

EVERY = 0.2  # seconds between polls
ALIVE = 15  # seconds between keep-alive lines
FINISHED = ("ready", "failed")


def events(look: Callable[[], LibraryEntry | Review], seconds: float) -> StreamingResponse:
    """Send what `look` returns whenever it changes, for at most `seconds`, until the state is final."""

    async def lines() -> AsyncIterator[str]:
        start, said = time.monotonic(), time.monotonic()
        last: LibraryEntry | Review | None = None
        while time.monotonic() - start < seconds:
            try:
                now = look()
            except Exception as error:  # it was deleted
                yield f"event: gone\ndata: {type(error).__name__}\n\n"
                return
            if now is not last:  # a value: another one is a change
                schema = DocumentSchema.of(now) if isinstance(now, LibraryEntry) else ReviewSchema.of(now)
                yield f"data: {schema.model_dump_json()}\n\n"
                last, said = now, time.monotonic()
            elif time.monotonic() - said > ALIVE:
                yield ": still there\n\n"
                said = time.monotonic()
            if now.state in FINISHED:
                return
            await asyncio.sleep(EVERY)

    return StreamingResponse(lines(), media_type="text/event-stream")
