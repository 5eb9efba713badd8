"""Check and time every backend of `attend` on this GPU, and the block sizes of the fused kernel.

    PYTHONPATH=src python benchmarks/attention.py                    everything; JSON to $OUT/kernels.json if OUT is set
    PYTHONPATH=src python benchmarks/attention.py check tune         some sections of: compile, check, time, tune, near

Each section runs in its own process: a failing kernel, even one that poisons the device, spoils only its section.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.attention_near import section_near
from benchmarks.attention_plans import MODES, OTHER_MODES, compile_plan, graph_ms, modes_of, plans, section_tune
from benchmarks.attention_problems import (
    BF16,
    FEATURES,
    LONG,
    PROBLEMS,
    SHORT,
    WINDOWS,
    Problem,
    compressed,
    message_of,
    random_table,
)
from vcc.attention.attend import DEFAULT, attend
from vcc.attention.scoring import RelativeBias, Scoring
from vcc.attention.sdpa import fold
from vcc.attention.unmasked import attend_few_masked, attend_groups
from vcc.commands.options import call
from vcc.core.rows import log_counts

CASES: list[tuple[torch.dtype, int, dict[str, Any]]] = [  # checked against the reference
    (BF16, 64, {}),
    (BF16, 64, {"table": True}),
    (BF16, 64, {"table": True, "consecutive": True}),
    (BF16, 64, {"window": 64}),
    (BF16, 64, {"table": True, "window": 64, "consecutive": True}),
    (torch.float32, 64, {}),
    (torch.float32, 64, {"table": True}),
    (torch.float32, 64, {"table": True, "consecutive": True}),
    (torch.float16, 64, {"table": True}),
    (BF16, 32, {"table": True}),
    (BF16, 128, {"table": True}),
    (BF16, 128, {"table": True, "consecutive": True}),
    (BF16, 80, {"table": True}),
]


def compile_case(number: int) -> None:
    dtype, features, options = CASES[number]
    check(Problem("tiny", 2, 256), dtype, features, "triton", dict(options))


def compile_one(task: tuple[Callable[..., None], tuple]) -> tuple[str, float, str]:
    """Fill Triton's cache on disk; seconds, or what went wrong."""
    function, arguments = task
    start, failure = time.perf_counter(), ""
    try:
        function(*arguments)
        torch.cuda.synchronize()
    except Exception as problem:
        failure = message_of(problem)
    return " ".join(map(str, (function.__name__, *arguments))), time.perf_counter() - start, failure


# ------------------------------------------------------------------------------------------------------------- sections


Record = dict[str, Any]


