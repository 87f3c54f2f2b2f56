"""The watch over float32: residuals of some rows, computed in float64 from the original inputs.

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

from warmgp.solvers import SolveResult
from warmgp.solvers.progress import summarise
from warmgp.training.problem import Problem
from warmgp.training.state import TrainingOptions, TrainingState

ROWS = 256
SLACK = 1.5
"""Factor by which the estimate may exceed the report: it is from 256 rows, and residuals are not spread evenly."""

ALL, POSSIBLE = 1.0, 0.1
"""What zero leaves of the targets, and how many times the tolerance rounding may leave, by estimate, where it may be to
blame for that. A solve that leaves as much tells nothing, and its gradient may be of any size: two such steps of 36,000
rows kept Adam on its way to half of the noise for the 27 after them, in float64. Conjugate gradients with few epochs
may leave as much without any rounding, and so does gradient descent at too high a rate."""

FROM_HERE_ON, LAST_SOLVE = "float64 from here on: ", "the last solve in float64: "
"""How the notes of a record begin that say where float64 took over; the reason follows."""


def some_rows(n: int, device: torch.device, count: int = ROWS) -> Tensor:
    """Returns at most ``count`` of the row numbers 0 … n − 1, in order, drawn at random but the same every time.

    An order of rows with a period, such as stations in turn, must not show in them.
    """
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:count].sort().values.to(device)


def spot_residuals(problem: Problem, targets: Tensor, solution: Tensor, n_targets: int = 1) -> tuple[float, float]:
    """Returns relative residuals (worst of the targets' systems, average of the others), estimated from at most
    ``ROWS`` rows of H in float64. The first ``n_targets`` systems are those of targets.

    The rows come from the inputs before rounding, where those are known.
    """
    operator, part = problem.operator, problem.operator.part
    n, rows = operator.n, some_rows(operator.n, operator.device)
    double = part.in_float64(problem.x_exact)
    residual = part.take(targets, rows).double() - double.rows_matmul(rows, solution.double())
    norms = part.norms(targets, torch.float64)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    return summarise((n / len(rows)) ** 0.5 * torch.linalg.vector_norm(residual, dim=0) / norms, n_targets)


def doubts(problem: Problem, targets: Tensor, result: SolveResult, tol: float, *, stalled: float = 0.0) -> str:
    """Returns why this float32 solve should be done again in float64; "" where there is no reason.

    One that got no further is done again where it has more than ``stalled`` of its targets left, and one whose budget
    was spent where it has ``ALL`` of them left and rounding may be the reason.
    """
    left = max(result.residual_mean, result.residual_probes)
    if result.stop_reason == "stagnated" and left > stalled:  # one that diverged is no matter of rounding
        return f"float32 stagnated at a residual of {left:.2g}"
    operator = problem.operator
    by_rounding = operator.rounding * operator.noise.unit
    if result.stop_reason == "budget" and not left < ALL and by_rounding > POSSIBLE * tol:
        return f"float32 leaves a residual of {left:.2g}, no less than no solve at all, within its budget"
    found = spot_residuals(problem, targets, result.solution, problem.n_targets)
    reported = result.residual_mean, result.residual_probes
    for name, true, said in zip(("mean", "probe"), found, reported, strict=True):
        if not true <= SLACK * max(tol, said):
            return f"float32 reported a {name} residual of {said:.2g} where float64 finds {true:.2g}"
    return ""


HOPELESS = 5.0
"""How many times the tolerance rounding may leave of a residual, by estimate, before float32 is not tried at all."""


class PrecisionLostError(ArithmeticError):
    """Says that a solve in float32 is not good enough, how far it got, and the epochs that it cost."""

    def __init__(self, reason: str, solution: Tensor | None, draw: Any, epochs: float = 0.0) -> None:
        super().__init__(reason)
        self.solution = solution
        self.draw = draw
        self.epochs = epochs

    def into(self, state: TrainingState, options: TrainingOptions) -> TrainingState:
        """Returns the state with these solutions and their probes, in float64."""
        return replace(state, solution=self.solution, draw=self.draw).in_float64(options)


def foresee(problem: Problem, options: TrainingOptions, state: TrainingState) -> None:
    """Raises :class:`PrecisionLostError` before a solve in float32 that rounding is known to keep from its tolerance:
    a thousand epochs would be in vain."""
    if not problem.watched or problem.operator.rows is not None:
        return
    left = problem.operator.rounding * float(problem.operator.theta.noise_scale)
    if left > HOPELESS * options.watched_tol:
        reason = f"float32 resolves a residual of about {left:.2g} at so much signal beside the noise"
        raise PrecisionLostError(reason, state.solution, state.draw)


def watch(
    problem: Problem, targets: Tensor, result: SolveResult, draw: Any, tol: float, *, stalled: float = 0.0
) -> None:
    """Raises :class:`PrecisionLostError` where float64 contradicts a float32 solve, or where one has too much of its
    targets left (:func:`doubts`); with its solutions, where they are of use."""
    reason = problem.operator.part.agreed(doubts(problem, targets, result, tol, stalled=stalled))
    if reason:
        raise PrecisionLostError(reason, of_use(result), draw, result.epochs)


def of_use(result: SolveResult) -> Tensor | None:
    """Returns the solutions of a solve; None where they are no better than zero by their own account."""
    return result.solution if result.residual_mean < ALL and result.residual_probes < ALL else None  # nor is NaN
