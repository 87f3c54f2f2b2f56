"""A Triton kernel that writes dense blocks of K in float64: in one pass, where torch takes ten over the same memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from warmgp.kernels.base import FusedForm
from warmgp.operators.indices import ranges
from warmgp.operators.triton.launch import run_kernel
from warmgp.operators.triton.parts import add_squares, squares64
from warmgp.operators.triton.points import Points

ADDRESSES = 2**31 - 2**16
"""Numbers that 32-bit addresses reach, less those of padding."""


@triton.jit
def entries_within(
    OUT, X, stride, Z, SQUARES, SIGNAL, b,
    PROFILE: tl.constexpr, DIM: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Writes OUT[g, i, j] = SIGNAL · k(z_gi, z_gj), (groups, b, b), for points whose groups follow each other.

    Distances are differences of DIM inputs, one per line of X, or, where D is not 0, products of lines of D numbers (Z)
    with their squares.
    """
    group = tl.program_id(0)
    mine, its = tl.program_id(1) * BM + tl.arange(0, BM), tl.program_id(2) * BN + tl.arange(0, BN)
    rows, columns = group * b + tl.minimum(mine, b - 1), group * b + tl.minimum(its, b - 1)
    if D > 0:
        a = tl.load(Z + rows.to(tl.int64)[:, None] * D + tl.arange(0, D if D < 64 else 64)[None, :])
        square = squares64(a, rows, columns, Z, Z, SQUARES, SQUARES, D)
        square = tl.where(rows[:, None] == columns[None, :], 0.0, square)
    else:
        square = add_squares(tl.zeros([BM, BN], tl.float64), rows, columns, X, X, stride, stride, DIM)
    k = PROFILE(square) * tl.load(SIGNAL)
    at = (group.to(tl.int64) * b + mine)[:, None] * b + its[None, :]
    tl.store(OUT + at, k, mask=(mine < b)[:, None] & (its < b)[None, :])


def kernels_within(form: FusedForm, z: Tensor, signal_variance: float, *, differences: bool) -> Tensor:
    """Returns s² k among the points of each group, (k, b, b), for points z of (k, b, d) near zero, all in float64: by
    differences of inputs, or by products.

    An entry costs 2d operations for differences, or 2D on the tensor core with d padded to D, some 40 for the profile,
    and 8 bytes.
    """
    groups, b, d = z.shape
    out = torch.empty(groups, b, b, dtype=torch.float64, device=z.device)
    signal = torch.full((1,), signal_variance, dtype=torch.float64, device=z.device)  # an argument would be float32
    for some in ranges(groups, max(1, ADDRESSES // (b * max(128, d)))):
        _write(form, z[some], signal, out[some], differences)
    return out


def _write(form: FusedForm, z: Tensor, signal: Tensor, out: Tensor, differences: bool) -> None:
    """Writes what :func:`kernels_within` returns for groups that 32-bit addresses reach."""
    groups, b, d = z.shape
    points = Points.prepare(form.alpha * z.reshape(-1, d), d if differences else 0)
    doubles = points.doubles
    rows, squares = (points.lines, points.lines) if doubles is None else (doubles.rows, doubles.squares)  # or nothing
    BM, BN = 32, 64
    run_kernel(
        entries_within, (groups, triton.cdiv(b, BM), triton.cdiv(b, BN)),
        out, points.lines, points.lines.shape[1], rows, squares, signal, b,
        PROFILE=form.profile64, DIM=d, D=0 if doubles is None else rows.shape[1], BM=BM, BN=BN, num_warps=4,
    )  # fmt: skip
