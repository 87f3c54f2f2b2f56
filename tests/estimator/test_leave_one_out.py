"""Left-out rows against the truth: the model without each row, dense and in float64."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from gp_truth import h_matrix
from row_noise_truth import dense_h, weights_and_errors
from trend_truth import in_user_units, kriging, monomials
from warmgp import GPRegressor, Hyperparameters, leave_one_out
from warmgp.estimator.prepare import training_data
from warmgp.leave_one_out import left_out, targets_of

KERNELS = ["matern12", "matern32", "matern52", "rbf"]


def data(n: int, d: int = 2, *, seed: int = 0, noise: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 3.0 + 10.0
    return X, 5.0 + 2.0 * (np.sin(X[:, 0]) + 0.3 * X[:, 1] + noise * rng.normal(size=n))


def without_each(H: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of each observation by a model of all others: n systems, nothing of H⁻¹."""
    mean, std = np.empty(len(y)), np.empty(len(y))
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        weights = np.linalg.solve(H[np.ix_(rest, rest)], H[rest, i])
        mean[i], std[i] = weights @ y[rest], np.sqrt(H[i, i] - weights @ H[rest, i])
    return mean, std


# -- exactly ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_a_row_is_predicted_as_if_it_had_not_been_there(solver: str) -> None:
    """Without standardising, so that taking a row out changes nothing else. By iterations it is exact here, too."""
    X, y = data(60)
    X, y = X - X.mean(0), y - y.mean()
    theta = Hyperparameters.from_vector(torch.tensor([0.3, 1.5, 2.0, 3.0], dtype=torch.float64))
    settings = {"init": theta, "n_steps": 0, "standardize": False, "n_probes": 4, "n_features": 50, "random_state": 0}
    loo = GPRegressor("matern32", solver=solver, **settings).fit(X, y).loo_
    mean, std = without_each(h_matrix("matern32", torch.tensor(X), theta.vector).numpy(), y)
    rtol = 1e-8 if solver == "cholesky" else 1e-5  # of inputs in float32
    np.testing.assert_allclose(loo.mean, mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(loo.std, std, rtol=rtol)
    np.testing.assert_allclose(loo.residual, (y - mean) / std, rtol=10 * rtol, atol=10 * rtol)
    density = -0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(loo.log_density, density, rtol=10 * rtol, atol=10 * rtol)
    assert loo.exact and not loo.mean_error.any() and not loo.std_error.any() and loo.rmse > 0
    np.testing.assert_array_equal(loo.y, y)


def test_it_is_in_the_users_units_also_with_a_trend() -> None:
    X, y = data(50)
    y = y + 3.0 * X[:, 0]
    model = GPRegressor("matern32", trend="linear", n_steps=3, n_probes=4, n_features=50, random_state=0).fit(X, y)
    theta, T = in_user_units(model), monomials(X, "linear")
    for i in (0, 7, 49):
        rest = np.delete(np.arange(50), i)
        truth = kriging("matern32", X[rest], y[rest], X[[i]], T[rest], T[[i]], theta)
        assert model.loo_.mean[i] == pytest.approx(truth.mean[0], rel=1e-6)
        assert model.loo_.std[i] == pytest.approx(np.sqrt(truth.latent[0, 0] + theta[0] ** 2), rel=1e-6)


def test_rows_of_weight_zero_are_not_left_out_but_absent() -> None:
    X, y = data(40)
    weight = np.ones(40)
    weight[[0, 3]] = 0.0
    weight[5] = 0.01
    model = GPRegressor("matern32", n_steps=2, n_probes=4, n_features=50, random_state=0)
    model.fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.loo_.rows, np.flatnonzero(weight))
    np.testing.assert_array_equal(model.loo_.y, y[weight > 0])
    place = int(np.flatnonzero(model.loo_.rows == 5)[0])
    assert model.loo_.std[place] > 9 * model.noise_std_  # its own noise is ten times that of others


def test_rows_that_a_time_limit_draws_keep_their_numbers() -> None:
    X, y = data(40)
    weight = np.ones(40)
    weight[2] = 0.0
    drawn = training_data(GPRegressor(), X, y, None, weight).drawn(15, 0)
    assert len(drawn.rows) == 15 and 2 not in drawn.rows
    np.testing.assert_array_equal(drawn.y_given, y[drawn.rows])


# -- from probes -----------------------------------------------------------------------------------------------------
def sampled(kernel: str, noise: float, n: int = 500, d: int = 5, **more: object) -> tuple[GPRegressor, np.ndarray]:
    """A model that was solved by iterations, on a draw of its own prior, and H."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d))
    theta = Hyperparameters.from_vector(torch.tensor([noise, 1.0, *[2.0] * d], dtype=torch.float64))
    H = h_matrix(kernel, torch.tensor(X - X.mean(0)), theta.vector).numpy()
    y = np.linalg.cholesky(H) @ rng.normal(size=n)
    model = GPRegressor(kernel, solver="rap", init=theta, n_steps=0, standardize=False, random_state=0, **more)
    return model.fit(X, y), H


def truth_of(H: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inverse = np.linalg.inv(H)
    return y - inverse @ y / np.diag(inverse), np.diag(inverse) ** -0.5


@pytest.fixture(params=[True, False], ids=["products", "kept targets"])
def products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether products with H may be taken, or are held to take too long."""
    monkeypatch.setattr(leave_one_out, "PRODUCTS_UP_TO", dict.fromkeys((True, False), 10**9 if request.param else 0))
    return bool(request.param)


