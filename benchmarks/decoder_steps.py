"""Time of a new token in `generate`, end to end: recorded steps beside unrecorded ones and beside transformers' caches.

    python -m benchmarks.decoder_steps --out out/decoder_steps    # one GPU, 200 seconds at most
    python -m benchmarks.decoder_steps --small --out out/small    # the same code, tiny sizes, on a CPU

The model has the shape of Llama-3.2-1B and random weights; the caches are filled with random keys and values, because
neither changes the time. A token's time is that between two tokens that `generate` hands to a streamer, without the
first ones; the mean includes tokens joining the trees, the median does not. After the times, recorded and unrecorded
steps must write the same tokens: greedy, sampling and beams. Each part may fail or run out of time on its own, and
every result is written as soon as it is there.
"""

import gc
import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor
from transformers import DynamicCache, StaticCache

import vcc
from benchmarks.random_llama import LlamaShape, TokenClock, random_llama
from vcc.commands.options import call
from vcc.decoders.cache import TreeCache
from vcc.decoders.layer import TreeLayer
from vcc.files import write_whole


@dataclass(frozen=True)
class Size:
    """What is measured: Llama-3.2-1B's shape, or a tiny one with the same code."""

    shape: LlamaShape = LlamaShape(2048, 8192, 16, 32, 8, 128_256)
    lengths: tuple[int, ...] = (131_072, 16_384)
    batches: tuple[int, int] = (1, 8)
    checked: int = 16_384  # keys before the tokens that are compared
    written: int = 160  # tokens: more than two lots join the trees
    left_out: int = 24  # of them, at the start: compiling, recording
    scales: tuple[int, ...] = (16, 1)
    opened: tuple[int, ...] = (32,)  # at each scale but the last


BEAMS = {"num_beams": 4}
SMALL = Size(LlamaShape(32, 64, 2, 4, 2, 99), (512, 256), (1, 2), 300, 40, 6, (4, 1), (3,))
NAMES = {
    "recorded": "ours, recorded",
    "unrecorded": "ours, unrecorded",
    "static": "plain, static cache compiled",
    "dynamic": "plain",
}


def decoder_steps(
    out: Annotated[Path, "folder of the results"] = Path("out/decoder_steps"),
    small: Annotated[bool, "tiny sizes, to see that it runs"] = False,
    methods: Annotated[str, "some of recorded, unrecorded, static, dynamic; with commas"] = ",".join(NAMES),
    seconds: Annotated[int, "of the whole run; what is left then is skipped"] = 180,
    scales: Annotated[tuple[int, ...], "tokens per node"] = Size.scales,
    opened: Annotated[tuple[int, ...], "nodes opened at each scale but the last"] = Size.opened,
) -> None:
    """Time recorded and unrecorded steps beside transformers, then compare the tokens they write."""
    begun = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    size = SMALL if small else Size(scales=scales, opened=opened)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = random_llama(size.shape, device, max_position_embeddings=2**20, tie_word_embeddings=True)
    about: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "size": asdict(size),
        "same_tokens": [],
        "times": [],
    }

    def note(kind: str, line: dict[str, Any]) -> None:
        about[kind].append(line)
        about["seconds"] = time.perf_counter() - begun
        write_whole(out / "decoder_steps.json", json.dumps(about, indent=1))
        print(f"{about['seconds']:5.0f} s", json.dumps(line), file=sys.stderr, flush=True)

    def part(kind: str, line: dict[str, Any], work: Callable[[], dict[str, Any]], share: float = 1.0) -> None:
        """One line of the results, if it is there before `share` of the time is over."""
        left = begun + share * seconds - time.perf_counter()
        note(kind, line | (attempt(work, left) if left > 0 else {"skipped": True}))
        free()

    asked = [method for method in NAMES if method in methods.split(",")]
    for method in asked:
        for length in size.lengths:
            for batch in size.batches:
                line = {"method": NAMES[method], "keys": length, "batch": batch}
                work = partial(timed, model, size, method, length, batch)
                part("times", line, work, 0.5 if method == "dynamic" else 0.75)
    for way, batch, how in ways(size):
        line = {"way": way, "batch": batch, "tokens": size.written}
        part("same_tokens", line, partial(same_tokens, model, size, batch, how))
    print(table(about))
    if not all(line.get("same", "skipped" in line) for line in about["same_tokens"]):
        sys.exit("recorded steps did not write the tokens of unrecorded ones")


