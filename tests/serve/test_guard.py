"""Requests above the limit are answered by 429; slow, patient and guessing clients take no places of others."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from vcc.serve import guard as module
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
        assert (await request(guard))[0] == 200 and guard.work.taken == 0

    asyncio.run(tried())


class Reading(Slow):
    """An application that reads the body, and answers when it is told to."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await super().__call__(scope, receive, send)


def body(
    guard: Guard, *parts: bytes, more: asyncio.Event | None = None, client: str = "10.0.0.1", **headers: str
) -> Any:
    """A request that sends some parts and, if `more` is given, the rest when that is set."""
    sent: list[Message] = []
    left = list(parts)

    async def receive() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or more is not None}
        if more is not None:
            await more.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    named = {"host": "127.0.0.1", "content-length": "9", **headers}
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/documents", "client": (client, 1)}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in named.items()]

    async def run() -> int:
        await guard(scope, receive, send)
        return int(sent[0]["status"])

    return asyncio.create_task(run())


def test_slow_bodies_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 0.05)

    async def tried() -> None:
        app = Reading()
        app.go.set()
        guard = Guard(app, ServiceSettings(tmp_path, at_once=8), Metrics())
        never = asyncio.Event()
        slow = [body(guard, b"x", more=never, client=f"10.0.0.{n}") for n in range(8)]
        await asyncio.sleep(0.2)
        assert len(guard.arriving) == 8 and guard.work.taken == 0
        assert [await body(guard, b"fast") for _ in range(4)] == [200] * 4
        await asyncio.sleep(0.2)
        ended = [task.result() for task in slow if task.done()]
        assert len(ended) >= 1 and set(ended) == {408}
        assert guard.work.taken == 0
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert not guard.arriving

    asyncio.run(tried())


def test_one_client_has_three_quarters_of_the_places(tmp_path: Path) -> None:
    async def tried() -> None:
        app = Reading()
        guard = Guard(app, ServiceSettings(tmp_path, at_once=8), Metrics())
        first = [body(guard, b"x") for _ in range(8)]
        await asyncio.sleep(0.05)
        assert sorted(task.result() for task in first if task.done()) == [429, 429] and guard.work.taken == 6
        other = body(guard, b"x", client="10.0.0.2")
        await asyncio.sleep(0.05)
        assert guard.work.taken == 7
        app.go.set()
        assert await other == 200
        await asyncio.gather(*first)
        assert guard.work.taken == 0 and not guard.work.of_client

    asyncio.run(tried())


def test_event_streams_are_no_work(tmp_path: Path) -> None:
    async def tried() -> None:
        app = Slow()
        guard = Guard(app, ServiceSettings(tmp_path, at_once=2), Metrics())
        streams = [asyncio.create_task(request(guard, "/v1/reviews/x/events")) for _ in range(300)]
        await asyncio.sleep(0)
        assert (app.entered, guard.work.taken, guard.streams.taken) == (module.STREAMS, 0, module.STREAMS)
        work = asyncio.create_task(request(guard))
        await asyncio.sleep(0)
        assert guard.work.taken == 1
        app.go.set()
        assert (await work)[0] == 200
        codes = [code for code, _, _ in await asyncio.gather(*streams)]
        assert (codes.count(200), codes.count(429)) == (module.STREAMS, 300 - module.STREAMS)

    asyncio.run(tried())


def test_wrong_tokens_are_answered_slowly_and_not_all_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep: list[float] = []
    wake = asyncio.Event()

    async def sleep(seconds: float) -> None:
        asleep.append(seconds)
        await wake.wait()

    monkeypatch.setattr(module, "sleep", sleep)
    token = "a-token-of-some-length"

    async def tried() -> None:
        app = Slow()
        app.go.set()
        guard = Guard(app, ServiceSettings(tmp_path, token=token), Metrics())
        assert await body(guard) == 401 and not asleep  # a browser asks for the token after this
        guesses = [body(guard, **{"x-api-key": f"wrong-{n}"}) for n in range(20)]
        await asyncio.sleep(0.01)
        assert asleep == [module.WRONG_SECONDS] * module.WRONG_AT_ONCE
        assert await body(guard, **{"x-api-key": token}) == 429  # from the same address
        assert await body(guard, client="10.0.0.9", **{"x-api-key": token}) == 200
        wake.set()
        codes = await asyncio.gather(*guesses)
        assert (codes.count(401), codes.count(429)) == (module.WRONG_AT_ONCE, 20 - module.WRONG_AT_ONCE)
        assert await body(guard, **{"x-api-key": token}) == 200 and not guard.wrong

    asyncio.run(tried())
