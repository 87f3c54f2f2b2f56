"""Ranges that differ by direction: the angle is found, told in the user's units, kept in files, and worth it."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import gp_truth
from warmgp import GPRegressor, Hyperparameters
from warmgp.data.scaling import Standardizer
from warmgp.estimator.anisotropy import anisotropy_of

FAST: dict[str, Any] = {"n_steps": 25, "n_features": 100, "n_probes": 8, "random_state": 0, "device": "cpu"}
ANGLE, ALONG, ACROSS = 35.0, 60.0, 8.0


def strip() -> tuple[np.ndarray, np.ndarray]:
    """A draw of a process over 100 by 50 km, whose range is longest at 35°."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, [100.0, 50.0], (420, 2))
    c, s = math.cos(math.radians(ANGLE)), math.sin(math.radians(ANGLE))
    u = torch.tensor(X @ [[c, -s], [s, c]])
    H = gp_truth.h_matrix("matern32", u, torch.tensor([0.2, 1.0, ALONG, ACROSS], dtype=torch.float64))
    return X, 7 + np.linalg.cholesky(H.numpy()) @ rng.normal(size=420)


@pytest.fixture(scope="module")
def fitted() -> GPRegressor:
    X, y = strip()
    return GPRegressor(anisotropy="rotated", **FAST).fit(X[:300], y[:300])


def test_the_angle_is_found_and_told_in_units_of_the_data(fitted: GPRegressor) -> None:
    """Though standardised units differ by a factor of two: within 5 degrees, and ranges within 40%."""
    found = fitted.anisotropy_
    assert found is not None
    assert abs(found.angle - ANGLE) < 5.0
    assert abs(math.log(found.across / ACROSS)) < 0.4 and abs(math.log(found.along / ALONG)) < 0.5
    assert f"{found.angle:.1f}° from the first input" in str(found)


def test_it_predicts_better_than_length_scales_along_the_axes(fitted: GPRegressor) -> None:
    X, y = strip()
    plain = GPRegressor(**FAST).fit(X[:300], y[:300])
    assert plain.anisotropy_ is None
    turned, axes = (model.log_predictive_density(X[300:], y[300:]).mean() for model in (fitted, plain))
    assert turned > axes + 0.1


def test_predictions_are_those_of_a_dense_process_with_that_metric(fitted: GPRegressor) -> None:
    """The ranges and the angle that are told, with noise and signal, are all there is to the model."""
    X, y = strip()
    found = fitted.anisotropy_
    assert found is not None
    c, s = math.cos(math.radians(found.angle)), math.sin(math.radians(found.angle))
    u = torch.tensor(X @ [[c, -s], [s, c]])
    vector = fitted.hyperparameters_.vector.clone()
    vector[2:] = torch.tensor([found.along, found.across])
    centre, scale = y[:300].mean(), y[:300].std()
    mean, _ = gp_truth.posterior(
        "matern32", u[:300], torch.tensor((y[:300] - centre) / scale), u[300:], Hyperparameters.from_vector(vector)
    )
    np.testing.assert_allclose(fitted.predict(X[300:]), centre + scale * mean.numpy(), atol=1e-8)


@pytest.mark.parametrize("angle", [10.0, 60.0])
def test_ranges_are_the_axes_of_the_metric_in_any_units(angle: float) -> None:
    """One length scale away in the direction told r is 1, nowhere is a range longer, and the shortest is across."""
    scaler = Standardizer(np.zeros(2), np.array([2.0, 0.5]), 0.0, 1.0, angle=angle)
    theta = Hyperparameters.from_vector(torch.tensor([0.1, 1.0, 0.7, 3.0]))
    found = anisotropy_of(scaler, theta)
    assert found is not None
    directions = np.deg2rad(found.angle + np.arange(0, 180, 5.0))
    ways = np.stack([np.cos(directions), np.sin(directions)], 1)
    ranges = 1 / np.linalg.norm(scaler.x(ways) / theta.length_scales.numpy(), axis=1)
    np.testing.assert_allclose([ranges[0], ranges[18]], [found.along, found.across], rtol=1e-12)
    assert ranges.max() <= ranges[0] * (1 + 1e-12) and ranges.min() >= ranges[18] * (1 - 1e-12)
    np.testing.assert_allclose(scaler.turn(scaler.x(ways), back=True) * [2.0, 0.5], ways, atol=1e-15)


def test_files_and_pickles_keep_the_angle(fitted: GPRegressor, tmp_path: Path) -> None:
    X, _ = strip()
    fitted.save(tmp_path / "m.safetensors")
    loaded = GPRegressor.load(tmp_path / "m.safetensors", "cpu")
    assert loaded.anisotropy == "rotated"
    for model in (loaded, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(model.predict(X, return_std=True), fitted.predict(X, return_std=True))
        assert model.anisotropy_ == fitted.anisotropy_


def test_a_resumed_fit_has_the_same_bits(tmp_path: Path) -> None:
    X, y = strip()
    X, y = pd.DataFrame(X[:40], columns=["e", "n"]), y[:40]

    def crash(record: Any, state: Any) -> None:
        if record.step == 3:
            raise RuntimeError("crash")

    settings = {**FAST, "n_steps": 6, "anisotropy": "rotated", "solver": "cg"}
    whole = GPRegressor(**settings).fit(X, y, validation=(X[:5], y[:5]))
    settings |= {"checkpoint": tmp_path / "c", "checkpoint_every": 1}
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(callbacks=[crash], **settings).fit(X, y, validation=(X[:5], y[:5]))
    with pytest.raises(ValueError, match="anisotropy"):
        GPRegressor(**{**settings, "anisotropy": None}).fit(X, y, validation=(X[:5], y[:5]))
    seen: list[int] = []
    model = GPRegressor(callbacks=[lambda record, state: seen.append(record.step)], **settings)
    model.fit(X, y, validation=(X[:5], y[:5]))
    assert seen == [4, 5] and model.anisotropy_ == whole.anisotropy_
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    assert [record.metrics for record in model.history_] == [record.metrics for record in whole.history_]


def test_what_is_refused() -> None:
    X, y = np.random.default_rng(0).uniform(-60, 60, (2, 30, 3))[0], np.arange(30.0)
    for inputs, settings, message in (
        (X, {}, r"anisotropy='rotated' turns the plane of two plain inputs, got 3 columns: 0, 1, 2"),
        (X[:, :1], {}, "got 1 columns"),
        (X[:, :2], {"columns": {(0, 1): "geographic"}}, r"got 2 columns: 0, 1 \(geographic\)"),
        (X[:, :2], {"ard": False}, "learns two length scales and an angle"),
        (X[:, :2], {"anisotropy": "turned"}, "anisotropy must be None or 'rotated', got 'turned'"),
        (X[:, :2], {"anisotropy": 30.0}, "anisotropy must be None or 'rotated', got 30.0"),
    ):
        model = GPRegressor(**{"anisotropy": "rotated", **settings})
        for call in (lambda m, x: m.fit(x, y), lambda m, x: m.plan(x)):
            with pytest.raises(ValueError, match=message):
                call(model, inputs)
