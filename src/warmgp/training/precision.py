"""Whether float32 still tells the truth: the residual of some rows, computed in float64 from the original inputs.

A float32 product rounds by about ε|H||v|, and v grows like 1/σ²: at low noise the residual that a solve reports, even
one computed afresh from H in float32, may be far from the true one. Inputs are rounded, too, and points closer than
that are one point to float32. A few hundred rows of H in float64, from the inputs before rounding, cost next to nothing
and estimate the true norms, because a residual is spread over all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from warmgp.gradient import PathwiseDraw
from warmgp.gradient.features import FeaturePrior
from warmgp.operators.base import KernelOperator
from warmgp.solvers import SolveResult
from warmgp.solvers.base import summarise
from warmgp.solvers.sgd import SGDState
from warmgp.training.problem import Problem
from warmgp.training.state import TrainingState

ROWS = 256
SLACK = 1.5
"""By what the estimate may exceed what was reported: it is one of 256 rows, and residuals are not spread evenly."""


def some_rows(n: int, device: torch.device, count: int = ROWS) -> Tensor:
    """At most ``count`` of the row numbers 0 … n − 1, at random and always the same: an order of rows with a period,
    such as stations in turn, must not show in them."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:count].sort().values.to(device)


def spot_residuals(
    operator: KernelOperator, targets: Tensor, solution: Tensor, x: Tensor | None = None
) -> tuple[float, float]:
    """Relative residuals (mean system, average probe) estimated from ``ROWS`` rows of H in float64.

    ``x`` (n, d) are the inputs in float64 before rounding; without them the operator's own are taken.
    """
    n, rows = operator.n, some_rows(operator.n, operator.device)
    residual = targets[rows].double() - operator.in_float64(x=x).rows_matmul(rows, solution.double())
    norms = torch.linalg.vector_norm(targets, dim=0, dtype=torch.float64)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    return summarise((n / len(rows)) ** 0.5 * torch.linalg.vector_norm(residual, dim=0) / norms)


def doubts(operator: KernelOperator, targets: Tensor, result: SolveResult, tol: float, x: Tensor | None = None) -> str:
    """Why this float32 solve should be done again in float64; empty where there is no reason."""
    if result.stop_reason == "stagnated":  # one that diverged is no matter of rounding
        return f"float32 stagnated at a residual of {max(result.residual_mean, result.residual_probes):.2g}"
    found = spot_residuals(operator, targets, result.solution, x)
    reported = result.residual_mean, result.residual_probes
    for name, true, said in zip(("mean", "probe"), found, reported, strict=True):
        if not true <= SLACK * max(tol, said):
            return f"float32 reported a {name} residual of {said:.2g} where float64 finds {true:.2g}"
    return ""


class PrecisionLostError(ArithmeticError):
    """A solve in float32 whose residual float64 does not confirm. Carries how far it got, and what that cost."""

    def __init__(self, reason: str, solution: Tensor | None, draw: Any, epochs: float = 0.0) -> None:
        super().__init__(reason)
        self.solution = solution
        self.draw = draw
        self.epochs = epochs

    def into(self, state: TrainingState) -> TrainingState:
        """The state with these solutions and their probes, in float64."""
        return in_float64(replace(state, solution=self.solution, draw=self.draw))


def in_float64(state: TrainingState) -> TrainingState:
    """The state with its solutions and probes in float64; of a solver's state only what no precision is part of."""
    draw = state.draw
    if isinstance(draw, PathwiseDraw):
        prior = draw.prior
        if isinstance(prior, FeaturePrior):
            parts = (prior.frequencies, prior.sin_weights, prior.cos_weights)
            prior = FeaturePrior(*(part.double() for part in parts))
        draw = PathwiseDraw(prior, draw.noise.double())
    elif isinstance(draw, Tensor):
        draw = draw.double()
    solution = None if state.solution is None else state.solution.double()
    kept = state.solver_state if isinstance(state.solver_state, int | SGDState) else None  # AP's block, SGD's rate
    return replace(state, solution=solution, draw=draw, solver_state=kept)


def watch(problem: Problem, targets: Tensor, result: SolveResult, draw: Any, tol: float) -> None:
    """Raise :class:`PrecisionLostError` where float64 contradicts a float32 solve."""
    if problem.operator.dtype == torch.float32:
        reason = doubts(problem.operator, targets, result, tol, problem.x_exact)
        if reason:
            raise PrecisionLostError(reason, result.solution, draw, result.epochs)
