"""The kernels of one step. For each scale with means: sums (with the coarsest, the rows too), shares, the choice, and
attention over closed nodes (with the finest, opened leaves too). Then all are joined: five launches with two scales.

A program handles one KV head of one sequence and a stretch of its nodes or rows. The group's query heads, which share
the keys, are padded to 16 for matrix products. Scores of nodes are recomputed where needed: the means are few and stay
in the device's cache. Only a node's share of the attention is written.
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

# Sizes that grow with the text, without alignment hints: one kernel serves all.
SIZES = [
    "elements", "nodes", "rows", "tokens", "above", "first", "before", "seen", "below", "wanted", "stretches",
    "columns",
]  # fmt: skip


@triton.jit
def queries(q, head, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr):
    """(VIPS, D): the group's queries, zeros beyond them."""
    vip, d = tl.arange(0, VIPS), tl.arange(0, D)
    return tl.load(q + (head * GROUP + vip[:, None]) * D + d[None, :], mask=vip[:, None] < GROUP, other=0.0)


@triton.jit
def squares(q, head, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, F: tl.constexpr, ROOM: tl.constexpr):
    """(VIPS, ROOM): of the group's queries, summed over the features of each of F groups; zeros beyond them."""
    SIDE: tl.constexpr = D // 2 // F  # neighbours of a group in each half
    vip, f, i = tl.arange(0, VIPS)[:, None, None], tl.arange(0, ROOM)[None, :, None], tl.arange(0, D // F)[None, None]
    d = i // SIDE * (D // 2) + f * SIDE + i % SIDE
    some = tl.load(q + (head * GROUP + vip) * D + d, mask=(vip < GROUP) & (f < F), other=0.0)
    if some.dtype != tl.float64:
        some = some.to(tl.float32)
    return tl.sum(some * some, 2)


@triton.jit
def scores(q, keys, row, count, scale, plus, D: tl.constexpr):
    """(VIPS, BLOCK): of rows of keys (..., D), scaled, `plus` added; -inf from `count` on."""
    d = tl.arange(0, D)
    k = tl.load(keys + row[None, :] * D + d[:, None], mask=row[None, :] < count, other=0.0)
    found = tl.dot(q, k.to(q.dtype), input_precision="ieee") * scale + plus
    return tl.where(row[None, :] < count, found, float("-inf"))


@triton.jit
def element_of(owners, sequence, elements, OWNED: tl.constexpr):
    """The tree's sequence that a sequence reads, as int64 for offsets."""
    element = tl.load(owners + sequence) if OWNED else sequence % elements
    return element.to(tl.int64)


@triton.jit
def node_at(place, parents, head, before, nodes, FAN_OUT: tl.constexpr):
    """The nodes at places among those visited. At the coarsest scale, FAN_OUT is 0, these are all nodes; below, the
    children of the `before` nodes that the head has opened. Where there is none: `nodes`, their number."""
    if FAN_OUT == 0:
        return place
    there = (place >= 0) & (place < before * FAN_OUT)
    parent = tl.load(parents + head * before + place // FAN_OUT, mask=there, other=-1)
    return tl.where(parent >= 0, parent * FAN_OUT + place % FAN_OUT, nodes)


@triton.jit
def count_of(counts, element, nodes, FAN_OUT: tl.constexpr):
    """The nodes that are there: at the coarsest scale as many as counted, below whatever an opened node has."""
    return tl.load(counts + element) if FAN_OUT == 0 else nodes


@triton.jit(do_not_specialize=SIZES)
def attend_rows(
    q, keys, values, live, means, owners, counts, parents, maxima, sums, outputs, scale, plus, key_batch, key_head,
    value_batch, value_head, elements, nodes, rows, above, first, before, stretches,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    ROW_BLOCK: tl.constexpr, OWNED: tl.constexpr, FAN_OUT: tl.constexpr,
):  # fmt: skip
    """For every query, the largest score among the nodes of a stretch and the sum of exp(score - largest); after the
    stretches of nodes, attention over those of the rows that are always read."""
    head, stretch = tl.program_id(0), tl.program_id(1)
    sequence, own = head // HEADS, head % HEADS
    query = queries(q, head, GROUP, VIPS, D)
    out = head * stretches + first + stretch
    if stretch < above:
        element = element_of(owners, sequence, elements, OWNED)
        row = node_at(stretch * BLOCK + tl.arange(0, BLOCK), parents, head, before, nodes, FAN_OUT)
        means += (element * HEADS + own) * nodes * D
        s = scores(query, means, row, count_of(counts, element, nodes, FAN_OUT), scale, plus, D)
        high = tl.max(s, 1)
        total = tl.sum(tl.exp(s - tl.where(high == float("-inf"), 0.0, high)[:, None]), 1)
        vip = tl.arange(0, VIPS)
        tl.store(maxima + out * GROUP + vip, high, mask=vip < GROUP)
        tl.store(sums + out * GROUP + vip, total, mask=vip < GROUP)
    else:
        token = (stretch - above) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)  # Triton requires one shape per name
        there = tl.load(live + sequence * rows + token, mask=token < rows, other=0)
        token = tl.where(there != 0, token, rows)
        keys += sequence.to(tl.int64) * key_batch + own * key_head
        values += sequence.to(tl.int64) * value_batch + own * value_head
        exact = scores(query, keys, token, rows, scale, 0.0, D)
        write(exact, values, token, rows, maxima, sums, outputs, out, GROUP, VIPS, D)


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


@triton.jit(do_not_specialize=SIZES)
def share_nodes(
    q, means, spreads, owners, counts, parents, maxima, sums, shares, scale, plus, worth, elements, nodes, above,
    before, seen, stretches,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    FEATURES: tl.constexpr, ROOM: tl.constexpr, PARTS: tl.constexpr, OWNED: tl.constexpr, PRECISION: tl.constexpr,
    FAN_OUT: tl.constexpr,
):  # fmt: skip
    """The share of the group's attention that each node of a stretch would have, of that to the first `seen` stretches;
    -1 where there is no node."""
    head, stretch = tl.program_id(0), tl.program_id(1)
    element = element_of(owners, head // HEADS, elements, OWNED)
    base = (element * HEADS + head % HEADS) * nodes
    place, vip = stretch * BLOCK + tl.arange(0, BLOCK), tl.arange(0, VIPS)
    row = node_at(place, parents, head, before, nodes, FAN_OUT)
    count = count_of(counts, element, nodes, FAN_OUT)
    real = row < count
    s = scores(queries(q, head, GROUP, VIPS, D), means + base * D, row, count, scale, plus, D)
    if FEATURES > 0:  # a quarter of the variance: squares of the queries times the spread of their group of features
        f = tl.arange(0, ROOM)
        at = spreads + base * FEATURES + row[None, :] * FEATURES + f[:, None]
        spread = tl.load(at, mask=real[None, :] & (f[:, None] < FEATURES), other=0.0)
        square = squares(q, head, GROUP, VIPS, D, FEATURES, ROOM)
        s += tl.dot(square, spread.to(square.dtype), input_precision=PRECISION) * (scale * scale * worth)
    total = log_total(maxima, sums, head * stretches, seen, GROUP, VIPS, PARTS)
    attention = tl.where((vip[:, None] < GROUP) & real[None, :], tl.exp(s - total[:, None]), 0.0)
    share = (tl.sum(attention, 0) / GROUP).to(tl.float32)
    tl.store(shares + head * (above * BLOCK) + place, tl.where(real, share, -1.0))


@triton.jit
def bits_of(shares, row, columns):
    """Shares as integers in the same order; negative without a node."""
    return tl.load(shares + row, mask=row < columns, other=-1.0).to(tl.int32, bitcast=True)


@triton.jit
def count_three(bits, a, b, c):
    """How many are at least a, b and c: 21 bits each of one integer, for a single sum."""
    one = (bits >= a).to(tl.int64) + ((bits >= b).to(tl.int64) << 21) + ((bits >= c).to(tl.int64) << 42)
    return tl.sum(one, 0)


@triton.jit(do_not_specialize=SIZES)
def choose_nodes(shares, opened, columns, wanted, BLOCK: tl.constexpr, TILE: tl.constexpr, ONE: tl.constexpr):
    """The `wanted` nodes of a head with the largest shares, the first of equal ones, as places in ascending order; -1
    beyond the nodes there are. The share of a chosen node becomes -2.

    Without sorting: the threshold between chosen and other nodes is found by counting between narrowing bounds. If
    several nodes have exactly that share, the bounds end up around it.
    """
    head, place = tl.program_id(0), tl.arange(0, TILE)
    columns = columns * BLOCK
    shares += head * columns
    opened += head * wanted
    bits = bits_of(shares, place, columns)
    highest = tl.max(bits, 0)
    low = tl.full((), 0, tl.int32)  # at least `wanted` are from here on, or all that there are
    packed = count_three(bits, low, low, low)
    if not ONE:
        for start in range(TILE, columns, TILE):
            more = bits_of(shares, start + place, columns)
            highest = tl.maximum(highest, tl.max(more, 0))
            packed += count_three(more, low, low, low)
    high = highest + 1  # fewer than `wanted` are from here on
    from_low = (packed & 2097151).to(tl.int32)
    from_high = tl.full((), 0, tl.int32)
    there = from_low
    while (from_low > wanted) & (high - low > 1):
        part = tl.maximum((high - low) // 4, 1)
        a, b, c = low + part, low + 2 * part, low + 3 * part
        packed = count_three(bits, a, b, c)
        if not ONE:
            for start in range(TILE, columns, TILE):
                packed += count_three(bits_of(shares, start + place, columns), a, b, c)
        at_a, at_b = (packed & 2097151).to(tl.int32), ((packed >> 21) & 2097151).to(tl.int32)
        at_c = (packed >> 42).to(tl.int32)
        past_a, past_b, past_c = at_a >= wanted, at_b >= wanted, at_c >= wanted
        new_high = tl.where(past_c, high, tl.where(past_b, c, tl.where(past_a, b, a)))
        from_high = tl.where(past_c, from_high, tl.where(past_b, at_c, tl.where(past_a, at_b, at_a)))
        high = tl.minimum(high, new_high)  # where they are close, a part can reach beyond; none is there
        low = tl.where(past_c, c, tl.where(past_b, b, tl.where(past_a, a, low)))
        from_low = tl.where(past_c, at_c, tl.where(past_b, at_b, tl.where(past_a, at_a, from_low)))

    room = wanted - from_high  # for the first of those between the bounds
    done_sure, done_maybe = tl.full((), 0, tl.int32), tl.full((), 0, tl.int32)
    for start in range(0, columns, TILE):
        row = start + place
        if not ONE:
            bits = bits_of(shares, row, columns)
        sure, maybe = bits >= high, (bits >= low) & (bits < high)
        both = sure.to(tl.int32) + (maybe.to(tl.int32) << 15)  # a tile has at most 16384 of either
        rank = tl.cumsum(both, 0)
        maybe_rank = done_maybe + (rank >> 15)
        chosen = sure | (maybe & (maybe_rank <= room))
        slot = done_sure + (rank & 32767) + tl.minimum(maybe_rank, room) - 1
        tl.store(opened + slot, row, mask=chosen)
        tl.store(opened + row, -1, mask=(row >= there) & (row < wanted))
        tl.store(shares + row, -2.0, mask=chosen)
        if not ONE:
            summed = tl.sum(both, 0)
            done_sure += summed & 32767
            done_maybe += summed >> 15


@triton.jit(do_not_specialize=SIZES)
def attend_nodes(
    q, means, mean_values, keys, values, pages, owners, counts, parents, shares, opened, maxima, sums, outputs, scale,
    plus, elements, nodes, tokens, above, first, below, before, wanted, stretches,
    HEADS: tl.constexpr, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    LEAF: tl.constexpr, LEAF_BLOCK: tl.constexpr, OWNED: tl.constexpr, ANY: tl.constexpr, PAGED: tl.constexpr,
    FAN_OUT: tl.constexpr,
):  # fmt: skip
    """Attention over the closed nodes of a stretch, the `first` of which is known; after these, from stretch `below`
    on, over LEAF_BLOCK tokens of the opened leaves. PAGED: these lie in a pool, where `pages` says."""
    head, stretch = tl.program_id(0), tl.program_id(1)
    element = element_of(owners, head // HEADS, elements, OWNED)
    own = element * HEADS + head % HEADS
    query = queries(q, head, GROUP, VIPS, D)
    if stretch < above:
        place = stretch * BLOCK + tl.arange(0, BLOCK)
        row = node_at(place, parents, head, before, nodes, FAN_OUT)
        s = scores(query, means + own * nodes * D, row, count_of(counts, element, nodes, FAN_OUT), scale, plus, D)
        if ANY:
            share = tl.load(shares + head * (above * BLOCK) + place)
            s = tl.where(share[None, :] == -2.0, float("-inf"), s)
        out = head * stretches + first + stretch
        write(s, mean_values + own * nodes * D, row, nodes, maxima, sums, outputs, out, GROUP, VIPS, D)
    else:
        token = (stretch - above) * LEAF_BLOCK + tl.arange(0, LEAF_BLOCK)
        leaf = tl.load(opened + head * wanted + token // LEAF, mask=token < wanted * LEAF, other=-1)
        node = tl.where(leaf >= 0, node_at(leaf, parents, head, before, nodes, FAN_OUT), -1)
        if PAGED:
            node = tl.load(pages + own * nodes + node, mask=node >= 0, other=-1).to(tl.int64)
        else:
            keys += own * tokens * D
            values += own * tokens * D
        token = tl.where(node >= 0, node * LEAF + token % LEAF, tokens)
        exact = scores(query, keys, token, tokens, scale, 0.0, D)
        out = head * stretches + below + stretch - above
        write(exact, values, token, tokens, maxima, sums, outputs, out, GROUP, VIPS, D)


@triton.jit
def write(s, values, row, count, maxima, sums, outputs, out, GROUP: tl.constexpr, VIPS: tl.constexpr, D: tl.constexpr):
    """exp(s - largest), its sum, and its product with the values, of one stretch."""
    high = tl.max(s, 1)
    weights = tl.exp(s - tl.where(high == float("-inf"), 0.0, high)[:, None])
    d, vip = tl.arange(0, D), tl.arange(0, VIPS)
    v = tl.load(values + row[:, None] * D + d[None, :], mask=row[:, None] < count, other=0.0)
    result = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    tl.store(maxima + out * GROUP + vip, high, mask=vip < GROUP)
    tl.store(sums + out * GROUP + vip, tl.sum(weights, 1), mask=vip < GROUP)
    tl.store(outputs + (out * GROUP + vip[:, None]) * D + d[None, :], result, mask=vip[:, None] < GROUP)


@triton.jit(do_not_specialize=SIZES)
def join(
    maxima, sums, outputs, output, stretches,
    GROUP: tl.constexpr, D: tl.constexpr, SOME: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """SOME features of the attention of one query over all stretches of its head."""
    query, d = tl.program_id(0), tl.program_id(1) * SOME + tl.arange(0, SOME)
    head, vip = query // GROUP, query % GROUP
    high = tl.full((1,), float("-inf"), maxima.dtype.element_ty)
    total = tl.zeros((1,), maxima.dtype.element_ty)
    result = tl.zeros((SOME,), maxima.dtype.element_ty)
    for start in range(0, stretches, PARTS):
        part = start + tl.arange(0, PARTS)
        at = (head * stretches + part) * GROUP + vip
        m = tl.load(maxima + at, mask=part < stretches, other=float("-inf"))
        new = tl.maximum(high, tl.max(m, 0))
        finite = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp(m - finite)
        some = tl.load(outputs + at[:, None] * D + d[None, :], mask=part[:, None] < stretches, other=0.0)
        more = tl.load(sums + at, mask=part < stretches, other=0.0)
        total = total * tl.exp(high - finite) + tl.sum(weights * more, 0)
        result = result * tl.exp(high - finite) + tl.sum(weights[:, None] * some, 0)
        high = new
    tl.store(output + query * D + d, (result / total).to(output.dtype.element_ty))
