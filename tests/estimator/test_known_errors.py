"""Fits with weights and known errors: predictions against dense float64, copies, what it is worth, bad input."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from gp_truth import kernel_matrix
from trend_truth import in_user_units
from warmgp import GPRegressor, Hyperparameters
from warmgp.estimator.prepare import training_data
from warmgp.files.format import FileError
from warmgp.kernels import KERNELS
from warmgp.training.initialisation import subset_heuristic

FIXED = Hyperparameters.from_vector(torch.tensor([0.3, 1.1, 0.5, 0.9], dtype=torch.float64))
FAST: dict[str, Any] = {"n_features": 200, "n_probes": 8, "random_state": 0, "device": "cpu"}
NEW = np.array([[0.0, 0.1], [1.5, -1.0], [4.0, 4.0]])


def data(n: int = 60, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Inputs, targets far from standardised, weights of which some are zero, and known standard deviations."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    w, err = rng.integers(0, 5, n).astype(float), 0.05 * 20 ** rng.uniform(size=n)
    y = 50 + 7 * np.sin(2 * X[:, 0]) + 2 * X[:, 1] + 7 * err * rng.normal(size=n)
    return X, y, w, 7 * err


def dense(model: GPRegressor, X: np.ndarray, y: np.ndarray, w: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean and latent std at NEW in the units of y, at the model's θ, by dense float64 and the model's mean of y."""
    vector = torch.tensor(in_user_units(model))
    x, new = torch.tensor(X), torch.tensor(NEW)
    H = kernel_matrix(model.kernel_.name, x, x, vector[1], vector[2:]) + torch.diag(
        vector[0] ** 2 / torch.tensor(w) + torch.tensor(e)
    )
    k = kernel_matrix(model.kernel_.name, new, x, vector[1], vector[2:])
    mean = model.scaler_.y_mean + k @ torch.linalg.solve(H, torch.tensor(y) - model.scaler_.y_mean)
    variance = vector[1] ** 2 - (k * torch.linalg.solve(H, k.T).T).sum(1)
    return mean.numpy(), variance.sqrt().numpy()


# -- against dense float64 -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("solver", ["cholesky", "cg", "ap", "sgd", "rap"])
def test_predictions(solver: str, name: str) -> None:
    X, y, w, err = data()
    w = w + 0.5
    model = GPRegressor(name, solver=solver, init=FIXED, n_steps=2, tol=1e-5, max_epochs=None, dtype="float64", **FAST)
    model.fit(X, y, sample_weight=w, noise_variance=err**2)
    mean, std = model.predict(NEW, return_std=True, include_noise=False)
    expected, spread = dense(model, X, y, w, err**2)
    np.testing.assert_allclose(mean, expected, atol=1e-4 * model.scaler_.y_scale)
    np.testing.assert_allclose(std, spread, rtol=1e-6 if model.posterior_.exact else 0.8)
    noisy = model.predict(NEW, return_std=True)[1]
    sigma = in_user_units(model)[0]
    np.testing.assert_allclose(noisy, np.hypot(std, sigma), rtol=1e-6)  # σ² alone: weight one, no known error


def test_float32_on_the_usual_way() -> None:
    X, y, w, err = data(90)
    model = GPRegressor("matern32", solver="cg", n_steps=5, **FAST).fit(
        X, y, sample_weight=w + 1, noise_variance=err**2
    )
    assert model.posterior_.x.dtype == torch.float32 and model.converged_
    expected, spread = dense(model, X, y, w + 1, err**2)
    mean, std = model.predict(NEW, return_std=True)
    assert np.abs(mean - expected).max() < 0.1 * np.hypot(spread, in_user_units(model)[0]).min()
    np.testing.assert_allclose(std, np.hypot(spread, in_user_units(model)[0]), rtol=0.5)


def test_new_functions_have_the_noise_of_their_rows() -> None:
    X, y, _, err = data()
    model = GPRegressor("matern32", solver="cg", init=FIXED, n_steps=0, tol=1e-5, dtype="float64", **FAST)
    model.fit(X, y, noise_variance=err**2)
    found = model.sample_y(NEW, 400, random_state=1)
    expected, spread = dense(model, X, y, np.ones(len(y)), err**2)
    np.testing.assert_allclose(found.mean(1), expected, atol=0.2 * spread.max())
    np.testing.assert_allclose(found.std(1), spread, rtol=0.2)


