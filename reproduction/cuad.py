"""CUAD's published test: 102 contracts, 41 clause questions each, through the code that `vcc review` runs.

    vcc reproduce cuad --run --data DATA                            # the bundled model
    vcc reproduce cuad --run --data DATA --model FOLDER             # another one
    python -m reproduction.cuad --data DATA --out OUT --thorough true   # every window read with every question

Measured by the publication's rules (a span is right if its words' Jaccard overlap with an answer is at least 0.5; for
Parties, also if it holds the name): AUPR and precision at 80% and 90% recall, with 95% intervals over contracts, in all
and by clause; and by ContractEval's (a reply counts if it holds every labelled span; a reply is made of the sentences
around sure answers): F1, F2, Jaccard overlap, and how often "none" is said where there is a clause. Also the F1 of the
best span where there is a clause, and how well its score tells whether there is one. `predictions.json` is what CUAD's
own script reads. Answers are kept contract by contract: a run that was ended goes on with the next.
"""

import hashlib
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from reproduction.cuad_split import contracts
from reproduction.experiment import Experiment, ProcessStep, Workspace
from reproduction.report import Report, ReportTable, Value
from vcc.commands.options import call
from vcc.data.example import Example, Prediction
from vcc.documents.document import Document
from vcc.documents.formats.read import read_data
from vcc.documents.shipped import default_model, load_asker
from vcc.errors import UsageError
from vcc.files import sha256_of, write_whole
from vcc.tasks.metrics import auc, best_of, clause_scores, jaccard, mean_scores, word_f1

TOP = 20  # spans of a clause that are ranked
PREDICTIONS, SCORES = "predictions.json", "scores.json"
# AUPR and, where it was published, precision at 80% recall; of the same 102 contracts.
PUBLISHED = (
    ("Claude Opus 4.8, the contract as a prompt", 56.1, 0.0),
    ("Claude Opus 4.6", 49.8, 0.0),
    ("RoBERTa-large, 355M, windows", 48.2, None),
    ("DeBERTa-xlarge, 900M, windows", 47.8, 44.0),
    ("RoBERTa-base, 125M, windows", 42.6, None),
    ("GPT-5.2", 42.3, 0.0),
    ("GPT-4o", 42.1, 0.0),
    ("Qwen3-14B with a span head", 38.9, None),
)
CONTRACT_EVAL = (
    ("GPT-4.1 mini", 64.4, 67.8, 43.5, 7.2),
    ("Gemini 2.5 Pro", 49.7, 60.4, 50.6, 1.1),
)  # F1 F2 Jaccard none


@dataclass(frozen=True)
class CuadOptions:
    """What is asked, and where the results go."""

    data: Annotated[Path, "folder of the data sets"]
    out: Annotated[Path, "folder to write to"]
    model: Annotated[str | None, "folder of a wrapped question-answering model; unless given, the bundled one"] = None
    contracts: Annotated[int | None, "ask only so many of the 102"] = None
    thorough: Annotated[bool, "read every window with every question, as `vcc review --thorough`"] = False


class RankedSpan(NamedTuple):
    text: str
    score: float
    sentence: str


class AskedContract(NamedTuple):
    name: str
    seconds: float
    processor_seconds: float
    spans: list[list[RankedSpan]]  # of each question, best first


