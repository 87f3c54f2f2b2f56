"""A time limit in the plan: nothing where there is time, fewer steps and rows where there is not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from warmgp.planning import planner
from warmgp.planning.costs import TYPICAL
from warmgp.planning.plan import Plan
from warmgp.planning.planner import make_plan
from warmgp.planning.time_limit import PLANNED_SHARE, round_down


@pytest.fixture(autouse=True)
def usual_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "rates_for", lambda *_: TYPICAL)


def plan(n: int, **settings: Any) -> Plan:
    return make_plan(n, 8, device="cpu", memory_budget=8 * 2**30, **settings)


@pytest.mark.parametrize("limit", [0, -1.0, math.inf, math.nan, "5", True])
def test_wrong_limits_are_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="time_limit must be a positive number of seconds or None"):
        plan(100, time_limit=limit)


@pytest.mark.parametrize("n", [100, 3_000, 30_000])
def test_a_limit_that_is_long_changes_nothing(n: int) -> None:
    assert plan(n, time_limit=1e6) == plan(n)


def test_steps_go_before_rows() -> None:
    whole = plan(3_000)
    shorter = plan(3_000, time_limit=0.8 * whole.estimated_seconds)
    assert shorter.rows == 0 and shorter.n_steps < whole.n_steps


def test_rows_are_as_many_as_the_time_allows() -> None:
    plans = {limit: plan(400_000, time_limit=limit) for limit in (10, 60, 300, 3_600)}
    for limit, made in plans.items():
        assert 0 < made.rows < 400_000 and made.estimated_seconds <= PLANNED_SHARE * limit
        assert f"{made.rows:,} of 400,000 rows, drawn at random" in str(made) and "predict better" in str(made)
    rows = [made.rows for made in plans.values()]
    assert rows == sorted(rows) and rows[-1] > 10 * rows[0]
    assert plan(2 * plans[300].rows, time_limit=300).rows > 0  # twice as many would not have fitted


@pytest.mark.parametrize("limit", [10, 60, 300])
def test_hardly_more_rows_would_be_in_time(limit: float) -> None:
    """But for where more rows would not fit the memory, and each take longer: here all do."""
    made = make_plan(400_000, 8, device="cpu", memory_budget=2**40, time_limit=limit)
    assert 0.95 * PLANNED_SHARE * limit <= made.estimated_seconds <= PLANNED_SHARE * limit


def test_fewer_rows_fit_the_memory_where_all_do_not() -> None:
    with pytest.raises(MemoryError):
        plan(10**7)
    made = plan(10**7, time_limit=300)
    assert 1_000 < made.rows < 10**6 and "all of them would not fit the memory budget" in str(made)


def test_an_impossible_limit_leaves_the_fewest_rows() -> None:
    made = plan(10**6, time_limit=1e-3)
    assert made.rows == 100


@pytest.mark.parametrize(
    ("rows", "rounded"), [(7, 7), (101, 101), (1_019, 1_010), (26_456, 26_400), (1_844_352, 1_840_000)]
)
def test_rounding(rows: int, rounded: int) -> None:
    assert round_down(rows) == rounded