def attempt(work: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What `work` finds, or why it failed. What it takes beyond `seconds` is cut off."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it took more than {seconds:.0f} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return work()
    except Exception as error:  # the other parts are still worth having
        return {"failed": " ".join(str(error).split())[:300] or type(error).__name__}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def wrapped(model: Any, size: Size) -> Any:
    return vcc.wrap(model, vcc.DecoderConfig(scales=size.scales, budget=size.opened))


def pairs(model: Any, length: int, batch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Random keys and values of each layer."""
    draw = torch.Generator(model.device).manual_seed(seed)
    config = model.config
    shape = (batch, config.num_key_value_heads, length, config.head_dim)
    for _ in range(config.num_hidden_layers):
        k, v = (torch.randn(shape, generator=draw, device=model.device, dtype=model.dtype) for _ in range(2))
        yield k, v


@torch.no_grad()
def tree_cache(model: Any, length: int, batch: int, record: bool, seed: int = 1) -> TreeCache:
    layers = [TreeLayer.filled(model.vcc, k, v) for k, v in pairs(model, length, batch, seed)]
    return TreeCache(layers, record)


@torch.no_grad()
def dynamic_cache(model: Any, length: int, batch: int) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    for number, (k, v) in enumerate(pairs(model, length, batch, 1)):
        cache.update(k, v, number)
    return cache


@torch.no_grad()
def static_cache(model: Any, length: int, batch: int, written: int) -> StaticCache:
    cache = StaticCache(config=model.config, max_cache_len=length + written + 1)
    for number, (k, v) in enumerate(pairs(model, length, batch, 1)):
        cache.update(k, v, number)
    return cache


def written(model: Any, cache: Any, length: int, batch: int, new: int, **how: Any) -> Any:
    """What `generate` adds to a cache of so many keys."""
    draw = torch.Generator().manual_seed(2)
    ids = torch.randint(0, model.config.vocab_size, (batch, length + 1), generator=draw).to(model.device)
    torch.manual_seed(3)
    how = {"do_sample": False} | how
    beams = how.get("num_beams", 1)
    if beams > 1:
        cache.batch_repeat_interleave(beams)
    result = model.generate(
        ids, attention_mask=torch.ones_like(ids), past_key_values=cache, max_new_tokens=new, min_new_tokens=new, **how
    )
    return result[:, length + 1 :]


def ways(size: Size) -> list[tuple[str, int, dict[str, Any]]]:
    """Ways to write, and how many texts; the one that copies and shares most comes last."""
    one, several = size.batches
    sampling = {"do_sample": True, "top_k": 50}
    return [("greedy", one, {}), ("greedy", several, {}), ("sampling", several, sampling), ("beams", one, BEAMS)]


def same_tokens(model: Any, size: Size, batch: int, how: dict[str, Any]) -> dict[str, Any]:
    """Whether recorded steps write what the others write, and whether any were replayed."""
    ours, found, graph = wrapped(model, size), {}, False
    for record in (False, True):
        cache = tree_cache(ours, size.checked, batch, record)
        found[record] = written(ours, cache, size.checked, batch, size.written, **how)
        graph = cache.steps.recorded.graph is not None
        del cache
        free()
    differ = (found[True] != found[False]).any(0).nonzero()
    line = {"recorded": graph, "same": not len(differ)}
    return line | ({"first difference": int(differ[0])} if len(differ) else {})


def timed(model: Any, size: Size, method: str, length: int, batch: int) -> dict[str, Any]:
    """Milliseconds of a new token."""
    ours = wrapped(model, size)
    making: dict[str, tuple[Any, Callable[[], Any]]] = {
        "recorded": (ours, lambda: tree_cache(ours, length, batch, True)),
        "unrecorded": (ours, lambda: tree_cache(ours, length, batch, False)),
        "dynamic": (model, lambda: dynamic_cache(model, length, batch)),
        "static": (model, lambda: static_cache(model, length, batch, size.written)),
    }
    reader, make = making[method]
    new = size.written if method in ("recorded", "unrecorded") else size.written // 2
    cache, clock = make(), TokenClock()
    written(reader, cache, length, batch, new, streamer=clock)
    steps = clock.steps()
    counted = steps[size.left_out :]
    result = {"ms": statistics.median(counted), "mean_ms": statistics.fmean(counted), "slowest_ms": max(counted)}
    result |= {"start_ms": sum(steps[: size.left_out]), "tokens": len(counted)}
    if isinstance(cache, TreeCache):
        result["recorded"] = cache.steps.recorded.graph is not None
    if torch.cuda.is_available():
        result["gib"] = torch.cuda.max_memory_allocated() / 2**30
    return result


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        with suppress(RuntimeError):  # after an illegal access every call fails
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def table(about: dict[str, Any]) -> str:
    rows = [
        "| method | keys | batch | ms a token | mean | slowest | the first ones |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in about["times"]:
        cells = [line["method"], f"{line['keys']:,}", str(line["batch"])]
        if "ms" in line:
            cells += [f"{line[name]:.2f}" for name in ("ms", "mean_ms", "slowest_ms", "start_ms")]
        else:
            cells += [missing(line), "", "", ""]
        rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| way | batch | tokens | recorded | same tokens |", "|---|---|---|---|---|"]
    for line in about["same_tokens"]:
        same = "yes" if line.get("same") else missing(line)
        rows.append(f"| {line['way']} | {line['batch']} | {line['tokens']} | {line.get('recorded', '')} | {same} |")
    return "\n".join(rows)


def missing(line: dict[str, Any]) -> str:
    if "first difference" in line:
        return f"no, from {line['first difference']} on"
    return "skipped" if line.get("skipped") else f"failed: {line['failed'][:60]}"


if __name__ == "__main__":
    sys.exit(call(decoder_steps, sys.argv[1:], "decoder_steps"))
