"""Connections with limits: on their number, on the time for a request's headers, and on idling.

When all places are taken, the connection that has been sending its headers longest makes room. A client that sends a
request in one piece therefore always gets in, however many others send theirs byte by byte.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
UNREAD_SECONDS = 60.0  # for a client to read what it asked for
FILES_FOR_US = 256  # files that the service itself may have open: the model, indexes, readers, uploads
ACCEPTED_IN_A_STEP = 64  # connections that the event loop takes before it looks at them: they need files too


def most_connections(wanted: int) -> int:
    """How many connections may be open: never more than there are files for. The soft limit is raised if it can be."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_FOR_US + ACCEPTED_IN_A_STEP
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(min(wanted, soft - FILES_FOR_US - ACCEPTED_IN_A_STEP), 8)


class LimitedConnection(H11Protocol):
    """One connection of the server, as uvicorn handles it, that waits for headers only so long."""

    most: ClassVar[int] = 512
    header_seconds: ClassVar[float] = HEADER_SECONDS
    arriving: ClassVar["dict[LimitedConnection, None]"] = {}  # that have not sent their headers yet, the oldest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.late: asyncio.TimerHandle | None = None
        self.unread: asyncio.TimerHandle | None = None
        self._wait_for_headers()
        if len(self.connections) > self.most:
            next(iter(self.arriving)).drop()  # perhaps this one: all others are at work

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # a request is complete, but for its body
            self._headers_are_there()
        elif self.late is None and (self.cycle is None or self.cycle.response_complete):  # the next one begins
            self._wait_for_headers()

    def on_response_complete(self) -> None:
        before = self.cycle
        super().on_response_complete()  # a request that waited in the buffer begins here
        if self.cycle is before and not self.transport.is_closing():
            self.arriving[self] = None  # idle: it makes room, too; uvicorn's own timer ends it

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_are_there()
        self._is_read()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Without a word: a client that sends or reads so slowly does not wait for one."""
        self._headers_are_there()
        self._is_read()
        self.connections.discard(self)  # it frees its place now, not when the event loop comes to it
        self.transport.abort()

    def _wait_for_headers(self) -> None:
        self.arriving.pop(self, None)
        self.arriving[self] = None
        self.late = self.loop.call_later(self.header_seconds, self.drop)

    def _wait_for_reading(self) -> None:
        """Look again in a while: a client that has read nothing by then is gone."""
        before = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < before:
                self._wait_for_reading()
            else:
                self.drop()

        self.unread = self.loop.call_later(UNREAD_SECONDS, look)

    def _is_read(self) -> None:
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def _headers_are_there(self) -> None:
        self.arriving.pop(self, None)
        if self.late is not None:
            self.late.cancel()
            self.late = None


def limited_connections(most: int, header_seconds: float = HEADER_SECONDS) -> type[LimitedConnection]:
    """The protocol of one server, with limits and a count of its own."""
    settings: dict[str, Any] = {"most": most, "header_seconds": header_seconds, "arriving": {}}
    return type("LimitedConnection", (LimitedConnection,), settings)
