"""More requests at once than a service allows are answered by 429, and leave no trace."""

import asyncio
import json
from pathlib import Path
from typing import Any

from vcc.serve.guard import Guard, Message, Receive, Scope, Send
from vcc.serve.metrics import Metrics
from vcc.serve.settings import ServiceSettings


class Slow:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.go, self.entered = asyncio.Event(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered += 1
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def request(guard: Guard, path: str = "/v1/documents") -> tuple[int, dict[str, str], bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:8756")]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "headers": headers}
    await guard(scope, receive, send)
    start = sent[0]
    return start["status"], {n.decode(): v.decode() for n, v in start["headers"]}, sent[1]["body"]


def test_requests_above_the_limit_are_told_to_come_again(tmp_path: Path) -> None:
    async def tried() -> None:
        app = Slow()
        guard = Guard(app, ServiceSettings(tmp_path, at_once=2), Metrics())
        first = [asyncio.create_task(request(guard)) for _ in range(2)]
        await asyncio.sleep(0)
        assert app.entered == 2
        code, headers, body = await request(guard)
        assert (code, headers["retry-after"]) == (429, "1")
        assert "more than 2 requests at once" in json.loads(body)["error"] and app.entered == 2
        health = asyncio.create_task(request(guard, "/health"))  # who looks after the service is always heard
        await asyncio.sleep(0)
        assert app.entered == 3
        app.go.set()
        assert [one[0] for one in await asyncio.gather(*first, health)] == [200, 200, 200]
        assert (await request(guard))[0] == 200 and guard.at_once == 0

    asyncio.run(tried())
