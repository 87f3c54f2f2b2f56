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
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator
from warmgp.operators.part import Part
from warmgp.posterior import Posterior
from warmgp.solvers import SolveResult
from warmgp.training.accuracy import Accuracy
from warmgp.training.last_solve import Finished, finish, model_before
from warmgp.training.precision import FROM_HERE_ON, LAST_SOLVE, PrecisionLostError, foresee
from warmgp.training.problem import Problem
from warmgp.training.settling import settled
from warmgp.training.state import Callback, StepRecord, TrainingOptions, TrainingState
from warmgp.training.step import initial_state, take_step
from warmgp.training.vouched_noise import least_noise, own_roots

logger = logging.getLogger(__name__)

LAST_STEPS = 6.0
"""Steps that take as long as the last solve: the time that a limit leaves for it."""

VOUCHED = 0.3
"""How much less noise than is vouched for a model may have: another solve costs more than that is worth."""

FAILURES = (FloatingPointError, torch.linalg.LinAlgError)
"""Errors that a step or a solve raises where numbers, not code, are the reason."""


@dataclass(frozen=True)
class TrainingResult:
    """Holds a trained model and how it came about."""

    posterior: Posterior
    final: SolveResult
    state: TrainingState
    accuracy: Accuracy
    stopped_early: str = ""  # "callback", "interrupted" or "failed: why"
    noise_found: float | None = None  # the σ that training ended at, where more had to be vouched for

    @property
    def theta(self) -> Hyperparameters:
        """The posterior's θ."""
        return self.posterior.theta

    @property
    def history(self) -> tuple[StepRecord, ...]:
        """The records of all steps."""
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
    """Maximises the marginal likelihood from the operator's θ and solves for the posterior.

    Parameters
    ----------
    operator : KernelOperator
        H on the training inputs, at the initial θ.
    y : Tensor, (n,) or (n, q)
        Targets on the operator's device, in its dtype.
    options : TrainingOptions
    generator : torch.Generator
        On the CPU; every random number comes from it.
    state : TrainingState, optional
        The state to go on from, instead of the operator's θ.
    callbacks : sequence of Callback
    validation : (x, y), optional
        Held-out points in the units of training; every record then has their RMSE and, where the probes are functions,
        their mean log-likelihood, from the solutions of that step alone.
    promote, original
        See :class:`Problem`.
    """
    problem = Problem(operator, y, validation, original, promote)
    return train_problem(problem, options, generator=generator, state=state, callbacks=callbacks)


