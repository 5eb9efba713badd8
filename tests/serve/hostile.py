"""1,000 hostile requests to a service on this machine: `make test-hostile`. Bounded in number and time.

It must not crash, answer no 5xx but 503 and 504, keep its memory bounded, and answer an honest request afterwards.
"""

import argparse
import gzip
import io
import random
import socket
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.documents import small_model
from tests.documents.samples import pdf_bytes
from tests.serve.running import Running, running

ALLOWED = {503, 504}
MEMORY = 600_000_000  # bytes that it may grow by
LIMITS = (
    "--max-size",
    "2",
    "--body",
    "2",
    "--reading",
    "3",
    "--max-requests",
    "32",
    "--wait",
    "20",
    "--max-tokens",
    "200000",
)
ENTITIES = b"<!DOCTYPE a [<!ENTITY a 'ha'>" + b"".join(
    b"<!ENTITY %c '&%c;&%c;&%c;&%c;&%c;&%c;&%c;&%c;'>" % (n + 1, *[n] * 8) for n in range(97, 110)
)
NAMES = (
    "../../../etc/passwd",
    "C:\\windows\\win.ini",
    "a\0b.txt",
    "con.pdf",
    "a" * 5000 + ".txt",
    "\u202egpj.txt",
    ".",
    "",
)
PATHS = (
    *(
        "/static/../../../../etc/passwd",
        "/static/%2e%2e%2f%2e%2e%2fapp.py",
        "/static//etc/passwd",
        "/static/..%5capp.py",
    ),
    *(
        "/v1/documents/../../etc/passwd",
        "/v1/documents/%00",
        "/v1/documents/" + "0" * 32 + "/file",
        "/v1/documents/a%2fb/text",
    ),
    *(
        "/" + "a" * 9000,
        "//evil.example/",
        "/%ff%fe",
        "/v1/documents?" + "a=b&" * 3000,
        "/openapi.json/..",
        "/v1/reviews/x/review.xlsx",
    ),
)


def archive(name: str, data: bytes, copies: int = 1) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("[Content_Types].xml", "<Types/>")
        for number in range(copies):
            made.writestr(name if not number else f"{name}.{number}", data)
    return out.getvalue()


