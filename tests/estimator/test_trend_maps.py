"""A trend over places on the globe, and over inputs that are turned: both are dense universal kriging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import gp_truth
from trend_truth import Kriging, kriging, monomials
from warmgp import GPRegressor, Hyperparameters

GIVEN: dict[str, Any] = {"n_steps": 0, "n_probes": 8, "n_features": 100, "random_state": 0, "device": "cpu"}
PLACE = {("lat", "lon"): "geographic"}


def theta(*lengths: float) -> Hyperparameters:
    return Hyperparameters(*(torch.tensor(v, dtype=torch.float64) for v in (0.3, 0.8, list(lengths))))


def vector(model: GPRegressor, lengths: np.ndarray) -> np.ndarray:
    """θ with noise and signal in units of y, and these length scales."""
    found, unit = model.hyperparameters_, model.scaler_.y_scale
    return np.array([float(found.noise_scale) * unit, float(found.signal_scale) * unit, *lengths])


def check(model: GPRegressor, new: Any, exact: Kriging) -> None:
    """Means, deviations, coefficients and their errors are those of dense universal kriging."""
    mean, std = model.predict(new, return_std=True, include_noise=False)
    np.testing.assert_allclose(mean, exact.mean, rtol=1e-6)
    np.testing.assert_allclose(std, exact.std, rtol=1e-6)
    np.testing.assert_allclose(model.trend_.coefficients, exact.coefficients, rtol=1e-6)
    np.testing.assert_allclose(model.trend_.std_errors, exact.errors, rtol=1e-6)


# -- places ----------------------------------------------------------------------------------------------------------
def stations(count: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    lat, lon = rng.uniform(-40, 60, count), rng.uniform(120, 260, count)
    return pd.DataFrame({"height": rng.uniform(0, 3000, count), "lat": lat, "lon": (lon + 180) % 360 - 180})


def sphere(frame: pd.DataFrame) -> np.ndarray:
    """Height and the point of the unit sphere: what the model's inputs should be, in their order."""
    lat, lon = (np.radians(frame[name].to_numpy()) for name in ("lat", "lon"))
    return np.column_stack([frame["height"], np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


@pytest.mark.parametrize("kind", ["linear", ["height"]], ids=str)
def test_over_places_it_is_universal_kriging_on_the_sphere(kind: Any, tmp_path: Path) -> None:
    """And it has no seam at the date line, a name for each coordinate, and the same answers from a file."""
    frame, new = stations(70, 0), stations(8, 1)
    y = 10 - 0.006 * frame["height"] + 15 * np.cos(np.radians(frame["lat"])) + np.sin(0.1 * frame["lon"])
    model = GPRegressor(columns=PLACE, trend=kind, solver="cholesky", init=theta(1.5, 0.6, 0.6, 0.6), **GIVEN)
    model.fit(frame, y)
    terms = kind if kind == "linear" else [0]
    x, x_new = sphere(frame), sphere(new)
    lengths = model.hyperparameters_.length_scales.numpy() * model.scaler_.x_scale
    assert lengths[1] == lengths[2] == lengths[3]
    T, t = monomials(x, terms), monomials(x_new, terms)
    check(model, new, kriging("matern32", x, y.to_numpy(), x_new, T, t, vector(model, lengths)))
    placed = ("lat, lon: x", "lat, lon: y", "lat, lon: z") if kind == "linear" else ()
    assert model.trend_.names == ("1", "height", *placed)
    seam = pd.DataFrame({"height": [500.0] * 2, "lat": [10.0] * 2, "lon": [180.0, -180.0]})
    assert np.ptp(model.predict(seam)) < 1e-9
    model.save(tmp_path / "m")
    again = GPRegressor.load(tmp_path / "m", device="cpu")
    assert again.trend_.names == model.trend_.names
    np.testing.assert_array_equal(again.predict(new, return_std=True), model.predict(new, return_std=True))


@pytest.mark.parametrize(
    ("kind", "names", "told"),
    [
        (["height", "lon"], True, r"trend names the column 'lon', which is part of the place \(lat, lon\): only plain"),
        ([2], False, r"trend names the column 2, which is part of the place \(1, 2\): only plain"),
        ("quadratic", True, "trend='quadratic' is not possible with a place on the globe"),
    ],
)
def test_half_of_a_place_and_its_squares_are_refused(kind: Any, names: bool, told: str) -> None:
    frame = stations(40, 0)
    X, columns = (frame, PLACE) if names else (frame.to_numpy(), {(1, 2): "geographic"})
    model = GPRegressor(columns=columns, trend=kind, **GIVEN)
    with pytest.raises(ValueError, match=told):
        model.fit(X, frame["lat"])
    with pytest.raises(ValueError, match=told):
        model.plan(X)


# -- turned inputs ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def strip() -> tuple[np.ndarray, np.ndarray]:
    """A process over 100 by 50 km whose range is longest at 35°, and a steep plane with it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, [100.0, 50.0], (260, 2))
    c, s = np.cos(np.radians(35.0)), np.sin(np.radians(35.0))
    H = gp_truth.h_matrix(
        "matern32", torch.tensor(X @ [[c, -s], [s, c]]), torch.tensor([0.2, 1.0, 60.0, 8.0], dtype=torch.float64)
    )
    return X, np.linalg.cholesky(H.numpy()) @ rng.normal(size=260) + 7 + 3.0 * X[:, 0] - 5.0 * X[:, 1]


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_over_turned_inputs_it_is_universal_kriging_of_the_columns(
    strip: tuple[np.ndarray, np.ndarray], solver: str, tmp_path: Path
) -> None:
    """The angle is that of the process, within 8°, not that of the plane, which has hundreds of times its variance."""
    X, y = strip
    new = np.vstack([X[:5] + 1.0, [[200.0, -50.0]]])
    model = GPRegressor(
        anisotropy="rotated", trend="quadratic", solver=solver, tol=1e-9, max_epochs=None, dtype="float64",
        init=theta(1.5, 0.3), **GIVEN,
    ).fit(X, y)  # fmt: skip
    assert abs(model.anisotropy_.angle - 35.0) < 8.0
    assert model.trend_.names == ("1", "x0", "x1", "x0²", "x0·x1", "x1²")
    angle, scaler = np.radians(model.scaler_.angle), model.scaler_
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    u, u_new = (((one - X.mean(0)) / X.std(0)) @ turn for one in (X, new))
    T, t = monomials(X, "quadratic"), monomials(new, "quadratic")
    found = vector(model, model.hyperparameters_.length_scales.numpy())
    exact = kriging("matern32", u, y, u_new, T, t, found)
    if solver == "cholesky":
        check(model, new, exact)
        mean, std = model.predict_blocks(new, groups=[0, 0, 0, 1, 1, 1])
        halves = [slice(0, 3), slice(3, 6)]
        np.testing.assert_allclose(mean, [exact.mean[half].mean() for half in halves], rtol=1e-6)
        np.testing.assert_allclose(std, [exact.latent[half, half].mean() ** 0.5 for half in halves], rtol=1e-6)
    else:
        np.testing.assert_allclose(model.predict(new), exact.mean, rtol=1e-4)
        np.testing.assert_allclose(model.trend_.std_errors, exact.errors, rtol=1e-4)
    assert scaler.y_scale < 3.0  # what the plane leaves
    model.save(tmp_path / "m")
    again = GPRegressor.load(tmp_path / "m", device="cpu")
    np.testing.assert_array_equal(again.predict(new, return_std=True), model.predict(new, return_std=True))
    np.testing.assert_array_equal(again.trend_.coefficients, model.trend_.coefficients)
