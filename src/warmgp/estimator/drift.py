"""What happened in an update, and whether new rows still follow what a model has learned.

A row that the model predicts with the mean μ and the standard deviation s has the log density

    log p = −½ z² − log s − ½ log 2π,       z = (y − μ)/s.

How much less likely new rows are than the model's own, each predicted from all others, is compared by the part −½ z²
alone: rows in a place where s is large are less likely without any fault of the model. For its own rows v_y and the
samples ẑ tell it without a solve, since v_i² / (H⁻¹)_ii is z² of a row that is left out, and (H⁻¹)_ii the variance of
ẑ_i over the samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.row_noise import Noise, RowNoise
from warmgp.posterior import Posterior

FAR, SURE = 0.25, 4.0
"""Nats a row by which new rows may be less likely than old ones, and the standard errors of that beyond which it is no
chance: both have to be passed before a new fit is said to be due."""

LEAST_SAMPLES = 3
"""The fewest samples that tell how far rows are off when they are left out."""


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
    log_density : float or None
        The mean log density of the new rows by the model before, in units of y; None where there were none.
    log_density_before : float or None
        That of the model's own rows, each predicted from all others.
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
    """Holds what new rows say of a model: z of each of them, and of the model's own rows."""

    z: Tensor  # (m,)
    density: float
    before: float | None
    square_before: float  # mean z² of its own rows; 1 where it is not known
    spread_before: float  # standard deviation of their z²

    @classmethod
    def of(cls, posterior: Posterior, x: Tensor, y: Tensor, noise: RowNoise | None, y_scale: float) -> Drift:
        """Returns what a posterior says of new rows x, (m, d), y, (m,), and the noise of these, before it has them."""
        mean, latent = posterior.mean_and_variance(x.to(posterior.x))
        variance = latent.double() + torch.as_tensor(Noise(posterior.theta, noise).at(), device=latent.device)
        z = (y.to(variance) - mean.double()) / variance.sqrt()
        density = float((-0.5 * z.square() - 0.5 * (2 * math.pi * variance).log()).mean()) - math.log(y_scale)
        squares, log_s = _left_out(posterior)
        if squares is None or log_s is None:
            return cls(z, density, None, 1.0, math.sqrt(2.0))
        before = float((-0.5 * squares - log_s).mean()) - 0.5 * math.log(2 * math.pi) - math.log(y_scale)
        return cls(z, density, before, float(squares.mean()), float(squares.std()))

    @property
    def loss(self) -> float:
        """Nats a row by which the new rows are less likely than the model's own, apart from how uncertain each is."""
        return 0.5 * (float(self.z.square().mean()) - self.square_before)

    @property
    def is_far(self) -> bool:
        """Whether that is far, and no chance."""
        error = 0.5 * max(self.spread_before, math.sqrt(2.0)) / math.sqrt(len(self.z))
        return self.loss > FAR and self.loss > SURE * error

    def told(self, n_steps: int) -> str:
        """Says that a new fit is due, where hyperparameters took so many steps with the new rows."""
        times = float(self.z.square().mean()) ** 0.5
        stay = "took a few steps alone" if n_steps else "stay as they were"
        return (
            f"the {len(self.z):,} new rows are {self.loss:.2g} nats a row less likely than the rows before them were "
            f"when left out: their errors are {times:.2g} times the predicted standard deviation, so error bars near "
            f"them are too small. The model has them now, and its hyperparameters {stay}: a new fit on all rows is due"
        )


def _left_out(posterior: Posterior) -> tuple[Tensor | None, Tensor | None]:
    """Returns z² of training rows that are predicted from all others, (n,), and log s, (n,), by the samples."""
    s = posterior.n_samples
    if s < LEAST_SAMPLES:
        return None, None
    inverse = posterior.solution[:, 1:].double().square().mean(1)  # (H⁻¹)_ii
    squares = posterior.solution[:, 0].double().square() / inverse * (s - 2) / s  # 1/χ² is too large in the mean
    return squares, -0.5 * inverse.log()
