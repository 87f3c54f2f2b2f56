"""The start of a training: from a plan to the state before the first step."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import replace

import torch

from warmgp.gradient import Exact, Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.planning.estimates import usual_steps
from warmgp.planning.plan import Plan, duration
from warmgp.processes import current_team
from warmgp.training.bars import StartBar, TrainingBar
from warmgp.training.exact_climb import INSTEAD_OF_GROUPS, ExactClimb, climbed_on, climbed_start, start_at_waves
from warmgp.training.fine_structure import finer
from warmgp.training.initialisation import N_CENTROIDS, N_STEPS, sample_start, subset_heuristic
from warmgp.training.kernel_choice import rough_start
from warmgp.training.limits import Limits
from warmgp.training.local_start import local_start
from warmgp.training.near_start import near_start
from warmgp.training.prior import Prior
from warmgp.training.problem import Problem
from warmgp.training.rehearsal import rehearse
from warmgp.training.state import Callback, TrainingOptions, TrainingState
from warmgp.training.step import initial_state

logger = logging.getLogger(__name__)

START_SHARE = 0.4
"""The share of the time that is left in which a start on part of the data has to end."""

MANY_INPUTS = 30
"""The inputs above which a training on a sample does not begin at ones."""

LONG = 60.0
"""Seconds from which on it is said beforehand how long a training should take."""


def announce(plan: Plan, n: int, done: int = 0, *, shown: bool = False) -> None:
    """Logs how long a training of n points should take, of which so many steps are done, where that is long.

    Unless a bar shows it, one line is a warning, which Python prints where nobody has asked for logs.
    """
    if expected := expected_time(plan, done):
        told = " ".join(str(plan).splitlines())
        logger.info("training %s points on %s takes %s: %s", f"{n:,}", plan.device, expected, told)
        if not shown:
            logger.warning(
                "this fit takes %s: model.plan(X) says why, verbose=True shows a bar, time_limit= makes it shorter%s",
                expected, several_gpus(plan),
            )  # fmt: skip


def several_gpus(plan: Plan) -> str:
    """Returns how more than one GPU is used, where they are here and are not: "" else."""
    count = torch.cuda.device_count() if plan.device.type == "cuda" and current_team() is None else 0
    return f"; {count} GPUs share the work under torchrun --nproc-per-node={count}" if count > 1 else ""


def expected_time(plan: Plan, done: int = 0) -> str:
    """Returns how long a training should take after so many steps, "about 16 min" say; "" where that is not long."""
    steps = usual_steps(plan)
    left = plan.estimated_seconds * (1 - min(done, steps) / (steps + 1))  # a last solve comes after the steps
    return f"about {duration(left)}" if left > LONG else ""


def training_bar(plan: Plan, done: int) -> TrainingBar:
    """Returns the bar of a training of which so many steps are done, with the time that it should take if long."""
    return TrainingBar(plan.n_steps, _title("training", expected_time(plan, done)), done)


def _title(*parts: str) -> str:
    """Returns what stands before a bar."""
    return ", ".join(part for part in parts if part)


def options_of(
    plan: Plan,
    *,
    warm_start: bool,
    noise_floor: float,
    n_samples: int,
    learn_noise: bool = True,
    until: float | None = None,
    vouched_share: float = 0.0,
) -> TrainingOptions:
    """Returns a plan, and what of the estimator's parameters is no decision of it, as training takes them."""
    return TrainingOptions(
        plan.solver,
        plan.gradient,
        rule=plan.rule,
        n_steps=plan.n_steps,
        learning_rate=plan.learning_rate,
        warm_start=warm_start,
        noise_floor=noise_floor,
        learn_noise=learn_noise,
        signal_ratio=plan.signal_ratio,
        n_features=plan.n_features,
        n_samples=n_samples,
        relative_steps=plan.relative_steps,
        settle=plan.settle,
        exact_posterior=plan.exact_posterior,
        factor_last=plan.factor_last and until is None,  # a factor cannot be ended in time
        refine=True,
        until=until,
        vouched_share=vouched_share,
        first_epochs=plan.first_epochs,
        last_epochs=plan.last_epochs,
    )


