"""The service as users load it: uploads, questions, searches, reviews and deletions together, while readers are killed.

    python -m tests.serve.load --seconds 600 --clients 16 --documents 80

It keeps about so many documents, with a small model. It must answer no 5xx but 503, 504 and 507, lose no document that
it has accepted and fail none, leave nothing of deleted documents on disk, and hold its memory. The exit code says
whether it did.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.documents import small_model
from tests.documents.samples import pdf_bytes
from tests.serve.running import Running, running, until

ALLOWED = {503, 504, 507}
MEMORY = 300_000_000  # bytes that it may grow by after the first third
KILL_EVERY = 20.0  # seconds between two readers that are killed
WEIGHTS = {"upload": 3, "ask": 8, "open": 2, "review": 1, "delete": 3, "search": 1, "load": 1, "list": 2, "watch": 1}


@dataclass
class Load:
    """What is going on, and what came of it."""

    service: Running
    documents: int
    end: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    live: dict[str, str] = field(default_factory=dict)  # a word of each document, by its id
    codes: dict[str, Counter[int]] = field(default_factory=lambda: {kind: Counter() for kind in WEIGHTS})
    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in WEIGHTS})
    memory: list[int] = field(default_factory=list)
    killed: int = 0

    def client(self, seed: int) -> None:
        rng = random.Random(seed)
        with self.service.client() as client:
            while time.monotonic() < self.end:
                kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                if len(self.live) < self.documents * 3 // 4:
                    kind = "upload"
                start = time.monotonic()
                try:
                    code = getattr(self, kind)(client, rng)
                except httpx.HTTPError:
                    code = 0  # no answer
                with self.lock:
                    self.codes[kind][code] += 1
                    self.seconds[kind].append(time.monotonic() - start)

    def some(self, rng: random.Random, number: int = 1) -> list[str]:
        with self.lock:
            return rng.sample(sorted(self.live), min(number, len(self.live)))

    def upload(self, client: httpx.Client, rng: random.Random) -> int:
        word, seed = f"w{rng.randrange(60)}", rng.randrange(10**6)
        text = f"{word} {seed} {small_model.text(rng.choice((50, 200, 800)), seed)}"
        data, name = (pdf_bytes([[text[:60]]]), "a.pdf") if rng.random() < 0.2 else (text.encode(), "a.txt")
        answer = client.post("/v1/documents", files={"file": (name, data)}, params={"wait": rng.choice((0, 30))})
        if answer.status_code == 202:
            with self.lock:
                self.live[answer.json()["id"]] = word
        return answer.status_code

    def ask(self, client: httpx.Client, rng: random.Random) -> int:
        questions = [f"w{rng.randrange(60)} w{rng.randrange(60)}?"]
        return self.of_one(
            client, rng, lambda id: client.post(f"/v1/documents/{id}/ask", json={"questions": questions})
        )

    def open(self, client: httpx.Client, rng: random.Random) -> int:
        kind = rng.choice(("text", "file", "heatmap"))
        if kind == "heatmap":
            question = {"question": f"w{rng.randrange(60)}?"}
            return self.of_one(client, rng, lambda id: client.post(f"/v1/documents/{id}/heatmap", json=question))
        return self.of_one(client, rng, lambda id: client.get(f"/v1/documents/{id}/{kind}"))

    def search(self, client: httpx.Client, rng: random.Random) -> int:
        """Among all documents, or among texts that are not kept."""
        question = f"w{rng.randrange(60)}?"
        if rng.random() < 0.5:
            return client.post("/v1/find", json={"question": question}).status_code
        texts = [small_model.text(200, rng.randrange(100)) for _ in range(8)]
        return client.post("/v1/rerank", json={"query": question, "documents": texts}).status_code

    def load(self, client: httpx.Client, rng: random.Random) -> int:
        """A file whose text another program wants."""
        data = pdf_bytes([[small_model.text(10, rng.randrange(100))]])
        return client.put("/process", content=data, headers={"X-Filename": "a.pdf"}).status_code

    def review(self, client: httpx.Client, rng: random.Random) -> int:
        asked = {"documents": self.some(rng, 4), "questions": [{"question": f"w{n} ?"} for n in range(5)]}
        return client.post("/v1/reviews", json=asked).status_code if asked["documents"] else 202

    def delete(self, client: httpx.Client, rng: random.Random) -> int:
        with self.lock:  # the others may be asking it at this moment
            id = rng.choice(sorted(self.live)) if len(self.live) > self.documents * 3 // 4 else None
            self.live.pop(id or "", None)
        return client.delete(f"/v1/documents/{id}").status_code if id else 204

    def list(self, client: httpx.Client, rng: random.Random) -> int:
        return client.get(rng.choice(("/v1/documents", "/metrics", "/health", "/ready"))).status_code

    def watch(self, client: httpx.Client, rng: random.Random) -> int:
        """A stream, which is left after its first event."""
        for id in self.some(rng):
            with client.stream("GET", f"/v1/documents/{id}/events") as answer:
                next(answer.iter_bytes(), b"")
                return answer.status_code
        return 200

    def of_one(self, client: httpx.Client, rng: random.Random, call: object) -> int:
        assert callable(call)
        for id in self.some(rng):
            return int(call(id).status_code)
        return 200

    def kill_readers(self) -> None:
        next_kill = time.monotonic() + KILL_EVERY / 2
        while time.monotonic() < self.end:
            time.sleep(0.5)
            self.memory.append(self.service.memory())
            if time.monotonic() > next_kill:
                for child in self.service.children()[:1]:
                    os.kill(child, signal.SIGKILL)
                    self.killed += 1
                next_kill += KILL_EVERY


def check(load: Load) -> list[str]:
    """What is wrong, after the last request."""
    wrong = []
    for kind, codes in load.codes.items():
        if bad := {code: n for code, n in codes.items() if code == 0 or (code >= 500 and code not in ALLOWED)}:
            wrong.append(f"{kind}: codes {bad}")
    with load.service.client() as client:

        def states() -> dict[str, str]:
            return {one["id"]: one["state"] for one in client.get("/v1/documents").json()["documents"]}

        until(lambda: set(states().values()) <= {"ready", "failed"}, 300)
        found = states()
        if lost := load.live.keys() - found.keys():
            wrong.append(f"{len(lost)} documents are lost")
        if failed := sum(state == "failed" for state in found.values()):
            wrong.append(f"{failed} good documents are failed")
        for id in found:
            if client.delete(f"/v1/documents/{id}").status_code != 204:
                wrong.append(f"{id} cannot be deleted")
    kept = load.service.log.parent / "kept"

    def left() -> list[str]:
        return [path.name for path in kept.rglob("*") if path.is_file() and path.name != "lock"]

    try:
        until(lambda: not left(), 30)
    except AssertionError:
        wrong.append(f"left on disk: {left()[:5]}")
    early, late = load.memory[len(load.memory) // 3], load.memory[-1]
    if late - early > MEMORY:
        wrong.append(f"memory grows from {early / 1e6:.0f} to {late / 1e6:.0f} MB")
    if faults := load.service.log.read_text().count("Traceback"):
        wrong.append(f"{faults} faults in the log")
    if load.service.process.poll() is not None:
        wrong.append("the service has ended")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--documents", type=int, default=80, help="that are kept, about")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = small_model.saved(Path(folder) / "model")
        with running(Path(folder), "--model", model, "--keep-size", "100") as service:
            load = Load(service, given.documents, time.monotonic() + given.seconds)
            with ThreadPoolExecutor(given.clients + 1) as pool:
                work = [pool.submit(load.client, seed) for seed in range(given.clients)]
                work.append(pool.submit(load.kill_readers))
            for one in work:
                one.result()
            wrong = check(load)
    print("| request | number | codes | p50 | p95 | slowest |\n|---|---|---|---|---|---|")
    for kind, seconds in load.seconds.items():
        ranked = sorted(seconds) or [0.0]
        times = [ranked[min(len(ranked) * part // 100, len(ranked) - 1)] for part in (50, 95, 100)]
        codes = ", ".join(f"{code}: {number}" for code, number in sorted(load.codes[kind].items()))
        print(f"| {kind} | {len(seconds)} | {codes} | " + " | ".join(f"{1000 * one:.0f} ms" for one in times) + " |")
    memory = [load.memory[len(load.memory) * part // 3 - (part == 3)] / 1e6 for part in range(4)]
    print(f"\n{load.killed} readers killed; memory {' '.join(f'{size:.0f}' for size in memory)} MB, in thirds")
    print("\n".join(wrong) or "nothing lost, nothing left, nothing failed")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
