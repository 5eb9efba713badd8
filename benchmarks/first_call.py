"""The time until a compiled model gives its first result, and the time of later calls.

    python benchmarks/first_call.py --out out/first_call                          # this checkout, whole and in pieces
    python benchmarks/first_call.py --out out/before --checkout ../before         # another commit, to compare with
    python benchmarks/first_call.py --out out/steady --caches out/caches          # twice: later only what was compiled
    python benchmarks/first_call.py --lengths 4096,16384 --ways whole,pieces,pieces-cudagraphs,pieces-unrecorded

Ways to compile: `whole`, one graph of all layers; `pieces`, which we record as CUDA graphs; `pieces-cudagraphs`, the
same pieces with the compiler's own CUDA graphs; `pieces-unrecorded`, without any. Without a GPU the last three are
alike.

For each length and mode: a fresh process with an empty compiler cache (`first`), then a second process with the cache
of the first (`second`). In the second, `graph` is the median of back-to-back runs between device events; `call`, of
single calls from an idle device to their end; `python`, until such a call returns while the device still works. RoBERTa
of base size with random weights, bf16 on a GPU; only torch, transformers and the checkout are needed. results.json is
written after every process. First, one small model is compiled and not timed, so all modules have bytecode.
"""

import argparse
import inspect
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WAYS = ("whole", "pieces", "pieces-cudagraphs", "pieces-unrecorded")
SIZES = {"base": (12, 768, 12), "tiny": (6, 64, 4)}  # layers, features, heads
PADDING, RUNS = 13, 50


