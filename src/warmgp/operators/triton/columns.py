"""Triton kernels that scale and split the columns of V, and put partial products together again."""

from __future__ import annotations

import triton
import triton.language as tl

from warmgp.operators.triton.parts import add_to, halves, scale_of


@triton.jit
def column_largest(V, BITS, n, c, rows_per_program, C: tl.constexpr, BM: tl.constexpr):
    """Writes BITS[j] = max_i |V_ij| as the bits of a float32, which order like integers; BITS starts at 0."""
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
def split_columns(
    V, BITS, GAIN, VH, VL, VY, n, n_padded, c, first,
    WEIGHTED: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, PLAIN: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Writes scaled columns of V (n, c) as float16 halves (n_padded, STRIDE), and the plain column VY; 0 beyond n, c.

    Tensor columns are V[:, first : first + STRIDE], no more than S, a power of two; the plain one is V[:, 0]. A column
    is scaled by what its largest magnitude asks for, and by GAIN where ``WEIGHTED``.
    """
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    inside = rows < n
    if S > 0:
        columns = tl.arange(0, S)
        valid = (first + columns) < c
        v = tl.load(V + rows[:, None] * c + first + columns[None, :], mask=inside[:, None] & valid[None, :], other=0.0)
        v = v * scale_of(tl.load(BITS + first + columns, mask=valid, other=0))[None, :]
        if WEIGHTED:
            v = v * tl.load(GAIN + first + columns, mask=valid, other=0.0)[None, :]
        high, low = halves(v)
        here = rows[:, None] * STRIDE + columns[None, :]
        held = (rows < n_padded)[:, None] & (columns < STRIDE)[None, :]
        tl.store(VH + here, high, mask=held)
        tl.store(VL + here, low, mask=held)
    if PLAIN:
        v = tl.load(V + rows * c, mask=inside, other=0.0) * scale_of(tl.load(BITS))
        if WEIGHTED:
            v = v * tl.load(GAIN)
        tl.store(VY + rows, v, mask=rows < n_padded)


@triton.jit(do_not_specialize=["m", "splits"])
def combine(
    PARTS, BITS, V, INDEX, c, first, used, factor, noise, OUT, m, width, splits,
    NOISE: tl.constexpr, W: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Writes OUT[i, column] = factor/scale Σ_split PARTS[split, i] (+ noise · V[INDEX_i, column]) in ``used`` columns.

    The parts' columns are [plain?, tensor…]; column 0 of them is column ``first`` of OUT.
    """
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    columns = tl.arange(0, W)
    inside = (rows < m)[:, None] & (columns < used)[None, :]
    total, lost = tl.zeros([BM, W], tl.float32), tl.zeros([BM, W], tl.float32)
    for split in range(splits):
        part = tl.load(PARTS + (split * m + rows)[:, None] * width + columns[None, :], mask=inside, other=0.0)
        total, lost = add_to(total, lost, part, True)
    total = total * (factor / scale_of(tl.load(BITS + first + columns, mask=columns < used, other=0)))[None, :]
    if NOISE:
        own = tl.load(INDEX + rows, mask=rows < m, other=0)
        total += noise * tl.load(V + own[:, None] * c + first + columns[None, :], mask=inside, other=0.0)
    tl.store(OUT + rows[:, None] * c + first + columns[None, :], total, mask=inside)
