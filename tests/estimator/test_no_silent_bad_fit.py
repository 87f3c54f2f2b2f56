"""Fits that used to end badly without a word: they end well now, or say so, and good ones say nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone

from gp_truth import posterior
from warmgp import ConvergenceWarning, GPRegressor, Hyperparameters
from warmgp.estimator.remarks import NEAR_NATS, _left_out
from warmgp.training.explained import near_gain

Array = NDArray[np.float64]


def many_inputs(n: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """Two inputs that matter among d, beside a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=n)


def few_inputs(n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    return many_inputs(n, 3, seed)


def told(model: GPRegressor, X: Array, y: Array, **arguments: Any) -> list[str]:
    """Returns what a fit warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, **arguments)
    return [str(one.message) for one in caught]


# -- many inputs -----------------------------------------------------------------------------------------------------
def test_two_of_150_inputs_are_found() -> None:
    X, y = many_inputs(700, 150)
    model = GPRegressor("matern32", random_state=0).fit(X[:200], y[:200])
    assert model.plan_.init == "climb" and model.stop_reason_ == "settled"
    mean, std = model.predict(X[200:], return_std=True)
    assert 1 - np.mean((y[200:] - mean) ** 2) / y[200:].var() >= 0.96
    assert np.sqrt(np.mean(((y[200:] - mean) / std) ** 2)) < 2  # at the top errors are 2.5 to 4 standard deviations


def test_a_start_on_a_sample_knows_the_number_of_inputs() -> None:
    X, y = many_inputs(500, 200)
    model = GPRegressor("matern32", init="sample", n_steps=5, n_probes=4, random_state=0).fit(X[:150], y[:150])
    assert model.score(X[150:], y[150:]) >= 0.9


def test_a_flat_likelihood_is_not_settled() -> None:
    X, y = many_inputs(150, 200)
    model = GPRegressor("matern32", init="ones", random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"explains nothing of y.*longer length scales"):
        model.fit(X, y)
    assert model.stop_reason_ == "flat" and "explains nothing" in str(model.report_)


def test_noise_is_said_to_be_nothing_but_noise() -> None:
    rng = np.random.default_rng(0)
    model = GPRegressor("matern32", random_state=0)
    assert any("explains nothing" in one for one in told(model, rng.normal(size=(100, 3)), rng.normal(size=100)))


def test_iterations_without_a_factor_tell_nothing_from_something() -> None:
    X, y = few_inputs(200)
    settings = {"solver": "cg", "n_probes": 4, "n_features": 100, "random_state": 0}
    assert not any("explains nothing" in one for one in told(GPRegressor("matern32", **settings), X, y))
    shuffled = np.random.default_rng(1).permutation(y)
    assert any("explains nothing" in one for one in told(GPRegressor("matern32", **settings), X, shuffled))


@pytest.mark.cpu
def test_a_smooth_function_that_near_points_do_not_tell_is_not_said_to_be_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2600, 8))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.cos(X[:, 3] + X[:, 4])
    y = (y - y.mean()) / y.std() + 0.007 * rng.normal(size=len(y))
    found = [0.0056, 7.0, 6.8, 21.6, 22.4, 10.6, 10.4, 97.0, 105.0, 97.0]
    theta = Hyperparameters.from_vector(torch.tensor(found, dtype=torch.float64))
    model = GPRegressor("matern52", solver="cg", init=theta, n_steps=0, standardize=False, random_state=0)
    assert told(model, X, y) == []  # a fit that is right, of which the nearest 30 points say little
    posterior, targets = model.posterior_, torch.as_tensor(y)
    near = near_gain(posterior.x, targets, posterior.kernel, posterior.theta, torch.Generator().manual_seed(0))
    assert near[0] < NEAR_NATS + near[1]
    exact = model.loo_
    left = _left_out(posterior, targets)
    assert left.r2 == pytest.approx(1 - np.mean((exact.y - exact.mean) ** 2), abs=0.002)
    constant = -0.5 * (1 + np.log(2 * np.pi * np.mean(y**2)))
    assert left.gain == pytest.approx(np.mean(exact.log_density) - constant, abs=0.1)


# -- several tops ----------------------------------------------------------------------------------------------------
def test_the_higher_of_two_tops_is_found() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (560, 2))
    y = np.sin(20 * X[:, 0]) + np.cos(20 * X[:, 1]) + 0.02 * rng.normal(size=560)
    ones, climbed = (GPRegressor("rbf", init=i, random_state=0).fit(X[:60], y[:60]) for i in ("ones", "auto"))
    assert climbed.log_marginal_likelihood_value_ > ones.log_marginal_likelihood_value_ + 10
    assert climbed.score(X[60:], y[60:]) > 0.4 > 0.1 > ones.score(X[60:], y[60:])


# -- hyperparameters of another model ----------------------------------------------------------------------------------
def spread() -> tuple[Array, Array, Array, Array]:
    """Points in [0, 1], and the same with others in [9, 10]."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.uniform(0, 1, (80, 1)), rng.uniform(9, 10, (80, 1))]
    y = np.sin(12 * X[:, 0]) + 0.05 * rng.normal(size=160)
    return X[:80], y[:80], X, y


def test_hyperparameters_of_a_model_are_the_same_model_in_other_units() -> None:
    X, y, more, targets = spread()
    old = GPRegressor("matern32", random_state=0).fit(X, y)
    new = GPRegressor("matern32", init=old.hyperparameters_, n_steps=0, random_state=0)
    assert told(new, more, targets) == []
    theta, scaler, unit = old.hyperparameters_, old.scaler_, targets.std()  # in the user's units, and in those of now
    ratios = [scaler.y_scale / unit] * 2 + list(scaler.x_scale / more.std(0))
    same = Hyperparameters.from_vector(theta.vector * torch.tensor(ratios, dtype=torch.float64))
    z, at = (torch.as_tensor((values - more.mean(0)) / more.std(0)) for values in (more, X[:20] + 0.003))
    mean, _ = posterior("matern32", z, torch.as_tensor((targets - targets.mean()) / unit), at, same)
    np.testing.assert_allclose(new.predict(X[:20] + 0.003), mean.numpy() * unit + targets.mean(), atol=1e-6)
    assert np.sqrt(np.mean((new.predict(X) - np.sin(12 * X[:, 0])) ** 2)) < 0.05


def test_units_go_through_clones_and_files(tmp_path: Any) -> None:
    X, y, more, targets = spread()
    old = GPRegressor("matern32", random_state=0).fit(X, y)
    old.save(tmp_path / "old")
    loaded = GPRegressor.load(tmp_path / "old").hyperparameters_
    settings = {"n_steps": 0, "random_state": 0}
    models = [clone(GPRegressor("matern32", init=init, **settings)) for init in (old.hyperparameters_, loaded)]
    models[0].fit(more, targets).save(tmp_path / "new")
    models.append(GPRegressor.load(tmp_path / "new"))
    found = [model.fit(more, targets).hyperparameters_ for model in models]
    assert found[0].equals(found[1]) and found[0].equals(found[2])
    assert not found[0].equals(old.hyperparameters_)


def test_the_same_data_have_the_same_units_to_the_bit() -> None:
    X, y = few_inputs(60)
    for ard in (True, False):
        old = GPRegressor("matern32", ard=ard, n_steps=3, random_state=0).fit(X, y)
        again = GPRegressor("matern32", ard=ard, init=old.hyperparameters_, n_steps=0, random_state=0).fit(X, y)
        assert again.hyperparameters_.equals(old.hyperparameters_)


def test_numbers_that_do_not_fit_are_remarked_on() -> None:
    X, y, more, targets = spread()
    theta = GPRegressor("matern32", random_state=0).fit(X, y).hyperparameters_
    unknown = Hyperparameters.from_vector(theta.vector)  # as they would come from a table
    with pytest.warns(
        UserWarning, match=r"hyperparameters that init gives do not fit.*standardised units.*init=\"auto\""
    ):
        GPRegressor("matern32", init=unknown, n_steps=0, random_state=0).fit(more, targets)
    assert told(GPRegressor("matern32", init=unknown, n_steps=0, random_state=0), X, y) == []


# -- unfinished ------------------------------------------------------------------------------------------------------
def test_unfinished_training_is_told() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.exp(X[:, 0]) + X[:, 1] ** 2  # without noise: the likelihood rises for ever
    model = GPRegressor("rbf", init="ones", random_state=0)
    with pytest.warns(
        ConvergenceWarning, match=r"all 200 steps.*still rising.*n_steps=400.*init=model.hyperparameters_"
    ):
        model.fit(X, y)
    assert model.stop_reason_ == "steps"
    named = GPRegressor("rbf", init="ones", n_steps=40, random_state=0)
    assert told(named, X, y) == [] and "still rising" in str(named.report_)  # who names a number knows it


# -- outliers --------------------------------------------------------------------------------------------------------
def test_one_outlier_is_named() -> None:
    X, y = few_inputs()
    bad_y, bad_X = y.copy(), X.copy()
    bad_y[17], bad_X[33, 1] = 1e6, -1e6
    model = GPRegressor("matern32", n_steps=1, random_state=0)
    assert any("y has 1e+06 in row 17, counted from 0" in one and "leave out" in one for one in told(model, X, bad_y))
    assert any("column 1 of X has -1e+06 in row 33" in one for one in told(model, bad_X, y))
    assert told(model, X, y) == []


# -- noise at its floor ----------------------------------------------------------------------------------------------
def test_noise_at_its_floor_is_told_where_it_matters() -> None:
    X = few_inputs()[0]
    smooth = X[:, 0] + np.sin(X[:, 1])
    with pytest.warns(UserWarning, match=r"noise is at its floor, 0.3 .*too wide. Lower noise_floor"):
        GPRegressor("rbf", noise_floor=0.3, random_state=0).fit(X, smooth)
    model = GPRegressor("rbf", random_state=0)
    assert told(model, X, smooth) == [] and "noise is at its floor" in str(model.report_)


def test_remarks_are_kept_in_files(tmp_path: Any) -> None:
    X = few_inputs(60)[0]
    model = GPRegressor("rbf", random_state=0).fit(X, X[:, 0])
    model.save(tmp_path / "model")
    assert GPRegressor.load(tmp_path / "model").report_.remarks == model.report_.remarks != ()


def test_copies_of_rows_without_noise_are_learned_exactly() -> None:
    """Few combinations of few values, each many times: the likelihood rises with the signal for ever, to where no
    factor of H exists; a fit ended there without a solution, 1.05 off."""
    rng = np.random.default_rng(6)
    X = rng.integers(0, 3, (1010, 3)).astype(float)

    def function(x: np.ndarray) -> np.ndarray:
        return np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 4

    model = GPRegressor(kernel="rbf", n_probes=8, n_features=100, random_state=0).fit(X, function(X))
    grid = np.stack(np.meshgrid(*[np.arange(3.0)] * 3), -1).reshape(-1, 3)
    assert model.converged_ and np.abs(model.predict(grid) - function(grid)).max() < 1e-3
