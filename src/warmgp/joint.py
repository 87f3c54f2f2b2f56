"""The covariance of a few new points together, from samples and near points, with a gradient in the points.

For a block of q points let d_j be what the data leave open of each prior function (q numbers for each of s functions),
U the exact covariance of the block given near points alone, u its diagonal, and v the variances from both
(:mod:`warmgp.control`). With t = v/u, the share of u that the data further away leave, the covariance is

    v_i^½ v_l^½ (a_i a_l corr(U)_il + b_i b_l corr(d)_il),      a = 1/√(1 + s(1 − t)²),      b² = 1 − a².

It is positive semi-definite: either part is a product, entry by entry, of two matrices that are. Its diagonal is v.
Correlations of samples have an error by chance of (1 − ρ²)/√s, and those of near points one of the order of 1 − t,
since points further away are left out: the weights are those of the two squared errors. Where near points tell all,
t = 1, the covariance is exact.

A search by gradients needs values without jumps, and the choice of near points, by rank, jumps. u = v + Var(g) holds
for any weights of near targets, so that near points may fade instead: each has noise D beside its own, which grows
without bounds where its squared distance nears the mean of those of all near points. There are twice as many then, and
whoever is the last of them by rank has long faded. With C the covariance of near targets and k that of them and the
block,

    w = (C + D)⁻¹ k,        U = k_** − kᵀw − wᵀD w.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from warmgp.control import Targets, most_likely_share, near_count
from warmgp.operators.new_points import LEAST, NearPoints
from warmgp.operators.row_noise import Noise
from warmgp.operators.slopes import check_first, entries

FADING = 4
"""The power of squared distances, as shares of their mean, by which near points fade."""

GONE = 1e-5
"""The least share of a near point that is left: beyond, its noise grows no more."""

MORE_NEAR, MOST = 3, 256
"""How many times the near points of a single new point a block of several has, at most; and the most near points."""

FLATTEST = -1e-3
"""The flattest slope of the equation for t that is divided by: where it is flatter still, t could be anything."""


class _Share(torch.autograd.Function):
    """Finds t = v/u, with the slope that the equation for it implies."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, p: Tensor) -> Tensor:
        """Returns t, as :func:`warmgp.control.most_likely_share` does."""
        t = most_likely_share(q, p)
        ctx.save_for_backward(q, p, t)
        return t

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the slopes in q and in p: of F = (q − t)(1 − t)² + (1 − t − p)t² = 0 they are −F_q/F_t, −F_p/F_t."""
        check_first()
        q, p, t = ctx.saved_tensors
        over = weights / _slope_in_share(q, p, t)
        return -over * (1.0 - t).square(), over * t.square()


def _slope_in_share(q: Tensor, p: Tensor, t: Tensor) -> Tensor:
    """Returns F_t, which is negative where F crosses zero, at most ``FLATTEST``."""
    rest = 1.0 - t
    F_t = -rest.square() - 2 * (q - t) * rest - t.square() + 2 * (rest - p) * t
    return F_t.clamp_max(FLATTEST)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Estimates covariances of blocks of new points, with near points as control.

    Attributes
    ----------
    z : Tensor, (n, d), float64
        Training inputs in units of the length scales.
    near : NearPoints
        Which of them are near.
    targets : Targets
        What the samples were solved for.
    fading : bool
        Whether near points fade, so that covariances are continuous; else variances are those of the control.
    """

    z: Tensor
    near: NearPoints
    targets: Targets
    fading: bool

    def count(self, q: int) -> int:
        """Returns how many near points a block of q points has."""
        return min(len(self.z), MOST, near_count(*self.z.shape) * min(q, MORE_NEAR) * (1 + self.fading))

    def covariance(self, x: Tensor, z: Tensor, known: Tensor, deviation: Tensor) -> Tensor:
        """Returns the latent covariances, (b, q, q).

        Parameters
        ----------
        x, z : Tensor, (b, q, d)
            New points, and the same in units of the length scales.
        known, deviation : Tensor, (b, q, s)
            What all data say of each sample, and what they leave open.
        """
        groups = self.near.nearest_to_blocks(x.detach(), self.count(x.shape[1]))
        U, weights, good = self._given(z, groups)
        u = U.diagonal(dim1=1, dim2=2)
        good = good[:, None] & (u > LEAST * self._signal)
        u = torch.where(good, u, self._signal)
        codes = self.targets.codes[groups].double() * self.targets.step  # (b, M, s)
        p = (known - weights @ codes).square().mean(2)
        q = deviation.square().mean(2)
        t = _Share.apply(q / u, torch.where(good, p / u, 0.0))
        t = torch.where(good, t, 0.0)
        v = torch.where(good, t * u, q)
        far = deviation.shape[2] ** 0.5 * (1.0 - t)
        a = torch.where(good, 1.0 / (1.0 + far.square()).sqrt(), 0.0)
        b = torch.where(good, far / (1.0 + far.square()).sqrt(), 1.0)
        root = (a / u.sqrt())[..., None]
        return scaled(root * U * root.mT, b, deviation, v, LEAST * self._signal)

    @cached_property
    def _signal(self) -> float:
        """The variance of the prior."""
        return float(self.near.theta.signal_scale) ** 2

    def _given(self, z: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns U, (b, q, q), the weights of near targets, (b, q, M), and whether rounding left any sense, (b,)."""
        kernel, signal, near = self.near.kernel, self._signal, self.z[groups]
        own = Noise(self.near.theta, self.near.noise).at(groups)
        more = own * self._faded(z, near)  # (b, M)
        C = signal * entries(near, near, kernel)
        L, info = torch.linalg.cholesky_ex(C + torch.diag_embed(own + more))
        L = torch.where((info == 0)[:, None, None], L, torch.eye(L.shape[1], dtype=L.dtype, device=L.device))
        half = torch.linalg.solve_triangular(L, signal * entries(near, z, kernel), upper=False)  # (b, M, q)
        weights = torch.linalg.solve_triangular(L.mT, half, upper=True).mT
        U = signal * entries(z, z, kernel) - half.mT @ half - (weights * more[:, None]) @ weights.mT
        return U, weights, info == 0

    def _faded(self, z: Tensor, near: Tensor) -> Tensor:
        """Returns the noise of near points, (b, M), that makes them fade, in units of their own."""
        if not self.fading or near.shape[1] == len(self.z):
            return near.new_zeros(near.shape[:2])
        square = (near[:, :, None] - z[:, None]).square().sum(3).amin(2)  # to the nearest of the block
        share = square / square.mean(1, keepdim=True).clamp_min(torch.finfo(square.dtype).tiny)
        return (1.0 - share.clamp_max(1.0) ** FADING).clamp_min(GONE) ** -2 - 1.0


def scaled(given: Tensor | float, b: Tensor | float, deviation: Tensor, variance: Tensor, least: float) -> Tensor:
    """Returns covariances, (…, q, q), with these variances, (…, q), at least ``least``, on the diagonal.

    The correlations are ``given``, which has 1 − b² on its diagonal, and those of deviations, (…, q, s), times b b.
    """
    size = torch.linalg.vector_norm(deviation, dim=-1).clamp_min(torch.finfo(deviation.dtype).tiny)
    unit = deviation * (b / size)[..., None]
    root = variance.clamp_min(least).sqrt()[..., None]
    return root * (given + unit @ unit.mT) * root.mT
