"""A service in a process of its own, as `vcc serve` starts it, for tests and scripts."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx


@dataclass(frozen=True)
class Running:
    process: "subprocess.Popen[str]"
    address: str
    log: Path

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=60, **options)

    def upload(
        self, data: bytes, name: str = "a.txt", wait: int = 60, client: httpx.Client | None = None
    ) -> httpx.Response:
        with client or self.client() as one:
            return one.post("/v1/documents", files={"file": (name, data)}, params={"wait": wait})

    def children(self) -> list[int]:
        """The processes that read files."""
        found = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(number) for file in found for number in file.read_text().split()]

    def memory(self) -> int:
        """Bytes of RAM in use."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running(folder: Path, *options: str, **environment: str) -> Iterator[Running]:
    """Started, and ended with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "vcc.cli", "serve", "--port", "0", "--folder", str(folder / "kept"), *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("vcc: at http://"), (line, log.read_text())
        service = Running(process, line.split()[-1], log)
        until(lambda: healthy(service.address))
        yield service
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()


def healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health").status_code == 200
    except httpx.HTTPError:
        return False


def until(true: Any, seconds: float = 60) -> Any:
    """What `true` gives as soon as that counts as true."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.05)
    return found