def begin(
    plan: Plan,
    options: TrainingOptions,
    problem: Problem,
    given: Hyperparameters | None,
    *,
    generator: torch.Generator,
    verbose: bool = False,
    chosen: Hyperparameters | None = None,
) -> TrainingState:
    """Returns the state before the first step; its ``elapsed`` has the seconds that it took.

    The problem's own θ is where a start from ones, or on a sample, begins; it also says how many length scales there
    are. ``given`` replaces it. ``chosen`` is where the choice of a kernel ended, if there was one. A GPU's kernels are
    compiled meanwhile.
    """
    began = time.perf_counter()
    rehearse(problem, options, given or chosen or problem.operator.theta)
    state = _begun(plan, options, problem, given, generator=generator, verbose=verbose, chosen=chosen)
    rehearse(problem, options, state.theta)
    return replace(state, elapsed=time.perf_counter() - began)


def _begun(
    plan: Plan,
    options: TrainingOptions,
    problem: Problem,
    given: Hyperparameters | None,
    *,
    generator: torch.Generator,
    verbose: bool,
    chosen: Hyperparameters | None,
) -> TrainingState:
    """Returns what :func:`begin` does, but for the seconds that it took."""
    operator, lengths = problem.operator, problem.operator.theta.length_scales.numel()
    if given is not None:
        own = given.length_scales.expand(lengths)  # one given serves all inputs
        given = Hyperparameters(given.noise_scale, given.signal_scale, own)
        return initial_state(operator.at(given), options)
    if plan.init == "ones":
        return initial_state(operator, options)
    x, y, noise = problem.x_exact, problem.y_exact, operator.rows
    limits = Limits(options.noise_floor, options.signal_ratio, options.tied, options.learn_noise)
    few = plan.local is not None and _has_few(plan, problem, limits)
    with contextlib.ExitStack() as stack:
        phases = _phases(plan, operator.n, few)
        title = _title("initialising", expected_time(plan))
        watch = _Watch(stack.enter_context(StartBar(phases, title)) if verbose else None, options.until)
        if plan.climb is not None:
            theta = climbed_start(
                x, y, operator.kernel, plan.climb, lengths, limits, chosen=chosen, known=chosen,
                generator=generator, noise=noise, callbacks=watch.of(*phases),
            )  # fmt: skip
            state = initial_state(operator.at(theta), options)
        elif plan.near is not None:
            theta = near_start(
                x, y, operator.kernel, chosen or rough_start(x.shape[1], lengths, True),
                plan.near, limits, rough=chosen is None, generator=generator, noise=noise,
                callbacks=watch.of(*phases),
            )  # fmt: skip
            state = initial_state(operator.at(theta), options)
        elif plan.init == "sample":
            state = _on_sample(plan, options, problem, generator, watch, limits, chosen, few)
        else:
            theta = subset_heuristic(
                x, y, operator.kernel, generator=generator, ard=lengths == x.shape[1],
                neighbourhood_size=plan.neighbourhood_size, noise_floor=options.noise_floor, tied=options.tied,
                learn_noise=options.learn_noise, noise=noise, callbacks=watch.of(*phases),
            )  # fmt: skip
            state = initial_state(operator.at(theta), options)
    return state


class _Watch:
    """Makes the callbacks of a start's phases: its bar, where there is one, and the end of its share of the time."""

    def __init__(self, bar: StartBar | None, until: float | None) -> None:
        now = time.perf_counter()
        self._bar, self._until = bar, None if until is None else now + START_SHARE * (until - now)

    @property
    def over(self) -> bool:
        """Whether the start has used up its share of the time."""
        return self._until is not None and time.perf_counter() > self._until

    def of(self, *phases: str) -> list[Callback]:
        """Returns the callbacks of a phase, or of several that are one call."""
        bar = [] if self._bar is None else [self._bar.of(*phases)]
        return [*bar, lambda *_: self.over]


ON_A_SAMPLE, BY_GROUPS = "on a sample", "by groups of near points"


def _phases(plan: Plan, n: int, few: bool) -> dict[str, int]:
    """Returns the phases of a start, as a bar names them, and the most steps or evaluations of each."""
    if plan.climb is not None:
        return {"by climbs": plan.climb.most}
    if plan.near is not None:
        return {"by near neighbours": plan.near.rough_evaluations + plan.near.evaluations}
    if plan.init == "sample":
        sample = {ON_A_SAMPLE: ExactClimb(plan.sample_size).most if few else N_STEPS}
        return sample if plan.local is None else {**sample, BY_GROUPS: plan.local.n_steps}
    count = min(N_CENTROIDS, n)
    return {f"neighbourhood {number} of {count}": N_STEPS for number in range(1, count + 1)}


