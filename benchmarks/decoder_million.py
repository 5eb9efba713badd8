"""A million tokens under a model of 8B parameters on one GPU: memory, time to read them, time of a new token.

    python -m benchmarks.decoder_million --out out/decoder_million            # one H200, 3 minutes
    python -m benchmarks.decoder_million --small --out out/small              # tiny sizes, on a CPU

The model has Llama 3 8B's shape and random weights, which do not change the times. Keys and values of 2**20 tokens in
32 layers take 128 GiB. Two parts, each written to OUT as soon as it is measured:

- `token`: all layers, their trees filled with random keys; the means are on the GPU, the leaves of the first layers in
  pinned memory and those of the others on the GPU. A question is asked through `document.ask`, with recorded steps.
- `read`: one layer reads all tokens by blocks of queries, its leaves in pinned memory from the start. Layers are alike:
  a model takes as many times as long. If the time is over before the text is, the rest is extrapolated and marked.
"""

import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch

import vcc
from benchmarks.random_llama import LlamaShape, TokenClock, random_llama
from vcc.commands.options import call
from vcc.decoders.cache import TreeCache
from vcc.decoders.document import KeptDocument
from vcc.decoders.layer import TreeLayer
from vcc.files import write_whole

CPU = torch.device("cpu")
GIB = 2**30


@dataclass(frozen=True)
class Size:
    """Llama 3 8B's shape, or a tiny one with the same code."""

    shape: LlamaShape = LlamaShape(4096, 14336, 32, 32, 8, 128_256)
    tokens: int = 2**20
    chunk: int = 4096  # tokens of a call that reads
    scales: tuple[int, ...] = (16, 1)
    opened: tuple[int, ...] = (32,)  # at each scale but the last
    question: int = 20
    written: int = 64
    left_out: int = 16  # of them, at the start: compiling, recording
    block: int = 64


SMALL = Size(LlamaShape(64, 128, 4, 4, 2, 99), 3000, 512, (4, 1), (3,), 5, 12, 4)


