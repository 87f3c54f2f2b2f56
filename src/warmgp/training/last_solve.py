"""The last solve, at the final θ, and the posterior from it; or the posterior at hand where that solve fails."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warmgp.control import Targets
from warmgp.gradient import Pathwise, PathwiseDraw, functions_of
from warmgp.gradient.features import FeaturePrior
from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator
from warmgp.operators.part import Part
from warmgp.posterior import Posterior
from warmgp.solvers import Cholesky, SolveResult, StoppingRule
from warmgp.solvers.progress import normalise, summarise
from warmgp.training.accuracy import MEAN, ROWS, SAMPLES, WORST, Accuracy, accuracy
from warmgp.training.precision import PrecisionLostError, some_rows, watch
from warmgp.training.problem import Problem
from warmgp.training.refinement import refined
from warmgp.training.state import MEAN_SHARE, SAMPLES_SHARE, TrainingOptions, TrainingState
from warmgp.training.trend import first_target, folded, posterior_trend
from warmgp.trend import TrendSolution

logger = logging.getLogger(__name__)

LEAST_MORE = 50.0
"""The least epochs that a solver which does not refine cheaply is given to go on below the tolerance."""

EVEN = 0.7
"""The share of what a single row may have left above which the last solve goes on."""

WITHIN_REACH = 3.0
"""How much more than what rounding leaves a solve in float32 aims for."""


@dataclass(frozen=True)
class Finished:
    """Holds a posterior, the solve behind it with what is random in its probes, and how exact it is."""

    posterior: Posterior
    final: SolveResult
    accuracy: Accuracy
    draw: PathwiseDraw


def finish(problem: Problem, options: TrainingOptions, state: TrainingState, generator: torch.Generator) -> Finished:
    """Does the last solve, at the final θ, and makes the posterior from it.

    Raises :class:`PrecisionLostError` where the problem is watched and float32 was not enough.

    Probes that are functions and were kept are used again, from their last solutions. Otherwise (standard or exact
    estimator, exact prior samples, no warm start) new random-feature functions are drawn, and only v_y starts warm.
    """
    operator, part = problem.operator, problem.operator.part
    draw, start = _draw_and_start(problem, options, state, generator)
    pathwise = _pathwise(options)
    targets = pathwise.targets(operator, first_target(problem, state.trend), draw)
    final = _solved_by_factor(operator, targets, options.rule) if options.exact_posterior else None
    by_factor = final is not None or options.gradient.needs_factor
    if final is None:
        final = _solved(problem, options, targets, start, generator, state.solver_state, draw)
        final = _evened(problem, options, targets, final, generator)
    solver = Cholesky() if final.factor is not None else options.solver
    targets, final, found_trend = folded(
        problem, options, solver, targets, final, state.trend, draw, generator, last=True
    )
    more = problem.watched and _time_for_more(part, options, final)  # float64, if it is needed
    if more:
        watch(problem, targets, final, draw, options.rule.tol)
    functions = functions_of(draw)
    assert functions is not None
    factor = final.factor if by_factor else None
    exact = factor is not None
    posterior = _posterior(problem, operator.theta, final.solution, functions, found_trend, factor)
    found = part.agreed(accuracy(posterior, problem, draw))
    if not exact and found.samples <= SAMPLES:  # else the samples are not what their control takes them for
        own = targets[:, problem.n_targets :]
        kept = Targets.rounded(own, operator.noise.least_scale, float(part.largest(own).max()))
        posterior = replace(posterior, targets=replace(kept, codes=part.whole(kept.codes)))
    if (
        problem.watched
        and not found.suffices
        and (options.factor_last or _claims_to_suffice(final, targets, operator, problem.n_targets))
    ):
        if more:
            raise PrecisionLostError(
                f"float32 leaves the mean {found.mean:.2g} and the samples {found.samples:.2g} predictive std from "
                "exact", final.solution, draw, final.epochs,
            )  # fmt: skip
        final = replace(final, stop_reason="time")
    return Finished(posterior, replace(final, state=options.solver.carry(final.state), factor=None), found, draw)


def _posterior(
    problem: Problem,
    theta: Hyperparameters,
    solution: Tensor,
    functions: FeaturePrior,
    found: TrendSolution | None,
    factor: Tensor | None = None,
) -> Posterior:
    """Returns the posterior of solutions at θ, of which each process has its own rows: it has all of them, on each."""
    operator, part = problem.operator, problem.operator.part
    trend = posterior_trend(problem, found, theta, solution)
    trend = trend and replace(trend, solution=part.whole(trend.solution))
    return Posterior(
        operator.x, operator.kernel, theta, part.whole(solution), functions, factor is not None, factor, trend=trend,
        noise=operator.rows, n_targets=problem.n_targets,
    )  # fmt: skip


def _solved(
    problem: Problem,
    options: TrainingOptions,
    targets: Tensor,
    start: Tensor | None,
    generator: torch.Generator,
    state: Any,
    draw: PathwiseDraw,
) -> SolveResult:
    """Solves by the solver of training; in float64 first by corrections in float32, where that was not enough alone,
    and by a factor of H where there are none, or they do not get there, and it may be made: what needs float64 may need
    any number of iterations.

    Raises :class:`PrecisionLostError` after a solve in float32 of large data, where rounding is known to leave too much
    and more epochs would be in vain.
    """
    operator, single = problem.operator, problem.single
    if single is not None:
        start = torch.zeros_like(targets) if start is None else start
        rule = _last_rule(options, operator, targets)
        found = refined(operator, single, targets, start, rule, options.solver, generator=generator)
        if found.converged:
            return found
        start = found.solution
    if operator.dtype == torch.float64 and options.factor_last:
        by_factor = _solved_by_factor(operator, targets, _last_rule(options, operator, targets))
        if by_factor is not None:
            return by_factor
    left = operator.rounding
    if not problem.watched or options.last_epochs is None or left <= MEAN:  # what is measured afterwards decides
        return last_solve(operator, targets, start, options, generator, state)
    share = min(1.0, WITHIN_REACH * left)  # all that float32 can do
    others = max(SAMPLES_SHARE, share)
    found = last_solve(operator, targets, start, options, generator, state, share=share, others=others)
    if not _time_for_more(operator.part, options, found):
        return replace(found, stop_reason="time")
    reason = f"float32 resolves the mean to {left:.2g} predictive std only"
    raise PrecisionLostError(reason, found.solution, draw, found.epochs)


def _time_for_more(part: Part, options: TrainingOptions, found: SolveResult) -> bool:
    """Says whether a time limit leaves room for a correction in float64, which takes about as long as the solve."""
    return options.until is None or part.agreed(replace(options.rule, until=options.until).in_time(found.seconds))


def _evened(
    problem: Problem, options: TrainingOptions, targets: Tensor, final: SolveResult, generator: torch.Generator
) -> SolveResult:
    """Goes on where what is left of the mean system sits in a few rows, by so much that a single prediction would be
    less exact than promised though the root mean square is small: as far as that row asks for."""
    if not (options.refine and final.converged) or final.factor is not None:
        return final
    operator, rows = problem.operator, some_rows(problem.operator.n, problem.operator.device, ROWS)
    part, q = operator.part, problem.n_targets
    found = part.in_float64(problem.x_exact).rows_matmul(rows, final.solution[:, :q].double())
    left = (part.take(targets[:, :q], rows).double() - found).abs()
    scale = operator.noise.scale_at(rows)
    worst = float((left / scale).max()) if isinstance(scale, Tensor) else float(left.max()) / scale
    worst = part.agreed(worst)
    if worst <= EVEN * WORST:
        return final
    share = MEAN_SHARE * 0.5 * WORST / worst
    if problem.single is None:
        again = last_solve(operator, targets, final.solution, options, generator, final.state, share=share)
    else:  # sweeps in float64 would take many times as long, and the samples are as good as they were
        rule = _last_rule(options, operator, targets, share)
        mean = final.solution[:, :q].clone()
        again = refined(operator, problem.single, targets[:, :q], mean, rule, options.solver, generator=generator)
        final.solution[:, :q] = again.solution
        again = replace(
            again, solution=final.solution, residual_probes=final.residual_probes, state=final.state,
            converged=final.converged, stop_reason=final.stop_reason,
        )  # fmt: skip
    return again.after(final)


def _pathwise(options: TrainingOptions) -> Pathwise:
    """Returns the estimator whose probes become the posterior's functions: training's own, or one with as many."""
    if isinstance(options.gradient, Pathwise):
        kind = "features" if options.gradient.prior == "exact" else options.gradient.prior
        return replace(options.gradient, prior=kind)
    return Pathwise(options.gradient.n_probes or options.n_samples, options.n_features)


def _draw_and_start(
    problem: Problem, options: TrainingOptions, state: TrainingState, generator: torch.Generator
) -> tuple[PathwiseDraw, Tensor | None]:
    """Returns the functions of the posterior, and where their solve starts.

    Exact training has no functions of its own: those in its state come from a model that goes on with other rows.
    """
    if options.gradient.needs_factor and has_samples(state):
        return state.draw, None
    if options.starts_warm and has_samples(state):
        return state.draw, state.solution
    operator, q = problem.operator, problem.n_targets
    draw = _pathwise(options).draw(operator, generator)
    if not options.starts_warm or state.solution is None:
        return draw, None
    rows, s = draw.noise.shape
    start = torch.zeros(rows, q + s, dtype=operator.dtype, device=operator.device)
    start[:, :q] = state.solution[:, :q]
    return draw, start


def _claims_to_suffice(final: SolveResult, targets: Tensor, operator: KernelOperator, n_targets: int) -> bool:
    """Says whether a solve's own residuals are small enough: what is wrong then is rounding, not want of iterations."""
    own, others = (operator.part.root_mean_squares(targets).double() / operator.noise.unit).tensor_split((n_targets,))
    probes = float(others.mean()) if len(others) else 0.0
    return final.residual_mean * float(own.max()) <= MEAN and final.residual_probes * probes <= SAMPLES


