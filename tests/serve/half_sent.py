"""1,300 half-sent headers on this machine, with a soft limit of 1,024 open files: `make test-hostile`.

`/health` must answer within a second more than before throughout, and the log stay short. It takes less than a minute.
"""

import resource
import socket
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.documents import small_model
from tests.serve.running import Running, running

CONNECTIONS, SECONDS, FILES, LOG = 1_300, 30.0, 1_024, 100_000


def main() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * CONNECTIONS:
        print(f"only {hard} open files are allowed here: it cannot be tried")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        model = small_model.saved(Path(folder) / "model")
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))  # the service inherits it
        with running(Path(folder), "--model", model) as service:
            resource.setrlimit(resource.RLIMIT_NOFILE, (2 * CONNECTIONS, hard))
            return check(service)


def check(service: Running) -> int:
    place = urlsplit(service.address)
    quiet, waits = max(health(service) for _ in range(10)), list[float]()
    with ExitStack() as lines:
        opened = []
        for number in range(CONNECTIONS):
            with suppress(OSError):
                opened.append(lines.enter_context(socket.create_connection((place.hostname, place.port), timeout=5)))
                opened[-1].sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: ")
            if number % 100 == 99:
                waits.append(health(service))
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for line in opened:
                with suppress(OSError):
                    line.send(b"a")
            waits.append(health(service))
            time.sleep(0.5)
    size, faults = service.log.stat().st_size, service.log.read_text().count("Traceback")
    print(f"{len(opened)} connections with half-sent headers; /health {len(waits)} times, at most {max(waits):.2f} s")
    print(f"before: at most {quiet:.2f} s")
    print(f"the log has {size:,} bytes and {faults} faults")
    return int(max(waits) > 1 + quiet or size > LOG or faults > 0)


def health(service: Running) -> float:
    start = time.monotonic()
    try:
        assert httpx.get(f"{service.address}/health", timeout=10).status_code == 200
    except httpx.HTTPError:
        return 10.0
    return time.monotonic() - start


if __name__ == "__main__":
    sys.exit(main())
