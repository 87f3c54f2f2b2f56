"""Inverse Cholesky factors of many small matrices at once, each in the registers of one program.

A library factors 256 rows of a batch in 16 launches and inverts them in twelve more, most of which wait; here a leaf of
the recursion of :func:`warmgp.solvers.triangular.inverse_factors` is one launch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from warmgp.operators.triton.launch import run_kernel

LEAF = 64
"""The most rows of a matrix that one program inverts the factor of: 32 numbers of float64 a thread."""


@triton.jit
def invert_factor(A, X, FAILED, a_batch, a_row, x_batch, x_row, b, B: tl.constexpr):
    """Writes X = L⁻¹ of a symmetric matrix A = L Lᵀ of b ≤ B rows, one a program, and FAILED = 1 where there is no L.

    Row operations turn [A, I] into [Lᵀ, X], both in one tile: column j of I differs from zero in the rows that are yet
    to come only once column j of A is done with. A step makes row j final, M_j / √M_jj, and takes multiples of it off
    the rows below.
    """
    which = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    inside = (rows < b) & (columns < b)
    tile = tl.load(A + which * a_batch + rows * a_row + columns, mask=inside, other=0.0)
    wrong = 0
    for j in range(b):
        row = tl.sum(tl.where(rows == j, tile, 0.0), 0)[None, :]
        column = tl.sum(tl.where(columns == j, tile, 0.0), 1)[:, None]
        pivot = tl.sum(tl.where(columns == j, row, 0.0))
        wrong = tl.where(pivot > 0.0, wrong, 1)
        scale = 1.0 / tl.sqrt(tl.where(pivot > 0.0, pivot, 1.0))
        row = tl.where(columns == j, 1.0, row) * scale  # of Lᵀ after j, of X up to it
        column = tl.where(rows > j, column * scale, 0.0)  # of L below its diagonal
        tile = tl.where((rows > j) & (columns == j), 0.0, tile)
        tile = tl.where(rows == j, row, tile - column * row)
    tl.store(X + which * x_batch + rows * x_row + columns, tl.where(rows >= columns, tile, 0.0), mask=inside)
    if wrong > 0:
        tl.store(FAILED, 1)


def invert_small(A: Tensor, X: Tensor, failed: Tensor) -> None:
    """Writes X = L⁻¹ of matrices A = L Lᵀ, (k, b, b) each in float64, of at most ``LEAF`` rows that lie row by row, and
    1 into ``failed``, (1,) of int32, where one of them has no factor."""
    k, b, _ = A.shape
    run_kernel(
        invert_factor, (k,), A, X, failed, A.stride(0), A.stride(1), X.stride(0), X.stride(1), b,
        B=LEAF, num_warps=4,
    )  # fmt: skip
