"""The exact solver: one dense float64 factorisation, n³/3 operations and n² memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator, Origin
from warmgp.operators.dense import DenseOperator
from warmgp.solvers.base import Progress, Solver, SolveResult, StoppingRule, factor_or_raise
from warmgp.solvers.triangular import solve_with_factor


@dataclass(frozen=True)
class CholeskyState:
    """The factor of one H."""

    origin: Origin
    factor: Tensor  # (n, n), lower, float64


def factorise(operator: KernelOperator) -> CholeskyState:
    """Factor H in float64, evaluated afresh from the inputs whatever the operator keeps or its dtype."""
    dense = DenseOperator(operator.x.double(), operator.kernel, operator.theta, tile_entries=operator.tile_entries)
    factor = factor_or_raise(dense.take(), "H")
    operator.entries_evaluated += dense.entries_evaluated
    return CholeskyState(operator.origin, factor)


@dataclass(frozen=True)
class Cholesky(Solver):
    """Direct solution in float64, whatever the operator's dtype.

    It counts as one iteration and no epochs (a factorisation applies no product); the check of its residual is one
    epoch of overhead. A start that already meets the tolerance is returned as it is.
    """

    name = "cholesky"

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: CholeskyState | None = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        if state is not None and not state.origin.same(operator.origin):
            state = None
        if start is not None and max(progress.norms()) <= rule.tol:
            progress.stop_reason = "converged"
            return progress.result(state)
        state = state or factorise(operator)
        progress.v = solve_with_factor(state.factor, progress.b.double()).to(operator.dtype)
        progress.count(0.0)
        progress.refresh()
        progress.stop_reason = "converged" if max(progress.norms()) <= rule.tol else "stagnated"
        return progress.result(state)
