"""Triton kernels of ∂/∂θ Σ_c a_cᵀ H b_c: by differences of inputs, and by products.

``PROFILE`` is the kernel's ``FusedForm.profile_and_weight``, or ``profile_and_weight64``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from warmgp.operators.triton.parts import add_squares, halves, split_dot, squares64


@triton.jit
def gradient(
    AH, AL, BH, BL, X, x_stride, LH, LL, LY, RH, RL, RY, OUT, n, n_tiles, splits, begin,
    PROFILE: tl.constexpr, PRODUCTS: tl.constexpr, DIFFERENCED: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr,
    S: tl.constexpr, PLAIN: tl.constexpr, SYMMETRIC: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Sums over the tiles on and above the diagonal: OUT[program] = [Σ G k, Σ G ω (z_i − z_j)² per input].

    G = L Rᵀ with columns split into halves, plus LY RYᵀ; (G + Gᵀ)/2 where that is not ``SYMMETRIC``. A tile off the
    diagonal counts twice. Tiles of columns are those from ``begin`` on.
    """
    row_tile = tl.program_id(0)
    rows = row_tile * BM + tl.arange(0, BM)
    inputs = tl.arange(0, D)
    out = OUT + (row_tile * splits + tl.program_id(1)) * (1 + DIM)
    if PRODUCTS:
        a_high = tl.load(AH + rows[:, None] * D + inputs[None, :])
        a_low = tl.load(AL + rows[:, None] * D + inputs[None, :])
    if S > 0:
        columns_s = tl.arange(0, S)
        at_rows = rows[:, None] * S + columns_s[None, :]
        l_high, l_low = tl.load(LH + at_rows), tl.load(LL + at_rows)
        if not SYMMETRIC:
            r_high, r_low = tl.load(RH + at_rows), tl.load(RL + at_rows)
    signal = tl.zeros([BM], tl.float32)
    for tile in range(tl.maximum(row_tile, begin) + tl.program_id(1), n_tiles, splits):
        columns = tile * BM + tl.arange(0, BM)
        square = tl.zeros([BM, BM], tl.float32)
        if PRODUCTS:
            b_high = tl.load(BH + columns[:, None] * D + inputs[None, :])
            b_low = tl.load(BL + columns[:, None] * D + inputs[None, :])
            square = split_dot(a_high, a_low, tl.trans(b_high), tl.trans(b_low))
            square = tl.where(rows[:, None] == columns[None, :], 0.0, square)
        square = add_squares(square, rows, columns, X, X, x_stride, x_stride, DIFFERENCED)
        G = tl.zeros([BM, BM], tl.float32)
        if S > 0:
            at_columns = columns[:, None] * S + columns_s[None, :]
            G = split_dot(l_high, l_low, tl.trans(tl.load(RH + at_columns)), tl.trans(tl.load(RL + at_columns)))
            if not SYMMETRIC:
                G += split_dot(r_high, r_low, tl.trans(tl.load(LH + at_columns)), tl.trans(tl.load(LL + at_columns)))
        if PLAIN:
            G += tl.load(LY + rows)[:, None] * tl.load(RY + columns)[None, :]
            if not SYMMETRIC:
                G += tl.load(RY + rows)[:, None] * tl.load(LY + columns)[None, :]
        both = 2.0 if SYMMETRIC else 1.0
        G = G * tl.where(tile == row_tile, 0.5 * both, both)
        k, weight = PROFILE(square)
        signal += tl.sum(G * k, 1)
        W = G * weight
        for input in range(DIM):
            line = X + input * x_stride
            difference = tl.load(line + rows)[:, None] - tl.load(line + columns)[None, :]
            tl.atomic_add(out + 1 + input, tl.sum(tl.sum(W * difference * difference, 1), 0), sem="relaxed")
    tl.atomic_add(out, tl.sum(signal, 0), sem="relaxed")


