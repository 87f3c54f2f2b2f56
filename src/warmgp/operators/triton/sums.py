"""The sums behind ∂/∂θ Σ_c weights_c a_cᵀ H b_c, by the Triton kernels of :mod:`warmgp.operators.triton.gradient`."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from warmgp.operators.indices import ranges
from warmgp.operators.triton import gradient as triton_gradient
from warmgp.operators.triton.launch import run_kernel
from warmgp.operators.triton.points import Points
from warmgp.operators.triton.split import Columns, Tile, largest_bits, scales, split, splits_for

TILE = 64
"""Rows of a tile."""


def gradient_sums(
    points: Points, profile: Any, A: Tensor, B: Tensor, weights: Tensor, cut: int | None = None
) -> tuple[Tensor, int]:
    """Returns [Σ_i G_ii, Σ_ij G k, Σ_ij G ω (z_i − z_j)² per input] for G = A diag(weights) Bᵀ, in float64 on the
    device, and how many kernel entries were evaluated.

    A and B are (n, c). ``profile`` is the kernel's ``FusedForm.profile_and_weight``; ω lacks its ``weight_factor`` and
    z is scaled by its ``alpha``. Inputs are in the order of ``points``. With ``cut``, a multiple of ``TILE``, the sums
    over pairs have only those of which one is before that row, and the other is not.
    """
    symmetric = A is B
    A, B, weights = A.contiguous(), B.contiguous(), weights.to(device=A.device, dtype=torch.float64)
    trace = torch.stack([(A[i].double() * B[i].double()).sum(0) for i in ranges(points.n, 2**18)]).sum(0) @ weights
    bits_a = largest_bits(A)
    bits_b = bits_a if symmetric else largest_bits(B)
    magnitude = weights / (scales(bits_a) * scales(bits_b))  # what the scaled columns have to be multiplied by
    largest = magnitude.abs().max().clamp_min(1e-300)
    d, padded = points.lines.shape
    left = split(A, bits_a, padded, gain=(magnitude / largest).float(), beside=False)
    right = split(B, bits_b, padded, beside=False)
    by_products = points.has_products and d > 8
    sums_of = _sums_by_products if by_products else _sums_by_differences
    parts = [sums_of(points, profile, a, b, symmetric, cut) for a, b in zip(left, right, strict=True)]
    entries = len(parts) * _entries(points.n, cut, twice=by_products)
    return torch.cat([trace[None], torch.stack(parts).sum(0) * largest]), entries


def _entries(n: int, cut: int | None, *, twice: bool) -> int:
    """Returns the kernel entries that sums over pairs of n points take, of which each is evaluated once or twice."""
    if cut is not None:
        return (1 + twice) * cut * (n - cut)
    return n**2 if twice else n * (n + 1) // 2


def _sums_by_differences(
    points: Points, profile: Any, left: Columns, right: Columns, symmetric: bool, cut: int | None
) -> Tensor:
    """Returns [Σ G k, Σ G ω (z_i − z_j)² per input] of one group of columns in float64, from half of the tiles."""
    n, d, BM = points.n, points.lines.shape[0], TILE
    n_tiles, begin = triton.cdiv(n, BM), 0 if cut is None else cut // BM
    row_tiles = begin or n_tiles
    splits = splits_for(row_tiles if begin else triton.cdiv(n_tiles, 2), n_tiles - begin)
    out = torch.zeros(row_tiles, splits, 1 + d, device=points.lines.device)
    run_kernel(
        triton_gradient.gradient, (row_tiles, splits),
        points.row_high, points.row_low, points.column_high, points.column_low,
        points.lines, points.lines.shape[1],
        left.high, left.low, left.single, right.high, right.low, right.single,
        out, n, n_tiles, splits, begin,
        PROFILE=profile, **points.distances, DIM=d,
        S=left.size, PLAIN=left.plain, SYMMETRIC=symmetric, BM=BM, num_warps=4,
    )  # fmt: skip
    return out.sum((0, 1), dtype=torch.float64)


def _sums_by_products(
    points: Points, profile: Any, left: Columns, right: Columns, symmetric: bool, cut: int | None
) -> Tensor:
    """Returns these sums from all tiles: Σ_j G ω [z_j, 1] on the tensor core, but for inputs that are differenced."""
    n = points.n
    if cut is None:
        return _sums_of_rows(points, profile, left, right, symmetric, (0, n), (0, n))
    return sum(
        (
            _sums_of_rows(points, profile, left, right, symmetric, rows, columns)
            for rows, columns in (((0, cut), (cut, n)), ((cut, n), (0, cut)))
        ),
        start=torch.zeros((), dtype=torch.float64, device=points.lines.device),
    )


def _sums_of_rows(
    points: Points,
    profile: Any,
    left: Columns,
    right: Columns,
    symmetric: bool,
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> Tensor:
    """Returns the sums by products over pairs of these rows and these columns, as if their transposes came, too."""
    n, device, D = points.n, points.lines.device, points.row_high.shape[1]
    count, width = rows[1] - rows[0], columns[1] - columns[0]
    tile = Tile(TILE, 64, 4, 2) if D <= 64 else Tile(TILE, 32, 4, 1)  # in 99 KiB of shared memory
    d, differenced = points.lines.shape[0] - points.differenced, points.differenced
    slots = triton.next_power_of_2(max(1, differenced))
    row_tiles = triton.cdiv(count, tile.rows)
    splits = splits_for(row_tiles, triton.cdiv(width, tile.columns))
    per_split = triton.cdiv(triton.cdiv(width, splits), tile.columns) * tile.columns
    splits = triton.cdiv(width, per_split)
    signal = torch.zeros(splits, n, device=device)
    out = torch.zeros(splits, n, D, device=device)
    by_difference = torch.zeros(splits, n, slots, device=device)
    run_kernel(
        triton_gradient.gradient_rows, (row_tiles, splits),
        points.row_high, points.row_low, points.column_high, points.column_low,
        points.lines, points.lines.shape[1],
        left.high, left.low, left.single, right.high, right.low, right.single, signal, out, by_difference,
        n, per_split, rows[0], *columns,
        PROFILE=profile, **points.distances, SLOTS=slots, S=left.size, PLAIN=left.plain,
        SYMMETRIC=symmetric,
        BM=tile.rows, BN=tile.columns, STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    W = out.sum(0, dtype=torch.float64) * 2.0**11  # (n, D): [Wz, W1, …]
    z = (points.column_high[:n, :d].float() + points.column_low[:n, :d].float()).double()
    lengths = 2.0 * (z * (z * W[:, d : d + 1] - W[:, :d])).sum(0)
    first = by_difference.sum((0, 1), dtype=torch.float64)[:differenced]
    sums = torch.cat([signal.sum(dtype=torch.float64)[None], first, lengths])
    return sums if symmetric else 0.5 * sums
