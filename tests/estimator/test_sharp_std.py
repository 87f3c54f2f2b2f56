"""The std of a model that is not exact, through the estimator: near exact, said how near, and kept in its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gp_truth import exact_prediction
from trend_truth import in_user_units, kriging, monomials
from warmgp import GPRegressor, Hyperparameters
from warmgp.files.format import FileError, read, write

THETA = Hyperparameters(0.1, 1.0, [0.5, 0.7])


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    return X, np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(400), rng.uniform(-2.2, 2.2, (150, 2))


@pytest.fixture(scope="module")
def model(data: tuple[np.ndarray, ...]) -> GPRegressor:
    return GPRegressor(solver="cg", n_steps=0, init=THETA, random_state=0).fit(*data[:2])


def alone(model: GPRegressor) -> GPRegressor:
    """The same with variances from the samples alone."""
    other = GPRegressor(**model.get_params())
    other.__dict__.update(vars(model))
    other.posterior_ = replace(model.posterior_, targets=None)
    return other


def test_std_and_its_error(model: GPRegressor, data: tuple[np.ndarray, ...]) -> None:
    X, y, X_new = data
    _, truth = exact_prediction(X, y, X_new, "matern32", THETA.vector.numpy())
    off, off_alone = (one.predict(X_new, return_std=True)[1] / truth - 1 for one in (model, alone(model)))
    said, said_alone = (one.std_error(X_new) for one in (model, alone(model)))
    assert np.sqrt(np.mean(off**2)) < 0.01 < 0.03 < np.sqrt(np.mean(off_alone**2))
    assert 0.5 < np.sqrt(np.mean(off_alone**2) / np.mean(said_alone**2)) < 2
    assert np.sqrt(np.mean(off**2)) < 2 * np.sqrt(np.mean(said**2)) + 1e-3
    latent = model.std_error(X_new, include_noise=False)
    assert (latent >= said).all() and latent.max() <= 128**-0.5


def test_the_covariance_has_the_variances(model: GPRegressor, data: tuple[np.ndarray, ...]) -> None:
    _, std = model.predict(data[2], return_std=True)
    _, covariance = model.predict(data[2], return_cov=True)
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), std, rtol=1e-5)


def test_an_exact_std_has_no_error(data: tuple[np.ndarray, ...]) -> None:
    exact = GPRegressor(n_steps=0, init=THETA).fit(*data[:2])
    assert (exact.std_error(data[2]) == 0).all() and exact.posterior_.targets is None


@pytest.mark.cpu
def test_a_file_keeps_it(model: GPRegressor, data: tuple[np.ndarray, ...], tmp_path: Path) -> None:
    """To the same bits, for two bytes a number; a file of before has the samples alone."""
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = GPRegressor.load(path, "cpu")
    mean, std = model.predict(data[2], return_std=True)
    assert np.array_equal(loaded.predict(data[2], return_std=True)[1], std)

    tensors, content = read(path, "model")
    assert tensors["targets"].nbytes == 2 * 400 * 64
    old = {name: tensor for name, tensor in tensors.items() if not name.startswith("targets")}
    write(tmp_path / "old.safetensors", "model", old, content)
    before = GPRegressor.load(tmp_path / "old.safetensors", "cpu").predict(data[2], return_std=True)
    assert np.array_equal(before[0], mean)
    assert np.array_equal(before[1], alone(model).predict(data[2], return_std=True)[1])


@pytest.mark.parametrize("change", ["no step", "no targets", "too few", "floats", "step of zero"])
def test_a_file_with_wrong_targets_is_refused(change: str, model: GPRegressor, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model.save(path)
    tensors, content = read(path, "model")
    targets, step = tensors.pop("targets"), tensors.pop("targets_step")
    wrong = {
        "no step": {"targets": targets},
        "no targets": {"targets_step": step},
        "too few": {"targets": targets[:-1], "targets_step": step},
        "floats": {"targets": targets.float(), "targets_step": step},
        "step of zero": {"targets": targets, "targets_step": 0 * step},
    }
    write(path, "model", tensors | wrong[change], content)
    with pytest.raises(FileError, match="targets"):
        GPRegressor.load(path, "cpu")


def test_beside_a_trend_it_is_that_of_universal_kriging(data: tuple[np.ndarray, ...]) -> None:
    """The control is of the process alone, and what the trend adds is exact: within 1% among the data, in rms,
    and within 0.2% far outside, where near points say nothing of the process and its variance is known.

    Five times what is said of the error is a bound everywhere.
    """
    X, y, X_new = data
    outside = np.array([[9.0, 0.0], [0.0, -25.0], [60.0, 40.0]])
    y, new = y + 5 * X[:, 0], np.vstack([X_new, outside])
    model = GPRegressor(solver="cg", n_steps=0, init=THETA, trend="linear", random_state=0).fit(X, y)
    theta = in_user_units(model)
    exact = kriging("matern32", X, y, new, monomials(X, "linear"), monomials(new, "linear"), theta)
    for noise in (True, False):
        mean, std = model.predict(new, return_std=True, include_noise=noise)
        truth = np.sqrt(exact.std**2 + noise * theta[0] ** 2)
        assert (np.abs(mean - exact.mean) < 0.1 * truth).all()
        off, said = std / truth - 1, model.std_error(new, include_noise=noise)
        assert (np.abs(off) < 5 * said + 2e-3).all()
        assert np.sqrt(np.mean(off[:150] ** 2)) < (0.01 if noise else 0.03)
        assert (np.abs(off[150:]) < 2e-3).all() and truth[-1] > 3 * theta[1]  # most of it is the slope's error
    covariance = model.predict(new, return_cov=True)[1]
    std = model.predict(new, return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), std, rtol=1e-5)
