"""Robust fits: outliers of y do not rule them, clean data are left alone, and weights go where given ones go."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.base import clone

from warmgp import GPRegressor
from warmgp.files.format import FileError, read, write
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.training.limits import Limits
from warmgp.training.outlying import (
    BEYOND,
    HARMLESS,
    TOLERATED,
    Rows,
    _Rough,
    outlying_weights,
    robust_scale,
    weights_of,
)

FAST: dict[str, Any] = {"kernel": "matern52", "n_features": 200, "n_probes": 8, "random_state": 0, "device": "cpu"}
NEW = np.random.default_rng(9).uniform(-2, 2, (200, 2))


def f(X: np.ndarray) -> np.ndarray:
    return np.asarray(50 + 7 * np.sin(2 * X[:, 0]) + 2 * X[:, 1])


def data(n: int = 160, seed: int = 0, share: float = 0.05) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, clean targets, the same with outliers of 10 to 100 standard deviations, and which those are."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    y = f(X) + 0.5 * rng.normal(size=n)
    out = np.sort(rng.permutation(n)[: int(share * n)])
    bad = y.copy()
    bad[out] = y.mean() + y.std() * rng.uniform(10, 100, len(out)) * rng.choice([-1, 1], len(out))
    return X, y, bad, out


def rmse(model: GPRegressor) -> float:
    return float(np.sqrt(np.mean((model.predict(NEW) - f(NEW)) ** 2)))


# -- what it is for --------------------------------------------------------------------------------------------------
def test_outliers_do_not_rule() -> None:
    """Those rows are left out, and no others: the fit is that of somebody who knows which they are."""
    X, y, bad, out = data()
    model = GPRegressor(robust=True, **FAST).fit(X, bad)
    assert np.flatnonzero(model.robust_weights_ == 0).tolist() == out.tolist()
    assert (np.delete(model.robust_weights_, out) == 1).all()
    known = GPRegressor(**FAST).fit(X, y, sample_weight=model.robust_weights_)
    np.testing.assert_array_equal(model.predict(NEW, return_std=True), known.predict(NEW, return_std=True))
    assert rmse(model) < 1.2 * rmse(GPRegressor(**FAST).fit(X, y))
    assert rmse(model) < 0.2 * rmse(GPRegressor(**FAST).fit(X, bad))
    rows = ", ".join(map(str, out[:5]))
    assert "8 of 160 rows were left out" in str(model.report_) and f"(rows {rows} and 3 more, " in str(model.report_)


def test_clean_data_are_left_alone() -> None:
    X, y, _, _ = data()
    plain, model = GPRegressor(**FAST).fit(X, y), GPRegressor(robust=True, **FAST).fit(X, y)
    assert (model.robust_weights_ == 1).all() and plain.robust_weights_ is None
    np.testing.assert_array_equal(model.predict(NEW, return_std=True), plain.predict(NEW, return_std=True))
    assert "every row counted in full" in str(model.report_).lower()
    assert "counted in full" not in str(plain.report_)


@pytest.mark.parametrize(
    ("columns", "settings"), [(2, {"ard": False}), (2, {"trend": "linear"}), (8, {}), (2, {"learn_noise": False})]
)
@pytest.mark.filterwarnings("ignore:the noise is at its floor")
def test_settings(columns: int, settings: dict[str, Any]) -> None:
    """One length scale; a trend far beyond the spread; near rows that no tree finds; noise that is not learned."""
    X, _, bad, out = data()
    X = np.c_[X, np.random.default_rng(1).normal(size=(len(X), columns - 2))]
    if "trend" in settings:
        bad = bad + 300 * X[:, 0]
    model = GPRegressor(robust=True, n_steps=1, **settings, **FAST).fit(X, bad)
    assert set(out) <= set(np.flatnonzero(model.robust_weights_ == 0).tolist())
    assert (model.robust_weights_ == 0).sum() <= len(out) + 2


def test_one_value_that_takes_all_digits() -> None:
    """Beside 1e17 others have no digits left in the unit of a standard deviation; there is no warning of it, either."""
    X, y, _, _ = data(60)
    y[7] = 1e17
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GPRegressor(robust=True, **FAST).fit(X, y)
    assert np.flatnonzero(model.robust_weights_ < 1).tolist() == [7]
    assert rmse(model) < 1.0


def test_a_map_of_many_rows() -> None:
    """Outliers within the spread of y are seen where near rows know the surface well, at the density of all rows."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, (1500, 2))
    y = np.sin(6 * X[:, 0]) * np.cos(5 * X[:, 1]) + 0.01 * rng.normal(size=1500)
    out = np.arange(0, 1500, 30)
    y[out] += np.where(rng.uniform(size=50) < 0.5, 1.0, -1.0)
    rows = Rows(torch.as_tensor(X), torch.as_tensor(y))
    weights, z = outlying_weights(rows, get_kernel("matern32"), 2, Limits(), torch.Generator().manual_seed(0))
    assert set(out) <= set(np.flatnonzero(weights < 1).tolist())
    assert (weights < 1).sum() <= 55 and np.abs(np.delete(z, out)).max() < TOLERATED