def ask_contracts(options: CuadOptions) -> None:
    """Ask the official test contracts and score the answers."""
    folder = options.out / f"contracts-{fingerprint(options.model)}{'-thorough' if options.thorough else ''}"
    folder.mkdir(parents=True, exist_ok=True)
    by_contract: dict[str, list[Example]] = defaultdict(list)
    for example in contracts("test", str(options.data)):
        by_contract[str(example.group)].append(example)
    chosen = sorted(by_contract)[: options.contracts]
    examples = [example for name in chosen for example in by_contract[name]]
    asked: list[AskedContract] = []
    for number, name in enumerate(chosen, 1):
        file = folder / f"{number}.json"
        if not file.is_file():
            write_whole(file, json.dumps(ask_contract(name, by_contract[name], options.model, options.thorough)))
        asked.append(AskedContract(*json.loads(file.read_text(encoding="utf-8"))))
        if asked[-1].name != name:
            raise UsageError(f"{file} holds {asked[-1].name!r}, not {name!r}: it is from a run on other data")
        print(f"{number} of {len(chosen)}: {name}", flush=True)
    ranked = [[RankedSpan(*span) for span in spans] for contract in asked for spans in contract.spans]
    seconds = {
        "seconds_a_contract": sum(contract.seconds for contract in asked) / len(chosen),
        "processor_seconds_a_contract": sum(contract.processor_seconds for contract in asked) / len(chosen),
        "contracts": len(chosen),
    }
    threshold = load_asker(options.model).qa.settings.threshold
    best = {
        one.id: [{"text": text, "probability": chance} for text, chance in one.spans]
        for one in predictions(examples, ranked)
    }
    write_whole(options.out / PREDICTIONS, json.dumps(best))
    write_whole(options.out / SCORES, json.dumps(scores(examples, ranked, threshold) | seconds, indent=1))


