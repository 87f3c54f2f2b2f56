"""The outer loop: Adam on ν, one batch of solves a step, each started from the last one's solutions.

    step i:  H(θ_i) v = [y, probes]  →  ∂L/∂θ  →  Adam  →  θ_{i+1}

With warm starts the draw behind the probes is kept for the whole training and the last solution is the next start;
without them both are new at every step. After the last step one more solve at the final θ makes the posterior: the
solutions at hand still belong to the θ before it.

A step either happens whole or not at all: :class:`TrainingState` is replaced only at its end. So Ctrl-C at any moment
leaves the state of the last whole step, from which the model is finished as usual.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warmgp.gradient import Exact
from warmgp.hyperparameters import Hyperparameters, inverse_softplus
from warmgp.operators.base import KernelOperator
from warmgp.posterior import Posterior
from warmgp.solvers import SolveResult
from warmgp.solvers.ap import BlockFactors
from warmgp.training.accuracy import Accuracy
from warmgp.training.adam import Adam
from warmgp.training.finish import finish, light, model_before
from warmgp.training.precision import PrecisionLostError, in_float64, watch
from warmgp.training.problem import Problem
from warmgp.training.state import Callback, StepRecord, TrainingOptions, TrainingState, settled
from warmgp.training.validation import validation_metrics

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """A trained model and how it came about."""

    posterior: Posterior
    final: SolveResult
    state: TrainingState
    accuracy: Accuracy
    stopped_early: str = ""  # "callback", "interrupted" or "failed: why"

    @property
    def theta(self) -> Hyperparameters:
        return self.posterior.theta

    @property
    def history(self) -> tuple[StepRecord, ...]:
        return self.state.history


def train(
    operator: KernelOperator,
    y: Tensor,
    options: TrainingOptions,
    *,
    generator: torch.Generator,
    state: TrainingState | None = None,
    callbacks: Sequence[Callback] = (),
    validation: tuple[Tensor, Tensor] | None = None,
    promote: Callable[[], Problem] | None = None,
    original: tuple[Tensor, Tensor] | None = None,
) -> TrainingResult:
    """Maximise the marginal likelihood from the operator's θ and solve for the posterior.

    Parameters
    ----------
    operator : KernelOperator
        On the training inputs, at the initial θ.
    y : Tensor, (n,)
        Targets on the operator's device, in its dtype.
    options : TrainingOptions
    generator : torch.Generator
        On the CPU; every random number comes from it.
    state : TrainingState, optional
        Go on from here instead of the operator's θ.
    callbacks : sequence of Callback
    validation : (x, y), optional
        Held-out points in the units of training; every record then has their RMSE and, where the probes are functions,
        their mean log-likelihood, from the solutions of that step alone.
    promote : callable, optional
        Gives the same problem in float64. With it every solve in float32 is checked against float64 (see
        :mod:`warmgp.training.precision`), and the first that fails is done again in float64, from where it got to,
        like all solves after it. A posterior by a factor is float64, too.
    original : (x, y), optional
        The inputs and targets in float64, before they were rounded to the operator's dtype.
    """
    check_targets(operator, y)
    problem = Problem(operator, y, validation, original)
    state = state or initial_state(operator, options)
    _tell_resumed(callbacks, state)
    stopped = "callback" if _has_stopped(callbacks, state) else ""
    try:
        while _goes_on(state, options) and not stopped:
            problem, state = _next(problem, options, state, generator, promote)
            if _wants_stop(callbacks, state):
                stopped = "callback"
    except KeyboardInterrupt:
        logger.warning("interrupted after %d of %d steps; solving once more", state.step, options.n_steps)
        stopped = "interrupted"
    except (FloatingPointError, torch.linalg.LinAlgError) as error:
        if state.solution is None:
            raise
        error = error.with_traceback(None)  # whose frames would keep the step's H in memory
        logger.warning("step %d failed; keeping the model of the steps before it: %s", state.step, error)
        posterior, final, found = model_before(problem, options, state, generator)
        return TrainingResult(posterior, final, state, found, f"failed: {error}")
    try:
        problem = problem.at(state.theta)  # and let the last step's H go
        try:
            if promote is not None and options.exact_posterior and problem.operator.dtype == torch.float32:
                # for few points, where float64 costs next to nothing
                problem, state = promote().at(state.theta), in_float64(state)
            posterior, final, found = finish(problem, options, state, generator, watched=promote is not None)
        except (PrecisionLostError, FloatingPointError, torch.linalg.LinAlgError) as error:
            if promote is None or problem.operator.dtype != torch.float32:
                raise
            lost = _lost(error, state)
            logger.info("the last solve is done again in float64: %s", lost)
            again = lost.into(state)
            posterior, final, found = finish(promote().at(state.theta), options, again, generator)
            state = again.noted(f"the last solve in float64: {lost}")
    except KeyboardInterrupt:
        if state.solution is None:
            raise
        logger.warning("interrupted in the last solve; keeping the model of step %d", state.step)
        stopped = "interrupted"
        posterior, final, found = model_before(problem, options, state, generator)
    except (FloatingPointError, torch.linalg.LinAlgError) as error:
        if state.solution is None:
            raise
        error = error.with_traceback(None)
        logger.warning("the last solve failed; keeping the model of step %d: %s", state.step, error)
        stopped = f"failed: {error}"
        posterior, final, found = model_before(problem, options, state, generator)
    return TrainingResult(posterior, final, state, found, stopped)


def train_only(
    operator: KernelOperator,
    y: Tensor,
    options: TrainingOptions,
    *,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
    promote: Callable[[], Problem] | None = None,
    original: tuple[Tensor, Tensor] | None = None,
) -> TrainingState:
    """The steps alone, without the final solve: for hyperparameters that another training starts from."""
    check_targets(operator, y)
    state = initial_state(operator, options)
    problem = Problem(operator, y, original=original)
    while _goes_on(state, options):
        problem, state = _next(problem, options, state, generator, promote)
        if _wants_stop(callbacks, state):
            break
    return state


def _next(
    problem: Problem,
    options: TrainingOptions,
    state: TrainingState,
    generator: torch.Generator,
    promote: Callable[[], Problem] | None,
) -> tuple[Problem, TrainingState]:
    """One step, done again in float64 where float32 was not enough."""
    began = time.perf_counter()
    problem = problem.at(state.theta)
    try:
        return problem, take_step(problem, options, state, generator, watched=promote is not None)
    except (PrecisionLostError, FloatingPointError, torch.linalg.LinAlgError) as error:
        if promote is None or problem.operator.dtype != torch.float32:
            raise
        lost = _lost(error, state)
    logger.info("step %d goes on in float64: %s", state.step, lost)
    problem = promote().at(state.theta)
    seconds, note = time.perf_counter() - began, f"float64 from here on: {lost}"
    again = take_step(problem, options, lost.into(state), generator, note=note)
    return problem, again.charged(lost.epochs, seconds)


def _lost(error: Exception, state: TrainingState) -> PrecisionLostError:
    """What float32 got to, without the error's traceback, whose frames would keep its H in memory."""
    error = error.with_traceback(None)
    if isinstance(error, PrecisionLostError):
        return error
    return PrecisionLostError(f"float32 failed: {error}", state.solution, state.draw)