def test_residuals_are_those_of_rows_left_out() -> None:
    """Beside dense float64: with as many near rows as there are others, z_i is v_i/√(H⁻¹)_ii, and the floor added."""
    rng = np.random.default_rng(3)
    X, y, w = rng.normal(size=(30, 2)), rng.normal(size=30), np.where(np.arange(30) < 4, 0.5, 1.0)
    noise = RowNoise(torch.as_tensor(rng.uniform(0.5, 2, 30)), torch.as_tensor(rng.uniform(0, 0.1, 30)))
    model = _Rough(Rows(torch.as_tensor(X), torch.as_tensor(y), noise), get_kernel("matern32"), w)
    found = model.residuals(Hyperparameters.from_vector(torch.tensor([0.3, 1.1, 0.5, 0.9], dtype=torch.float64)))
    mean = np.average(y, weights=w)
    scale = np.sqrt(np.average((y - mean) ** 2, weights=w))
    t, r = (y - mean) / scale, np.sqrt(3) * cdist(X / [0.5, 0.9], X / [0.5, 0.9])
    K, d = 1.1**2 * (1 + r) * np.exp(-r), 0.09 * noise.shares.numpy() + noise.known.numpy() / scale**2
    z = np.empty(30)
    for i in range(30):
        o = np.arange(30) != i
        weights = np.linalg.solve(K[np.ix_(o, o)] + np.diag((d / w)[o]), K[o, i])
        z[i] = (t[i] - weights @ t[o]) / np.sqrt(1.1**2 - weights @ K[o, i] + d[i] + HARMLESS**2)
    np.testing.assert_allclose(found, z / max(1.0, np.median(np.abs(z)) / 0.6745), rtol=1e-8)


def test_rare_values_are_not_taken_for_outliers_of_a_constant() -> None:
    X = np.random.default_rng(0).uniform(size=(200, 1))
    y = np.where(np.arange(200) % 50 == 3, 5.0, 0.0)
    model = GPRegressor(robust=True, n_steps=1, **FAST).fit(X, y)
    assert (model.robust_weights_ == 1).all()


def test_many_outliers_are_told() -> None:
    X, _, bad, _ = data(share=0.18)
    with pytest.warns(UserWarning, match=r"robust=True leaves out 1\d% of the rows"):
        GPRegressor(robust=True, n_steps=1, **FAST).fit(X, bad)


def test_few_rows() -> None:
    X, y, _, _ = data(9)
    y[3] = 1e4
    assert (GPRegressor(robust=True, n_steps=1, **FAST).fit(X, y).robust_weights_ == 1).all()


# -- beside what is said of rows -------------------------------------------------------------------------------------
def test_with_weights_and_known_errors() -> None:
    """Both are combined: σ²/w and known variances grow alike, and rows that a user leaves out stay out, unjudged."""
    X, y, bad, out = data()
    rng = np.random.default_rng(2)
    given, err = rng.integers(1, 4, len(y)).astype(float), np.full(len(y), 0.3)
    given[out[:2]], err[out[2]] = 0.0, np.inf
    model = GPRegressor(robust=True, **FAST).fit(X, bad, sample_weight=given, noise_variance=err**2)
    assert np.flatnonzero(model.robust_weights_ == 0).tolist() == out[3:].tolist()
    w = given * model.robust_weights_
    expected = GPRegressor(**FAST).fit(X, y, sample_weight=w, noise_variance=err**2)
    np.testing.assert_array_equal(model.predict(NEW, return_std=True), expected.predict(NEW, return_std=True))


