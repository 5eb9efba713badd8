"""What trees under keys and values cost in time, with random weights: new tokens, building, leaves on the CPU, T5.

    python -m benchmarks.decoders_gpu --out out/decoders_gpu           # one GPU, about 8 minutes
    python -m benchmarks.decoders_gpu --small --out out/small          # the same code, tiny sizes, on a CPU

Every part is a JSON file in OUT as soon as it is measured, and lines of the table that is printed at the end. Times
are medians; on a GPU they are those of a CUDA graph where the step can be captured, and `graph` says whether it was.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention
from transformers import DynamicCache, LlamaConfig, T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

import vcc
from vcc.commands.options import call
from vcc.cuda_graph import record
from vcc.decoders.cross import with_recorded_steps
from vcc.decoders.interface import attend_layer
from vcc.decoders.layer import TreeLayer
from vcc.decoders.recorded_step import StepCache
from vcc.files import write_whole

Line = dict[str, Any]  # of the table


@dataclass(frozen=True)
class Size:
    """What is measured: Llama-3-8B's shape and T5-base's, or tiny ones with the same code."""

    heads: int = 32
    kv_heads: int = 8
    width: int = 128  # of a head
    inner: int = 14336
    lengths: tuple[int, ...] = (131_072, 1_048_576)
    batches: tuple[int, ...] = (1, 8)
    prefill: int = 131_072
    states: int = 65_536  # of the encoder, for cross-attention
    written: int = 256
    crossing: tuple[int, int, int] = (768, 12, 12)  # T5-base: hidden size, heads, decoder layers
    rounds: int = 50


SMALL = Size(4, 2, 16, 64, (2048, 4096), (1, 2), 1024, 2048, 8, (32, 4, 2), 3)
SETTINGS = {f"{leaf} opened 32": vcc.DecoderConfig(scales=(leaf, 1), budget=32) for leaf in (16, 32, 64)}
MOST = 2**21  # keys in a batch: what a tree is made of stays in memory beside it
CROSSING = "64 opened 32"  # of T5's decoder


def decoders_gpu(
    out: Annotated[Path, "folder of the results"] = Path("out/decoders_gpu"),
    small: Annotated[bool, "tiny sizes, to see that it runs"] = False,
    parts: Annotated[str, "some of token, build, offload, cross; with commas"] = "token,build,offload,cross",
) -> None:
    """Time trees under keys and values."""
    out.mkdir(parents=True, exist_ok=True)
    size = SMALL if small else Size()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    lines: list[Line] = []
    for part in parts.split(","):
        found = list(PARTS[part](size, device, dtype))
        name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
        about = {"device": name, "size": asdict(size), "torch": torch.__version__, "results": found}
        write_whole(out / f"{part}.json", json.dumps(about, indent=1))
        lines += found
    print(markdown(lines))


@torch.inference_mode()
def tokens(size: Size, device: torch.device, dtype: torch.dtype, leaves: str = "") -> Iterator[Line]:
    """Attention of one new token in one layer, over a tree and over all keys."""
    what = "leaves on the CPU" if leaves else "new token"
    for length in size.lengths[:1] if leaves else size.lengths:
        for batch in (batch for batch in size.batches if batch * length <= MOST):
            k, v = (random_keys(batch, size, length, device, dtype) for _ in range(2))
            q = torch.randn(batch, size.heads, 1, size.width, device=device, dtype=dtype)
            dense = partial(scaled_dot_product_attention, q, k, v, enable_gqa=True)
            dense_ms, _ = timed(dense, device, size.rounds)
            for name, settings in SETTINGS.items():
                layer = tree_of(settings, k, v)
                here_ms, graph = timed(partial(new_token, layer, q), device, size.rounds)
                line: Line = {"what": what, "keys": length, "batch": batch, "settings": name, "graph": graph}
                if leaves:
                    move_leaves(layer)
                    there_ms, _ = timed(partial(new_token, layer, q), device, size.rounds)
                    yield line | {"ms": there_ms, "beside_ms": here_ms, "times": here_ms / there_ms}
                    rest_ms, _ = timed(rest_of_layer(batch, size, device, dtype), device, size.rounds)
                    there_ms, here_ms = there_ms + rest_ms, here_ms + rest_ms
                    line["what"] += ", whole layer"
                    yield line | {"ms": there_ms, "beside_ms": here_ms, "times": here_ms / there_ms}
                else:
                    yield line | {"ms": here_ms, "beside_ms": dense_ms, "times": dense_ms / here_ms}
                del layer
            del k, v, dense
            free()


@torch.inference_mode()
def build(size: Size, device: torch.device, dtype: torch.dtype) -> Iterator[Line]:
    """Making a layer's tree, beside what the layer takes to read the prompt."""
    hidden = size.heads * size.width
    config = LlamaConfig(  # type: ignore[call-arg]
        hidden_size=hidden,
        intermediate_size=size.inner,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.width,
        num_hidden_layers=1,
        max_position_embeddings=2 * size.prefill,
        attn_implementation="sdpa",
    )
    layer = LlamaDecoderLayer(config, 0).to(device, dtype).eval()
    rows = torch.randn(1, size.prefill, hidden, device=device, dtype=dtype)
    places = torch.arange(size.prefill, device=device)[None]
    angles = LlamaRotaryEmbedding(config).to(device)(rows, places)
    prefill = partial(layer, rows, position_embeddings=angles, position_ids=places)
    prefill_ms, _ = timed(prefill, device, 3, capture=False)
    k, v = (random_keys(1, size, size.prefill, device, dtype) for _ in range(2))
    for name, settings in SETTINGS.items():
        ms, _ = timed(partial(tree_of, settings, k, v), device, 3, capture=False)
        line = {"what": "build beside prefill", "keys": size.prefill, "batch": 1, "settings": name, "graph": False}
        yield line | {"ms": ms, "beside_ms": prefill_ms, "times": prefill_ms / ms}


