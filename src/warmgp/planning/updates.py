"""How a model goes on with other rows: the plan of one solve at hyperparameters that stay, or of a few steps."""

from __future__ import annotations

from dataclasses import replace

from warmgp.planning.plan import Plan
from warmgp.planning.planner import plan_for
from warmgp.planning.request import Request, is_auto
from warmgp.planning.solver_choice import LAST_EPOCHS
from warmgp.solvers import Cholesky, ConjugateGradients

FEW = 0.03
"""The share of rows up to which old solutions are so near that a few sweeps are cheaper than a factor of H."""

GENTLE = 0.02
"""The size of Adam's steps from hyperparameters that are nearly right: ten of the usual size, 0.1, may end further from
that place than they began."""


def plan_update(request: Request, changed: int) -> Plan:
    """Decides how a model goes on where so many of the rows have come, or gone, before anything is computed.

    Steps are planned as those of any training from given hyperparameters, but smaller. A single solve is by recombined
    projections, for which a good start counts; where many rows have changed, and a training would make factors of H, it
    makes one at once.
    """
    plan = plan_for(request)
    settings = request.settings
    if settings.n_steps and is_auto(settings.learning_rate):
        plan = replace(plan, learning_rate=GENTLE)
    if settings.n_steps or not is_auto(settings.solver) or plan.solver.leaves_factor or plan.exact_posterior:
        return plan
    factors = isinstance(plan.solver, ConjugateGradients) and plan.solver.factor_after is not None
    if factors and changed > FEW * request.n:
        why = f"{changed:,} of {request.n:,} rows have changed: one exact solution for all of them is cheapest."
        return replace(plan, solver=Cholesky(), why=(why,))
    why = f"{changed:,} of {request.n:,} rows have changed: the solutions of the model before are nearly right."
    if plan.solver.name != "rap":
        plan = plan_for(replace(request, settings=replace(settings, solver="rap")))
        if is_auto(settings.max_epochs):  # by a budget it is one solve, as far as the last one has to go
            plan = replace(plan, last_epochs=LAST_EPOCHS)
    return replace(plan, why=(why, *plan.why))