def files(rng: random.Random) -> tuple[str, bytes]:
    """A file that does harm, or tries."""
    deep = b"<a>" * 50_000
    pdf = bytearray(pdf_bytes([["w1 w2 w3"]] * 3))
    for _ in range(20):
        pdf[rng.randrange(len(pdf))] = rng.randrange(256)
    choices: list[tuple[str, bytes]] = [
        ("bomb.docx", archive("word/document.xml", b"0" * 40_000_000)),
        ("many.epub", archive("META-INF/container.xml", b"<a/>", 3000)),
        ("entities.docx", archive("word/document.xml", ENTITIES + b"]><a>&n;</a>")),
        ("entities.html", ENTITIES + b"]><html>&n;</html>"),
        ("deep.html", b"<html>" + deep),
        ("deep.docx", archive("word/document.xml", deep)),
        ("deep.md", b">" * 100_000 + b"w1"),
        ("links.md", b"[" * 50_000 + b"](" * 50_000),
        ("broken.pdf", bytes(pdf)),
        ("loop.pdf", b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 1 0 R/Kids[1 0 R]>>endobj\ntrailer<</Root 1 0 R>>"),
        ("huge.pdf", b"%PDF-1.4\n1 0 obj<</Length 99999999999>>stream\n" + b"9" * 1000),
        ("noise.txt", rng.randbytes(5000)),
        ("utf8.txt", b"w1 \xff\xfe\xed\xa0\x80 w2 \xc0\xaf"),
        ("utf16.txt", b"\xff\xfe" + rng.randbytes(999)),
        ("long.txt", b"w1" * 900_000),
        ("zip.txt", gzip.compress(b"0" * 1_000_000)),
        ("a.exe", b"MZ" + rng.randbytes(100)),
    ]
    name, data = rng.choice(choices)
    return (rng.choice(NAMES) if rng.random() < 0.2 else name), data


def raw(service: Running, data: bytes, pause: float = 0.0) -> int:
    """Bytes as they are; the code of what comes back, 0 if the connection was closed without a word."""
    place = urlsplit(service.address)
    with socket.create_connection((place.hostname, place.port), timeout=20) as line:
        try:
            half = len(data) // 2
            line.sendall(data[:half])
            time.sleep(pause)
            line.sendall(data[half:])
            got = line.recv(200)
        except OSError:
            return 0
    words = got.split()
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") else 0


def attack(service: Running, number: int) -> int:
    """One request, chosen by its number; the code of the answer, 0 for none."""
    rng = random.Random(number)
    host = service.address.removeprefix("http://").encode()
    head = b"POST /v1/documents HTTP/1.1\r\nHost: " + host + b"\r\n"

    def send(method: str, path: str, **options: object) -> int:
        try:
            return httpx.request(method, service.address + path, timeout=60, **options).status_code  # type: ignore[arg-type]
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, ValueError):
            return 0

    def upload() -> int:
        name, data = files(rng)
        return send("POST", "/v1/documents", files={"file": (name, data)}, params={"wait": rng.choice((0, 5))})

    json = {"content-type": "application/json"}
    kinds: list[Callable[[], int]] = [
        upload,
        upload,
        upload,
        lambda: send("GET", rng.choice(PATHS)),
        lambda: send(rng.choice(("PUT", "PATCH", "TRACE", "OPTIONS", "FOO")), "/v1/documents"),
        lambda: send("POST", "/v1/reviews", content=b"[" * 100_000, headers=json),
        lambda: send("POST", "/v1/reviews", content=b'{"documents": ["\xff\xfe"]}', headers=json),
        lambda: send(
            "POST",
            "/v1/reviews",
            content=b'{"documents": ["\\ud800"], "questions": [{"question": "\\ud800"}]}',
            headers=json,
        ),
        lambda: send("POST", "/v1/reviews", json={"documents": ["x"] * 100_000}),
        lambda: send("POST", "/v1/documents", content=b"0" * 3_000_000),
        lambda: send("POST", "/v1/documents", files={f"f{n}": b"x" for n in range(300)}),
        lambda: send(
            "POST", "/v1/reviews/questions", files={"file": ("a.yaml", b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]")}
        ),
        lambda: send("POST", "/v1/reviews/questions", files={"file": ("a.yaml", b"[" * 5000)}),
        lambda: send("GET", "/v1/documents", headers={"origin": "https://evil.example"}),
        lambda: send("GET", "/v1/documents", headers={"host": "evil.example"}),
        lambda: send("GET", "/", headers={f"x-{n}": "a" * 200 for n in range(200)}),
        lambda: raw(service, head + b"Content-Length: 99999999999\r\n\r\nx"),
        lambda: raw(service, head + b"Content-Length: -5\r\n\r\n"),
        lambda: raw(service, head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
        lambda: raw(service, head + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nfffffffffff\r\n"),
        lambda: raw(
            service,
            head
            + b"Content-Type: multipart/form-data; boundary="
            + b"a" * 5000
            + b"\r\nContent-Length: 9\r\n\r\n--a\r\n\r\n\r\n",
        ),
        lambda: raw(service, rng.randbytes(500) + b"\r\n\r\n"),
        lambda: raw(service, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"),
        lambda: raw(service, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nHost: evil.example\r\n\r\n"),
        lambda: raw(service, head + b"Content-Length: 50\r\n\r\nslowly", 3.0 if number % 5 == 0 else 0.0),
    ]
    return kinds[number % len(kinds)]()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000, help="the last 200 of them at once")
    parser.add_argument("--seconds", type=float, default=1_200, help="then it stops, and says how many were sent")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = small_model.saved(Path(folder) / "model")
        with running(Path(folder), "--model", model, *LIMITS) as service:
            return check(service, given.requests, given.seconds)


def check(service: Running, requests: int, most_seconds: float) -> int:
    good = service.upload(small_model.text(100).encode()).json()["id"]
    before, most, start = service.memory(), 0, time.monotonic()
    codes: Counter[int] = Counter()
    with ThreadPoolExecutor(16) as pool:  # then 200 at once
        for some in range(0, requests - 200, 50):
            if time.monotonic() - start > most_seconds:
                break
            codes.update(pool.map(lambda n: attack(service, n), range(some, some + 50)))
            most = max(most, service.memory())
    with ThreadPoolExecutor(200) as pool:
        codes.update(pool.map(lambda n: attack(service, n), range(requests - 200, requests)))
    most = max(most, service.memory())
    honest = service.client().post(f"/v1/documents/{good}/ask", json={"questions": ["w5?"]})
    seconds, grown = time.monotonic() - start, most - before
    print(f"{sum(codes.values())} requests in {seconds:.0f} s; codes {dict(sorted(codes.items()))}")
    print(f"memory {before / 1e6:.0f} MB before, {most / 1e6:.0f} MB at most; honest question: {honest.status_code}")
    bad = [code for code in codes if code >= 500 and code not in ALLOWED]
    faults = service.log.read_text().count("Traceback")
    alive = service.process.poll() is None
    print(f"faults in the log: {faults}; still running: {alive}; codes that must not be: {bad or 'none'}")
    return int(bool(bad) or not alive or honest.status_code != 200 or grown > MEMORY or faults > 0)


if __name__ == "__main__":
    sys.exit(main())