@torch.inference_mode()
def cross(size: Size, device: torch.device, dtype: torch.dtype) -> Iterator[Line]:
    """T5's decoder over many encoder states: all of `generate` but the encoder."""
    width, heads, layers = size.crossing
    config = T5Config(  # type: ignore[call-arg]
        d_model=width,
        d_kv=width // heads,
        d_ff=4 * width,
        num_heads=heads,
        num_layers=layers,  # the encoder's, which does not run
        decoder_start_token_id=0,
    )
    model: Any = T5ForConditionalGeneration(config)
    model.to(device, dtype).eval()
    wrapped = vcc.wrap(model, SETTINGS[CROSSING])
    for batch in size.batches:
        states = torch.randn(batch, size.states, width, device=device, dtype=dtype)
        ours, dense = (
            timed(partial(write, each, states, size.written), device, 1, capture=False)[0] for each in (wrapped, model)
        )
        line: Line = {"what": f"T5, {size.written} tokens", "keys": size.states, "batch": batch, "settings": CROSSING}
        yield line | {"graph": False, "ms": ours, "beside_ms": dense, "times": dense / ours}
        if device.type == "cuda":  # on a CPU nothing is recorded
            recorded, _ = timed(partial(write_recorded, model, states, size.written), device, 1, capture=False)
            line["what"] += ", beside one in a graph"
            yield line | {"graph": True, "ms": ours, "beside_ms": recorded, "times": recorded / ours}


class DenseSteps(StepCache):
    """Steps of the untouched model, recorded as those with trees are."""

    @property
    def trees(self) -> list[Any]:
        return []

    def can_record(self) -> bool:
        return True


def write_recorded(model: Any, states: Tensor, tokens: int) -> Tensor:
    model.forward = MethodType(with_recorded_steps(type(model).forward), model)
    cache = DenseSteps(model.config.num_decoder_layers, tokens + 1, DynamicCache())
    try:
        return write(model, states, tokens, past_key_values=cache)
    finally:
        del model.forward


def write(model: Any, states: Tensor, tokens: int, **how: Any) -> Tensor:
    return model.generate(
        **how,
        encoder_outputs=BaseModelOutput(last_hidden_state=states),  # type: ignore[arg-type]
        attention_mask=torch.ones(states.shape[:2], dtype=torch.int64, device=states.device),
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=False,
    )


PARTS: dict[str, Callable[[Size, torch.device, torch.dtype], Iterator[Line]]] = {
    "token": tokens,
    "build": build,
    "offload": partial(tokens, leaves="cpu"),
    "cross": cross,
}


def random_keys(batch: int, size: Size, length: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Which nodes are opened does not change the time: any numbers will do."""
    return torch.randn(batch, size.kv_heads, length, size.width, device=device, dtype=dtype)


def tree_of(settings: vcc.DecoderConfig, k: Tensor, v: Tensor) -> TreeLayer:
    return TreeLayer.filled(settings, k, v)


def new_token(layer: TreeLayer, q: Tensor) -> Tensor:
    return attend_layer(layer, q, 1, q.shape[-1] ** -0.5, False)


def rest_of_layer(batch: int, size: Size, device: torch.device, dtype: torch.dtype) -> Callable[[], Tensor]:
    """What a decoder layer does for one token beside its attention: seven products with its weights."""
    hidden, shared = size.heads * size.width, size.kv_heads * size.width
    shapes = [(hidden, hidden), (hidden, shared), (hidden, shared), (hidden, hidden)]
    shapes += [(hidden, size.inner), (hidden, size.inner), (size.inner, hidden)]
    weights = [torch.randn(wide, tall, device=device, dtype=dtype) for tall, wide in shapes]
    rows = {n: torch.randn(batch, n, device=device, dtype=dtype) for n in (hidden, size.inner)}
    return lambda: [linear(rows[weight.shape[1]], weight) for weight in weights][-1]


def move_leaves(layer: TreeLayer) -> None:
    """All tokens of the tree to the CPU; the means stay."""
    tree = layer.tree
    parts = {name: getattr(tree, name).cpu() for name in ("keys", "values")}
    if torch.cuda.is_available():
        parts = {name: part.pin_memory() for name, part in parts.items()}
    layer.tree = replace(tree, **parts)


def timed(work: Callable[[], Any], device: torch.device, rounds: int, capture: bool = True) -> tuple[float, bool]:
    """The median of so many calls in milliseconds, and whether a CUDA graph was timed."""
    work()
    if device.type == "cpu":
        return 1e3 * statistics.median(wall(work) for _ in range(rounds)), False
    graph = captured(work) if capture else None
    call_it = graph.replay if graph else work
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call_it()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times), graph is not None


def wall(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def captured(work: Callable[[], Any]) -> Any:
    """The work as a CUDA graph; None where it waits for the device and cannot be captured."""
    try:
        return record(work)[0]
    except Exception as error:  # what the libraries raise differs
        print(f"not captured: {' '.join(str(error).split())[:160]}", file=sys.stderr)
        torch.cuda.synchronize()
        return None


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def markdown(lines: list[Line]) -> str:
    names = ["what", "keys", "batch", "scales, opened", "ms", "beside ms", "times", "graph"]
    rows = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for line in lines:
        cells = [line["what"], f"{line['keys']:,}", line["batch"], line["settings"], f"{line['ms']:.3f}"]
        cells += [f"{line['beside_ms']:.3f}", f"{line['times']:.2f}", "yes" if line["graph"] else "no"]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(call(decoders_gpu, sys.argv[1:], "decoders_gpu"))