def last_solve(
    operator: KernelOperator,
    targets: Tensor,
    start: Tensor | None,
    options: TrainingOptions,
    generator: torch.Generator | None,
    state: Any = None,
    *,
    share: float = MEAN_SHARE,
    others: float = SAMPLES_SHARE,
) -> SolveResult:
    """Solves to the rule, and goes on where :meth:`TrainingOptions.last_rule` asks for more.

    Going on is a hope: ``converged`` is about the rule. A budget holds for both together. Without one the second part
    is limited in float32, where more iterations than a few are a sign that it cannot get there: "stagnated" then. A
    solver that does not refine cheaply gets as many epochs again as the first part took, and at least ``LEAST_MORE``.
    ``share`` is what the first system may have left, in units of the noise, ``others`` what the samples may.
    """
    rule = replace(options.rule, until=options.until)
    hoped = _last_rule(options, operator, targets, share, others)
    cheap = options.solver.refines_within(operator.n)
    limit = cheap if operator.dtype == torch.float32 or not cheap else math.inf
    budgeted = options.last_epochs is not None
    if budgeted or (rule.max_epochs is None and limit == math.inf):  # one solve does it
        rule = hoped
    solve = partial(options.solver.solve, operator, targets, generator=generator)
    first = solve(start, rule=rule, state=state)
    if not hoped.met((rule.tol, rule.probes)) and first.converged:
        left = math.inf if rule.max_epochs is None else rule.max_epochs - first.iteration_epochs
        limit = limit or max(LEAST_MORE, first.iteration_epochs)
        if min(limit, left) >= 1.0:
            cap = None if min(limit, left) == math.inf else min(limit, left)
            second = solve(first.solution, rule=replace(hoped, max_epochs=cap), state=first.state)
            lost = cheap and left == math.inf
            otherwise = "stagnated" if lost else "converged"
            first = _better(operator, targets, first, second, otherwise, rule.n_targets)
    if options.rule.met((first.residual_mean, first.residual_probes)):
        first = _checked(operator, targets, first, rule.n_targets)
        first = replace(first, converged=options.rule.met((first.residual_mean, first.residual_probes)))
    return first


