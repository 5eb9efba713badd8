"""From which length on, and up to which share of rows, is a compressed forward pass faster than the untouched one?

    python benchmarks/break_even.py
    python benchmarks/break_even.py --device cuda --dtype bfloat16 --lengths 1024,2048,4096,8192,16384
    python benchmarks/break_even.py --device cuda --dtype bfloat16 --lengths 1024,2048,4096 --shares 0.2,0.5,0.8 \
      --sizes base --compiled true

The budget is set for a compressed layer to see `share` of the tokens as rows. Dense and compressed passes alternate,
and the best of each counts; on a CPU it is processor time, which other jobs hardly affect. The table shows dense time /
compressed time: above 1, compression pays off. `vcc.hosts.forward.break_even` contains the resulting rule.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import torch
from transformers import BertConfig, BertModel

import vcc
from vcc.commands.options import call

SIZES = {"MiniLM": (384, 12), "base": (768, 12)}  # hidden size, heads
LAYERS, VIPS = 3, 32  # one window layer, two compressed: the proportion of a whole model


def model_of(size: str, device: str, dtype: torch.dtype, longest: int) -> BertModel:
    width, heads = SIZES[size]
    config = BertConfig(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        num_hidden_layers=LAYERS,
        max_position_embeddings=longest,
        vocab_size=1000,
    )
    model: Any = BertModel(config)
    return model.to(device, dtype).eval()


def settings(n: int, share: float) -> vcc.VccConfig:
    """Of n tokens, a layer sees n/16 nodes, each of which opens into 16."""
    opened = max(0, round((share - 1 / 16) * n / 15))
    return vcc.VccConfig(scales=(16, 1), budget=(opened,), dense_below=0, max_vips=VIPS)


def best_times(runs: list[Callable[[], object]], device: str, seconds: float) -> list[float]:
    """The fastest time of each, alternating for about `seconds` in total."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = [float("inf")] * len(runs)
    start, rounds = clock(), 0
    while rounds < 3 or clock() - start < seconds:
        for number, run in enumerate(runs):
            before = clock()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            if rounds:  # the first round warms up
                times[number] = min(times[number], clock() - before)
        rounds += 1
    return times


def break_even(
    device: str = "cpu",
    dtype: str = "float32",
    threads: int = 1,
    lengths: tuple[int, ...] = (600, 768, 1024, 2048),
    batch: int = 1,
    shares: tuple[float, ...] = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    sizes: tuple[str, ...] = tuple(SIZES),
    compiled: Annotated[bool, "use vcc.compile for the compressed model and torch.compile for the other"] = False,
    seconds: Annotated[float, "for each line of the table"] = 8.0,
) -> None:
    """From which length on, and up to which share of rows, is a compressed forward pass faster than the untouched one?

    The table shows dense time / compressed time: above 1, compression pays off.
    """
    torch.set_num_threads(threads)
    print(f"torch {torch.__version__}, {device}, {dtype}, {compiled=}; dense time / compressed time, share of rows:")
    for size in sizes:
        model = model_of(size, device, getattr(torch, dtype), max(lengths))
        print(f"{size:>8} n " + "".join(f"{share:7.1f}" for share in shares) + "    dense ms")
        for n in lengths:
            ids = torch.randint(0, 1000, (batch, n), device=device)
            vips = (torch.arange(n, device=device) < VIPS).long().expand(batch, n)
            wrapped = [vcc.wrap(model, settings(n, share)) for share in shares]
            dense_model = torch.compile(model, dynamic=False) if compiled else model
            wrapped = [vcc.compile(each) for each in wrapped] if compiled else wrapped
            runs: list[Callable[[], object]] = [partial(dense_model, ids)]
            runs += [partial(each, ids, vip_mask=vips) for each in wrapped]
            with torch.inference_mode():
                dense, *compressed = best_times(runs, device, seconds)
            print(f"{n:10} " + "".join(f"{dense / each:7.2f}" for each in compressed) + f"{1000 * dense:12.1f}")
            sys.stdout.flush()


if __name__ == "__main__":
    call(break_even, sys.argv[1:], "benchmarks/break_even.py")
