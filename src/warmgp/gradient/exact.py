"""The exact gradient and value of the marginal likelihood from one dense float64 Cholesky factor: the truth.

L = −½ yᵀv − ½ log det H − n/2 log 2π,      ∂L/∂θ = Σ_ij G_ij ∂H_ij,   G = ½ (v vᵀ − H⁻¹),

and the sums of these over several targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.gradient.base import GradientEstimator, columns
from warmgp.gradient.pathwise import functions_of
from warmgp.operators.base import KernelOperator
from warmgp.solvers.result import SolveResult
from warmgp.solvers.triangular import inverse_from_factor, solve_with_factor


@dataclass(frozen=True)
class Exact(GradientEstimator):
    """Takes no probes: the trace comes from H⁻¹. Needs a solver that leaves a Cholesky factor of H."""

    name = "exact"
    n_probes = 0
    needs_factor = True

    def draw(self, operator: KernelOperator, generator: torch.Generator) -> None:
        return None

    def targets(self, operator: KernelOperator, y: Tensor, draw: None) -> Tensor:
        return columns(y)

    def gradient(self, operator: KernelOperator, result: SolveResult, targets: Tensor) -> Tensor:
        factor = _factor_of(result)
        v = solve_with_factor(factor, operator.part.whole(targets).to(factor))  # (n, q)
        q, inverse = v.shape[1], inverse_from_factor(factor)
        if operator.rows is None:
            trace = 0.5 * (sum(float(one @ one) for one in v.T) - q * float(inverse.diagonal().sum()))
        else:
            trace = 0.5 * operator.noise.trace(v.square().sum(1) - q * inverse.diagonal())

        def weights(rows: slice, others: slice) -> Tensor:
            return (v[rows] @ v[others].T).sub_(inverse[rows, others], alpha=q).mul_(0.5)

        return operator.in_float64().gradient_from_weights(weights, trace)

    def pack(self, draw: Any) -> dict[str, Tensor]:
        """Returns nothing: steps have no probes, and functions that an update carries over are those of its model."""
        return super().pack(None if functions_of(draw) is not None else draw)

    def log_marginal_likelihood(self, operator: KernelOperator, result: SolveResult, targets: Tensor) -> float:
        """Returns L(θ) in float64."""
        factor = _factor_of(result)
        y = operator.part.whole(targets).to(factor)
        return log_marginal_likelihood(y, solve_with_factor(factor, y), factor)


def log_marginal_likelihood(y: Tensor, v: Tensor, factor: Tensor) -> float:
    """Returns L(θ) from y and v = H⁻¹y, (n,) or (n, q) each, and the Cholesky factor of H, (n, n); of several targets
    the sum."""
    y, v = columns(y).double(), columns(v).double()
    fit = sum(float(one @ solved) for one, solved in zip(y.T, v.T, strict=True))
    log_det = 2.0 * y.shape[1] * float(torch.log(factor.diagonal()).sum())
    return -0.5 * (fit + log_det + y.numel() * math.log(2 * math.pi))


def _factor_of(result: SolveResult) -> Tensor:
    if result.factor is None:
        raise ValueError('gradient="exact" needs solver="cholesky": no factor came with the solution')
    return result.factor