def test_a_trend_by_generalised_least_squares() -> None:
    X, y, w, err = data()
    y, w = y + 5 * X[:, 0], w + 0.5
    model = GPRegressor("matern32", init=FIXED, n_steps=0, trend="linear", solver="cg", tol=1e-6, **FAST)
    model.fit(X, y, sample_weight=w, noise_variance=err**2)
    vector = torch.tensor(in_user_units(model))
    x = torch.tensor(X)
    H = kernel_matrix("matern32", x, x, vector[1], vector[2:]).numpy() + np.diag(float(vector[0]) ** 2 / w + err**2)
    T = np.column_stack([np.ones(len(X)), X])
    A = T.T @ np.linalg.solve(H, T)
    np.testing.assert_allclose(model.trend_.coefficients, np.linalg.solve(A, T.T @ np.linalg.solve(H, y)), rtol=0.02)
    np.testing.assert_allclose(model.trend_.std_errors, np.sqrt(np.diag(np.linalg.inv(A))), rtol=0.02)


# -- what weights mean -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["cholesky", "cg", "rap"])
def test_a_weight_is_so_many_copies(solver: str) -> None:
    """Also of the weights of zero, and of the means and standard deviations by which data are standardised."""
    X, y, w, _ = data()
    settings = {"init": FIXED, "n_steps": 0, "solver": solver, "tol": 1e-7, "dtype": "float64", **FAST}
    one = GPRegressor("matern52", **settings).fit(X, y, sample_weight=w)
    copies = w.astype(int)
    many = GPRegressor("matern52", **settings).fit(X.repeat(copies, 0), y.repeat(copies))
    assert len(one.posterior_.x) == (w > 0).sum()
    np.testing.assert_allclose(one.scaler_.x_scale, many.scaler_.x_scale, rtol=1e-12)
    np.testing.assert_allclose(one.predict(NEW), many.predict(NEW), atol=1e-5)
    if solver == "cholesky":
        for noise in (True, False):
            found = [m.predict(NEW, return_std=True, include_noise=noise)[1] for m in (one, many)]
            np.testing.assert_allclose(*found, rtol=1e-9)


def test_scikit_learns_equivalence() -> None:
    """Its check with hyperparameters that are given; those that are learned see copies as measurements that agree."""
    model = GPRegressor("matern32", init=Hyperparameters.ones(30), n_steps=0, n_probes=4, n_features=50)
    check_sample_weight_equivalence_on_dense_data("GPRegressor", model)


def test_rows_that_are_left_out() -> None:
    """Of weight zero or infinite noise: as if they had never been there, whatever they hold."""
    X, y, w, err = data()
    X[w == 0] += 1000.0
    variance = np.where(np.arange(60) % 7 == 0, np.inf, err**2)
    used = (w > 0) & np.isfinite(variance)
    settings = {"n_steps": 2, "solver": "cg", "kernel": "matern32", **FAST}
    one = GPRegressor(**settings).fit(pd.DataFrame(X), y, sample_weight=w, noise_variance=variance)
    other = GPRegressor(**settings).fit(X[used], y[used], sample_weight=w[used], noise_variance=variance[used])
    np.testing.assert_array_equal(one.predict(NEW), other.predict(NEW))
    assert len(one.posterior_.x) == used.sum()


def test_known_noise_of_zero_and_weights_of_one_are_nothing() -> None:
    X, y, _, _ = data()
    settings = {"n_steps": 3, "solver": "cholesky", "kernel": "matern32", **FAST}
    plain = GPRegressor(**settings).fit(X, y)
    said = GPRegressor(**settings).fit(X, y, sample_weight=np.ones(60), noise_variance=np.zeros(60))
    np.testing.assert_allclose(said.predict(NEW, return_std=True), plain.predict(NEW, return_std=True), rtol=1e-9)
    assert plain.posterior_.noise is None  # the ways of old, bit for bit


# -- what it is worth ------------------------------------------------------------------------------------------------
def log_density(model: GPRegressor, X: np.ndarray, y: np.ndarray, err: np.ndarray) -> float:
    """Mean log density of test observations with known errors, which are added to the std by hand."""
    mean, std = model.predict(X, return_std=True)
    variance = std**2 + err**2
    return float(np.mean(-0.5 * ((y - mean) ** 2 / variance + np.log(2 * math.pi * variance))))


