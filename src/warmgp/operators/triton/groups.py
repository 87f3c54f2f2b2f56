"""Columns of H in groups of near points, each of which has distances from its own centre."""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.operators.near_order import even_ends, near_order

LEAST, MOST = 4096, 64
"""The least points of a group, and the most groups: each costs launches."""

ADDED_UP, ALLOWED = 2e-8, 0.01
"""What distances by products from one centre add up to in a sum over n points is about ``ADDED_UP`` |z|² (s/σ)² √n
noise scales; above ``ALLOWED`` there are groups. Seen on an H200: 0.06 on 322,346 rows of flights, where distances by
differences leave 0.004."""


def near_groups(z: Tensor, multiplied: Tensor, ratio: float) -> tuple[Tensor, ...]:
    """Returns the numbers of points z = x/ℓ, (n, d), in groups of near ones; no groups where one centre is good enough
    for all: for so few points, for z² of ``multiplied`` inputs and a signal variance of ``ratio`` noise variances."""
    n = len(z)
    spread = float(multiplied.square().sum(1).mean())
    if n < 2 * LEAST or ADDED_UP * spread * ratio * n**0.5 <= ALLOWED:
        return ()
    ends = even_ends(n, min(MOST, n // LEAST))
    return near_order(z, ends, torch.Generator().manual_seed(0)).tensor_split(ends[:-1])