def _has_few(plan: Plan, problem: Problem, limits: Limits) -> bool:
    """Says whether the sample of a plan has few points for a length scale: steps would learn its noise by heart."""
    operator = problem.operator
    groups = limits.groups(operator.theta.length_scales.numel())
    return Prior.of_few(plan.sample_size, problem.x_exact.shape[1], groups, operator.rows) is not None


def _on_sample(
    plan: Plan,
    options: TrainingOptions,
    problem: Problem,
    generator: torch.Generator,
    watch: _Watch,
    limits: Limits,
    chosen: Hyperparameters | None,
    few: bool,
) -> TrainingState:
    """Returns the state after a training on a random sample, and by groups of near points where the plan has them.

    With many inputs it begins where the choice of the kernel ended, or at long length scales: at ones points would not
    know of each other. Otherwise that end is held against what training leads to. Before groups a sample with ``few``
    points for a length scale is climbed, with what is thought beforehand. Where near points show a finer structure than
    a sample does, training goes on from what these lead to. Where groups say less than a sample does, as they do of
    smooth functions with hardly any noise, more random points are climbed instead.
    """
    x, y, operator = problem.x_exact, problem.y_exact, problem.operator
    first, lengths = operator.theta, operator.theta.length_scales.numel()
    callbacks = watch.of(ON_A_SAMPLE)
    if x.shape[1] > MANY_INPUTS:
        first = chosen or rough_start(x.shape[1], lengths, False)
    if few:
        theta = climbed_start(
            x, y, operator.kernel, ExactClimb(plan.sample_size), lengths, replace(limits, ratio=math.inf), chosen=first,
            known=chosen, generator=generator, noise=operator.rows, callbacks=callbacks,
        )  # fmt: skip
        state = initial_state(operator.at(theta), options)
    else:
        if plan.local is None:
            state = _trained_sample(plan, options, problem, generator, callbacks, first, chosen)
        else:  # budgets and steps are for all points
            some = replace(
                options, rule=replace(options.rule, max_epochs=None), first_epochs=None, signal_ratio=math.inf,
                learning_rate=plan.local.learning_rate,
            )  # fmt: skip
            state = _trained_sample(plan, some, problem, generator, callbacks, first, None)
        free = limits if plan.local is None else replace(limits, ratio=math.inf)
        if not watch.over and (
            fine := finer(
                x, y, operator.kernel, state.theta, free, generator=generator, noise=operator.rows, known=chosen
            )
        ):
            how = ExactClimb(min(plan.sample_size, ExactClimb.points))
            theta = start_at_waves(
                x, y, operator.kernel, fine, how, free, generator=generator, noise=operator.rows, callbacks=callbacks
            )
            state = initial_state(operator.at(theta), options)
    if plan.local is None:
        return state
    begun = Hyperparameters.from_unconstrained(options.begun(state.theta, operator.kernel))
    found = local_start(
        x, y, operator.kernel, begun, plan.local, generator=generator, hold=options.held, tie=options.allowed,
        noise=operator.rows, callbacks=watch.of(BY_GROUPS),
    )  # fmt: skip
    if found is None and watch.over:
        found = begun
    elif found is None:
        found = climbed_on(
            x, y, operator.kernel, begun, ExactClimb(INSTEAD_OF_GROUPS), limits, generator=generator,
            noise=operator.rows, callbacks=watch.of(ON_A_SAMPLE),
        )  # fmt: skip
    return initial_state(operator.at(found), options)


def _trained_sample(
    plan: Plan,
    options: TrainingOptions,
    problem: Problem,
    generator: torch.Generator,
    callbacks: list[Callback],
    first: Hyperparameters,
    other: Hyperparameters | None,
) -> TrainingState:
    """Returns the state after a training on a random sample by these options, but for the solver of samples."""
    operator = problem.operator
    assert plan.start_solver is not None
    exact = plan.start_solver.leaves_factor
    pathwise = Pathwise(plan.gradient.n_probes or options.n_samples, plan.n_features)
    some = replace(options, solver=plan.start_solver, gradient=Exact() if exact else pathwise, n_steps=N_STEPS)
    return sample_start(
        problem.x_exact, problem.y_exact, operator.kernel, first, some, size=plan.sample_size, generator=generator,
        callbacks=callbacks, promote=plan.promote, dtype=torch.float64 if exact else operator.dtype,
        noise=operator.rows, other=other,
    )  # fmt: skip
