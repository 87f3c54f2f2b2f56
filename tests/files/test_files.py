"""Files of models: the same predictions, nothing half read."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from warmgp import (
    AlternatingProjections,
    ConjugateGradients,
    GPRegressor,
    Hyperparameters,
    Matern32,
    Pathwise,
)
from warmgp.files.format import FileError, write

FAST = {"n_steps": 4, "n_features": 100, "n_probes": 6, "random_state": 0}


def data(n: int = 80, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, d))
    return X, 5 + 3 * np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, GPRegressor]:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    model = GPRegressor(solver="cg", **FAST).fit(*data())
    model.save(path)
    return path, model


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("solver", "gradient"), [("cholesky", "exact"), ("cg", "pathwise"), ("ap", "standard")])
@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
def test_loaded_models_predict_identically(kernel: str, solver: str, gradient: str, dtype: str, tmp_path: Path) -> None:
    X, y = data()
    model = GPRegressor(kernel, solver=solver, gradient=gradient, dtype=dtype, **FAST).fit(X, y)
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = GPRegressor.load(path, device="cpu")
    for options in ({"return_std": True}, {"return_cov": True}, {"return_std": True, "include_noise": False}):
        for a, b in zip(model.predict(X, **options), loaded.predict(X, **options), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(model.predict(X), loaded.predict(X))
    np.testing.assert_array_equal(model.sample_y(X, 3), loaded.sample_y(X, 3))
    np.testing.assert_array_equal(model.log_predictive_density(X, y), loaded.log_predictive_density(X, y))
    assert loaded.history_ == model.history_ and loaded.converged_ == model.converged_
    assert loaded.log_marginal_likelihood_value_ == model.log_marginal_likelihood_value_
    assert str(loaded.plan_) == str(model.plan_) and loaded.get_params() == model.get_params()
    assert loaded.hyperparameters_.equals(model.hyperparameters_) and loaded.n_features_in_ == 2


def test_settings_with_objects_survive(tmp_path: Path) -> None:
    X, y = data()
    start = Hyperparameters.ones(2)
    model = GPRegressor(Matern32(), solver=AlternatingProjections(17), init=start, dtype=torch.float64, **FAST).fit(
        X, y
    )
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m")
    assert loaded.solver == AlternatingProjections(17) and loaded.init.equals(start)
    np.testing.assert_array_equal(loaded.fit(X, y).predict(X), model.predict(X))  # and it can be fitted again


def test_pickle_and_pickle_after_predict(saved: tuple[Path, GPRegressor]) -> None:
    _, model = saved
    X, _ = data()
    before = model.predict(X, return_std=True)
    again = pickle.loads(pickle.dumps(model)).predict(X, return_std=True)
    np.testing.assert_array_equal(before, again)


def test_a_file_cut_anywhere_is_refused(saved: tuple[Path, GPRegressor], tmp_path: Path) -> None:
    content = saved[0].read_bytes()
    rng = np.random.default_rng(0)
    lengths = {0, 1, 7, 8, 9, 100, len(content) - 1, *rng.integers(0, len(content), 60).tolist()}
    for length in lengths:
        cut = tmp_path / "cut"
        cut.write_bytes(content[:length])
        with pytest.raises(FileError, match="not a whole warmgp file"):
            GPRegressor.load(cut)


def test_other_files_are_refused_by_name(saved: tuple[Path, GPRegressor], tmp_path: Path) -> None:
    other = tmp_path / "other"
    with pytest.raises(FileNotFoundError, match="no such file"):
        GPRegressor.load(other)
    other.write_text("x,y\n1,2\n" * 100)
    with pytest.raises(FileError, match="not a whole warmgp file"):
        GPRegressor.load(other)
    save_file({"a": torch.zeros(2)}, other)
    with pytest.raises(FileError, match="not one of warmgp"):
        GPRegressor.load(other)
    with safe_open(str(saved[0]), framework="pt") as file:
        metadata = dict(file.metadata())
    save_file({"a": torch.zeros(2)}, other, metadata={**metadata, "format_version": "99"})
    with pytest.raises(FileError, match=r"format 99.*upgrade"):
        GPRegressor.load(other)
    write(other, "checkpoint", {"a": torch.zeros(2)}, {})
    with pytest.raises(FileError, match="is a warmgp checkpoint, not a model"):
        GPRegressor.load(other)


def test_saving_is_whole_or_nothing(
    saved: tuple[Path, GPRegressor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = saved
    path = tmp_path / "model"
    path.write_text("old")
    monkeypatch.setattr("warmgp.files.format._bytes", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["model"]
    with pytest.raises(FileNotFoundError, match="folder"):
        model.save(tmp_path / "no" / "model")


def test_a_kernel_of_ones_own_cannot_be_saved(tmp_path: Path) -> None:
    class Mine(Matern32):
        name = "mine"

    model = GPRegressor(Mine(), **FAST).fit(*data())
    with pytest.raises(ValueError, match="'mine' is not part of warmgp"):
        model.save(tmp_path / "m")


class MySolver(ConjugateGradients):
    name = "mine"


def test_a_solver_of_ones_own_is_asked_for(tmp_path: Path) -> None:
    X, y = data()
    model = GPRegressor(solver=MySolver(20), **FAST).fit(X, y)
    model.save(tmp_path / "m")
    with pytest.raises(FileError, match=r"solver 'mine'.*pass it"):
        GPRegressor.load(tmp_path / "m")
    np.testing.assert_array_equal(GPRegressor.load(tmp_path / "m", solver=MySolver(20)).predict(X), model.predict(X))


# -- samples and densities -------------------------------------------------------------------------------------------
def test_sample_y(saved: tuple[Path, GPRegressor]) -> None:
    _, model = saved
    X, _ = data()
    functions = model.sample_y(X, 6)
    posterior = replace(model.posterior_, targets=None)  # variances that are those of the samples alone
    mean, variance = (part.numpy() for part in posterior.mean_and_variance(model._standardised(X)))
    mean, std = model.scaler_.y_back(mean), model.scaler_.y_scale_back(np.sqrt(variance))
    np.testing.assert_allclose(np.sqrt(np.mean((functions - mean[:, None]) ** 2, 1)), std, rtol=1e-6)
    many = model.sample_y(X, 300, random_state=3)  # new functions: one more solve
    np.testing.assert_allclose(model.sample_y(X[::-1], 300, random_state=3), many[::-1], atol=1e-8)
    assert not np.allclose(model.sample_y(X, 300, random_state=4), many)
    exact = GPRegressor(model.kernel_, solver="cholesky", n_steps=0, init=model.hyperparameters_).fit(*data())
    spread = exact.predict(X, return_std=True, include_noise=False)[1]
    assert abs(np.mean(many.std(1) / spread) - 1) < 0.1  # 300 functions, 100 features
    with pytest.raises(ValueError, match="more than the 6"):
        model.sample_y(X, 7)
    with pytest.raises(ValueError, match="n_samples"):
        model.sample_y(X, 0)


def test_log_predictive_density(saved: tuple[Path, GPRegressor]) -> None:
    _, model = saved
    X, y = data()
    mean, std = model.predict(X, return_std=True)
    truth = torch.distributions.Normal(torch.as_tensor(mean), torch.as_tensor(std)).log_prob(torch.as_tensor(y))
    np.testing.assert_allclose(model.log_predictive_density(X, y), truth.numpy(), rtol=1e-10)
    with pytest.raises(ValueError, match="X has 80 and y has 79"):
        model.log_predictive_density(X, y[:-1])


# -- settings that are objects ---------------------------------------------------------------------------------------
def test_an_estimator_as_an_object_is_kept(tmp_path: Path) -> None:
    """Its options are those of the plan, the file and the model that is read from it; others are other settings."""
    X, y = data()
    own = Pathwise(5, 60, "plain")
    model = GPRegressor(gradient=own, solver="cg", n_steps=2, random_state=0, checkpoint=tmp_path / "c").fit(X, y)
    assert model.plan_.gradient == own and model.plan_.n_features == 60
    assert model.posterior_.solution.shape == (80, 6)
    model.save(tmp_path / "m")
    again = GPRegressor.load(tmp_path / "m")
    assert again.gradient == own and again.plan_.gradient == own
    assert np.array_equal(again.predict(X, return_std=True)[1], model.predict(X, return_std=True)[1])
    other = GPRegressor(gradient=Pathwise(5, 60), solver="cg", n_steps=2, random_state=0, checkpoint=tmp_path / "c")
    with pytest.raises(FileError, match="other data or settings"):
        other.fit(X, y)


def test_numbers_of_numpy_are_saved(tmp_path: Path) -> None:
    """As a search over an array passes them."""
    X = np.random.default_rng(0).normal(size=(30, 2))
    numbers = {
        "n_steps": np.int64(2),
        "n_probes": np.int64(4),
        "tol": np.float32(0.01),
        "learning_rate": np.float32(0.1),
    }
    model = GPRegressor(
        solver="cg", max_epochs=np.float32(50), checkpoint=tmp_path / "c", checkpoint_every=1, random_state=0, **numbers
    )
    model.fit(X, X[:, 0]).save(tmp_path / "m")
    assert np.array_equal(GPRegressor.load(tmp_path / "m").predict(X), model.predict(X))


def test_an_estimator_of_others_trains_but_is_not_saved(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Own(Pathwise):
        name = "own"

    X, y = data()
    model = GPRegressor(gradient=Own(5, 60), solver="cg", n_steps=2, random_state=0).fit(X, y)
    assert model.predict(X).shape == (80,)
    with pytest.raises(ValueError, match="gradient 'own' is not part of warmgp"):
        model.save(tmp_path / "m")
    with pytest.raises(ValueError, match="cannot be saved"):  # before any step
        GPRegressor(gradient=Own(5, 60), solver="cg", n_steps=2, checkpoint=tmp_path / "c").fit(X, y)
    assert not list(tmp_path.iterdir())


def test_new_functions_are_solved_as_well_as_the_models_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(200, 2))
    solver = ConjugateGradients(0, factor_after=5)
    start = Hyperparameters(0.01, 1.0, [1.0, 1.0])
    model = GPRegressor(solver=solver, init=start, n_steps=1, n_probes=4, n_features=200, random_state=0)
    model.fit(X, np.sin(X[:, 0]) + 1e-3 * rng.normal(size=200))
    seen = []
    whole = ConjugateGradients.solve

    def watched(self, *args, rule, **kwargs):  # type: ignore[no-untyped-def]
        seen.append(rule.tol)
        return whole(self, *args, rule=rule, **kwargs)

    monkeypatch.setattr(ConjugateGradients, "solve", watched)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.sample_y(X[:3], 2, random_state=1)
    assert len(seen) == 2 and seen[0] == 0.01 > seen[1]  # a share of the noise
