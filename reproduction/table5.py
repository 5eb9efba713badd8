"""Table 5: how long the inputs are."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.experiment import Experiment, ProcessStep, Workspace, missing_packages
from reproduction.protocol import HUB
from reproduction.report import Report, ReportTable
from vcc.data.features import ExampleTokenizer
from vcc.errors import UsageError
from vcc.files import write_whole
from vcc.hosts import load
from vcc.hosts.quiet import quiet
from vcc.tasks import SPLITS, TASKS

# (75th, 95th) percentile of tokens; for T5, of the input and of the text to write.
ROBERTA = {"hotpotqa": ((1535,), (1928,)), "quality": ((7603,), (8495,)), "wikihop": ((2204,), (3861,))}
T5 = {
    "wikihop": ((2399, 6), (4206, 9)),
    "hotpotqa": ((1692, 6), (2129, 10)),
    "qasper": ((7029, 29), (10920, 71)),
    "quality": ((7747, 17), (8603, 28)),
    "contract_nli": ((2991, 4), (5061, 4)),
    "narrative_qa": ((90482, 10), (260533, 18)),
    "cnn_dailymail": ((1242, 87), (1946, 130)),
    "mediasum": ((2621, 29), (5061, 64)),
    "arxiv": ((13477, 364), (26024, 759)),
    "summ_screen_fd": ((12119, 188), (16722, 330)),
    "gov_report": ((13304, 811), (23795, 983)),
    "qmsum": ((19988, 110), (31749, 162)),
    "multinews": ((3032, 379), (6676, 468)),
}
LONGEST = 2**20


class Table5(Experiment):
    """Percentiles of lengths in tokens, of every task and tokenizer."""

    name = "table 5"
    title = "lengths of inputs and outputs in tokens"
    claim = "Inputs are longer than 512 tokens everywhere, longer than 4K in most tasks, and NarrativeQA's than 64K."

    def rows(self, at: Workspace) -> list[tuple[str, str, Any]]:
        found = [("RoBERTa", task, paper) for task, paper in ROBERTA.items()]
        return found + [("T5", task, paper) for task, paper in T5.items()]

    def tokenizer(self, at: Workspace, family: str) -> str:
        """The published tokenizer; at small scale, that of the given checkpoint."""
        named = at.model if family == "RoBERTa" else at.t5
        return named or HUB[family, "base"]

    def steps(self, at: Workspace) -> list[ProcessStep]:
        lacks: Sequence[str] = missing_packages("datasets") if at.data is None else ()
        made = []
        for family, task, _ in self.rows(at):
            if at.scale == "small" and (at.data is None or not (Path(at.data) / task).is_dir()):
                continue  # the small scale has what its folder has
            file = self.file(at, family, task)
            head = "text" if family == "T5" else TASKS[task]().heads[0]
            name = self.tokenizer(at, family)
            command = (sys.executable, "-m", "reproduction.table5", task, head, name, at.data or "", str(file))
            made.append(ProcessStep(f"lengths of {task} with {name}", command, file, 2, (), False, tuple(lacks)))
        return made

    def file(self, at: Workspace, family: str, task: str) -> Path:
        return at.out / "lengths" / f"{family}-{task}.json".lower()

    def report(self, at: Workspace) -> Report:
        rows: list[tuple[Any, ...]] = []
        for family, task, paper in self.rows(at):
            file = self.file(at, family, task)
            found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            ours = [" / ".join(f"{n:,.0f}" for n in found[key]) if key in found else None for key in ("p75", "p95")]
            theirs = [" / ".join(f"{n:,}" for n in value) for value in paper]
            rows.append((family, task, theirs[0], ours[0], theirs[1], ours[1], found.get("of")))
        columns = ("tokenizer", "task", "75th, paper", "ours", "95th, paper", "ours", "of")
        return Report(self.name, self.title, self.claim, (ReportTable("Tokens", columns, tuple(rows)),))


def main(task: str, head: str, name: str, data: str, file: str) -> None:
    """Count the tokens of every split that exists."""
    quiet()
    tokenizer = load.load_tokenizer(name)
    found, counted, problems = [], [], []
    for split in SPLITS:
        try:
            some = TASKS[task]().load(split, data or None)
        except UsageError as error:
            problems.append(str(error))
            continue
        found += [some[i] for i in range(len(some))]
        counted.append(f"{len(some):,} {split}")
    if not found:
        raise SystemExit("\n".join(problems))
    tokenize = ExampleTokenizer(tokenizer, head, LONGEST, target_length=LONGEST)  # type: ignore[arg-type]
    features = [tokenize(one) for one in found]
    counts = [[one.length for one in features]]
    if head == "text":
        counts.append([len(one.target_ids) for one in features if one.target_ids is not None])
    percentiles = {f"p{p}": [float(np.percentile(one, p)) for one in counts] for p in (75, 95)}
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_whole(Path(file), json.dumps({**percentiles, "of": ", ".join(counted)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
