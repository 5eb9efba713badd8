"""Triton kernels for attention with a bias per key and, from the rows' positions, T5's relative bias or a local window.

    softmax(scale q k^T + key_bias + bias(k_position - q_position)) v        forward and backward, nothing of size r x r

The relative bias costs almost nothing because distances of `far` and more share one bucket per side. A tile of scores
whose distances are all that large and of one sign, most of them, needs one number per head; only tiles near the
diagonal look each distance up. The gradient of the bucket table is reduced inside the tile and written once per
program: no atomics, so a run is reproducible.

With a window, `_visible_kernel` lists for every tile of rows the tiles that it sees, once for all heads: first those of
which some pairs are hidden, then those that are seen as a whole and need no mask.

Scores are kept in base 2 (multiplied by log2 e), where the machine's exponential lives. `relative_attention.py`
launches these.
"""

# mypy: disable-error-code="no-untyped-def"
# (a kernel's arguments are pointers and compile-time constants, which have no Python type)

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
HIDDEN = tl.constexpr(-1e30)  # the score of a key outside the window; finite, so that an all-hidden tile has no NaN

# Arguments that differ from input to input: else a kernel would be compiled anew where one is 1 or divides by 16.
LENGTHS = (
    "B", "H", "r", "grains", "bound_programs", "shares", "splits", "first_share", "threshold", "first", "width",
    "window",
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------------- tile parts


@triton.jit
def _tile(base, start, stride, r, SIZE: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr):
    """Rows start .. start + SIZE of a (r, D) matrix, zeros beyond its edges."""
    row = tl.arange(0, SIZE)
    column = tl.arange(0, PADDED)
    mask = (start + row < r)[:, None]
    if D != PADDED:
        mask = mask & (column < D)[None, :]
    at = base + tl.cast(start, tl.int64) * stride + row[:, None] * stride + column[None, :]
    return tl.load(at, mask=mask, other=0.0)


@triton.jit
def _store(base, start, stride, r, value, SIZE: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr):
    row = tl.arange(0, SIZE)
    column = tl.arange(0, PADDED)
    mask = (start + row < r)[:, None]
    if D != PADDED:
        mask = mask & (column < D)[None, :]
    at = base + tl.cast(start, tl.int64) * stride + row[:, None] * stride + column[None, :]
    tl.store(at, value.to(base.dtype.element_ty), mask=mask)


@triton.jit
def _numbers(base, start, SIZE: tl.constexpr):
    """(SIZE,) numbers, one per row. They are stored on to `padded_r` rows, so there is no edge to mask."""
    return tl.load(base + start + tl.arange(0, SIZE))


@triton.jit
def _store_numbers(base, start, r, padded_r, value, beyond, SIZE: tl.constexpr, EDGE: tl.constexpr):
    """The same, stored, with `beyond` in the rows beyond the edge."""
    row = start + tl.arange(0, SIZE)
    tl.store(base + row, tl.where(row < r, value, beyond))
    if start + SIZE >= r:
        for i in tl.static_range(1, EDGE // SIZE):
            tl.store(base + row + i * SIZE, tl.full([SIZE], beyond, tl.float32), mask=row + i * SIZE < padded_r)


@triton.jit
def _look_up(base, index, ASM: tl.constexpr):
    """float32 base[index], of any shape. As a plain load it would be given a layout of its own, to which and from which
    the tile of scores would travel through shared memory; as an instruction it works where the scores already are."""
    if ASM:
        return tl.inline_asm_elementwise(
            "{ .reg .u64 at; mad.wide.s32 at, $1, 4, $2; ld.global.nc.f32 $0, [at]; }", "=f,r,l",
            [index, base.to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        return tl.load(base + index)


@triton.jit
def _positions(base, start, r, SIZE: tl.constexpr, CONSECUTIVE: tl.constexpr):
    """(SIZE,) positions: given as float32, or simply the row's index where rows are neighbouring tokens."""
    row = start + tl.arange(0, SIZE)
    if CONSECUTIVE:
        return row
    else:
        return tl.load(base + row, mask=row < r, other=0.0)


@triton.jit
def _span(
    base, start, SIZE: tl.constexpr, GRAIN: tl.constexpr, CONSECUTIVE: tl.constexpr, ASM: tl.constexpr
):  # fmt: skip
    """The smallest and the largest position in rows start .. start + SIZE."""
    if CONSECUTIVE:
        return start, start + SIZE - 1
    else:
        at = 2 * (start // GRAIN)
        low = _look_up(base, at, ASM)
        high = _look_up(base, at + 1, ASM)
        for i in tl.static_range(1, SIZE // GRAIN):
            low = tl.minimum(low, _look_up(base, at + 2 * i, ASM))
            high = tl.maximum(high, _look_up(base, at + 2 * i + 1, ASM))
        return low, high


@triton.jit
def _spans(base, start, SIZE: tl.constexpr, GRAIN: tl.constexpr, CONSECUTIVE: tl.constexpr):
    """The same for many tiles."""
    if CONSECUTIVE:
        return start.to(tl.float32), (start + SIZE - 1).to(tl.float32)
    else:
        at = base + 2 * (start // GRAIN)
        low = tl.load(at)
        high = tl.load(at + 1)
        for i in tl.static_range(1, SIZE // GRAIN):
            low = tl.minimum(low, tl.load(at + 2 * i))
            high = tl.maximum(high, tl.load(at + 2 * i + 1))
        return low, high


@triton.jit
def _on_diagonal(OWN: tl.constexpr, OTHER: tl.constexpr):
    """How many tiles of OTHER rows overlap one of OWN rows."""
    return OWN // OTHER if OWN > OTHER else 1


@triton.jit
def _number_of_tiles(
    count_base, own, r, PART: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, HAS_WINDOW: tl.constexpr
):  # fmt: skip
    """How many tiles of OTHER rows a tile of OWN rows sees: in part 0 on the diagonal, in part 1 with hidden pairs, in
    part 2 without. Without a window there is one part."""
    if not HAS_WINDOW:
        return tl.cdiv(r, OTHER)
    elif PART == 0:
        return tl.minimum(_on_diagonal(OWN, OTHER), tl.cdiv(r, OTHER) - own // OTHER)
    else:
        return tl.load(count_base + PART - 1)


@triton.jit
def _tile_start(
    list_base, i, own, first, width, PART: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
):  # fmt: skip
    """The first row of tile i of a part. The first rows see all tiles, and have no list."""
    diagonal = own // OTHER
    if not HAS_WINDOW:
        return i * OTHER
    elif PART == 0:
        return (diagonal + i) * OTHER
    elif PART == 1:
        listed = tl.load(list_base + tl.minimum(i, width - 1))
        every = tl.where(i < diagonal, i, i + _on_diagonal(OWN, OTHER))
        return tl.where(own < first, every, listed) * OTHER
    else:
        return tl.load(list_base + width - 1 - i) * OTHER


@triton.jit
def _scores(
    qk, factor, key_bias, position_base, q_start, k_start, r, low, high, centre, left, right, window, first,
    M: tl.constexpr, N: tl.constexpr, TURNED: tl.constexpr, HAS_TABLE: tl.constexpr, MASK: tl.constexpr,
    CONSECUTIVE: tl.constexpr, FAR: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """One tile of scores, (queries, keys) or TURNED (keys, queries), as `key_bias` is. `low`, `high`: the least and the
    largest distance in it; `centre`: the head's biases by distance, at distance 0; `left`, `right`: far biases. `MASK`:
    0 if all pairs are seen, 1 if a window hides some, 2 if besides there may be pairs of a row with itself."""
    if HAS_TABLE:
        is_right = low >= FAR - 0.5
        is_left = high <= 0.5 - FAR
        key_bias += tl.where(is_right, right, tl.where(is_left, left, 0.0))
    if MASK == 2:  # a padding row sees itself, so that every row sees something
        itself = _distance(0, q_start, k_start, r, M, N, TURNED, True) == 0
        s = qk * factor + tl.where(itself, tl.maximum(key_bias, 0.0), key_bias)
    else:
        s = qk * factor + key_bias
    if HAS_TABLE and not (is_right or is_left):
        distance = _distance(position_base, q_start, k_start, r, M, N, TURNED, CONSECUTIVE)
        if CONSECUTIVE:
            index = distance
        else:  # to the nearest integer, halves away from zero
            size = tl.minimum(tl.abs(distance) + 0.5, FAR).to(tl.int32)
            index = tl.where(distance < 0, -size, size)
        s += _look_up(centre, index, ASM)
    if MASK:
        q_at = _unless_first(position_base, q_start, r, first, M, CONSECUTIVE)
        k_at = _unless_first(position_base, k_start, r, first, N, CONSECUTIVE)
        distance = k_at[:, None] - q_at[None, :] if TURNED else k_at[None, :] - q_at[:, None]
        s = tl.where(tl.abs(distance) > window, HIDDEN, s)  # a distance that is no number is not larger
    return s


@triton.jit
def _unless_first(base, start, r, first, SIZE: tl.constexpr, CONSECUTIVE: tl.constexpr):
    """(SIZE,) positions; NaN for the first rows, which see all and are seen by all."""
    at = _positions(base, start, r, SIZE, CONSECUTIVE).to(tl.float32)
    return tl.where(start + tl.arange(0, SIZE) < first, float("nan"), at)


@triton.jit
def _distance(
    base, q_start, k_start, r, M: tl.constexpr, N: tl.constexpr, TURNED: tl.constexpr, CONSECUTIVE: tl.constexpr
):  # fmt: skip
    """key - query for a tile of rows."""
    q_at = _positions(base, q_start, r, M, CONSECUTIVE)
    k_at = _positions(base, k_start, r, N, CONSECUTIVE)
    if TURNED:
        return k_at[:, None] - q_at[None, :]
    else:
        return k_at[None, :] - q_at[:, None]


@triton.jit
def _mixed(x):
    """A uint32 whose bits all depend on all bits of x."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _kept(seed, pair, q_row, k_row, threshold):
    """Which probabilities dropout keeps: a hash of (seed, pair, query, key), so backward finds the same ones."""
    q_key = _mixed(q_row.to(tl.uint32) ^ _mixed(seed.to(tl.uint32) ^ _mixed(pair.to(tl.uint32))))
    k_key = _mixed(k_row.to(tl.uint32) ^ (seed >> 32).to(tl.uint32))
    return _mixed(q_key + k_key) >= tl.cast(threshold, tl.uint32)


@triton.jit
def _sums_beyond(ds, distance, low, high, Edges, BUCKETS: tl.constexpr):
    """(BUCKETS,) slots: slot 0 holds the sum of ds; slot i the sum where bucket i, to the left, begins or has begun;
    slot BUCKETS / 2 + i the same to the right. A bucket's sum is the difference of two of these."""
    slot = tl.arange(0, BUCKETS)
    half: tl.constexpr = BUCKETS // 2
    sums = tl.where(slot == 0, tl.sum(ds), 0.0)
    for i in range(1, half):  # a loop at run time: unrolled, it would not fit the instruction cache
        edge = tl.load(Edges + i)
        if low <= -edge:
            sums += tl.where(slot == i, tl.sum(ds * tl.where(distance <= -edge, 1.0, 0.0)), 0.0)
        if high >= edge:
            sums += tl.where(slot == half + i, tl.sum(ds * tl.where(distance >= edge, 1.0, 0.0)), 0.0)
    return sums


@triton.jit
def _sums_far(left, right, BUCKETS: tl.constexpr):
    """The same slots for tiles whose distances are all far to the left (their sum: `left`) or to the right."""
    slot = tl.arange(0, BUCKETS)
    sums = tl.where(slot < BUCKETS // 2, left, right)
    return tl.where(slot == 0, left + right, tl.where(slot == BUCKETS // 2, 0.0, sums))


# ------------------------------------------------------------------------------------------------------------- kernels


@triton.jit(do_not_specialize=LENGTHS)
def _prepare_kernel(
    Positions, Table, Bounds, Biases, Edges, r, H, grains, bound_programs, table_stride_b, table_stride_h,
    GRAIN: tl.constexpr, REACH: tl.constexpr, STARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The least and largest position of every GRAIN rows, and every head's bias by distance (-REACH .. REACH) and
    the distance, before rounding, at which each bucket begins."""
    pid = tl.program_id(0)
    if pid < bound_programs:
        b = pid // grains
        g = pid % grains
        row = g * GRAIN + tl.arange(0, GRAIN)
        base = Positions + tl.cast(b, tl.int64) * r
        low = tl.min(tl.load(base + row, mask=row < r, other=float("inf")))
        high = tl.max(tl.load(base + row, mask=row < r, other=-float("inf")))
        tl.store(Bounds + 2 * pid, low)
        tl.store(Bounds + 2 * pid + 1, high)
    else:
        h = (pid - bound_programs) % H
        index = (pid - bound_programs) // H * BLOCK + tl.arange(0, BLOCK)
        distance = index - REACH
        bucket = tl.where(distance > 0, len(STARTS) + 1, 0)
        for i in tl.static_range(len(STARTS)):
            bucket += tl.where(tl.abs(distance) >= STARTS[i], 1, 0)
            tl.store(Edges + 1 + i, STARTS[i] - 0.5)  # every program writes the same
        inside = index <= 2 * REACH
        bias = tl.load(Table + bucket * table_stride_b + h * table_stride_h, mask=inside, other=0.0).to(tl.float32)
        tl.store(Biases + h * (2 * REACH + 1) + index, bias * LOG2E, mask=inside)


@triton.jit(do_not_specialize=LENGTHS)
def _visible_kernel(
    Bounds, Lists, Counts, r, grains, width, window, first,
    OWN: tl.constexpr, OTHER: tl.constexpr, GRAIN: tl.constexpr, CONSECUTIVE: tl.constexpr, ORDERED: tl.constexpr,
    BLOCK: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """One program: the tiles of OTHER rows that a tile of OWN rows sees, without those on the diagonal. From the front
    of its list those of which some pairs are hidden, from its back those that are seen as a whole. Tiles with one of
    the first rows see all, and have no list."""
    tiles = tl.cdiv(r, OWN)
    others = tl.cdiv(r, OTHER)
    own = tl.program_id(0) % tiles * OWN
    b = tl.cast(tl.program_id(0) // tiles, tl.int64)
    bounds_base = Bounds + b * grains * 2
    list_base = Lists + tl.cast(tl.program_id(0), tl.int64) * width
    hidden = 0
    whole = 0
    if own >= first:
        own_low, own_high = _span(bounds_base, own, OWN, GRAIN, CONSECUTIVE, ASM)
        # Candidates: the tiles of the first rows, then those from `begin` to `end`.
        ahead = tl.minimum(tl.cdiv(first, OTHER), others)
        begin = ahead
        end = others
        if ORDERED:  # what is near is near by index too
            begin = tl.maximum(ahead, (own - tl.minimum(own, window)) // OTHER)
            end = tl.minimum(others, (own + OWN - 1 + window) // OTHER + 1)
        candidates = ahead + tl.maximum(end - begin, 0)
        for i in range(0, candidates, BLOCK):
            at = i + tl.arange(0, BLOCK)
            tile = tl.where(at < ahead, at, begin + at - ahead)
            inside = at < candidates
            other = tile * OTHER
            low, high = _spans(bounds_base, tl.where(inside, other, 0), OTHER, GRAIN, CONSECUTIVE)
            near = (low - own_high <= window) & (own_low - high <= window)
            diagonal = (other < own + OWN) & (own < other + OTHER)
            seen = inside & (near | (other < first)) & ~diagonal
            all_near = (high - own_low <= window) & (own_high - low <= window)
            as_whole = seen & (all_near | (other + OTHER <= first))
            in_part = seen & ~as_whole
            tl.store(list_base + hidden + tl.cumsum(in_part.to(tl.int32), 0) - 1, tile, mask=in_part)
            tl.store(list_base + width - whole - tl.cumsum(as_whole.to(tl.int32), 0), tile, mask=as_whole)
            hidden += tl.sum(in_part.to(tl.int32), 0)
            whole += tl.sum(as_whole.to(tl.int32), 0)
    else:
        hidden = others - tl.minimum(others - own // OTHER, _on_diagonal(OWN, OTHER))
    tl.store(Counts + 2 * tl.program_id(0), hidden)
    tl.store(Counts + 2 * tl.program_id(0) + 1, whole)


@triton.jit
def _forward_tile(
    acc, total, top, q, start, k_base, v_base, k_stride, v_stride, bias_base, position_base, low, high, q_start,
    centre, left, right, r, factor, window, first, seed, pair, threshold, keep_scale,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HAS_TABLE: tl.constexpr,
    MASK: tl.constexpr,
    CONSECUTIVE: tl.constexpr, FAR: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Let the queries see keys start .. start + N."""
    k = _tile(k_base, start, k_stride, r, N, D, PADDED)
    qk = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    s = _scores(
        qk, factor, _numbers(bias_base, start, N)[None, :], position_base, q_start, start, r, low, high,
        centre, left, right, window, first, M, N, False, HAS_TABLE, MASK, CONSECUTIVE, FAR, ASM,
    )  # fmt: skip
    new_top = tl.maximum(top, tl.max(s, 1))
    p = tl.exp2(s - new_top[:, None])
    shrink = tl.exp2(top - new_top)
    total = total * shrink + tl.sum(p, 1)
    acc = acc * shrink[:, None]
    if HAS_DROPOUT:
        q_row = q_start + tl.arange(0, M)
        k_row = start + tl.arange(0, N)
        p = tl.where(_kept(seed, pair, q_row[:, None], k_row[None, :], threshold), p, 0.0)
    v = _tile(v_base, start, v_stride, r, N, D, PADDED)
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)
    return acc, total, new_top


@triton.jit(do_not_specialize=LENGTHS)
def _forward_kernel(
    Q, K, V, KeyBias, Positions, Bounds, Biases, Lists, Counts, Out, Lse,
    q_sb, q_sh, q_sr, k_sb, k_sh, k_sr, v_sb, v_sh, v_sr, o_sb, o_sh, o_sr, H, r, padded_r, grains, width,
    factor, window, first, Seed, threshold, keep_scale,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, GRAIN: tl.constexpr, EDGE: tl.constexpr,
    HAS_TABLE: tl.constexpr, HAS_WINDOW: tl.constexpr, CONSECUTIVE: tl.constexpr, FAR: tl.constexpr,
    REACH: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """One program: M queries of one head against all keys."""
    tiles = tl.cdiv(r, M)
    pair = tl.program_id(0) // tiles
    m = tl.program_id(0) % tiles * M
    b = tl.cast(pair // H, tl.int64)
    h = tl.cast(pair % H, tl.int64)
    seed = tl.load(Seed)

    k_base = K + b * k_sb + h * k_sh
    v_base = V + b * v_sb + h * v_sh
    bias_base = KeyBias + b * padded_r
    position_base = Positions + b * r
    bounds_base = Bounds + b * grains * 2
    centre = Biases + h * (2 * REACH + 1) + REACH
    left = 0.0
    right = 0.0
    if HAS_TABLE:
        left = tl.load(centre - FAR)
        right = tl.load(centre + FAR)

    q = _tile(Q + b * q_sb + h * q_sh, m, q_sr, r, M, D, PADDED)
    q_low, q_high = _span(bounds_base, m, M, GRAIN, CONSECUTIVE or not HAS_TABLE, ASM)
    acc = tl.zeros([M, PADDED], tl.float32)
    total = tl.zeros([M], tl.float32)
    top = tl.full([M], -float("inf"), tl.float32)
    list_base = Lists + (b * tiles + tl.program_id(0) % tiles) * width
    count_base = Counts + 2 * (b * tiles + tl.program_id(0) % tiles)
    for part in tl.static_range(3 if HAS_WINDOW else 1):
        for i in range(_number_of_tiles(count_base, m, r, part, M, N, HAS_WINDOW)):
            n = _tile_start(list_base, i, m, first, width, part, M, N, HAS_WINDOW)
            k_low, k_high = _span(bounds_base, n, N, GRAIN, CONSECUTIVE or not HAS_TABLE, ASM)
            low = k_low - q_high
            high = k_high - q_low
            acc, total, top = _forward_tile(
                acc, total, top, q, n, k_base, v_base, k_sr, v_sr, bias_base, position_base, low, high, m,
                centre, left, right, r, factor, window, first, seed, pair, threshold, keep_scale,
                D, PADDED, M, N, HAS_TABLE, 2 - part if HAS_WINDOW else 0, CONSECUTIVE, FAR, HAS_DROPOUT, PRECISION,
                ASM,
            )  # fmt: skip
    _store(Out + b * o_sb + h * o_sh, m, o_sr, r, acc * (keep_scale / total)[:, None], M, D, PADDED)
    # Beyond the edge: +inf, so that backward finds probabilities of 0 there.
    lse_base = Lse + tl.cast(pair, tl.int64) * padded_r
    _store_numbers(lse_base, m, r, padded_r, top + tl.log2(total), float("inf"), M, EDGE)


@triton.jit
def _score_gradient(
    q, k, v, grad, lse, delta, key_bias, position_base, m, n, low, high, centre, left, right, r, factor, window, first,
    seed, pair, threshold, keep_scale,
    M: tl.constexpr, N: tl.constexpr, HAS_TABLE: tl.constexpr, MASK: tl.constexpr, CONSECUTIVE: tl.constexpr,
    FAR: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """The gradient of the scores of queries m .. m + M and keys n .. n + N."""
    qk = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    dp = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
    s = _scores(
        qk, factor, key_bias[None, :], position_base, m, n, r, low, high, centre, left, right, window, first,
        M, N, False, HAS_TABLE, MASK, CONSECUTIVE, FAR, ASM,
    )  # fmt: skip
    if HAS_DROPOUT:
        q_row = m + tl.arange(0, M)
        k_row = n + tl.arange(0, N)
        dp = tl.where(_kept(seed, pair, q_row[:, None], k_row[None, :], threshold), dp * keep_scale, 0.0)
    return tl.exp2(s - lse[:, None]) * (dp - delta[:, None])


@triton.jit
def _query_tile(
    dq, far_left, far_right, q, grad, lse, delta, n, k_base, v_base, k_stride, v_stride, bias_base, position_base,
    low, high, m, centre, left, right, r, factor, window, first, seed, pair, threshold, keep_scale,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HAS_TABLE: tl.constexpr,
    MASK: tl.constexpr, CONSECUTIVE: tl.constexpr, FAR: tl.constexpr, TABLE_GRAD: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """What keys n .. n + N add to the gradient of the queries and, if they are far, of the bucket table."""
    k = _tile(k_base, n, k_stride, r, N, D, PADDED)
    v = _tile(v_base, n, v_stride, r, N, D, PADDED)
    ds = _score_gradient(
        q, k, v, grad, lse, delta, _numbers(bias_base, n, N), position_base, m, n, low, high, centre, left, right, r,
        factor, window, first, seed, pair, threshold, keep_scale,
        M, N, HAS_TABLE, MASK, CONSECUTIVE, FAR, HAS_DROPOUT, PRECISION, ASM,
    )  # fmt: skip
    if TABLE_GRAD:
        row_sums = tl.sum(ds, 1)
        far_left += tl.where(high <= 0.5 - FAR, row_sums, 0.0)
        far_right += tl.where(low >= FAR - 0.5, row_sums, 0.0)
    dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq, far_left, far_right


@triton.jit(do_not_specialize=LENGTHS)
def _query_kernel(
    Q, K, V, KeyBias, Positions, Bounds, Biases, Lists, Counts, Out, Grad, Lse, Delta, DQ, Partial,
    q_sb, q_sh, q_sr, k_sb, k_sh, k_sr, v_sb, v_sh, v_sr, o_sb, o_sh, o_sr, g_sb, g_sh, g_sr, d_sb, d_sh, d_sr,
    H, r, padded_r, grains, width, shares, factor, scale, window, first, Seed, threshold, keep_scale,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, GRAIN: tl.constexpr, EDGE: tl.constexpr,
    HAS_TABLE: tl.constexpr, HAS_WINDOW: tl.constexpr, CONSECUTIVE: tl.constexpr, FAR: tl.constexpr,
    REACH: tl.constexpr, BUCKETS: tl.constexpr, TABLE_GRAD: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Backward, one program: M queries of one head; dq, delta = sum(out grad), and a share of the table's
    gradient, from the far tiles."""
    tiles = tl.cdiv(r, M)
    pair = tl.program_id(0) // tiles
    m = tl.program_id(0) % tiles * M
    b = tl.cast(pair // H, tl.int64)
    h = tl.cast(pair % H, tl.int64)
    seed = tl.load(Seed)

    k_base = K + b * k_sb + h * k_sh
    v_base = V + b * v_sb + h * v_sh
    bias_base = KeyBias + b * padded_r
    position_base = Positions + b * r
    bounds_base = Bounds + b * grains * 2
    centre = Biases + h * (2 * REACH + 1) + REACH
    left = 0.0
    right = 0.0
    if HAS_TABLE:
        left = tl.load(centre - FAR)
        right = tl.load(centre + FAR)

    q_low, q_high = _span(bounds_base, m, M, GRAIN, CONSECUTIVE or not HAS_TABLE, ASM)
    out = _tile(Out + b * o_sb + h * o_sh, m, o_sr, r, M, D, PADDED)
    grad = _tile(Grad + b * g_sb + h * g_sh, m, g_sr, r, M, D, PADDED)
    delta = tl.sum(out.to(tl.float32) * grad.to(tl.float32), 1)
    _store_numbers(Delta + tl.cast(pair, tl.int64) * padded_r, m, r, padded_r, delta, 0.0, M, EDGE)
    lse = _numbers(Lse + tl.cast(pair, tl.int64) * padded_r, m, M)
    q = _tile(Q + b * q_sb + h * q_sh, m, q_sr, r, M, D, PADDED)

    dq = tl.zeros([M, PADDED], tl.float32)
    far_left = tl.zeros([M], tl.float32)
    far_right = tl.zeros([M], tl.float32)
    list_base = Lists + (b * tiles + tl.program_id(0) % tiles) * width
    count_base = Counts + 2 * (b * tiles + tl.program_id(0) % tiles)
    for part in tl.static_range(3 if HAS_WINDOW else 1):
        for i in range(_number_of_tiles(count_base, m, r, part, M, N, HAS_WINDOW)):
            n = _tile_start(list_base, i, m, first, width, part, M, N, HAS_WINDOW)
            k_low, k_high = _span(bounds_base, n, N, GRAIN, CONSECUTIVE or not HAS_TABLE, ASM)
            low = k_low - q_high
            high = k_high - q_low
            dq, far_left, far_right = _query_tile(
                dq, far_left, far_right, q, grad, lse, delta, n, k_base, v_base, k_sr, v_sr, bias_base, position_base,
                low, high, m, centre, left, right, r, factor, window, first, seed, pair, threshold, keep_scale,
                D, PADDED, M, N, HAS_TABLE, 2 - part if HAS_WINDOW else 0, CONSECUTIVE, FAR, TABLE_GRAD, HAS_DROPOUT,
                PRECISION, ASM,
            )  # fmt: skip
    _store(DQ + b * d_sb + h * d_sh, m, d_sr, r, dq * scale, M, D, PADDED)
    if TABLE_GRAD:  # this program's share; all shares of a head are neighbours
        sums = _sums_far(tl.sum(far_left), tl.sum(far_right), BUCKETS)
        at = h * shares + b * tiles + tl.program_id(0) % tiles
        tl.store(Partial + at * BUCKETS + tl.arange(0, BUCKETS), sums)


@triton.jit
def _key_tile(
    dk, dv, k, v, start, q_base, g_base, q_stride, g_stride, lse_base, delta_base, position_base, low, high,
    k_start, key_bias, centre, left, right, r, factor, window, first, seed, pair, threshold, keep_scale,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HAS_TABLE: tl.constexpr,
    MASK: tl.constexpr,
    CONSECUTIVE: tl.constexpr, FAR: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """What queries start .. start + M add to the gradients of the keys and values. Tiles are (keys, queries), so that
    the probabilities are the left operand of both products and stay in registers."""
    q = _tile(q_base, start, q_stride, r, M, D, PADDED)
    qk = tl.dot(k, tl.trans(q), input_precision=PRECISION)
    s = _scores(
        qk, factor, key_bias[:, None], position_base, start, k_start, r, low, high, centre, left, right, window, first,
        M, N, True, HAS_TABLE, MASK, CONSECUTIVE, FAR, ASM,
    )  # fmt: skip
    lse = _numbers(lse_base, start, M)
    p = tl.exp2(s - lse[None, :])
    grad = _tile(g_base, start, g_stride, r, M, D, PADDED)
    dp = tl.dot(v, tl.trans(grad), input_precision=PRECISION)
    if HAS_DROPOUT:
        q_row = start + tl.arange(0, M)
        kept = _kept(seed, pair, q_row[None, :], (k_start + tl.arange(0, N))[:, None], threshold)
        dv = tl.dot(tl.where(kept, p, 0.0).to(grad.dtype), grad, dv, input_precision=PRECISION)
        dp = tl.where(kept, dp * keep_scale, 0.0)
    else:
        dv = tl.dot(p.to(grad.dtype), grad, dv, input_precision=PRECISION)
    delta = _numbers(delta_base, start, M)
    ds = p * (dp - delta[None, :])
    dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=LENGTHS)
def _key_kernel(
    Q, K, V, KeyBias, Positions, Bounds, Biases, Lists, Counts, Grad, Lse, Delta, DK, DV,
    q_sb, q_sh, q_sr, k_sb, k_sh, k_sr, v_sb, v_sh, v_sr, g_sb, g_sh, g_sr, d_sb, d_sh, d_sr, H, r, padded_r, grains,
    width, factor, scale, window, first, Seed, threshold, keep_scale,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, GRAIN: tl.constexpr,
    HAS_TABLE: tl.constexpr, HAS_WINDOW: tl.constexpr, CONSECUTIVE: tl.constexpr, FAR: tl.constexpr,
    REACH: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Backward, one program: N keys of one head; dk and dv."""
    tiles = tl.cdiv(r, N)
    pair = tl.program_id(0) // tiles
    n = tl.program_id(0) % tiles * N
    b = tl.cast(pair // H, tl.int64)
    h = tl.cast(pair % H, tl.int64)
    seed = tl.load(Seed)

    q_base = Q + b * q_sb + h * q_sh
    g_base = Grad + b * g_sb + h * g_sh
    lse_base = Lse + tl.cast(pair, tl.int64) * padded_r
    delta_base = Delta + tl.cast(pair, tl.int64) * padded_r
    position_base = Positions + b * r
    bounds_base = Bounds + b * grains * 2
    centre = Biases + h * (2 * REACH + 1) + REACH
    left = 0.0
    right = 0.0
    if HAS_TABLE:
        left = tl.load(centre - FAR)
        right = tl.load(centre + FAR)

    k = _tile(K + b * k_sb + h * k_sh, n, k_sr, r, N, D, PADDED)
    v = _tile(V + b * v_sb + h * v_sh, n, v_sr, r, N, D, PADDED)
    k_low, k_high = _span(bounds_base, n, N, GRAIN, CONSECUTIVE or not HAS_TABLE, ASM)
    key_bias = _numbers(KeyBias + b * padded_r, n, N)
    dk = tl.zeros([N, PADDED], tl.float32)
    dv = tl.zeros([N, PADDED], tl.float32)
    list_base = Lists + (b * tiles + tl.program_id(0) % tiles) * width
    count_base = Counts + 2 * (b * tiles + tl.program_id(0) % tiles)
    for part in tl.static_range(3 if HAS_WINDOW else 1):
        for i in range(_number_of_tiles(count_base, n, r, part, N, M, HAS_WINDOW)):
            m = _tile_start(list_base, i, n, first, width, part, N, M, HAS_WINDOW)
            q_low, q_high = _span(bounds_base, m, M, GRAIN, CONSECUTIVE or not HAS_TABLE, ASM)
            low = k_low - q_high
            high = k_high - q_low
            dk, dv = _key_tile(
                dk, dv, k, v, m, q_base, g_base, q_sr, g_sr, lse_base, delta_base, position_base, low, high,
                n, key_bias, centre, left, right, r, factor, window, first, seed, pair, threshold, keep_scale,
                D, PADDED, M, N, HAS_TABLE, 2 - part if HAS_WINDOW else 0, CONSECUTIVE, FAR, HAS_DROPOUT, PRECISION,
                ASM,
            )  # fmt: skip
    _store(DK + b * d_sb + h * d_sh, n, d_sr, r, dk * scale, N, D, PADDED)
    _store(DV + b * d_sb + h * d_sh, n, d_sr, r, dv * keep_scale, N, D, PADDED)


@triton.jit(do_not_specialize=LENGTHS)
def _near_kernel(
    Q, K, V, KeyBias, Positions, Bounds, Biases, Edges, Grad, Lse, Delta, Partial,
    q_sb, q_sh, q_sr, k_sb, k_sh, k_sr, v_sb, v_sh, v_sr, g_sb, g_sh, g_sr, H, r, padded_r, grains, splits,
    first_share, shares, factor, window, first, Seed, threshold, keep_scale,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, GRAIN: tl.constexpr,
    HAS_WINDOW: tl.constexpr, FAR: tl.constexpr, REACH: tl.constexpr, BUCKETS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Backward of the table, near tiles. They are few but each takes long, and some queries have many, so a program
    looks for those of M queries in one part of the keys. M and N are those of `_query_kernel`."""
    tiles = tl.cdiv(r, M)
    split = tl.program_id(0) % splits
    tile = tl.program_id(0) // splits % tiles
    pair = tl.program_id(0) // (splits * tiles)
    b = tl.cast(pair // H, tl.int64)
    h = tl.cast(pair % H, tl.int64)
    seed = tl.load(Seed)
    m = tile * M
    position_base = Positions + b * r
    bounds_base = Bounds + b * grains * 2
    q_low, q_high = _span(bounds_base, m, M, GRAIN, False, ASM)
    sums = tl.zeros([BUCKETS], tl.float32)
    for n in range(split * N, r, splits * N):
        k_low, k_high = _span(bounds_base, n, N, GRAIN, False, ASM)
        low = k_low - q_high
        high = k_high - q_low
        near = (low < FAR - 0.5) & (high > 0.5 - FAR)
        if HAS_WINDOW:
            near = near & (((low <= window) & (high >= -window)) | (m < first) | (n < first))
        if near:
            q = _tile(Q + b * q_sb + h * q_sh, m, q_sr, r, M, D, PADDED)
            k = _tile(K + b * k_sb + h * k_sh, n, k_sr, r, N, D, PADDED)
            v = _tile(V + b * v_sb + h * v_sh, n, v_sr, r, N, D, PADDED)
            grad = _tile(Grad + b * g_sb + h * g_sh, m, g_sr, r, M, D, PADDED)
            lse = _numbers(Lse + tl.cast(pair, tl.int64) * padded_r, m, M)
            delta = _numbers(Delta + tl.cast(pair, tl.int64) * padded_r, m, M)
            ds = _score_gradient(
                q, k, v, grad, lse, delta, _numbers(KeyBias + b * padded_r, n, N), position_base, m, n, low, high,
                Biases + h * (2 * REACH + 1) + REACH, 0.0, 0.0, r, factor, window, first, seed, pair, threshold,
                keep_scale, M, N, True, 2 if HAS_WINDOW else 0, False, FAR, HAS_DROPOUT, PRECISION, ASM,
            )  # fmt: skip
            distance = _distance(position_base, m, n, r, M, N, False, False)
            sums += _sums_beyond(ds, distance, low, high, Edges, BUCKETS)
    at = h * shares + first_share + (b * tiles + tile) * splits + split
    tl.store(Partial + at * BUCKETS + tl.arange(0, BUCKETS), sums)


@triton.jit(do_not_specialize=LENGTHS)
def _neighbour_kernel(
    Q, K, V, KeyBias, Biases, Edges, Grad, Lse, Delta, Partial,
    q_sb, q_sh, q_sr, k_sb, k_sh, k_sr, v_sb, v_sh, v_sr, g_sb, g_sh, g_sr, B, H, r, padded_r, splits, first_share,
    shares, factor, window, first, Seed, threshold, keep_scale,
    D: tl.constexpr, PADDED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, NEAR: tl.constexpr,
    HAS_WINDOW: tl.constexpr, FAR: tl.constexpr, REACH: tl.constexpr, BUCKETS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """The same where rows are neighbouring tokens: the distances in a near tile are the same in every batch row, so
    one program adds the gradient up over its part of the batch and sorts the sum into buckets once. NEAR: how many
    tiles of keys may be near one of queries."""
    tiles = tl.cdiv(r, M)
    split = tl.program_id(0) % splits
    j = tl.program_id(0) // splits % NEAR
    tile = tl.program_id(0) // (splits * NEAR) % tiles
    h = tl.cast(tl.program_id(0) // (splits * NEAR * tiles), tl.int64)
    seed = tl.load(Seed)
    m = tile * M
    n = ((m + N * NEAR - FAR) // N - NEAR + j) * N  # the sum in the brackets is positive: // is a floor
    low = n - (m + M - 1)
    high = n + N - 1 - m
    sums = tl.zeros([BUCKETS], tl.float32)
    if (n >= 0) & (n < r) & (low < FAR - 0.5) & (high > 0.5 - FAR):
        acc = tl.zeros([M, N], tl.float32)
        for i in range(split, B, splits):
            b = tl.cast(i, tl.int64)
            pair = b * H + h
            q = _tile(Q + b * q_sb + h * q_sh, m, q_sr, r, M, D, PADDED)
            k = _tile(K + b * k_sb + h * k_sh, n, k_sr, r, N, D, PADDED)
            v = _tile(V + b * v_sb + h * v_sh, n, v_sr, r, N, D, PADDED)
            grad = _tile(Grad + b * g_sb + h * g_sh, m, g_sr, r, M, D, PADDED)
            lse = _numbers(Lse + pair * padded_r, m, M)
            delta = _numbers(Delta + pair * padded_r, m, M)
            acc += _score_gradient(
                q, k, v, grad, lse, delta, _numbers(KeyBias + b * padded_r, n, N), 0, m, n, low, high,
                Biases + h * (2 * REACH + 1) + REACH, 0.0, 0.0, r, factor, window, first, seed, pair, threshold,
                keep_scale, M, N, True, 2 if HAS_WINDOW else 0, True, FAR, HAS_DROPOUT, PRECISION, ASM,
            )  # fmt: skip
        sums = _sums_beyond(acc, _distance(0, m, n, r, M, N, False, True), low, high, Edges, BUCKETS)
    at = h * shares + first_share + (tile * NEAR + j) * splits + split
    tl.store(Partial + at * BUCKETS + tl.arange(0, BUCKETS), sums)


@triton.jit(do_not_specialize=LENGTHS)
def _finish_kernel(
    Partial, DTable, shares, stride_b, stride_h, BUCKETS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per head: add up its shares; then a bucket is what lies beyond its start less what lies beyond the
    next one's."""
    h = tl.cast(tl.program_id(0), tl.int64)
    slot = tl.arange(0, BUCKETS)
    half: tl.constexpr = BUCKETS // 2
    has_next = (slot % half != half - 1)[None, :]
    total = tl.zeros([BUCKETS], tl.float32)
    for start in range(0, shares, BLOCK):
        share = start + tl.arange(0, BLOCK)
        at = Partial + (h * shares + share)[:, None] * BUCKETS + slot[None, :]
        mask = (share < shares)[:, None]
        total += tl.sum(tl.load(at, mask=mask, other=0.0), 0)
        total -= tl.sum(tl.load(at + 1, mask=mask & has_next, other=0.0), 0)
        total -= tl.sum(tl.load(at + half + 1, mask=mask & (slot == 0)[None, :], other=0.0), 0)
    total = tl.where(slot == half, 0.0, total)  # distance 0 to the right: there is none
    tl.store(DTable + slot * stride_b + h * stride_h, total)
