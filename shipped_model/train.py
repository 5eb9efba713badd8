"""Train MiniLM to answer questions on documents, through VCC or in windows, and note what it finds; one GPU.

    python shipped_model/train.py --prepared prepared --way twice --minutes 6.5 --out results &
    python shipped_model/train.py --prepared prepared --way windows --minutes 6.5 --out results

Both may share the GPU, as above: then they train for the same time side by side, and are timed one after the other.
`score.py` turns what was found into scores.
"""

import argparse
import contextlib
import copy
import fcntl
import json
import lzma
import os
import queue
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from data import Haystack, Mixture, Page, Prepared, Question, hide, load, moved
from transformers import AutoModelForQuestionAnswering
from ways import LOOKS, Found, ReadByVcc, ReadByWindows, ReadTwice, Way, half

import vcc
from vcc.data.answers import apart
from vcc.hosts.long_input import Wrapped

SETTINGS = vcc.VccConfig(scales=(128, 16, 1), budget=(128, 32), vip_window="own", explore=0.0, dense_below=513)
WAYS: dict[str, Any] = {"vcc": ReadByVcc, "windows": ReadByWindows, "twice": ReadTwice}
HIDDEN_AT = (4_096, 16_384, 65_536, 131_072)  # tokens of the documents that paragraphs are hidden in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--way", choices=tuple(WAYS), required=True)
    parser.add_argument("--name", help="of what is written; unless given, the way")
    parser.add_argument("--layers", type=int, default=7, help="of the model that VCC reads with; MiniLM has 6")
    parser.add_argument("--window-layers", type=int, default=6)
    parser.add_argument("--score", choices=("attention", "similarity"), default="similarity")
    parser.add_argument("--budget", type=int, nargs=2, default=(128, 32), help="segments of 128 and 16 tokens opened")
    parser.add_argument("--minutes", type=float, default=6.5)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--examples", type=int, default=300, help="to score of each set of hidden paragraphs")
    parser.add_argument("--contracts", type=float, default=0.5, help="share of the batches that are contracts")
    parser.add_argument("--shortest", type=int, default=1_500, help="tokens in a page, at most, to begin with")
    parser.add_argument("--longest", type=int, default=98_304, help="and at the end")
    parser.add_argument("--looks", type=int, default=LOOKS, help="passages that are read again, at most")
    parser.add_argument("--model", type=Path, help="go on with this one, or only score it with --minutes 0")
    run(**vars(parser.parse_args()))


