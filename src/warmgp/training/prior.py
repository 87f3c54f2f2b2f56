"""What is thought of hyperparameters before few data are seen: a weak prior, for climbs of the likelihood.

Where length scales are many beside the points, the top of the likelihood lies too far: inputs that do not matter come
to explain the noise one by one, others that do matter are given up for good, and error bars end far too small. Two
things are thought of beforehand, both of standardised data, and neither for sure:

* the slope of the function along an input, s/ℓ for a signal s, is of the size of σ/(1.5√d), with which all inputs
  together explain half as much as the noise does, and may be any number of times as large or as small:
  p(log ℓ) ∝ r^0.2 / (1 + r²)^0.6 with r = 1.5√d s/(ℓσ). Its tails are so heavy that to take an input in costs a nat
  for each factor of e, and to leave it out a fifth of one. A slope has to show beside the noise: an input that does
  not matter adds little to σ² then, however small that is, and each one that does matter asks for noise, as a
  coefficient takes a degree of freedom from residuals. Of the ratio s/ℓ alone something is thought, because a straight
  line tells no more: inputs that do not matter would keep the signal small;
* there is noise: every length scale that is fitted may have explained as much as one residual of 0.1. With m² the sum
  of their squares, p(log σ) ∝ (1 + (m²/kσ²)²)^(−k/4), for k = n/3: σ comes out as m/√n or so where points agree with
  each other by chance, or because they are copies, as it likes where it is larger, and as small as it likes where more
  than a third of all points say so.

Both count less the more points there are for a length scale: the first one half with 20 of them and not at all from 100
on, the second one not at all from 25 on, because functions without noise have to be found then.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.row_noise import RowNoise

ENOUGH, NO_CHANCE = 100, 25
"""Points for a length scale from which on they need no prior, and from which on none for noise: so many do not agree by
chance. With noise thought of up to 100 as well, 500 rows of *bike* lost 0.2 nats."""

USUAL, SHORT_SIDE, LONG_SIDE = 1.5, 1.0, 0.2
"""The usual length scale in units of √d s/σ, and the nats that a factor of e costs far below and far above it."""

MISSED, SHARE = 0.1, 1 / 3
"""The residual that a length scale may have explained by chance, in standard deviations of y; and the share of points
whose word counts against any prior: those of a function without noise are more."""


@dataclass(frozen=True, eq=False)
class Prior:
    """Holds a prior of θ; called, it gives log p(θ) up to a constant, and its gradient.

    Attributes
    ----------
    weight, noise_weight : float
        How much it counts, from 0 to 1, and how much what is thought of noise.
    length : float
        The usual length scale, where the signal is as large as the noise.
    each : Tensor, (lengths,)
        How much each length scale counts: those that move together share one.
    missed : float
        m², the variance that length scales may have explained by chance.
    points : float
        k, the points whose word is enough.
    share, known : float
        The noise variance of a typical row is σ² times the one plus the other.
    """

    weight: float
    noise_weight: float
    length: float
    each: Tensor
    missed: float
    points: float
    share: float = 1.0
    known: float = 0.0

    @classmethod
    def of_few(cls, n: int, d: int, groups: tuple[int, ...], noise: RowNoise | None = None) -> Prior | None:
        """Returns that of points which are so few for a length scale that they agree by chance; None for more."""
        return cls.of(n, d, groups, noise) if n < NO_CHANCE * len(set(groups)) else None

    @classmethod
    def of(cls, n: int, d: int, groups: tuple[int, ...], noise: RowNoise | None = None) -> Prior | None:
        """Returns that of n points with d inputs, whose length scales are in these groups; None where points are many.

        ``noise`` is what that of rows is made of, by default σ² alone.
        """
        sizes = Counter(groups)
        a_length = n / len(sizes)
        weight = (ENOUGH - a_length) / (ENOUGH + 3 * a_length)
        if weight <= 0.0:
            return None
        each = torch.tensor([1 / sizes[group] for group in groups], dtype=torch.float64)
        rows = (1.0, 0.0) if noise is None else (float(noise.shares.median()), float(noise.known.median()))
        noise_weight = max(0.0, 1 - a_length / NO_CHANCE)
        return cls(weight, noise_weight, USUAL * d**0.5, each, MISSED**2 * len(sizes), SHARE * n, *rows)

    def __call__(self, theta: Hyperparameters) -> tuple[float, Tensor]:
        """Returns log p(θ), up to a constant, and its gradient in the order of ``Hyperparameters.vector``."""
        vector = theta.vector
        signal, lengths = vector[1], vector[2:]
        slope = torch.zeros_like(vector)
        variance = self.share * vector[0] ** 2 + self.known
        q2 = (self.missed / (self.points * variance)) ** 2
        r2 = (self.length * signal / lengths) ** 2 / variance  # (lengths,)
        costs = SHORT_SIDE * torch.log1p(r2) + LONG_SIDE * torch.log1p(1 / r2)
        k = self.noise_weight * self.points
        of_slopes, of_noise = -0.5 * (self.each * costs).sum(), -0.25 * k * torch.log1p(q2)
        by_length = self.weight * self.each * (SHORT_SIDE * r2 - LONG_SIDE) / (1 + r2)  # the slope by log ℓ
        slope[0] = (k * q2 / (1 + q2) + by_length.sum()) * self.share * vector[0] / variance
        slope[1] = -by_length.sum() / signal
        slope[2:] = by_length / lengths
        return float(self.weight * of_slopes + of_noise), slope
