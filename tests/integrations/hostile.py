"""500 hostile MCP calls to `vcc mcp`, or to /mcp of `vcc serve`.

Paths outside, huge arguments, wrong types, recursive schemas, many at once.

    python -m tests.integrations.hostile [calls] [--http]

No call may end the server, return or log a traceback, or reveal a file outside the folder, and an honest question is
answered afterwards. The quick tests run it small.
"""

import asyncio
import os
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.documents import small_model
from tests.documents.samples import pdf_bytes
from tests.serve.running import running

SECRET = "hunter2-is-the-secret"
AT_ONCE = 20
OUTSIDE = (
    *("../secret.txt", "/etc/passwd", "/proc/self/environ", "link.txt", "up/secret.txt", "a.pdf/../../secret.txt"),
    *(Path("/etc/passwd").as_uri(), "~/.ssh/id_rsa", "\0", "a\0.pdf", "..", ".", "/", "", "x" * 100_000, "a/" * 2000),
    *("//etc/passwd", "C:\\windows\\win.ini", "%2e%2e/secret.txt", "..\\secret.txt", "loop/loop", "pipe", "/dev/zero"),
    *("\x1b[2J", "a.pdf\n", "-", "http://127.0.0.1/", "s3://bucket/key", "@secret.txt", "*", "[a-z]*"),
)
FIELDS = {"type": "object", "properties": {"w1": {"type": "string"}}}
NODE: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
SCHEMAS: tuple[dict[str, Any], ...] = (
    {**NODE, "$defs": {"node": NODE}},
    {"$ref": "#"},
    {"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(5000)}},
    {"type": "object", "properties": {"a": {"$ref": Path("/etc/passwd").as_uri()}}},
    {"type": "object", "properties": {"a": {"type": "number", "minimum": 5, "maximum": 1}}},
    {"type": "object", "properties": {"w1": {"type": "string", "pattern": "(w+)+$"}}},
)
ODD = (None, 5, -1, 10**30, 1.5, float("1e308"), True, [], {}, [[[]]], {"path": "a.pdf"}, "w" * 200_000, "")


@dataclass
class Tally:
    """What came back."""

    kinds: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)


def a_call(number: int) -> tuple[str, dict[str, Any]]:
    """A tool and arguments, chosen by a number."""
    rng = random.Random(number)
    path, odd = rng.choice(OUTSIDE), rng.choice(ODD)
    return rng.choice(
        [
            ("read", {"path": path}),
            ("quote", {"path": path, "start": 0, "end": 10}),
            ("ask", {"path": path, "question": "w1?"}),
            ("ask", {"path": "a.pdf", "question": odd}),
            ("ask", {"path": odd, "question": odd, "top": odd}),
            ("ask", {"path": "a.pdf", "question": "w1?", "top": odd, "more": odd}),
            ("quote", {"path": "a.pdf", "page": odd}),
            ("quote", {"path": "a.pdf", "start": rng.choice((-1, 10**12, -(10**12))), "end": 1}),
            ("review", {"paths": [path] * rng.choice((0, 1, 51, 5000)), "questions": ["w1?"]}),
            ("review", {"paths": ["a.pdf"], "questions": [odd] * rng.choice((0, 1, 101))}),
            ("review", {"paths": odd}),
            ("find", {"question": "w1?", "folder": path}),
            ("find", {"question": odd, "top": odd}),
            ("ask", {"path": "bad.pdf", "question": "w1?"}),
            ("verify", {"path": path, "text": "w1 w2 w3 w4."}),
            ("verify", {"path": "a.pdf", "text": odd}),
            ("extract", {"path": path, "schema": FIELDS}),
            ("extract", {"path": "a.pdf", "schema": odd}),
            ("extract", {"path": "a.pdf", "schema": rng.choice(SCHEMAS)}),
            (rng.choice(("shell", "", "read\0", "x" * 10_000)), {"path": path}),
        ]
    )


def make_place(folder: Path) -> Path:
    """A folder that may be read, inside one that may not."""
    own = folder / "own"
    own.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    (own / "a.pdf").write_bytes(pdf_bytes([["w1 w2 w3 w4 w5."] * 5]))
    (own / "bad.pdf").write_bytes(b"%PDF-1.4\n1 0 obj<</Length 99999999999>>stream\n" + b"9" * 1000)
    (own / "link.txt").symlink_to(folder / "secret.txt")
    (own / "up").symlink_to(folder)
    (own / "loop").symlink_to(own / "loop")
    os.mkfifo(own / "pipe")
    return own


async def attack(server: Any, calls: int) -> Tally:
    """So many calls, some at once, then an honest one."""
    from mcp import Client, MCPError

    tally, free = Tally(), asyncio.Semaphore(AT_ONCE)
    async with Client(server, read_timeout_seconds=300) as client:

        async def one(number: int) -> None:
            tool, given = a_call(number)
            async with free:
                try:
                    result = await client.call_tool(tool, given)
                    said, kind = str(result.content), "error" if result.is_error else "answer"
                    said += str(result.structured_content)
                except MCPError as error:
                    said, kind = str(error), "protocol error"
            tally.kinds[kind] += 1
            if "Traceback" in said or SECRET in said or "root:" in said:
                tally.bad.append(f"{tool} {str(given)[:200]}: {said[:300]}")

        await asyncio.gather(*(one(number) for number in range(calls)))
        honest = await client.call_tool("ask", {"path": "a.pdf", "question": "w1 w2?"})
        if honest.is_error or not honest.structured_content["answers"]:
            tally.bad.append(f"an honest question: {honest.content}")
    return tally


def run(calls: int) -> Tally:
    """Against a server in a process of its own."""
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    with tempfile.TemporaryDirectory() as name, (Path(name) / "log.txt").open("w+") as log:
        folder = Path(name)
        own, model = make_place(folder), small_model.saved(folder / "model")
        options = ["-m", "vcc.cli", "mcp", str(own), "--model", model, "--no-cache", "--seconds", "5", "--wait", "60"]
        given = {**os.environ, "OMP_NUM_THREADS": "1"}
        started = StdioServerParameters(command=sys.executable, args=options, env=given)
        tally = asyncio.run(attack(stdio_client(started, errlog=log), calls))
        log.seek(0)
        said = log.read()
        if "Traceback" in said or SECRET in said:
            tally.bad.append(f"the log: {said[-2000:]}")
    return tally


def run_http(calls: int) -> Tally:
    """Against a service in a process of its own, with the same documents uploaded."""
    from mcp.client.streamable_http import streamable_http_client

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own, model = make_place(folder), small_model.saved(folder / "model")
        with running(folder / "service", "--model", model, "--reading", "5") as service:
            assert service.upload((own / "a.pdf").read_bytes(), "a.pdf").status_code == 202
            tally = asyncio.run(attack(streamable_http_client(f"{service.address}/mcp"), calls))
            said = service.log.read_text()
            if "Traceback" in said or SECRET in said:
                tally.bad.append(f"the log: {said[-2000:]}")
    return tally


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    tally = (run_http if "--http" in sys.argv else run)(numbers[0] if numbers else 500)
    print(dict(tally.kinds))
    print("\n".join(tally.bad) or "no traceback, no leak, and an honest question is answered")
    sys.exit(bool(tally.bad))
