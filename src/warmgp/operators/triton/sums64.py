"""The sums behind ∂/∂θ Σ_c weights_c a_cᵀ H b_c in float64, by the Triton kernel ``gradient_rows64``.

Float64 is for a signal so large beside the noise that v and K nearly cancel in vᵀ K v.

A pair of points takes 2d + 2c + 2(d + 1) + 40 operations with d inputs and c columns (distance, G, G ω times [z, 1],
profile), and writes nothing; the torch path writes tiles to memory, and takes 60 ps a pair on an H200 whatever d is.
`benchmarks/results/README.md` has what was measured.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from warmgp.operators.indices import ranges
from warmgp.operators.triton import gradient as triton_gradient
from warmgp.operators.triton.launch import run_kernel
from warmgp.operators.triton.points import Points
from warmgp.operators.triton.split import groups64, splits_for, stages64

ROWS, COLUMNS, WARPS = 64, 16, 4
"""Rows and columns of a tile, and warps of a program; half of the rows with more than 32 inputs: 99 KiB of shared
memory hold no more."""

MOST_INPUTS = 63
"""Inputs whose sums are made in one pass, with a column of ones beside them: more do not fit the registers."""


def gradient_sums64(
    points: Points, profile: Any, A: Tensor, B: Tensor, weights: Tensor, cut: int | None = None
) -> tuple[Tensor, int]:
    """Returns what :func:`warmgp.operators.triton.sums.gradient_sums` does, from points and columns in float64.

    ``profile`` is the kernel's ``FusedForm.profile_and_weight64``.
    """
    n, weights = points.n, weights.to(device=A.device, dtype=torch.float64)
    trace = (A * B).sum(0) @ weights
    left, right = A * weights, B
    if A is not B:  # (G + Gᵀ)/2 has the same sums, and is symmetric
        left, right = torch.cat([0.5 * left, 0.5 * B * weights], 1), torch.cat([B, A], 1)
    d, padded = points.lines.shape
    areas = [((0, n), (0, n))] if cut is None else [((0, cut), (cut, n)), ((cut, n), (0, cut))]
    sums, entries = torch.zeros(1 + d, dtype=torch.float64, device=A.device), 0
    for first, size, more in groups64(left.shape[1]):
        L, R = (_padded(V[:, first : first + size + more], padded, size + more) for V in (left, right))
        for inputs in ranges(d, MOST_INPUTS):
            for rows, columns in areas:
                signal, lengths = _sums_of_rows(points, profile, L, R, (size, more), inputs, rows, columns)
                sums[1 + inputs.start : 1 + inputs.stop] += lengths
                if inputs.start == 0:
                    sums[0] += signal
                entries += (rows[1] - rows[0]) * (columns[1] - columns[0])
    return torch.cat([trace[None], sums]), entries


def _padded(V: Tensor, rows: int, width: int) -> Tensor:
    """Returns V with zeros below and beside it."""
    out = V.new_zeros(rows, width)
    out[: V.shape[0], : V.shape[1]] = V
    return out


def _sums_of_rows(
    points: Points,
    profile: Any,
    L: Tensor,
    R: Tensor,
    sizes: tuple[int, int],
    inputs: slice,
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> tuple[Tensor, Tensor]:
    """Returns Σ G k and Σ G ω (z_i − z_j)² for each of these inputs, of pairs of these rows and these columns; the
    latter as if their transposes came, too: 2 Σ_i z_i (z_i (W1)_i − (Wz)_i) with W = G ω."""
    device = points.lines.device
    (total, padded), count, width = points.lines.shape, rows[1] - rows[0], columns[1] - columns[0]
    z = points.lines[inputs].T  # (padded, d of this pass)
    d = z.shape[1]
    Q = max(16, triton.next_power_of_2(d + 1))
    Z = z.new_zeros(padded, Q)
    Z[:, :d], Z[:, d] = z, 1.0
    by = points.doubles
    D, doubles = (0, (Z, Z)) if by is None else (by.rows.shape[1], (by.rows, by.squares))
    BM, stages = ROWS if D <= 32 else ROWS // 2, stages64(D)
    row_tiles = triton.cdiv(count, BM)
    per_split = triton.cdiv(triton.cdiv(width, splits_for(row_tiles, triton.cdiv(width, COLUMNS))), COLUMNS) * COLUMNS
    splits = triton.cdiv(width, per_split)
    signal = torch.empty(splits, count, device=device, dtype=torch.float64)
    out = torch.empty(splits, count, Q, device=device, dtype=torch.float64)
    run_kernel(
        triton_gradient.gradient_rows64, (row_tiles, splits),
        points.lines, padded, *doubles, Z, L, R, signal, out, count, per_split, rows[0], *columns,
        PROFILE=profile, DIM=total, D=D, Q=Q, S=sizes[0], MORE=sizes[1], BM=BM, BN=COLUMNS, num_warps=WARPS,
        num_stages=stages,
    )  # fmt: skip
    W, z = out.sum(0), z[slice(*rows)]  # (count, Q): [Wz, W1, …]
    return signal.sum(), 2.0 * (z * (z * W[:, d : d + 1] - W[:, :d])).sum(0)
