"""The contract of an estimator of ∂L/∂θ: the gradient of the marginal likelihood from solutions of linear systems.

    ∂L/∂θ = ½ v_yᵀ ∂H v_y − ½ tr(H⁻¹ ∂H),       H v_y = y.

Of several targets Y = [y_1 … y_q], which are independent given one H, L is the sum, and so is its gradient:

    ∂L/∂θ = Σ_j ½ v_jᵀ ∂H v_j − (q/2) tr(H⁻¹ ∂H).

An estimator says which probe systems to solve beside y and how their solutions give the trace. What is random in the
probes is a *draw*, independent of θ: with warm starts it is kept for the whole training, without them it is drawn anew
at every step. ``targets`` evaluates the draw at the operator's θ.

Arrays of n rows have those of this process alone (``operator.part``), which are all where there is no other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.schema import TensorRule
from warmgp.solvers.result import SolveResult


class GradientEstimator(ABC):
    """Estimates ∂L/∂θ from the solutions of H v = b. Implementations are frozen dataclasses of their options."""

    name: str
    n_probes: int
    needs_factor: ClassVar[bool] = False  # whether it needs the Cholesky factor of H that some solvers leave
    draw_rules: ClassVar[Mapping[str, TensorRule]] = {}  # the tensors of a draw in a checkpoint

    @abstractmethod
    def draw(self, operator: KernelOperator, generator: torch.Generator) -> Any:
        """Draws everything random about the probes, independent of θ."""

    @abstractmethod
    def targets(self, operator: KernelOperator, y: Tensor, draw: Any) -> Tensor:
        """Returns b = [y, probes] at the operator's θ, (n, q + s), with the :func:`columns` of y first."""

    @abstractmethod
    def gradient(self, operator: KernelOperator, result: SolveResult, targets: Tensor) -> Tensor:
        """Returns ∂L/∂θ from a solve of H v = targets, in the order of ``Hyperparameters.vector``, float64."""

    def log_marginal_likelihood(self, operator: KernelOperator, result: SolveResult, targets: Tensor) -> float | None:
        """Returns L(θ) where the estimator knows it; None where it does not."""
        return None

    def rehearse(self, operator: KernelOperator, V: Tensor) -> None:
        """Asks the operator for what a gradient will, with V of (n, q + s) that holds anything, where that is compiled
        first (``operator.fuses_gradients``): nothing, unless overridden."""
        return None  # noqa: RET501

    # -- its draw ----------------------------------------------------------------------------------------------------
    def in_float64(self, draw: Any) -> Any:
        """Returns the same draw in float64."""
        if isinstance(draw, Tensor):
            return draw.double()
        return draw.in_float64() if hasattr(draw, "in_float64") else draw

    def by_rows(self, draw: Any, change: Callable[[Tensor], Tensor]) -> Any:
        """Returns the same draw with other rows: ``change`` makes them of every array that it holds by rows."""
        if isinstance(draw, Tensor):
            return change(draw)
        return draw.by_rows(change) if hasattr(draw, "by_rows") else draw

    def pack(self, draw: Any) -> dict[str, Tensor]:
        """Returns a draw as the tensors that a checkpoint holds, by the names of ``draw_rules``."""
        if draw is None:
            return {}
        raise ValueError(f"a checkpoint cannot hold probes of kind {type(draw).__name__}: fit without checkpoint")

    def unpack(self, tensors: Mapping[str, Tensor]) -> Any:
        """Returns the draw of a checkpoint, from tensors that fit ``draw_rules``; None where there are none."""
        return None


def columns(y: Tensor) -> Tensor:
    """Returns targets as the first columns of a solve, (n, q): one column where y is (n,)."""
    return y[:, None] if y.ndim == 1 else y


def quadratic_weights(n_probes: int, n_targets: int = 1) -> Tensor:
    """Returns the weights of the quadratic forms, (q + s,): ½ for the system of each target, −q/(2s) for each probe."""
    weights = torch.full((n_targets + n_probes,), -0.5 * n_targets / n_probes, dtype=torch.float64)
    weights[:n_targets] = 0.5
    return weights
