"""What happened in an update, and whether new rows still follow what a model has learned.

A row that the model predicts with the mean μ and the standard deviation s has the log density

    log p = −½ z² − log s − ½ log 2π,       z = (y − μ)/s.

How much less likely new rows are than the model's own, each predicted from all others, is compared by the part −½ z²
alone: rows in a place where s is large are less likely without any fault of the model. For its own rows v_y and the
samples ẑ tell it without a solve, since v_i² / (H⁻¹)_ii is z² of a row that is left out, and (H⁻¹)_ii = 1/s² the
variance of ẑ_i over the samples.

Where the model is right, the sum of m new z² has a χ² distribution. Its own rows say how large z² is for them, and how
far it spreads, by which tails that are heavier than normal are allowed for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import digamma
from scipy.stats import chi2
from torch import Tensor

from warmgp.operators.row_noise import Noise, RowNoise
from warmgp.posterior import Posterior

FAR, CHANCE = 0.25, 1e-6
"""Nats a row by which new rows may be less likely than old ones, and the probability below which that is no chance:
both have to be passed before a new fit is said to be due."""


@dataclass(frozen=True)
class Update:
    """Holds what an update did, and what the model before it thought of the new rows.

    Attributes
    ----------
    added, forgotten : int
        Rows that came and went.
    rows : int
        The rows of the model afterwards.
    steps : int
        Adam steps that hyperparameters took.
    epochs : float
        Products with the whole of H that its last solve took.
    seconds : float
    log_density, log_density_before : float or None
        The mean log density of the new rows by the model before, in units of y, and that of the model's own rows, each
        predicted from all others; None where no rows came.
    loss : float or None
        Nats a row by which the new rows are less likely, apart from how uncertain predictions are.
    drifted : bool
        Whether that is so much that a new fit is due.
    """

    added: int
    forgotten: int
    rows: int
    steps: int
    epochs: float
    seconds: float
    log_density: float | None = None
    log_density_before: float | None = None
    loss: float | None = None
    drifted: bool = False


@dataclass(frozen=True)
class Drift:
    """Holds what new rows say of a model: z of each of them, and of the model's own rows.

    Of several targets each is judged by itself: one that has changed is not lost among the others.
    """

    z: Tensor  # (m,), or (m, q) of q targets
    density: float
    before: float  # the mean log density of its own rows
    square_before: Any  # the mean z² of its own rows, a number, or (q,)
    spread_before: Any  # the variance of their z², the same

    @classmethod
    def of(cls, posterior: Posterior, x: Tensor, y: Tensor, noise: RowNoise | None, y_scale: Any) -> Drift:
        """Returns what a posterior says of new rows x, (m, d), y, (m,) or (m, q), and the noise of these, before it has
        them. ``y_scale`` is the unit of y, or of each of several targets."""
        mean, latent = posterior.mean_and_variance(x.to(posterior.x))
        variance = latent.double() + torch.as_tensor(Noise(posterior.theta, noise).at(), device=latent.device)
        variance = variance if y.ndim == 1 else variance[:, None].expand(y.shape)
        z = (y.to(variance) - mean.double()) / variance.sqrt()
        unit = 0.5 * math.log(2 * math.pi) + float(np.mean(np.log(y_scale)))
        density = float((-0.5 * z.square() - 0.5 * variance.log()).mean()) - unit
        inverse, bias = inverse_diagonal(posterior)
        q = posterior.n_targets
        v, inverse = posterior.solution[:, :q].double(), inverse[:, None]
        v, inverse = (v, inverse) if q > 1 else (v[:, 0], inverse[:, 0])
        squares = v.square() / inverse
        square = squares.mean(0)
        if posterior.factor is None:
            square = v.square().sum(0) / inverse.sum()  # a ratio of sums, which few samples do not move far
        before = -0.5 * float(square.mean()) + 0.5 * (float(inverse.log().mean()) - bias) - unit
        return cls(z, density, before, square.cpu().numpy(), squares.var(0).cpu().numpy())

    @property
    def loss(self) -> float:
        """Nats a row by which the new rows are less likely than the model's own, apart from how uncertain each is; of
        several targets the mean."""
        return float(np.mean(self._losses))

    @property
    def is_far(self) -> bool:
        """Whether that is far, and no chance, for any of the targets."""
        heavy = np.maximum(1.0, self.spread_before / (2.0 * self.square_before**2))  # 1 where errors are normal
        total = self.z.square().sum(0).cpu().numpy() / self.square_before
        chance = chi2.sf(total / heavy, len(self.z) / heavy)
        return bool(np.any((self._losses > FAR) & (chance < CHANCE)))

    @property
    def _losses(self) -> Any:
        """That of each target, (q,), or a number for one."""
        return 0.5 * (self.z.square().mean(0).cpu().numpy() - self.square_before)

    def told(self, n_steps: int, names: Sequence[str] = ()) -> str:
        """Says that a new fit is due, where hyperparameters took so many steps with the new rows; of several targets,
        by their names, of the one that has changed most."""
        worst = int(np.argmax(self._losses))
        squares = (self.z.square().mean(0).cpu().numpy(), self.square_before)
        times, before = (float(np.atleast_1d(square)[worst]) ** 0.5 for square in squares)
        loss = float(np.max(self._losses))
        stay = "took a few steps alone" if n_steps else "stay as they were"
        of = f" of {names[worst]!r}" if names else ""
        rows = f"the new row{of} is" if len(self.z) == 1 else f"the {len(self.z):,} new rows{of} are"
        means = "so error bars near them are too small" if times > 1.1 else f"and were {before:.2g} times it before"
        return (
            f"{rows} {loss:.2g} nats a row less likely than the rows before them were "
            f"when left out: their errors are {times:.2g} times the predicted standard deviation, {means}. "
            f"The model has them now, and its hyperparameters {stay}: a new fit on all rows is due"
        )


def inverse_diagonal(posterior: Posterior) -> tuple[Tensor, float]:
    """Returns (H⁻¹)_ii of the training rows, (n,), and what is to be taken off their logarithms in the mean.

    They are exact where there is a factor of H, and otherwise mean squares over s samples, whose logarithm is too small
    by ψ(s/2) − log(s/2) in the mean.
    """
    if posterior.factor is not None:
        return torch.cholesky_inverse(posterior.factor).diagonal(), 0.0
    s = posterior.n_samples
    inverse = posterior.solution[:, posterior.n_targets :].double().square().mean(1)
    return inverse, float(digamma(s / 2)) - math.log(s / 2)
