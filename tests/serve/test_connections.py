"""Half-sent headers, idle connections and clients that do not read cannot keep others out."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
import uvicorn

from vcc.serve import connections as module
from vcc.serve.connections import limited_connections

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: "


async def app(scope: dict, receive: object, send: object) -> None:  # type: ignore[type-arg]
    if scope["type"] == "http":
        body = b"x" * 30_000_000 if scope["path"] == "/large" else b"ok"
        if scope["path"] == "/slow":
            await asyncio.sleep(1)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": body})  # type: ignore[operator]


@contextmanager
def serving(most: int, header_seconds: float) -> Iterator[str]:
    options = uvicorn.Config(
        app, http=limited_connections(most, header_seconds), lifespan="off", log_level="error", timeout_keep_alive=1
    )
    server = uvicorn.Server(options)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def connect(address: str, data: bytes = b"") -> socket.socket:
    host, _, port = address.partition(":")
    line = socket.create_connection((host, int(port)), timeout=20)
    line.sendall(data)
    return line


def closed(line: socket.socket, seconds: float) -> bool:
    """Whether the server ends a connection, and is silent for no longer than some seconds before."""
    line.settimeout(seconds)
    with suppress(TimeoutError):
        try:
            while line.recv(1000):
                pass
        except ConnectionError:
            pass
        return True
    return False


def test_half_sent_headers_make_room_for_whole_ones() -> None:
    with serving(20, header_seconds=60) as address, ExitStack() as lines:
        slow = [lines.enter_context(connect(address, HALF)) for _ in range(60)]
        for _ in range(5):
            assert httpx.get(f"http://{address}/", timeout=20).text == "ok"
        assert sum(closed(line, 0.2 if n < 50 else 0.01) for n, line in enumerate(slow)) >= 40


@pytest.mark.parametrize("data", [b"", HALF, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + HALF], ids=["idle", "half", "next"])
def test_headers_have_a_time(data: bytes) -> None:
    with serving(20, header_seconds=0.3) as address, connect(address, data) as line:
        if data.endswith(HALF) and data != HALF:
            assert line.recv(1000).startswith(b"HTTP/1.1 200")
        assert closed(line, 15)


def test_a_request_that_takes_longer_than_its_headers_is_answered_and_others_follow() -> None:
    with serving(20, header_seconds=0.3) as address, httpx.Client(base_url=f"http://{address}", timeout=20) as client:
        for path in ("/slow", "/", "/slow"):
            assert client.get(path).text == "ok"


def test_requests_at_work_do_not_make_room() -> None:
    with serving(8, header_seconds=60) as address, ExitStack() as lines:
        whole = b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        working = [lines.enter_context(connect(address, whole)) for _ in range(8)]
        time.sleep(0.3)
        late = lines.enter_context(connect(address, HALF))
        assert closed(late, 15)
        assert all(line.recv(1000).startswith(b"HTTP/1.1 200") for line in working)


def test_a_client_that_does_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNREAD_SECONDS", 0.5)
    with serving(8, header_seconds=60) as address:
        with connect(address, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n") as line:
            time.sleep(3)
            received = 0
            with suppress(ConnectionError):
                while data := line.recv(10**6):
                    received += len(data)
            assert received < 30_000_000
        assert len(httpx.get(f"http://{address}/large", timeout=60).content) == 30_000_000


def test_there_are_fewer_connections_than_files() -> None:
    program = (
        "import resource; from vcc.serve.connections import *\n"
        "for soft, hard in ((200, 4000), (200, 700)):\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))\n"
        "    print(most_connections(512), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == ["512 832", "380 700"]
