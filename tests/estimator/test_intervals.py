"""Intervals and quantiles: exact ones of a normal distribution, in any form of X; refused where they make no sense."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

from gp_truth import exact_prediction
from warmgp import GPRegressor

FAST = {"kernel": "matern32", "n_steps": 8, "n_probes": 8, "n_features": 100, "random_state": 0, "device": "cpu"}


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 50 + 20 * np.sin(2 * X[:, 0]) + 5 * rng.normal(size=n)


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return GPRegressor(**FAST).fit(*data(70))


@pytest.mark.parametrize("include_noise", [True, False])
def test_they_are_those_of_the_exact_posterior(model: GPRegressor, include_noise: bool) -> None:
    X, y = data(70)
    new = data(15, 1)[0]
    vector = model.hyperparameters_.vector.numpy()
    mean, std = exact_prediction(X, y, new, "matern32", vector)
    if not include_noise:
        std = np.sqrt(std**2 - (vector[0] * y.std()) ** 2)
    interval = model.predict_interval(new, 0.8, include_noise=include_noise)
    quantiles = model.predict_quantiles(new, [0.99, 0.1, 0.5], include_noise=include_noise)
    assert interval.shape == (15, 2) and quantiles.shape == (15, 3)
    for found, level in zip(np.c_[interval, quantiles].T, (0.1, 0.9, 0.99, 0.1, 0.5), strict=True):
        np.testing.assert_allclose(found, mean + NormalDist().inv_cdf(level) * std, rtol=1e-6)


def test_ninety_percent_is_the_default_and_leaves_out_as_much_on_each_side(model: GPRegressor) -> None:
    new = data(5, 1)[0]
    np.testing.assert_array_equal(model.predict_interval(new), model.predict_quantiles(new, (0.05, 0.95)))
    assert (model.predict_quantiles(new, 0.5)[:, 0] == model.predict(new)).all()  # one level alone
    wide, narrow = model.predict_interval(new, 0.99), model.predict_interval(new, 0.5)
    assert (wide[:, 0] < narrow[:, 0]).all() and (narrow[:, 1] < wide[:, 1]).all()


def test_they_hold_as_many_observations_as_they_say() -> None:
    """Of 600 held-out rows, from samples: within three standard errors of a share and what the model is off by."""
    model = GPRegressor("matern32", solver="cg", n_steps=30, n_probes=16, n_features=200, random_state=0).fit(
        *data(250)
    )
    X, y = data(600, 1)
    for coverage in (0.5, 0.9):
        lower, upper = model.predict_interval(X, coverage).T
        share = np.mean((lower <= y) & (y <= upper))
        assert abs(share - coverage) < 3 * np.sqrt(coverage * (1 - coverage) / 600) + 0.03, coverage
    below = np.mean(y[:, None] < model.predict_quantiles(X, [0.25, 0.75]), axis=0)
    assert abs(below - [0.25, 0.75]).max() < 3 * np.sqrt(0.25 * 0.75 / 600) + 0.03


def test_a_tensor_gives_a_tensor(model: GPRegressor) -> None:
    new = data(4, 1)[0]
    found = model.predict_interval(torch.tensor(new, dtype=torch.float32))
    assert isinstance(found, torch.Tensor) and found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), model.predict_interval(new), rtol=1e-4)


def test_a_grid_gives_a_dataset() -> None:
    pytest.importorskip("xarray")
    import pandas as pd

    from warmgp import grid

    X, y = data(40)
    model = GPRegressor(**FAST).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    cells = grid(a=(-1, 1, 1), b=(-1, 1, 2))
    rows = pd.DataFrame([(a, b) for a in cells["a"].values for b in cells["b"].values], columns=["a", "b"])
    found, named = model.predict_interval(cells, 0.9), model.predict_quantiles(cells, [0.05, 0.5])
    lower = found["lower"].transpose("a", "b").values.ravel()
    np.testing.assert_allclose(lower, model.predict_interval(rows, 0.9)[:, 0])
    assert set(found) == {"lower", "upper"} and set(named) == {"q0.05", "q0.5"}
    np.testing.assert_array_equal(named["q0.05"], found["lower"])
    assert named["q0.05"].attrs["long_name"] == "quantile 0.05"


@pytest.mark.parametrize("coverage", [0, 1, 90, -0.1, float("nan"), "0.9", True, None])
def test_a_coverage_that_is_none_is_refused(model: GPRegressor, coverage: Any) -> None:
    with pytest.raises(ValueError, match=r"coverage must be a number between 0 and 1, such as 0\.9 for 90%, got"):
        model.predict_interval([[0.0, 0.0]], coverage)


@pytest.mark.parametrize("q", [[], [0.5, 1.0], [0.0], 5, [float("nan")], ["a"], [[0.1, 0.9]], [True]])
def test_levels_that_are_none_are_refused(model: GPRegressor, q: Any) -> None:
    with pytest.raises(ValueError, match=r"q must be numbers between 0 and 1, such as \[0\.05, 0\.5, 0\.95\], got"):
        model.predict_quantiles([[0.0, 0.0]], q)


def test_a_model_has_to_be_fitted() -> None:
    from sklearn.exceptions import NotFittedError

    for ask in (lambda m: m.predict_interval([[0.0]]), lambda m: m.predict_quantiles([[0.0]], [0.5])):
        with pytest.raises(NotFittedError):
            ask(GPRegressor())
