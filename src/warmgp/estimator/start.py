"""The start of a training: from a plan to the state before the first step."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import torch

from warmgp.gradient import Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.planning.plan import Plan
from warmgp.planning.planner import operator_for
from warmgp.training.bars import StartBar
from warmgp.training.initialisation import N_CENTROIDS, N_STEPS, Stage, grown_start, subset_heuristic
from warmgp.training.problem import Problem
from warmgp.training.state import TrainingOptions, TrainingState
from warmgp.training.step import initial_state

START_RATE = 0.1
"""The size of steps on part of the data."""


def begin(
    plan: Plan,
    options: TrainingOptions,
    problem: Problem,
    given: Hyperparameters | None,
    *,
    generator: torch.Generator,
    verbose: bool = False,
) -> TrainingState:
    """Returns the state before the first step; its ``elapsed`` has the seconds of a start on part of the data.

    The problem's own θ is where a start from ones, or on a sample, begins; it also says how many length scales there
    are. ``given`` replaces it.
    """
    operator = problem.operator
    if given is not None:
        lengths = given.length_scales.expand(operator.theta.length_scales.numel())  # one given serves all inputs
        given = Hyperparameters(given.noise_scale, given.signal_scale, lengths)
        return initial_state(operator.at(given), options)
    if plan.init == "ones":
        return initial_state(operator, options)
    x, y = problem.x_exact, problem.y_exact
    began, stages, count = time.perf_counter(), _stages(plan, options), min(N_CENTROIDS, operator.n)
    parts = [f"on {stage.size:,} points" for stage in stages]
    parts = parts or [f"neighbourhood {number} of {count}" for number in range(1, count + 1)]
    steps = sum(stage.options.n_steps for stage in stages) or N_STEPS * count
    with contextlib.ExitStack() as stack:
        callbacks = [stack.enter_context(StartBar(steps, parts))] if verbose else []
        if stages:
            state = grown_start(
                x, y, operator.kernel, operator.theta, stages, generator=generator, callbacks=callbacks,
                promote=plan.promote, dtype=operator.dtype,
            )  # fmt: skip
            if stages[-1].options.gradient != options.gradient:  # probes of another kind do not go on
                state = TrainingState(0, state.nu, state.adam)
        else:
            theta = subset_heuristic(
                x, y, operator.kernel, generator=generator, ard=operator.theta.length_scales.numel() == x.shape[1],
                neighbourhood_size=plan.neighbourhood_size, noise_floor=options.noise_floor, callbacks=callbacks,
            )  # fmt: skip
            state = initial_state(operator.at(theta), options)
    return replace(state, elapsed=time.perf_counter() - began)


def _stages(plan: Plan, options: TrainingOptions) -> list[Stage]:
    """Returns the sizes that training goes through before it is at all points; none where it does not start so."""
    if plan.init != "sample":
        return []
    assert plan.start_solver is not None
    pathwise = Pathwise(plan.gradient.n_probes or options.n_samples, plan.n_features)
    common = replace(options, gradient=pathwise, learning_rate=START_RATE if plan.growth else options.learning_rate)
    sample = replace(common, solver=plan.start_solver, n_steps=N_STEPS, rule=replace(options.rule, max_epochs=None))
    stages = [Stage(plan.sample_size, "dense", sample)]
    if plan.growth_solver is not None:
        for size, steps in zip(plan.growth, plan.growth_steps, strict=True):
            some = replace(common, solver=plan.growth_solver, n_steps=steps)
            stages.append(Stage(size, operator_for(plan, size, plan.dtype), some))
    return stages
