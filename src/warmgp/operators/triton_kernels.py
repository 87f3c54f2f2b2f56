"""Triton kernels of the fused operator: products with K(a, b) and its θ-gradient, without ever forming K.

A program owns a tile of rows and walks over the columns. For each tile it makes squared distances ρ², the kernel from
them, and the product with V, all in registers and shared memory.

Numbers. The tensor core multiplies float16 (11 bits). A float32 number is split into two of them, hi + lo (22 bits),
and a product takes three: hi·hi + hi·lo + lo·hi. Inputs and V are split once, before the walk. The tensor core
truncates when it adds, so it adds within one tile only; the sum over tiles is ordinary float32.

Distances. Inputs come scaled by ``alpha``/ℓ, so that the kernel is a power of two, 2^−ρ or 2^−ρ². Either as one product
of augmented rows [−2z, |z|², 1]·[z, 1, |z|²] (``EXACT`` false), or from differences, input by input, where close pairs
must keep their digits. ``KERNEL`` numbers the profile: see ``PROFILES``.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

PROFILES = {"rbf": 0, "matern12": 1, "matern32": 2, "matern52": 3}
"""The kernels that are fused, by name."""

ALPHA = {
    "rbf": math.sqrt(0.5 / math.log(2)),
    "matern12": 1 / math.log(2),
    "matern32": math.sqrt(3) / math.log(2),
    "matern52": math.sqrt(5) / math.log(2),
}
"""Scale of the inputs: ρ = alpha · r, so that exp(−√(2ν) r) = 2^−ρ and exp(−r²/2) = 2^−ρ²."""

AMPLIFY = tl.constexpr(256.0)  # k · 256 uses more of float16's range; the epilogue divides by it
LN2 = tl.constexpr(math.log(2))
TINY = tl.constexpr(1e-12)


@triton.jit
def _profile(square, KERNEL: tl.constexpr):
    """256 k(ρ) from ρ²."""
    square = tl.maximum(square, TINY)
    if KERNEL == 0:
        return tl.exp2(8.0 - square)
    rho = square * tl.rsqrt(square)
    if KERNEL == 1:
        return tl.exp2(8.0 - rho)
    if KERNEL == 2:
        return tl.fma(rho, LN2 * AMPLIFY, AMPLIFY) * tl.exp2(-rho)
    a = rho * LN2
    return tl.fma(a, tl.fma(a, AMPLIFY / 3.0, AMPLIFY), AMPLIFY) * tl.exp2(-rho)


@triton.jit
def _profile_and_weight(square, KERNEL: tl.constexpr):
    """k(ρ) and −k′(r)/r up to a constant factor that the host applies, from ρ²; coincident pairs may weigh 0."""
    safe = tl.maximum(square, TINY)
    if KERNEL == 0:
        k = tl.exp2(-safe)
        return k, k
    rho = safe * tl.rsqrt(safe)
    e = tl.exp2(-rho)
    if KERNEL == 1:
        return e, tl.where(square <= TINY, 0.0, e / rho)
    a = rho * LN2
    if KERNEL == 2:
        return tl.fma(a, e, e), e
    return tl.fma(a, tl.fma(a, 1.0 / 3.0, 1.0), 1.0) * e, tl.fma(a, e, e)


@triton.jit
def _halves(k):
    """hi and lo in float16; hi by cutting the last 13 bits of the mantissa, which is cheaper than rounding."""
    high = (k.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return high.to(tl.float16), (k - high).to(tl.float16)


@triton.jit
def _scale(bits):
    """The power of two that brings a column whose largest magnitude has these bits near 1024; 1 for zero."""
    exponent = tl.minimum(tl.maximum((bits >> 23) - 127, -116), 120)
    return tl.where(bits == 0, 1.0, ((136 - exponent) << 23).to(tl.float32, bitcast=True))


@triton.jit
def _split_dot(a_high, a_low, b_high, b_low):
    """a·b to 22 bits from float16 halves, adding inside this one tile only."""
    part = tl.dot(a_low, b_high)
    part = tl.dot(a_high, b_low, part)
    return tl.dot(a_high, b_high, part)


@triton.jit
def _finish(
    total, total_plain, rows, offset, n_columns, OUT, BITS, V, INDEX, m, c, first, used, factor, noise,
    ADD: tl.constexpr, NOISE: tl.constexpr, S: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """OUT[i, first + column] (+)= factor/scale · total (+ noise · V[own row]): :func:`combine` without parts.

    ``NOISE`` 1: the own rows of V are INDEX; 2: they are i − offset, where there is such a row.
    """
    rows = rows.to(tl.int64)
    inside = rows < m
    if NOISE == 1:
        own = tl.load(INDEX + rows, mask=inside, other=0)
        has_own = inside
    else:
        own = rows - offset
        has_own = inside & (own >= 0) & (own < n_columns)
    if PLAIN:
        plain = total_plain * (factor / _scale(tl.load(BITS + first)))
        if NOISE > 0:
            plain += noise * tl.load(V + own * c + first, mask=has_own, other=0.0)
        if ADD:
            plain += tl.load(OUT + rows * c + first, mask=inside, other=0.0)
        tl.store(OUT + rows * c + first, plain, mask=inside)
    if S > 0:
        columns = PLAIN + tl.arange(0, S)
        valid = (columns < used)[None, :]
        at = rows[:, None] * c + first + columns[None, :]
        total = total * (factor / _scale(tl.load(BITS + first + columns, mask=columns < used, other=0)))[None, :]
        if NOISE > 0:
            its = V + own[:, None] * c + first + columns[None, :]
            total += noise * tl.load(its, mask=has_own[:, None] & valid, other=0.0)
        if ADD:
            total += tl.load(OUT + at, mask=inside[:, None] & valid, other=0.0)
        tl.store(OUT + at, total, mask=inside[:, None] & valid)


@triton.jit
def _add_squares(square, rows, columns, XA, XB, a_stride, b_stride, DIM: tl.constexpr):
    """square + Σ_k (a_ik − b_jk)², from inputs stored one input per line: (DIM, a_stride) and (DIM, b_stride)."""
    if DIM <= 16:
        for k in tl.static_range(DIM):
            difference = tl.load(XA + k * a_stride + rows)[:, None] - tl.load(XB + k * b_stride + columns)[None, :]
            square = tl.fma(difference, difference, square)
    else:
        for k in range(DIM):
            difference = tl.load(XA + k * a_stride + rows)[:, None] - tl.load(XB + k * b_stride + columns)[None, :]
            square = tl.fma(difference, difference, square)
    return square


@triton.jit
def product(
    AH, AL, BH, BL, XA, XB, a_stride, b_stride, VH, VL, VY, ROWS, COLUMNS,
    OUT, BITS, V, INDEX, c, first, used, factor, noise, m, last, n_columns, columns_per_split, width,
    GATHER_ROWS: tl.constexpr, GATHER_COLUMNS: tl.constexpr,
    KERNEL: tl.constexpr, EXACT: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, S: tl.constexpr,
    PLAIN: tl.constexpr, FINAL: tl.constexpr, ADD: tl.constexpr, NOISE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """OUT[split, i, :] = 256 Σ_j k(a_i, b_j) [VY_j, V_j] over the split's columns; rows of OUT have ``width`` numbers.

    ``ROWS`` and ``COLUMNS`` are the indices of the points to use where they are gathered; else all rows, and the
    columns from the one that ``COLUMNS`` points at, so that a graph can be replayed for another block. Columns beyond
    ``last`` stand for it (their V is zero). ``FINAL``, for a single split: OUT is the result itself, as :func:`combine`
    would make it, or what it is added to.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns_s, inputs = tl.arange(0, S if S > 0 else 16), tl.arange(0, D)
    points = rows
    if GATHER_ROWS:
        points = tl.load(ROWS + rows, mask=rows < m, other=0)
    offset = 0
    if not GATHER_COLUMNS:
        offset = tl.load(COLUMNS)
    if EXACT:
        nought = tl.load(AH + tl.arange(0, BM)[:, None] * D + inputs[None, :])
        nought_columns = tl.load(BH + tl.arange(0, BN)[:, None] * D + inputs[None, :])
    else:
        a_high = tl.load(AH + points[:, None] * D + inputs[None, :])
        a_low = tl.load(AL + points[:, None] * D + inputs[None, :])
    total = tl.zeros([BM, S if S > 0 else 16], tl.float32)
    total_plain = tl.zeros([BM], tl.float32)
    begin = tl.program_id(1) * columns_per_split
    end = tl.minimum(begin + columns_per_split, n_columns)
    for start in tl.range(begin, end, BN, num_stages=STAGES):
        local = start + tl.arange(0, BN)
        if GATHER_COLUMNS:
            columns = tl.load(COLUMNS + local, mask=local < n_columns, other=0)
        else:
            columns = tl.minimum(offset + local, last)
        if EXACT:
            square = tl.dot(nought, tl.trans(nought_columns))  # zero, in the layout that the product wants k in
            square = _add_squares(square, points, columns, XA, XB, a_stride, b_stride, DIM)
        else:
            b_high = tl.load(BH + columns[:, None] * D + inputs[None, :])
            b_low = tl.load(BL + columns[:, None] * D + inputs[None, :])
            square = _split_dot(a_high, a_low, tl.trans(b_high), tl.trans(b_low))
        k = _profile(square, KERNEL)
        if S > 0:
            k_high, k_low = _halves(k)
            v_high = tl.load(VH + local[:, None] * S + columns_s[None, :])
            v_low = tl.load(VL + local[:, None] * S + columns_s[None, :])
            total += _split_dot(k_high, k_low, v_high, v_low)
        if PLAIN:
            total_plain += tl.sum(k * tl.load(VY + local)[None, :], 1)
    if FINAL:
        _finish(
            total,
            total_plain,
            rows,
            offset,
            n_columns,
            OUT,
            BITS,
            V,
            INDEX,
            m,
            c,
            first,
            used,
            factor,
            noise,
            ADD,
            NOISE,
            S,
            PLAIN,
        )
    else:
        out = OUT + (tl.program_id(1) * m + rows) * width
        if PLAIN:
            tl.store(out, total_plain, mask=rows < m)
        if S > 0:
            tl.store(out[:, None] + PLAIN + columns_s[None, :], total, mask=(rows < m)[:, None])


