"""The block sizes of the fused kernel: the default plan, plans that differ from it in one kernel, and their times."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.attention_problems import (
    BF16,
    FEATURES,
    LONG,
    MIDDLE,
    SHORT,
    WINDOWS,
    Problem,
    message_of,
    random_table,
)
from vcc.attention.scoring import RelativeBias
from vcc.core.rows import Rows, log_counts


def plans() -> dict[str, Any]:
    """The default plan, and plans that differ from it in one kernel."""
    from vcc.attention.kernels.relative_attention import Blocks, choose_plan

    default = choose_plan(BF16, FEATURES)
    shapes = {
        "forward": [
            (128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 4, 3), (128, 64, 4, 2), (128, 64, 8, 3, 128),
            (64, 64, 4, 2, 128), (64, 64, 4, 3, 168), (64, 128, 4, 2), (128, 32, 4, 3),
        ],
        "query": [
            (64, 64, 4, 2, 168), (64, 64, 4, 2), (64, 64, 4, 3, 168), (128, 64, 8, 2), (128, 64, 4, 2),
            (128, 128, 8, 2),
        ],
        "key": [
            (64, 128, 8, 2), (64, 128, 8, 3), (64, 64, 4, 2), (64, 64, 4, 2, 168), (128, 64, 4, 2), (128, 128, 8, 2),
        ],
        "table": [(64, 64, 4, 2), (64, 64, 4, 2, 168), (64, 64, 4, 1), (64, 64, 8, 2)],
    }  # fmt: skip
    found = {"default": default}
    for kernel, choices in shapes.items():
        for choice in choices:
            plan = replace(default, **{kernel: Blocks(*choice)})
            if plan.query.queries * plan.query.keys > 64 * 64:  # the table's kernels use the same tiles and need room
                plan = replace(plan, table=replace(plan.table, warps=8))
            if plan != default:
                found[f"{kernel} {'x'.join(map(str, choice))}"] = plan
    return found


MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "relative": {"table": True},
    "neighbours": {"table": True, "consecutive": True},
}
OTHER_MODES: dict[str, dict[str, Any]] = {  # timed with the default plan only
    "window": {"window": 64},
    "window, neighbours": {"window": 64, "consecutive": True},
    "dropout": {"dropout": 0.1},
    "relative dropout": {"table": True, "dropout": 0.1},
    "neighbours dropout": {"table": True, "consecutive": True, "dropout": 0.1},
    "relative frozen": {"table": True, "frozen": True},
    "neighbours frozen": {"table": True, "consecutive": True, "frozen": True},
}


def modes_of(plan: str) -> list[str]:
    return ["relative", "neighbours"] if plan.startswith("table") else list(MODES)


def prepared(
    rows: Rows,
    table: bool = False,
    frozen: bool = False,
    consecutive: bool = False,
    window: int = -1,
    dropout: float = 0.0,
) -> tuple[Any, bool]:
    """The arguments of the raw launches: the bias, and whether the table wants a gradient."""
    from vcc.attention.kernels import relative_attention as module

    keys = F.pad(log_counts(rows.counts) * module.LOG2E, (0, -len(rows) % module.EDGE), value=-math.inf)
    seed = torch.randint(2**62, (1,), device="cuda") if dropout else None
    relative = RelativeBias(random_table()) if table else None
    starts, weights = ((), None) if relative is None else (relative.starts, relative.table)
    bias = module.Bias(keys, rows.positions, weights, seed, 0.125, starts, window, 0, False, consecutive, dropout)
    return bias, table and not frozen


def compile_plan(name: str, mode: str) -> None:
    from vcc.attention.kernels import relative_attention as module

    problem, plan = Problem("tiny", 2, 256), plans()[name]
    q, k, v, grad = problem.heads(BF16)
    bias, table_grad = prepared(problem.rows(), **(MODES | OTHER_MODES)[mode])
    out, lse = module.forward(q, k, v, bias, plan)
    if not name.startswith("forward"):
        module.backward(grad, q, k, v, out, lse, bias, table_grad, plan)


def graph_ms(function: Callable[[], Any]) -> float:
    """GPU time only, as in a captured graph."""
    import triton

    return float(triton.testing.do_bench_cudagraph(function, rep=20, return_mode="median"))


def section_tune() -> Iterator[dict[str, Any]]:
    """Raw forward and backward launches by plan, as graphs."""
    from vcc.attention.kernels import relative_attention as module

    for problem, modes in (
        (LONG, ("plain", "relative")),
        (MIDDLE, ("plain", "relative")),
        (SHORT, ("relative",)),
        (WINDOWS[-1], ("plain", "neighbours")),
    ):
        rows, (q, k, v, grad) = problem.rows(), problem.heads(BF16)
        for mode in modes:
            bias, table_grad = prepared(rows, **MODES[mode])
            out, lse = module.forward(q, k, v, bias)
            for name, plan in plans().items():
                if mode not in modes_of(name):
                    continue
                record = {"problem": problem.name, "mode": mode, "plan": name}
                try:
                    if name == "default" or name.startswith("forward"):
                        ms = graph_ms(partial(module.forward, q, k, v, bias, plan))
                        yield {**record, "pass": "forward", "ms": ms}
                    if not name.startswith("forward"):
                        ms = graph_ms(partial(module.backward, grad, q, k, v, out, lse, bias, table_grad, plan))
                        yield {**record, "pass": "backward", "ms": ms}
                except Exception as failure:
                    yield {**record, "error": message_of(failure)}