def errors(n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Measurements whose known errors span a factor of 100, from 0.02 to 2."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 1))
    err = 0.02 * 100 ** rng.uniform(size=n)
    return X, np.sin(3 * X[:, 0]) + err * rng.normal(size=n), err


def test_known_errors_are_worth_nats() -> None:
    """Errors over a factor of 100: to leave them out costs at least 0.2 nats of log density a test point."""
    X, y, err = errors(200, 0)
    X_test, y_test, err_test = errors(400, 1)
    settings = {"kernel": "matern52", "n_steps": 60, **FAST}
    known = GPRegressor(**settings).fit(X, y, noise_variance=err**2)
    alone = GPRegressor(learn_noise=False, **settings).fit(X, y, noise_variance=err**2)
    ignored = GPRegressor(**settings).fit(X, y)
    with_errors = log_density(known, X_test, y_test, err_test)
    assert with_errors > log_density(ignored, X_test, y_test, 0 * err_test) + 0.2
    assert with_errors > log_density(ignored, X_test, y_test, err_test) + 0.2  # also where they are known at the test
    assert log_density(alone, X_test, y_test, err_test) > with_errors - 0.05
    assert float(known.hyperparameters_.noise_scale) < 0.1 < float(ignored.hyperparameters_.noise_scale)
    assert float(alone.hyperparameters_.noise_scale) == pytest.approx(1e-4)


@pytest.mark.parametrize("trend", [None, "linear"])
def test_rows_with_huge_errors_do_not_make_the_unit(trend: str | None) -> None:
    """A tenth of the rows is off by millions, and known to be: the model is that of the others, trend and all."""
    X, y, _, _ = data(120)
    rng = np.random.default_rng(5)
    bad = np.arange(120) % 10 == 0
    y = y + 3 * X[:, 0] + 0.1 * rng.normal(size=120)
    spoilt = np.where(bad, y + 1e6 * rng.normal(size=120), y)
    settings = {"kernel": "matern32", "n_steps": 40, "trend": trend, **FAST}
    model = GPRegressor(**settings).fit(X, spoilt, noise_variance=np.where(bad, 1e12, 0.0))
    clean = GPRegressor(**settings).fit(X[~bad], y[~bad])
    assert model.scaler_.y_scale == pytest.approx(clean.scaler_.y_scale, rel=0.5)
    inside = NEW[:2]
    mean, std = clean.predict(inside, return_std=True)
    assert (np.abs(model.predict(inside) - mean) < 0.3 * std).all()
    if trend is not None:
        found, expected = (m.trend_ for m in (model, clean))
        np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=0.5 * expected.std_errors.max())