def test_a_row_of_large_known_error_is_no_outlier() -> None:
    X, y, _, _ = data()
    err = np.full(len(y), 0.1)
    y[[5, 50]] += 100.0
    err[5] = 80.0
    model = GPRegressor(robust=True, n_steps=1, **FAST).fit(X, y, noise_variance=err**2)
    assert np.flatnonzero(model.robust_weights_ < 1).tolist() == [50]


def test_weights_of_residuals() -> None:
    z = np.array([0.0, -TOLERATED, 1.2 * TOLERATED, -1.2 * TOLERATED, 1.01 * BEYOND * TOLERATED, np.inf])
    np.testing.assert_allclose(weights_of(z), [1, 1, 1 / 1.44, 1 / 1.44, 0, 0])


def test_robust_scale() -> None:
    rng = np.random.default_rng(0)
    values = 3 * rng.normal(size=4000)
    assert robust_scale(values) == pytest.approx(3, rel=0.05)
    values[:200] = 1e9
    assert robust_scale(values) == pytest.approx(3, rel=0.15)
    assert robust_scale(np.r_[np.zeros(94), np.ones(6)]) > 0  # the inner four fifths are one number
    assert robust_scale(np.zeros(5)) == 1.0


# -- files, clones, bad input ----------------------------------------------------------------------------------------
def test_files(tmp_path: Path) -> None:
    X, _, bad, _ = data()
    model = GPRegressor(robust=True, n_steps=2, **FAST).fit(X, bad)
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m", device="cpu")
    assert loaded.robust is True and "8 of 160 rows" in str(loaded.report_)
    np.testing.assert_array_equal(loaded.robust_weights_, model.robust_weights_)
    np.testing.assert_array_equal(loaded.predict(NEW, return_std=True), model.predict(NEW, return_std=True))
    tensors, content = read(tmp_path / "m", "model")
    tensors["robust_weights"][3] = 2.0
    write(tmp_path / "bad", "model", tensors, content)
    with pytest.raises(FileError, match="robust_weights"):
        GPRegressor.load(tmp_path / "bad")
    plain = GPRegressor(n_steps=2, **FAST).fit(X, bad)
    plain.save(tmp_path / "p")
    assert GPRegressor.load(tmp_path / "p", device="cpu").robust_weights_ is None


def test_a_resumed_fit_ends_with_the_same_bits(tmp_path: Path) -> None:
    X, _, bad, _ = data(80)
    settings = {"robust": True, "solver": "cg", **FAST}
    whole = GPRegressor(n_steps=4, **settings).fit(X, bad)
    GPRegressor(n_steps=2, checkpoint=tmp_path / "c", **settings).fit(X, bad)
    model = GPRegressor(n_steps=4, checkpoint=tmp_path / "c", **settings).fit(X, bad)
    assert model.hyperparameters_.equals(whole.hyperparameters_)
    np.testing.assert_array_equal(model.predict(NEW, return_std=True), whole.predict(NEW, return_std=True))
    with pytest.raises(FileError):
        GPRegressor(n_steps=4, checkpoint=tmp_path / "c", **{**settings, "robust": False}).fit(X, bad)


def test_a_table_and_a_clone() -> None:
    X, _, bad, out = data()
    model = clone(GPRegressor(robust=True, n_steps=1, **FAST)).fit(pd.DataFrame(X, columns=["a", "b"]), pd.Series(bad))
    assert model.robust is True and set(out) <= set(np.flatnonzero(model.robust_weights_ == 0))


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_bad_input(value: Any) -> None:
    X, y, _, _ = data(20)
    with pytest.raises(ValueError, match="robust must be True or False"):
        GPRegressor(robust=value, **FAST).fit(X, y)


def test_bad_data_are_refused_as_ever() -> None:
    X, y, _, _ = data(20)
    with pytest.raises(ValueError, match="sample_weight has NaN in row 3"):
        GPRegressor(robust=True, **FAST).fit(X, y, sample_weight=np.where(np.arange(20) == 3, np.nan, 1.0))
    with pytest.raises(ValueError, match="constant"):
        GPRegressor(robust=True, **FAST).fit(X, np.ones(20))
