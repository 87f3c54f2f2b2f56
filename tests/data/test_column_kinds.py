"""What columns can be: distances on circles, among categories and to missing cells, against formulas of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from warmgp.data.column_kinds import KINDS, PERIODS, Category, Circle, Days, Geographic, Number
from warmgp.data.gaps import Gaps
from warmgp.data.input_map import InputMap

NAMES = ["when", "hour", "colour", "age"]


def distances(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.norm(x[:, None] - x[None], axis=-1))


def test_a_circle_has_no_edge_and_keeps_short_distances() -> None:
    hours = np.array([[23.0 + 59 / 60], [0.0], [6.0], [12.0], [24e9 + 6.0], [-18.0]])
    found = distances(Circle((0,), 24.0).inputs(hours))
    np.testing.assert_allclose(found[1, 3], 2.0)  # the diameter
    np.testing.assert_allclose(found[0, 1] * 24 / (2 * np.pi), 1 / 60, rtol=1e-4)  # a minute, in hours
    np.testing.assert_allclose(found[2, [4, 5]], 0.0, atol=1e-14)  # whole turns
    between = 2 * np.sin(np.pi * np.abs(hours - hours.T) / 24)
    np.testing.assert_allclose(found, np.abs(between), atol=1e-5)  # a sine of 10¹⁰ is none


def test_all_values_of_a_category_are_equally_far_apart() -> None:
    part = Category((0,), ("a", "b", "c"))
    found = part.inputs(np.array([[0.0], [1.0], [2.0], [1.0], [3.0]]))
    np.testing.assert_allclose(distances(found)[:3, :3], np.sqrt(2) * (1 - np.eye(3)))
    np.testing.assert_array_equal(found[1], found[3])
    np.testing.assert_array_equal(found[4], 0.0)  # not known
    assert part.in_units(np.sqrt(2)) == "1 steps between two values" and part.width == 3


@pytest.mark.parametrize("kind", [Number((1,)), Circle((1,), 5.0), Category((1,), tuple("abcd"))])
def test_a_missing_cell_is_as_far_as_two_others_in_the_mean_square(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=300), rng.integers(0, 4, 300).astype(float)], 1)
    there = distances(kind.inputs(X)) ** 2
    X[7:20, 1] = np.nan
    gaps = Gaps.fit(kind, X)
    x = gaps.inputs(X)
    missing = np.isnan(X[:, 1])
    square = distances(x) ** 2
    assert x.shape == (300, kind.width + 1) and np.isfinite(x).all() and square[np.ix_(missing, missing)].max() == 0
    np.testing.assert_allclose(x[~missing, :-1], kind.inputs(X[~missing]))
    np.testing.assert_allclose(square[np.ix_(missing, ~missing)].mean(), there.mean(), rtol=0.02)
    present = square[np.ix_(~missing, ~missing)]
    np.testing.assert_allclose(square[np.ix_(missing, ~missing)].mean(), present.mean(), rtol=1e-9)


def test_a_date_makes_several_things_of_one_column() -> None:
    columns = InputMap.of({"when": ("date", "year", "week"), "hour": ("periodic", 24), "colour": "category"}, NAMES)
    columns = columns.learned(2, lambda part: replace(part, levels=("blue", "red")))  # type: ignore[call-arg]
    assert [name for name, *_ in columns.groups] == ["when", "when: year", "when: week", "hour", "colour", "age"]
    assert columns.tied == (0, 1, 1, 2, 2, 3, 3, 4, 4, 5) and columns.sources == (0, 0, 0, 0, 0, 1, 1, 2, 2, 3)
    assert columns.read == {0: "date", 2: "category"} and columns.redundant == (7,)
    X = np.array([[10.5, 6.0, 1.0, 40.0]])
    angle = 2 * np.pi * 10.5 / 365.2425
    week = 2 * np.pi * 3.5 / 7
    truth = [10.5, np.cos(angle), np.sin(angle), np.cos(week), np.sin(week), 0, 1, 0, 1, 40]
    np.testing.assert_allclose(columns.inputs(X)[0], truth, atol=1e-12)
    assert columns.input_names[:3] == ("when", "when: year: cos", "when: year: sin")
    assert columns.input_names[7:9] == ("colour: blue", "colour: red")
    assert PERIODS == {"year": 365.2425, "week": 7.0, "day": 1.0}
    assert isinstance(columns.parts[0], Days)


def test_only_columns_that_lack_cells_are_filled_in() -> None:
    X = np.array([[1.0, 2.0, np.nan, 4.0], [2.0, np.nan, 0.0, 3.0], [3.0, 1.0, 1.0, 5.0]])
    columns = InputMap.of({1: ("periodic", 24)}, range(4)).filled(X)
    assert columns.with_gaps == (1, 2) and columns.inputs(X).shape == (3, 7) and np.isfinite(columns.inputs(X)).all()
    assert InputMap.plain(4).filled(np.ones((3, 4))) == InputMap.plain(4)
    with pytest.raises(ValueError, match="X, column '3', is missing in all 3 rows: leave it out"):
        InputMap.plain(4).filled(np.where(np.arange(4) == 3, np.nan, X))


BAD: dict[str, tuple[Any, str]] = {
    "no period": ("periodic", "takes a column and its period"),
    "a period of zero": (("periodic", 0), "must be a number above 0.*got 0"),
    "an infinite period": (("periodic", float("inf")), "number above 0"),
    "a truth value": (("periodic", True), "number above 0"),
    "an unknown period": (("periodic", "month"), "'year', 'week', 'day' or a format with %, got 'month'"),
    "a period twice": (("date", "week", "week"), "periods must be different"),
    "a number twice": (("periodic", 7, 7), "periods must be different"),
    "two formats": (("date", "%d", "%m"), "one format"),
    "a number for a date": (("date", 7), "dates take"),
    "options of a category": (("category", 3), "'category' takes no options"),
    "an unknown kind": (("circle", 3), "must be one of 'geographic', 'periodic', 'date', 'category'"),
    "an empty tuple": ((), "must be one of"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_refused(what: str) -> None:
    kind, message = BAD[what]
    with pytest.raises(ValueError, match=re.escape("columns['hour']") + ".*" + message):
        InputMap.of({"hour": kind}, NAMES)


def test_two_columns_for_one_are_refused() -> None:
    for kind in ("date", "category", ("periodic", 3)):
        with pytest.raises(ValueError, match=r"takes a column.*got \('hour', 'age'\)"):
            InputMap.of({("hour", "age"): kind}, NAMES)
    assert set(KINDS) == {"geographic", "periodic", "date", "category"}


def test_inputs_lead_back_to_cells() -> None:
    """What a report shows are the cells of the user: an hour within its period, a place, a value, a gap."""
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.uniform(-80, 80, 30), rng.uniform(-180, 180, 30), rng.integers(0, 3, 30)])
    for part in (Geographic((0, 1)), Number((1,)), Days((1,)), Category((2,), ("a", "b", "c")), Circle((0,), 24.0)):
        cells = X[:, list(part.columns)]
        expected = np.remainder(cells, 24.0) if isinstance(part, Circle) else cells
        np.testing.assert_allclose(part.cells(part.inputs(X)), expected, atol=1e-9)
        gone = X.copy()
        gone[::7, part.columns[0]] = np.nan
        expected = expected.copy()
        expected[::7] = np.nan
        gaps = Gaps.fit(part, gone)
        np.testing.assert_allclose(gaps.cells(gaps.inputs(gone)), expected, atol=1e-9)
    unknown = Category((2,), ("a", "b"))
    np.testing.assert_array_equal(unknown.cells(np.array([[0.0, 1.0], [0.0, 0.0]])), [[1.0], [2.0]])
