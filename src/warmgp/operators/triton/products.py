"""Triton kernels that multiply by K(a, b) without ever forming it.

A program owns a tile of rows and walks over the columns. For each tile it makes squared distances, the kernel from
them, and the product with V, all in registers and shared memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from warmgp.operators.triton.parts import add_squares, add_to, halves, scale_of, split_dot, squares64


@triton.jit
def store_columns(
    total, squares, begin, rows, inside, own, has_own, OUT, BITS, V, c, first, used, factor, noise,
    ADD: tl.constexpr, NOISE: tl.constexpr, SQUARES: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Stores S columns of a result, from column ``begin`` of the group on; returns ``squares`` with theirs added."""
    columns = begin + tl.arange(0, S)
    valid = (columns < used)[None, :]
    at = rows[:, None] * c + first + columns[None, :]
    total = total * (factor / scale_of(tl.load(BITS + first + columns, mask=columns < used, other=0)))[None, :]
    if NOISE > 0:
        its = V + own[:, None] * c + first + columns[None, :]
        total += noise * tl.load(its, mask=has_own[:, None] & valid, other=0.0)
    if ADD:
        total += tl.load(OUT + at, mask=inside[:, None] & valid, other=0.0)
    tl.store(OUT + at, total, mask=inside[:, None] & valid)
    if SQUARES > 0:
        total = tl.where(valid, total, 0.0)
        squares += tl.sum(total * total, 1)
    return squares


