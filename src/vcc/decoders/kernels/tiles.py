"""The kernels of one step: no score of a node is ever written to memory.

A program has one KV head of one sequence, and a stretch of its nodes or rows. The heads of the group, which share the
keys, are padded to 16 so that products of matrices serve them. Whatever needs all stretches of a head is small, and
joined by `step.py`.
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def queries(q, head, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr):
    """(VIPS, D): the group's queries, zeros beyond them."""
    vip, d = tl.arange(0, VIPS), tl.arange(0, D)
    return tl.load(q + (head * GROUP + vip[:, None]) * D + d[None, :], mask=vip[:, None] < GROUP, other=0.0)


@triton.jit
def scores(q, keys, base, row, count, scale, plus, D: tl.constexpr):
    """(VIPS, BLOCK): of rows `base + row` of keys (..., D), scaled, `plus` added; -inf from `count` on."""
    d = tl.arange(0, D)
    k = tl.load(keys + (base + row[None, :]) * D + d[:, None], mask=row[None, :] < count, other=0.0)
    found = tl.dot(q, k.to(q.dtype), input_precision="ieee") * scale + plus
    return tl.where(row[None, :] < count, found, float("-inf"))


@triton.jit
def sum_nodes(
    q, means, owners, counts, maxima, sums, scale, plus, nodes,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For every query, the largest score among the nodes of a stretch and the sum of exp(score - largest)."""
    head, stretch, stretches = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    element = tl.load(owners + head // HEADS)
    base = (element * HEADS + head % HEADS) * nodes
    row = stretch * BLOCK + tl.arange(0, BLOCK)
    s = scores(queries(q, head, GROUP, VIPS, D), means, base, row, tl.load(counts + element), scale, plus, D)
    high = tl.max(s, 1)
    total = tl.sum(tl.exp(s - tl.where(high == float("-inf"), 0.0, high)[:, None]), 1)
    vip = tl.arange(0, VIPS)
    out = (head * stretches + stretch) * GROUP + vip
    tl.store(maxima + out, high, mask=vip < GROUP)
    tl.store(sums + out, total, mask=vip < GROUP)


@triton.jit
def choose_candidates(
    q, means, squares, spreads, owners, counts, totals, shares, places, scale, plus, nodes,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    WANTED: tl.constexpr, FEATURES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The WANTED nodes of a stretch that the group attends to most, each with its share; the first wins a tie."""
    head, stretch, stretches = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    element = tl.load(owners + head // HEADS)
    base = (element * HEADS + head % HEADS) * nodes
    row = stretch * BLOCK + tl.arange(0, BLOCK)
    s = scores(queries(q, head, GROUP, VIPS, D), means, base, row, tl.load(counts + element), scale, plus, D)
    vip = tl.arange(0, VIPS)
    total = tl.load(totals + head * GROUP + vip, mask=vip < GROUP, other=0.0)
    f, real = tl.arange(0, WIDE), row < tl.load(counts + element)
    square = tl.load(
        squares + (head * GROUP + vip[:, None]) * FEATURES + f[None, :],
        mask=(vip[:, None] < GROUP) & (f[None, :] < FEATURES), other=0.0,
    )  # fmt: skip
    spread = tl.load(
        spreads + (base + row[None, :]) * FEATURES + f[:, None], mask=real[None, :] & (f[:, None] < FEATURES), other=0.0
    )
    hope = s + tl.dot(square, spread.to(square.dtype), input_precision="ieee")
    share = tl.sum(tl.where((vip[:, None] < GROUP) & real[None, :], tl.exp(hope - total[:, None]), 0.0), 0) / GROUP
    share = tl.where(real, share, -1.0)
    out = (head * stretches + stretch) * WANTED
    for i in range(WANTED):
        most = tl.max(share, 0)
        place = tl.min(tl.where(share == most, row, 2147483647), 0)
        tl.store(shares + out + i, most)
        tl.store(places + out + i, place)
        share = tl.where(row == place, -2.0, share)


@triton.jit
def attend_nodes(
    q, means, mean_values, owners, counts, opened, maxima, sums, outputs, scale, stretches, plus, nodes,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    WANTED: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Attention over the closed nodes of a stretch: its maximum, sum and unnormalised output."""
    head, stretch = tl.program_id(0), tl.program_id(1)
    element = tl.load(owners + head // HEADS)
    base = (element * HEADS + head % HEADS) * nodes
    row = stretch * BLOCK + tl.arange(0, BLOCK)
    s = scores(queries(q, head, GROUP, VIPS, D), means, base, row, tl.load(counts + element), scale, plus, D)
    slot = tl.arange(0, SLOTS)
    chosen = tl.load(opened + head * WANTED + slot, mask=slot < WANTED, other=-1)
    taken = tl.sum((row[:, None] == chosen[None, :]).to(tl.int32), 1)
    s = tl.where(taken[None, :] > 0, float("-inf"), s)
    write(s, mean_values, base, row, nodes, maxima, sums, outputs, head * stretches + stretch, GROUP, VIPS, D)


@triton.jit
def attend_leaves(
    q, keys, values, owners, counts, opened, maxima, sums, outputs, scale, stretches, tokens, done,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, LEAF: tl.constexpr,
    BLOCK: tl.constexpr, WANTED: tl.constexpr,
):  # fmt: skip
    """Attention over the tokens of some opened leaves, BLOCK tokens at a time."""
    head, stretch = tl.program_id(0), tl.program_id(1)
    element = tl.load(owners + head // HEADS)
    base = (element * HEADS + head % HEADS) * tokens
    place = stretch * BLOCK + tl.arange(0, BLOCK)
    node = tl.load(opened + head * WANTED + place // LEAF, mask=place < WANTED * LEAF, other=-1)
    real = (node >= 0) & (node < tl.load(counts + element))
    row = tl.where(real, node * LEAF + place % LEAF, tokens)
    s = scores(queries(q, head, GROUP, VIPS, D), keys, base, row, tokens, scale, 0.0, D)
    write(s, values, base, row, tokens, maxima, sums, outputs, head * stretches + done + stretch, GROUP, VIPS, D)


@triton.jit
def attend_rows(
    q, keys, values, live, maxima, sums, outputs, scale, stretches, rows, done,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
   
):  # fmt: skip
    """Attention over a stretch of the rows that are always read."""
    head, stretch = tl.program_id(0), tl.program_id(1)
    row = stretch * BLOCK + tl.arange(0, BLOCK)
    there = tl.load(live + head // HEADS * rows + row, mask=row < rows, other=0)
    row = tl.where(there != 0, row, rows)
    s = scores(queries(q, head, GROUP, VIPS, D), keys, head * rows, row, rows, scale, 0.0, D)
    write(s, values, head * rows, row, rows, maxima, sums, outputs, head * stretches + done + stretch, GROUP, VIPS, D)


@triton.jit
def write(
    s, values, base, row, count, maxima, sums, outputs, out, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr
):
    """exp(s - largest), its sum, and its product with the values, of one stretch."""
    high = tl.max(s, 1)
    weights = tl.exp(s - tl.where(high == float("-inf"), 0.0, high)[:, None])
    d, vip = tl.arange(0, D), tl.arange(0, VIPS)
    v = tl.load(values + (base + row[:, None]) * D + d[None, :], mask=row[:, None] < count, other=0.0)
    result = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    tl.store(maxima + out * GROUP + vip, high, mask=vip < GROUP)
    tl.store(sums + out * GROUP + vip, tl.sum(weights, 1), mask=vip < GROUP)
    tl.store(outputs + (out * GROUP + vip[:, None]) * D + d[None, :], result, mask=vip[:, None] < GROUP)
