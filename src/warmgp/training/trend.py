"""The trend of a solve: p more systems H V = T beside y's and the probes', and generalised least squares from them.

    A = TᵀV,   β̂ = β + A⁻¹Tᵀv      with H v = y − T β for the β of the step before
    y − T β̂,  v − V(β̂ − β)         take the place of the first target and its solution

so that gradients, checks and the posterior go on with a first system whose mean is zero; several targets have one V and
A, and a column of β each. What the residual R = T − HV
leaves counts in units of A^{-1/2}: σ²|V A^{-1/2}|² ≤ 1 and A^{-1/2} is at most about the signal's scale s, so that the
relative error of A is of the order of rms(R) s/σ, for columns T of root mean square 1. The systems of T have a rule of
their own that keeps that small: 1% of T may be far more than the data say about β.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator
from warmgp.operators.row_noise import Noise
from warmgp.solvers import Solver, SolveResult, StoppingRule
from warmgp.solvers.sums import rounded
from warmgp.training.precision import PrecisionLostError, of_use, spot_residuals
from warmgp.training.problem import Problem
from warmgp.training.refinement import refined
from warmgp.training.state import TrainingOptions
from warmgp.trend import Trend, TrendSolution

STEP_SHARE, LAST_SHARE = 0.1, 0.01
"""The relative error of A that a step aims for, and the last solve: what is left of T also moves the mean, by R β̂ for
all terms together, which has to stay small beside the share of the noise that the first system may leave."""

TRUSTED = 0.5
"""The relative error of A above which coefficients stay those of the step before: T has not been solved for."""

FINEST = {torch.float32: 1e-5, torch.float64: 1e-10}
"""The least relative residuals that are asked for."""


def first_target(problem: Problem, before: TrendSolution | None) -> Tensor:
    """Returns the own rows of y − T β, shaped like y, for the β of the step before; of y where there is none."""
    y = problem.operator.part.own(problem.y)
    if problem.trend is None or before is None:
        return y
    return _less(y, problem.trend.columns, before.coefficients).to(y.dtype)


def folded(
    problem: Problem,
    options: TrainingOptions,
    solver: Solver,
    targets: Tensor,
    result: SolveResult,
    before: TrendSolution | None,
    draw: Any,
    generator: torch.Generator,
    *,
    last: bool = False,
) -> tuple[Tensor, SolveResult, TrendSolution | None]:
    """Solves for T, and returns targets and solution of the first system without the trend, and the trend's part.

    Without a trend they are returned as they came. ``before`` is what ``targets`` were made with, and where the solve
    starts. Raises :class:`PrecisionLostError` where the problem is watched and float32 is not enough for T.
    """
    if problem.trend is None:
        return targets, result, None
    operator, T = problem.operator, problem.trend.columns
    start = before.solution if before is not None and options.starts_warm else None
    rule = _rule(options, operator, start, last)
    found = _solved(problem, solver, T, start, rule, generator, result.state)
    _watch(problem, found, result, draw)
    shape, first = problem.trend.offset.shape, slice(problem.n_targets)
    old = before.coefficients if before is not None else T.new_zeros(shape, dtype=torch.float64)
    change = torch.zeros_like(old)
    if max(found.residual_mean, found.residual_probes) * _per_noise(operator) <= TRUSTED:
        spread = covariance(problem, found.solution, operator.theta)
        change = (spread @ _gram(problem, result.solution[:, first])).reshape(shape)
    own = operator.part.own(problem.y)
    targets = targets.clone() if targets.data_ptr() == own.data_ptr() else targets  # which may be y itself
    taken = change.reshape(len(change), -1)  # (p, q)
    targets[:, first] = _less(targets[:, first], T, taken).to(targets.dtype)
    less = _less(result.solution[:, first], found.solution, taken)
    result.solution[:, first] = rounded(less, T.dtype) if operator.sums_count else less.to(T.dtype)  # in its place
    result = replace(
        result,
        overhead_epochs=result.overhead_epochs + found.epochs,
        seconds=result.seconds + found.seconds,
        state=found.state,
    )
    return targets, result, TrendSolution(found.solution, old + change)


def covariance(problem: Problem, solution: Tensor, theta: Hyperparameters) -> Tensor:
    """Returns A⁻¹ = (TᵀV)⁻¹, (p, p) in float64, for the own rows of V at θ.

    TᵀT = nI and no eigenvalue of H is above n s² + σ² (or the largest noise of a row), so that none of A is below
    n/(n s² + σ²). Those that an unfinished solve has left below that are raised to it.
    """
    n, gram = problem.operator.n, _gram(problem, solution)
    values, vectors = torch.linalg.eigh(0.5 * (gram + gram.T))
    least = n / (n * float(theta.signal_scale) ** 2 + Noise(theta, problem.operator.rows).most)
    return (vectors / values.clamp_min(0.99 * least)) @ vectors.T


def _gram(problem: Problem, solution: Tensor) -> Tensor:
    """Returns TᵀV, (p, c) in float64, for the own rows of V, (n, c)."""
    assert problem.trend is not None
    return problem.operator.part.sum(problem.trend.columns.double().T @ solution.double())


def posterior_trend(
    problem: Problem, found: TrendSolution | None, theta: Hyperparameters, solution: Tensor
) -> Trend | None:
    """Returns the trend as a posterior at θ takes it, with the solutions [v_y, ẑ_1 … ẑ_s]; None where there is none.

    Its own solution has the rows of this process.
    """
    if problem.trend is None or found is None:
        return None
    trend = problem.trend
    spread = covariance(problem, found.solution, theta)
    deviations = spread @ _gram(problem, solution[:, problem.n_targets :])
    centre = (trend.offset + found.coefficients).reshape(len(spread), -1)
    return Trend(trend.basis, found.solution, torch.cat([centre, deviations], 1), spread, problem.n_targets)


# -- the solve -------------------------------------------------------------------------------------------------------
def _rule(options: TrainingOptions, operator: KernelOperator, start: Tensor | None, last: bool) -> StoppingRule:
    """Returns how well T is solved for: so that A is as precise as a step, or the posterior, needs it."""
    rule, share = options.rule_of(start), LAST_SHARE if last else STEP_SHARE
    if last and options.last_epochs is not None:
        rule = replace(rule, max_epochs=options.last_epochs)
    wanted = max(FINEST[operator.dtype], share / _per_noise(operator))
    return replace(rule, tol=min(rule.tol, wanted), probes_tol=None, n_targets=1)


def _per_noise(operator: KernelOperator) -> float:
    """Returns s/σ."""
    return float(operator.theta.signal_scale) / operator.noise.unit


def _solved(
    problem: Problem,
    solver: Solver,
    T: Tensor,
    start: Tensor | None,
    rule: StoppingRule,
    generator: torch.Generator,
    state: Any,
) -> SolveResult:
    """Solves H V = T; in float64 first by corrections in float32, where that was not enough alone."""
    if problem.single is not None and not solver.leaves_factor:
        start = torch.zeros_like(T) if start is None else start.clone()
        found = refined(problem.operator, problem.single, T, start, rule, solver, generator=generator)
        if found.converged:
            return replace(found, state=state)
        start = found.solution
    return solver.solve(problem.operator, T, start, rule=rule, generator=generator, state=state)


def _watch(problem: Problem, found: SolveResult, result: SolveResult, draw: Any) -> None:
    """Raises :class:`PrecisionLostError` where float64 finds that a float32 solve leaves A unknown."""
    if not problem.watched:
        return
    assert problem.trend is not None
    ratio = _per_noise(problem.operator)
    true = max(spot_residuals(problem, problem.trend.columns, found.solution))
    said = max(found.residual_mean, found.residual_probes)
    lost = true * ratio > TRUSTED and true > 2.0 * said
    if lost or (found.stop_reason == "stagnated" and said * ratio > TRUSTED):
        reason = f"float32 leaves a residual of {true:.2g} for the trend, where {TRUSTED / ratio:.2g} is needed"
        raise PrecisionLostError(reason, of_use(result), draw, result.epochs + found.epochs)


def _less(column: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
    """Returns column − columns @ weights, (n,) or (n, q), in float64."""
    return column.double() - columns.double() @ weights
