"""How training of large data starts, and how many steps it takes on all of them, by what an epoch costs.

Hyperparameters change with the density of the data. A sample finds their rough size, near neighbours at the density of
all data correct it (:mod:`warmgp.training.local_start`), and few steps on all points are left to do. Costs are those of
the device's kind, not measured in the moment, so that the same data, settings and machine have the same plan.
"""

from __future__ import annotations

from warmgp.planning.costs import usual_rates
from warmgp.planning.request import Request, is_auto
from warmgp.planning.solver_choice import FIRST_EPOCHS, STEP_EPOCHS, few_steps
from warmgp.solvers import Solver
from warmgp.training.local_start import LocalStart

AFTER_SAMPLE, FEWEST = 30, 5
"""The most steps on all points after a start on a sample, and the fewest."""

FINAL_SECONDS = 30.0
"""Seconds of steps on all points above which their number falls, to ``FEWEST`` at last."""

OVERHEAD_EPOCHS = 4.0
"""Epochs of a step beside its iterations: the residuals before and after them, and the gradient."""

ON_GPU = LocalStart(points=8192, neighbours=48, n_steps=100)
ON_CPU = LocalStart(points=4096, neighbours=24, n_steps=60)
"""Starts by near neighbours. With 1,024 points the noise of protein came out between 0.04 and 0.15 by the draw, with
4,096 between 0.10 and 0.13, with 24 neighbours as with 32."""


def step_seconds(request: Request) -> float:
    """Estimates the seconds of a step on all points, by the usual rates of the device."""
    rates = usual_rates(request)
    return rates.call + (STEP_EPOCHS + OVERHEAD_EPOCHS) * request.n**2 * rates.recompute


def final_steps(request: Request) -> int:
    """Returns the most steps on all points after a start on a sample and near neighbours."""
    return max(FEWEST, min(AFTER_SAMPLE, int(FINAL_SECONDS / step_seconds(request))))


def choose_local_start(request: Request, solver: Solver, init: str) -> tuple[LocalStart | None, str]:
    """Decides whether near neighbours correct what the sample found: where steps on all points are dear."""
    if init != "sample" or not few_steps(solver) or not is_auto(request.settings.init):
        return None, ""
    how = ON_GPU if request.device.type == "cuda" else ON_CPU
    told = f"{how.n_steps} steps by {how.neighbours} near neighbours of {how.points:,} points"
    return how, f"The sample's hyperparameters are corrected to the density of all points: {told}."


def choose_first_epochs(request: Request, solver: Solver) -> tuple[float | None, str]:
    """Decides the budget of the first solve on all points, which starts from nothing; None for that of every step."""
    own = few_steps(solver) and is_auto(request.settings.max_epochs) and is_auto(request.settings.solver)
    return (FIRST_EPOCHS if own else None), ""
