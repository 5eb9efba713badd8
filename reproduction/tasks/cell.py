"""One cell of the table: train a way on a task for a fixed time, alone on the device, then score its test part.

python -m reproduction.tasks.cell PACKED OUT SETTINGS TASK WAY
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._inductor.config
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModel, set_seed

from reproduction.loop import BETWEEN, LoopPlan, Losses, Work, half_precision, learn
from reproduction.small.pack import MODEL
from reproduction.small.settings import Small
from reproduction.tasks.loading import LoadedStep, loaded_steps
from reproduction.tasks.packed import LongItem, PackedTask, items_of
from reproduction.tasks.passes import Laying
from reproduction.tasks.reader import LongReader
from reproduction.tasks.rows import LongBatch, Specials
from reproduction.tasks.scores import scores
from reproduction.tasks.specs import LONG_TASKS, ROW, WAYS, ReadingWay, compression
from vcc.bench.measure import peak_gib, process_bytes, reset_peak
from vcc.files import one_at_a_time, write_whole
from vcc.hosts import load
from vcc.hosts.compiled.compile import compile as compile_vcc
from vcc.hosts.quiet import quiet
from vcc.hosts.wrap import wrap

HEAD_TIMES = 10.0  # the head is new: its learning rate, relative to the encoder's
SAVE_EVERY = 30.0  # seconds; a checkpoint is written in training time
LOCK = "device.lock"  # one training at a time: its seconds are the device's; others load and compile meanwhile
COMPILERS = 4  # processes of a compiler: another cell trains beside it
Passes = Sequence[tuple[list[int], LongBatch]]  # the numbers of the items in each pass, and the pass


def result_file(out: Path, task: str, way: str) -> Path:
    return out / "tasks" / f"{task}-{way}.json"


@dataclass
class DrawnItems(Work):
    """The loop's work: steps of random items."""

    model: LongReader
    items: Sequence[LongItem]
    laying: Laying
    batch: int
    seed: int
    device: str
    loaders: int = 0  # processes
    counts: dict[str, int] = field(default_factory=lambda: {"documents": 0, "tokens": 0})

    def steps(self, first: int, state: None) -> Iterator[Losses]:
        pin = self.device == "cuda"
        return self.learned(loaded_steps(self.items, self.laying, self.batch, self.seed, first, self.loaders, pin))

    def learned(self, loaded: Iterator[LoadedStep]) -> Iterator[Losses]:
        for step in loaded:
            self.counts["documents"] += step.documents
            self.counts["tokens"] += step.tokens
            yield self.losses(step.to(self.device))
            yield BETWEEN

    def losses(self, step: LoadedStep) -> Iterator[Tensor]:
        for batch in step.passes:
            with half_precision(self.device):
                loss = self.model.loss(batch) / step.number
            yield loss


def run_cell(packed: Path, out: Path, small: Small, name: str, way_name: str) -> dict[str, Any]:
    """Train, score, and write the result."""
    task, way = LONG_TASKS[name], WAYS[way_name]
    data = PackedTask.load(packed, task.data or name)
    length = min(task.length, small.longest)
    tokenizer = load.load_tokenizer(packed / MODEL, local=True)
    set_seed(small.seed)
    encoder: Any
    encoder, _ = load.load_model(packed / MODEL, AutoModel, local=True, new_head=True)
    row = min(ROW, encoder.config.max_position_embeddings)
    train, test = (items_of(data, length, task.pieces, part, row) for part in (False, True))
    laying = Laying.of([*train, *test], task.kind, way, Specials.of(tokenizer), row, length, task.batch)
    if way.compressed:
        encoder = wrap(encoder, replace(compression(length), max_vips=laying.vips), tokenizer=tokenizer)
    model = LongReader(encoder, task.kind, len(data.labels)).to(small.device)
    if small.compile:
        make_fast(encoder, way)
    work = DrawnItems(model, train, laying, task.batch, small.seed, small.device, small.loaders)
    asked = pinned(laying.passes(test), small.device)
    warm_up(work)  # here it compiles, while another cell trains
    with one_at_a_time(out / LOCK):
        warm_up(work)
        set_seed(small.seed)  # the training does not depend on how often it was warmed up
        optimizer = torch.optim.AdamW(groups(model), lr=small.tune_rate, fused=small.device == "cuda")
        reset_peak(torch.device(small.device))
        before = process_bytes("VmRSS")
        plan = LoopPlan(small.tune_rate, seconds=small.cell_seconds * task.time, save_every=SAVE_EVERY)
        found = learn(model, optimizer, work, plan, out / "cells" / f"{name}-{way_name}")
        peak = peak_gib(torch.device(small.device), before)
        best, reading = read_passes(model, asked, small.device)
    said = by_item(best, asked, test, laying)
    result = {
        "task": name, "way": way_name, "length": length, "train_items": len(train), "test_items": len(test),
        "test_documents": len({item.group for item in test}), "seconds": found.seconds, "steps": found.steps,
        **work.counts, "read_ms": 1000 * reading / len(test), "peak_gib": peak,
        "shapes": [list(shape) for shape in laying.shapes], "loss": found.curve[-1]["loss"],
        "metrics": scores(test, said, data.labels, task.kind),
    }  # fmt: skip
    file = result_file(out, name, way_name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(result, indent=1))
    return result


def make_fast(encoder: Any, way: ReadingWay) -> None:
    """Compile in place for passes of fixed shapes."""
    if way.compressed:
        compile_vcc(encoder, whole=False)
    else:
        encoder.compile(dynamic=False)


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
    """Run a pass of each shape, in training and in reading, so that later nothing is compiled."""
    batches = work.laying.one_of_each(work.items)
    work.model.train()
    for batch in batches:
        for loss in work.losses(LoadedStep([batch], 1).to(work.device)):
            loss.backward()
    work.model.zero_grad(set_to_none=True)
    read_passes(work.model, [([0], batch) for batch in batches], work.device)
    if work.device == "cuda":
        torch.cuda.empty_cache()  # for the cell that trains now


def pinned(passes: Passes, device: str) -> Passes:
    return [(some, batch.pin_memory()) for some, batch in passes] if device == "cuda" else passes


def read_passes(model: LongReader, passes: Passes, device: str) -> tuple[list[Tensor], float]:
    """The best label of each state or prediction of each pass, and the seconds it took."""
    model.eval()
    synchronize(device)
    began = time.perf_counter()
    with torch.no_grad(), half_precision(device):
        best = [model(batch.to(device)).argmax(1) for _, batch in passes]
    synchronize(device)
    return best, time.perf_counter() - began


def by_item(
    best: Sequence[Tensor], passes: Passes, items: Sequence[LongItem], laying: Laying
) -> list[NDArray[np.int64]]:
    """The predicted label of each item, or tag of each of its tokens. Unread tokens have no tag."""
    said: list[Any] = [None] * len(items)
    for one, (some, batch) in zip(best, passes, strict=True):
        found = one.cpu()
        if laying.kind == "tag":
            found = torch.zeros_like(batch.labels).index_put_((batch.owners,), found)
        sizes = [items[i].length if laying.kind == "tag" else 1 for i in some]
        for i, own in zip(some, found.split(sizes), strict=True):
            said[i] = own.numpy()
    return said


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main(packed: str, out: str, settings: str, task: str, way: str) -> None:
    quiet()
    small = Small(**json.loads(settings))
    if small.device == "cuda":
        torch.set_float32_matmul_precision("high")
        torch._inductor.config.compile_threads = COMPILERS
    run_cell(Path(packed), Path(out), small, task, way)


if __name__ == "__main__":
    main(*sys.argv[1:])
