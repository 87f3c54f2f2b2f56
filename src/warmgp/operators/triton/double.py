"""Products in float64: the tensor core multiplies such numbers as they are, so that nothing is split."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from warmgp.operators.triton import products as triton_products
from warmgp.operators.triton.launch import run_kernel
from warmgp.operators.triton.points import Points
from warmgp.operators.triton.split import groups64, splits_for, stages64


def product_in_float64(V: Tensor, mine: Points, its: Points, first: Tensor | None, profile: Any) -> Tensor:
    """Returns k(mine, its) V, of all of ``its``, or of as many as V has rows from ``first`` on."""
    m, (b, c) = mine.n, V.shape
    BM, BN = 64, 16
    row_tiles = triton.cdiv(m, BM)
    per_split = triton.cdiv(triton.cdiv(b, splits_for(row_tiles, triton.cdiv(b, BN))), BN) * BN
    splits = triton.cdiv(b, per_split)
    result = torch.empty(m, c, device=V.device, dtype=torch.float64)
    start = torch.zeros(1, dtype=torch.int64, device=V.device) if first is None else first
    own, other = mine.doubles, its.doubles
    if own is None or other is None:
        D, doubles = 0, (mine.lines,) * 4  # which nobody reads
    else:
        D, doubles = own.rows.shape[1], (own.rows, other.rows, own.squares, other.squares)
    for begin, size, more in groups64(c):
        group = V[:, begin : begin + size + more]
        padded = V.new_zeros(triton.cdiv(b, BN) * BN, size + more)
        padded[:b, : group.shape[1]] = group
        out = torch.empty(splits, m, size + more, device=V.device, dtype=torch.float64)
        run_kernel(
            triton_products.product64, (row_tiles, splits),
            mine.lines, its.lines, mine.lines.shape[1], its.lines.shape[1], *doubles, padded,
            start, out, m, its.n - 1, b, per_split, size + more,
            SHIFTED=first is not None, PROFILE=profile, DIM=len(mine.lines), D=D, S=size, MORE=more, BM=BM, BN=BN,
            num_warps=4, num_stages=stages64(D),
        )  # fmt: skip
        torch.sum(out[:, :, : group.shape[1]], 0, out=result[:, begin : begin + group.shape[1]])
    return result
