"""Bad data to the estimator: refused by argument, row and column, with the remedy; the estimator stays what it was."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.multioutput import MultiOutputRegressor

from warmgp import GPRegressor, Matern32

SETTINGS = {"n_steps": 2, "n_features": 20, "n_probes": 2, "random_state": 0}
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-2, 2, (40, 2)), RNG.normal(size=40)
NAMED = pd.DataFrame(X, columns=["lat", "lon"])


def spoiled(values: np.ndarray, value: float) -> np.ndarray:
    bad = values.copy()
    bad.reshape(40, -1)[3, -1] = value
    return bad


def masked(values: np.ndarray) -> np.ma.MaskedArray:
    """The same numbers, the cell that ``spoiled`` spoils masked."""
    return np.ma.array(values, mask=np.isnan(spoiled(values, math.nan)))


DATA_ERRORS = {
    "masked X": (masked(X), Y, "X is masked in row 3, column 1, counted from 0: .*missing.*fill in or leave out"),
    "masked rows": (list(masked(X)), Y, "X is masked in row 3, column 1, counted from 0: .*fill in or leave out"),
    "all masked": (np.ma.masked_all((40, 2)), Y, r"X is masked in row 0, column 0, counted from 0 \(and 79 more\)"),
    "masked y": (X, masked(Y), "y is masked in row 3, counted from 0: .*missing.*fill in or leave out"),
    "masked column": (X, masked(Y)[:, None], "y is masked in row 3, column 0, counted from 0"),
    "NaN in X": (spoiled(X, math.nan), Y, r"X contains NaN in row 3, column 1.*fill in or leave out"),
    "infinity in X": (spoiled(X, math.inf), Y, r"X contains infinity in row 3, column 1.*leave out"),
    "NaN in a frame": (NAMED.shift(-2), Y, "X contains NaN in row 38, column 'lat'.*3 more"),
    "NaN in y": (X, spoiled(Y, math.nan), "y contains NaN in row 3.*leave out"),
    "infinity in y": (X, spoiled(Y, -math.inf), "y contains infinity in row 3.*leave out"),
    "too large X": (spoiled(X, 1e300), Y, "column 1 of X has values too large.*divide"),
    "too small y": (X, Y * 1e-170, "y has values too small.*multiply"),
    "too large y": (X, spoiled(Y, 1e300), "y has values too large.*divide"),
    "text in X": (np.array([["1", "b"]] * 40), Y, "X, column 1, is not numbers.*'b'.*turn it into numbers"),
    "text in a frame": (NAMED.assign(colour="red"), Y, "X, column 'colour', is not numbers.*'red'.*turn it into"),
    "categories": (NAMED.assign(c=pd.Categorical(["u", "v"] * 20)), Y, "X, column 'c', is not numbers.*'u'"),
    "dates in a frame": (NAMED.assign(when=pd.Timestamp("2026-01-01")), Y, "Dates not supported: X, column 'when'"),
    "dates in X": (np.full((40, 1), "2026-01-01", dtype="M8[D]"), Y, "Dates not supported: X has dtype datetime64"),
    "text in y": (X, np.array(["a"] * 40), "y is not numbers.*'a'.*turn it into numbers"),
    "dates in y": (X, np.full(40, "2026-01-01", dtype="M8[D]"), "Dates not supported: y"),
    "complex X": (X * 1j, Y, "Complex data not supported: X has dtype complex128.*turn it into"),
    "complex y": (X, Y * 1j, "Complex data not supported: y has dtype complex128"),
    "complex tensor": (torch.as_tensor(X * 1j), Y, "Complex data not supported: X"),
    "sparse X": (scipy.sparse.csr_array(X), Y, r"Sparse data was passed for X.*toarray"),
    "1-D X": (X[:, 0], Y, r"Expected 2D array(.|\n)*Reshape"),
    "3-D X": (X[:, :, None], Y, "dim 3"),
    "no columns": (X[:, :0], Y, r"0 feature\(s\).*minimum of 1"),
    "no rows": (X[:0], Y[:0], r"0 sample\(s\).*minimum of 2"),
    "one row": (X[:1], Y[:1], r"1 sample\(s\).*minimum of 2"),
    "other lengths": (X, Y[:-1], "X has 40 and y has 39: give one target for each row"),
    "no y": (X, None, "requires y to be passed"),
    "scalar y": (X, 3.0, "y should be a 1d array"),
    "ragged y": (X, [[1.0], [1.0, 2.0]] * 20, r"y must be one column of shape \(40,\)"),
    "constant y": (X, np.full(40, 3.0), "y is constant.*nothing to learn: check that the right column"),
    "3-D y": (X, np.ones((40, 1, 1)), r"got shape \(40, 1, 1\)"),
    "y without columns": (X, np.ones((40, 0)), r"y must be one column .*, or \(40, q\) .* got shape \(40, 0\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", DATA_ERRORS)
def test_fit_refuses_data(case: str) -> None:
    inputs, targets, message = DATA_ERRORS[case]
    model = GPRegressor(**SETTINGS)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(inputs, targets)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not hasattr(model, "n_features_in_")


def test_a_mask_that_hides_nothing_changes_nothing() -> None:
    plain = GPRegressor(**SETTINGS).fit(X, Y).predict(X)
    np.testing.assert_array_equal(GPRegressor(**SETTINGS).fit(np.ma.array(X), np.ma.array(Y)).predict(X), plain)


def test_polars_is_refused_alike() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"lat": X[:, 0], "lon": X[:, 1]})
    for column, message in (
        (polars.lit("red"), "X, column 'c', is not numbers"),
        (polars.lit(None).cast(polars.Float64), "X contains NaN in row 0, column 'c'"),
        (polars.date(2026, 1, 1), "Dates not supported: X, column 'c'"),
    ):
        with pytest.raises(ValueError, match=message):
            GPRegressor(**SETTINGS).fit(frame.with_columns(column.alias("c")), Y)


def test_a_failed_fit_leaves_the_model_that_was_there() -> None:
    model = GPRegressor(**SETTINGS).fit(NAMED, Y)
    before = model.predict(NAMED)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(spoiled(X, math.nan)[:, 1:], Y)
    assert model.n_features_in_ == 2 and model.feature_names_in_.tolist() == ["lat", "lon"]
    np.testing.assert_array_equal(model.predict(NAMED), before)


def test_several_targets_one_model_each() -> None:
    """A model for each column is scikit-learn's business, and one column is taken with scikit-learn's warning."""
    both = np.column_stack([Y, -2 * Y])
    mean = MultiOutputRegressor(GPRegressor(**SETTINGS)).fit(X, both).predict(X)
    np.testing.assert_allclose(mean[:, 0], GPRegressor(**SETTINGS).fit(X, Y).predict(X))
    assert mean.shape == (40, 2)
    for column in (Y[:, None], pd.DataFrame({"y": Y}), torch.as_tensor(Y[:, None])):
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            one = GPRegressor(**SETTINGS).fit(X, column)
        np.testing.assert_array_equal(one.predict(X), GPRegressor(**SETTINGS).fit(X, Y).predict(X))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_predict_refuses() -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        GPRegressor().predict(X)
    model = GPRegressor(**SETTINGS).fit(NAMED, Y)
    for inputs, message in (
        (NAMED[["lat"]], r"feature names(.|\n)*lon"),
        (NAMED.to_numpy()[:, :1], "1 features.*expecting 2 features"),
        (NAMED.rename(columns={"lon": "height"}), r"feature names(.|\n)*height(.|\n)*lon"),
        (NAMED[["lon", "lat"]], r"feature names(.|\n)*same order"),
        (NAMED.assign(lon="east"), "X, column 'lon', is not numbers"),
        (NAMED.assign(lon=np.nan), "X contains NaN in row 0, column 'lon'"),
        (NAMED[:0], "0 sample"),
        (masked(X), "X is masked in row 3, column 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(inputs, return_std=True)
        with pytest.raises(ValueError, match=message):
            model.sample_y(inputs)
    for targets, message in (
        (Y[:-1], "y has 39"),
        (np.column_stack([Y, Y]), r"one column of shape \(40,\), got shape \(40, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            model.log_predictive_density(NAMED, targets)
    with pytest.raises(ValueError, match="return_std and return_cov"):
        model.predict(NAMED, return_std=True, return_cov=True)


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        (X, "validation must be a pair"),
        ((X, Y, Y), "validation must be a pair"),
        ((X[:, :1], Y), "validation X: .*expecting 2 features"),
        ((X, Y[:-1]), "validation X has 40 and validation y has 39"),
        ((spoiled(X, math.nan), Y), "validation X contains NaN in row 3"),
        ((X, spoiled(Y, math.nan)), "validation y contains NaN in row 3"),
        ((X, np.column_stack([Y, Y])), "validation y must be one column"),
        ((masked(X), Y), "validation X is masked in row 3, column 1"),
        ((X, masked(Y)), "validation y is masked in row 3"),
    ],
)
def test_validation_is_checked(validation: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPRegressor(**SETTINGS).fit(X, Y, validation=validation)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_budget": 8}, r"memory_budget is in bytes, got 8: for 8 GiB pass 8 \* 2\*\*30"),
        ({"memory_budget": float("inf")}, "memory_budget must be a positive number of bytes or None"),
        ({"n_steps": None}, 'n_steps must be a number or "auto"'),
        ({"solver": "x"}, "solver must be 'auto', 'cholesky'.*ConjugateGradients"),
        ({"max_epochs": "none"}, 'max_epochs must be a number, None or "auto"'),
        ({"kernel": Matern32}, r"kernel must be one of 'rbf'.*warmgp.Matern32\(\)"),
    ],
)
def test_settings_are_refused_with_what_is_accepted(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPRegressor(**settings).fit(X, Y)


def test_seeds_of_samples_are_checked() -> None:
    model = GPRegressor(**SETTINGS).fit(X, Y)
    with pytest.raises(ValueError, match="random_state must be None, a RandomState or an integer"):
        model.sample_y(X, 3, random_state=np.random.default_rng(0))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_data_that_cannot_be_written_to_can_have_a_checkpoint(tmp_path: Path) -> None:
    x, y = X.copy(), Y.copy()
    x.flags.writeable = y.flags.writeable = False
    GPRegressor(checkpoint=tmp_path / "c", **SETTINGS).fit(x, y)


def test_one_column_of_validation_targets_is_the_same_as_none() -> None:
    """(m, 1) must not be broadcast against (m,)."""
    plain = GPRegressor(**SETTINGS).fit(X, Y, validation=(X, Y))
    with pytest.warns(DataConversionWarning):
        column = GPRegressor(**SETTINGS).fit(X, Y, validation=(X, Y[:, None]))
    assert [h.metrics for h in column.history_] == [h.metrics for h in plain.history_]


# -- the estimator: files --------------------------------------------------------------------------------------------
def test_paths_of_the_estimator(tmp_path: Path) -> None:
    model = GPRegressor(**SETTINGS).fit(X, Y)
    with pytest.raises(IsADirectoryError, match="is a folder, give the name"):
        model.save(tmp_path)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        GPRegressor.load(tmp_path)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        GPRegressor(checkpoint=tmp_path, **SETTINGS).fit(X, Y)
    with pytest.raises(NotFittedError):
        GPRegressor().save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
