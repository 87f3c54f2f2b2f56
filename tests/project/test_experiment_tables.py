"""Tables from records made by hand: means, errors, bounds, and when two results agree."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.cells import Run, describe
from experiments.published import Published, read_published
from experiments.summary import (
    Order,
    Summary,
    agreement,
    less_exact,
    orders,
    outside,
    seconds_in_order,
    speed_up,
    summaries,
)
from experiments.tables import costs_table, large_table, main_table, mean_of, scores_table, shown


def record(
    run: Run, *, llh: float = 1.0, epochs: float = 100.0, cut: bool = False, converged: bool = True
) -> dict[str, Any]:
    more = {"converged": converged, "machine": {"device": "here"}}
    test = {} if cut else {"test": {"llh": llh, "rmse": 0.1}, "test_exact": {"llh": llh, "rmse": 0.1}}
    return {
        "key": run.key, "run": describe(run), "outcome": "cut" if cut else "finished", "epochs": epochs,
        "seconds": epochs / 10, "solver_seconds": epochs / 20, "steps": 50 if cut else 100, **test, **more,
        "history": {"epochs": [epochs / (50 if cut else 100)] * (50 if cut else 100)},
    }  # fmt: skip


def cell(split: int = 0, estimator: str = "pathwise", warm: bool = True, **more: Any) -> dict[str, Any]:
    return record(Run("pol", split, "ap", estimator, warm), **more)


THEIRS = Published(llh=1.0, llh_error=0.01, rmse=0.1, rmse_error=0.001, seconds=60.0, solver_seconds=50.0)


def test_means_and_errors_over_splits() -> None:
    own = summaries([cell(0, llh=1.0), cell(1, llh=1.2), cell(2, llh=1.4)])["pol", "ap", "pathwise", True]
    assert own.mean("llh") == pytest.approx(1.2) and own.error("llh") == pytest.approx(0.2 / 3**0.5)
    assert math.isnan(Summary((cell(),)).error("llh"))


def test_only_plain_cells_are_in_the_tables() -> None:
    varied = [record(Run("pol", n_probes=8)), record(Run("pol", budget=10.0)), record(Run("pol", n_features=500))]
    assert summaries(varied) == {}
    assert list(summaries([record(Run("houseelectric", solver="ap", budget=10.0))])) == [
        ("houseelectric", "ap", "pathwise", True)
    ]


@pytest.mark.parametrize(("splits", "off", "expected"), [(1, 0.02 * 10**0.5, 1.0), (10, 0.02, 1.0), (10, 0.05, 2.5)])
def test_agreement_is_in_units_of_two_standard_errors(splits: int, off: float, expected: float) -> None:
    own = Summary(tuple(cell(k, llh=1.0 - off) for k in range(splits)))
    assert agreement(own, THEIRS, "llh") == pytest.approx(expected)


def test_cells_outside_are_named() -> None:
    found = summaries([cell(llh=0.5), cell(estimator="standard")])
    published = dict.fromkeys(found, THEIRS)
    assert math.isnan(summaries([cell(llh=math.nan)])["pol", "ap", "pathwise", True].mean("llh"))
    assert len(outside(summaries([cell(llh=math.nan)]), published)) == 1  # no number does not agree
    assert [(c, name) for c, name, _ in outside(found, published)] == [(("pol", "ap", "pathwise", True), "llh")]
    assert agreement(Summary((cell(cut=True),)), THEIRS, "llh") is None


def test_speed_ups_pair_the_splits() -> None:
    base = [cell(k, "standard", False, epochs=1000.0 * (k + 1)) for k in range(3)]
    found = summaries([*base, cell(0, epochs=100.0), cell(2, epochs=100.0)])
    assert speed_up(found, ("pol", "ap", "pathwise", True)) == (pytest.approx(20.0), False)
    cut = summaries([cell(0, "standard", False, epochs=500.0, cut=True), cell(0, epochs=100.0)])
    assert speed_up(cut, ("pol", "ap", "pathwise", True)) == (5.0, True)
    short = summaries([cell(0, "standard", False, epochs=500.0, converged=False), cell(0, epochs=100.0)])
    assert speed_up(short, ("pol", "ap", "pathwise", True)) == (5.0, True)  # a solve that gave up was too cheap
    assert mean_of([(5.0, True), (math.nan, False), (7.0, False)]) == "> 6.0 (2)"
    none = summaries([cell(0, "standard", False), cell(0, cut=True)])
    assert math.isnan(speed_up(none, ("pol", "ap", "pathwise", True))[0])


def test_the_order_of_cells() -> None:
    standard, pathwise = ("pol", "ap", "standard", True), ("pol", "ap", "pathwise", True)
    published = {standard: THEIRS, pathwise: Published(1, 0.01, 0.1, 0.001, 30.0, 20.0)}
    found = summaries([cell(estimator="standard", epochs=50.0), cell(epochs=100.0)])
    assert orders(found, published) == [Order(pathwise, standard, good=False, whole=True)]
    assert orders(found, published, across=True) == []
    near = {**published, standard: Published(1, 0.01, 0.1, 0.001, 30.0, 23.0)}
    assert orders(found, near) == []


@pytest.mark.parametrize(
    ("dear", "cheap", "place", "dear_cut", "right"),
    [
        (30.0, 20.0, "here", False, True),
        (10.0, 20.0, "here", False, False),
        (30.0, 20.0, "there", False, False),  # seconds of two devices say nothing
        (10.0, 20.0, "here", True, False),  # nor does a run that was cut so early
        (15.0, 20.0, "here", True, False),  # even if it was dearer as far as it came
    ],
)
def test_the_order_of_cells_by_seconds(dear: float, cheap: float, place: str, dear_cut: bool, right: bool) -> None:
    one = {**cell(epochs=100.0), "solver_seconds": cheap}
    other = {**cell(estimator="standard", epochs=50.0, cut=dear_cut), "solver_seconds": dear}
    other |= {"machine": {"device": place}, "history": {"solver_seconds": [dear / 50] * 50}}
    one["history"] = {"solver_seconds": [cheap / 100] * 100}
    pair = Order(("pol", "ap", "pathwise", True), ("pol", "ap", "standard", True), good=False, whole=True)
    assert seconds_in_order(summaries([one, other]), pair) is right


@pytest.mark.parametrize(
    ("dear", "dear_cut", "cheap", "cheap_cut", "good", "whole"),
    [
        (150.0, True, 100.0, False, True, True),  # it has cost more already
        (60.0, True, 100.0, False, True, False),  # in 50 steps 60 against 50
        (40.0, True, 100.0, False, False, False),
        (100.0, False, 120.0, True, False, True),  # nothing that is to come can help
        (100.0, False, 40.0, True, True, False),
        (60.0, True, 50.0, True, True, False),
    ],
)
def test_the_order_of_cells_that_were_cut(
    dear: float, dear_cut: bool, cheap: float, cheap_cut: bool, good: bool, whole: bool
) -> None:
    found = summaries([cell(estimator="standard", epochs=dear, cut=dear_cut), cell(epochs=cheap, cut=cheap_cut)])
    published = dict.fromkeys(found, THEIRS)
    published["pol", "ap", "pathwise", True] = Published(1, 0.01, 0.1, 0.001, 30.0, 20.0)
    [order] = orders(found, published)
    assert (order.good, order.whole) == (good, whole)


def test_bounds_are_rounded_down() -> None:
    assert shown(9.963, 1, bound=True) == "> 9.9" and shown(9.963, 1) == "10.0"
    assert shown(27978.6, 0, bound=True, error=761.0) == "> 27,978"


def test_differences_from_exact_training_are_of_the_same_splits() -> None:
    truth = Summary(tuple(record(Run("pol", k, "exact", "exact", False), llh=1.0 + k) for k in range(3)))
    own = Summary((cell(0, llh=0.9), cell(2, llh=3.1), cell(1, cut=True)))
    assert less_exact(own, truth, "llh") == pytest.approx([-0.1, 0.1])
    table = scores_table({("pol", "ap", "pathwise", True): own}, {}, "pol", truth)
    assert "+0.000 ± 0.100" in table


def test_published_numbers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "paper.csv"
    path.write_text(
        "dataset,solver,estimator,warm_start,test_rmse,test_rmse_stderr,test_llh,test_llh_stderr,total_time,time_unit,"
        "solver_time\npol,cg,standard,0,0.075,0.001,1.27,0.008,4.0,min,3.5\nx,ap,pathwise,1,,,,,2.0,h,\n"
        "kegg,ap,standard,0,,,,,>24h,min,>24h\n"
    )
    found = read_published(path)
    first = found["pol", "cg", "standard", False]
    assert (first.llh, first.llh_error, first.rmse, first.rmse_error) == (1.27, 0.008, 0.075, 0.001)
    assert (first.seconds, first.solver_seconds, first.unfinished) == (240.0, 210.0, False)
    late = found["kegg", "ap", "standard", False]
    assert (late.seconds, late.solver_seconds, late.unfinished) == (86400.0, 86400.0, True)
    other = found["x", "ap", "pathwise", True]
    assert other.seconds == 7200.0 and math.isnan(other.llh)
    assert read_published(None) == read_published(tmp_path / "none.csv") == {}


def test_tables_show_ours_beside_theirs() -> None:
    found = summaries([cell(0, llh=1.234), cell(0, "standard", False, epochs=900.0, cut=True)])
    published = {
        ("pol", "ap", "pathwise", True): replace(THEIRS, speed_up=3.5),
        ("pol", "ap", "standard", False): replace(THEIRS, llh=math.nan),
    }
    table = main_table(found, published, ["pol"])
    assert "| AP | pathwise, warm | 1.23 / 1.00 | 10.0 / 60.0 | > 9.0 (1) | > 9.0 (1) | 3.5 (1) | 3.5 (1) |" in table
    assert "| AP | standard, cold | – / – | > 90.0 / 60.0 | – | – | – | – |" in table
    scores, costs = scores_table(found, published, "pol", None), costs_table(found, published, "pol")
    assert "1 cut at step 50" in scores and "1.234" in scores and "> 900" in costs
    for each in (table, scores, costs):
        assert len({line.count("|") for line in each.splitlines()}) == 1
    house = record(Run("houseelectric", solver="ap", budget=10.0), converged=False)
    house["history"] = {"residual_mean": [0.2, 0.4], "residual_probes": [0.5, 0.7]}
    large = large_table(summaries([house]), {("houseelectric", "ap", "pathwise", True): THEIRS}, "houseelectric")
    assert "0.300" in large and "0.600" in large and "> " not in large  # a budget was kept: no bound
    assert len({line.count("|") for line in large.splitlines() if line.startswith("|")}) == 1


def test_fewer_splits_than_the_other_cells_are_marked() -> None:
    found = summaries([cell(0, llh=1.0), cell(1, llh=1.0), cell(0, "standard", llh=1.0)])
    rows = main_table(found, {}, ["pol"]).splitlines()
    assert any("standard, warm | 1.00 (1) |" in row for row in rows)
    assert any("pathwise, warm | 1.00 |" in row for row in rows)


def test_seconds_of_two_machines_are_not_compared() -> None:
    found = summaries([cell(0, "standard", False), {**cell(0), "machine": {"device": "there"}}])
    assert speed_up(found, ("pol", "ap", "pathwise", True)) == (1.0, False)
    assert math.isnan(speed_up(found, ("pol", "ap", "pathwise", True), "seconds")[0])


def test_seconds_of_a_run_that_went_on_elsewhere_are_compared_with_nothing() -> None:
    both = {"machine": {"device": "here; there"}}
    found = summaries([{**cell(0, "standard", False), **both}, {**cell(0), **both}])
    assert math.isnan(speed_up(found, ("pol", "ap", "pathwise", True), "seconds")[0])
    assert speed_up(found, ("pol", "ap", "pathwise", True)) == (1.0, False)


def test_a_large_run_that_was_cut_shows_in_brackets_how_far_it_came() -> None:
    house = record(Run("houseelectric", solver="cg", budget=10.0), cut=True)
    house["history"] = {
        "residual_mean": [0.2, 0.4], "residual_probes": [0.5, 0.7], "test_rmse": [0.9, 0.25], "test_llh": [-3.0, 0.125],
    }  # fmt: skip
    table = large_table(summaries([house]), {}, "houseelectric")
    assert "| (0.2500) |  | (0.125) |  | (0.300) |  | (0.600) |" in table and "as far as it came" in table
