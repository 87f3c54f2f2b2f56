"""How training of large data starts, how many steps it takes on all of them, and what float32 resolves of them.

Hyperparameters change with the density of the data. A small sample finds their rough size, and groups of near points,
as dense as all data are, the rest (:mod:`warmgp.training.local_start`). Steps on all points follow where that is cheap.
Costs are those of the device's kind, not measured in the moment, so that the same data, settings and machine have the
same plan.
"""

from __future__ import annotations

import math

import torch

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.rounding import resolved_ratio
from warmgp.planning.costs import DOUBLE, RAP_EPOCHS, sweep_seconds, usual_rates
from warmgp.planning.memory import CLIMBED_BYTES, H_fits, dense_bytes, vector_bytes
from warmgp.planning.request import Request, is_auto
from warmgp.planning.solver_choice import AFTER_SAMPLE, FIRST_EPOCHS, few_steps, recombined_projections
from warmgp.solvers import Solver
from warmgp.training.exact_climb import ExactClimb
from warmgp.training.local_start import LocalStart

FINAL_SECONDS = {True: 6.0, False: 120.0}
"""The most seconds of steps on all points after groups of near points, by whether they are on a GPU: all of them, or
none where they would take longer. On an H200 30 steps on 51,000, 100,000 and 200,000 rows of houseelectric brought
0.007, 0.002 and 0.001 nats, in 8, 10 and 26 s; 8 steps lost as much, because the first ones of Adam change every
hyperparameter by their size, whatever the slope."""

FACTOR_WORK, FACTOR_SECONDS = 1 / 3, {True: 6.0, False: 240.0}
"""A factor of H beside a factor and an inverse; and the most seconds of one in the last solve, by whether it is on a
GPU: where iterations have come to nothing, a model that is right is worth more of them than steps are."""

ROUNDING_SHARE = 0.1
"""The most that rounding may leave of a residual, in units of σ (:mod:`warmgp.operators.rounding`): one correction by a
residual in float64 takes the rest away."""

DOUBLE_SHARE = 0.01
"""The same where float64 has the last word and nobody has named steps or a θ to start from: copies of rows without
noise, such as a table of all combinations of a few values, make the likelihood rise with the signal for ever, to where
not even a factor in float64 exists."""

SLOW_DOUBLE = {True: 10.0, False: 60.0}
"""Seconds of a step in float64 above which training stays in float32, and within what that resolves, by whether it is
on a GPU."""

GROUPS = {
    True: LocalStart(groups=256, size=256, n_steps=100),
    False: LocalStart(groups=128, size=256, n_steps=60),
}
"""The start by groups of near points, by whether it is on a GPU; what was tried is in `benchmarks/results/README.md`,
"Where should a start look?"."""

CLIMBED, FEWEST_CLIMBED = 1_000, 10
"""The most points whose likelihood is climbed, as many as two cores factor a hundred times in ten seconds, and the
fewest, below which there is no more to learn than from ones."""

SAMPLE_BEFORE_GROUPS = 1_000
"""Points of the sample before a start by groups of near points: with 1,000 and with 5,000 of them the groups ended at
the same score (1.83 on 100,000 rows of houseelectric, −0.52 on 40,000 of protein)."""


def step_seconds(request: Request) -> float:
    """Estimates the seconds of a step of recombined projections on all points, by the usual rates of the device."""
    rates, n = usual_rates(request), request.n
    block_size = recombined_projections(request).block_size
    sweep = sweep_seconds(rates, n, block_size, on_gpu=request.device.type == "cuda")
    return rates.call + RAP_EPOCHS * sweep + n**2 * (2 * rates.recompute + rates.gradient)


def final_steps(request: Request) -> int:
    """Returns the most steps on all points after groups of near points: all that help, or none where they are dear."""
    cheap = AFTER_SAMPLE * step_seconds(request) <= FINAL_SECONDS[request.device.type == "cuda"]
    return AFTER_SAMPLE if cheap and request.settings.time_limit is None else 0


def can_climb(request: Request) -> bool:
    """Says whether training starts by climbs where nothing else is to be done: nobody has named steps or their size,
    which would be those from ones, and there are enough points."""
    settings = request.settings
    return is_auto(settings.n_steps) and is_auto(settings.learning_rate) and request.n >= FEWEST_CLIMBED


