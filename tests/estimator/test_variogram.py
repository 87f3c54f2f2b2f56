"""The variogram: pairs against a direct sum, the model against its formula, and a planted field that is found again."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from gp_truth import PROFILES, kernel_matrix
from warmgp import GPRegressor, Hyperparameters, plot_variogram, variogram
from warmgp.estimator.pairs import draw_pairs
from warmgp.estimator.variogram import correlation_range
from warmgp.kernels import KERNELS

NUGGET, PARTIAL, LENGTHS = 0.5, 4.0, (2.0, 30.0)  # of y², and of kilometres and metres


def field(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Observations of an exponential field with those parameters, about a mean of 100, on 30 by 450 units."""
    rng = np.random.default_rng(seed)
    X = rng.uniform((0.0, 0.0), (30.0, 450.0), (n, 2))
    x = torch.as_tensor(X)
    K = kernel_matrix("matern12", x, x, torch.tensor(math.sqrt(PARTIAL)), torch.tensor(LENGTHS, dtype=torch.float64))
    smooth = torch.linalg.cholesky(K + 1e-9 * torch.eye(n, dtype=torch.float64)).numpy() @ rng.standard_normal(n)
    return X, 100.0 + smooth + math.sqrt(NUGGET) * rng.standard_normal(n)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return field(600)


@pytest.fixture(scope="module")
def fitted(data: tuple[np.ndarray, np.ndarray]) -> GPRegressor:
    """The field as training finds it; with names of inputs."""
    X = pd.DataFrame(data[0], columns=["east", "up"])
    model = GPRegressor("matern12", solver="cholesky", n_steps=50, n_probes=2, n_features=100, random_state=0)
    return model.fit(X, data[1])


def known(X: np.ndarray, y: np.ndarray, theta: list[float], **options: Any) -> GPRegressor:
    """A model at given hyperparameters, in standardised units."""
    start = Hyperparameters.from_vector(torch.tensor(theta, dtype=torch.float64))
    return GPRegressor(init=start, n_steps=1, learning_rate=1e-12, n_probes=2, n_features=100, **options).fit(X, y)


def test_a_planted_field_is_found_again(fitted: GPRegressor) -> None:
    """Nugget, sill and range by the likelihood of 600 points: within a third of what was planted."""
    found = variogram(fitted)
    assert found.nugget == pytest.approx(NUGGET, rel=1 / 3)
    assert found.sill == pytest.approx(NUGGET + PARTIAL, rel=1 / 3)
    assert found.partial_sill == pytest.approx(found.sill - found.nugget)
    assert found.range == pytest.approx(LENGTHS[0] * math.log(20), rel=1 / 3)
    assert found.length_scales == pytest.approx(LENGTHS, rel=1 / 3)
    assert found.name == "east" and found.along == 0
    assert np.abs(found.semivariance / found.model(found.lags) - 1).max() < 0.2  # the model describes its data
    assert found.counts.sum() > 10_000 and found.counts.min() > 100
    other = variogram(fitted, along="up")
    assert other.lags / other.length_scales[1] == pytest.approx(found.lags / found.length_scales[0])
    assert other.semivariance == pytest.approx(found.semivariance)
    assert other.range / found.range == pytest.approx(other.length_scales[1] / other.length_scales[0])
    assert "nugget" in str(found) and "along east" in str(found) and "matern12" in str(found)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_against_a_direct_sum(kernel: str) -> None:
    """Lags, semivariances and counts by a loop over all pairs, in the user's units; the model by its formula."""
    X, y = field(60)
    model = known(X, y, [0.3, 0.9, 0.7, 2.5], kernel=kernel, random_state=0)
    sx, sy = X.std(0), y.std()
    lengths = np.array([0.7, 2.5]) * sx
    found = variogram(model, X, y, along=1, max_lag=0.8 * lengths[1], n_lags=6)
    sums = np.zeros((3, 6))
    for i in range(60):
        for j in range(i):
            h = math.hypot(*((X[i] - X[j]) / lengths)) * lengths[1]
            if h <= 0.8 * lengths[1]:
                sums[:, min(int(6 * h / (0.8 * lengths[1])), 5)] += 1, h, (y[i] - y[j]) ** 2 / 2
    some = sums[0] > 0
    assert found.counts == pytest.approx(sums[0, some])
    assert found.lags == pytest.approx((sums[1] / sums[0])[some], rel=1e-9)
    assert found.semivariance == pytest.approx((sums[2] / sums[0])[some], rel=1e-9)
    assert found.length_scales == pytest.approx(lengths, rel=1e-9)
    h = np.array([[0.0, 3.0], [40.0, 1e6]])
    direct = 0.09 + 0.81 * (1 - PROFILES[kernel](torch.as_tensor(h / lengths[1])).numpy())
    assert found.model(h) == pytest.approx(direct * sy**2, rel=1e-9)
    left = PROFILES[kernel](torch.tensor(found.range / lengths[1], dtype=torch.float64))
    assert float(left) == pytest.approx(0.05, rel=1e-6)


def test_targets_from_the_solution(fitted: GPRegressor, data: tuple[np.ndarray, np.ndarray]) -> None:
    """Without X and y: y = H v, which a factor of H has solved exactly; a shared length scale and raw units, too."""
    given = variogram(fitted, pd.DataFrame(data[0], columns=["east", "up"]), data[1])
    own = variogram(fitted)
    assert own.semivariance == pytest.approx(given.semivariance, rel=1e-3)
    assert own.counts == pytest.approx(given.counts)
    X, y = data[0][:80] / LENGTHS, data[1][:80] - 100.0
    raw = known(X, y, [0.7, 2.0, 1.0], ard=False, standardize=False, kernel="matern12", random_state=0)
    found = variogram(raw)
    assert (found.nugget, found.sill) == pytest.approx((0.49, 4.49)) and found.length_scales == pytest.approx([1, 1])
    assert found.semivariance == pytest.approx(variogram(raw, X, y).semivariance, rel=1e-3)


