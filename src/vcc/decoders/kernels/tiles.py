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
    q, means, owners, counts, maxima, sums, scale, plus, nodes, stretches,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For every query, the largest score among the nodes of a stretch and the sum of exp(score - largest)."""
    head, stretch = tl.program_id(0), tl.program_id(1)
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
def log_total(maxima, sums, first, count, GROUP: tl.constexpr, VIPS: tl.constexpr, PARTS: tl.constexpr):
    """(VIPS,): log of the sum of exp(score) over `count` stretches from `first` on."""
    vip = tl.arange(0, VIPS)
    high = tl.full((VIPS,), float("-inf"), maxima.dtype.element_ty)
    total = tl.zeros((VIPS,), maxima.dtype.element_ty)
    for start in range(0, count, PARTS):
        part = start + tl.arange(0, PARTS)
        there = (part[:, None] < count) & (vip[None, :] < GROUP)
        at = (first + part[:, None]) * GROUP + vip[None, :]
        m = tl.load(maxima + at, mask=there, other=float("-inf"))
        more = tl.load(sums + at, mask=there, other=0.0)
        new = tl.maximum(high, tl.max(m, 0))
        finite = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(high - finite) + tl.sum(more * tl.exp(m - finite[None, :]), 0)
        high = new
    return tl.where(vip < GROUP, high, 0.0) + tl.log(tl.where(vip < GROUP, total, 1.0))


@triton.jit
def choose_candidates(
    q, means, spreads, owners, counts, maxima, sums, candidates, scale, plus, worth, nodes, stretches, summed,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    WANTED: tl.constexpr, FEATURES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The WANTED nodes of a stretch that the group attends to most, as integers in that order: share, then place."""
    head, stretch, many = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    element = tl.load(owners + head // HEADS)
    base = (element * HEADS + head % HEADS) * nodes
    row, vip = stretch * BLOCK + tl.arange(0, BLOCK), tl.arange(0, VIPS)
    real = row < tl.load(counts + element)
    query = queries(q, head, GROUP, VIPS, D)
    s = scores(query, means, base, row, tl.load(counts + element), scale, plus, D)
    if FEATURES > 0:  # a quarter of the variance: squares of the queries times the spread of their group of features
        d = tl.arange(0, D)
        feature = (d % (D // 2)) * FEATURES // (D // 2)
        spread = tl.load(spreads + (base + row[None, :]) * FEATURES + feature[:, None], mask=real[None, :], other=0.0)
        wide = query.to(s.dtype)
        s += tl.dot(wide * wide, spread.to(s.dtype), input_precision="ieee") * (scale * scale * worth)
    total = log_total(maxima, sums, head * stretches, summed, GROUP, VIPS, PARTS)
    attention = tl.where((vip[:, None] < GROUP) & real[None, :], tl.exp(s - total[:, None]), 0.0)
    share = (tl.sum(attention, 0) / GROUP).to(tl.float32)
    packed = (share.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (2147483647 - row)  # the first wins a tie
    packed = tl.sort(tl.where(real, packed, 0), descending=True)
    slot = tl.arange(0, BLOCK)
    tl.store(candidates + (head * many + stretch) * WANTED + slot, packed, mask=slot < WANTED)


@triton.jit
def keep_best(candidates, opened, count, ROOM: tl.constexpr, WANTED: tl.constexpr):
    """Of all candidates of a head, the WANTED best, as places."""
    head, slot = tl.program_id(0), tl.arange(0, ROOM)
    packed = tl.load(candidates + head * count + slot, mask=slot < count, other=0)
    packed = tl.sort(packed, descending=True)
    tl.store(opened + head * WANTED + slot, (2147483647 - (packed & 2147483647)).to(tl.int32), mask=slot < WANTED)


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


@triton.jit
def join(maxima, sums, outputs, output, stretches, GROUP: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr):
    """The attention of one query over all stretches of its head."""
    query, d = tl.program_id(0), tl.arange(0, D)
    head, vip = query // GROUP, query % GROUP
    high = tl.full((1,), float("-inf"), maxima.dtype.element_ty)
    total = tl.zeros((1,), maxima.dtype.element_ty)
    result = tl.zeros((D,), maxima.dtype.element_ty)
    for start in range(0, stretches, PARTS):
        part = start + tl.arange(0, PARTS)
        at = (head * stretches + part) * GROUP + vip
        m = tl.load(maxima + at, mask=part < stretches, other=float("-inf"))
        new = tl.maximum(high, tl.max(m, 0))
        finite = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp(m - finite)
        some = tl.load(outputs + at[:, None] * D + d[None, :], mask=part[:, None] < stretches, other=0.0)
        total = total * tl.exp(high - finite) + tl.sum(
            weights * tl.load(sums + at, mask=part < stretches, other=0.0), 0
        )
        result = result * tl.exp(high - finite) + tl.sum(weights[:, None] * some, 0)
        high = new
    tl.store(output + query * D + d, result / total)