def _goes_on(state: TrainingState, options: TrainingOptions) -> bool:
    return state.step < options.n_steps and not (options.settle and settled(state.history))


def _wants_stop(callbacks: Sequence[Callback], state: TrainingState) -> bool:
    """Call every callback; whether one of them asked to stop."""
    answers = [callback(state.history[-1], state) for callback in callbacks]
    return any(answers)


def _tell_resumed(callbacks: Sequence[Callback], state: TrainingState) -> None:
    """Let callbacks that keep something outside, such as a log, bring it to where a resumed training goes on."""
    for callback in callbacks:
        if state.history and hasattr(callback, "resumed"):
            callback.resumed(state)


def _has_stopped(callbacks: Sequence[Callback], state: TrainingState) -> bool:
    """Whether a resumed training has ended before, by callbacks that can tell from its history."""
    tellers = [callback.has_stopped for callback in callbacks if hasattr(callback, "has_stopped")]
    return bool(state.history) and any(has_stopped(state) for has_stopped in tellers)


def initial_state(operator: KernelOperator, options: TrainingOptions) -> TrainingState:
    """The state before the first step, at the operator's θ."""
    theta = operator.theta.with_noise_floor(options.noise_floor)
    return TrainingState(0, theta.unconstrained, Adam.zeros(theta.vector.numel()))