@triton.jit
def column_largest(V, BITS, n, c, rows_per_program, C: tl.constexpr, BM: tl.constexpr):
    """BITS[j] = max_i |V_ij| as the bits of a float32, which order like integers; BITS starts at 0."""
    columns = tl.arange(0, C)
    largest = tl.zeros([C], tl.int32)
    begin = tl.program_id(0) * rows_per_program
    for start in range(begin, tl.minimum(begin + rows_per_program, n), BM):
        rows = (start + tl.arange(0, BM)).to(tl.int64)
        inside = (rows < n)[:, None] & (columns < c)[None, :]
        v = tl.load(V + rows[:, None] * c + columns[None, :], mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.max(v.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0))
    tl.atomic_max(BITS + columns, largest, mask=columns < c, sem="relaxed")


@triton.jit
def fill(
    AH, AL, BH, BL, XA, x_stride, H, stride, factor, n,
    KERNEL: tl.constexpr, EXACT: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """H[i, j] = factor · 256 k(x_i, x_j), rows ``stride`` numbers apart."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BM + tl.arange(0, BM)
    inputs = tl.arange(0, D)
    if EXACT:
        square = _add_squares(tl.zeros([BM, BM], tl.float32), rows, columns, XA, XA, x_stride, x_stride, DIM)
    else:
        a_high = tl.load(AH + rows[:, None] * D + inputs[None, :])
        a_low = tl.load(AL + rows[:, None] * D + inputs[None, :])
        b_high = tl.load(BH + columns[:, None] * D + inputs[None, :])
        b_low = tl.load(BL + columns[:, None] * D + inputs[None, :])
        square = _split_dot(a_high, a_low, tl.trans(b_high), tl.trans(b_low))
    inside = (rows < n)[:, None] & (columns < n)[None, :]
    tl.store(H + rows.to(tl.int64)[:, None] * stride + columns[None, :], _profile(square, KERNEL) * factor, mask=inside)


@triton.jit
def stored_product(
    H, stride, gain, VH, VL, VY, COLUMNS,
    OUT, BITS, V, INDEX, c, first, used, factor, noise, m, n_columns, columns_per_split, width,
    ALIGN: tl.constexpr, S: tl.constexpr, PLAIN: tl.constexpr, FINAL: tl.constexpr, ADD: tl.constexpr,
    NOISE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Like :func:`product` with gain · H read from memory instead of 256 k.

    Rows of H are ``stride`` numbers apart. Columns beyond the end of a row are what follows it (their V is zero).
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = (rows < m)[:, None]
    lines = H + rows.to(tl.int64)[:, None] * stride
    columns_s = tl.arange(0, S if S > 0 else 16)
    offset = tl.multiple_of(tl.load(COLUMNS), ALIGN)
    total = tl.zeros([BM, S if S > 0 else 16], tl.float32)
    total_plain = tl.zeros([BM], tl.float32)
    begin = tl.program_id(1) * columns_per_split
    end = tl.minimum(begin + columns_per_split, n_columns)
    for start in tl.range(begin, end, BN, num_stages=STAGES):
        local = start + tl.arange(0, BN)
        h = tl.load(lines + (offset + local)[None, :], mask=inside, other=0.0) * gain
        if S > 0:
            h_high, h_low = _halves(h)
            v_high = tl.load(VH + local[:, None] * S + columns_s[None, :])
            v_low = tl.load(VL + local[:, None] * S + columns_s[None, :])
            total += _split_dot(h_high, h_low, v_high, v_low)
        if PLAIN:
            total_plain += tl.sum(h * tl.load(VY + local)[None, :], 1)
    if FINAL:
        _finish(
            total,
            total_plain,
            rows,
            offset,
            n_columns,
            OUT,
            BITS,
            V,
            INDEX,
            m,
            c,
            first,
            used,
            factor,
            noise,
            ADD,
            NOISE,
            S,
            PLAIN,
        )
    else:
        out = OUT + (tl.program_id(1) * m + rows) * width
        if PLAIN:
            tl.store(out, total_plain, mask=rows < m)
        if S > 0:
            tl.store(out[:, None] + PLAIN + columns_s[None, :], total, mask=(rows < m)[:, None])


@triton.jit
def split_columns(
    V, BITS, GAIN, VH, VL, VY, n, n_padded, c, first,
    WEIGHTED: tl.constexpr, S: tl.constexpr, PLAIN: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Columns of V (n, c), scaled, split into float16 halves (n_padded, S), and the plain column VY; 0 beyond n and c.

    Tensor columns are V[:, first : first + S]; the plain one is V[:, 0]. A column is scaled by what its largest
    magnitude asks for, and by GAIN where ``WEIGHTED``.
    """
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    inside = rows < n
    if S > 0:
        columns = tl.arange(0, S)
        valid = (first + columns) < c
        v = tl.load(V + rows[:, None] * c + first + columns[None, :], mask=inside[:, None] & valid[None, :], other=0.0)
        v = v * _scale(tl.load(BITS + first + columns, mask=valid, other=0))[None, :]
        if WEIGHTED:
            v = v * tl.load(GAIN + first + columns, mask=valid, other=0.0)[None, :]
        high, low = _halves(v)
        here = rows[:, None] * S + columns[None, :]
        tl.store(VH + here, high, mask=(rows < n_padded)[:, None])
        tl.store(VL + here, low, mask=(rows < n_padded)[:, None])
    if PLAIN:
        v = tl.load(V + rows * c, mask=inside, other=0.0) * _scale(tl.load(BITS))
        if WEIGHTED:
            v = v * tl.load(GAIN)
        tl.store(VY + rows, v, mask=rows < n_padded)


@triton.jit
def combine(
    PARTS, BITS, V, INDEX, c, first, used, factor, noise, OUT, m, width, splits,
    NOISE: tl.constexpr, W: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """OUT[i, column] = factor/scale Σ_split PARTS[split, i] (+ noise · V[INDEX_i, column]), for ``used`` columns.

    The parts' columns are [plain?, tensor…]; column 0 of them is column ``first`` of OUT.
    """
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    columns = tl.arange(0, W)
    inside = (rows < m)[:, None] & (columns < used)[None, :]
    total = tl.zeros([BM, W], tl.float32)
    for split in range(splits):
        total += tl.load(PARTS + (split * m + rows)[:, None] * width + columns[None, :], mask=inside, other=0.0)
    total = total * (factor / _scale(tl.load(BITS + first + columns, mask=columns < used, other=0)))[None, :]
    if NOISE:
        own = tl.load(INDEX + rows, mask=rows < m, other=0)
        total += noise * tl.load(V + own[:, None] * c + first + columns[None, :], mask=inside, other=0.0)
    tl.store(OUT + rows[:, None] * c + first + columns[None, :], total, mask=inside)


@triton.jit
def gradient(
    AH, AL, BH, BL, X, x_stride, LH, LL, LY, RH, RL, RY, OUT, n, n_tiles, splits,
    KERNEL: tl.constexpr, EXACT: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, S: tl.constexpr, PLAIN: tl.constexpr,
    SYMMETRIC: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Sums over the tiles on and above the diagonal: OUT[program] = [Σ G k, Σ G ω (z_i − z_j)² per input].

    G = L Rᵀ with columns split into halves, plus LY RYᵀ; not symmetric: G + Gᵀ. A tile off the diagonal counts twice.
    """
    row_tile = tl.program_id(0)
    rows = row_tile * BM + tl.arange(0, BM)
    inputs = tl.arange(0, D)
    out = OUT + (row_tile * splits + tl.program_id(1)) * (1 + DIM)
    if not EXACT:
        a_high = tl.load(AH + rows[:, None] * D + inputs[None, :])
        a_low = tl.load(AL + rows[:, None] * D + inputs[None, :])
    if S > 0:
        columns_s = tl.arange(0, S)
        at_rows = rows[:, None] * S + columns_s[None, :]
        l_high, l_low = tl.load(LH + at_rows), tl.load(LL + at_rows)
        if not SYMMETRIC:
            r_high, r_low = tl.load(RH + at_rows), tl.load(RL + at_rows)
    signal = tl.zeros([BM], tl.float32)
    for tile in range(row_tile + tl.program_id(1), n_tiles, splits):
        columns = tile * BM + tl.arange(0, BM)
        if EXACT:
            square = _add_squares(tl.zeros([BM, BM], tl.float32), rows, columns, X, X, x_stride, x_stride, DIM)
        else:
            b_high = tl.load(BH + columns[:, None] * D + inputs[None, :])
            b_low = tl.load(BL + columns[:, None] * D + inputs[None, :])
            square = _split_dot(a_high, a_low, tl.trans(b_high), tl.trans(b_low))
            square = tl.where(rows[:, None] == columns[None, :], 0.0, square)
        G = tl.zeros([BM, BM], tl.float32)
        if S > 0:
            at_columns = columns[:, None] * S + columns_s[None, :]
            G = _split_dot(l_high, l_low, tl.trans(tl.load(RH + at_columns)), tl.trans(tl.load(RL + at_columns)))
            if not SYMMETRIC:
                G += _split_dot(r_high, r_low, tl.trans(tl.load(LH + at_columns)), tl.trans(tl.load(LL + at_columns)))
        if PLAIN:
            G += tl.load(LY + rows)[:, None] * tl.load(RY + columns)[None, :]
            if not SYMMETRIC:
                G += tl.load(RY + rows)[:, None] * tl.load(LY + columns)[None, :]
        both = 2.0 if SYMMETRIC else 1.0
        G = G * tl.where(tile == row_tile, 0.5 * both, both)
        k, weight = _profile_and_weight(square, KERNEL)
        signal += tl.sum(G * k, 1)
        W = G * weight
        for input in range(DIM):
            line = X + input * x_stride
            difference = tl.load(line + rows)[:, None] - tl.load(line + columns)[None, :]
            tl.atomic_add(out + 1 + input, tl.sum(tl.sum(W * difference * difference, 1), 0), sem="relaxed")
    tl.atomic_add(out, tl.sum(signal, 0), sem="relaxed")


@triton.jit
def gradient_rows(
    AH, AL, BH, BL, LH, LL, LY, RH, RL, RY, SIGNAL, OUT, n, columns_per_split,
    KERNEL: tl.constexpr, D: tl.constexpr, S: tl.constexpr, PLAIN: tl.constexpr, SYMMETRIC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """SIGNAL[split, i] = Σ_j G_ij k_ij and OUT[split, i, :] = 2^−11 Σ_j G_ij ω_ij [z_j, 1, …] (augmented inputs).

    G as in :func:`gradient`. By symmetry Σ_ij W_ij (z_i − z_j)² = 2 Σ_i (z_i² (W1)_i − z_i (Wz)_i), which the host adds
    up in float64. Products instead of differences: for many inputs, where nothing cancels badly.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inputs = tl.arange(0, D)
    a_high = tl.load(AH + rows[:, None] * D + inputs[None, :])
    a_low = tl.load(AL + rows[:, None] * D + inputs[None, :])
    if S > 0:
        columns_s = tl.arange(0, S)
        at_rows = rows[:, None] * S + columns_s[None, :]
        l_high, l_low = tl.load(LH + at_rows), tl.load(LL + at_rows)
        if not SYMMETRIC:
            r_high, r_low = tl.load(RH + at_rows), tl.load(RL + at_rows)
    signal = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    begin = tl.program_id(1) * columns_per_split
    for start in tl.range(begin, tl.minimum(begin + columns_per_split, n), BN, num_stages=STAGES):
        columns = start + tl.arange(0, BN)
        b_high = tl.load(BH + columns[:, None] * D + inputs[None, :])
        b_low = tl.load(BL + columns[:, None] * D + inputs[None, :])
        square = _split_dot(a_high, a_low, tl.trans(b_high), tl.trans(b_low))
        G = tl.zeros([BM, BN], tl.float32)
        if S > 0:
            at_columns = columns[:, None] * S + columns_s[None, :]
            G = _split_dot(l_high, l_low, tl.trans(tl.load(RH + at_columns)), tl.trans(tl.load(RL + at_columns)))
            if not SYMMETRIC:
                G += _split_dot(r_high, r_low, tl.trans(tl.load(LH + at_columns)), tl.trans(tl.load(LL + at_columns)))
        if PLAIN:
            G += tl.load(LY + rows)[:, None] * tl.load(RY + columns)[None, :]
            if not SYMMETRIC:
                G += tl.load(RY + rows)[:, None] * tl.load(LY + columns)[None, :]
        k, weight = _profile_and_weight(square, KERNEL)
        signal += tl.sum(G * k, 1)
        w_high, w_low = _halves(G * weight * 0.00048828125)  # 2^−11: |G| may be 2^26
        total += _split_dot(w_high, w_low, b_high, b_low)
    at = tl.program_id(1) * n + rows
    tl.store(SIGNAL + at, signal, mask=rows < n)
    tl.store(OUT + at[:, None] * D + inputs[None, :], total, mask=(rows < n)[:, None])


@triton.jit
def product64(
    XA, XB, a_stride, b_stride, V, ROWS, COLUMNS, OUT, m, last, n_columns, columns_per_split, c, first, used,
    GATHER_ROWS: tl.constexpr, GATHER_COLUMNS: tl.constexpr, KERNEL: tl.constexpr, DIM: tl.constexpr,
    S: tl.constexpr, PLAIN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """OUT[split, i, first : first + used] = Σ_j k(a_i, b_j) V_j over the split's columns, all in float64.

    Distances are exact, and the tensor core multiplies float64: nothing is split. Indices as in :func:`product`.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns_s = PLAIN + tl.arange(0, S if S > 0 else 16)
    points = rows
    if GATHER_ROWS:
        points = tl.load(ROWS + rows, mask=rows < m, other=0)
    offset = 0
    if not GATHER_COLUMNS:
        offset = tl.load(COLUMNS)
    total = tl.zeros([BM, S if S > 0 else 16], tl.float64)
    total_plain = tl.zeros([BM], tl.float64)
    begin = tl.program_id(1) * columns_per_split
    for start in range(begin, tl.minimum(begin + columns_per_split, n_columns), BN):
        local = start + tl.arange(0, BN)
        valid = local < n_columns
        if GATHER_COLUMNS:
            columns = tl.load(COLUMNS + local, mask=valid, other=0)
        else:
            columns = tl.minimum(offset + local, last)
        square = _add_squares(tl.zeros([BM, BN], tl.float64), points, columns, XA, XB, a_stride, b_stride, DIM)
        rho = tl.sqrt(square)
        a = rho * LN2
        if KERNEL == 0:
            k = tl.exp2(-square)
        elif KERNEL == 1:
            k = tl.exp2(-rho)
        elif KERNEL == 2:
            k = (1.0 + a) * tl.exp2(-rho)
        else:
            k = (1.0 + a + a * a / 3.0) * tl.exp2(-rho)
        line = V + local.to(tl.int64) * c + first
        if S > 0:
            v = tl.load(
                line[:, None] + columns_s[None, :], mask=valid[:, None] & (columns_s < used)[None, :], other=0.0
            )
            total = tl.dot(k, v, total, out_dtype=tl.float64)
        if PLAIN:
            total_plain += tl.sum(k * tl.load(line, mask=valid, other=0.0)[None, :], 1)
    out = OUT + (tl.program_id(1) * m + rows).to(tl.int64) * c + first
    if PLAIN:
        tl.store(out, total_plain, mask=rows < m)
    if S > 0:
        tl.store(out[:, None] + columns_s[None, :], total, mask=(rows < m)[:, None] & (columns_s < used)[None, :])
