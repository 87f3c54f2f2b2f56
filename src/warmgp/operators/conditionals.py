"""How likely points are given near ones, and the gradient of that: the terms of a near-neighbour likelihood.

For a group of points with the covariance C = K + σ²I, the last one's log-density given the others is

    log p(y_t | y_N) = −½ s² + log u_t − ½ log 2π,      u = the last row of L⁻¹ (C = L Lᵀ),   s = uᵀy

because C⁻¹ is that of the others, in zeros, plus u uᵀ. With a = that of the others times y, in zeros, its derivative by
C is of rank two,

    G = ½ [s (a uᵀ + u aᵀ) + (s² − 1) u uᵀ],

and by θ it is Σ_ij G_ij ∂C_ij/∂θ, as for any quadratic form: no solve is longer than a group.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel

AT_ONCE = 2**24
"""Entries of groups that are held at once, in float64."""


def conditionals(x: Tensor, y: Tensor, groups: Tensor, kernel: Kernel, theta: Hyperparameters) -> tuple[Tensor, Tensor]:
    """Returns the log-density of the last point of each group given the others, (p,), and the gradient of their sum.

    Parameters
    ----------
    x, y : Tensor, (n, d), (n,)
        All points, in any dtype; the work is done in float64.
    groups : Tensor, (p, m + 1)
        The numbers of the points of each group, all different. The last one is that whose density is asked for.
    kernel : Kernel
    theta : Hyperparameters

    Returns
    -------
    densities : Tensor, (p,), float64
    gradient : Tensor, (2 + lengths,), float64 on the CPU, in the order of ``Hyperparameters.vector``

    Raises
    ------
    torch.linalg.LinAlgError
        Where points are so near beside so little noise that a group has no factor.
    """
    densities, gradient = [], torch.zeros(theta.vector.numel(), dtype=torch.float64)
    for some in groups.split(max(1, AT_ONCE // groups.shape[1] ** 2)):
        found, slope = _some(x, y, some, kernel, theta)
        densities.append(found)
        gradient += slope
    return torch.cat(densities), gradient


def _some(x: Tensor, y: Tensor, groups: Tensor, kernel: Kernel, theta: Hyperparameters) -> tuple[Tensor, Tensor]:
    """Returns what :func:`conditionals` does, for groups that fit the memory together."""
    lengths = theta.length_scales.to(x.device)
    signal, sigma = float(theta.signal_scale), float(theta.noise_scale)
    z = (x[groups].double() - x[groups[:, -1:]].double()) / lengths  # (p, m + 1, d), from the last point
    squares = z.square().sum(2)
    if kernel.smooth_at_zero:
        r = torch.baddbmm(squares[:, :, None] + squares[:, None, :], z, z.mT, alpha=-2.0).clamp_min_(0.0).sqrt_()
    else:
        r = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
    r.diagonal(dim1=1, dim2=2).zero_()
    k = kernel.profile(r)
    C = signal**2 * k
    C.diagonal(dim1=1, dim2=2).add_(sigma**2)
    L, info = torch.linalg.cholesky_ex(C)
    if bool(info.any()):
        raise torch.linalg.LinAlgError("the covariance of near points is not positive definite: raise noise_floor")
    Y = y[groups].double()[..., None]  # (p, m + 1, 1)
    last = torch.zeros_like(Y)
    last[:, -1] = 1.0
    u = torch.linalg.solve_triangular(L.mT, last, upper=True)  # the last row of L⁻¹, as a column
    s = (u * Y).sum(1)[:, 0]  # (p,)
    densities = -0.5 * s.square() + u[:, -1, 0].log() - 0.5 * math.log(2 * math.pi)
    a = torch.cholesky_solve(Y, L) - s[:, None, None] * u  # that of the others: zero at the last point
    h = s[:, None, None] * a + 0.5 * (s.square() - 1.0)[:, None, None] * u
    G = 0.5 * (h @ u.mT + u @ h.mT)
    trace = (h * u).sum()
    by_signal = (G * k).sum()
    W = G * kernel.length_weight(r)
    W.diagonal(dim1=1, dim2=2).zero_()
    rows = W.sum(2, keepdim=True)  # (p, m + 1, 1)
    by_input = 2.0 * ((rows * z.square()).sum((0, 1)) - (z * (W @ z)).sum((0, 1)))  # (d,)
    per_length = signal**2 * by_input.cpu()
    ell = theta.length_scales
    by_length = per_length / ell if ell.numel() == z.shape[2] else per_length.sum(0, keepdim=True) / ell
    ends = torch.stack([2.0 * sigma * trace, 2.0 * signal * by_signal]).cpu()
    return densities, torch.cat([ends, by_length])
