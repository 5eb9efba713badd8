"""What stands before every route: token, origin, limits on bodies and on concurrent requests, headers, one log line.

A request counts as work once its body is there. Before that it is arriving, and when too many are, the slowest makes
room; event streams are counted apart. So neither slow nor patient clients take the places of others.
"""

import asyncio
import base64
import binascii
import contextlib
import hmac
import json
import logging
import re
import secrets
import time
from asyncio import sleep
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
RETRY = {"retry-after": "1"}
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
STREAMS = 256  # event streams
SLOW = 10_000  # bytes a second: a body that comes in more slowly makes room for others, if there is no other place
LOOK = 1.0  # seconds between two looks at whether it must
WRONG_SECONDS = 0.5  # that the answer to a wrong token takes
WRONG_AT_ONCE = 8  # of one client: then no token of that client is looked at


class Refused(Exception):
    """A rejected request."""

    def __init__(self, code: int, words: str, **headers: str) -> None:
        super().__init__(words)
        self.code, self.words, self.headers = code, words, headers


@dataclass(eq=False)
class Arrival:
    """A body on its way."""

    started: float = field(default_factory=time.monotonic)
    received: int = 0
    makes_room: bool = False

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    @property
    def speed(self) -> float:
        return self.received / max(self.age, LOOK)


class Places:
    """So many things of a kind at a time, three quarters of them for one client."""

    def __init__(self, most: int, words: str) -> None:
        self.most, self.words = most, words
        self.share = most if most < 4 else most * 3 // 4
        self.taken = 0
        self.of_client: Counter[str] = Counter()

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        if self.taken >= self.most or (client and self.of_client[client] >= self.share):
            raise Refused(429, f"more than {self.most} {self.words} at once; try again in a moment", **RETRY)
        self.taken += 1
        self.of_client[client] += 1
        try:
            yield
        finally:
            self.taken -= 1
            self.of_client[client] -= 1
            if not self.of_client[client]:
                del self.of_client[client]


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: Any, settings: ServiceSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.work = Places(settings.at_once, "requests")
        self.streams = Places(STREAMS, "event streams")
        self.arriving: dict[Arrival, None] = {}
        self.wrong: Counter[str] = Counter()  # wrong tokens that are being answered, by client

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

        scope["request_id"] = request_id
        try:
            headers = headers_of(scope)
            await self.check(scope, headers)
            with ExitStack() as places:
                arrival = self.admit(scope, headers, places)
                await self.app(scope, self.limited(scope, receive, refusals, places, arrival), answer)
        except Refused as refused:
            code = refused.code
            if not began:
                await refuse(answer, refused)
        except Exception as error:
            log.error("request %s: %s", request_id, type(error).__name__, exc_info=error)
            if not began:
                await refuse(answer, Refused(500, fault_words(request_id)))
        finally:
            self.metrics.at_once.set(self.work.taken)
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "other")  # never the path itself: it is user input
            self.metrics.requests.labels(route, method_of(scope), str(code)).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            log.info("%s %s %s %d %.0f ms", request_id, method_of(scope), route, code, 1000 * seconds)

    async def check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        if len(scope.get("raw_path") or scope["path"]) > LONGEST_PATH:
            raise Refused(414, "the address is too long")
        self.check_host(headers)
        if scope["path"] not in OPEN:
            await self.check_token(headers, client_of(scope))
        self.check_origin(headers)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise Refused(400, "content-length must be a number")
        self.check_size(int(length[:20]))

    def admit(self, scope: Scope, headers: Mapping[str, str], places: ExitStack) -> Arrival | None:
        """Take a place: of a stream, of work, or of a body that arrives, which is then returned."""
        client = client_of(scope)
        if scope["path"] in OPEN:
            return None
        if scope["method"] == "GET" and scope["path"].endswith("/events"):
            places.enter_context(self.streams.one(client))
        elif headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            places.enter_context(self.work.one(client))
            self.metrics.at_once.set(self.work.taken)
        else:
            with self.work.one(client):  # if there is no place for the work, it need not arrive
                self.make_room()
            arrival = Arrival()
            self.arriving[arrival] = None
            places.callback(self.arriving.pop, arrival, None)
            return arrival
        return None

    def make_room(self) -> None:
        """For a body: the slowest of those that arrive has to go, if it is slow."""
        if len(self.arriving) < self.settings.at_once:
            return
        slowest = min(self.arriving, key=lambda arrival: arrival.speed)
        if slowest.age < LOOK or slowest.speed > SLOW:
            raise Refused(429, f"more than {self.settings.at_once} uploads at once; try again in a moment", **RETRY)
        slowest.makes_room = True
        del self.arriving[slowest]

    def check_size(self, size: int) -> None:
        if size > self.settings.file_bytes + BODY_EXTRA:
            raise Refused(413, f"the request is larger than {self.settings.file_bytes:,} bytes, the limit for one file")

    async def check_token(self, headers: Mapping[str, str], client: str) -> None:
        """A wrong token is answered slowly, and a client that sends many of them is not listened to meanwhile."""
        token = self.settings.token
        if not token:
            return
        if self.wrong[client] >= WRONG_AT_ONCE:
            raise Refused(429, "too many wrong tokens from this address; try again in a moment", **RETRY)
        given = given_token(headers)
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):
            if given:
                self.wrong[client] += 1
                try:
                    await sleep(WRONG_SECONDS)
                finally:
                    self.wrong[client] -= 1
                    if not self.wrong[client]:
                        del self.wrong[client]
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

    def limited(
        self, scope: Scope, receive: Receive, refusals: list[Refused], places: ExitStack, expected: Arrival | None
    ) -> Receive:
        """The body, no larger and no slower than allowed. An expected one, when complete, takes a place of work."""
        ended, arrival = False, expected or Arrival()

        async def next_part() -> Message:
            nonlocal ended
            if ended:
                return await receive()  # waits for the client to disconnect
            try:
                message = await self.next_message(receive, arrival)
                if message["type"] == "http.request":
                    arrival.received += len(message.get("body", b""))
                    ended = not message.get("more_body", False)
                    self.check_size(arrival.received)
                if ended and expected:
                    self.arriving.pop(arrival, None)
                    places.enter_context(self.work.one(client_of(scope)))
                    self.metrics.at_once.set(self.work.taken)
            except Refused as refused:
                refusals.append(refused)
                raise
            return message

        return next_part

    async def next_message(self, receive: Receive, arrival: Arrival) -> Message:
        while (left := self.settings.body_seconds - arrival.age) > 0:
            if arrival.makes_room:
                raise Refused(408, "the request arrives too slowly while others wait; try again later")
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(receive(), min(left, LOOK))
        raise Refused(408, f"the request did not arrive within {self.settings.body_seconds:g} seconds")


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


def client_of(scope: Scope) -> str:
    """The address that a request comes from; "" where the server does not say."""
    return str((scope.get("client") or ("",))[0])


def method_of(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "POST", "DELETE", "HEAD") else "other"


def fault_words(request_id: str) -> str:
    return f"a fault of the service; its log has request {request_id}"


async def refuse(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": refused.words}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
    if refused.code in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not read
    start = {"status": refused.code, "headers": [(n.encode(), v.encode()) for n, v in headers.items()]}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": body})
