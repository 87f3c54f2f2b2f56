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
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from warmgp.adam import Adam
from warmgp.features import FeaturePrior
from warmgp.gradient import Exact, GradientEstimator, Pathwise, PathwiseDraw
from warmgp.hyperparameters import Hyperparameters, inverse_softplus
from warmgp.operators.base import KernelOperator
from warmgp.posterior import Posterior
from warmgp.solvers import Cholesky, Solver, SolveResult, StoppingRule
from warmgp.solvers.ap import BlockFactors
from warmgp.solvers.base import check_count, is_number
from warmgp.solvers.cholesky import CholeskyState
from warmgp.validation import validation_metrics

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes
    ----------
    solver : Solver
    gradient : GradientEstimator
    rule : StoppingRule
        For every solve, the final one included.
    n_steps, learning_rate
        Of Adam.
    warm_start : bool
    noise_floor : float
        σ is raised to it after a step; 0 for none.
    n_features : int
        Of the posterior's prior functions where training has none of its own (standard, exact).
    n_samples : int
        Posterior samples where training has no probes of its own (exact).
    """

    solver: Solver
    gradient: GradientEstimator
    rule: StoppingRule = field(default_factory=StoppingRule)
    n_steps: int = 100
    learning_rate: float = 0.1
    warm_start: bool = True
    noise_floor: float = 0.0
    n_features: int = 2000
    n_samples: int = 64

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps, least=0)
        if not (is_number(self.learning_rate) and math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate must be a positive number, got {self.learning_rate!r}")
        if not (is_number(self.noise_floor) and math.isfinite(self.noise_floor) and self.noise_floor >= 0):
            raise ValueError(f"noise_floor must be a number of at least 0, got {self.noise_floor!r}")
        if isinstance(self.gradient, Exact) and not isinstance(self.solver, Cholesky):
            raise ValueError(f'gradient="exact" needs solver="cholesky", got solver={self.solver.name!r}')

    @property
    def starts_warm(self) -> bool:
        """Whether a solve starts from the last solution. The exact gradient needs a factor, so it never does."""
        return self.warm_start and not isinstance(self.gradient, Exact)


@dataclass(frozen=True)
class StepRecord:
    """One outer step. The hyperparameters are the θ at which its solve ran."""

    step: int
    noise_scale: float
    signal_scale: float
    length_scales: tuple[float, ...]
    iterations: int
    epochs: float
    iteration_epochs: float
    residual_mean: float
    residual_probes: float
    solver_seconds: float
    step_seconds: float
    converged: bool
    stop_reason: str
    notes: tuple[str, ...] = ()
    log_marginal_likelihood: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """``record["noise_scale"]`` reads like ``record.noise_scale``."""
        return getattr(self, name)


@dataclass(frozen=True)
class TrainingState:
    """All that the next step needs, and a resume with it.

    Attributes
    ----------
    step : int
        Whole steps done.
    nu : Tensor
        Unconstrained parameters of the next solve.
    adam : Adam
    draw : Any
        What is random in the probes of the last solve.
    solution : Tensor or None
        Of the last solve, at ``solution_theta``.
    solver_state : Any
    history : tuple of StepRecord
    elapsed : float
        Seconds spent in steps.
    """

    step: int
    nu: Tensor
    adam: Adam
    draw: Any = None
    solution: Tensor | None = None
    solution_theta: Hyperparameters | None = None
    solver_state: Any = None
    history: tuple[StepRecord, ...] = ()
    elapsed: float = 0.0

    @property
    def theta(self) -> Hyperparameters:
        return Hyperparameters.from_unconstrained(self.nu)


Callback = Callable[[StepRecord, TrainingState], bool | None]
"""Called after every whole step; returning True ends the training after it."""


@dataclass(frozen=True)
class TrainingResult:
    """A trained model and how it came about."""

    posterior: Posterior
    final: SolveResult
    state: TrainingState
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
    """
    check_targets(operator, y)
    state = state or initial_state(operator, options)
    stopped = ""
    try:
        while state.step < options.n_steps:
            operator = operator.at(state.theta)
            state = take_step(operator, y, options, state, generator, validation)
            if _wants_stop(callbacks, state):
                stopped = "callback"
                break
    except KeyboardInterrupt:
        logger.warning("interrupted after %d of %d steps; solving once more", state.step, options.n_steps)
        stopped = "interrupted"
    except (FloatingPointError, torch.linalg.LinAlgError) as error:
        if state.solution is None or not _has_samples(state):
            raise
        logger.warning("step %d failed; keeping the model of the steps before it: %s", state.step, error)
        return TrainingResult(*_as_it_is(operator, state), state, f"failed: {error}")
    try:
        operator = operator.at(state.theta)  # and let the last step's H go
        posterior, final = finish(operator, y, options, state, generator)
    except KeyboardInterrupt:
        if state.solution is None or not _has_samples(state):
            raise
        logger.warning("interrupted again; using the solutions of step %d as they are", state.step)
        stopped = "interrupted"
        posterior, final = _as_it_is(operator, state)
    return TrainingResult(posterior, final, state, stopped)


