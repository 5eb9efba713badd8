"""Score the answers of `train` with 95% intervals over documents, as Markdown and JSON, on a CPU.

python -m shipped_model.score --prepared prepared --found results --out results/scores.json
"""

import json
import lzma
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from transformers import AutoTokenizer

from shipped_model.data import Unit, load
from vcc.commands.options import call
from vcc.data.example import Example, Prediction
from vcc.documents.candidates import REACH
from vcc.documents.short import Edges
from vcc.tasks.metrics import auc, best_of, clause_scores, exact, mean_scores, word_f1
from vcc.tasks.squad import scores_at_chosen_threshold

TOP = 10  # spans of a contract that compete for one clause
WANTED = 0.85  # the share of unanswerable questions to reject when the threshold is chosen

CONTRACTS = ("cuad", "cuad_test")  # of validation, and the published test

Texts = dict[str, list[tuple[dict[str, Any], dict[str, Any], Unit]]]  # by set: each question, its text, its unit


@dataclass(frozen=True)
class ScoreOptions:
    """Inputs and outputs."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    found: Annotated[Path, "output folder of `train`"]
    out: Annotated[Path, "output file"]


def score_all(options: ScoreOptions) -> None:
    """Score the answers of `train` with 95% intervals over documents, as Markdown and JSON, on a CPU."""
    texts, tokenizer = load_texts(options.prepared), AutoTokenizer.from_pretrained(options.prepared)
    scores: dict[str, Any] = {}
    for path in sorted(options.found.glob("found-*.jsonl.xz")):
        way = path.name.removeprefix("found-").removesuffix(".jsonl.xz")
        scores[way] = json.loads((options.found / f"run-{way}.json").read_text()) | score(path, texts, tokenizer)
    options.out.write_text(json.dumps(scores, indent=1))
    print(markdown(scores))


def load_texts(prepared: Path) -> Texts:
    units = load(prepared / "tokens.npz.xz").units
    texts: Texts = defaultdict(list)
    place: dict[str, int] = defaultdict(int)
    with lzma.open(prepared / "validation.jsonl.xz", "rt") as file:
        for text in map(json.loads, file):
            unit = units[text["set"]][place[text["set"]]]
            place[text["set"]] += 1
            texts[text["set"].removesuffix("_validation")] += [(q, text, unit) for q in text["questions"]]
    return texts


def score(path: Path, texts: Texts, tokenizer: Any) -> dict[str, Any]:
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with lzma.open(path, "rt") as file:
        for line in map(json.loads, file):
            lines[line["set"]].append(line)
    scores: dict[str, Any] = {name: contracts(lines[name], texts[name]) for name in CONTRACTS if name in lines}
    for name, some in lines.items():
        if name not in (*CONTRACTS, "squad"):
            scores[name] = answers(some, texts["squad" if name.startswith("hidden") else name], tokenizer)
    scores["squad"] = squad(lines["squad"], texts["squad"])
    return scores


def slice_of(text: dict[str, Any], first: int, last: int) -> str:
    offsets = text["offsets"]
    return text["text"][offsets[first][0] : offsets[last][1]]


def lead(found: Sequence[Sequence[float]]) -> float:
    """The lead of the best span over "no answer"."""
    return max((s - null for s, _, _, null in found), default=-math.inf)


def contracts(lines: list[dict[str, Any]], texts: list[Any]) -> dict[str, float]:
    """CUAD's scores, by the better of two confidences for each way: softmax with no answer, or the lead over it."""
    examples, softmax, leads, f1s, answerable = [], [], [], [], []
    for line in lines:
        q, text, _ = texts[line["question"]]
        found = line["found"][:TOP]
        spans = [slice_of(text, a, b) for _, a, b, _ in found]
        example = Example(q["id"], q["question"], "", tuple(q["answers"]), group=text["group"])
        null = min((null for *_, null in line["found"]), default=0.0)
        raw = np.exp(np.array([*(s for s, *_ in found), null]) - max([*(s for s, *_ in found), null]))
        examples.append(example)
        softmax.append([(span, float(p)) for span, p in zip(spans, raw / raw.sum(), strict=False)])
        leads.append([(span, s - none) for span, (s, _, _, none) in zip(spans, found, strict=True)])
        if q["answers"]:
            answerable.append(example)
            f1s.append(best_of(word_f1, spans[0] if spans else "", q["answers"]))
    # Ranks instead of leads: the curve is evaluated at fixed thresholds between 0 and 1.
    order = np.sort([value for some in leads for _, value in some])
    ranked = [
        [(span, float(np.searchsorted(order, value, "right") / (len(order) + 1))) for span, value in some]
        for some in leads
    ]
    both = [
        clause_scores([Prediction(e.id, spans=tuple(spans)) for e, spans in zip(examples, kind, strict=True)], examples)
        for kind in (softmax, ranked)
    ]
    result = max(both, key=lambda scores: scores["aupr"])
    result |= {"aupr_softmax": both[0]["aupr"], "aupr_lead": both[1]["aupr"]}
    result |= mean_scores({"best_span_f1": f1s}, answerable)
    result["answer_or_none_auc"] = auc([lead(line["found"]) for line in lines], [bool(e.answers) for e in examples])
    return result


