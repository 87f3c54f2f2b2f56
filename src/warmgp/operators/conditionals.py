"""How likely points are given near ones, and the gradient of that: the terms of a near-neighbour likelihood.

For a group of points with the covariance C = K + σ²I, the log-density of its last t points given the others is

    log p(y_T | y_N) = −½ |s|² + Σ log U_tt − ½ t log 2π,      U = the last t rows of L⁻¹ (C = L Lᵀ),   s = U y

because C⁻¹ is that of the others, in zeros, plus Uᵀ U. With a = that of the others times y, in zeros, its derivative by
C is

    G = ½ [a (Uᵀs)ᵀ + (Uᵀs) aᵀ + (Uᵀs)(Uᵀs)ᵀ − Uᵀ U],

and by θ it is Σ_ij G_ij ∂C_ij/∂θ, as for any quadratic form: no solve is longer than a group.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.distances import distances_within
from warmgp.operators.row_noise import RowNoise, rows_at

AT_ONCE = {True: 2**19, False: 2**24}
"""Entries of groups that are held at once, in float64, by whether that is on a CPU, whose caches should hold them."""


def conditionals(
    x: Tensor,
    y: Tensor,
    groups: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    last: int = 1,
    noise: RowNoise | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the log-density of the last points of each group given the others, (p,), and the gradient of their sum.

    Parameters
    ----------
    x, y : Tensor, (n, d), (n,)
        All points, in any dtype; the work is done in float64. With several targets y is (n, q), and their densities
        are added up.
    groups : Tensor, (p, g)
        The numbers of the points of each group, all different.
    kernel : Kernel
    theta : Hyperparameters
    last : int
        How many points at the end of a group are those whose density is asked for, t; g for all of them.
    noise : RowNoise, optional
        What the noise of each of the n points is made of; by default it is σ² for all.

    Returns
    -------
    densities : Tensor, (p,), float64
        One for each group, of its t points together.
    gradient : Tensor, (2 + lengths,), float64 on the CPU, in the order of ``Hyperparameters.vector``

    Raises
    ------
    torch.linalg.LinAlgError
        Where points are so near beside so little noise that a group has no factor.
    """
    densities, gradient = [], torch.zeros(theta.vector.numel(), dtype=torch.float64)
    for some in groups.split(max(1, AT_ONCE[groups.device.type == "cpu"] // groups.shape[1] ** 2)):
        found, slope = _some(x, y, some, kernel, theta, last, rows_at(noise, some))
        densities.append(found)
        gradient += slope
    return torch.cat(densities), gradient


def conditional_densities(
    x: Tensor,
    y: Tensor,
    groups: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    last: int = 1,
    noise: RowNoise | None = None,
) -> Tensor:
    """Returns the densities of :func:`conditionals` without their gradient, (p,), for a third of its operations."""
    densities = []
    for some in groups.split(max(1, AT_ONCE[groups.device.type == "cpu"] // groups.shape[1] ** 2)):
        *_, L, Y = _factored(x, y, some, kernel, theta, rows_at(noise, some))
        densities.append(_density(L, torch.linalg.solve_triangular(L, Y, upper=False)[:, -last:], last))
    return torch.cat(densities)


def _factored(
    x: Tensor, y: Tensor, groups: Tensor, kernel: Kernel, theta: Hyperparameters, noise: RowNoise | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns of groups that fit the memory together, with the noise of their points, (p, g): the points z in units of
    the length scales, from the last one, (p, g, d), their distances and profiles, the factor of C, (p, g, g) each, and
    the targets, (p, g, q)."""
    z = (x[groups].double() - x[groups[:, -1:]].double()) / theta.length_scales.to(x.device)
    r = distances_within(z, exact=not kernel.smooth_at_zero)
    k = kernel.profile(r)
    C = float(theta.signal_scale) ** 2 * k
    C.diagonal(dim1=1, dim2=2).add_(float(theta.noise_scale) ** 2 if noise is None else noise.variances(theta))
    L, info = torch.linalg.cholesky_ex(C)
    if bool(info.any()):
        raise torch.linalg.LinAlgError("the covariance of near points is not positive definite: raise noise_floor")
    Y = y[groups].double()
    return z, r, k, L, Y[..., None] if y.ndim == 1 else Y


def _some(
    x: Tensor, y: Tensor, groups: Tensor, kernel: Kernel, theta: Hyperparameters, last: int, noise: RowNoise | None
) -> tuple[Tensor, Tensor]:
    """Returns what :func:`conditionals` does, for groups that fit the memory together, with the noise of their points,
    (p, g)."""
    signal, sigma = float(theta.signal_scale), float(theta.noise_scale)
    z, r, k, L, Y = _factored(x, y, groups, kernel, theta, noise)
    densities, G = (_all_of if last == groups.shape[1] else _last_of)(L, Y, last)
    own = G.diagonal(dim1=1, dim2=2)
    trace = own.sum() if noise is None else (own * noise.shares).sum()
    by_signal = (G * k).sum()
    W = G * kernel.length_weight(r)
    W.diagonal(dim1=1, dim2=2).zero_()
    rows = W.sum(2, keepdim=True)  # (p, g, 1)
    by_input = 2.0 * ((rows * z.square()).sum((0, 1)) - (z * (W @ z)).sum((0, 1)))  # (d,)
    per_length = signal**2 * by_input.cpu()
    ell = theta.length_scales
    by_length = per_length / ell if ell.numel() == z.shape[2] else per_length.sum(0, keepdim=True) / ell
    first = torch.stack([2.0 * sigma * trace, 2.0 * signal * by_signal]).cpu()
    return densities, torch.cat([first, by_length])


def _last_of(L: Tensor, Y: Tensor, last: int) -> tuple[Tensor, Tensor]:
    """Returns the log-density of the last points of each group given the others, (p,), and its derivative G, (p, g, g).

    L is the factor of each C, (p, g, g), and Y the targets, (p, g, q).
    """
    ends = torch.zeros(L.shape[1], last, dtype=Y.dtype, device=Y.device)
    ends[-last:] = torch.eye(last, dtype=Y.dtype, device=Y.device)
    Ut = torch.linalg.solve_triangular(L.mT, ends.expand(len(L), -1, -1), upper=True)  # (p, g, t)
    s = Ut.mT @ Y  # (p, t, q)
    w = Ut @ s  # (p, g, q)
    a = torch.cholesky_solve(Y, L) - w  # that of the others: zero at the last points
    h = a + 0.5 * w
    hw = h @ w.mT
    G = torch.baddbmm(0.5 * (hw + hw.mT), Ut, Ut.mT, alpha=-0.5 * Y.shape[2])
    return _density(L, s, last), G


def _all_of(L: Tensor, Y: Tensor, last: int) -> tuple[Tensor, Tensor]:
    """Returns the same where all points are asked for, in a third of the operations: G = ½ (C⁻¹y yᵀC⁻¹ − C⁻¹)."""
    inverse = torch.cholesky_inverse(L)
    w = inverse @ Y
    half = torch.linalg.solve_triangular(L, Y, upper=False)
    return _density(L, half, last), torch.baddbmm(inverse, w, w.mT, beta=-0.5 * Y.shape[2], alpha=0.5)


def _density(L: Tensor, s: Tensor, last: int) -> Tensor:
    """Returns −½ |s|² − q (Σ log L_tt + ½ t log 2π), over the last t points and s (p, t, q), (p,)."""
    log_det = L.diagonal(dim1=1, dim2=2)[:, -last:].log().sum(1)
    q = s.shape[2]
    return -0.5 * s.square().sum((1, 2)) - q * log_det - 0.5 * q * last * math.log(2 * math.pi)
