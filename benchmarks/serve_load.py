"""Load test of the service: questions per second, latency, errors, memory: `make bench-serve`.

    python benchmarks/serve_load.py --rate 50 --documents 20 --seconds 600

Starts a service on this machine, uploads contracts, and asks at a fixed rate, whether or not earlier answers have
arrived (an open loop: a service that cannot keep up shows it in its latency). Each question is one of the 41 clauses,
or of the first --questions of them, on one of the documents. The service caches replies, so eventually most questions
are cached, and --warm asks all of them first; --distinct makes every question new, which measures the model alone.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.serve.running import Running, running
from vcc.qa.clauses import CLAUSES

LANES = 64  # concurrent questions at most; waiting for a lane counts as latency
CONTRACT = Path(__file__).parents[1] / "examples" / "contract.txt"


def documents(number: int, words: int) -> list[bytes]:
    """Contracts that differ: the paragraphs of the example in another order, each of about `words` words."""
    paragraphs = CONTRACT.read_text(encoding="utf-8").split("\n\n")
    made = []
    for seed in range(number):
        order = random.Random(seed).sample(paragraphs, len(paragraphs))
        made.append(" ".join("\n\n".join(order).split(" ")[:words]).encode())
    return made


async def load(
    service: Running, ids: list[str], options: argparse.Namespace
) -> tuple[list[float], Counter[str], list[int]]:
    """The latency of each answer from its scheduled time, the replies, and samples of the memory."""
    rng, seconds, codes, memory = random.Random(0), list[float](), Counter[str](), list[int]()
    questions = [clause.question for clause in CLAUSES[: options.questions]]
    due: asyncio.Queue[tuple[float, int] | None] = asyncio.Queue()

    async def lane() -> None:
        """One connection: httpx itself is slow with many in one client."""
        async with httpx.AsyncClient(base_url=service.address, timeout=130, verify=False) as client:  # no TLS here
            while (one := await due.get()) is not None:
                planned, number = one
                question = rng.choice(questions) + (f" ({number})" if options.distinct else "")
                body = {"questions": [question], "top": 1}
                try:
                    answer = await client.post(f"/v1/documents/{rng.choice(ids)}/ask", json=body)
                    codes[str(answer.status_code)] += 1
                except httpx.HTTPError as error:
                    codes[type(error).__name__] += 1
                seconds.append(time.perf_counter() - planned)

    lanes = [asyncio.create_task(lane()) for _ in range(LANES)]
    start = time.perf_counter()
    for number in range(int(options.rate * options.seconds)):
        planned = start + number / options.rate
        await asyncio.sleep(max(planned - time.perf_counter(), 0))
        due.put_nowait((planned, number))
        if number % max(int(options.rate * 5), 1) == 0:
            memory.append(service.memory())
    for _ in lanes:
        due.put_nowait(None)
    await asyncio.gather(*lanes)
    return seconds, codes, memory


def warm(service: Running, ids: list[str], number: int) -> None:
    """The first `number` clauses asked of every document once, as a review does."""
    questions = [clause.question for clause in CLAUSES[:number]]
    with service.client() as client:
        for id in ids:
            while client.post(f"/v1/documents/{id}/ask", json={"questions": questions}, timeout=200).status_code != 200:
                time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50, help="questions a second")
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--words", type=int, default=3000, help="of each document")
    parser.add_argument("--questions", type=int, default=len(CLAUSES), help="different ones, of the 41 clauses")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--distinct", action="store_true", help="ask no question twice: nothing is cached")
    parser.add_argument(
        "--warm", action="store_true", help="ask every question on every document once before measuring"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), "--max-requests", "512", OMP_NUM_THREADS="2") as service,
    ):
        ids = [service.upload(data).json()["id"] for data in documents(options.documents, options.words)]
        if options.warm:
            warm(service, ids, options.questions)
        start = time.perf_counter()
        seconds, codes, memory = asyncio.run(load(service, ids, options))
        took = time.perf_counter() - start
    ranked = sorted(seconds)
    figures = {
        "answers": len(ranked),
        "answers_per_second": round(len(ranked) / took, 2),
        "codes": dict(codes),
        **{f"p{p}_ms": round(1000 * ranked[min(len(ranked) * p // 100, len(ranked) - 1)], 1) for p in (50, 95, 99)},
        "memory_mb": [round(size / 1e6) for size in (memory[0], memory[len(memory) // 2], memory[-1])],
    }
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
