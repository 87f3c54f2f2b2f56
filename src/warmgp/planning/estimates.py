"""What a plan should cost: the seconds of a whole training, and the refusal of one that cannot fit."""

from __future__ import annotations

import torch

from warmgp.planning.costs import (
    AP_EPOCHS,
    CG_EPOCHS,
    DOUBLE,
    FIRST_RAP_EPOCHS,
    NEAR_EPOCHS,
    NEAR_EPOCHS_OF_MANY_INPUTS,
    RAP_EPOCHS,
    Rates,
    epochs_seconds,
    exact_seconds,
    factor_cg_seconds,
    local_seconds,
    near_cg_seconds,
    near_seconds,
    projections_seconds,
    stored_rates,
    sweep_seconds,
)
from warmgp.planning.plan import Plan
from warmgp.planning.request import MAP_INPUTS
from warmgp.planning.sharing import shared_rates
from warmgp.planning.solver_choice import has_neighbours
from warmgp.solvers import ConjugateGradients, RecombinedProjections, Solver
from warmgp.training.initialisation import N_CENTROIDS, N_STEPS

CLIMB_EVALUATIONS = 80
"""Evaluations on all points that climbs of the likelihood usually take, of the most that they may."""

STEPS_AFTER_CLIMB = 60
"""Steps that a training usually takes after a climb of some of its points, before it has settled. Seen in 36 fits
of 2,000 rows (the six sets of the paper that are at hand, and 30 of ``benchmarks.everyday``): 26 to 84 in 32 of them,
101 to 200 in four (*bike*, which has no noise, among them)."""

RESIDUALS = {True: 2, False: 1}
"""Residuals of a last solve by projections in float64, by whether it is on a GPU, where there are more points, which
more often need a correction."""


def usual_steps(plan: Plan) -> int:
    """Returns the steps on all points that a training usually takes, of the most that it may."""
    return min(plan.n_steps, STEPS_AFTER_CLIMB) if plan.settle and plan.climb is not None else plan.n_steps


def training_seconds(plan: Plan, n: int, d: int, rates: Rates, processes: int = 1) -> float:
    """Estimates the seconds of a whole training, with its start and its last solve, and with as many steps as usual.

    Of several processes rank 0 alone makes the start; ``rates`` are those of one.
    """
    shared = shared_rates(
        rates, plan.solver, n, plan.columns, processes, itemsize=plan.dtype.itemsize, on_gpu=plan.device.type == "cuda"
    )
    seconds = _steps_seconds(plan, plan.solver, n, d, usual_steps(plan), shared)
    if plan.start_solver is not None:
        seconds += _steps_seconds(plan, plan.start_solver, plan.sample_size, d, N_STEPS, rates)
    if plan.local is not None:
        seconds += local_seconds(rates, n, plan.local, on_gpu=plan.device.type == "cuda")
    if plan.near is not None:
        seconds += near_seconds(rates, n, plan.near)
    if plan.climb is not None:
        seconds += exact_seconds(rates, plan.climb.points, CLIMB_EVALUATIONS)
    if plan.first_epochs is not None and plan.n_steps:
        seconds += FIRST_RAP_EPOCHS * n**2 * shared.recompute
    if isinstance(plan.solver, RecombinedProjections) and plan.promote:  # residuals of the last solve in float64
        on_gpu = plan.device.type == "cuda"
        seconds += RESIDUALS[on_gpu] * DOUBLE[on_gpu] * n**2 * shared.recompute
    if plan.init == "subset":
        seconds += min(N_CENTROIDS, n) * exact_seconds(rates, plan.neighbourhood_size, N_STEPS)
    return seconds


def _steps_seconds(plan: Plan, solver: Solver, n: int, d: int, steps: int, rates: Rates) -> float:
    """Estimates the seconds of so many steps on n points and one more solve."""
    features = plan.n_features
    if solver.name == "cholesky":
        return exact_seconds(rates, n, steps)
    slower = 2.0 if plan.dtype == torch.float64 else 1.0
    stored = plan.operator == "dense"
    after = solver.factor_after if isinstance(solver, ConjugateGradients) else None
    if after is not None:
        return slower * factor_cg_seconds(rates, n, steps, features, after)
    most = plan.rule.max_epochs
    if has_neighbours(solver):
        usual = NEAR_EPOCHS if d <= MAP_INPUTS else NEAR_EPOCHS_OF_MANY_INPUTS
        return slower * near_cg_seconds(rates, n, steps, features, min(usual, most or usual), stored=stored)
    if isinstance(solver, RecombinedProjections):
        fill = (steps + 1) * n**2 * rates.recompute if stored else 0.0  # once for each θ, in memory that is new
        if stored:
            rates = stored_rates(rates)
        epochs = min(RAP_EPOCHS, most or RAP_EPOCHS)
        on_gpu = plan.device.type == "cuda"
        sweep = sweep_seconds(rates, n, solver.block_size, on_gpu=on_gpu)
        return slower * (fill + projections_seconds(rates, n, steps, features, epochs, sweep, on_gpu=on_gpu))
    usual = {"ap": AP_EPOCHS, "cg": CG_EPOCHS}.get(solver.name, 100)
    return slower * epochs_seconds(rates, n, steps, features, min(usual, most or usual), stored=stored)


def check_memory(plan: Plan, n: int, needs: int) -> None:
    """Raises MemoryError where a training of n points needs more bytes than the plan's budget."""
    if needs <= plan.memory_budget:
        return
    exact = plan.solver.name == "cholesky"
    rank = plan.solver.preconditioner_rank if isinstance(plan.solver, ConjugateGradients) else 0
    ranks = "a smaller preconditioner_rank or " if rank > plan.gradient.n_probes else ""
    remedy = 'use solver="cg" or "ap"' if exact else f"use {ranks}fewer n_probes"
    raise MemoryError(
        f"solver={plan.solver.name!r} needs about {needs / 2**30:.1f} GiB for {n:,} points and the memory budget is "
        f"{plan.memory_budget / 2**30:.1f} GiB: {remedy}, or raise memory_budget"
    )