def fingerprint(model: str | None) -> str:
    """Of the model and the precision it computes in: answers of another one are kept apart."""
    qa, folder = load_asker(model).qa, default_model() if model is None else Path(model)
    parts = [
        f"{path.name} {sha256_of(path)}" for path in sorted([*folder.glob("*.safetensors"), folder / "config.json"])
    ]
    parts.append(f"{next(qa.model.parameters()).dtype} {qa.fast is not None}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def ask_contract(name: str, asked: Sequence[Example], model: str | None, thorough: bool = False) -> AskedContract:
    """Read a contract and ask it all questions."""
    clock, processor = time.perf_counter(), time.process_time()
    document = Document(read_data(asked[0].document.encode(), "contract.txt"), model)
    replies = document.ask_all([example.question for example in asked], TOP, threshold=0.0, thorough=thorough)
    spans = [[RankedSpan(one.text, one.score, one.sentence) for one in reply.answers] for reply in replies]
    return AskedContract(name, time.perf_counter() - clock, time.process_time() - processor, spans)


def predictions(examples: Sequence[Example], ranked: Sequence[Sequence[RankedSpan]]) -> list[Prediction]:
    """As the publication's models hand them in: a text that stands at several places once, with its best score. Its
    script takes the last score of a repeated text."""
    return [
        Prediction(example.id, spans=tuple((one.text, one.score) for one in spans))
        for example, spans in zip(examples, ranked, strict=True)
    ]


def scores(examples: Sequence[Example], ranked: Sequence[Sequence[RankedSpan]], threshold: float) -> dict[str, Any]:
    """By all rules; answers are sure from `threshold` on, as `vcc review` shows them."""
    asked = predictions(examples, ranked)
    by_clause: dict[str, list[int]] = defaultdict(list)
    for i, example in enumerate(examples):
        by_clause[str(example.meta["category"])].append(i)
    clauses = {
        clause: clause_scores([asked[i] for i in some], [examples[i] for i in some])
        for clause, some in sorted(by_clause.items())
    }
    best = [spans[0] if spans else RankedSpan("", 0.0, "") for spans in ranked]
    there = [i for i, example in enumerate(examples) if example.answers]
    f1s = [best_of(word_f1, best[i].text, examples[i].answers) for i in there]
    said = [" ".join(dict.fromkeys(one.sentence for one in spans if one.score >= threshold)) for spans in ranked]
    return {
        "official": clause_scores(asked, examples),
        "by_clause": {clause: {"aupr": own["aupr"], "p80": own["p80"]} for clause, own in clauses.items()},
        "contract_eval": contract_eval(said, [example.answers for example in examples]),
        "best_span": (mean_scores({"f1": f1s}, [examples[i] for i in there]) if there else {"f1": math.nan})
        | {"auc": auc([one.score for one in best], [bool(example.answers) for example in examples])},
    }


def contract_eval(said: Sequence[str], labels: Sequence[Sequence[str]]) -> dict[str, float]:
    """ContractEval's four numbers. A reply to a question with a clause is right if it holds all of its spans; a reply
    to one without is wrong if it says anything. Jaccard overlap is over questions with a clause."""
    right = missed = alarms = silent = 0
    overlaps = []
    for reply, spans in zip(said, labels, strict=True):
        if not spans:
            alarms += bool(reply)
            continue
        words = " ".join(reply.split())
        if all(" ".join(span.split()) in words for span in spans):
            right += 1
        else:
            missed += 1
        silent += not reply
        overlaps.append(jaccard(reply, " ".join(spans)))
    precision, recall = right / max(right + alarms, 1), right / max(right + missed, 1)
    f = {beta: (1 + beta**2) * precision * recall / max(beta**2 * precision + recall, 1e-12) for beta in (1, 2)}
    return {
        "f1": 100 * f[1],
        "f2": 100 * f[2],
        "jaccard": 100 * float(np.mean(overlaps)) if overlaps else 0.0,
        "none_wrongly": 100 * silent / max(len(overlaps), 1),
    }


class CuadTest(Experiment):
    """The published test of CUAD, beside published results."""

    name = "cuad"
    title = "CUAD, the 102 contracts of its published test"
    claim = "Not in the paper: contracts are what long documents are read for most."

    def folder(self, at: Workspace) -> Path:
        return at.out / "cuad"

    def steps(self, at: Workspace) -> list[ProcessStep]:
        words = [sys.executable, "-m", "reproduction.cuad", "--data", str(at.data or ""), "--out", str(self.folder(at))]
        words += ["--model", at.model] if at.model else []
        missing = () if at.data else ("--data, a folder that holds cuad/official",)
        return [
            ProcessStep("ask 102 contracts", tuple(words), self.folder(at) / SCORES, 90, alone=True, missing=missing)
        ]

    def report(self, at: Workspace) -> Report:
        path = self.folder(at) / SCORES
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        official: list[tuple[Value, ...]] = [(who, aupr, "", p80, None) for who, aupr, p80 in PUBLISHED]
        eval_rows: list[tuple[Value, ...]] = list(CONTRACT_EVAL)
        tables = []
        if found is not None:
            own, rules = found["official"], found["contract_eval"]
            span = f"{own['aupr_low']:.1f} to {own['aupr_high']:.1f}" if "aupr_low" in own else ""
            official.insert(0, ("VCC, 35M", own["aupr"], span, own["p80"], own["p90"]))
            eval_rows.insert(0, ("VCC", rules["f1"], rules["f2"], rules["jaccard"], rules["none_wrongly"]))
            clauses = tuple((name, one["aupr"], one["p80"]) for name, one in found["by_clause"].items())
            best = found["best_span"]
            times = (found["contracts"], found["seconds_a_contract"], found["processor_seconds_a_contract"])
            tables = [
                ReportTable(
                    "Best answers",
                    ("F1 of the best span, of clauses that are there", "clause or none, AUC"),
                    ((best["f1"], best["auc"]),),
                ),
                ReportTable("By clause", ("clause", "AUPR", "P@80R"), clauses),
                ReportTable("Time", ("contracts", "seconds each", "processor seconds each"), (times,)),
            ]
        rules_of_eval = ("", "F1", "F2", "Jaccard", '"none" said wrongly, %')
        first = ReportTable("By the publication's rules", ("", "AUPR", "95%", "P@80R", "P@90R"), tuple(official))
        second = ReportTable("By ContractEval's rules", rules_of_eval, tuple(eval_rows))
        return Report(self.name, self.title, self.claim, (first, second, *tables))


if __name__ == "__main__":
    call(ask_contracts, sys.argv[1:], "python -m reproduction.cuad")