def run(
    prepared: Path,
    out: Path,
    way: str,
    name: str | None,
    layers: int,
    window_layers: int,
    score: str,
    budget: tuple[int, int],
    minutes: float,
    rate: float,
    examples: int,
    contracts: float,
    shortest: int,
    longest: int,
    looks: int,
    model: Path | None,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    random.seed(0)
    data = load(prepared / "tokens.npz.xz")
    start = AutoModelForQuestionAnswering.from_pretrained(
        model or prepared, dtype=torch.float32, attention_probs_dropout_prob=0.0
    )
    if isinstance(start, Wrapped):
        start = vcc.unwrap(start)
    if way != "windows":
        grow(start, layers)
    settings = replace(SETTINGS, window_layers=window_layers, score=score, budget=tuple(budget))
    reading: Way = WAYS[way](start.to(device) if way == "windows" else vcc.wrap(start, settings).to(device))
    name = name or way
    note: dict[str, Any] = {"way": way, "minutes": minutes, "rate": rate}
    if way != "windows":
        note["settings"] = settings.to_dict()
        reading.model.config.framed_windows = True  # how `vcc ask` reads with it
        reading.model.config.second_looks = looks if way == "twice" else 0
    if isinstance(reading, ReadTwice):
        reading.looks = looks
    if minutes:
        note |= train(reading, Mixture(data, contracts=contracts, shortest=shortest, longest=longest), minutes, rate)
        reading.model.half().save_pretrained(out / name)
        reading.model.float()
    with half(reading.model), turn(out / "lock"):
        note |= find_all(reading, data, examples, out / f"found-{name}.jsonl.xz")
    if device == "cuda":
        note |= {"gpu": torch.cuda.get_device_name(), "peak_gib": torch.cuda.max_memory_allocated() / 2**30}
    (out / f"run-{name}.json").write_text(json.dumps(note, indent=1))
    print(json.dumps(note, indent=1), flush=True)


def grow(model: Any, layers: int) -> None:
    """Copies of the last layer on top, to read compressed: those below keep what makes their mean states comparable."""
    stack = model.base_model.encoder.layer
    while len(stack) < layers:
        stack.append(copy.deepcopy(stack[-1]))
    model.config.num_hidden_layers = len(stack)


@contextlib.contextmanager
def turn(path: Path) -> Iterator[None]:
    """One after the other, where both ways run at once: what is timed has the machine for itself."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def train(way: Way, mixture: Mixture, minutes: float, rate: float, every: int = 100) -> dict[str, Any]:
    """AdamW with a linear schedule over wall-clock time; the head learns five times as fast."""
    model = way.model.train()
    head = {id(p) for p in model.qa_outputs.parameters()}
    groups = [
        {"params": [p for p in model.parameters() if (id(p) in head) == heads], "times": 5.0 if heads else 1.0}
        for heads in (False, True)
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.01, fused=model.device.type == "cuda")
    start, step, batches, asked, losses = time.time(), 0, 0, 0, []
    for pages in ahead(mixture):
        mixture.progress = (time.time() - start) / (60 * minutes)
        batches += 1
        asked += sum(len(page.questions) for page in pages)
        for loss in way.losses(pages):
            part = (time.time() - start) / (60 * minutes)
            for group in optimizer.param_groups:
                group["lr"] = rate * group["times"] * max(min(part / 0.04, (1 - part) / 0.96), 0.0)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
            step += 1
            if step % every == 0:
                print(
                    f"{time.time() - start:6.0f} s  step {step}  batches {batches}  questions {asked}  "
                    f"loss {torch.stack(losses[-every:]).mean():.3f}",
                    flush=True,
                )
        if time.time() - start > 60 * minutes:
            break
    model.eval()
    return {"steps": step, "batches": batches, "questions": asked}


def ahead(mixture: Mixture) -> Iterator[list[Page]]:
    """Batches, made by another thread while the GPU works."""
    made: queue.Queue[list[Page]] = queue.Queue(8)

    def make() -> None:
        for pages in mixture:
            made.put(pages)

    threading.Thread(target=make, daemon=True).start()
    while True:
        yield made.get()


# ---------------------------------------------------------------------------------------------------------------- score


def tests(data: Prepared, examples: int) -> Iterator[tuple[str, Page]]:
    """Every page to be scored, with the name of its set; the same again for everyone who asks."""
    for unit in data.units["squad_validation"]:
        yield "squad", Page(unit.ids, unit.questions)
    for unit in data.units["hotpot_validation"][:examples]:
        yield "hotpot", Page(unit.ids, unit.questions)
    chance = random.Random(1)
    asked = [(unit, q) for unit in data.units["squad_validation"] for q in unit.questions if q.spans]
    asked = chance.sample(asked, min(examples, len(asked)))
    haystack = Haystack(data.books["validation"], data.units["squad_validation"])
    for unit, q in asked:
        yield "hidden-0", Page(unit.ids, (q,))
    for length in HIDDEN_AT:
        for unit, q in asked:
            ids, (place,) = hide([unit], haystack, length, chance)
            yield f"hidden-{length}", Page(ids, (moved(q, place),))
    for unit in data.units["cuad_validation"]:  # last, when nothing else runs on the GPU, because they are timed
        yield "cuad", Page(unit.ids, unit.questions)


def find_all(way: Way, data: Prepared, examples: int, path: Path) -> dict[str, Any]:
    """The best spans for each question of each page, to a file; seconds a page by set."""
    seconds: dict[str, list[float]] = {}
    opened: dict[str, list[float]] = {}
    with lzma.open(path, "wt") as file:
        for name, page in tests(data, examples):
            if isinstance(way, ReadByVcc):
                way.opened.clear()
            wait()
            start = time.perf_counter()
            found = way.find(page)
            wait()
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            if isinstance(way, ReadByVcc):
                opened.setdefault(name, []).extend(way.opened)
            for i, (q, spans) in enumerate(zip(page.questions, found, strict=True)):
                said = line(name, q, page, apart(spans, 20))
                if isinstance(way, ReadTwice):
                    said["first"] = [[round(one.score, 4), one.first, one.last] for one in way.first[i]]
                    said["nodes"] = [[round(one.score, 5), one.first] for one in way.nodes[i]]
                file.write(json.dumps(said) + "\n")
    note: dict[str, Any] = {
        "seconds_a_page": {name: sum(some[1:]) / max(len(some) - 1, 1) for name, some in seconds.items()}
    }
    if opened:
        note["answers_opened"] = {name: 100 * sum(some) / max(len(some), 1) for name, some in opened.items()}
    return note


def line(name: str, question: Question, page: Page, found: list[Found]) -> dict[str, Any]:
    """Spans as tokens of the page, and where the page holds the answer, from which scoring finds the text."""
    best = found[:1] if name.startswith("hidden") else []  # it may lie in the haystack
    return {
        "set": name,
        "question": question.number,
        "right": question.spans[:1],
        "found": [[round(one.score + one.none, 4), one.first, one.last, round(one.none, 4)] for one in found],
        "words": [page.ids[one.first : one.last + 1].tolist() for one in best],
    }


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
