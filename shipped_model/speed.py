"""Seconds per contract for all 41 questions, with the bundled model and with sliding windows, alternating.

    python -m shipped_model.speed --prepared prepared --contracts 31

The model is loaded and used as in the product. Windows are timed with an untrained MiniLM: weights do not change its
speed. On a CPU, processor time of all threads is counted, without other load of the machine.
"""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from transformers import BertConfig, BertForQuestionAnswering

from shipped_model.data import Page, load
from shipped_model.find import wait
from shipped_model.ways import ReadByVcc, ReadByWindows, Way
from vcc.commands.options import call
from vcc.documents.shipped import SHIPPED, load_asker
from vcc.qa.windows import WindowReader


@dataclass(frozen=True)
class SpeedOptions:
    """Settings of the measurement."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    model: Annotated[Path, "folder of the model"] = SHIPPED
    contracts: Annotated[int, "number of validation contracts, of 62"] = 31
    longest: Annotated[int, "maximum tokens of a contract; longer ones are skipped"] = 10**6
    threads: Annotated[int, "CPU threads"] = 2
    half: Annotated[bool, "compute in 16 bits, for a GPU"] = False


def speed(options: SpeedOptions) -> None:
    """Seconds per contract for all 41 questions, with VCC and with sliding windows, alternating in one process."""
    torch.set_num_threads(options.threads)
    ours = load_asker(str(options.model)).qa
    size = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    minilm = BertForQuestionAnswering(size).eval().to(ours.device)
    if options.half:
        ours.model.half()
        minilm.half()
    ways: dict[str, Way] = {
        "vcc": ReadByVcc(ours),
        "windows": ReadByWindows(WindowReader(minilm, ours.frame, 512, ours.settings.longest_answer)),
    }
    contracts = load(options.prepared / "tokens.npz.xz").units["cuad_validation"]
    units = [unit for unit in contracts if len(unit.ids) <= options.longest]
    units = units[:: max(1, len(units) // options.contracts)][: options.contracts]
    seconds = {name: 0.0 for name in ways}
    for way in ways.values():  # warm-up
        way.find(Page(units[0].ids[:2000], tuple(replace(q, spans=()) for q in units[0].questions)))
    for unit in units:
        for name, way in ways.items():
            seconds[name] += timed(way, Page(unit.ids, unit.questions))
        print(len(unit.ids), "tokens", seconds, flush=True)
    print(
        f"{len(units)} contracts of {sum(len(unit.ids) for unit in units) // len(units):,} tokens on average: "
        f"{seconds['vcc'] / len(units):.4g} and {seconds['windows'] / len(units):.4g} s per contract, "
        f"{seconds['windows'] / seconds['vcc']:.2f} times as fast"
    )


def timed(way: Way, page: Page) -> float:
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    start = clock()
    way.find(page)
    wait()
    return clock() - start


if __name__ == "__main__":
    call(speed, sys.argv[1:], "python -m shipped_model.speed")
