"""The weights of kernel entries in Σ_c weights_c a_cᵀ H b_c, tile by tile."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from warmgp.operators.indices import index_size
from warmgp.operators.scratch import Scratch


def symmetric_tiles(
    A: Tensor, B: Tensor, weights: Tensor, scratch: Scratch, first: int = 0, second: int = 0
) -> Callable[[slice, slice], Tensor]:
    """Returns what gives G[rows, columns], G the symmetric part of A diag(weights) Bᵀ, in memory that is used again.

    A and B are (n, c). Their first row has the number ``first`` among rows, and ``second`` among columns.
    """
    left, right = A * weights.to(A), B
    if A is not B:  # G + Gᵀ as one product
        left, right = torch.cat([left, B], 1).div_(2), torch.cat([B, left], 1)

    def G(rows: slice, columns: slice) -> Tensor:
        tile = scratch.tile("G", index_size(rows), index_size(columns))
        its = right[columns.start - second : columns.stop - second]
        return torch.mm(left[rows.start - first : rows.stop - first], its.T, out=tile)

    return G