def answers(lines: list[dict[str, Any]], texts: list[Any], tokenizer: Any) -> dict[str, float]:
    """EM and F1 of the best span for answerable questions, and the AUC of answerable or not if a set has both kinds."""
    examples, pairs = [], []
    for i, line in enumerate(lines):
        q, text, unit = texts[line["question"]]
        if not q["answers"]:
            continue
        group = text["group"] + text["text"][:50]  # a text: the questions of one are not independent
        examples.append(Example(str(i), q["question"], "", tuple(q["answers"]), group=group))
        pairs.append((best_words(line, text, unit, tokenizer), q["answers"]))
    result = mean_scores(
        {"f1": [best_of(word_f1, *pair) for pair in pairs], "em": [best_of(exact, *pair) for pair in pairs]}, examples
    )
    result |= {"questions": len(pairs), "texts": len({example.group for example in examples})}
    if len(pairs) < len(lines):
        answerable = [bool(texts[line["question"]][0]["answers"]) for line in lines]
        result |= {"none": len(lines) - len(pairs), "auc": auc([lead(line["found"]) for line in lines], answerable)}
    return result


def best_words(line: dict[str, Any], text: dict[str, Any], unit: Unit, tokenizer: Any) -> str:
    """The best span of a question."""
    whole, edges = spans_in_text(line, text, unit, tokenizer)
    return whole[slice(*edges[0])] if edges else ""


def spans_in_text(line: dict[str, Any], text: dict[str, Any], unit: Unit, tokenizer: Any) -> tuple[str, list[Edges]]:
    """The text that holds the answer, and the spans of a question in it. Behind a paragraph that was hidden in another
    text stand the spans found around it, as decoded tokens, too far apart to look like one text."""
    whole, edges, offsets = text["text"], [], text["offsets"]
    own = next(question.spans for question in unit.questions if question.number == line["question"])
    start = line["right"][0][0] - own[0][0] if line["right"] else 0  # of the paragraph in its page
    for number, (_, first, last, _) in enumerate(line["found"]):
        if start <= first and last < start + len(unit.ids):
            edges.append((offsets[first - start][0], offsets[last - start][1]))
        else:
            words = str(tokenizer.decode(line["words"][number]))
            whole += "\n" * REACH
            edges.append((len(whole), len(whole) + len(words)))
            whole += words
    return whole, edges


def squad(lines: list[dict[str, Any]], texts: list[Any]) -> dict[str, float]:
    """SQuAD 2.0 on single paragraphs; each half of the articles is scored at the threshold chosen on the other."""
    groups = list(dict.fromkeys(text["group"] for _, text, _ in texts))
    half = {group: i % 2 for i, group in enumerate(groups)}
    rows = [(*texts[line["question"]][:2], line) for line in lines]
    unanswered = [(half[text["group"]], lead(line["found"])) for q, text, line in rows if not q["answers"]]
    thresholds = [float(np.quantile([value for of, value in unanswered if of != own], WANTED)) for own in (0, 1)]
    values: dict[str, list[float]] = defaultdict(list)
    examples: dict[str, list[Example]] = defaultdict(list)
    for q, text, line in rows:
        example = Example(q["id"], q["question"], "", tuple(q["answers"]), group=text["group"] + text["text"][:50])
        says_none = lead(line["found"]) <= thresholds[half[text["group"]]]
        best = slice_of(text, *line["found"][0][1:3])
        said = "" if says_none else best
        measured = {
            "f1": best_of(word_f1, said, q["answers"]),
            "em": best_of(exact, said, q["answers"]),
            "none_or_not": float(says_none == (not q["answers"])),
        }
        measured |= (
            {"answered": float(not says_none), "answerable_f1": best_of(word_f1, best, q["answers"])}
            if q["answers"]
            else {"none_found": float(says_none)}
        )
        if says_none:
            measured["none_right"] = float(not q["answers"])
        for name, value in measured.items():
            values[name].append(value)
            examples[name].append(example)
    overall = float(np.quantile([value for _, value in unanswered], WANTED))
    result = {
        "lead": overall,
        "auc": auc([lead(line["found"]) for *_, line in rows], [bool(q["answers"]) for q, *_ in rows]),
    }
    for name in values:
        result |= mean_scores({name: values[name]}, examples[name])
    asked = [Example(q["id"], q["question"], "", tuple(q["answers"]), group=text["group"]) for q, text, _ in rows]
    predictions = [candidates(one.id, text, line["found"]) for one, (_, text, line) in zip(asked, rows, strict=True)]
    return result | scores_at_chosen_threshold(predictions, asked)


