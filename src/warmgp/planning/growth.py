"""How training grows: from a random sample to all points, by sizes and steps that the cost of an epoch decides.

Hyperparameters change with the density of the data, and slowly: most steps are taken on few points, where they cost
next to nothing, and few on all of them. Costs are those of the device's kind, not measured in the moment, so that the
same data, settings and machine have the same plan.
"""

from __future__ import annotations

from warmgp.planning.costs import usual_rates
from warmgp.planning.request import Request, is_auto
from warmgp.planning.solver_choice import STEP_EPOCHS, grows
from warmgp.solvers import Solver

RATIO = 4
"""How many times more points each size has than the one before it."""

LEAST_RATIO = 2
"""How many times more points than the last size there must be in all: θ from fewer would hardly differ."""

AFTER_SAMPLE, FEWEST = 30, 5
"""The most steps of a size after the sample, and the fewest of those on all points."""

FINAL_SECONDS, GROWTH_SHARE = 30.0, 0.1
"""Seconds of steps on all points above which their number falls, to ``FEWEST`` at last, and the share of those seconds
that each size before may take."""

OVERHEAD_EPOCHS = 4.0
"""Epochs of a step beside its iterations: the residuals before and after them, and the gradient."""


def step_seconds(request: Request, size: int) -> float:
    """Estimates the seconds of a step on so many points, by the usual rates of the device."""
    rates = usual_rates(request)
    return rates.call + (STEP_EPOCHS + OVERHEAD_EPOCHS) * size**2 * rates.recompute


def final_steps(request: Request) -> int:
    """Returns the most steps on all points after a start on a sample."""
    return _within(FINAL_SECONDS, step_seconds(request, request.n), FEWEST)


def choose_growth(request: Request, solver: Solver, init: str, sample_size: int) -> tuple[tuple[int, ...], str]:
    """Decides the sizes between the sample and all points: each ``RATIO`` times the one before, where steps are dear.

    They are for those who leave the number of steps open, and not where a whole factor serves many steps.
    """
    if init != "sample" or not is_auto(request.settings.n_steps) or not grows(solver):
        return (), ""
    sizes, size = [], sample_size * RATIO
    while size * LEAST_RATIO <= request.n:
        sizes.append(size)
        size *= RATIO
    if not sizes:
        return (), ""
    told = ", ".join(f"{size:,}" for size in sizes)
    return tuple(sizes), f"Training grows from the sample over {told} to all {request.n:,} points."


def choose_growth_steps(request: Request, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """Decides the most steps of each size between the sample and all points."""
    allowed = GROWTH_SHARE * final_steps(request) * step_seconds(request, request.n)
    return tuple(_within(allowed, step_seconds(request, size), FEWEST) for size in sizes), ""


def _within(seconds: float, one: float, least: int) -> int:
    return max(least, min(AFTER_SAMPLE, int(seconds / one)))