def decoder_million(
    out: Annotated[Path, "folder of the results"] = Path("out/decoder_million"),
    small: Annotated[bool, "tiny sizes, to see that it runs"] = False,
    parts: Annotated[str, "token, read or both, with a comma"] = "token,read",
    layers: Annotated[int, "of the model whose new tokens are timed; 0: all 32"] = 0,
    pinned: Annotated[int, "layers of them with leaves in pinned memory, 4 GiB each"] = 16,
    seconds: Annotated[int, "at most for reading"] = 60,
    block: Annotated[int, "queries that open nodes together when the text is read"] = 64,
    scales: Annotated[tuple[int, ...], "tokens per node"] = Size.scales,
    opened: Annotated[tuple[int, ...], "nodes opened at each scale but the last"] = Size.opened,
) -> None:
    """Measure memory and time of a very long document."""
    out.mkdir(parents=True, exist_ok=True)
    size = SMALL if small else Size(scales=scales, opened=opened)
    size = replace(size, shape=replace(size.shape, layers=layers or size.shape.layers), block=block)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")  # prefill by blocks computes in float32
    about: dict[str, Any] = {"torch": torch.__version__, "size": asdict(size)}
    about["device"] = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "token": partial(new_tokens, size, device, min(pinned, size.shape.layers)),
        "read": partial(reading, size, device, seconds),
    }
    for part in parts.split(","):
        begun = time.perf_counter()
        about[part] = work[part]()
        about[part]["part_seconds"] = time.perf_counter() - begun
        about["host_gib_at_most"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        write_whole(out / "decoder_million.json", json.dumps(about, indent=1))
        print(part, json.dumps(about[part]), flush=True)
        free()


def new_model(size: Size, layers: int, device: torch.device) -> Any:
    model = random_llama(size.shape, device, layers, max_position_embeddings=2 * size.tokens)
    settings = vcc.DecoderConfig(scales=size.scales, budget=size.opened, prefill="blocks", block=size.block)
    return vcc.wrap(model, settings)


def new_tokens(size: Size, device: torch.device, pinned: int) -> dict[str, Any]:
    """A question to a document whose trees are filled with random keys."""
    shape, model = size.shape, new_model(size, size.shape.layers, device)
    found: dict[str, Any] = {"layers": shape.layers, "pinned_layers": pinned, "weights_gib": allocated(device)}
    begun = time.perf_counter()
    draw = torch.Generator(device).manual_seed(1)
    rows = (1, shape.kv_heads, size.tokens, shape.hidden // shape.heads)
    layers = []
    with torch.no_grad():
        for number in range(shape.layers):
            k, v = (torch.randn(rows, generator=draw, device=device, dtype=model.dtype) for _ in range(2))
            leaves = CPU if number < pinned else None
            layers.append(TreeLayer.filled(model.vcc, k, v, leaves_on=leaves, expected=size.tokens))
            del k, v
            say(f"layer {number + 1} of {shape.layers}, {time.perf_counter() - begun:.0f} s")
    free()
    found |= {"filled_seconds": time.perf_counter() - begun, "gpu_gib": allocated(device)}
    found |= {"pinned_gib": sum(leaf_gib(layer) for layer in layers[:pinned])}
    found["means_gib"] = sum(node_gib(layer) for layer in layers)
    ids = torch.randint(0, shape.vocabulary, (1, size.tokens), generator=torch.Generator().manual_seed(2))
    document = KeptDocument(model, ids.to(device), TreeCache(layers))
    question = torch.arange(1, 1 + size.question)
    for _ in range(2):  # the first compiles kernels
        clock = TokenClock()
        how: dict[str, Any] = {"max_new_tokens": size.written, "min_new_tokens": size.written, "do_sample": False}
        document.ask(question, streamer=clock, **how)
    steps = clock.steps()[size.left_out :]
    found |= {"ms": statistics.median(steps), "mean_ms": statistics.fmean(steps), "slowest_ms": max(steps)}
    report = model.vcc_report()
    found["rows"] = statistics.fmean(layer.rows for layer in report)
    found["recorded"] = model.last_cache.steps.recorded.graph is not None
    found["gpu_gib_at_most"] = torch.cuda.max_memory_allocated() / GIB if device.type == "cuda" else 0.0
    return found


def reading(size: Size, device: torch.device, seconds: int) -> dict[str, Any]:
    """One layer reads the text by blocks, with leaves in pinned memory."""
    model = new_model(size, 1, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    ids = torch.randint(0, size.shape.vocabulary, (1, size.tokens), generator=torch.Generator().manual_seed(2)).to(
        device
    )
    cache = TreeCache.empty(model.config, model.vcc, CPU, expected=size.tokens)
    begun, times, read = time.perf_counter(), list[tuple[int, float]](), 0
    with torch.no_grad():
        for part in ids.split(size.chunk, 1):
            before = time.perf_counter()
            model(part, past_key_values=cache, logits_to_keep=1)
            synchronize(device)
            read += part.shape[1]
            times.append((read, time.perf_counter() - before))
            if len(times) % 32 == 0:
                say(f"{read:,} tokens, {1e6 * times[-1][1] / part.shape[1]:.0f} us a token")
            if time.perf_counter() - begun > seconds:
                break
    total = time.perf_counter() - begun
    found: dict[str, Any] = {"tokens_read": read, "seconds": total, "extrapolated": read < size.tokens}
    found["layer_seconds"] = total if read == size.tokens else whole_time(times, size)
    shown = times[:: max(1, len(times) // 16)]
    found["us_a_token"] = {str(at): round(1e6 * took / size.chunk, 1) for at, took in shown}
    found["pinned_gib"] = leaf_gib(cache.trees[0])
    found["gpu_gib_at_most"] = torch.cuda.max_memory_allocated() / GIB if device.type == "cuda" else 0.0
    return found


def whole_time(times: list[tuple[int, float]], size: Size) -> float:
    """What the whole text takes: a chunk's time grows by a constant with each chunk before it."""
    steady = times[len(times) // 8 :]
    mean_at, mean_took = (statistics.fmean(one[i] for one in steady) for i in range(2))
    slope = sum((at - mean_at) * (took - mean_took) for at, took in steady)
    slope /= max(1.0, sum((at - mean_at) ** 2 for at, _ in steady))
    missing = range(times[-1][0] + size.chunk, size.tokens + 1, size.chunk)
    return sum(took for _, took in times) + sum(mean_took + slope * (at - mean_at) for at in missing)


def leaf_gib(layer: TreeLayer) -> float:
    return sum(part.nbytes for part in (layer.tree.keys, layer.tree.values)) / GIB


def node_gib(layer: TreeLayer) -> float:
    tree = layer.tree
    return sum(part.nbytes for part in (*tree.key_means, *tree.value_means, *tree.spreads)) / GIB


def allocated(device: torch.device) -> float:
    return torch.cuda.memory_allocated() / GIB if device.type == "cuda" else 0.0


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(call(decoder_million, sys.argv[1:], "decoder_million"))