@pytest.mark.parametrize("noise", [0.5, 0.02])
@pytest.mark.parametrize("kernel", KERNELS)
def test_probes_with_near_points_are_near_to_the_truth_and_say_how_near(
    kernel: str, noise: float, products: bool
) -> None:
    """64 probes alone leave 0.18 std of the mean; the control less, and as much as it says, within a factor of 1.5."""
    model, H = sampled(kernel, noise)
    y = model.y_train_
    mean, std = truth_of(H, y)
    found, exact = left_out(model.posterior_, torch.tensor(y), exact=False)
    assert not exact
    error, variance, uncertain = (part.numpy() for part in (found.error, found.variance, found.uncertain))

    def rms(values: np.ndarray) -> float:
        return float(np.sqrt(np.mean(values**2)))

    off, said = rms((y - error - mean) / std), rms(np.hypot(uncertain * error, found.left.numpy()) / std)
    assert off < (0.16 if (kernel, noise) == ("rbf", 0.02) else 0.08)
    assert said / 1.5 < off < 1.5 * said
    off, said = rms(np.sqrt(variance) / std - 1), rms(0.5 * uncertain)
    assert said / 1.5 < off < 1.5 * said
    density = -0.5 * error**2 / variance - 0.5 * np.log(variance)
    assert abs(np.mean(density + 0.5 * ((y - mean) / std) ** 2 + np.log(std))) < 0.03


def test_probes_know_of_noise_of_rows_and_of_a_trend(products: bool) -> None:
    n = 300
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 2))
    w, e = weights_and_errors(n)
    vector = torch.tensor([0.3, 1.0, 1.0, 1.0], dtype=torch.float64)
    H = dense_h("matern32", torch.tensor(X - X.mean(0)), vector, w, e).numpy()
    y = np.linalg.cholesky(H) @ rng.normal(size=n) + 2.0 * X[:, 0]
    model = GPRegressor(
        "matern32", trend="linear", solver="rap", init=Hyperparameters.from_vector(vector), n_steps=0,
        standardize=False, random_state=0,
    ).fit(X, y, sample_weight=w.numpy(), noise_variance=e.numpy())  # fmt: skip
    T, inverse = monomials(X, "linear"), np.linalg.inv(H)
    P = inverse - inverse @ T @ np.linalg.solve(T.T @ inverse @ T, T.T @ inverse)
    found, _ = left_out(model.posterior_, torch.tensor(y), exact=False)
    np.testing.assert_allclose(found.variance, 1 / np.diag(P), rtol=0.05)
    scaled = (found.error.numpy() - P @ y / np.diag(P)) * np.sqrt(np.diag(P))
    assert np.sqrt(np.mean(scaled**2)) < 0.02


def test_what_a_solve_has_left_is_made_up_for() -> None:
    """A solution that is off by 0.3 of the noise in every row still gives left-out rows to a small part of that."""
    model, H = sampled("matern32", 0.2, n=300, d=2)
    posterior, y = model.posterior_, model.y_train_
    residual = 0.3 * 0.2 * torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = posterior.solution.clone()
    moved[:, 0] -= torch.linalg.solve(torch.tensor(H), residual).to(moved)
    rough = dataclasses.replace(posterior, solution=moved)
    mean, std = truth_of(H, y)

    def off(of: torch.Tensor | None) -> float:
        error = left_out(rough, of, exact=False)[0].error.numpy()
        return float(np.sqrt(np.mean(((y - error - mean) / std) ** 2)))

    assert off(None) > 0.2 and off(torch.tensor(y)) < 0.04


# -- files, and when ---------------------------------------------------------------------------------------------------
def test_a_loaded_model_says_the_same_and_an_earlier_file_nearly(tmp_path: Path) -> None:
    X, y = data(80)
    model = GPRegressor("matern32", solver="cg", n_steps=3, n_probes=8, n_features=100, random_state=0).fit(X, y)
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m")
    assert "loo_" not in vars(loaded)  # nothing is computed before it is asked for
    np.testing.assert_array_equal(loaded.loo_.mean, model.loo_.mean)
    np.testing.assert_array_equal(loaded.y_train_, y)
    earlier = GPRegressor.load(Path(__file__).parents[1] / "files/before_rooms/model-pathwise-float32.safetensors")
    assert earlier.y_train_ is None
    targets = earlier.scaler_.y_back(targets_of(earlier.posterior_).numpy())
    np.testing.assert_allclose(earlier.loo_.mean + earlier.loo_.residual * earlier.loo_.std, targets, rtol=1e-9)
    np.testing.assert_array_equal(earlier.loo_.rows, np.arange(len(targets)))


def test_another_fit_has_left_out_rows_of_its_own() -> None:
    X, y = data(40)
    model = GPRegressor("matern32", n_steps=2, n_probes=4, n_features=50, random_state=0).fit(X, y)
    before = model.loo_
    assert model.loo_ is before
    after = model.fit(X[:30], y[:30]).loo_
    assert len(after.rows) == 30 and "30 rows" in str(after)
