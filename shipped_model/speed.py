"""Seconds per contract for all 41 questions, with the bundled model and with sliding windows, alternating.

    python -m shipped_model.speed --data DATA --contracts 31

The model is loaded and used as in the product, on a GPU in 16 bits and on most CPUs in 8 unless VCC_PRECISION=float32.
Windows are timed with an untrained reader of the same size in the same precision: weights do not change its speed. On a
CPU, processor time of all threads is counted, without other load of the machine.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from transformers import BertConfig, BertForQuestionAnswering

from reproduction.cuad_split import contracts
from shipped_model.data import Page, TokenQuestion
from shipped_model.find import wait
from shipped_model.ways import ReadByVcc, ReadByWindows, Way
from vcc.commands.options import call
from vcc.config import VccConfig
from vcc.data.features import tokenize_text
from vcc.documents.shipped import load_asker
from vcc.hosts.eight_bits import eight_bit_host
from vcc.hosts.host_of import host_of
from vcc.hosts.wrap import wrap
from vcc.qa.model import QaModel
from vcc.qa.windows import WindowReader


@dataclass(frozen=True)
class SpeedOptions:
    """Settings of the measurement."""

    data: Annotated[Path, "folder of the data sets"]
    model: Annotated[str | None, "folder of a model; unless given, the bundled one"] = None
    contracts: Annotated[int, "number of validation contracts, of 52"] = 31
    longest: Annotated[int, "maximum tokens of a contract; longer ones are skipped"] = 10**6
    threads: Annotated[int, "CPU threads"] = 2


def speed(options: SpeedOptions) -> None:
    """Seconds per contract for all 41 questions, with VCC and with sliding windows, alternating in one process."""
    torch.set_num_threads(options.threads)
    ours = load_asker(options.model).qa
    layers = ours.config.window_layers or 0
    size = BertConfig(hidden_size=384, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=1536)
    plain = BertForQuestionAnswering(size).eval().to(ours.device, next(ours.model.parameters()).dtype)
    fast = eight_bit_host(host_of(wrap(plain, VccConfig())), ours.precision)
    ways: dict[str, Way] = {
        "vcc": ReadByVcc(ours),
        "windows": ReadByWindows(WindowReader(plain, ours.frame, 512, ours.settings.longest_answer, fast)),
    }
    pages = [page for page in validation_pages(options.data, ours) if len(page.ids) <= options.longest]
    pages = pages[:: max(1, len(pages) // options.contracts)][: options.contracts]
    seconds = {name: 0.0 for name in ways}
    for way in ways.values():  # warm-up
        way.find(Page(pages[0].ids[:2000], pages[0].questions))
    for page in pages:
        for name, way in ways.items():
            seconds[name] += timed(way, page)
        print(len(page.ids), "tokens", seconds, flush=True)
    print(
        f"{len(pages)} contracts of {sum(len(page.ids) for page in pages) // len(pages):,} tokens on average: "
        f"{seconds['vcc'] / len(pages):.4g} and {seconds['windows'] / len(pages):.4g} s per contract, "
        f"{seconds['windows'] / seconds['vcc']:.2f} times as fast"
    )


def validation_pages(data: Path, qa: QaModel) -> list[Page]:
    """The validation contracts of CUAD with their 41 questions."""
    questions: dict[str, list[TokenQuestion]] = {}
    texts: dict[str, str] = {}
    for example in contracts("validation", str(data)):
        texts[str(example.group)] = example.document
        questions.setdefault(str(example.group), []).append(TokenQuestion(qa.ids_of(example.question), ()))
    return [Page(tokenize_text(texts[name], qa.tokenizer).ids, tuple(asked)) for name, asked in questions.items()]


def timed(way: Way, page: Page) -> float:
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    start = clock()
    way.find(page)
    wait()
    return clock() - start


if __name__ == "__main__":
    call(speed, sys.argv[1:], "python -m shipped_model.speed")