@triton.jit
def store_result(
    total, total_more, total_plain, rows, offset, n_columns,
    SUMS, OUT, BITS, V, INDEX, m, c, first, used, factor, noise, width,
    FINAL: tl.constexpr, ADD: tl.constexpr, NOISE: tl.constexpr, SQUARES: tl.constexpr, S: tl.constexpr,
    MORE: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """Stores a product: partial sums as OUT[split, i, :], or, where ``FINAL``, what ``combine`` would make of them:

        OUT[i, first + column] (+)= factor/scale · total (+ noise · V[own row]).

    ``NOISE`` is 1 where the own rows of V are INDEX, 2 where they are i − offset, if there is such a row, and 0 for no
    noise. ``SQUARES`` is 1 where SUMS[i] becomes the sum of squares of what was stored in row i, 2 where that is added
    to it, and 0 for neither.
    """
    if not FINAL:
        out = OUT + (tl.program_id(1) * m + rows) * width
        if PLAIN:
            tl.store(out, total_plain, mask=rows < m)
        if S > 0:
            tl.store(out[:, None] + PLAIN + tl.arange(0, S)[None, :], total, mask=(rows < m)[:, None])
        if MORE > 0:
            tl.store(out[:, None] + PLAIN + S + tl.arange(0, MORE)[None, :], total_more, mask=(rows < m)[:, None])
    else:
        rows = rows.to(tl.int64)
        inside = rows < m
        if NOISE == 1:
            own = tl.load(INDEX + rows, mask=inside, other=0)
            has_own = inside
        else:
            own = rows - offset
            has_own = inside & (own >= 0) & (own < n_columns)
        squares = tl.zeros([rows.shape[0]], tl.float32)
        if PLAIN:
            plain = total_plain * (factor / scale_of(tl.load(BITS + first)))
            if NOISE > 0:
                plain += noise * tl.load(V + own * c + first, mask=has_own, other=0.0)
            if ADD:
                plain += tl.load(OUT + rows * c + first, mask=inside, other=0.0)
            tl.store(OUT + rows * c + first, plain, mask=inside)
            squares += plain * plain
        if S > 0:
            squares = store_columns(
                total, squares, PLAIN, rows, inside, own, has_own, OUT, BITS, V, c, first, used, factor, noise,
                ADD, NOISE, SQUARES, S,
            )  # fmt: skip
        if MORE > 0:
            squares = store_columns(
                total_more, squares, PLAIN + S, rows, inside, own, has_own, OUT, BITS, V, c, first, used, factor, noise,
                ADD, NOISE, SQUARES, MORE,
            )  # fmt: skip
        if SQUARES == 2:
            squares += tl.load(SUMS + rows, mask=inside, other=0.0)
        if SQUARES > 0:
            tl.store(SUMS + rows, squares, mask=inside)


@triton.jit(do_not_specialize=["m", "last", "n_columns"])  # any number of points has one kernel
def product(
    AH, AL, BH, BL, XA, XB, a_stride, b_stride, VH, VL, VY, FIRST,
    SUMS, OUT, BITS, V, INDEX, c, first, used, factor, noise, m, last, n_columns, columns_per_split, width,
    amplify, shrink, SHIFTED: tl.constexpr, FALLING: tl.constexpr, PROFILE: tl.constexpr, PRODUCTS: tl.constexpr,
    DIFFERENCED: tl.constexpr, D: tl.constexpr, S: tl.constexpr, MORE: tl.constexpr, PLAIN: tl.constexpr,
    FINAL: tl.constexpr, ADD: tl.constexpr, NOISE: tl.constexpr, SQUARES: tl.constexpr, LONG: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes OUT[split, i, :] = 256 Σ_j k(a_i, b_j) [VY_j, V_j] over the split's columns, ``width`` numbers a row.

    Where it is ``FALLING``, PROFILE is 1 − k of squared distances times ``shrink``, and ``amplify`` stands for 256.
    Columns are the first ones, or, where ``SHIFTED``, those from the one that ``FIRST`` points at, so that a graph can
    be replayed for another block; then columns beyond ``last`` stand for it (their V is zero). With ``FINAL``, for a
    single split, OUT is the result itself, as :func:`combine` would make it, or with ``ADD`` what it is added to.
    ``LONG`` says that there are many tiles of columns. V are S columns as halves, and ``MORE`` after them.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns_s, inputs = tl.arange(0, S if S > 0 else 16), tl.arange(0, D)
    offset = 0
    if SHIFTED:
        offset = tl.load(FIRST)
    if PRODUCTS:
        a_high = tl.load(AH + rows[:, None] * D + inputs[None, :])
        a_low = tl.load(AL + rows[:, None] * D + inputs[None, :])
    else:
        nought = tl.load(AH + tl.arange(0, BM)[:, None] * D + inputs[None, :])
        nought_columns = tl.load(BH + tl.arange(0, BN)[:, None] * D + inputs[None, :])
    total = tl.zeros([BM, S if S > 0 else 16], tl.float32)
    columns_more = S + tl.arange(0, MORE if MORE > 0 else 16)
    total_more = tl.zeros([BM, MORE if MORE > 0 else 16], tl.float32)
    total_plain = tl.zeros([BM], tl.float32)
    lost, lost_more, lost_plain = tl.zeros_like(total), tl.zeros_like(total_more), tl.zeros_like(total_plain)
    begin = tl.program_id(1) * columns_per_split
    end = tl.minimum(begin + columns_per_split, n_columns)
    for start in tl.range(begin, end, BN, num_stages=STAGES):
        local = start + tl.arange(0, BN)
        columns = local
        if SHIFTED:
            columns = tl.minimum(offset + local, last)
        if PRODUCTS:
            b_high = tl.load(BH + columns[:, None] * D + inputs[None, :])
            b_low = tl.load(BL + columns[:, None] * D + inputs[None, :])
            square = split_dot(a_high, a_low, tl.trans(b_high), tl.trans(b_low))
        else:
            square = tl.dot(nought, tl.trans(nought_columns))  # zero, in the layout that the product wants k in
        square = add_squares(square, rows, columns, XA, XB, a_stride, b_stride, DIFFERENCED)
        if FALLING:
            k = PROFILE(square * shrink) * amplify
        else:
            k = PROFILE(square)
        if S > 0:
            k_high, k_low = halves(k)
            line = local[:, None] * (S + MORE)
            v_high = tl.load(VH + line + columns_s[None, :])
            v_low = tl.load(VL + line + columns_s[None, :])
            total, lost = add_to(total, lost, split_dot(k_high, k_low, v_high, v_low), LONG)
            if MORE > 0:
                v_high = tl.load(VH + line + columns_more[None, :])
                v_low = tl.load(VL + line + columns_more[None, :])
                part = split_dot(k_high, k_low, v_high, v_low)
                total_more, lost_more = add_to(total_more, lost_more, part, LONG)
        if PLAIN:
            here = tl.sum(k * tl.load(VY + local)[None, :], 1)
            total_plain, lost_plain = add_to(total_plain, lost_plain, here, LONG)
    store_result(
        total, total_more, total_plain, rows, offset, n_columns,
        SUMS, OUT, BITS, V, INDEX, m, c, first, used, factor, noise, width,
        FINAL, ADD, NOISE, SQUARES, S, MORE, PLAIN,
    )  # fmt: skip


@triton.jit(do_not_specialize=["m", "last", "n_columns"])
def product64(
    XA, XB, a_stride, b_stride, ZA, ZB, SA, SB, V, FIRST, OUT, m, last, n_columns, columns_per_split, width,
    SHIFTED: tl.constexpr, PROFILE: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr,
    S: tl.constexpr, MORE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Writes OUT[split, i, :] = Σ_j k(a_i, b_j) V_j over the split's columns, all in float64.

    The tensor core multiplies float64: nothing is split. Distances are differences, or, where D is not 0, products of
    lines of D numbers (ZA, ZB) with their squares (SA, SB). V is (padded rows, width) with zeros
    beyond what it has, OUT likewise; S columns are multiplied, and ``MORE`` after them: 16 for the one that comes
    before 64 probes. Indices are as in :func:`product`.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns_s = tl.arange(0, S)
    columns_more = S + tl.arange(0, MORE if MORE > 0 else 16)
    offset = 0
    if SHIFTED:
        offset = tl.load(FIRST)
    if D > 0:
        a = tl.load(ZA + rows.to(tl.int64)[:, None] * D + tl.arange(0, D if D < 64 else 64)[None, :])
    total = tl.zeros([BM, S], tl.float64)
    total_more = tl.zeros([BM, MORE if MORE > 0 else 16], tl.float64)
    begin = tl.program_id(1) * columns_per_split
    for start in range(begin, tl.minimum(begin + columns_per_split, n_columns), BN):
        local = start + tl.arange(0, BN)
        columns = local
        if SHIFTED:
            columns = tl.minimum(offset + local, last)
        if D > 0:
            square = squares64(a, rows, columns, ZA, ZB, SA, SB, D)
        else:
            square = add_squares(tl.zeros([BM, BN], tl.float64), rows, columns, XA, XB, a_stride, b_stride, DIM)
        k = PROFILE(square)
        line = V + local.to(tl.int64) * width
        total = tl.dot(k, tl.load(line[:, None] + columns_s[None, :]), total, out_dtype=tl.float64)
        if MORE > 0:
            more = tl.load(line[:, None] + columns_more[None, :])
            total_more = tl.dot(k, more, total_more, out_dtype=tl.float64)
    out = OUT + (tl.program_id(1) * m + rows).to(tl.int64) * width
    tl.store(out[:, None] + columns_s[None, :], total, mask=(rows < m)[:, None])
    if MORE > 0:
        tl.store(out[:, None] + columns_more[None, :], total_more, mask=(rows < m)[:, None])
