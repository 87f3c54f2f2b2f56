"""The variogram over places and turned inputs, and beside a trend: distances are the model's, pairs what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from trend_truth import monomials
from warmgp import GPRegressor, Hyperparameters, Variogram, variogram

COUNT, BINS = 70, 6


def known(X: Any, y: Any, lengths: list[float], **options: Any) -> GPRegressor:
    """A model at noise 0.3, signal 0.9 and these length scales, in standardised units."""
    theta = Hyperparameters(*(torch.tensor(v, dtype=torch.float64) for v in (0.3, 0.9, lengths)))
    return GPRegressor(init=theta, n_steps=0, n_probes=2, n_features=100, random_state=0, **options).fit(X, y)


def check(found: Variogram, h: np.ndarray, left: np.ndarray, widest: float) -> None:
    """Counts, lags and semivariances of all pairs, of which h (n, n) are the distances and left (n,) the values."""
    first, second = np.triu_indices(len(left), 1)
    near = h[first, second] <= widest
    bins = np.minimum((h[first, second][near] * BINS / widest).astype(int), BINS - 1)
    squares = (0.5 * (left[first] - left[second]) ** 2)[near]
    some = np.unique(bins)
    assert found.counts.tolist() == [int((bins == b).sum()) for b in some]
    np.testing.assert_allclose(found.lags, [h[first, second][near][bins == b].mean() for b in some], rtol=1e-6)
    np.testing.assert_allclose(found.semivariance, [squares[bins == b].mean() for b in some], rtol=1e-6)


def test_places_have_one_range_in_kilometres() -> None:
    """Chords by the half angle between two places, for which no coordinates are needed; heights count, too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"lon": rng.uniform(-180, 180, COUNT), "height": rng.uniform(0, 3, COUNT)})
    frame["lat"] = rng.uniform(-60, 80, COUNT)
    y = rng.normal(size=COUNT) + frame["height"]
    model = known(frame, y, [0.4, 0.4, 0.4, 0.8], columns={("lat", "lon"): "geographic"}, solver="cholesky")
    lat, lon = np.radians(frame["lat"].to_numpy()), np.radians(frame["lon"].to_numpy())
    half = np.sin((lat[:, None] - lat) / 2) ** 2 + np.outer(np.cos(lat), np.cos(lat)) * (
        np.sin((lon[:, None] - lon) / 2) ** 2
    )
    chord = 2 * 6371 * np.sqrt(half)  # km
    point = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    km = 0.4 * np.sqrt(point.var(1).sum() / 2) * 6371
    metres = 0.8 * frame["height"].std(ddof=0)
    r = np.hypot(chord / km, np.subtract.outer(frame["height"].to_numpy(), frame["height"].to_numpy()) / metres)
    for along in ("lat", "lon", 0, 2):
        found = variogram(model, frame, y, along=along, max_lag=2 * km, n_lags=BINS)
        check(found, r * km, y.to_numpy(), 2 * km)
        assert (found.name, found.unit) == ("lat, lon", "km")
        np.testing.assert_allclose(found.length_scales, [km, metres], rtol=1e-9)
    assert f"{found.range:.4g} km along lat, lon" in str(found)
    check(variogram(model, along=1, max_lag=2 * metres, n_lags=BINS), r * metres, y.to_numpy(), 2 * metres)
    with pytest.raises(ValueError, match="the place 'lat, lon' has no direction, and tolerance must be 90"):
        variogram(model, along="lon", tolerance=20)
    assert variogram(model, along="height", tolerance=60).counts.sum() < COUNT * (COUNT - 1) / 2


@pytest.mark.parametrize("given", [True, False])
def test_turned_inputs_with_a_trend(given: bool) -> None:
    """Distances by the metric that ``anisotropy_`` tells, and pairs of what the trend's own coefficients leave."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, [100.0, 50.0], (COUNT, 2))
    u = X @ [0.8, 0.6], X @ [-0.6, 0.8]
    y = np.sin(u[0] / 30) + np.sin(u[1] / 4) + 0.2 * rng.normal(size=COUNT) + 3 * X[:, 0] - 2 * X[:, 1]
    model = known(X, y, [1.5, 0.3], anisotropy="rotated", trend="linear", solver="cholesky")
    metric, angle = model.anisotropy_, np.radians(model.anisotropy_.angle)
    turned = X @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    scaled = turned / [metric.along, metric.across]
    r = np.sqrt(((scaled[:, None] - scaled) ** 2).sum(2))
    lengths = 1 / np.hypot(np.array([np.cos(angle), np.sin(angle)]) / metric.along,
                           np.array([-np.sin(angle), np.cos(angle)]) / metric.across)  # fmt: skip
    left = y - monomials(X, "linear") @ model.trend_.coefficients
    found = variogram(model, *((X, y) if given else ()), along=1, max_lag=2 * lengths[1], n_lags=BINS)
    check(found, r * lengths[1], left, 2 * lengths[1])
    np.testing.assert_allclose(found.length_scales, lengths, rtol=1e-9)
    assert found.nugget == pytest.approx((0.3 * model.scaler_.y_scale) ** 2)
    assert found.sill < 0.01 * y.var()  # that of the process, not of the plane
