"""Fits on a device that is not there: nothing takes tensors of two devices together, and the model is the CPU's.

``make elsewhere`` runs the other tests of estimators so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gp_truth import toy
from other_device import Elsewhere, other_device
from warmgp import (
    Cholesky,
    ConjugateGradients,
    GPRegressor,
    Hyperparameters,
    Pathwise,
    StoppingRule,
    TrainingOptions,
)
from warmgp.estimator.start import begin, options_of
from warmgp.kernels import get_kernel
from warmgp.operators import make_operator
from warmgp.training import Problem
from warmgp.training.exact_climb import ExactClimb, start_at_waves
from warmgp.training.fine_structure import finer
from warmgp.training.local_start import LocalStart
from warmgp.training.loop import train_only
from warmgp.training.near_start import NearStart

Array = NDArray[np.float64]
KERNEL = get_kernel("matern32")
QUICK: dict[str, Any] = {"kernel": KERNEL, "random_state": 0, "n_features": 200, "n_probes": 8}


@pytest.fixture
def device() -> Iterator[torch.device]:
    with other_device() as device:
        yield device


def table(n: int = 260, d: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, d))
    return X, 5 + 2 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


# -- fits ------------------------------------------------------------------------------------------------------------
FITS: dict[str, dict[str, Any]] = {
    "as it comes": {"kernel": "auto"},
    "cholesky": {"solver": "cholesky", "n_steps": 3},
    "cg": {"solver": "cg", "n_steps": 3},
    "cg, low rank and neighbours": {"solver": ConjugateGradients(20, neighbours=10), "n_steps": 3},
    "cg, whole factor": {"solver": ConjugateGradients(0, factor_after=2), "n_steps": 3},
    "ap": {"solver": "ap", "n_steps": 3},
    "rap": {"solver": "rap", "n_steps": 3},
    "sgd": {"solver": "sgd", "n_steps": 1, "max_epochs": 300},
    "standard gradient": {"solver": "cg", "gradient": "standard", "n_steps": 3},
    "float64": {"solver": "rap", "dtype": "float64", "n_steps": 2},
    "a trend": {"solver": "cg", "trend": "linear", "n_steps": 2},
    "an angle": {"anisotropy": "rotated", "n_steps": 2},
    "one length scale": {"ard": False, "n_steps": 2},
}


@pytest.mark.parametrize("settings", FITS.values(), ids=FITS)
def test_a_fit_is_that_of_the_cpu(settings: dict[str, Any], device: torch.device) -> None:
    X, y = table()
    there, here = (GPRegressor(device=one, **{**QUICK, **settings}).fit(X, y) for one in (device, "cpu"))
    assert isinstance(there.posterior_.solution, Elsewhere)
    mean, std = here.predict(X[:40], return_std=True)
    found = there.predict(X[:40], return_std=True)
    assert np.abs(found[0] - mean).max() < 0.1 * std.min()
    assert np.allclose(found[1], std, rtol=0.05)


def test_all_that_a_model_tells_is_told(device: torch.device) -> None:
    X, y = table()
    for solver in ("cholesky", "rap"):
        there, here = (GPRegressor(device=one, solver=solver, n_steps=2, **QUICK).fit(X, y) for one in (device, "cpu"))
        told = [
            (
                model.predict(X[:9], return_cov=True)[1],
                model.predict_interval(X[:9], coverage=0.8),
                model.loo_.mean,
                model.log_marginal_likelihood_value_,
                model.sample_y(X[:9], n_samples=3, random_state=0).mean(1),
            )
            for model in (there, here)
        ]
        for one, other in zip(*told, strict=True):
            assert np.allclose(one, other, atol=0.1)
        assert str(there.diagnose())[:200] == str(here.diagnose())[:200]


@pytest.mark.parametrize("settings", [{}, {"trend": "linear"}])
@pytest.mark.parametrize("solver", ["cholesky", "cg", "rap"])
def test_an_update_is_that_of_the_cpu(solver: str, settings: dict[str, Any], device: torch.device) -> None:
    X, y = table()
    found = []
    for one in (device, "cpu"):
        model = GPRegressor(device=one, solver=solver, n_steps=2, **QUICK, **settings).fit(X[:200], y[:200])
        model.update(X[200:230], y[200:230])
        model.update(X[230:], y[230:], n_steps=1)
        found.append(model.predict(X[:40], return_std=True))
    (mean, std), (expected, scale) = found
    assert np.abs(mean - expected).max() < 0.1 * scale.min() and np.allclose(std, scale, rtol=0.1)


@pytest.mark.parametrize("solver", ["cholesky", "rap"])
@pytest.mark.parametrize("several", [True, False])
def test_targets_weights_and_known_errors_are_taken_there(solver: str, several: bool, device: torch.device) -> None:
    X, y = table()
    rng = np.random.default_rng(1)
    said = {} if several else {"noise_variance": rng.uniform(0.01, 0.1, len(y))}
    said["sample_weight"] = rng.integers(1, 4, len(y))
    there, here = (
        GPRegressor(device=one, solver=solver, n_steps=2, **QUICK)
        .fit(X, np.stack([y, y**2], 1) if several else y, **said)
        .predict(X[:40], return_std=True)
        for one in (device, "cpu")
    )
    assert np.all(np.abs(there[0] - here[0]) < 0.1 * here[1].min(0)) and np.allclose(there[1], here[1], rtol=0.1)


# -- starts ----------------------------------------------------------------------------------------------------------
def waves(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and 20 periods along the first of them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, d, dtype=torch.float64, generator=generator)
    y = (40 * math.pi * x[:, 0]).sin() + 0.1 * torch.randn(n, dtype=torch.float64, generator=generator)
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def smooth(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and a smooth function of them with hardly any noise, of which groups of near points say little."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.05 * rng.normal(size=n)
    return torch.tensor(X), torch.tensor((y - y.mean()) / y.std())


@pytest.mark.parametrize(
    ("init", "changed", "data"),
    [
        ("climb", {"climb": ExactClimb(150)}, waves(300, 2)),
        ("near", {"near": NearStart(terms=200)}, waves(500, 2)),
        ("sample", {"sample_size": 150}, waves(500, 5)),
        ("sample", {"sample_size": 300, "local": LocalStart(4, 32, 3)}, waves(500, 5)),
        ("sample", {"sample_size": 60, "local": LocalStart(4, 32, 3)}, smooth(400, 4)),
        ("sample", {"sample_size": 60, "local": LocalStart(4, 32, 3)}, smooth(400, 45)),
    ],
)
def test_a_start_ends_where_it_does_on_the_cpu(
    init: str, changed: dict[str, Any], data: tuple[torch.Tensor, torch.Tensor], device: torch.device
) -> None:
    x, y = data
    plan = GPRegressor(KERNEL, init="sample" if init == "sample" else "ones", solver="rap", random_state=0).plan(
        x.numpy()
    )
    start = {"init": init, "near": None, "climb": None, "local": None, **changed}
    if start["local"] is not None:
        start["start_solver"] = Cholesky()
    plan = replace(plan, **start)
    options = options_of(plan, warm_start=True, noise_floor=1e-3, n_samples=4)
    ends = []
    for one in (device, torch.device("cpu")):
        operator = make_operator("chunked", x.to(one).float(), KERNEL, Hyperparameters.ones(x.shape[1]))
        problem = Problem(operator, y.to(one).float(), original=(x.to(one), y.to(one)))
        ends.append(begin(plan, options, problem, None, generator=torch.Generator().manual_seed(0)).theta.vector)
    assert torch.allclose(ends[0][:3], ends[1][:3], rtol=0.05)  # other inputs hardly matter


def test_waves_are_looked_for_there(device: torch.device) -> None:
    x, y = waves(500, 5)
    asleep = Hyperparameters(1.0, 0.1, [5.0] * 5)
    found = [
        finer(x.to(one), y.to(one), KERNEL, asleep, generator=torch.Generator().manual_seed(0))
        for one in (device, "cpu")
    ]
    assert found[0] is not None and torch.equal(found[0].vector, found[1].vector)


def test_a_start_at_waves_ends_there_where_it_does_on_the_cpu(device: torch.device) -> None:
    x, y = waves(500, 5)
    fine = Hyperparameters(0.3, 1.0, [5.0] * 4 + [0.1])
    ends = [
        start_at_waves(
            x.to(one), y.to(one), KERNEL, fine, ExactClimb(200), generator=torch.Generator().manual_seed(0)
        ).vector
        for one in (device, torch.device("cpu"))
    ]
    assert torch.allclose(ends[0], ends[1], rtol=1e-3)


# -- steps -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("noise", [1e-5, 3e-4])
def test_float64_takes_over_there(noise: float, device: torch.device) -> None:
    """At the smaller noise before the first solve, at the other one where float32 gets no further."""
    x, y = (part.to(device) for part in toy(120, 2))

    def made(dtype: torch.dtype) -> Problem:
        theta = Hyperparameters(noise, 1.0, [1.0, 1.0])
        return Problem(make_operator("dense", x.to(dtype), KERNEL, theta), y.to(dtype), original=(x, y))

    problem = replace(made(torch.float32), promote=lambda: made(torch.float64))
    options = TrainingOptions(ConjugateGradients(20), Pathwise(4, 100), StoppingRule(1e-4), n_steps=2)
    state = train_only(problem, options, generator=torch.Generator().manual_seed(0))
    assert isinstance(state.solution, Elsewhere) and state.solution.dtype == torch.float64
    assert any("float64" in note for record in state.history for note in record.notes)