def climbs_all(request: Request) -> bool:
    """Says whether what is climbed is all that training knows: every point, and no trend beside the process."""
    return request.n <= _climbed(request) and not request.trend_terms


def _climbed(request: Request) -> int:
    """Returns how many points are climbed: as many as half of the memory holds, up to a most."""
    return min(request.n, CLIMBED, max(FEWEST_CLIMBED, int((request.memory_budget / (2 * CLIMBED_BYTES)) ** 0.5)))


def choose_climb(request: Request, init: str) -> tuple[ExactClimb | None, str]:
    """Decides how many points the likelihood is climbed of; None where it is not."""
    if init != "climb":
        return None, ""
    points = _climbed(request)
    of = "the likelihood of all points" if points >= request.n else f"the likelihood of {points:,} random points"
    return ExactClimb(points=points), f"Length scales, signal and noise are learned from {of}, from several starts."


def choose_signal_ratio(request: Request, solver: Solver, dtype: torch.dtype) -> tuple[float, str]:
    """Decides how many times the noise the signal may be: what products in float32 resolve, where float64 is too slow,
    elsewhere what those in float64 do, unless steps or hyperparameters are named.

    Dense data tell the kernel at short distances only, so that little is lost with a smaller signal and shorter length
    scales (`Hyperparameters.with_signal_within`). Where noise is known the learned part of it says nothing about that,
    and may be next to nothing: there is no such limit then.
    """
    on_gpu = request.device.type == "cuda"
    slow = step_seconds(request) * DOUBLE[on_gpu] > SLOW_DOUBLE[on_gpu]
    if request.known_noise:
        return math.inf, ""
    if not few_steps(solver) or dtype != torch.float32 or not slow:
        own = is_auto(request.settings.n_steps) and not isinstance(request.settings.init, Hyperparameters)
        return (resolved_ratio(request.n, DOUBLE_SHARE, torch.float64) if own else math.inf), ""
    ratio = resolved_ratio(request.n, ROUNDING_SHARE)
    return ratio, (
        f"The signal is kept below {ratio:.0f} times the noise: with so many points float32 numbers tell no more apart."
    )


def choose_factor_last(request: Request, solver: Solver) -> tuple[bool, str]:
    """Decides whether a factor of H may take the place of iterations in float64 in the last solve: where it fits beside
    an H in float32, and does not take too long. Data with hardly any noise need it, and nobody knows before training
    whether they have any."""
    own = is_auto(request.settings.solver) and is_auto(request.settings.dtype)
    seconds = FACTOR_WORK * usual_rates(request).exact * request.n**3
    beside = dense_bytes(request.n, torch.float32) + vector_bytes(request.n, request.d, request.n_probes, torch.float64)
    if solver.name == "cg":  # whose own factor may be in float64 by then
        beside += dense_bytes(request.n, torch.float64)
    fits = H_fits(request.n, torch.float64, request.memory_budget - beside)
    in_time = seconds <= FACTOR_SECONDS[request.device.type == "cuda"]
    return own and in_time and fits and solver.name != "cholesky", ""


def choose_local_start(request: Request, solver: Solver, init: str) -> tuple[LocalStart | None, str]:
    """Decides whether groups of near points correct what the sample found: where steps cost full products."""
    settings = request.settings
    own = init == "sample" and is_auto(settings.init) and is_auto(settings.n_steps)
    if not own or not few_steps(solver):
        return None, ""
    how = GROUPS[request.device.type == "cuda"]
    after = ", then in steps on all points." if final_steps(request) else "; steps on all points would take too long."
    return how, (
        f"Length scales, signal and noise are learned from {min(request.n, SAMPLE_BEFORE_GROUPS):,} points drawn at "
        f"random, then in {how.n_steps} steps on {how.groups} groups of {how.size} near points each{after}"
    )


def choose_first_epochs(request: Request, solver: Solver) -> tuple[float | None, str]:
    """Decides the budget of the first solve on all points, which starts from nothing; None for that of every step."""
    own = few_steps(solver) and is_auto(request.settings.max_epochs) and is_auto(request.settings.solver)
    return (FIRST_EPOCHS if own else None), ""
