"""Variances from samples without their speckle: what near points say of the same samples is known exactly.

The deviation of a posterior sample from its mean is d = f* − k*ᵀẑ, of variance v, which is asked for. The prediction of
the same prior function from its targets b at the m nearest points alone is off by e = d + g with

    g = k*ᵀẑ − wᵀ b_N,        Var(e) = u, known exactly (:mod:`warmgp.operators.new_points`).

d is independent of all targets, and g is made of targets, so that u = v + Var(g): the mean squares q of d and p of g
over s samples are two independent estimates, v ≈ q and v ≈ u − p. The likelihood of both is greatest where

    (q − v) / v² = (p − (u − v)) / (u − v)²,

which lies between 0 and u, as the truth does. With t = v/u the std has the relative error

    1/√(2s) · (1 − t)/√((1 − t)² + t²),

nothing where near points tell all, and 1/√(2s), that of the samples alone, where they tell nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.indices import Index
from warmgp.operators.new_points import NearPoints
from warmgp.operators.row_noise import RowNoise

LEAST_NEAR, MOST_NEAR = 16, {True: 32, False: 64}
"""The fewest near points by which a new one is predicted, and the most, by whether inputs are few: then a ring of
neighbours or three hides all others."""

FEW_INPUTS = 3

COARSE = 0.05
"""The largest step of rounded targets, in units of the noise σ: it adds 0.02% to the variance of g."""

PLACES, FEWEST_DIGITS, NEWTON = 256, 6, 3
"""Places between 0 and ½ at which v/u is looked for, in equal ratios from so many digits below ½ on, and Newton's steps
between two of them: 40 short calls. With a bisection they were 95, a sixth of all calls of a prediction on a GPU."""

STEEP = -1e-6
"""The slope that Newton's steps take where there is none: they end at the next edge of the interval then."""


def near_count(n: int, d: int) -> int:
    """Returns how many near points a new one is predicted by: 0.35 √n, so that it costs less than all n points do."""
    return min(n, max(LEAST_NEAR, min(MOST_NEAR[d <= FEW_INPUTS], int(0.35 * n**0.5))))


@dataclass(frozen=True)
class Targets:
    """Holds what the samples were solved for, b_j = f_j(x) + ε_j, as multiples of a step far below the noise.

    Attributes
    ----------
    codes : Tensor, (n, s), int16 or int32
        Half of the memory of float32, or as much where there is very little noise.
    step : float
    """

    codes: Tensor
    step: float

    @classmethod
    def rounded(cls, targets: Tensor, noise_scale: float, largest: float | None = None) -> Targets:
        """Returns targets, (n, s), rounded to 16 bits where that is finer than the noise, otherwise to 32.

        ``largest`` is the largest size of a target, of all rows where these are some of them.
        """
        largest = float(targets.abs().max()) if largest is None else largest
        largest = max(largest, torch.finfo(torch.float32).tiny)
        fine = largest / torch.iinfo(torch.int16).max <= COARSE * noise_scale
        kind = torch.int16 if fine else torch.int32
        step = largest / (torch.iinfo(kind).max - 1)
        return cls((targets.double() / step).round_().to(kind), step)

    def to(self, device: torch.device | str) -> Targets:
        """Returns the same on ``device``."""
        return Targets(self.codes.to(device), self.step)

    def at(self, rows: Index) -> Targets:
        """Returns those of some rows."""
        return Targets(self.codes[rows], self.step)

    def values(self) -> Tensor:
        """Returns the targets, (n, s), in float64."""
        return self.codes.double() * self.step

    def weighted(self, groups: Tensor, weights: Tensor) -> Tensor:
        """Returns Σ_i weights_i b_i over each row of ``groups``, (b, s), for weights of (b, m)."""
        kind = torch.float32 if self.codes.dtype == torch.int16 else torch.float64
        scaled = (weights * self.step).to(kind)[:, None]
        return torch.bmm(scaled, self.codes[groups].to(kind))[:, 0]


