"""The options of training, its state between two steps, and the records of its steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count, check_features, check_learning_rate, check_noise_floor
from warmgp.gradient import GradientEstimator
from warmgp.hyperparameters import Hyperparameters, inverse_softplus
from warmgp.kernels import Kernel
from warmgp.solvers import Solver, StoppingRule
from warmgp.training.adam import Adam
from warmgp.training.limits import LEAST
from warmgp.training.ratio import along, within
from warmgp.trend import TrendSolution

MEAN_SHARE, SAMPLES_SHARE = 0.03, 0.2
"""Shares of the noise scale that root mean square residuals of the last solve aim for, where it can: of the mean
system, and of the posterior functions. A residual of a function adds its square to a variance, 4% of σ², which costs
less than 0.001 nats a point; one of the mean moves every prediction."""


BUDGETED = 4.0
"""How many times the tolerance the residual of a solve on a budget may be without doubts about float32."""

TINY = 1e-300
"""Stands for the size of a target that is zero."""


@dataclass(frozen=True)
class TrainingOptions:
    """Says how to train.

    Attributes
    ----------
    solver : Solver
    gradient : GradientEstimator
    rule : StoppingRule
        When a solve may stop, the final one included.
    n_steps, learning_rate
        Steps of Adam, and their size.
    warm_start : bool
        Whether a solve starts from the last solution, with the same probes.
    noise_floor : float
        The least σ, to which it is raised at the start and after a step; 0 for none.
    learn_noise : bool
        Whether σ is learned; otherwise it stays at ``noise_floor``, and noise is what is known of each row.
    signal_ratio : float
        The most times that the signal may be the noise: it is cut to that at the start
        (:meth:`Hyperparameters.with_signal_within`), and steps stay within (:mod:`warmgp.training.ratio`).
    n_features : int
        Features of the posterior's prior functions where training has none of its own (standard, exact).
    n_samples : int
        Posterior samples where training has no probes of its own (exact).
    relative_steps : bool
        Whether a step changes a hyperparameter above 1 by a share of itself, not by an amount, as if in log θ: the
        length scales of inputs that do not matter get out of the way ten times sooner. The paper's steps are not
        relative.
    settle : bool
        Whether to stop before ``n_steps`` once the likelihood is expected to rise no more
        (:mod:`warmgp.training.settling`).
    exact_posterior : bool
        Whether the last solve is by a Cholesky factor of H, and variances come from it, whatever trained.
    factor_last : bool
        Whether the last solve may be by a Cholesky factor of H where iterations in float64 would be needed.
    first_epochs, last_epochs : float or None
        Budgets in epochs of the first solve, which has nothing to start from, and of the last one, in the place of the
        rule's; None for the rule's.
    refine : bool
        Whether any solver goes on in the last solve, where there is no budget, until what is left is small beside the
        noise; otherwise only one that gets there cheaply does. The paper's last solve is like every other.
    vouched_share : float
        The least σ of the model, as a share of what the best known rows are known to by all others, to which it is
        raised after the last step (:mod:`warmgp.training.vouched_noise`); 0 for none.
    tied : tuple of int
        The group of each length scale: those of one group are equal, and move together. Empty where each moves alone.
    until : float or None
        The moment, by ``time.perf_counter()``, at which training should be over; None for no such moment.
    """

    solver: Solver
    gradient: GradientEstimator
    rule: StoppingRule = field(default_factory=StoppingRule)
    n_steps: int = 100
    learning_rate: float = 0.1
    warm_start: bool = True
    noise_floor: float = 0.0
    learn_noise: bool = True
    signal_ratio: float = math.inf
    n_features: int = 2000
    n_samples: int = 64
    relative_steps: bool = False
    settle: bool = False
    exact_posterior: bool = False
    factor_last: bool = False
    refine: bool = False
    until: float | None = None
    first_epochs: float | None = None
    last_epochs: float | None = None
    vouched_share: float = 0.0
    tied: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps, least=0)
        check_count("n_samples", self.n_samples)
        check_features(self.n_features)
        check_learning_rate(self.learning_rate)
        check_noise_floor(self.noise_floor)
        if self.gradient.needs_factor and not self.solver.leaves_factor:
            raise ValueError(
                f'gradient="{self.gradient.name}" needs solver="cholesky", got solver={self.solver.name!r}'
            )

    def for_targets(self, n_targets: int) -> TrainingOptions:
        """Returns the same options for solves whose first systems are those of so many targets."""
        if self.rule.n_targets == n_targets:
            return self
        return replace(self, rule=replace(self.rule, n_targets=n_targets))

    def allowed(self, slope: Tensor, theta: Hyperparameters) -> Tensor:
        """Returns a slope ∂L/∂ν at θ as Adam is to be given it: along the limit of signal and noise where that is
        reached, and tied length scales all have the sum of their slopes.

        The sum is the slope by what they share. Adam's steps do not depend on the scale of a slope, and equal slopes
        from equal moments move equal numbers by the same bits.
        """
        if self.learn_noise:
            slope = along(slope, theta, self.signal_ratio, self.noise_floor)
        if not self.tied:
            return slope
        group = torch.tensor(self.tied)
        sums = torch.zeros(max(self.tied) + 1, dtype=slope.dtype).index_add_(0, group, slope[2:])
        return torch.cat([slope[:2], sums[group]])

    def begun(self, theta: Hyperparameters, kernel: Kernel) -> Tensor:
        """Returns the ν that training starts from, for a start at θ: within the limits, with the kernel at short
        distances as it is."""
        if self.learn_noise:
            floored = theta.with_noise_floor(self.noise_floor)
        else:
            floored = replace(theta, noise_scale=torch.tensor(self.noise_floor or LEAST, dtype=torch.float64))
        return self.held(floored.with_signal_within(self.signal_ratio, kernel.follow).unconstrained)

    def held(self, nu: Tensor) -> Tensor:
        """Returns ν within the limits: the noise floor, the ratio of signal and noise, and ties as the first of each
        group has it."""
        if self.tied:
            nu = torch.cat([nu[:2], nu[2:][[self.tied.index(group) for group in self.tied]]])
        if self.noise_floor or not self.learn_noise:
            nu, floor = nu.clone(), inverse_softplus(torch.tensor(self.noise_floor or LEAST, dtype=torch.float64))
            nu[0] = torch.maximum(nu[0], floor) if self.learn_noise else floor
        if math.isinf(self.signal_ratio):
            return nu
        theta = Hyperparameters.from_unconstrained(nu)
        nearest = within(theta, self.signal_ratio, learn_noise=self.learn_noise)
        return nu if nearest is theta else nearest.unconstrained

    @property
    def starts_warm(self) -> bool:
        """Whether a solve starts from the last solution. It never does where the gradient needs a factor."""
        return self.warm_start and not self.gradient.needs_factor

    @property
    def watched_tol(self) -> float:
        """The residual of a step in float32 up to which float64 is not asked for: more than the tolerance where there
        is a budget, which may leave as much."""
        return self.rule.tol * (1.0 if self.rule.max_epochs is None else BUDGETED)

    def rule_of(self, solution: Tensor | None) -> StoppingRule:
        """Returns the rule of a step that starts from these solutions, or from nothing."""
        first = solution is None and self.first_epochs is not None
        return replace(self.rule, max_epochs=self.first_epochs if first else self.rule.max_epochs, until=self.until)

    def last_rule(
        self,
        theta: Hyperparameters,
        n: int,
        sizes: Tensor,
        share: float = MEAN_SHARE,
        others: float = SAMPLES_SHARE,
        unit: float | None = None,
    ) -> StoppingRule:
        """Returns the rule that the last solve of n rows hopes to meet: what is left is then small beside the noise.

        A residual r moves a prediction by k(·, x)H⁻¹r, which may be as large as r itself. Where noise is low, 1% of
        the targets is more than the posterior's standard deviation. The rule's own tolerance stays where going on costs
        the solver much, unless ``refine`` asks for it and there is no budget. ``sizes`` are the root mean squares of
        what is solved for, by system, (q + s,). ``share`` is that of the targets, of which the largest counts,
        ``others`` that of the samples, both in units of σ or, where rows have noise of their own, of ``unit``.
        """
        epochs = self.rule.max_epochs if self.last_epochs is None else self.last_epochs
        dear = self.solver.refines_within(n) == 0 and self.last_epochs is None
        if dear and not (self.refine and epochs is None):
            return replace(self.rule, until=self.until)
        own, probes = sizes.tensor_split((self.rule.n_targets,))
        largest = float(probes.max()) if len(probes) else 0.0
        sigma = float(theta.noise_scale) if unit is None else unit
        shares = (share * sigma / max(float(own.max()), TINY), others * sigma / max(largest, TINY))
        tol, probes_tol = (min(self.rule.tol, hoped) for hoped in shares)
        return StoppingRule(tol, epochs, probes_tol, self.until, self.rule.n_targets)


@dataclass(frozen=True)
class StepRecord:
    """Records one outer step. The hyperparameters are the θ at which its solve ran."""

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
    gain: float = math.inf  # ∂L/∂ν · Δν / nq: what the step should add to the log-likelihood per point and target
    metrics: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Returns a field by its name: ``record["noise_scale"]`` is ``record.noise_scale``."""
        return getattr(self, name)


