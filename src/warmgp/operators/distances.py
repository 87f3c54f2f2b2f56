"""Euclidean distances between two sets of points, two ways.

|a − b|² = |a|² + |b|² − 2a·b is one matrix product and fast, but close pairs lose digits: its rounding error is about
ε(|a|² + |b|²) in the *square*. A kernel that is smooth at zero does not notice while that is far below the noise
variance; Matérn-1/2 does, because it sees the square root. ``exact=True`` subtracts first, so coincident points are at
distance exactly zero.
"""

from __future__ import annotations

import torch
from torch import Tensor


def distances(a: Tensor, b: Tensor, *, exact: bool) -> Tensor:
    """|a_i − b_j| for a of (p, d) and b of (q, d); (p, q).

    Centre the points before calling with ``exact=False``.
    """
    if exact:
        if a.device.type == "cpu":
            return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
        square = (a[:, :1] - b[:, 0]).square_()  # on GPUs one pass per input beats cdist's reduction per pair
        for j in range(1, a.shape[1]):
            difference = a[:, j, None] - b[:, j]
            square.addcmul_(difference, difference)
        return square.sqrt_()
    square = torch.addmm(b.square().sum(1), a, b.T, alpha=-2.0)
    return square.add_(a.square().sum(1, keepdim=True)).clamp_min_(0.0).sqrt_()