def _last_rule(
    options: TrainingOptions,
    operator: KernelOperator,
    targets: Tensor,
    share: float = MEAN_SHARE,
    others: float = SAMPLES_SHARE,
) -> StoppingRule:
    """Returns the rule that the last solve for these targets hopes to meet."""
    sizes = operator.part.root_mean_squares(targets)
    return options.last_rule(operator.theta, operator.n, sizes, share, others, operator.noise.unit)


def _checked(operator: KernelOperator, targets: Tensor, result: SolveResult, n_targets: int) -> SolveResult:
    """Returns the result with its true residual, which costs an epoch where the solver has not computed it."""
    if result.residual_checked:
        return result
    part = operator.part
    b, scale = normalise(part, targets)
    left = b - part.matmul(result.solution / scale)
    mean, probes = summarise(part.norms(left), n_targets)
    return replace(
        result,
        residual_mean=mean,
        residual_probes=probes,
        residual_checked=True,
        overhead_epochs=result.overhead_epochs + 1.0,
    )


def _better(
    operator: KernelOperator,
    targets: Tensor,
    first: SolveResult,
    second: SolveResult,
    otherwise: str,
    n_targets: int = 1,
) -> SolveResult:
    """Returns the better of two solves, of which the second went on from the first, with what both cost.

    ``otherwise`` is the reason to stop where the second did not get where it should.
    """
    second = _checked(operator, targets, second, n_targets)
    worst, before = (max(part.residual_mean, part.residual_probes) for part in (second, first))
    best = second.after(first) if worst <= before else replace(first.after(second), state=second.state)
    return replace(
        best,
        converged=second.converged,
        stop_reason=second.stop_reason if second.converged else otherwise,
        notes=(*first.notes, *second.notes),
    )


