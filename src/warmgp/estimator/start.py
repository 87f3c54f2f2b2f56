"""The start of a training: from a plan to the state before the first step."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import torch

from warmgp.gradient import Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.planning.plan import Plan
from warmgp.training.bars import StartBar
from warmgp.training.initialisation import N_CENTROIDS, N_STEPS, sample_start, subset_heuristic
from warmgp.training.local_start import local_start
from warmgp.training.problem import Problem
from warmgp.training.state import TrainingOptions, TrainingState
from warmgp.training.step import initial_state


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
    began, count = time.perf_counter(), 1 if plan.init == "sample" else min(N_CENTROIDS, operator.n)
    with contextlib.ExitStack() as stack:
        more = plan.local.n_steps if plan.local else 0
        callbacks = [stack.enter_context(StartBar(count, N_STEPS, more))] if verbose else []
        if plan.init == "sample":
            probes = plan.gradient.n_probes or options.n_samples
            assert plan.start_solver is not None
            some = replace(
                options, solver=plan.start_solver, gradient=Pathwise(probes, plan.n_features), n_steps=N_STEPS
            )
            if plan.local is not None:  # budgets and steps are for all points
                rule = replace(options.rule, max_epochs=None)
                some = replace(some, rule=rule, first_epochs=None, learning_rate=plan.local.learning_rate)
            state = sample_start(
                x, y, operator.kernel, operator.theta, some, size=plan.sample_size, generator=generator,
                callbacks=callbacks, promote=plan.promote, dtype=operator.dtype,
            )  # fmt: skip
            if plan.local is not None:
                theta = local_start(
                    x, y, operator.kernel, state.theta, plan.local, generator=generator,
                    noise_floor=options.noise_floor, callbacks=callbacks,
                )  # fmt: skip
                state = initial_state(operator.at(theta), options)
        else:
            theta = subset_heuristic(
                x, y, operator.kernel, generator=generator, ard=operator.theta.length_scales.numel() == x.shape[1],
                neighbourhood_size=plan.neighbourhood_size, noise_floor=options.noise_floor, callbacks=callbacks,
            )  # fmt: skip
            state = initial_state(operator.at(theta), options)
    return replace(state, elapsed=time.perf_counter() - began)
