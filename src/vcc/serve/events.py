"""Progress as server-sent events, one per change, until the work is done."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from fastapi.responses import StreamingResponse

from vcc.serve.schemas import DocumentSchema, ReviewSchema

EVERY = 0.2  # seconds between polls
ALIVE = 15  # seconds between keep-alive lines
FINISHED = ("ready", "failed")


def events(look: Callable[[], DocumentSchema | ReviewSchema], seconds: float) -> StreamingResponse:
    """Send what `look` returns whenever it changes, for at most `seconds`, until the state is final."""

    async def lines() -> AsyncIterator[str]:
        start, said, last = time.monotonic(), time.monotonic(), ""
        while time.monotonic() - start < seconds:
            try:
                now = look()
            except Exception as error:  # it was deleted
                yield f"event: gone\ndata: {type(error).__name__}\n\n"
                return
            shown = now.model_dump_json()
            if shown != last:
                yield f"data: {shown}\n\n"
                last, said = shown, time.monotonic()
            elif time.monotonic() - said > ALIVE:
                yield ": still there\n\n"
                said = time.monotonic()
            if now.state in FINISHED:
                return
            await asyncio.sleep(EVERY)

    return StreamingResponse(lines(), media_type="text/event-stream")
