"""A tensor that requires a gradient: predict and sample_y give one, everything else says so; none is lost unnoticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gp_truth import posterior
from warmgp import GPRegressor, Hyperparameters
from warmgp.estimator.gradients import standardised

THETA = Hyperparameters(0.2, 1.0, [0.6, 0.9])
PLAIN = {"n_steps": 0, "random_state": 0, "n_probes": 8}


def table(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Two columns in units far from one."""
    rng = np.random.default_rng(0)
    X = rng.uniform([1000.0, -0.01], [1010.0, 0.02], (n, 2))
    return X, 50 + 20 * np.sin(X[:, 0]) + 1e3 * X[:, 1] + 2 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return GPRegressor("matern32", init=THETA, **PLAIN).fit(*table())


@pytest.fixture(scope="module")
def sampled() -> GPRegressor:
    return GPRegressor("matern32", solver="cg", init=THETA, **PLAIN).fit(*table())


def places() -> torch.Tensor:
    return torch.tensor([[1003.0, 0.001], [1007.5, -0.004], [1009.0, 0.012]], dtype=torch.float64)


def by_differences(f: Any, X: torch.Tensor, scale: torch.Tensor, size: float = 1e-4) -> torch.Tensor:
    """Central differences of a function of rows, of plain tensors, (m, columns)."""
    found = torch.zeros_like(X)
    for j in range(X.shape[1]):
        step = torch.zeros(X.shape[1], dtype=X.dtype)
        step[j] = size * scale[j]
        found[:, j] = (f(X + step) - f(X - step)) / (2 * step[j])
    return found


# -- what is given ---------------------------------------------------------------------------------------------------
def test_mean_and_std_have_the_slopes_of_the_truth(model: GPRegressor) -> None:
    X, y = map(torch.tensor, table())
    new = places().requires_grad_()
    mean, std = model.predict(new, return_std=True)
    x, x_new = ((part - X.mean(0)) / X.std(0, correction=0) for part in (X, new))
    scale = y.std(correction=0)
    centre, covariance = posterior("matern32", x, (y - y.mean()) / scale, x_new, THETA)
    expected = y.mean() + scale * centre, scale * (covariance.diagonal() + 0.2**2).sqrt()
    for found, true in zip((mean, std), expected, strict=True):
        torch.testing.assert_close(found, true, rtol=1e-6, atol=1e-6)
        pair = [torch.autograd.grad(part.sum(), new, retain_graph=True)[0] for part in (found, true)]
        assert pair[0].abs().min() > 0
        torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-5)


def test_the_values_do_not_depend_on_the_gradient(model: GPRegressor, sampled: GPRegressor) -> None:
    for one in (model, sampled):
        new = places()
        for f in (
            lambda X, one=one: one.predict(X),
            lambda X, one=one: one.predict(X, return_std=True)[1],
            lambda X, one=one: one.predict(X, return_std=True, include_noise=False)[1],
            lambda X, one=one: one.sample_y(X, 3),
        ):
            plain, with_gradient = f(new), f(new.clone().requires_grad_())
            assert with_gradient.requires_grad and not plain.requires_grad
            assert with_gradient.dtype == plain.dtype
            torch.testing.assert_close(with_gradient.detach(), plain, rtol=1e-4, atol=1e-3)


def test_functions_have_slopes(sampled: GPRegressor) -> None:
    """Of the model, and new ones of a seed, against central differences."""
    scale = torch.tensor([3.0, 0.01], dtype=torch.float64)
    for seed in (None, 3):

        def f(X: torch.Tensor, seed: int | None = seed) -> torch.Tensor:
            return sampled.sample_y(X.detach().clone().requires_grad_(), 2, random_state=seed)[:, 1]

        new = places().requires_grad_()
        (found,) = torch.autograd.grad(sampled.sample_y(new, 2, random_state=seed)[:, 1].sum(), new)
        expected = by_differences(f, new.detach(), scale, 1e-6).detach()
        torch.testing.assert_close(found * scale, expected * scale, rtol=1e-3, atol=1e-3)


def test_float32_comes_back_as_float32(model: GPRegressor) -> None:
    mean = model.predict(places().float().requires_grad_())
    assert mean.dtype == torch.float32 and mean.requires_grad


