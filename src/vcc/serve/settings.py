"""Settings and limits of a service; an error about a limit names its value."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from vcc.documents.formats.gate import Limits
from vcc.errors import UsageError

MB = 1_000_000


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service."""

    folder: Path  # for uploaded files and indexes only
    host: str = "127.0.0.1"
    port: int = 8756
    token: str = field(default="", repr=False)
    model: str | None = None  # the folder of a model; None: the bundled one
    file_bytes: int = 50 * MB  # of one upload
    pages: int = 2_000
    tokens: int = 1_000_000  # of one document
    questions: int = 100  # in one request
    question_characters: int = 2_000
    reviewed: int = 50  # documents in one review
    at_once: int = 64  # requests
    connections: int = 512  # fewer, if the system allows fewer open files
    waiting: int = 200  # documents and reviews in the queue
    wait_seconds: float = 120  # a call that waits for its result
    body_seconds: float = 60  # for a request to arrive
    reading_seconds: float = 120  # for a file to become text
    reading_memory: int = 2 << 30  # bytes, for the same
    readers: int = 2  # files read concurrently
    kept_bytes: int = 10_000 * MB  # in the folder
    kept_hours: float = 24 * 30

    def __post_init__(self) -> None:
        for name in (
            "file_bytes",
            "pages",
            "tokens",
            "questions",
            "at_once",
            "connections",
            "readers",
            "kept_bytes",
            "kept_hours",
        ):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be above 0")
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port is {self.port}: it must be in 0..65535")
        if self.token and (len(self.token) < 16 or not self.token.isascii() or not self.token.isprintable()):
            raise UsageError("the token must have at least 16 characters, all printable ASCII")
        if not is_loopback(self.host) and not self.token:
            raise UsageError(
                f"host {self.host} can be reached from other machines and needs a token "
                "(--token, or the environment variable VCC_TOKEN)"
            )

    @property
    def limits(self) -> Limits:
        """Limits for the gate: a page of text rarely has 10,000 characters."""
        return Limits(
            file_bytes=self.file_bytes,
            unpacked_bytes=10 * self.file_bytes,
            characters=min(10 * self.tokens, 200_000_000),
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