def _solved_by_factor(operator: KernelOperator, targets: Tensor, rule: StoppingRule) -> SolveResult | None:
    """Solves from zero, so that a factor is made; returns None where H has none."""
    try:
        return Cholesky().solve(operator, targets, rule=rule)
    except torch.linalg.LinAlgError as error:
        logger.warning("the last solve is by iterations, and variances come from samples: %s", error)
        return None


def model_before(
    problem: Problem, options: TrainingOptions, state: TrainingState, generator: torch.Generator
) -> Finished:
    """Returns the posterior at the last θ that could be solved at: from its solutions, or by a solve with functions."""
    problem = problem.unwatched()
    if has_samples(state) and state.solution is not None and state.solution.shape[1] > problem.n_targets:
        return _as_it_is(problem, state)
    assert state.solution_theta is not None
    return finish(problem.moved_to(state.solution_theta), options, state, generator)


def _as_it_is(problem: Problem, state: TrainingState) -> Finished:
    """Returns the posterior of the last step's solutions, at the θ that they belong to."""
    assert state.solution is not None and state.solution_theta is not None
    functions = functions_of(state.draw)
    assert functions is not None
    last = state.history[-1]
    posterior = _posterior(problem, state.solution_theta, state.solution, functions, state.trend)
    final = SolveResult(
        solution=state.solution,
        residual_mean=last.residual_mean,
        residual_probes=last.residual_probes,
        residual_checked=last.converged,
        iterations=0,
        iteration_epochs=0.0,
        overhead_epochs=0.0,
        converged=last.converged,
        stop_reason=last.stop_reason,
        seconds=0.0,
    )
    found = problem.operator.part.agreed(accuracy(posterior, problem, state.draw))
    return Finished(posterior, final, found, state.draw)


def has_samples(state: TrainingState) -> bool:
    """Says whether the last solutions are posterior samples that can be evaluated anywhere."""
    return functions_of(state.draw) is not None
