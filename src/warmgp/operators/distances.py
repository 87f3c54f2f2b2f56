"""Euclidean distances between two sets of points, two ways.

|a − b|² = |a|² + |b|² − 2a·b is one matrix product and fast, but close pairs lose digits: its rounding error is about
ε(|a|² + |b|²) in the *square*. A kernel that is smooth at zero does not notice while that is far below the noise
variance; Matérn-1/2 does, because it sees the square root. ``exact=True`` subtracts first, so coincident points are at
distance exactly zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

FEW = 6
"""The most inputs for which a pass over memory per input is faster on a CPU than a reduction per pair."""


def distances(a: Tensor, b: Tensor, *, exact: bool, out: Tensor | None = None, work: Tensor | None = None) -> Tensor:
    """Returns |a_i − b_j|, (p, q), for a of (p, d) and b of (q, d).

    Centre the points before calling with ``exact=False``. ``out`` receives the result and ``work``, of the same shape,
    is overwritten, where given.
    """
    if out is None:
        out = a.new_empty(a.shape[0], b.shape[0])
    if not exact:
        square = torch.addmm(b.square().sum(1), a, b.T, alpha=-2.0, out=out)
        return square.add_(a.square().sum(1, keepdim=True)).clamp_min_(0.0).sqrt_()
    if a.device.type == "cpu" and a.shape[1] > FEW:
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    square = torch.sub(a[:, :1], b[:, 0], out=out).square_()
    for j in range(1, a.shape[1]):
        difference = torch.sub(a[:, j, None], b[:, j], out=work)
        square.addcmul_(difference, difference)
    return square.sqrt_()


def distances_within(z: Tensor, *, exact: bool) -> Tensor:
    """Returns |z_i − z_j| among the points of each group, (k, b, b), for z of (k, b, d) near zero.

    On a GPU, differences take a pass over memory per input: a reduction per pair takes 15 times as long in float64.
    """
    if not exact:
        squares = z.square().sum(2)
        r = (squares[:, :, None] + squares[:, None, :]).baddbmm_(z, z.mT, alpha=-2.0).clamp_min_(0.0).sqrt_()
        r.diagonal(dim1=1, dim2=2).zero_()
        return r
    if z.device.type == "cpu":
        return torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
    return _input_by_input(z)


def _input_by_input(z: Tensor) -> Tensor:
    """Returns what :func:`distances_within` does by differences, one input after the other."""
    square = z.new_zeros(*z.shape[:2], z.shape[1])
    work = torch.empty_like(square)
    for column in z.unbind(2):
        difference = torch.sub(column[:, :, None], column[:, None, :], out=work)
        square.addcmul_(difference, difference)
    return square.sqrt_()