COLUMNS: dict[str, Any] = {
    "linear trend": {"trend": "linear"},
    "turned": {"anisotropy": "rotated"},
    "periodic": {"columns": {0: ("periodic", 6.0)}},
    "place": {"columns": {(0, 1): "geographic"}},
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("solver", ["auto", "cg"])
def test_slopes_through_what_columns_are(name: str, solver: str) -> None:
    """Against central differences of predictions of plain tensors, whose way to the inputs is numpy's."""
    rng = np.random.default_rng(1)
    X = rng.uniform([20, 350], [40, 370], (90, 2))  # a latitude, a longitude that passes 360
    y = np.sin(X[:, 0] / 3) + 0.1 * X[:, 1] + 0.1 * rng.standard_normal(90)
    settings = {**PLAIN, "init": "ones", **COLUMNS[name]}
    model = GPRegressor("matern52", solver=solver, dtype="float64", **settings).fit(X, y)
    new = torch.tensor(rng.uniform([22, 352], [38, 368], (4, 2)), requires_grad=True)
    for number in (0, 1):
        value = model.predict(new, return_std=True)[number]
        (found,) = torch.autograd.grad(value.sum(), new)
        expected = by_differences(lambda X, k=number: model.predict(X, return_std=True)[k], new.detach(), torch.ones(2))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)  # a std is found by bisection


# -- what is not, and says so ----------------------------------------------------------------------------------------
def test_nothing_is_detached_in_silence(model: GPRegressor) -> None:
    new = places().requires_grad_()
    y = torch.tensor(table()[1][:3])
    asked = {
        "std_error": lambda: model.std_error(new),
        "log_predictive_density": lambda: model.log_predictive_density(new, y),
        "predict_interval": lambda: model.predict_interval(new),
        "predict_blocks": lambda: model.predict_blocks(new, groups=[0, 0, 1]),
        "update": lambda: GPRegressor.update(model, new, y),
        "fit": lambda: GPRegressor().fit(new, y),
        "fit y": lambda: GPRegressor().fit(places(), y.clone().requires_grad_()),
    }
    for name, call in asked.items():
        with pytest.raises(ValueError, match=r"gradient.*(WarmModel|detach)"):
            call()
            pytest.fail(name)
    with pytest.raises(ValueError, match=r"WarmModel\(model\)\.posterior"):
        model.predict(new, return_cov=True)


def test_without_recording_there_is_nothing_to_lose(model: GPRegressor) -> None:
    new = places().requires_grad_()
    with torch.no_grad():
        assert not model.predict(new).requires_grad
        assert not model.std_error(new).requires_grad


def test_columns_without_a_gradient_are_named() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(0, 1, 60), "bed": ["sand", "rock", "clay"] * 20})
    model = GPRegressor("matern32", columns={"bed": "category"}, **PLAIN).fit(X, rng.standard_normal(60))
    dates = X.assign(bed=pd.date_range("2024-01-01", periods=60).astype(str))
    other = GPRegressor("matern32", columns={"bed": "date"}, **PLAIN).fit(dates, rng.standard_normal(60))
    gaps = X.assign(bed=np.where(np.arange(60) % 7 == 0, np.nan, np.arange(60.0)))
    third = GPRegressor("matern32", missing="mean", **PLAIN).fit(gaps, rng.standard_normal(60))
    new = torch.tensor([[0.5, 1.0]], requires_grad=True)
    for one, what in ((model, "categor"), (other, "date"), (third, "with missing cells")):
        with pytest.raises(ValueError, match=f"column 'bed' of X .*{what}"):
            standardised(one.scaler_, new)


def test_several_targets_are_refused_and_one_of_them_has_gradients() -> None:
    """Each has its own unit, and its own solution: a gradient of the first would be taken for that of all."""
    X, y = table()
    model = GPRegressor("matern32", init=THETA, **PLAIN).fit(X, np.stack([y, 3 - 2 * y], 1))
    new = torch.tensor(X[:3], requires_grad=True)
    for answer in (model.predict, model.sample_y):
        with pytest.raises(AttributeError, match=r"a gradient in X is for one target.*of_target"):
            answer(new)
    slopes = [torch.autograd.grad(model.of_target(j).predict(new).sum(), new)[0] for j in range(2)]
    torch.testing.assert_close(slopes[1], -2 * slopes[0])
