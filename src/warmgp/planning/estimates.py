"""What a plan should cost: the seconds of a whole training, and the refusal of one that cannot fit."""

from __future__ import annotations

import torch

from warmgp.planning.costs import (
    AP_EPOCHS,
    CG_EPOCHS,
    NEAR_EPOCHS,
    NEAR_EPOCHS_OF_MANY_INPUTS,
    Rates,
    epochs_seconds,
    exact_seconds,
    factor_cg_seconds,
    near_cg_seconds,
)
from warmgp.planning.plan import Plan
from warmgp.planning.solver_choice import MAP_INPUTS, has_neighbours
from warmgp.solvers import ConjugateGradients


def training_seconds(plan: Plan, n: int, d: int, rates: Rates) -> float:
    """Estimates the seconds of a whole training, with its start and its last solve; one that settles may take less."""
    steps, features, solver = plan.n_steps, plan.n_features, plan.solver
    if solver.name == "cholesky":
        return exact_seconds(rates, n, steps)
    slower = 2.0 if plan.dtype == torch.float64 else 1.0
    stored = plan.operator == "dense"
    after = solver.factor_after if isinstance(solver, ConjugateGradients) else None
    if after is not None:
        seconds = factor_cg_seconds(rates, n, steps, features, after)
    elif has_neighbours(solver):
        usual = NEAR_EPOCHS if d <= MAP_INPUTS else NEAR_EPOCHS_OF_MANY_INPUTS
        epochs = min(usual, plan.rule.max_epochs or usual)
        seconds = near_cg_seconds(rates, n, steps, features, epochs, stored=stored)
    else:
        usual = {"ap": AP_EPOCHS, "cg": CG_EPOCHS}.get(solver.name, 100)
        epochs = min(usual, plan.rule.max_epochs or usual)
        seconds = epochs_seconds(rates, n, steps, features, epochs, stored=stored)
    if plan.init == "sample":
        seconds += factor_cg_seconds(rates, plan.sample_size, 100, features, 1 + (after or 0))
    seconds *= slower
    if plan.init == "subset":
        seconds += 10 * exact_seconds(rates, plan.neighbourhood_size, 100)
    return seconds


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