def section_compile() -> Iterator[Record]:
    """Compile all kernels in parallel, for the cache of later sections."""
    tasks: list[tuple[Callable[..., None], tuple]] = [(compile_case, (number,)) for number in range(len(CASES))]
    tasks += [(compile_plan, ("default", mode)) for mode in OTHER_MODES]
    tasks += [(compile_plan, (name, mode)) for name in plans() for mode in MODES if mode in modes_of(name)]
    start = time.perf_counter()
    with ProcessPoolExecutor(min(15, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for name, seconds, failure in pool.map(compile_one, tasks):
            if failure or "default" in name:
                yield {"what": name, "seconds": round(seconds, 1), "error": failure}
    yield {"what": f"{len(tasks)} tasks", "seconds": round(time.perf_counter() - start, 1), "error": ""}


def section_check() -> Iterator[Record]:
    """Every backend against the reference in float64: out, dq, dk, dv, dtable."""
    problem = compressed("check", 4096, 20, 20, batch=2)
    limits = {BF16: 1.5e-2, torch.float16: 3e-3, torch.float32: 2e-5}
    for dtype, features, options in CASES:
        for backend in ("triton", "sdpa"):
            what = f"{backend} {str(dtype)[6:]} d={features} {' '.join(options)}"
            try:
                errors = check(problem, dtype, features, backend, dict(options))
                # The materialised bias of SDPA is in the type of the queries, which alone costs this much.
                ok = max(errors) < limits[dtype] * (1 if backend == "triton" else 3)
                yield {"what": what, "errors": errors, "error": "" if ok else "WRONG"}
            except Exception as failure:
                yield {"what": what, "errors": [], "error": message_of(failure)}
    for what, function in {"odd lengths": check_odd, "dropout": check_dropout, "compiled": check_compiled}.items():
        try:
            yield {"what": what, "errors": function(), "error": ""}
        except Exception as failure:
            yield {"what": what, "errors": [], "error": message_of(failure)}


def check(
    problem: Problem,
    dtype: torch.dtype,
    features: int,
    backend: str,
    options: dict[str, Any],
    run: Callable[..., Tensor] = attend,
) -> list[float]:
    torch.manual_seed(0)
    heads = 3
    rows, (q, k, v, grad) = problem.rows(ragged=True), problem.heads(dtype, heads, features)
    weights = torch.randn(32, heads, device="cuda") if options.pop("table", False) else None
    results = []
    for name, precision in ((backend, dtype), ("reference", torch.float64)):
        leaves = [part.to(precision).detach().requires_grad_() for part in (q, k, v)]
        relative = None
        if weights is not None:
            leaves.append(weights.to(torch.promote_types(precision, torch.float32)).detach().requires_grad_())
            relative = RelativeBias(leaves[-1])
        chosen: Callable[..., Tensor] = run if name == backend else attend
        out = chosen(*leaves[:3], rows, Scoring(relative=relative, **options), name)
        out.backward(grad.to(precision))
        results.append([out, *(leaf.grad for leaf in leaves)])
    errors = [((a.double() - b).norm() / (b.norm() + 1e-3)).item() for a, b in zip(*results, strict=True)]
    if not all(math.isfinite(error) for error in errors):
        raise ArithmeticError(f"errors {errors}")
    return [float(f"{error:.1e}") for error in errors]


def check_compiled() -> list[float]:
    compiled = torch.compile(attend, fullgraph=True)
    problem = compressed("check", 4096, 20, 20, batch=2)
    errors = check(problem, BF16, 64, "triton", {"table": True}, compiled)
    errors += check(problem, BF16, 64, "sdpa", {}, compiled)
    graphed = torch.compile(attend, fullgraph=True, mode="reduce-overhead")
    q, k, v, _ = LONG.heads(BF16)
    with torch.no_grad():
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            graphed(q, k, v, LONG.rows(), Scoring(relative=RelativeBias(random_table())))
    return errors


def check_dropout() -> list[float]:
    """The kept share minus 0.9, and the error of the output averaged over many seeds."""
    rows, (q, k, v, _) = SHORT.rows(), SHORT.heads(BF16)
    dropping = Scoring(dropout=0.1)
    ones = attend(q, k, torch.ones_like(v), rows, dropping, "triton").float().mean().item() - 1
    mean = torch.stack([attend(q, k, v, rows, dropping, "triton").float() for _ in range(200)]).mean(0)
    exact = attend(q, k, v, rows, backend="triton").float()
    return [ones, ((mean - exact).norm() / exact.norm()).item()]


def check_odd() -> list[float]:
    """Lengths around the blocks, and poisoned memory: the worst error."""
    worst = 0.0
    for r in (1, 2, 63, 64, 65, 127, 128, 129, 257, 1000, 1023):
        poison = torch.full((64 << 20,), math.nan, device="cuda")
        del poison
        problem = Problem("odd", 3, r)
        for consecutive in (False, True):
            errors = check(problem, BF16, 64, "triton", {"table": True, "consecutive": consecutive})
            worst = max(worst, *errors)
    return [worst]


def median_ms(function: Callable[[], Any]) -> float:
    import triton

    return float(triton.testing.do_bench(function, warmup=20, rep=80, return_mode="median"))


def timed(forward: Callable[..., Tensor], inputs: list[Tensor], grad: Tensor) -> tuple[float, float, float]:
    """ms forward, forward in a graph, forward + backward."""
    with torch.no_grad():
        alone = median_ms(lambda: forward(*inputs))
        graphed = graph_ms(lambda: forward(*inputs))
    leaves = [part.detach().requires_grad_() for part in inputs]
    return alone, graphed, median_ms(lambda: torch.autograd.grad(forward(*leaves), leaves, grad))


def with_kernel(kind: SDPBackend, **options: Any) -> Callable[..., Tensor]:
    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        with sdpa_kernel(kind):
            return F.scaled_dot_product_attention(q, k, v, mask, **options)

    return run


def candidates(problem: Problem) -> Iterator[tuple[str, Callable[..., Tensor], list[Tensor]]]:
    """Name, function and differentiable inputs of everything worth timing on a problem."""
    rows, near = problem.rows(), not problem.tokens
    q, k, v, _ = problem.heads(BF16)
    bias = log_counts(rows.counts)
    mask = bias[:, None, None].to(BF16)
    flash, cudnn, efficient = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION

    def attending(backend: str, scoring: Scoring = DEFAULT) -> Callable[..., Tensor]:
        return lambda q, k, v: attend(q, k, v, rows, scoring, backend)

    def folded(kind: SDPBackend, size: int) -> Callable[..., Tensor]:
        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            parts: tuple[Tensor, ...] = fold(q, k, v, bias, FEATURES**-0.5)
            if size > parts[0].shape[-1]:
                parts = tuple(F.pad(part, (0, size - part.shape[-1])) for part in parts)
            return with_kernel(kind, scale=FEATURES**-0.5)(*parts)[..., :FEATURES]

        return run

    weight = (rows.counts / rows.counts.amax(1, keepdim=True))[:, None, :, None].to(BF16).expand(*v.shape[:3], 1)

    def weighted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keys that weigh c tokens as a ratio of plain attentions, to c v and to c: no mask, 8 more columns."""
        out = with_kernel(cudnn)(q, k, F.pad(torch.cat([v * weight, weight], -1), (0, 7)))
        return out[..., :FEATURES] / out[..., FEATURES : FEATURES + 1]

    yield "no bias: flash", with_kernel(flash), [q, k, v]
    yield "no bias: cudnn", with_kernel(cudnn), [q, k, v]
    yield "keys: sdpa", attending("sdpa"), [q, k, v]
    yield "keys: flash folded to 96", folded(flash, 96), [q, k, v]
    yield "keys: cudnn folded", folded(cudnn, 72), [q, k, v]
    yield "keys: cudnn mask", lambda q, k, v: with_kernel(cudnn)(q, k, v, mask), [q, k, v]
    yield "keys: cudnn weighted values", weighted, [q, k, v]
    pattern, uneven = problem.pattern, problem.pattern.uneven
    unmasked: Callable[..., Tensor] = (
        (lambda q, k, v: attend_groups(q, k, v, rows.counts, pattern, FEATURES**-0.5))
        if problem.tokens
        else (lambda q, k, v: attend_few_masked(q, k, v, rows.counts, uneven, FEATURES**-0.5))
    )
    yield "keys: without a mask", torch.compile(unmasked, dynamic=False), [q, k, v]
    yield "keys: efficient mask", lambda q, k, v: with_kernel(efficient)(q, k, v, mask), [q, k, v]
    yield "keys: triton", attending("triton"), [q, k, v]
    if problem in (LONG, WINDOWS[-1]):
        for backend in ("sdpa", "triton"):
            yield f"keys: {backend} dropout", attending(backend, Scoring(dropout=0.1)), [q, k, v]
            yield f"window 64: {backend}", attending(backend, Scoring(window=64, consecutive=near)), [q, k, v]

    def relative(backend: str, dropout: float = 0.0) -> Callable[..., Tensor]:
        def run(q: Tensor, k: Tensor, v: Tensor, weights: Tensor) -> Tensor:
            scoring = Scoring(0.3, RelativeBias(weights), consecutive=near, dropout=dropout)
            return attend(q, k, v, rows, scoring, backend)

        return run

    yield "table: triton", relative("triton"), [q, k, v, random_table()]
    frozen = random_table()
    yield "table: triton, frozen", lambda q, k, v: relative("triton")(q, k, v, frozen), [q, k, v]
    yield "table: triton dropout", relative("triton", 0.1), [q, k, v, random_table()]
    yield "table: sdpa", relative("sdpa"), [q, k, v, random_table()]
    with torch.no_grad():
        ready = RelativeBias(frozen)
        matrix = ready.among(problem.r) if near else ready.between(rows.positions, rows.positions)
        matrix = matrix.to(BF16).contiguous()
    yield "given bias: efficient", lambda q, k, v: with_kernel(efficient)(q, k, v, matrix), [q, k, v]


def section_time() -> Iterator[Record]:
    for problem in PROBLEMS:
        grad = problem.heads(BF16)[3]
        for name, forward, inputs in candidates(problem):
            record = {"problem": problem.name, "r": problem.r, "what": name}
            try:
                alone, graphed, both = timed(forward, inputs, grad)
                rate = problem.flops / graphed / 1e9
                yield {**record, "forward": alone, "graph": graphed, "both": both, "tflops": rate}
            except Exception as failure:
                yield {**record, "error": message_of(failure)}
        torch.cuda.empty_cache()


SECTIONS = {
    "compile": section_compile,
    "check": section_check,
    "time": section_time,
    "tune": section_tune,
    "near": section_near,
}


# --------------------------------------------------------------------------------------------------------------- report


def report(records: dict[str, list[Record]]) -> None:
    print("\n=== compile")
    for record in records["compile"]:
        print(f"{record['seconds']:6.1f} s  {record['what']:40s} {record['error']}")
    print("\n=== check: error of out, dq, dk, dv, dtable against float64")
    for record in records["check"]:
        print(f"{record['what']:46s} {' '.join(f'{error:.0e}' for error in record['errors'])} {record['error']}")
    print("\n=== tune: ms by plan; * best")
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in [*records["tune"], *records["near"]]:
        key = (record["problem"], record.get("mode", "near"), record.get("pass", "failed"))
        groups.setdefault(key, []).append(record)
    for (problem, mode, step), group in groups.items():
        if step == "failed":
            print(f"{problem} {mode}: " + "; ".join(f"{record['plan']} {record['error']}" for record in group))
            continue
        group.sort(key=lambda record: record["ms"])
        rest = "  ".join(f"{record['plan'].removeprefix('forward ')} {record['ms']:.3f}" for record in group)
        print(f"{problem} {mode} {step}: * {rest}")
    print("\n=== time: ms forward / forward in a graph / forward + backward (TFLOP/s forward)")
    names = list(dict.fromkeys(record["what"] for record in records["time"]))
    problems = list(dict.fromkeys(record["problem"] for record in records["time"]))
    print(" " * 26 + "".join(f"{problem:>27s}" for problem in problems))
    for name in names:
        cells = []
        for problem in problems:
            found = [record for record in records["time"] if (record["what"], record["problem"]) == (name, problem)]
            if not found:
                cells.append("")
            elif "error" in found[0]:
                cells.append("FAILED")
            else:
                cells.append("{forward:.3f}/{graph:.3f}/{both:.3f} ({tflops:.0f})".format(**found[0]))
        print(f"{name:26s}" + "".join(f"{cell:>27s}" for cell in cells))
    failures: dict[str, list[str]] = {}
    for record in records["time"]:
        if "error" in record:
            failures.setdefault(f"{record['what']}: {record['error']}", []).append(record["problem"])
    for what, where in failures.items():
        print(f"FAILED {what} ({', '.join(where)})")


def bench_attention(
    sections: Annotated[tuple[str, ...], "some of compile, check, time, tune and near (default: all)"],
    into: Annotated[Path | None, "only run the section and append its results to this file"] = None,
) -> None:
    """Check and time every backend of `attend` on this GPU, and the block sizes of the fused kernel.

    The results go to $OUT/kernels.json, or to /tmp. Each section runs in its own process: a kernel that fails, or
    even poisons the device, spoils only its section.
    """
    if not torch.cuda.is_available():
        sys.exit("benchmarks/attention.py needs a CUDA device; there is none")
    if into is not None:
        with into.open("a") as sink:
            for record in SECTIONS[sections[0]]():
                sink.write(json.dumps(record) + "\n")
                sink.flush()
        return
    folder = Path(os.environ.get("OUT", "/tmp"))
    records: dict[str, list[Record]] = {name: [] for name in SECTIONS}
    for name in sections or SECTIONS:
        file = folder / f"kernels-{name}.jsonl"
        file.write_text("")
        start = time.perf_counter()
        code: int | str
        try:
            code = subprocess.run([sys.executable, __file__, name, "--into", str(file)], timeout=150).returncode
        except subprocess.TimeoutExpired:
            code = "timed out"
        records[name] = [json.loads(line) for line in file.read_text().splitlines()]
        seconds = time.perf_counter() - start
        print(f"section {name}: {seconds:.0f} s, exit {code}, {len(records[name])} results", flush=True)
    machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    problems = [asdict(problem) for problem in PROBLEMS]
    (folder / "kernels.json").write_text(json.dumps({"machine": machine, "problems": problems, **records}, indent=1))
    report(records)


if __name__ == "__main__":
    call(bench_attention, sys.argv[1:], "benchmarks/attention.py")