def reading(length: int) -> tuple[int, int]:
    """VIPs and budget, as `vcc bench` reads so many tokens."""
    return (min(288, length // 8), 80) if length <= 8192 else (32 if length <= 65_536 else 48, 90)


def compile_in_way(model: Any, way: str) -> None:
    """Compile a wrapped model, in place. Older checkouts have no pieces, or none but recorded ones."""
    import vcc

    if way in ("whole", "pieces"):
        takes_whole = "whole" in inspect.signature(vcc.compile).parameters
        if way == "pieces" and not takes_whole:
            raise SystemExit("this checkout compiles whole graphs only")
        vcc.compile(model, **({"whole": way == "whole"} if takes_whole else {}))
        return
    from vcc.hosts.forward.wrapped import state_of

    vcc.compile(model, whole=False)
    state_of(model).graphs = unrecorded(cuda_graphs=way == "pieces-cudagraphs")


def unrecorded(cuda_graphs: bool) -> Any:
    """Pieces that we do not record, with or without the compiler's own CUDA graphs."""
    import torch

    from vcc.hosts.compiled.compile import UNTUNED, CompiledGraphs, MovesGradients
    from vcc.hosts.compiled.pieces import CompiledPieces

    class Unrecorded(CompiledGraphs):
        def graph(self, encoder: Any, launch_bound: bool) -> Any:
            if not cuda_graphs:
                return CompiledPieces(options=UNTUNED)
            pieces = CompiledPieces(options=UNTUNED | {"triton.cudagraphs": True})

            def run(encoder: Any, batch: Any, settings: Any) -> Any:
                # The pieces of one pass belong together: without this each call of a piece would begin anew, and
                # overwrite what the piece before it has returned.
                torch.compiler.cudagraph_mark_step_begin()
                return pieces(encoder, batch, settings)

            return MovesGradients(run) if torch.is_grad_enabled() else run

    return Unrecorded(whole=False)


def case(length: int, mode: str, way: str, size: str, between: Callable[[], None] | None = None) -> dict[str, Any]:
    """In one process: the first call, and the times of later ones. `between` them the process may wait."""
    import torch
    import transformers

    import vcc

    layers, width, heads = SIZES[size]
    cuda = torch.cuda.is_available()
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=32_128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    plain: Any = transformers.RobertaModel(config, add_pooling_layer=False)
    plain = plain.to("cuda", torch.bfloat16) if cuda else plain
    vips, budget = reading(length)
    settings = vcc.VccConfig(budget=(budget,), dense_below=0, max_vips=-(-vips // 32) * 32)
    model = vcc.wrap(plain, settings).train(mode == "training")
    compile_in_way(model, way)
    places = torch.arange(length, device=model.device)[None]
    given = {
        "input_ids": torch.randint(10, 32_000, (1, length), device=model.device),
        "attention_mask": (places < length - PADDING).long(),
        "vip_mask": (places < vips).long(),
    }

    def step() -> None:
        with torch.set_grad_enabled(mode == "training"):
            hidden = model(**given).last_hidden_state
            if mode == "training":
                hidden[..., 0].float().mean().backward()
                model.zero_grad(set_to_none=True)

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()

    wait()
    start = time.perf_counter()
    step()
    wait()
    found: dict[str, Any] = {"first_s": time.perf_counter() - start}
    for _ in range(5):  # CUDA graphs are recorded in the second call, or in a later one
        step()
    if between:
        between()
        for _ in range(10):  # the device wakes up
            step()
    found |= later_calls(step, wait, cuda)
    found["gib"] = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
    found["versions"] = f"torch {torch.__version__}, transformers {transformers.__version__}"
    found["machine"] = torch.cuda.get_device_name() if cuda else "CPU"
    return found


def later_calls(step: Callable[[], None], wait: Callable[[], None], cuda: bool) -> dict[str, float]:
    import torch

    calls, returns = [], []
    for _ in range(RUNS if cuda else 3):
        wait()
        start = time.perf_counter()
        step()
        returns.append(time.perf_counter() - start)
        wait()
        calls.append(time.perf_counter() - start)
    found = {"call_ms": statistics.median(calls) * 1e3, "python_ms": statistics.median(returns) * 1e3}
    if cuda:
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(RUNS)]
        for before, after in events:
            before.record()
            step()
            after.record()
        wait()
        found["graph_ms"] = statistics.median(before.elapsed_time(after) for before, after in events)
    return found


def run_case(words: list[str], checkout: Path, cache: str, patience: float) -> dict[str, Any]:
    """In a process of its own, which finds compiled code in `cache` only."""
    own = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton", "PYTHONPATH": str(checkout / "src")}
    env = os.environ | own | {"PYTHONPYCACHEPREFIX": f"{tempfile.gettempdir()}/first_call_bytecode"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--case", *words],
            env=env,
            capture_output=True,
            text=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {patience:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.strip()[-2000:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/first_call"))
    parser.add_argument("--checkout", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--lengths", default="4096,16384,131072")
    parser.add_argument("--modes", default="forward,training")
    parser.add_argument("--ways", default="whole,pieces", help=f"to compile, some of {', '.join(WAYS)}")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--caches", type=Path, help="folder of compiler caches to keep and reuse")
    parser.add_argument("--patience", type=float, default=300, help="seconds for one process")
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        length, mode, way, size = given.case
        print(json.dumps(case(int(length), mode, way, size)))
        return
    unknown = set(given.ways.split(",")) - set(WAYS)
    if unknown:
        parser.error(f"--ways has {', '.join(sorted(unknown))}: they must be some of {', '.join(WAYS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        run_case(["1024", "training", given.ways.partition(",")[0], "tiny"], given.checkout, cache, given.patience)
    print("length mode way: first s, second s, graph ms, call ms, python ms")
    for length in given.lengths.split(","):
        for mode in given.modes.split(","):
            for way in given.ways.split(","):
                words = [length, mode, way, given.size]
                with kept_cache(given.caches, "-".join(words)) as cache:
                    filled = any(Path(cache).iterdir())
                    first = {} if filled else run_case(words, given.checkout, cache, given.patience)
                    second = {} if "failed" in first else run_case(words, given.checkout, cache, given.patience)
                results.append({"length": int(length), "mode": mode, "way": way, "first": first, "second": second})
                (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
                print(f"{length} {mode} {way}: {shown(first, second)}", flush=True)


@contextmanager
def kept_cache(caches: Path | None, name: str) -> Iterator[str]:
    """A folder for what is compiled: of its own among `caches`, or one that is gone afterwards."""
    if caches is None:
        with tempfile.TemporaryDirectory() as cache:
            yield cache
    else:
        (caches / name).mkdir(parents=True, exist_ok=True)
        yield str(caches / name)


def shown(first: dict[str, Any], second: dict[str, Any]) -> str:
    failed = first.get("failed") or second.get("failed")
    if failed:
        return "failed: " + failed.strip().splitlines()[-1]
    seconds = f"{first.get('first_s', math.nan):.1f}, {second['first_s']:.1f}"
    return seconds + "".join(f", {second.get(name, 0):.2f}" for name in ("graph_ms", "call_ms", "python_ms"))


if __name__ == "__main__":
    main()
