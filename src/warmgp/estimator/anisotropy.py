"""Ranges that differ by direction: the angle is found before training, and told in the user's units afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from warmgp.data.scaling import Standardizer
from warmgp.estimator.prepare import TrainingData
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.planning.plan import Plan
from warmgp.training.rotation import find_angle
from warmgp.training.state import TrainingOptions


@dataclass(frozen=True)
class Anisotropy:
    """Holds the ranges of a model whose two inputs were turned, in units of X, where both columns should have the same.

    Attributes
    ----------
    angle : float
        Degrees, from 0 to 180, from the first input towards the second: the direction of the longest range.
    along, across : float
        The length scales in that direction and at right angles to it.
    """

    angle: float
    along: float
    across: float

    def __str__(self) -> str:
        return (
            f"length scales {self.along:.6g} at {self.angle:.1f}° from the first input towards the second, and "
            f"{self.across:.6g} across, in units of X"
        )


def anisotropy_of(scaler: Standardizer, theta: Hyperparameters) -> Anisotropy | None:
    """Returns the longest and the shortest range by the scaler's angle and θ; None where no input was turned.

    Standardised inputs have units of their own, in which a right angle is none in units of X. The squared distance is
    ΔᵀAᵀA Δ with A = diag(1/ℓ) R(φ) diag(1/scale) in any case: its axes are those of A's singular vectors.
    """
    if not scaler.angle:
        return None
    turn = scaler.turn(np.eye(2)).T
    form = turn / theta.length_scales.numpy()[:, None] / scaler.x_scale
    _, rates, directions = np.linalg.svd(form)
    angle = float(np.rad2deg(np.arctan2(directions[1, 1], directions[1, 0])) % 180.0)
    return Anisotropy(angle, float(1.0 / rates[1]), float(1.0 / rates[0]))


def turned(data: TrainingData, plan: Plan, kernel: Kernel, options: TrainingOptions, seed: int) -> TrainingData:
    """Returns training data with inputs turned to the direction of the longest range; the same seed finds the same."""
    x, y = (torch.as_tensor(values).to(plan.device) for values in (data.x, data.y))
    generator, noise = torch.Generator().manual_seed(seed), data.row_noise(plan.device)
    return data.turned(find_angle(x, y, kernel, options, generator=generator, noise=noise))
