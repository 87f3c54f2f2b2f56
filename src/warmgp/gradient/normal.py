"""Standard normal numbers for the rows of a process, the same ones whatever the number of processes."""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.operators.indices import index_size
from warmgp.operators.part import Part

AT_ONCE = 2**22
"""Numbers that are drawn at once."""

WHOLE = 16
"""The numbers that torch draws together: chunks of a multiple of it have the bits of one large draw."""


def normal_rows(
    n: int, columns: int, here: slice, generator: torch.Generator, *, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Draws standard normal numbers of n rows, and returns those of the rows ``here``, (m, columns).

    They are drawn in float64 on the CPU, a chunk of rows at a time, to the bits of one draw of (n, columns): every
    process draws all of them, so that its generator goes on like that of the others.
    """
    own = torch.empty(index_size(here), columns, dtype=dtype, device=device)
    rows = max(WHOLE, AT_ONCE // max(1, columns) // WHOLE * WHOLE)
    start = 0
    while start < n:
        stop = n if n - start < rows + WHOLE else start + rows  # no last chunk of fewer numbers than go together
        drawn = torch.randn(stop - start, columns, dtype=torch.float64, generator=generator)
        low, high = max(start, here.start), min(stop, here.stop)
        if low < high:
            own[low - here.start : high - here.start] = drawn[low - start : high - start]
        start = stop
    return own


def normal_of(part: Part, columns: int, generator: torch.Generator) -> Tensor:
    """Draws such numbers for all rows of H; returns the own ones, (m, columns), on the device and in the dtype of H."""
    operator = part.operator
    return normal_rows(operator.n, columns, part.here, generator, dtype=operator.dtype, device=operator.device)
