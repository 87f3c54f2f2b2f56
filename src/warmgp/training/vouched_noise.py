"""The least noise that more than a few rows vouch for.

Rows that are there twice, (x, y) and all, are common in tables. Each such pair adds a nat to the likelihood for every
factor of e that σ falls, whatever the function, and no other row may object: under a rough kernel, what near rows do
not share may as well be the function's as noise. One pair among 2,000 rows is enough for σ at its floor; and a new row
that contradicts it is 3,500 standard deviations off, though for all others it makes no difference.

How far all other rows leave row i unknown is what 1/(H⁻¹)_ii = Var(y_i | y_others) says, noise included. It is tiny for
a row that has a copy, and for every row of a function without noise that is dense in data. So σ is held to be at least
``SHARE`` of what the best known tenth of all rows are known to: data without noise stay without if more than a tenth of
the rows say so, and a few copies do not count. To the variance of rows that are known no better it adds 4% at most.
"""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.operators.row_noise import RowNoise

BEST_KNOWN = 0.1
"""The share of rows, the best known ones, that have to vouch for little noise."""

SHARE = 0.2
"""The least noise, as a share of the standard deviation to which the last of those is known (what was tried is in
`benchmarks/results/README.md`, "Rows that are there twice")."""


def own_roots(samples: Tensor) -> Tensor:
    """Returns the roots of (H⁻¹)_ii, (n, 1): root mean squares of the solutions of samples, (n, s), right within
    √(1/2s)."""
    return torch.linalg.vector_norm(samples, dim=1, keepdim=True).double() / samples.shape[1] ** 0.5


def least_noise(roots: Tensor, noise: RowNoise | None, share: float) -> float:
    """Returns the least σ that is vouched for, as a share of what the best known rows are known to, by the roots of
    (H⁻¹)_ii of all rows, (n, 1); 0 where errors of rows are known beside it.

    Of rows with a weight w_i, whose noise is σ²/w_i, what counts is their own standard deviation times √w_i.
    """
    if noise is not None:
        if bool(noise.known.any()):
            return 0.0
        roots = roots * noise.shares.to(roots.device).reshape(-1, 1).sqrt()
    n = len(roots)
    largest = float(roots[:, 0].kthvalue(max(1, n - int(BEST_KNOWN * n))).values)  # but for those of the best known
    return share / largest if largest > 0 else 0.0