@triton.jit
def gradient_rows(
    AH, AL, BH, BL, X, x_stride, LH, LL, LY, RH, RL, RY, SIGNAL, OUT, OUT_DIFFERENCED,
    n, columns_per_split, first_row, first_column, last_column,
    PROFILE: tl.constexpr, PRODUCTS: tl.constexpr, DIFFERENCED: tl.constexpr, SLOTS: tl.constexpr, D: tl.constexpr,
    S: tl.constexpr, PLAIN: tl.constexpr, SYMMETRIC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes SIGNAL[split, i] = Σ_j G_ij k_ij and OUT[split, i, :] = 2^−11 Σ_j G_ij ω_ij [z_j, 1, …] (augmented).

    G is as in :func:`gradient`, but G + Gᵀ where it is not ``SYMMETRIC``: the host halves the sums. By symmetry
    Σ_ij W_ij (z_i − z_j)² = 2 Σ_i (z_i² (W1)_i − z_i (Wz)_i), which the host adds up in float64. These are products
    instead of differences: for many inputs, where nothing cancels badly. The inputs that are differenced have
    OUT_DIFFERENCED[split, i, input] = Σ_j G_ij ω_ij (z_i − z_j)² instead. Rows i are those from ``first_row`` on, and
    columns j those from ``first_column`` to ``last_column``.
    """
    rows = first_row + tl.program_id(0) * BM + tl.arange(0, BM)
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
    slots = tl.arange(0, SLOTS)
    total_differenced = tl.zeros([BM, SLOTS], tl.float32)
    begin = first_column + tl.program_id(1) * columns_per_split
    for start in tl.range(begin, tl.minimum(begin + columns_per_split, last_column), BN, num_stages=STAGES):
        columns = start + tl.arange(0, BN)
        b_high = tl.load(BH + columns[:, None] * D + inputs[None, :])
        b_low = tl.load(BL + columns[:, None] * D + inputs[None, :])
        square = split_dot(a_high, a_low, tl.trans(b_high), tl.trans(b_low))
        square = add_squares(square, rows, columns, X, X, x_stride, x_stride, DIFFERENCED)
        G = tl.zeros([BM, BN], tl.float32)
        if S > 0:
            at_columns = columns[:, None] * S + columns_s[None, :]
            G = split_dot(l_high, l_low, tl.trans(tl.load(RH + at_columns)), tl.trans(tl.load(RL + at_columns)))
            if not SYMMETRIC:
                G += split_dot(r_high, r_low, tl.trans(tl.load(LH + at_columns)), tl.trans(tl.load(LL + at_columns)))
        if PLAIN:
            G += tl.load(LY + rows)[:, None] * tl.load(RY + columns)[None, :]
            if not SYMMETRIC:
                G += tl.load(RY + rows)[:, None] * tl.load(LY + columns)[None, :]
        k, weight = PROFILE(square)
        signal += tl.sum(G * k, 1)
        W = G * weight
        for input in tl.static_range(DIFFERENCED):
            line = X + input * x_stride
            difference = tl.load(line + rows)[:, None] - tl.load(line + columns)[None, :]
            here = tl.sum(W * difference * difference, 1)
            total_differenced += tl.where(slots[None, :] == input, here[:, None], 0.0)
        w_high, w_low = halves(W * 0.00048828125)  # 2^−11: |G| may be 2^26
        total += split_dot(w_high, w_low, b_high, b_low)
    at = tl.program_id(1) * n + rows
    tl.store(SIGNAL + at, signal, mask=rows < n)
    tl.store(OUT + at[:, None] * D + inputs[None, :], total, mask=(rows < n)[:, None])
    if DIFFERENCED > 0:
        tl.store(OUT_DIFFERENCED + at[:, None] * SLOTS + slots[None, :], total_differenced, mask=(rows < n)[:, None])


@triton.jit
def gradient_rows64(
    X, x_stride, ZD, SD, Z, L, R, SIGNAL, OUT, count, columns_per_split, first_row, first_column, last_column,
    PROFILE: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, Q: tl.constexpr, S: tl.constexpr, MORE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Writes SIGNAL[split, i] = Σ_j G_ij k_ij and OUT[split, i, :] = Σ_j G_ij ω_ij Z_j, all in float64.

    G = L Rᵀ is symmetric, of S columns and ``MORE`` after them; Z are rows [z, 1, 0 …] of Q numbers, of which the host
    makes sums as in :func:`gradient_rows`. Distances are as in ``product64``. Columns j are as in
    :func:`gradient_rows`; there are ``count`` rows from ``first_row`` on, of which OUT has the first one first.
    """
    here = tl.program_id(0) * BM + tl.arange(0, BM)
    rows = first_row + here
    columns_s, inputs = tl.arange(0, S), tl.arange(0, Q)
    if D > 0:
        a = tl.load(ZD + rows.to(tl.int64)[:, None] * D + tl.arange(0, D if D < 64 else 64)[None, :])
    columns_more = S + tl.arange(0, MORE if MORE > 0 else 16)
    at_rows = rows.to(tl.int64)[:, None] * (S + MORE)
    left = tl.load(L + at_rows + columns_s[None, :])
    if MORE > 0:
        left_more = tl.load(L + at_rows + columns_more[None, :])
    signal = tl.zeros([BM], tl.float64)
    total = tl.zeros([BM, Q], tl.float64)
    begin = first_column + tl.program_id(1) * columns_per_split
    for start in range(begin, tl.minimum(begin + columns_per_split, last_column), BN):
        columns = start + tl.arange(0, BN)
        at_columns = columns.to(tl.int64)[:, None] * (S + MORE)
        G = tl.dot(left, tl.trans(tl.load(R + at_columns + columns_s[None, :])), out_dtype=tl.float64)
        if MORE > 0:
            G = tl.dot(left_more, tl.trans(tl.load(R + at_columns + columns_more[None, :])), G, out_dtype=tl.float64)
        if D > 0:
            square = squares64(a, rows, columns, ZD, ZD, SD, SD, D)
        else:
            square = add_squares(tl.zeros([BM, BN], tl.float64), rows, columns, X, X, x_stride, x_stride, DIM)
        k, weight = PROFILE(square)
        signal += tl.sum(G * k, 1)
        z = tl.load(Z + columns.to(tl.int64)[:, None] * Q + inputs[None, :])
        total = tl.dot(G * weight, z, total, out_dtype=tl.float64)
    at = tl.program_id(1).to(tl.int64) * count + here
    tl.store(SIGNAL + at, signal, mask=here < count)
    tl.store(OUT + at[:, None] * Q + inputs[None, :], total, mask=(here < count)[:, None])
