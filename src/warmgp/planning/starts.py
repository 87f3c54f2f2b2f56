"""How training of large data starts, and how many steps it takes on all of them, by what an epoch costs.

Hyperparameters change with the density of the data. A sample finds their rough size, near neighbours at the density of
all data correct it (:mod:`warmgp.training.local_start`), and few steps on all points are left to do. Costs are those of
the device's kind, not measured in the moment, so that the same data, settings and machine have the same plan.
"""

from __future__ import annotations

import math

import torch

from warmgp.planning.costs import DOUBLE, RAP_EPOCHS, local_seconds, sweep_seconds, usual_rates
from warmgp.planning.request import Request, is_auto
from warmgp.planning.solver_choice import AFTER_SAMPLE, FIRST_EPOCHS, few_steps, recombined_projections
from warmgp.solvers import Solver
from warmgp.training.local_start import LocalStart
from warmgp.training.loop import LAST_STEPS
from warmgp.training.rounding import resolved_ratio

FINAL_SECONDS = {True: 20.0, False: 300.0}
"""Seconds of steps on all points above which their number falls, to none at last, by whether they are on a GPU."""

ROUNDING_SHARE = 0.1
"""The most that rounding may leave of a residual, in units of σ (:mod:`warmgp.training.rounding`): one correction by a
residual in float64 takes the rest away."""

SLOW_DOUBLE = {True: 10.0, False: 60.0}
"""Seconds of a step in float64 above which training stays in float32, and within what that resolves, by whether it is
on a GPU."""

FEWEST = 4
"""The fewest steps that are taken, or none: the first ones of Adam change every hyperparameter by their size, whatever
the slope, and one alone raised the noise of 100,000 rows by a tenth."""

LIMITED_SHARE = 0.5
"""The share of a time limit that steps on all points may take. Seen on houseelectric: 54,000 rows without a step 1.59
nats, 51,000 with 30 steps 1.69."""

LOCAL_SHARE = 0.2
"""The most that a start by near neighbours may cost, beside the steps on all points."""

ON_GPU = (LocalStart(points=8192, neighbours=48, n_steps=100),)
ON_CPU = (
    LocalStart(points=4096, neighbours=48, n_steps=100),
    LocalStart(points=4096, neighbours=24, n_steps=60),
)
"""Starts by near neighbours, the best one first. With 1,024 points the noise of protein came out between 0.04 and 0.15
by the draw, with 4,096 between 0.10 and 0.13. On 100,000 rows of houseelectric 24 neighbours (27 s) predicted test
points from their 120 nearest with 1.776 nats, 48 with 100 steps (88 s) 1.814; fewer points with 96 or 128 were no
better."""


def step_seconds(request: Request) -> float:
    """Estimates the seconds of a step of recombined projections on all points, by the usual rates of the device."""
    rates, n = usual_rates(request), request.n
    block_size = recombined_projections(request).block_size
    sweep = sweep_seconds(rates, n, block_size, on_gpu=request.device.type == "cuda")
    return rates.call + RAP_EPOCHS * sweep + n**2 * (2 * rates.recompute + rates.gradient)


def steps_seconds(request: Request) -> float:
    """Estimates the seconds of all steps on all points, and of a last solve that is like ``LAST_STEPS`` of them."""
    return (final_steps(request) + LAST_STEPS) * step_seconds(request)


def final_steps(request: Request) -> int:
    """Returns the most steps on all points after a start on a sample and near neighbours."""
    seconds, limit = FINAL_SECONDS[request.device.type == "cuda"], request.settings.time_limit
    if limit is not None:
        seconds = min(seconds, LIMITED_SHARE * limit)
    steps = min(AFTER_SAMPLE, int(seconds / step_seconds(request)))
    return steps if steps >= FEWEST else 0


def choose_signal_ratio(request: Request, solver: Solver, dtype: torch.dtype) -> tuple[float, str]:
    """Decides how many times the noise the signal may be: what products in float32 resolve, where float64 is too slow.

    Dense data tell the kernel at short distances only, so that little is lost with a smaller signal and shorter length
    scales (`Hyperparameters.with_signal_within`).
    """
    on_gpu = request.device.type == "cuda"
    slow = step_seconds(request) * DOUBLE[on_gpu] > SLOW_DOUBLE[on_gpu]
    if not few_steps(solver) or dtype != torch.float32 or not slow:
        return math.inf, ""
    ratio = resolved_ratio(request.n, ROUNDING_SHARE)
    return ratio, f"The signal stays below {ratio:.0f} times the noise: float32 resolves that with so many points."


def choose_local_start(request: Request, solver: Solver, init: str) -> tuple[LocalStart | None, str]:
    """Decides whether near neighbours correct what the sample found: where steps on all points are dear."""
    if init != "sample" or not few_steps(solver) or not is_auto(request.settings.init):
        return None, ""
    on_gpu = request.device.type == "cuda"
    most = LOCAL_SHARE * steps_seconds(request)
    cheap = [
        how
        for how in (ON_GPU if on_gpu else ON_CPU)
        if local_seconds(usual_rates(request), request.n, how, on_gpu=on_gpu) <= most
    ]
    if not cheap:
        return None, ""
    how = cheap[0]
    told = f"{how.n_steps} steps by {how.neighbours} near neighbours of {how.points:,} points"
    return how, f"The sample's hyperparameters are corrected to the density of all points: {told}."


def choose_first_epochs(request: Request, solver: Solver) -> tuple[float | None, str]:
    """Decides the budget of the first solve on all points, which starts from nothing; None for that of every step."""
    own = few_steps(solver) and is_auto(request.settings.max_epochs) and is_auto(request.settings.solver)
    return (FIRST_EPOCHS if own else None), ""
