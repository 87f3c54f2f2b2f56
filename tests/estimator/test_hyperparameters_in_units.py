"""Length scales, signal and noise in the user's units: another unit of X or y changes them by its factor alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from warmgp import GPRegressor
from warmgp.datasets import gp_sample

FAST = {"kernel": "matern32", "n_steps": 6, "n_probes": 8, "n_features": 100, "random_state": 0, "device": "cpu"}


def data(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2)) * [1.0, 30.0]
    return X, 50 + 20 * np.sin(2 * X[:, 0]) + 5 * rng.normal(size=n)


@pytest.mark.parametrize("ard", [True, False])
def test_they_are_in_the_units_of_x_and_y(ard: bool, tmp_path: Path) -> None:
    X, y = data()
    model = GPRegressor(ard=ard, **FAST).fit(X, y)
    theta = model.hyperparameters_
    np.testing.assert_allclose(model.length_scales_, theta.length_scales.numpy() * X.std(0))
    assert model.signal_std_ == pytest.approx(float(theta.signal_scale) * y.std())
    assert model.noise_std_ == pytest.approx(float(theta.noise_scale) * y.std())
    other = GPRegressor(ard=ard, **FAST).fit(X * [1000.0, 1.0], 3 * y - 7)  # metres for kilometres
    np.testing.assert_allclose(other.length_scales_, model.length_scales_ * [1000.0, 1.0], rtol=1e-6)
    assert other.noise_std_ == pytest.approx(3 * model.noise_std_, rel=1e-6)
    assert other.signal_std_ == pytest.approx(3 * model.signal_std_, rel=1e-6)
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m", "cpu")
    np.testing.assert_array_equal(loaded.length_scales_, model.length_scales_)
    assert (loaded.noise_std_, loaded.signal_std_) == (model.noise_std_, model.signal_std_)


def test_known_ones_are_found() -> None:
    """Of a draw with length scale 0.5, signal 1 and noise 0.2, in units of its own: what a fit finds is near."""
    X, y = gp_sample(400, 2, kernel="matern32", noise=0.2, length_scale=0.5, seed=1)
    model = GPRegressor("matern32", n_probes=8, n_steps=60, random_state=0).fit(100 * X, 10 * y)
    assert abs(model.noise_std_ - 2.0) < 0.4
    assert model.length_scales_.min() > 20 and model.length_scales_.max() < 125
    assert 5 < model.signal_std_ < 20


def test_without_standardising_they_are_those_of_theta() -> None:
    X, y = data()
    X, y = X / [1.0, 30.0], (y - 50) / 20
    model = GPRegressor(standardize=False, **FAST).fit(X, y)
    np.testing.assert_array_equal(model.length_scales_, model.hyperparameters_.length_scales.numpy())
    assert model.noise_std_ == float(model.hyperparameters_.noise_scale)


def test_a_constant_column_has_none() -> None:
    X, y = data()
    model = GPRegressor(**FAST).fit(np.c_[X, np.full(len(X), 3.0)], y)
    assert np.isnan(model.length_scales_).tolist() == [False, False, True]


def test_a_place_has_one_in_kilometres() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"h": rng.uniform(0, 9, 60), "lat": rng.uniform(45, 48, 60), "lon": rng.uniform(5, 9, 60)})
    y = np.sin(X["lat"]) + 0.1 * rng.normal(size=60)
    model = GPRegressor(columns={("lat", "lon"): "geographic"}, **FAST).fit(X, y)
    lengths = model.hyperparameters_.length_scales.numpy()
    expected = [lengths[0] * X["h"].std(ddof=0), lengths[1] * model.scaler_.x_scale[1] * 6371]
    np.testing.assert_allclose(model.length_scales_, expected)
    assert 50 < model.length_scales_[1] < 5_000  # the country is 300 km wide


def test_turned_inputs_have_one_along_and_one_across() -> None:
    X, y = data()
    model = GPRegressor(anisotropy="rotated", **FAST).fit(X, y)
    assert model.scaler_.angle
    assert model.length_scales_.tolist() == [model.anisotropy_.along, model.anisotropy_.across]


def test_with_a_trend_noise_and_signal_are_still_in_units_of_y() -> None:
    X, y = data()
    steep = y + 1000 * X[:, 0]
    model = GPRegressor(trend="linear", **{**FAST, "n_steps": 40}).fit(X, steep)
    assert 2 < model.noise_std_ < 12  # 5, beside a trend of more than 1,000
    assert model.noise_std_ == pytest.approx(float(model.hyperparameters_.noise_scale) * model.scaler_.y_scale)


def test_there_are_none_before_a_fit() -> None:
    assert not any(hasattr(GPRegressor(), name) for name in ("length_scales_", "signal_std_", "noise_std_"))