def train_problem(
    problem: Problem,
    options: TrainingOptions,
    *,
    generator: torch.Generator,
    state: TrainingState | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainingResult:
    """Trains as :func:`train` does, on a problem that is made already."""
    problem.check()
    options = options.for_targets(problem.n_targets)
    state = state or initial_state(problem.operator, options)
    part = problem.operator.part
    stopped = "callback" if part.by_first(partial(_resumed, callbacks, state)) else ""
    try:
        while _goes_on(part, state, options) and not stopped:
            try:
                problem, state = _next(problem, options, state, generator)
            except FAILURES as error:
                return _kept(error, f"step {state.step}", problem, options, state, generator)
            stopped = "callback" if _call_back(part, callbacks, state) else ""
        if not stopped and _wants_more(state, options):
            stopped = "time"
    except KeyboardInterrupt:
        logger.warning("interrupted after %d of %d steps; solving once more", state.step, options.n_steps)
        stopped = "interrupted"
    try:
        problem, state = _ready(problem, options, state)
        state, made = _last(problem, options, state, generator)
    except (KeyboardInterrupt, *FAILURES) as error:
        return _kept(error, "the last solve", problem, options, state, generator)
    found = TrainingResult(made.posterior, made.final, state, made.accuracy, stopped)
    return _vouched(problem, options, found, made.draw, generator)


def train_only(
    problem: Problem, options: TrainingOptions, *, generator: torch.Generator, callbacks: Sequence[Callback] = ()
) -> TrainingState:
    """Takes the steps alone, without the final solve: for hyperparameters that another training starts from."""
    problem.check()
    options = options.for_targets(problem.n_targets)
    state = initial_state(problem.operator, options)
    part = problem.operator.part
    while _goes_on(part, state, options):
        problem, state = _next(problem, options, state, generator)
        if _call_back(part, callbacks, state):
            break
    return state


# -- steps -----------------------------------------------------------------------------------------------------------
def _next(
    problem: Problem, options: TrainingOptions, state: TrainingState, generator: torch.Generator
) -> tuple[Problem, TrainingState]:
    """Takes one step, again in float64 where float32 was not enough."""
    began = time.perf_counter()
    problem = problem.moved_to(state.theta)
    try:
        foresee(problem, options, state)
        return problem, take_step(problem, options, state, generator)
    except (PrecisionLostError, *FAILURES) as error:
        if not problem.watched:
            raise
        lost = _lost(error, state)
    logger.info("step %d goes on in float64: %s", state.step, lost)
    problem = problem.in_float64_at(state.theta)
    seconds, note = time.perf_counter() - began, f"{FROM_HERE_ON}{lost}"
    again = take_step(problem, options, lost.into(state, options), generator, note=note)
    return problem, again.charged(lost.epochs, seconds)


def _ready(problem: Problem, options: TrainingOptions, state: TrainingState) -> tuple[Problem, TrainingState]:
    """Returns problem and state for the last solve: at the final θ, and in float64 where that is by a factor of H."""
    if problem.watched and options.exact_posterior:  # for few points, where float64 costs next to nothing
        return problem.in_float64_at(state.theta), state.in_float64(options)
    return problem.moved_to(state.theta), state  # the last step's H goes


def _last(
    problem: Problem, options: TrainingOptions, state: TrainingState, generator: torch.Generator
) -> tuple[TrainingState, Finished]:
    """Solves at the final θ, again in float64 where float32 was not enough."""
    began = time.perf_counter()
    try:
        if options.last_epochs is None:  # else the last solve knows what rounding leaves
            foresee(problem, options, state)
        return state, finish(problem, options, state, generator)
    except (PrecisionLostError, *FAILURES) as error:
        if not problem.watched:
            raise
        lost = _lost(error, state)
    logger.info("the last solve is done again in float64: %s", lost)
    spent, reason = time.perf_counter() - began, str(lost)
    again = lost.into(state, options)
    del lost, state  # whose solutions are in float32, and in the way
    double = replace(problem.in_float64_at(again.theta), single=problem.operator)
    made = finish(double, options, again, generator)
    made = replace(made, final=replace(made.final, seconds=made.final.seconds + spent))
    return again.noted(f"{LAST_SOLVE}{reason}"), made


def _vouched(
    problem: Problem, options: TrainingOptions, found: TrainingResult, draw: Any, generator: torch.Generator
) -> TrainingResult:
    """Returns a model with as much noise as is vouched for by more than a few rows: solved for once more, from its own
    solutions, where training found less.

    Whatever ends that, no time or memory for it among others, leaves the model as it is; so does a second solve that
    comes less close than the first one did, and a first one that has not converged, whose solutions of samples are too
    small to tell.
    """
    part, theta, posterior = problem.operator.part, found.theta, found.posterior
    done = found.final.converged and found.stopped_early != "interrupted"
    if not (options.vouched_share and posterior.n_samples and done):
        return found
    roots = own_roots(posterior.solution[:, posterior.n_targets :])
    least = part.agreed(least_noise(roots, posterior.noise, options.vouched_share))
    rule = replace(options.rule, until=options.until)
    if float(theta.noise_scale) >= (1 - VOUCHED) * least or not part.agreed(rule.in_time(found.final.seconds)):
        return found
    logger.info("the noise is raised from %.3g to %.3g, and solved for once more", float(theta.noise_scale), least)
    raised = Hyperparameters(torch.tensor(least, dtype=torch.float64), theta.signal_scale, theta.length_scales)
    promoted = posterior.x.dtype != problem.operator.dtype  # more noise may do without float64
    state = replace(
        found.state.without_note(LAST_SOLVE),
        nu=raised.unconstrained,
        solution=found.final.solution.to(problem.operator.dtype),
        solution_theta=theta,
        draw=None if promoted else draw,
        solver_state=None,
    )
    try:
        problem, state = _ready(problem, options, state)
        state, made = _last(problem, options, state, generator)
    except (KeyboardInterrupt, MemoryError, RuntimeError, *FAILURES) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        spared = part.alone and _no_memory(error)  # of several processes the others would wait for this one
        if not (interrupted or spared or isinstance(error, FAILURES)):
            raise
        logger.warning("the noise stays as it was found: %s", str(error.with_traceback(None)) or type(error).__name__)
        return replace(found, stopped_early="interrupted" if interrupted else found.stopped_early)
    final = made.final.after(found.final)
    if not made.final.converged or (found.accuracy.suffices and not made.accuracy.suffices):
        logger.info("the noise stays as it was found: the solve with more has not converged (%s)", final.stop_reason)
        return replace(found, final=found.final.after(made.final))
    return replace(
        found, posterior=made.posterior, final=final, state=state, accuracy=made.accuracy,
        noise_found=float(theta.noise_scale),
    )  # fmt: skip


def _no_memory(error: BaseException) -> bool:
    """Says whether an error is about memory: torch raises a plain RuntimeError for that of a CPU."""
    told = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "memory" in told or "alloc" in told


def _lost(error: Exception, state: TrainingState) -> PrecisionLostError:
    """Returns what float32 got to, without the error's traceback, whose frames would keep its H in memory."""
    error = error.with_traceback(None)
    if isinstance(error, PrecisionLostError):
        return error
    return PrecisionLostError(f"float32 failed: {error}", state.solution, state.draw)


def _kept(
    error: BaseException,
    what: str,
    problem: Problem,
    options: TrainingOptions,
    state: TrainingState,
    generator: torch.Generator,
) -> TrainingResult:
    """Keeps the model of the steps before an error, or raises it where there is none."""
    if state.solution is None or not state.history:  # what an update starts from is no model yet
        raise error
    error = error.with_traceback(None)  # whose frames would keep the step's H in memory
    interrupted = isinstance(error, KeyboardInterrupt)
    told = "was interrupted" if interrupted else f"failed: {error}"
    logger.warning("%s %s; keeping the model of the %d steps before", what, told, state.step)
    made = model_before(problem, options, state, generator)
    stopped = "interrupted" if interrupted else f"failed: {error}"
    return TrainingResult(made.posterior, made.final, state, made.accuracy, stopped)


def _goes_on(part: Part, state: TrainingState, options: TrainingOptions) -> bool:
    """Says whether another step is to be taken: it is wanted, and leaves time for the last solve."""
    step = state.history[-1].step_seconds if state.history else 0.0
    in_time = options.until is None or options.rule_of(state.solution).in_time((1.0 + LAST_STEPS) * step)
    return _wants_more(state, options) and (options.until is None or part.agreed(in_time))


def _wants_more(state: TrainingState, options: TrainingOptions) -> bool:
    """Says whether there are steps left, and the likelihood has not settled."""
    return state.step < options.n_steps and not (options.settle and settled(state.history))


# -- callbacks -------------------------------------------------------------------------------------------------------
def _call_back(part: Part, callbacks: Sequence[Callback], state: TrainingState) -> bool:
    """Calls every callback; returns whether one of them asked to stop.

    Of several processes rank 0 alone has callbacks, and an error of theirs is raised by all; but each has those that
    say they are ``everywhere``, which exchange something and come first. States have the rows of their process.
    """
    record = state.history[-1]
    stops = [callback(record, state) for callback in callbacks if _everywhere(callback)]

    def answer() -> bool:
        answers = [callback(record, state) for callback in callbacks if not _everywhere(callback)]
        return any((*stops, *answers))

    return part.by_first(answer)


def _everywhere(callback: Callback) -> bool:
    """Says whether a callback is one of every process."""
    return bool(getattr(callback, "everywhere", False))


def _resumed(callbacks: Sequence[Callback], state: TrainingState) -> bool:
    """Tells callbacks where a resumed training goes on, so that one that keeps something outside, such as a log, brings
    it to there; returns whether it has ended before, by callbacks that can tell from its history."""
    if not state.history:
        return False
    for callback in callbacks:
        if hasattr(callback, "resumed"):
            callback.resumed(state)
    tellers = [callback.has_stopped for callback in callbacks if hasattr(callback, "has_stopped")]
    return any(has_stopped(state) for has_stopped in tellers)
