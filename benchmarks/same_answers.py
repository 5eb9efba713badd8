"""Does the product still give the same answers as at another commit, and as fast?

    python -m benchmarks.same_answers ../before --data DATA --contracts 4 --others 20

Two processes, one for each checkout, read and ask the same validation documents in turn, through `vcc.read` and
`ask_all`. Printed: how many answers are the same to the last bit, how many best spans are the same, of all questions
and of those with an answer to show (a score of at least 0.1 at either commit), and the ratio of processor seconds (of
both in one run, each document by turns).
"""

import argparse
import json
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.checkouts import HERE, reply, started

SHOWN = 0.1
PARAGRAPHS, DOCUMENTS = ("squad",), ("timeqa", "fairytaleqa", "contractnli", "medquad", "privacyqa")


def cases(data: Path, contracts: int, others: int, asked: int) -> list[tuple[str, str, list[str]]]:
    """(set, text, questions): whole contracts with all questions, and texts of other sets with some of theirs."""
    from vcc.data.records import load_records

    found: list[tuple[str, str, list[str]]] = []
    for name in ("cuad", *PARAGRAPHS, *DOCUMENTS):
        by_text: dict[str, list[str]] = defaultdict(list)
        for record in load_records(name, "validation", str(data), ""):
            by_text[record.get("document", "context")].append(record.get("question"))
        number, most = (contracts, 41) if name == "cuad" else (others, asked)
        chosen = random.Random(0).sample(sorted(by_text), min(number, len(by_text)))
        found += [(name, text, by_text[text][:most]) for text in chosen]
    return found


def serve(model: str | None) -> None:
    """A child: a file and its questions come in, answers and seconds go out, a line each."""
    import time

    import vcc

    for line in sys.stdin:
        given = json.loads(line)
        document = vcc.read(given["path"])
        document.model = model
        start = time.process_time()
        document.read()
        read = time.process_time() - start
        start = time.process_time()
        replies = document.ask_all(given["questions"], top=3, threshold=0.0)
        seconds = time.process_time() - start
        answers = [[(one.text, one.start, one.end, one.score) for one in reply.answers] for reply in replies]
        print(json.dumps({"answers": answers, "read": read, "ask": seconds}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a checkout of another commit")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--contracts", type=int, default=2)
    parser.add_argument("--others", type=int, default=10, help="texts of each other set")
    parser.add_argument("--questions", type=int, default=4, help="of each of these texts")
    parser.add_argument("--model", help="folder of a model; unless given, each checkout's own")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.model)
    if given.before is None or given.data is None:
        parser.error("a checkout of another commit and --data are needed")
    words = ["--model", given.model] if given.model else []
    processes = [started(__file__, checkout, *words) for checkout in (given.before, HERE)]
    total = {
        "answers": 0,
        "same": 0,
        "questions": 0,
        "best": 0,
        "shown": 0,
        "best of shown": 0,
        "score off by, at most": 0.0,
    }
    seconds = {"read": [0.0, 0.0], "ask": [0.0, 0.0]}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, text, questions) in enumerate(
            cases(given.data, given.contracts, given.others, given.questions)
        ):
            path = Path(folder, f"{number}.txt")
            path.write_text(text, encoding="utf-8")
            order = (0, 1) if number % 2 else (1, 0)
            found = dict(
                sorted((which, reply(processes[which], {"path": str(path), "questions": questions})) for which in order)
            )
            before, now = found[0]["answers"], found[1]["answers"]
            for old, new in zip(before, now, strict=True):
                total["questions"] += 1
                best = int(old[:1] == new[:1] or bool(old and new and old[0][1:3] == new[0][1:3]))
                total["best"] += best
                if max(answer[3] for answer in [*old, *new, (0, 0, 0, 0.0)]) >= SHOWN:
                    total["shown"] += 1
                    total["best of shown"] += best
                total["answers"] += max(len(old), len(new))
                total["same"] += sum(a == b for a, b in zip(old, new, strict=False))
                off = [abs(a[3] - b[3]) for a, b in zip(old, new, strict=False) if a[1:3] == b[1:3]]
                total["score off by, at most"] = max([total["score off by, at most"], *off])
            for part, both in seconds.items():
                for which in (0, 1):
                    both[which] += found[which][part]
            print(f"{name} {len(text):,} characters, {len(questions)} questions: ", json.dumps(total), flush=True)
    for part, (old, new) in seconds.items():
        print(f"{part}: before {old:.1f} s, now {new:.1f} s, ratio {new / old:.3f}")
    print(json.dumps(total | {"seconds": seconds}))


if __name__ == "__main__":
    main()