def check_targets(operator: KernelOperator, y: Tensor) -> None:
    """Raise unless y fits the operator."""
    if y.shape != (operator.n,):
        raise ValueError(f"y must have shape ({operator.n},) like the rows of x, got {tuple(y.shape)}")
    if y.dtype != operator.dtype or y.device != operator.device:
        raise ValueError(f"y must be {operator.dtype} on {operator.device} like x, got {y.dtype} on {y.device}")
    if not bool(torch.isfinite(operator.x).all()):
        raise ValueError("x must be finite, got NaN or infinity")
    if not bool(torch.isfinite(y).all()):
        raise ValueError("y must be finite, got NaN or infinity")


def take_step(
    problem: Problem,
    options: TrainingOptions,
    state: TrainingState,
    generator: torch.Generator,
    *,
    watched: bool = False,
    note: str = "",
) -> TrainingState:
    """Solve at θ, estimate the gradient, move θ. Returns the next state.

    ``watched`` raises :class:`PrecisionLostError` where float32 is not enough. ``note`` goes into the record.
    """
    began = time.perf_counter()
    operator, y = problem.operator, problem.y
    fresh = state.draw is None or not options.warm_start
    draw = options.gradient.draw(operator, generator) if fresh else state.draw
    targets = options.gradient.targets(operator, y, draw)
    result = options.solver.solve(
        operator,
        targets,
        state.solution if options.starts_warm else None,
        rule=options.rule,
        generator=generator,
        state=state.solver_state,
    )
    if watched:
        watch(problem, targets, result, draw, options.rule.tol)
    kept = light(result.state)
    if isinstance(result.state, BlockFactors):
        result = replace(result, state=kept)  # else block inverses are held while the gradient is made
    theta = operator.theta
    gradient = options.gradient.gradient(operator, result, targets)
    if not bool(torch.isfinite(gradient).all()):
        precise = "" if operator.dtype == torch.float64 else 'dtype="float64", '
        raise FloatingPointError(
            f"the gradient at step {state.step} is not finite (residuals {result.residual_mean:.3g}, "
            f"{result.residual_probes:.3g}): use {precise}another solver, or a higher noise_floor"
        )
    likelihood = None
    if isinstance(options.gradient, Exact):
        likelihood = options.gradient.log_marginal_likelihood(operator, result, targets)
    slope = theta.chain_rule(gradient)
    stretch = theta.vector.clamp_min(1.0) if options.relative_steps else 1.0
    nu, adam = state.adam.ascend(state.nu, slope, options.learning_rate * stretch)
    if options.noise_floor:
        nu[0] = torch.maximum(nu[0], inverse_softplus(torch.tensor(options.noise_floor, dtype=torch.float64)))
    seconds = time.perf_counter() - began
    record = StepRecord(
        step=state.step,
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
        log_marginal_likelihood=likelihood,
        gain=float(slope @ (nu - state.nu)) / operator.n,
        metrics=validation_metrics(operator, result.solution, draw, *problem.held_out) if problem.held_out else {},
    )
    return replace(
        state,
        step=state.step + 1,
        nu=nu,
        adam=adam,
        draw=draw,
        solution=result.solution,
        solution_theta=theta,
        solver_state=kept,
        history=(*state.history, record),
        elapsed=state.elapsed + seconds,
    )
