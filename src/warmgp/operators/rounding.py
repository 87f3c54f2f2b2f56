"""What products in float32 can resolve: the residual that rounding leaves, beside the noise.

Every entry that a product is made of is rounded, to about 10⁻⁷ of its size e · signal², and a product with v, whose
entries are of the order 1/σ, adds n of these errors up at random. What is left of a residual is then about

    1e-7 · e signal² √n / σ        (targets of unit variance)

however many iterations there are, with 1e-7 / 2²⁹ in float64. The entries are k, and e = 1; or 1 − k, where that is
small and an operator has it (``KernelOperator.entry_size``). A residual in float64 and one more solve for it take the
rest away (:mod:`warmgp.training.refinement`), as long as that is less than the noise.
"""

from __future__ import annotations

import torch

ROUNDING = 1e-7
"""Seen with 500,000 points of houseelectric: 0.3 to 0.5 σ left at a signal of 75 σ, 0.05 to 0.13 σ at 30 and 36 σ;
with differences for distances as with products."""


RESOLVED = 0.05
"""What rounding may leave of a product with a solution, in units of the noise, before predictions are by float64: as
much as is promised of the mean."""


def rounding(ratio: float, n: int, size: float = 1.0) -> float:
    """Returns what rounding in float32 leaves of a residual of n points, in units of the noise: ``ratio`` is how many
    times the noise the signal is, ``size`` the mean size e of what products are made of."""
    return ROUNDING * size * ratio**2 * n**0.5


def resolved_ratio(n: int, share: float, dtype: torch.dtype = torch.float32) -> float:
    """Returns how many times the noise the signal may be, so that rounding leaves at most ``share`` of the noise."""
    finer = torch.finfo(torch.float32).eps / torch.finfo(dtype).eps
    return (finer * share / (ROUNDING * n**0.5)) ** 0.5
