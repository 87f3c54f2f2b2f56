"""The exact solver: one dense float64 factorisation, n³/3 operations and n² memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.origin import Origin
from warmgp.solvers.base import Solver
from warmgp.solvers.progress import Progress
from warmgp.solvers.result import SolveResult, StoppingRule
from warmgp.solvers.sums import rounded
from warmgp.solvers.triangular import factor_or_raise, solve_with_factor


@dataclass(frozen=True)
class CholeskyState:
    """Holds the factor of one H."""

    origin: Origin
    factor: Tensor  # (n, n), lower, float64


def factorise(operator: KernelOperator) -> Tensor:
    """Returns the lower Cholesky factor of H in float64, (n, n), whatever the operator's dtype."""
    return factor_or_raise(operator.dense(torch.float64), "H")


@dataclass(frozen=True)
class Cholesky(Solver):
    """Solves directly in float64, whatever the operator's dtype.

    It counts as one iteration and no epochs (a factorisation applies no product); the check of its residual is one
    epoch of overhead. A start that already meets the tolerance is returned as it is.
    """

    name = "cholesky"
    leaves_factor = True

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
        if start is not None and rule.met(progress.norms()):
            progress.stop_reason = "converged"
            return progress.result(state, None if state is None else state.factor)
        state = state or CholeskyState(operator.origin, factorise(operator))
        part = progress.part
        exact = part.own(solve_with_factor(state.factor, part.whole(progress.b).double()))
        progress.v.copy_(rounded(exact, progress.v.dtype) if operator.sums_count else exact)
        progress.count(0.0)
        progress.refresh()
        if not rule.met(progress.norms()):  # rounding: the same factor takes most of what it left away
            rest = part.own(solve_with_factor(state.factor, part.whole(progress.r).double()))
            if operator.sums_count:
                progress.v.copy_(rounded(progress.v.double() + rest, progress.v.dtype))
            else:
                progress.v.add_(rest)
            progress.refresh()
        progress.stop_reason = "converged" if rule.met(progress.norms()) else "stagnated"
        return progress.result(state, state.factor)

    def carry(self, state: Any) -> None:
        """Returns None: the factor is of one H alone, and weighs n² numbers."""
        return
