"""Standardisation: statistics, degenerate columns, round trips, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from warmgp.data.arrays import check_finite
from warmgp.data.input_map import InputMap
from warmgp.data.scaling import Standardizer, check_varies, warn_of_units


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.normal([5.0, -2.0, 1e4], [0.1, 30.0, 2.0], size=(200, 3)), rng.normal(7.0, 4.0, size=200)


def test_training_rows_get_mean_zero_and_population_std_one(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    scaling = Standardizer.fit(X, y)
    np.testing.assert_allclose(scaling.x(X).mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(scaling.x(X).std(axis=0, ddof=0), 1.0, rtol=1e-12)
    assert scaling.y(y).mean() == pytest.approx(0.0, abs=1e-12)
    assert scaling.y(y).std(ddof=0) == pytest.approx(1.0, rel=1e-12)


def test_new_rows_use_the_training_statistics(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    scaling = Standardizer.fit(X, y)
    np.testing.assert_allclose(scaling.x(X.mean(axis=0)[None] + 2 * X.std(axis=0)), 2.0, rtol=1e-9)


@pytest.mark.parametrize("shape", [(), (5,), (5, 4)])
def test_targets_come_back_in_their_units(data: tuple[np.ndarray, np.ndarray], shape: tuple[int, ...]) -> None:
    scaling = Standardizer.fit(*data)
    values = np.random.default_rng(0).normal(7.0, 4.0, size=shape)
    back = scaling.y_back(scaling.y(values))
    assert back.shape == shape
    np.testing.assert_allclose(back, values, rtol=1e-12)
    np.testing.assert_allclose(scaling.y_scale_back(np.ones(shape)), np.full(shape, data[1].std()), rtol=1e-12)


@pytest.mark.parametrize(
    "column",
    [np.zeros(1000), np.full(1000, 0.1), np.full(1000, -1e9), 1e6 + 1e-10 * np.arange(1000) % 1e-9],
    ids=["zero", "tenth", "large", "rounding noise"],
)
def test_constant_column_gets_scale_one(column: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=1000), column])
    scaling = Standardizer.fit(X, rng.normal(size=1000))
    assert scaling.x_scale[1] == 1.0
    assert scaling.x_scale[0] != 1.0
    assert np.abs(scaling.x(X)[:, 1]).max() < 1e-6


def test_small_but_real_variation_is_kept() -> None:
    rng = np.random.default_rng(1)
    column = 1.0 + 1e-8 * rng.normal(size=1000)
    scaling = Standardizer.fit(column[:, None], rng.normal(size=1000) * 1e-20)
    assert scaling.x_scale[0] == pytest.approx(column.std())
    assert scaling.y_scale < 1e-19


@pytest.mark.parametrize("value", [0.0, 0.1, 3e8])
def test_constant_targets_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"^y is constant .*nothing to learn: check that the right column"):
        Standardizer.fit(np.arange(50.0)[:, None], np.full(50, value))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros(3), np.arange(3.0), r"X must have shape \(n, d\); got \(3,\)"),
        (np.zeros((3, 1)), np.zeros((3, 1, 1)), r"y must have shape \(n,\), or \(n, q\) .*; got \(3, 1, 1\)"),
        (np.zeros((3, 1)), np.arange(4.0), "got 3 and 4"),
        (np.zeros((0, 2)), np.zeros(0), "no rows"),
        (np.array([[0.0], [np.nan]]), np.arange(2.0), "X contains NaN in row 1, column 0, counted"),
        (
            np.zeros((2, 1)),
            np.array([0.0, np.inf]),
            "y contains infinity in row 1, counted from 0: fill in or leave out",
        ),
    ],
)
def test_bad_training_data_is_named(X: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Standardizer.fit(X, y)


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_inputs_of_another_width_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape \(m, 2\)"):
        Standardizer.identity(2).x(np.zeros(shape))


def test_identity_changes_nothing(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    scaling = Standardizer.identity(3)
    for got, want in [
        (scaling.x(X), X),
        (scaling.y(y), y),
        (scaling.y_back(y), y),
        (scaling.y_scale_back(y), y),
    ]:
        np.testing.assert_array_equal(got, want)


def test_single_precision_input_is_computed_in_double() -> None:
    """Near 1e6 single precision resolves 0.06; statistics taken in it would be off by far more than 1e-9."""
    X = (1e6 + np.arange(1000.0) / 4).astype(np.float32)[:, None]
    y = (1e6 + np.arange(1000) % 7).astype(np.float32)
    scaling = Standardizer.fit(X, y)
    assert scaling.x_scale[0] == pytest.approx(X.astype(np.float64).std(), rel=1e-12)
    outputs = [scaling.x(X), scaling.y(y), scaling.y_back(y), scaling.y_scale_back(y), scaling.x_mean, scaling.x_scale]
    assert {a.dtype for a in outputs} == {np.dtype(np.float64)}
    assert np.abs(scaling.x(X).mean()) < 1e-9


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (([0.0, 0.0], [1.0], 0.0, 1.0), "one length"),
        (([0.0], [0.0], 0.0, 1.0), "positive"),
        (([0.0], [1.0], 0.0, 0.0), "positive"),
    ],
)
def test_scales_that_cannot_be_undone_are_refused(fields: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Standardizer(*fields)


def test_centring_moves_inputs_and_nothing_else(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    scaling = Standardizer.centring(X + 1e6)
    assert np.allclose(scaling.x(X + 1e6), X - X.mean(0), atol=1e-8) and np.array_equal(scaling.y(y), y)


def test_a_target_is_called_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"^the target 't' is constant \(3 in all 4 rows\), .* learn: check --target$"):
        check_varies(np.full(4, 3.0), "the target 't'", "check --target")
    with pytest.raises(ValueError, match=r"^y has values too small for floating point: multiply"):
        check_varies(np.array([0.0, 1e-200, 2e-200]))
    check_varies(np.array([0.0, 1e300, -1e300]))  # too large to standardise, and not constant
    check_varies(1e6 + np.arange(5.0))


def test_the_first_cell_that_is_no_number_is_named() -> None:
    values = np.zeros((3, 2))
    check_finite("X", values)
    values[1, 1], values[2, 0] = np.inf, np.nan
    with pytest.raises(
        ValueError, match=r"^X contains infinity in row 1, column 1, counted from 0 \(and in 1 more cells\)"
    ):
        check_finite("X", values)
    with pytest.raises(ValueError, match=r"^z contains infinity in row 1, column 'b', "):
        check_finite("z", values, ["a", "b"])


def test_columns_with_names_are_named() -> None:
    """By what a user calls them, in an error and in both warnings; by their numbers where they have no names."""
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0)
    names = InputMap.of(None, ["lat", "height"])
    huge, narrow, wide = X.copy(), X.copy(), X * [1.0, 1e3]
    huge[:, 1] *= 1e200
    narrow[:, 1] = 1e9 + 1e-6 * narrow[:, 1]
    for columns, told in ((names, "'height'"), (None, "1")):
        with pytest.raises(ValueError, match=f"column {told} of X has values too large to standardise"):
            Standardizer.fit(huge, y, columns=columns)
        with pytest.warns(UserWarning, match=f"column {told} of X varies by"):
            Standardizer.fit(narrow, y, columns=columns)
        with pytest.warns(UserWarning, match=f"column {told} of X has standard deviation"):
            warn_of_units(wide, y / 30, columns)
