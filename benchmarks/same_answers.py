"""Does the product still give the same answers as at another commit, and as fast?

    python -m benchmarks.same_answers ../before --data DATA --contracts 4 --others 20

Two processes, one for each checkout, read and ask the same validation documents in turn, through `vcc.read` and
`ask_all`. Printed: how many answers are the same to the last bit, how many best spans are the same, of all questions
and of those with an answer to show (a score of at least 0.1 at either commit), the F1 of the best spans of each set and
CUAD's AUPR of both, and the ratio of processor seconds (of both in one run, each document by turns).

`--precisions float32,int8` gives each process its VCC_PRECISION, `--models ONE,OTHER` its model; `before` may then be
this checkout.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.checkouts import HERE, reply, started

SHOWN = 0.1
SETS = "cuad,squad,timeqa,fairytaleqa,contractnli,medquad,privacyqa"


class Case(NamedTuple):
    set: str
    text: str
    questions: list[tuple[str, list[str]]]  # with the right answers


def cases(data: Path, sets: list[str], contracts: int, others: int, asked: int, longest: int) -> list[Case]:
    """Whole contracts with all questions, and texts of other sets with some of theirs."""
    from vcc.data.records import load_records

    found: list[Case] = []
    for name in sets:
        by_text: dict[str, list[tuple[str, list[str]]]] = defaultdict(list)
        for record in load_records(name, "validation", str(data), ""):
            by_text[record.get("document", "context")].append(
                (record.get("question"), record.get("answers", kind=list))
            )
        number, most = (contracts, 41) if name == "cuad" else (others, asked)
        texts = sorted(text for text in by_text if len(text) <= longest)
        chosen = random.Random(0).sample(texts, min(number, len(texts)))
        found += [Case(name, text, by_text[text][:most]) for text in chosen]
    return found


class Scores:
    """How right the answers of one process are: F1 of the best spans by set, AUPR of CUAD's questions."""

    def __init__(self) -> None:
        from vcc.data.example import Example, Prediction

        self.f1s: dict[str, list[float]] = defaultdict(list)
        self.clauses: list[tuple[Prediction, Example]] = []

    def add(self, case: Case, number: int, answers: list[list[Any]]) -> None:
        from vcc.data.example import Example, Prediction
        from vcc.tasks.metrics import best_of, word_f1

        for i, ((question, right), found) in enumerate(zip(case.questions, answers, strict=True)):
            if right:
                self.f1s[case.set].append(100 * best_of(word_f1, found[0][0] if found else "", right))
            if case.set == "cuad":
                example = Example(f"{number}.{i}", question, "", tuple(right), group=str(number))
                said = tuple((text, score) for text, _, _, score in found)
                self.clauses.append((Prediction(example.id, spans=said), example))

    def figures(self) -> dict[str, float]:
        from vcc.tasks.metrics import clause_scores

        every = [one for some in self.f1s.values() for one in some]
        found = {f"F1 {name} ({len(some)})": sum(some) / len(some) for name, some in self.f1s.items()}
        found[f"F1 of all ({len(every)})"] = sum(every) / max(len(every), 1)
        if self.clauses:
            found[f"AUPR cuad ({len(self.clauses)})"] = clause_scores(*zip(*self.clauses, strict=True))["aupr"]
        return {name: round(value, 2) for name, value in found.items()}


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
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--contracts", type=int, default=2)
    parser.add_argument("--others", type=int, default=10, help="texts of each other set")
    parser.add_argument("--questions", type=int, default=4, help="of each of these texts")
    parser.add_argument("--longest", type=int, default=10**9, help="characters of a text")
    parser.add_argument("--precisions", default="", help="VCC_PRECISION of both, separated by a comma")
    parser.add_argument(
        "--models", default="", help="folders of models, separated by a comma; else each checkout's own"
    )
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.model)
    if given.before is None or given.data is None:
        parser.error("a checkout of another commit and --data are needed")
    models = given.models.split(",") if given.models else []
    precisions = given.precisions.split(",") if given.precisions else []
    processes = [
        started(
            __file__,
            checkout,
            *(["--model", models[which]] if models else []),
            **({"VCC_PRECISION": precisions[which]} if precisions else {}),
        )
        for which, checkout in enumerate((given.before, HERE))
    ]
    total = {
        "answers": 0,
        "same": 0,
        "questions": 0,
        "best": 0,
        "shown": 0,
        "best of shown": 0,
        "score off by, at most": 0.0,
    }
    seconds, scores = {"read": [0.0, 0.0], "ask": [0.0, 0.0]}, (Scores(), Scores())
    wanted = cases(given.data, given.sets.split(","), given.contracts, given.others, given.questions, given.longest)
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(wanted):
            path = Path(folder, f"{number}.txt")
            path.write_text(case.text, encoding="utf-8")
            order = (0, 1) if number % 2 else (1, 0)
            request = {"path": str(path), "questions": [question for question, _ in case.questions]}
            found = {which: reply(processes[which], request) for which in order}
            for which, own in enumerate(scores):
                own.add(case, number, found[which]["answers"])
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
            told = f"{case.set} {len(case.text):,} characters, {len(case.questions)} questions: "
            print(told, json.dumps(total), flush=True)
    for part, (old, new) in seconds.items():
        print(f"{part}: before {old:.1f} s, now {new:.1f} s, ratio {new / old:.3f}")
    for name, before_score in scores[0].figures().items():
        print(f"{name}: before {before_score}, now {scores[1].figures()[name]}")
    print(json.dumps(total | {"seconds": seconds}))


if __name__ == "__main__":
    main()
