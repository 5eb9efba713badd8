"""Checks before every route: token, origin, limits on bodies and concurrent requests, headers, one log line."""

import asyncio
import base64
import binascii
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from vcc.serve.metrics import Metrics
from vcc.serve.settings import ServiceSettings, is_loopback

log = logging.getLogger("vcc.serve")

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

OPEN = ("/health",)  # routes that need no token
# Scripts and styles come from the service; PDF.js creates fonts and images itself.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
PORT = re.compile(r":\d+$")
BODY_EXTRA = 100_000  # bytes of a form around its file
LONGEST_PATH = 2_000


class Refused(Exception):
    """A rejected request."""

    def __init__(self, code: int, words: str, **headers: str) -> None:
        super().__init__(words)
        self.code, self.words, self.headers = code, words, headers


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: Any, settings: ServiceSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:  # web sockets are not supported
            await send({"type": "websocket.close", "code": 1008})

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id, start, code = secrets.token_hex(8), time.perf_counter(), 500
        began, replaced = False, False
        refusals: list[Refused] = []  # raised while the application read the body

        async def answer(message: Message) -> None:
            nonlocal code, began, replaced
            if replaced:
                return
            if refusals and not began:  # whatever the application made of it
                refused = refusals.pop()
                await refuse(answer, refused)
                replaced = True
                return
            if message["type"] == "http.response.start":
                code, began = message["status"], True
                own = {name for name, _ in message["headers"]}
                extra = {**HEADERS, "x-request-id": request_id}
                added = [(n.encode(), v.encode()) for n, v in extra.items() if n.encode() not in own]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        self.at_once += 1
        self.metrics.at_once.set(self.at_once)
        try:
            self.check(scope)
            await self.app(scope, self.limited(receive, refusals), answer)
        except Refused as refused:
            code = refused.code
            if not began:
                await refuse(answer, refused)
        except Exception as error:
            log.error("request %s: %s", request_id, type(error).__name__, exc_info=error)
            if not began:
                await refuse(answer, Refused(500, f"internal error; see request {request_id} in the service's log"))
        finally:
            self.at_once -= 1
            self.metrics.at_once.set(self.at_once)
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "other")  # never the path itself: it is user input
            self.metrics.requests.labels(route, method_of(scope), str(code)).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            log.info("%s %s %s %d %.0f ms", request_id, method_of(scope), route, code, 1000 * seconds)

    def check(self, scope: Scope) -> None:
        headers = headers_of(scope)
        if len(scope.get("raw_path") or scope["path"]) > LONGEST_PATH:
            raise Refused(414, "the address is too long")
        self.check_host(headers)
        if scope["path"] not in OPEN:
            self.check_token(headers)
        self.check_origin(headers)
        if self.at_once > self.settings.at_once and scope["path"] not in OPEN:
            words = f"more than {self.settings.at_once} requests at once; try again in a moment"
            raise Refused(429, words, **{"retry-after": "1"})
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise Refused(400, "content-length must be a number")
        self.check_size(int(length[:20]))

    def check_size(self, size: int) -> None:
        if size > self.settings.file_bytes + BODY_EXTRA:
            raise Refused(413, f"the request is larger than {self.settings.file_bytes:,} bytes, the limit for one file")

    def check_token(self, headers: Mapping[str, str]) -> None:
        token = self.settings.token
        if not token:
            return
        given = given_token(headers)
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):
            words = "a token is needed: Authorization: Bearer TOKEN, or X-Api-Key: TOKEN"
            raise Refused(401, words, **{"www-authenticate": 'Basic realm="vcc: any name, the token as password"'})

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Without a token, accept only local host names: another site's name could resolve to this machine."""
        host = PORT.sub("", headers.get("host", ""))
        if not self.settings.token and not is_loopback(host):
            raise Refused(403, "without a token only local host names are accepted, such as 127.0.0.1")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Reject requests from pages of other sites."""
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            raise Refused(403, "requests from pages of other sites are refused")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "requests from pages of other sites are refused")

    def limited(self, receive: Receive, refusals: list[Refused]) -> Receive:
        """The body, within its limits on size and time."""
        received, ended = 0, False
        deadline = time.monotonic() + self.settings.body_seconds

        async def next_part() -> Message:
            nonlocal received, ended
            if ended:
                return await receive()  # waits for the client to disconnect
            try:
                message = await asyncio.wait_for(receive(), max(deadline - time.monotonic(), 0.001))
            except TimeoutError:
                words = f"the request did not arrive within {self.settings.body_seconds:g} seconds"
                refusals.append(Refused(408, words))
                raise refusals[0] from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                ended = not message.get("more_body", False)
                try:
                    self.check_size(received)
                except Refused as refused:
                    refusals.append(refused)
                    raise
            return message

        return next_part


def given_token(headers: Mapping[str, str]) -> str:
    """The token of a request: a bearer token, an API key, or the password of basic authentication."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return headers.get("x-api-key", "")


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers. Security-relevant ones may not be repeated."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in found and key in ("host", "authorization", "x-api-key", "content-length", "origin", "content-type"):
            raise Refused(400, f"the header {key} occurs twice")
        found[key] = value.decode("latin-1")
    return found


def method_of(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "POST", "DELETE", "HEAD") else "other"


async def refuse(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": refused.words}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
    if refused.code in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not read
    start = {"status": refused.code, "headers": [(n.encode(), v.encode()) for n, v in headers.items()]}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": body})
