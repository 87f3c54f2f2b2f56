"""What a time limit leaves of a plan: fewer steps, then as many rows as the time allows, drawn at random.

Rows are worth more than steps, so a plan that would take too long has 30 steps at most, none after groups of near
points, and as many rows as fit; the clock itself is watched in training
(:attr:`warmgp.training.state.TrainingOptions.until`), because an estimate is no promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warmgp.planning.plan import Plan, duration, in_words
from warmgp.planning.request import Request

PLANNED_SHARE = 0.85
"""The share of a time limit that a plan should take by its estimate."""

LEAST_ROWS = 100
"""Rows below which a time limit does not go: a fit of these takes a second."""

FEWER = 0.93
"""The ratio of two numbers of rows that are tried in turn, the larger one first."""


def within_time(request: Request, planned: Callable[[Request], Plan]) -> Plan:
    """Returns the plan of the request, for as many of its rows as its time limit allows.

    Numbers of rows are tried from all downwards, because estimates need not rise with them: steps on all points end
    where they would take too long.
    """
    limit = request.settings.time_limit
    if limit is None:
        return planned(request)
    whole = _or_none(planned, replace(request, settings=replace(request.settings, time_limit=None)))
    if whole is not None and whole.estimated_seconds <= PLANNED_SHARE * limit:
        return whole
    rows, plan = request.n, _or_none(planned, request)
    while plan is None or plan.estimated_seconds > PLANNED_SHARE * limit:
        if rows <= LEAST_ROWS:
            plan = planned(replace(request, n=rows))
            break
        rows = max(min(LEAST_ROWS, rows), round_down(int(FEWER * rows)))
        plan = _or_none(planned, replace(request, n=rows))
    if rows == request.n:
        return plan
    longer = f"take {in_words(whole.estimated_seconds)}" if whole else "not fit the memory budget"
    why = (
        f"The time limit of {duration(limit)} allows {rows:,} of {request.n:,} rows, drawn at random: all of them "
        f"would {longer}, and predict better."
    )
    return replace(plan, rows=rows, why=(why, *plan.why))


def _or_none(planned: Callable[[Request], Plan], request: Request) -> Plan | None:
    """Returns a plan, or None where none fits the memory: fewer rows may."""
    try:
        return planned(request)
    except MemoryError:
        return None


def round_down(rows: int) -> int:
    """Returns the number with all digits after the second set to zero."""
    unit = 10 ** max(0, len(str(rows)) - 2)
    return rows // unit * unit