def record_without_solve(theta: Hyperparameters, step: int, likelihood: float, seconds: float) -> StepRecord:
    """Returns a record of a step that solves nothing: at θ, with what it makes of the log-likelihood of all points."""
    return StepRecord(
        step=step,
        noise_scale=float(theta.noise_scale),
        signal_scale=float(theta.signal_scale),
        length_scales=tuple(theta.length_scales.tolist()),
        iterations=0,
        epochs=0.0,
        iteration_epochs=0.0,
        residual_mean=0.0,
        residual_probes=0.0,
        solver_seconds=0.0,
        step_seconds=seconds,
        converged=True,
        stop_reason="",
        log_marginal_likelihood=likelihood,
    )


@dataclass(frozen=True)
class TrainingState:
    """Holds all that the next step needs, and a resume with it.

    Attributes
    ----------
    step : int
        Whole steps done.
    nu : Tensor
        Unconstrained parameters ν of the next solve.
    adam : Adam
    draw : Any
        What is random in the probes of the last solve.
    solution : Tensor or None
        Solutions of the last solve, (n, q + s), at ``solution_theta``. Of several processes each has its own rows, of
        these, of the draw and of the trend.
    solver_state : Any
    trend : TrendSolution or None
        The solutions of the trend's systems and its coefficients, where there is a trend.
    history : tuple of StepRecord
    elapsed : float
        Seconds spent so far: in steps, and in a start on part of the data.
    """

    step: int
    nu: Tensor
    adam: Adam
    draw: Any = None
    solution: Tensor | None = None
    solution_theta: Hyperparameters | None = None
    solver_state: Any = None
    trend: TrendSolution | None = None
    history: tuple[StepRecord, ...] = ()
    elapsed: float = 0.0

    @property
    def theta(self) -> Hyperparameters:
        """The θ = softplus(ν) of the next solve."""
        return Hyperparameters.from_unconstrained(self.nu)

    def in_float64(self, options: TrainingOptions) -> TrainingState:
        """Returns the state with solutions and probes in float64, and what the solver keeps of its own then."""
        return replace(
            self,
            solution=None if self.solution is None else self.solution.double(),
            draw=options.gradient.in_float64(self.draw),
            solver_state=options.solver.in_float64(self.solver_state),
            trend=None if self.trend is None else self.trend.in_float64(),
        )

    def by_rows(self, gradient: GradientEstimator, change: Callable[[Tensor], Tensor]) -> TrainingState:
        """Returns the state with other rows: ``change`` makes them of every array that it holds by rows."""
        trend = self.trend
        return replace(
            self,
            solution=None if self.solution is None else change(self.solution),
            draw=gradient.by_rows(self.draw, change),
            trend=None if trend is None else replace(trend, solution=change(trend.solution)),
        )

    def noted(self, note: str) -> TrainingState:
        """Returns the state with a note in its last record, if there is one."""
        return self._with_last(notes=(*self.history[-1].notes, note)) if self.history else self

    def without_note(self, beginning: str) -> TrainingState:
        """Returns the state whose last record has no note that begins like this."""
        if not self.history:
            return self
        kept = tuple(note for note in self.history[-1].notes if not note.startswith(beginning))
        return self if len(kept) == len(self.history[-1].notes) else self._with_last(notes=kept)

    def charged(self, epochs: float, seconds: float) -> TrainingState:
        """Returns the state with the cost of a lost attempt, in epochs and seconds, added to its last record."""
        last = self.history[-1]
        dearer = self._with_last(
            epochs=last.epochs + epochs,
            solver_seconds=last.solver_seconds + seconds,
            step_seconds=last.step_seconds + seconds,
        )
        return replace(dearer, elapsed=self.elapsed + seconds)

    def _with_last(self, **changes: Any) -> TrainingState:
        return replace(self, history=(*self.history[:-1], replace(self.history[-1], **changes)))


Callback = Callable[[StepRecord, TrainingState], bool | None]
"""A function called after every whole step; where it returns True, the training ends after that step."""
