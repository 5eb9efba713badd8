"""Seconds a contract for all 41 questions, with the model that comes along and with sliding windows, by turns.

    python shipped_model/speed.py --prepared prepared --contracts 31

Windows are timed with an untrained MiniLM: its weights do not change its speed.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch
from data import Page, load
from train import wait
from transformers import AutoModelForQuestionAnswering, BertConfig, BertForQuestionAnswering
from ways import ReadByWindows, ReadTwice, Way, half

from vcc.documents.shipped import SHIPPED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=SHIPPED)
    parser.add_argument("--contracts", type=int, default=31, help="of the 62 for validation")
    parser.add_argument("--longest", type=int, default=10**6, help="tokens of a contract; longer ones are left out")
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    options = parser.parse_args()
    run(options.prepared, options.model, options.contracts, options.longest, options.threads)


def run(prepared: Path, folder: Path, contracts: int, longest: int, threads: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(threads)
    ours = AutoModelForQuestionAnswering.from_pretrained(folder, dtype=torch.float32).eval().to(device)
    minilm = (
        BertForQuestionAnswering(
            BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        )
        .eval()
        .to(device)
    )
    memory = 2**33 if device == "cuda" else 2**27
    ways: dict[str, Way] = {
        "vcc": ReadTwice(ours, looks=ours.config.second_looks, asked_at_once=memory),
        "windows": ReadByWindows(minilm),
    }
    units = [u for u in load(prepared / "tokens.npz.xz").units["cuad_validation"] if len(u.ids) <= longest]
    units = units[:: max(1, len(units) // contracts)][:contracts]
    seconds = {name: 0.0 for name in ways}
    with half(ours), torch.inference_mode():
        for way in ways.values():  # the first pass prepares kernels
            way.find(Page(units[0].ids[:2000], tuple(replace(q, spans=()) for q in units[0].questions)))
        for unit in units:
            for name, way in ways.items():
                seconds[name] += timed(way, Page(unit.ids, unit.questions))
            print(len(unit.ids), "tokens", seconds, flush=True)
    print(
        f"{len(units)} contracts of {sum(len(unit.ids) for unit in units) // len(units):,} tokens on average: "
        f"{seconds['vcc'] / len(units):.4g} and {seconds['windows'] / len(units):.4g} s a contract, "
        f"{seconds['windows'] / seconds['vcc']:.2f} times as fast"
    )


def timed(way: Way, page: Page) -> float:
    start = time.perf_counter()
    way.find(page)
    wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