def map_with_errors(n: int) -> tuple[np.ndarray, ...]:
    """A smooth map, measured to 0.05, every other row with a known error of 1.5 beside."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (n, 2))
    err = np.where(np.arange(n) % 2 > 0, 1.5, 0.0)
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + np.hypot(err, 0.05) * rng.normal(size=n), err


@pytest.mark.parametrize("init", ["near", "sample", "subset", "auto"])
def test_every_start_of_a_fit_knows_the_errors(init: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = partial(subset_heuristic, n_centroids=2, n_steps=30)
    monkeypatch.setattr("warmgp.estimator.start.subset_heuristic", short)
    X, y, err = map_with_errors(150)
    kernel = "auto" if init == "auto" else "matern52"
    steps = {"n_steps": 20 if init == "auto" else 0, "anisotropy": "rotated" if init == "auto" else None}
    model = GPRegressor(kernel, init=init, solver="rap", **steps, **FAST).fit(X, y, noise_variance=err**2)
    assert in_user_units(model)[0] < 0.4
    again = GPRegressor(kernel, init=init, solver="rap", learn_noise=False, **steps, **FAST)
    again.fit(X, y, noise_variance=err**2 + 0.05**2)
    assert float(again.hyperparameters_.noise_scale) == pytest.approx(1e-4)


def test_a_map_by_near_points_and_recombined_projections() -> None:
    """All of the way that a map of any size goes, in float32, with a std from samples and near points."""
    X, y, err = map_with_errors(500)
    w = np.where(np.arange(500) % 3 > 0, 1.0, 4.0)
    settings = {**FAST, "n_probes": 32}
    model = GPRegressor("matern32", init="near", solver="rap", n_steps=0, **settings)
    model.fit(X, y, sample_weight=w, noise_variance=err**2)
    mean, std = model.predict(NEW, return_std=True)
    expected, spread = dense(model, X, y, w, err**2)
    total = np.hypot(spread, in_user_units(model)[0])
    assert model.converged_ and (np.abs(mean - expected) < 0.1 * total).all()
    assert not model.posterior_.exact and model.posterior_.targets is not None
    np.testing.assert_allclose(std, total, rtol=0.25)


def test_held_out_rows_have_weight_one() -> None:
    """Their scores are those of the std of a prediction, σ² included, and of the mean by the noise of all rows."""
    X, y, w, err = data()
    said = {"sample_weight": w + 1, "noise_variance": err**2}
    settings = {"kernel": "matern32", "init": FIXED, "tol": 1e-6, "dtype": "float64", **FAST, "n_probes": 200}
    truth = np.array([50.0, 52.0, 49.0])
    found = (
        GPRegressor(solver="cg", n_steps=1, **settings).fit(X, y, validation=(NEW, truth), **said).history_[0].metrics
    )
    model = GPRegressor(solver="cholesky", n_steps=0, **settings).fit(X, y, **said)
    scale = model.scaler_.y_scale
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((truth - model.predict(NEW)) ** 2)) / scale, rel=1e-4)
    density = log_density(model, NEW, truth, np.zeros(3)) + math.log(scale)
    assert found["llh"] == pytest.approx(density, abs=0.15)


# -- files -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_a_file_holds_the_noise_of_rows(solver: str, tmp_path: Path) -> None:
    """An exact model rebuilds its factor from it, a sampled one the control of its std; both and new functions."""
    X, y, w, err = data()
    model = GPRegressor("matern32", solver=solver, n_steps=2, learn_noise=False, **FAST)
    model.fit(X, y, sample_weight=w, noise_variance=err**2)
    model.save(tmp_path / "m")
    read = GPRegressor.load(tmp_path / "m", device="cpu")
    assert read.learn_noise is False
    np.testing.assert_array_equal(read.predict(NEW, return_std=True), model.predict(NEW, return_std=True))
    np.testing.assert_array_equal(read.sample_y(NEW, 9, random_state=3), model.sample_y(NEW, 9, random_state=3))


@pytest.mark.parametrize("solver", ["cholesky", "cg", "ap"])
def test_a_resumed_fit_ends_with_the_same_bits(solver: str, tmp_path: Path) -> None:
    X, y, w, err = data()
    said = {"sample_weight": w, "noise_variance": err**2}
    settings = {"kernel": "matern32", "solver": solver, "n_steps": 5, **FAST}
    whole = GPRegressor(**settings).fit(X, y, **said)

    def crash(record: Any, state: Any) -> None:
        if record.step == 2:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(checkpoint=tmp_path / "c", callbacks=[crash], **settings).fit(X, y, **said)
    for other in ({}, {**said, "sample_weight": w + (w == 1)}, {**said, "noise_variance": 2 * err**2}):
        with pytest.raises(FileError, match="other data"):
            GPRegressor(checkpoint=tmp_path / "c", **settings).fit(X, y, **other)
    model = GPRegressor(checkpoint=tmp_path / "c", **settings).fit(X, y, **said)
    assert model.hyperparameters_.equals(whole.hyperparameters_)
    np.testing.assert_array_equal(model.predict(NEW, return_std=True), whole.predict(NEW, return_std=True))


def test_rows_drawn_for_a_time_limit_keep_their_noise() -> None:
    X, y, w, err = data()
    found = training_data(GPRegressor(), X, y, None, w + 1, err**2).drawn(20, seed=0)
    rows = [int(np.abs(found.scaler.y(y) - value).argmin()) for value in found.y]
    noise = found.row_noise(torch.device("cpu"))
    assert noise is not None
    np.testing.assert_allclose(noise.shares.numpy(), 1 / (w + 1)[rows])
    np.testing.assert_allclose(noise.known.numpy(), err[rows] ** 2 / found.scaler.y_scale**2)


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["sample_weight", "noise_variance"])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0] * 59 + [-2.0], r"a negative number \(-2\) in row 59"),
        ([1.0, math.nan] + [1.0] * 58, "NaN in row 1, counted from 0"),
        ([1.0] * 59, r"shape \(60,\), one number for each row of X, got shape \(59,\)"),
        ([[1.0]] * 60, r"got shape \(60, 1\)"),
        (2.0, r"got shape \(\)"),
        (["a"] * 60, "is not numbers"),
    ],
)
def test_bad_input(name: str, values: Any, expected: str) -> None:
    X, y, _, _ = data()
    with pytest.raises(ValueError, match=f"^{name} .*{expected}"):
        GPRegressor(**FAST).fit(X, y, **{name: values})


def test_rows_that_are_not_enough() -> None:
    X, y, _, _ = data()
    for said in (
        {"sample_weight": np.zeros(60)},
        {"noise_variance": np.full(60, np.inf)},
        {"sample_weight": np.eye(60)[0]},
        {"sample_weight": np.arange(60.0) % 2, "noise_variance": np.where(np.arange(60) % 2 > 0, np.inf, 1.0)},
    ):
        with pytest.raises(ValueError, match=r"of 60 rows are left to learn from.*weight is above zero"):
            GPRegressor(**FAST).fit(X, y, **said)
    with pytest.raises(ValueError, match="sample_weight has infinity in row 3"):
        GPRegressor(**FAST).fit(X, y, sample_weight=np.where(np.arange(60) == 3, np.inf, 1.0))
    with pytest.raises(ValueError, match="learn_noise must be True or False"):
        GPRegressor(learn_noise="no", **FAST).fit(X, y)
