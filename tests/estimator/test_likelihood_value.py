"""The value of the marginal likelihood for any number of points, against dense float64."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from gp_truth import h_matrix, log_marginal_likelihood
from row_noise_truth import dense_h, weights_and_errors
from row_noise_truth import log_likelihood as with_row_noise
from trend_truth import monomials, profile_likelihood
from warmgp import GPRegressor, Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.likelihood import likelihood_of
from warmgp.operators import make_operator
from warmgp.operators.row_noise import RowNoise
from warmgp.solvers import log_determinant as module
from warmgp.solvers.log_determinant import log_determinant


def inputs(n: int, d: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x - x.mean(0)


def at(noise: float, length: float, d: int) -> Hyperparameters:
    return Hyperparameters.from_vector(torch.tensor([noise, 1.0, *[length] * d], dtype=torch.float64))


def draw(H: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return torch.linalg.cholesky(H) @ torch.randn(
        len(H), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


# -- the determinant -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("noise", [0.5, 0.03])
@pytest.mark.parametrize(("kernel", "d", "length"), [("matern12", 2, 1.0), ("matern32", 5, 2.0), ("matern52", 12, 4.0)])
def test_a_determinant_is_within_three_of_its_errors(kernel: str, d: int, length: float, noise: float) -> None:
    n = 700
    x, theta = inputs(n, d), at(noise, length, d)
    truth = float(torch.logdet(h_matrix(kernel, x, theta.vector)))
    operator = make_operator("dense", x, get_kernel(kernel), theta)
    found = log_determinant(operator, 0.004 * n)
    assert abs(found.value - truth) < 3 * found.error and found.error <= 0.004 * n
    assert found == log_determinant(operator, 0.004 * n)  # to the bit


def test_near_neighbours_alone_would_be_far_off() -> None:
    """What the probes add is many errors: a bound that near neighbours met would show nothing of them."""
    x, theta = inputs(700, 5), at(0.03, 2.0, 5)
    operator = make_operator("dense", x, get_kernel("matern32"), theta)
    found = log_determinant(operator, 1.4)
    alone = -2.0 * module.near_factor(operator).root_log_determinant
    assert alone - found.value > 20 * found.error


def test_more_probes_are_taken_where_they_spread() -> None:
    x, theta = inputs(400, 5), at(0.03, 2.0, 5)
    operator = make_operator("dense", x, get_kernel("matern32"), theta)
    rough, fine = log_determinant(operator, 40.0), log_determinant(operator, 1.0)
    assert rough.probes == module.AT_FIRST < fine.probes <= module.AT_MOST and fine.error < rough.error


def test_few_points_whose_neighbours_are_all_others_have_nothing_left() -> None:
    """M is I, and the recurrence ends after its first step."""
    x, theta = inputs(20, 2), at(0.1, 1.0, 2)
    found = log_determinant(make_operator("dense", x, get_kernel("matern32"), theta), 0.1)
    truth = float(torch.logdet(h_matrix("matern32", x, theta.vector)))
    assert found.value == pytest.approx(truth, abs=1e-8) and found.error < 1e-8


def test_steps_that_are_not_taken_are_part_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    x, theta = inputs(500, 8), at(0.005, 6.0, 8)
    operator = make_operator("dense", x, get_kernel("rbf"), theta)
    truth = float(torch.logdet(h_matrix("rbf", x, theta.vector)))
    whole = log_determinant(operator, 0.1, most=32)
    monkeypatch.setattr(module, "STEPS", 10)
    short = log_determinant(operator, 0.1, most=32)
    assert short.value - truth > 2 * (whole.value - truth)  # an upper bound that has not fallen yet
    assert short.error > 2 * whole.error


# -- of a model ------------------------------------------------------------------------------------------------------
def fitted(n: int, noise: float, **more: object) -> tuple[GPRegressor, torch.Tensor, torch.Tensor, Hyperparameters]:
    """A model by iterations on a draw of its prior, its inputs and targets, and θ, in its own units."""
    x, theta = inputs(n, 3), at(noise, 1.5, 3)
    y = draw(h_matrix("matern32", x, theta.vector))
    model = GPRegressor("matern32", solver="rap", init=theta, n_steps=0, standardize=False, n_probes=4, random_state=0)
    return model.fit(x.numpy(), y.numpy(), **more), x, y, theta


@pytest.mark.parametrize("noise", [0.5, 0.02])
def test_the_value_is_the_truths_exactly_and_by_probes(noise: float) -> None:
    model, x, y, theta = fitted(600, noise)
    truth = float(log_marginal_likelihood("matern32", x, y, theta.vector))
    assert model.likelihood_ is None
    assert model.log_marginal_likelihood_value_ == pytest.approx(truth, abs=1e-3)  # of inputs in float32
    assert model.log_marginal_likelihood_error_ == 0.0
    found = likelihood_of(model.posterior_, y, stored=False, exact=False)
    assert abs(found.value - truth) < 3 * found.error and 0 < found.error < 0.002 * 600


def test_what_the_solve_for_the_mean_has_left_is_made_up_for() -> None:
    """½ rᵀH⁻¹r would be 0.045 nats a point, 20 times what is promised."""
    model, x, y, theta = fitted(500, 0.2)
    truth = float(log_marginal_likelihood("matern32", x, y, theta.vector))
    moved = model.posterior_.solution.clone()
    noise = torch.randn(500, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    moved[:, 0] -= torch.linalg.solve(h_matrix("matern32", x, theta.vector), 0.06 * noise).to(moved)
    rough = dataclasses.replace(model.posterior_, solution=moved)
    found = likelihood_of(rough, y, stored=False, exact=False)
    assert abs(found.value - truth) < 3 * found.error < 0.006 * 500


def test_a_factor_takes_over_where_probes_spread_too_much() -> None:
    """Smooth functions of many inputs with little noise: near neighbours tell little, and a factor is cheaper."""
    n, d = 300, 6
    x, theta = inputs(n, d), at(0.01, 3.0, d)
    y = draw(h_matrix("rbf", x, theta.vector))
    model = GPRegressor("rbf", solver="rap", init=theta, n_steps=0, standardize=False, n_probes=4, random_state=0)
    model.fit(x.numpy(), y.numpy())
    assert likelihood_of(model.posterior_, y, stored=False, exact=False).error > 0.002 * n
    found = likelihood_of(model.posterior_, y, stored=True, exact=False)
    truth = float(log_marginal_likelihood("rbf", x, y, theta.vector))
    assert found.error == 0.0 and found.value == pytest.approx(truth, abs=0.05)
    assert model.posterior_.factor is None  # n² numbers are not kept


def test_noise_of_rows_and_a_trend_count() -> None:
    n = 300
    x, theta = inputs(n, 2), at(0.3, 1.0, 2)
    w, e = weights_and_errors(n)
    y = draw(dense_h("matern32", x, theta.vector, w, e))
    settings = {"solver": "rap", "init": theta, "n_steps": 0, "standardize": False, "n_probes": 4, "random_state": 0}
    model = GPRegressor("matern32", **settings)
    model.fit(x.numpy(), y.numpy(), sample_weight=w.numpy(), noise_variance=e.numpy())
    truth = float(with_row_noise("matern32", x, y, theta.vector, w, e))
    assert model.log_marginal_likelihood_value_ == pytest.approx(truth, abs=1e-3)
    found = likelihood_of(model.posterior_, y, stored=False, exact=False)
    assert isinstance(model.posterior_.noise, RowNoise) and abs(found.value - truth) < 3 * found.error

    sloped = y + 3.0 * x[:, 0] + 1.0
    model = GPRegressor("matern32", trend="linear", **settings).fit(x.numpy(), sloped.numpy())
    T = torch.tensor(monomials(x.numpy(), "linear"))
    truth = float(profile_likelihood("matern32", x, sloped, T, theta.vector))
    assert model.log_marginal_likelihood_value_ == pytest.approx(truth, abs=1e-3)
    found = likelihood_of(model.posterior_, sloped, stored=False, exact=False)
    assert abs(found.value - truth) < 3 * found.error


def test_models_of_one_target_can_be_compared_in_its_units() -> None:
    """Standardised units are others after a trend; in units of y the truth's own trend wins."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 1))
    y = 100.0 * X[:, 0] + np.sin(9 * X[:, 0]) + 0.1 * rng.normal(size=120)
    values = []
    for trend in (None, "linear"):
        model = GPRegressor("matern32", trend=trend, random_state=0, n_probes=4).fit(X, y)
        values.append(model.log_marginal_likelihood_value_ - 120 * np.log(model.scaler_.y_scale))
        theta, centred = model.hyperparameters_, torch.tensor((X - X.mean(0)) / X.std(0))
        T = torch.ones(120, 0, dtype=torch.float64) if trend is None else torch.tensor(monomials(X, "linear"))
        units = theta.vector.clone()
        units[:2] *= model.scaler_.y_scale
        targets = torch.tensor(y - y.mean())
        truth = (
            log_marginal_likelihood("matern32", centred, targets, units)
            if trend is None
            else profile_likelihood("matern32", centred, targets, T, units)
        )
        assert values[-1] == pytest.approx(float(truth), abs=1e-2)
    assert values[1] > values[0]


def test_nothing_computes_it_unasked_and_a_file_keeps_it(tmp_path: Path) -> None:
    model, *_ = fitted(80, 0.3)
    model.save(tmp_path / "before")
    assert model.likelihood_ is None and GPRegressor.load(tmp_path / "before").likelihood_ is None
    value = model.log_marginal_likelihood_value_
    model.save(tmp_path / "after")
    loaded = GPRegressor.load(tmp_path / "after")
    assert loaded.likelihood_ is not None and loaded.log_marginal_likelihood_value_ == value
    assert GPRegressor.load(tmp_path / "before").log_marginal_likelihood_value_ == pytest.approx(value, rel=1e-9)