@dataclass(frozen=True, eq=False)
class Control:
    """Estimates variances from samples, with their predictions from near points as control.

    Attributes
    ----------
    near : NearPoints
    targets : Targets
    """

    near: NearPoints
    targets: Targets

    @classmethod
    def of(
        cls, x: Tensor, kernel: Kernel, theta: Hyperparameters, targets: Targets, noise: RowNoise | None = None
    ) -> Control:
        """Returns the control of a posterior on the inputs x, (n, d), and the noise of their rows."""
        return cls(NearPoints(x, kernel, theta, near_count(*x.shape), noise), targets)

    def variance(self, x_new: Tensor, known: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the variances at new points, (b,), and the relative errors of their square roots, (b,), in float64.

        Parameters
        ----------
        x_new : Tensor, (b, d)
        known : Tensor, (b, s)
            What all data say of each sample, k*ᵀẑ_j.
        deviation : Tensor, (b, s)
            What they leave open, d_j.
        """
        near = self.near.predict(x_new)
        p = (known - self.targets.weighted(near.groups, near.weights)).double().square().mean(1)
        q, u = deviation.double().square().mean(1), near.variance
        share = most_likely_share(q / u, p / u)
        trusted = torch.isfinite(share)  # else by the samples alone
        return torch.where(trusted, share * u, q), std_error(torch.where(trusted, share, 0.0), deviation.shape[1])


def most_likely_share(q: Tensor, p: Tensor) -> Tensor:
    """Returns t = v/u in the shape of q and p, the mean squares of d and g in units of u; NaN where these are.

    It solves (q − t)(1 − t)² + (1 − t − p) t² = q (1 − t)² − p t² − t (1 − t)(1 − 2t) = 0. With q and p exchanged the
    solution is 1 − t, so that it is looked for between 0 and ½ with the less of the two in the place of q: the value is
    that at 0, and not positive at ½. A look at ``PLACES`` places, which is one product, finds an interval, and Newton's
    steps the solution in it: to 1e-6 of itself for q above 1e-6, to 1e-6 below, and to 1e-3 near q = p = ¼, where three
    solutions meet.
    """
    below, above, looks, beside = _places(q.device)
    q, p = q.double(), p.double()
    less, more = torch.minimum(q, p), torch.maximum(q, p)
    values = torch.stack([less, more], -1) @ looks + beside  # (…, places)
    positive = (values > 0).sum(-1).clamp_max_(PLACES - 1)
    low, high = below[positive], above[positive]
    a, minus_b, t = 3.0 + (less - more), -1.0 - 2.0 * less, 0.5 * (low + high)
    for _ in range(NEWTON):  # of ((a − 2t) t − b) t + q
        inner = torch.addcmul(minus_b, torch.sub(a, t, alpha=2.0), t)
        slope = torch.addcmul(inner, torch.sub(a, t, alpha=4.0), t)
        t = torch.clamp(t - torch.addcmul(less, inner, t) / slope.clamp_max(STEEP), low, high)
    t = torch.where(q > p, 1.0 - t, t)
    return torch.where(torch.isfinite(q + p), t, torch.nan)


@lru_cache(maxsize=16)
def _places(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the lower and upper ends of the intervals between the places at which values are looked at, what q and p
    are multiplied with there, (2, places), and what is beside them, (places,)."""
    above = 0.5 * torch.logspace(-FEWEST_DIGITS, 0.0, PLACES, dtype=torch.float64)
    below = torch.cat([torch.zeros(1, dtype=torch.float64), above[:-1]])
    looks = torch.stack([(1 - above).square(), -above.square()])
    parts = below, above, looks, -above * (1 - above) * (1 - 2 * above)
    return tuple(part.to(device) for part in parts)  # type: ignore[return-value]


def std_error(share: Tensor, n_samples: int) -> Tensor:
    """Returns the relative error of the std by chance, (b,), where near points leave v/t of which v is open."""
    rest = 1.0 - share
    return rest / (rest.square() + share.square()).sqrt() / math.sqrt(2 * n_samples)
