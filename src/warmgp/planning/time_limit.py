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

PLANNED_SHARE = 0.92
"""The share of a time limit that a plan should take by its estimate: fits of 120 and 300 s on two cores took 0.96 to
1.1 of theirs, the most where the machine became slower after its rates were measured (and one 0.78, where it became
faster). One that takes more than ``SOLVED_SHARE`` is cut before it has converged."""

SOLVED_SHARE = 0.95
"""The share of a time limit at which a solve ends, done or not: what is left is for what follows it, its checks."""

LEAST_ROWS = 100
"""Rows below which a time limit does not go: a fit of these takes a second."""

FEWER, CLOSE = 0.93, 0.01
"""The ratio of two numbers of rows that are tried in turn, the larger one first; and the share of rows to which what is
between the last two is narrowed down: the time goes with the square of the rows."""


def within_time(request: Request, planned: Callable[[Request], Plan]) -> Plan:
    """Returns the plan of the request, for as many of its rows as its time limit allows.

    Numbers of rows are tried from all downwards, because estimates need not rise with them: steps on all points end
    where they would take too long. Between the first one that is in time and the last that is not, halves are tried.
    """
    limit = request.settings.time_limit
    if limit is None:
        return planned(request)
    whole = _or_none(planned, replace(request, settings=replace(request.settings, time_limit=None)))
    if whole is not None and whole.estimated_seconds <= PLANNED_SHARE * limit:
        return whole

    def in_time(rows: int) -> Plan | None:
        plan = _or_none(planned, replace(request, n=rows))
        return plan if plan is not None and plan.estimated_seconds <= PLANNED_SHARE * limit else None

    rows = too_many = request.n
    while (plan := in_time(rows)) is None and rows > LEAST_ROWS:
        too_many, rows = rows, max(min(LEAST_ROWS, rows), round_down(int(FEWER * rows)))
    if plan is None:
        plan = planned(replace(request, n=rows))
    if rows == request.n:
        return plan
    while too_many - rows > CLOSE * rows:
        middle = round_down((rows + too_many) // 2)
        if middle == rows:
            break
        if (more := in_time(middle)) is None:
            too_many = middle
        else:
            rows, plan = middle, more
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
    """Returns the number with all digits after the third set to zero."""
    unit = 10 ** max(0, len(str(rows)) - 3)
    return rows // unit * unit
