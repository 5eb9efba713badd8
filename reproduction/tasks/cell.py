"""One cell of the table: train a way on a task for a fixed time, alone on the device, then score its test part.

python -m reproduction.tasks.cell PACKED OUT SETTINGS TASK WAY
"""

import fcntl
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModel, set_seed

from reproduction.loop import BETWEEN, LoopPlan, Losses, half_precision, learn
from reproduction.small.learning import ENDLESS, Later
from reproduction.small.pack import MODEL
from reproduction.small.settings import Small
from reproduction.tasks.packed import LongItem, PackedTask, items_of
from reproduction.tasks.reader import LongReader
from reproduction.tasks.rows import LongBatch, Specials, batches, collate
from reproduction.tasks.scores import scores
from reproduction.tasks.specs import LONG_TASKS, ROW, WAYS, Kind, ReadingWay, compression
from vcc.bench.measure import peak_gib, process_bytes, reset_peak
from vcc.files import write_whole
from vcc.hosts import load
from vcc.hosts.quiet import quiet
from vcc.hosts.wrap import wrap
from vcc.train.draws import Stream

TOKENS = 131_072  # in a forward pass of training; a step has several
HEAD_TIMES = 10.0  # the head is new: its learning rate, relative to the encoder's
SAVE_EVERY = 20.0  # seconds


def result_file(out: Path, task: str, way: str) -> Path:
    return out / "tasks" / f"{task}-{way}.json"


@dataclass(frozen=True)
class Laying:
    """How the items of a cell become batches."""

    kind: Kind
    way: ReadingWay
    specials: Specials
    row: int
    device: str

    def batches(self, items: Sequence[LongItem]) -> Iterator[tuple[list[int], LongBatch]]:
        """The numbers of the items in each batch, and the batch on the device."""
        for some in batches(items, TOKENS):
            chosen = [items[i] for i in some]
            yield some, collate(chosen, self.kind, self.way, self.specials, self.row).to(self.device)


@dataclass
class DrawnItems:
    """The loop's work: random items, those of similar length in one forward pass."""

    model: LongReader
    items: Sequence[LongItem]
    laying: Laying
    batch: int
    seed: int
    progress: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: {"documents": 0, "tokens": 0})

    def steps(self, first: int, state: None) -> Iterator[Losses]:
        draws = iter(Later(Stream(len(self.items), ENDLESS, self.seed), first * self.batch))
        while True:
            chosen = [self.items[draw % len(self.items)] for draw in itertools.islice(draws, self.batch)]
            self.counts["documents"] += len(chosen)
            yield self.losses(chosen)
            yield BETWEEN

    def losses(self, chosen: Sequence[LongItem]) -> Iterator[Tensor]:
        tagged = self.laying.kind == "tag"
        number = sum(item.length for item in chosen) if tagged else len(chosen)
        for _, batch in self.laying.batches(chosen):
            self.counts["tokens"] += batch.inputs["input_ids"].numel()
            with half_precision(self.laying.device):
                loss = self.model.loss(batch) / number
            yield loss

    def state(self) -> None:
        return None


def run_cell(packed: Path, out: Path, small: Small, name: str, way_name: str) -> dict[str, Any]:
    """Train, score, and write the result."""
    task, way = LONG_TASKS[name], WAYS[way_name]
    data = PackedTask.load(packed, task.data or name)
    length = min(task.length, small.longest)
    train, test = (items_of(data, length, task.pieces, part) for part in (False, True))
    tokenizer = load.load_tokenizer(packed / MODEL, local=True)
    set_seed(small.seed)
    encoder: Any
    encoder, _ = load.load_model(packed / MODEL, AutoModel, local=True, new_head=True)
    row = min(ROW, encoder.config.max_position_embeddings)
    if way.compressed:
        encoder = wrap(encoder, compression(length), tokenizer=tokenizer)
    model = LongReader(encoder, task.kind, len(data.labels))
    laying = Laying(task.kind, way, Specials.of(tokenizer), row, small.device)
    with alone(out):
        model.to(small.device)
        optimizer = torch.optim.AdamW(groups(model), lr=small.tune_rate, fused=small.device == "cuda")
        work = DrawnItems(model, train, laying, task.batch, small.seed)
        warm_up(work)
        reset_peak(torch.device(small.device))
        before = process_bytes("VmRSS")
        plan = LoopPlan(small.tune_rate, seconds=small.cell_seconds * task.time, save_every=SAVE_EVERY)
        found = learn(model, optimizer, work, plan, out / "cells" / f"{name}-{way_name}")
        peak = peak_gib(torch.device(small.device), before)
        said, reading = predict(model, test, laying)
    result = {
        "task": name, "way": way_name, "length": length, "train_items": len(train), "test_items": len(test),
        "test_documents": len({item.group for item in test}), "seconds": found.seconds, "steps": found.steps,
        **work.counts, "read_ms": 1000 * reading / len(test), "peak_gib": peak,
        "loss": found.curve[-1]["loss"], "metrics": scores(test, said, data.labels, task.kind),
    }  # fmt: skip
    file = result_file(out, name, way_name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(result, indent=1))
    return result


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """One training at a time: seconds of a cell are seconds of the device. Others load their data meanwhile."""
    with (out / "device.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def groups(model: LongReader) -> list[dict[str, Any]]:
    head = list(model.head.parameters())
    body = [p for name, p in model.named_parameters() if not name.startswith("head.")]
    decayed, plain = [p for p in body if p.ndim > 1], [p for p in body if p.ndim <= 1]
    return [
        {"params": decayed, "weight_decay": 0.01},
        {"params": plain, "weight_decay": 0.0},
        {"params": head, "weight_decay": 0.0, "times": HEAD_TIMES},
    ]


def warm_up(work: DrawnItems) -> None:
    """Load kernels on two steps that are not counted."""
    for loss in work.losses(work.items[: 2 * work.batch]):
        loss.backward()
    work.model.zero_grad(set_to_none=True)
    work.counts = dict.fromkeys(work.counts, 0)
    synchronize(work.laying.device)


def predict(model: LongReader, items: Sequence[LongItem], laying: Laying) -> tuple[list[NDArray[np.int64]], float]:
    """The predicted label of each item, or tag of each token, and the seconds it took. Unread tokens have no tag."""
    model.eval()
    read: list[tuple[list[int], Tensor]] = []
    synchronize(laying.device)
    began = time.perf_counter()
    with torch.inference_mode(), half_precision(laying.device):
        for some, batch in laying.batches(items):
            best = model(batch).argmax(1)
            if laying.kind == "tag":
                best = torch.zeros_like(batch.labels).index_put_((batch.owners,), best)
            read.append((some, best))
    synchronize(laying.device)
    seconds = time.perf_counter() - began
    said: list[Any] = [None] * len(items)
    for some, best in read:
        sizes = [items[i].length if laying.kind == "tag" else 1 for i in some]
        for i, one in zip(some, best.cpu().split(sizes), strict=True):
            said[i] = one.numpy()
    return said, seconds


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main(packed: str, out: str, settings: str, task: str, way: str) -> None:
    quiet()
    small = Small(**json.loads(settings))
    if small.device == "cuda":
        torch.set_float32_matmul_precision("high")
    run_cell(Path(packed), Path(out), small, task, way)


if __name__ == "__main__":
    main(*sys.argv[1:])
