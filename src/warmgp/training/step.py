"""One step of training: solve at θ, estimate the gradient, move θ."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from warmgp.gradient import functions_of
from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator
from warmgp.solvers import SolveResult
from warmgp.training.adam import Adam
from warmgp.training.precision import watch
from warmgp.training.problem import Problem
from warmgp.training.state import StepRecord, TrainingOptions, TrainingState
from warmgp.training.trend import first_target, folded
from warmgp.training.validation import validation_metrics


def initial_state(operator: KernelOperator, options: TrainingOptions) -> TrainingState:
    """Returns the state before the first step, at the operator's θ."""
    nu = options.begun(operator.theta, operator.kernel)
    return TrainingState(0, nu, Adam.zeros(nu.numel()))


def take_step(
    problem: Problem, options: TrainingOptions, state: TrainingState, generator: torch.Generator, *, note: str = ""
) -> TrainingState:
    """Solves at θ, estimates the gradient and moves θ; returns the next state.

    Raises :class:`PrecisionLostError` where the problem is watched and float32 is not enough. ``note`` goes into the
    record.
    """
    began = time.perf_counter()
    operator, gradient = problem.operator, options.gradient
    fresh = state.draw is None or not options.warm_start
    draw = gradient.draw(operator, generator) if fresh else state.draw
    targets = gradient.targets(operator, first_target(problem, state.trend), draw)
    result = options.solver.solve(
        operator,
        targets,
        state.solution if options.starts_warm else None,
        rule=options.rule_of(state.solution),
        generator=generator,
        state=state.solver_state,
    )
    targets, result, trend = folded(
        problem, options, options.solver, targets, result, state.trend, draw, generator=generator
    )
    if problem.watched:
        watch(problem, targets, result, draw, options.watched_tol, stalled=options.watched_tol)
    carried = options.solver.carry(result.state)
    result = replace(result, state=None)  # what is not carried need not be held while the gradient is made
    slope = _slope(options, operator, result, targets, state.step)
    likelihood = gradient.log_marginal_likelihood(operator, result, targets)
    nu, adam = _move(options, operator, state, slope)
    seconds = time.perf_counter() - began
    record = _record(operator.theta, result, step=state.step, seconds=seconds, note=note)
    record = replace(
        record,
        log_marginal_likelihood=likelihood,
        gain=float(slope @ (nu - state.nu)) / (operator.n * problem.n_targets),
        metrics=validation_metrics(problem, trend, result.solution, functions_of(draw), result.factor),
    )
    return replace(
        state,
        step=state.step + 1,
        nu=nu,
        adam=adam,
        draw=draw,
        solution=result.solution,
        solution_theta=operator.theta,
        solver_state=carried,
        trend=trend,
        history=(*state.history, record),
        elapsed=state.elapsed + seconds,
    )


def _slope(
    options: TrainingOptions, operator: KernelOperator, result: SolveResult, targets: Tensor, step: int
) -> Tensor:
    """Returns ∂L/∂ν; raises where it is not finite."""
    gradient = options.gradient.gradient(operator, result, targets)
    if not bool(torch.isfinite(gradient).all()):
        precise = "" if operator.dtype == torch.float64 else 'dtype="float64", '
        raise FloatingPointError(
            f"the gradient at step {step} is not finite (residuals {result.residual_mean:.3g}, "
            f"{result.residual_probes:.3g}): use {precise}another solver, or a higher noise_floor"
        )
    return operator.theta.chain_rule(gradient)


def _move(
    options: TrainingOptions, operator: KernelOperator, state: TrainingState, slope: Tensor
) -> tuple[Tensor, Adam]:
    """Returns the next ν and Adam's moments."""
    stretch = operator.theta.vector.clamp_min(1.0) if options.relative_steps else 1.0
    nu, adam = state.adam.ascend(state.nu, options.allowed(slope, operator.theta), options.learning_rate * stretch)
    return options.held(nu), adam


def _record(theta: Hyperparameters, result: SolveResult, *, step: int, seconds: float, note: str) -> StepRecord:
    """Returns the record of a step, from what its solve says of itself."""
    return StepRecord(
        step=step,
        noise_scale=float(theta.noise_scale),
        signal_scale=float(theta.signal_scale),
        length_scales=tuple(theta.length_scales.tolist()),
        iterations=result.iterations,
        epochs=result.epochs,
        iteration_epochs=result.iteration_epochs,
        residual_mean=result.residual_mean,
        residual_probes=result.residual_probes,
        solver_seconds=result.seconds,
        step_seconds=seconds,
        converged=result.converged,
        stop_reason=result.stop_reason,
        notes=(note, *result.notes) if note else result.notes,
    )
