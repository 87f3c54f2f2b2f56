"""Estimating ∂L/∂θ of the marginal likelihood from solutions of linear systems.

    ∂L/∂θ = ½ v_yᵀ ∂H v_y − ½ tr(H⁻¹ ∂H),       H v_y = y.

An estimator says which probe systems to solve beside y and how their solutions give the trace. What is random in the
probes is a *draw*, independent of θ: with warm starts it is kept for the whole training, without them it is drawn anew
at every step. ``targets`` evaluates the draw at the operator's θ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.solvers.base import SolveResult


class GradientEstimator(ABC):
    """A way to estimate ∂L/∂θ. Implementations are frozen dataclasses of their options."""

    name: str
    n_probes: int

    @abstractmethod
    def draw(self, operator: KernelOperator, generator: torch.Generator) -> Any:
        """Everything random about the probes, independent of θ."""

    @abstractmethod
    def targets(self, operator: KernelOperator, y: Tensor, draw: Any) -> Tensor:
        """b = [y, probes] at the operator's θ, (n, 1 + s)."""

    @abstractmethod
    def gradient(self, operator: KernelOperator, result: SolveResult, targets: Tensor) -> Tensor:
        """∂L/∂θ from a solve of H v = targets, in the order of ``Hyperparameters.vector``, float64."""


def quadratic_weights(n_probes: int) -> Tensor:
    """½ for the mean system, −1/(2s) for each probe, (1 + s,)."""
    weights = torch.full((1 + n_probes,), -0.5 / n_probes, dtype=torch.float64)
    weights[0] = 0.5
    return weights
