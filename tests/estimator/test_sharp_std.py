"""The std of a model that is not exact, through the estimator: near exact, said how near, and kept in its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gp_truth import exact_prediction
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