def test_drawn_pairs_tell_what_all_pairs_tell() -> None:
    """Of 6,000 points: pairs at every distance down to the nearest, and averages as those of 18 million pairs."""
    rng = np.random.default_rng(0)
    z = rng.uniform(0, 10, (6000, 2))
    pairs = draw_pairs(z, 10**9, rng)
    assert len(pairs.first) < 1_000_000 and (pairs.first < pairs.second).all()
    assert pairs.distance == pytest.approx(np.hypot(*(z[pairs.first] - z[pairs.second]).T))
    counts = np.histogram(pairs.distance, np.geomspace(0.05, 10, 12))[0]
    assert counts.min() > 300
    assert np.count_nonzero(pairs.distance < 0.05) > 300
    y = np.sin(z[:, 0]) + np.cos(z[:, 1]) + 0.3 * rng.standard_normal(6000)
    model = known(z[:50], y[:50], [0.3, 1.0, 1.0, 1.0])
    found = variogram(model, z, y, max_lag=4.0, n_lags=8)
    first, second = (rng.integers(0, 6000, 3_000_000) for _ in range(2))
    h = np.hypot(*((z[first] - z[second]) * (found.length_scales[0] / found.length_scales)).T)
    half = (y[first] - y[second]) ** 2 / 2
    for lag, value in zip(found.lags[1:], found.semivariance[1:], strict=True):
        near = np.abs(h - lag) < 0.03
        assert value == pytest.approx(half[near].mean(), rel=0.12)
    assert variogram(model, z, y).semivariance == pytest.approx(variogram(model, z, y).semivariance, rel=0)


def test_few_targets_of_many_points() -> None:
    """Where targets are dear, the pairs have about as many points as were allowed."""
    z = np.random.default_rng(0).standard_normal((5000, 2))
    pairs = draw_pairs(z, 600, np.random.default_rng(0))
    assert 100 < len(np.unique([pairs.first, pairs.second])) <= 600


def test_a_direction(fitted: GPRegressor, data: tuple[np.ndarray, np.ndarray]) -> None:
    """Only pairs within the angle count, in the geometry of the model, by a direct look at every pair."""
    found = variogram(fitted, along="up", tolerance=22.5, max_lag=60.0, n_lags=4)
    step = (data[0][:, None] - data[0][None]) / found.length_scales
    r = np.hypot(*np.moveaxis(step, -1, 0))
    some = (np.abs(step[..., 1]) >= math.cos(math.radians(22.5)) * r) & (r * found.length_scales[1] <= 60.0)
    assert found.counts.sum() == np.count_nonzero(np.triu(some, 1))


def test_ranges_of_the_kernels() -> None:
    assert correlation_range(KERNELS["matern12"]) == pytest.approx(math.log(20))
    assert correlation_range(KERNELS["rbf"]) == pytest.approx(math.sqrt(2 * math.log(20)))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"X": np.ones((3, 2))}, "X and y belong together"),
        ({"X": np.ones((3, 2)), "y": np.ones(4)}, "y has 4"),
        ({"X": [[1.0]] * 3, "y": np.ones(3)}, "features"),
        ({"along": 2}, "along must be a number from 0 to 1 or one of 'east', 'up', got 2"),
        ({"along": "west"}, "got 'west'"),
        ({"along": True}, "got True"),
        ({"n_lags": 0}, "n_lags must be an integer of at least 1"),
        ({"random_state": -1}, "random_state must be an integer of at least 0"),
        ({"max_lag": -1.0}, "max_lag must be a positive number or None"),
        ({"max_lag": math.inf}, "max_lag must be a positive number or None"),
        ({"max_lag": 1e-9}, "no pair of points is within max_lag=1e-09 of east: give a larger max_lag"),
        ({"tolerance": 0.0}, "tolerance must be an angle above 0"),
        ({"tolerance": 120}, "at most 90 degrees"),
        ({"X": np.ones((3, 2)), "y": np.arange(3.0)}, "no pair of points"),
    ],
)
def test_bad_arguments_are_named(fitted: GPRegressor, options: dict[str, Any], said: str) -> None:
    if isinstance(options.get("X"), np.ndarray):
        options = options | {"X": pd.DataFrame(options["X"], columns=["east", "up"])}
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        variogram(fitted, **options)


def test_nothing_is_fitted() -> None:
    with pytest.raises(NotFittedError):
        variogram(GPRegressor())


def test_it_is_drawn(fitted: GPRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Curve, points, nugget, sill and range, on axes that were given; without matplotlib the extra is named."""
    pytest.importorskip("matplotlib", reason="drawing needs matplotlib: pip install 'warmgp[plot]'").use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    found = variogram(fitted, n_lags=7)
    assert plot_variogram(fitted, ax=axes, n_lags=7) is axes
    assert np.asarray(axes.collections[0].get_offsets()) == pytest.approx(np.stack([found.lags, found.semivariance], 1))
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert f"sill {found.sill:.3g}" in labels and f"range {found.range:.3g}" in labels
    assert "east" in axes.get_xlabel() and "y²" in axes.get_ylabel()
    h, gamma = axes.lines[0].get_data()
    assert gamma == pytest.approx(found.model(h))
    plt.close(figure)

    real = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r"warmgp\[plot\]"):
        plot_variogram(fitted)
