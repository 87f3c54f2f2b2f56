"""What a time limit leaves of a plan: fewer steps, then as many rows as the time allows, drawn at random.

Rows and steps are both worth their time, so a plan that would take too long has at most 30 steps, which get half of the
time at most (:mod:`warmgp.planning.starts`), and as many rows as fit; the clock itself is watched in training
(:attr:`warmgp.training.state.TrainingOptions.until`), because an estimate is no promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warmgp.planning.plan import Plan, duration
from warmgp.planning.request import Request

PLANNED_SHARE = 0.85
"""The share of a time limit that a plan should take by its estimate."""

LEAST_ROWS = 100
"""Rows below which a time limit does not go: a fit of these takes a second."""

TRIES = 16
"""Sizes that are tried between the fewest rows and all of them: each halves the range of their logarithm."""


def within_time(request: Request, planned: Callable[[Request], Plan]) -> Plan:
    """Returns the plan of the request, for as many of its rows as its time limit allows."""
    limit = request.settings.time_limit
    whole = planned(replace(request, settings=replace(request.settings, time_limit=None)))
    if limit is None or whole.estimated_seconds <= PLANNED_SHARE * limit:
        return whole
    plan = planned(request)
    if plan.estimated_seconds <= PLANNED_SHARE * limit:  # with few steps all rows fit
        return plan
    fewest, most = min(LEAST_ROWS, request.n), request.n
    plan = planned(replace(request, n=fewest))
    for _ in range(TRIES):
        rows = round_down(int((fewest * most) ** 0.5))
        if rows <= fewest:
            break
        tried = planned(replace(request, n=rows))
        if tried.estimated_seconds <= PLANNED_SHARE * limit:
            fewest, plan = rows, tried
        else:
            most = rows
    why = (
        f"{duration(limit)} allow {fewest:,} of {request.n:,} rows, drawn at random: all of them would take about "
        f"{duration(whole.estimated_seconds)}, and predict better."
    )
    return replace(plan, rows=fewest, why=(why, *plan.why))


def round_down(rows: int) -> int:
    """Returns the number with all digits after the second set to zero."""
    unit = 10 ** max(0, len(str(rows)) - 2)
    return rows // unit * unit