def candidates(id: str, text: dict[str, Any], found: Sequence[Sequence[Any]]) -> Prediction:
    """The spans with their probabilities: a softmax with "no answer"."""
    if not found:
        return Prediction(id)
    leads = np.array([s - null for s, _, _, null in found])
    chances = np.exp(leads - max(leads.max(), 0.0))
    chances /= chances.sum() + np.exp(-max(leads.max(), 0.0))
    spans = (slice_of(text, first, last) for _, first, last, _ in found)
    return Prediction(id, spans=tuple(zip(spans, chances.tolist(), strict=True)))


def markdown(scores: dict[str, Any]) -> str:
    """One line per score, one column per way."""
    ways = list(scores)
    wanted = [
        ("CUAD, official test: AUPR by softmax", "cuad_test", "aupr_softmax"),
        ("CUAD, official test: AUPR by lead", "cuad_test", "aupr_lead"),
        ("CUAD, official test: precision at 80% recall", "cuad_test", "p80"),
        ("CUAD, official test: best-span F1", "cuad_test", "best_span_f1"),
        ("CUAD: AUPR", "cuad", "aupr"),
        ("CUAD: precision at 80% recall", "cuad", "p80"),
        ("CUAD: best-span F1", "cuad", "best_span_f1"),
        ("CUAD: answer or not, AUC", "cuad", "answer_or_none_auc"),
        ("SQuAD 2.0: F1 of the best span", "squad", "answerable_f1"),
        ("SQuAD 2.0: answer or not, AUC", "squad", "auc"),
        ("SQuAD 2.0: F1 at the threshold", "squad", "f1"),
        ("SQuAD 2.0, official: EM", "squad", "official_em"),
        ("SQuAD 2.0, official: F1", "squad", "official_f1"),
        ("SQuAD 2.0, official: F1, answerable", "squad", "official_answerable_f1"),
        ("SQuAD 2.0, official: F1, unanswerable", "squad", "official_unanswerable_f1"),
        ("SQuAD 2.0: no answer, recall", "squad", "none_found"),
        ("SQuAD 2.0: no answer, precision", "squad", "none_right"),
        ("SQuAD 2.0: answer, coverage", "squad", "answered"),
    ]
    for part, found in scores[ways[0]].items():
        if isinstance(found, dict) and "questions" in found:
            wanted.append((f"{part}, {found['questions']} questions on {found['texts']} texts: F1", part, "f1"))
            if "auc" in found:
                wanted.append((f"{part}, and {found['none']} without: answer or not, AUC", part, "auc"))
    lines = ["| | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for title, part, name in wanted:
        cells = [shown(scores[way].get(part, {}), name) for way in ways]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    for part, what in (("seconds_a_page", "seconds per page"), ("answers_opened", "answers opened, %")):
        for name in scores[ways[0]].get(part, {}):
            cells = [f"{scores[way][part][name]:.3g}" if name in scores[way].get(part, {}) else "" for way in ways]
            lines.append(f"| {what}: {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def shown(scores: dict[str, float], name: str) -> str:
    if name not in scores:
        return ""
    around = f" ({scores[f'{name}_low']:.1f} to {scores[f'{name}_high']:.1f})" if f"{name}_low" in scores else ""
    return f"{scores[name]:.1f}{around}"


if __name__ == "__main__":
    call(score_all, sys.argv[1:], "python -m shipped_model.score")
