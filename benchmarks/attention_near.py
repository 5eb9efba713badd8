"""The block sizes of the fused kernel where rows see what is near: sliding windows over all tokens, and the rows of a
cut. Beside it FlexAttention on the same windows."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.attention_plans import graph_ms, prepared
from benchmarks.attention_problems import BF16, message_of
from vcc.core.rows import Rows

BATCH, HEADS, FEATURES, TOKENS, VIPS, REACH = 64, 12, 32, 4096, 64, 256  # MiniLM's heads
SHAPES = [
    (64, 64, 4, 2), (64, 64, 4, 2, 128), (64, 64, 4, 2, 168), (64, 64, 4, 1), (64, 64, 2, 2), (64, 32, 4, 2),
    (64, 32, 4, 3), (32, 64, 4, 2), (32, 64, 2, 3), (128, 32, 4, 3), (128, 64, 4, 2), (128, 64, 8, 2), (128, 128, 8, 2),
]  # fmt: skip


def sliding() -> Rows:
    """VIPs, then every token."""
    positions = torch.cat([torch.arange(VIPS), torch.arange(TOKENS)]).repeat(BATCH, 1)
    return rows_at(positions, torch.ones(positions.shape))


def cut(opened: int) -> Rows:
    """VIPs, closed segments of 16 tokens, and the tokens of the opened ones: half of these in four clusters, the others
    anywhere."""
    generator = torch.Generator().manual_seed(0)
    segments = TOKENS // 16
    positions, counts = [], []
    for _ in range(BATCH):
        at = torch.randint(segments - opened // 8, (4,), generator=generator)
        clusters = (at[:, None] + torch.arange(opened // 8)).flatten().unique()
        anywhere = torch.randperm(segments, generator=generator)
        others = anywhere[~torch.isin(anywhere, clusters)][: opened - len(clusters)]
        is_open = torch.zeros(segments, dtype=torch.bool).index_fill(0, torch.cat([clusters, others]), True)
        closed, inside = (~is_open).nonzero().squeeze(1), is_open.nonzero() * 16 + torch.arange(16)
        positions.append(torch.cat([torch.arange(VIPS).float(), closed * 16 + 7.5, inside.flatten().float()]))
        counts.append(torch.cat([torch.ones(VIPS), torch.full((len(closed),), 16), torch.ones(16 * opened)]))
    return rows_at(torch.stack(positions), torch.stack(counts))


def rows_at(positions: Tensor, counts: Tensor) -> Rows:
    return Rows(torch.zeros(*positions.shape, 1).cuda(), counts.cuda(), positions.float().cuda())


def section_near() -> Iterator[dict[str, Any]]:
    """Raw forward and backward launches by plan, as graphs, in ms of a batch of 64."""
    from vcc.attention.kernels import relative_attention as module

    default = module.choose_plan(BF16, FEATURES, local=True)
    for name, rows in (("sliding", sliding()), ("cut, h = 70", cut(70)), ("cut, h = 32", cut(32))):
        shape = (4, BATCH, len(rows), HEADS, FEATURES)
        q, k, v, grad = torch.randn(shape, device="cuda").to(BF16).transpose(2, 3)
        given, _ = prepared(rows, window=REACH)
        bias = replace(given, first=VIPS, ordered=name == "sliding", scale=FEATURES**-0.5)
        out, lse = module.forward(q, k, v, bias)
        plans = {"default": default} | {
            f"{kernel} {'x'.join(map(str, blocks))}": replace(default, **{kernel: module.Blocks(*blocks)})
            for kernel in ("forward", "query", "key")
            for blocks in SHAPES
        }
        for plan_name, plan in plans.items():
            forward = partial(module.forward, q, k, v, bias, plan)
            backward = partial(module.backward, grad, q, k, v, out, lse, bias, False, plan)
            for way, run in (("forward", forward), ("backward", backward)):
                if plan_name != "default" and plan_name.startswith("forward") != (way == "forward"):
                    continue
                record = {"problem": name, "plan": plan_name}
                try:
                    yield {**record, "pass": way, "ms": graph_ms(run)}
                except Exception as failure:
                    yield {**record, "error": message_of(failure)}
        if name == "sliding":
            yield from flex(q, k, v, grad)


def flex(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Iterator[dict[str, Any]]:
    """The same pairs by FlexAttention, without a bias per key."""

    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ((i - j).abs() <= REACH) | (i < VIPS) | (j < VIPS)

    mask = create_block_mask(sees, None, None, q.shape[2], q.shape[2], "cuda")
    attend = partial(torch.compile(flex_attention, dynamic=False), block_mask=mask)
    q, k, v = (part.contiguous().requires_grad_() for part in (q, k, v))
    out = attend(q, k, v)

    def backward() -> None:
        torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    for way, run in (("forward", partial(attend, q, k, v)), ("backward", backward)):
        yield {"problem": "sliding", "plan": "FlexAttention", "pass": way, "ms": graph_ms(run)}