def train_only(
    operator: KernelOperator,
    y: Tensor,
    options: TrainingOptions,
    *,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> TrainingState:
    """The steps alone, without the final solve: for hyperparameters that another training starts from."""
    check_targets(operator, y)
    state = initial_state(operator, options)
    while state.step < options.n_steps:
        state = take_step(operator.at(state.theta), y, options, state, generator)
        if _wants_stop(callbacks, state):
            break
    return state


def _wants_stop(callbacks: Sequence[Callback], state: TrainingState) -> bool:
    """Call every callback; whether one of them asked to stop."""
    answers = [callback(state.history[-1], state) for callback in callbacks]
    return any(answers)


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
    operator: KernelOperator,
    y: Tensor,
    options: TrainingOptions,
    state: TrainingState,
    generator: torch.Generator,
    validation: tuple[Tensor, Tensor] | None = None,
) -> TrainingState:
    """Solve at θ, estimate the gradient, move θ. Returns the next state."""
    began = time.perf_counter()
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
    theta = operator.theta
    gradient = options.gradient.gradient(operator, result, targets)
    if not bool(torch.isfinite(gradient).all()):
        raise FloatingPointError(
            f"the gradient at step {state.step} is not finite (residuals {result.residual_mean:.3g}, "
            f"{result.residual_probes:.3g}): use dtype=float64, another solver, or a higher noise_floor"
        )
    likelihood = None
    if isinstance(options.gradient, Exact):
        likelihood = options.gradient.log_marginal_likelihood(operator, result, targets)
    nu, adam = state.adam.ascend(state.nu, theta.chain_rule(gradient), options.learning_rate)
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
        notes=result.notes,
        log_marginal_likelihood=likelihood,
        metrics=validation_metrics(operator, result.solution, draw, *validation) if validation else {},
    )
    return replace(
        state,
        step=state.step + 1,
        nu=nu,
        adam=adam,
        draw=draw,
        solution=result.solution,
        solution_theta=theta,
        solver_state=_light(result.state),
        history=(*state.history, record),
        elapsed=state.elapsed + seconds,
    )


def finish(
    operator: KernelOperator,
    y: Tensor,
    options: TrainingOptions,
    state: TrainingState,
    generator: torch.Generator,
) -> tuple[Posterior, SolveResult]:
    """The last solve, at the final θ, and the posterior from it.

    Probes that are functions and were kept are used again, from their last solutions. Otherwise (standard or exact
    estimator, exact prior samples, no warm start) new random-feature functions are drawn, and only v_y starts warm.
    """
    n_features = options.gradient.n_features if isinstance(options.gradient, Pathwise) else options.n_features
    pathwise = Pathwise(options.gradient.n_probes or options.n_samples, n_features)
    start = None
    if options.starts_warm and _has_samples(state):
        draw, start = state.draw, state.solution
    else:
        draw = pathwise.draw(operator, generator)
        if options.starts_warm and state.solution is not None:
            start = torch.zeros(operator.n, 1 + pathwise.n_probes, dtype=operator.dtype, device=operator.device)
            start[:, 0] = state.solution[:, 0]
    final = options.solver.solve(
        operator,
        pathwise.targets(operator, y, draw),
        start,
        rule=options.rule,
        generator=generator,
        state=state.solver_state,
    )
    assert isinstance(draw.prior, FeaturePrior)
    exact = isinstance(options.gradient, Exact) and isinstance(final.state, CholeskyState)
    factor = final.state.factor if exact else None
    posterior = Posterior(operator.x, operator.kernel, operator.theta, final.solution, draw.prior, exact, factor)
    return posterior, replace(final, state=_light(final.state))


def _has_samples(state: TrainingState) -> bool:
    """Whether the last solutions are posterior samples that can be evaluated anywhere."""
    return isinstance(state.draw, PathwiseDraw) and isinstance(state.draw.prior, FeaturePrior)


def _as_it_is(operator: KernelOperator, state: TrainingState) -> tuple[Posterior, SolveResult]:
    """The posterior of the last step's solutions, at the θ that they belong to."""
    assert state.solution is not None and state.solution_theta is not None
    last = state.history[-1]
    posterior = Posterior(operator.x, operator.kernel, state.solution_theta, state.solution, state.draw.prior)
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
    return posterior, final


def _light(solver_state: Any) -> Any:
    """A solver's state without factors of one H: θ moves, and they weigh n² or n·b."""
    return None if isinstance(solver_state, CholeskyState | BlockFactors) else solver_state
