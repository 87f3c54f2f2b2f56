"""Averages over blocks against block kriging with dense float64: exact where the model is, else to sampling error."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from gp_truth import posterior
from warmgp import GPRegressor, Hyperparameters
from warmgp.estimator import blocks

SAMPLES = 512
"""Functions of the sampled model: the std of one block is off by 1/√(2·512) = 3% (one standard deviation)."""
THETA = Hyperparameters(0.3, 1.0, [0.5, 0.8])


def data(n: int = 80) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform([5, 43], [17, 49], (n, 2)), columns=["lon", "lat"])
    return X, pd.Series(10 + 3 * np.sin(X["lon"]) + X["lat"] + 0.3 * rng.normal(size=n), name="temperature")


def fitted(**options: object) -> GPRegressor:
    return GPRegressor(n_steps=0, init=THETA, device="cpu", random_state=0, **options).fit(*data())


@pytest.fixture(scope="module")
def exact() -> GPRegressor:
    return fitted(solver="cholesky", n_probes=4, n_features=100)


@pytest.fixture(scope="module")
def sampled() -> GPRegressor:
    model = fitted(solver="cg", n_probes=SAMPLES, n_features=2000)
    assert not model.posterior_.exact
    return model


def truth(X_new: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of averages: Aμ and diag(ACAᵀ), with A the matrix that averages over groups, in units of y."""
    X, y = (part.to_numpy() for part in data())
    x, x_new = (torch.tensor((values - X.mean(0)) / X.std(0)) for values in (X, X_new))
    mean, covariance = posterior("matern32", x, torch.tensor((y - y.mean()) / y.std()), x_new, THETA)
    member = (np.unique(groups)[:, None] == groups[None]).astype(float)
    A = member / member.sum(1, keepdims=True)
    variance = np.einsum("gi,ij,gj->g", A, covariance.numpy(), A)
    return y.mean() + y.std() * (A @ mean.numpy()), y.std() * np.sqrt(variance)


def points(n: int = 150, seed: int = 1) -> tuple[pd.DataFrame, np.ndarray]:
    """Points in groups of different sizes, not in the order of their groups; one group has one point."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform([4, 42], [18, 50], (n, 2)), columns=["lon", "lat"])
    groups = rng.integers(0, 6, n)
    groups[17] = 9
    return X, groups


# -- against the truth -------------------------------------------------------------------------------------------------
def test_an_exact_model_has_exact_averages(exact: GPRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups = points()
    right = truth(X.to_numpy(), groups)
    for together in (1024, 60, 16):  # all groups at once; some; groups larger than a covariance may be
        monkeypatch.setattr(blocks, "TOGETHER", together)
        found = exact.predict_blocks(X, groups)
        np.testing.assert_allclose(found, right, rtol=1e-7)
    mean, std = exact.predict(X.iloc[[17]], return_std=True, include_noise=False)
    np.testing.assert_allclose([found[0][-1], found[1][-1]], [mean[0], std[0]], rtol=1e-9)  # a group of one point


def test_a_sampled_model_has_averages_to_sampling_error(sampled: GPRegressor) -> None:
    """Five standard deviations of a std from s functions, 5/√(2s) = 16%; of the mean what the solve leaves."""
    X, groups = points()
    mean, std = sampled.predict_blocks(X, groups)
    right_mean, right_std = truth(X.to_numpy(), groups)
    assert (abs(mean - right_mean) < 0.05 * right_std).all()
    assert (abs(std / right_std - 1) < 5 / np.sqrt(2 * SAMPLES)).all()
    alone = sampled.predict(X, return_std=True, include_noise=False)[1]
    assert (std[:-1] < 0.75 * alone.mean()).all()  # an average is better known than a point


def test_chunks_change_nothing(sampled: GPRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups = points()
    whole = sampled.predict_blocks(X, groups)
    monkeypatch.setattr(blocks, "CHUNK_ROWS", 7)
    np.testing.assert_allclose(sampled.predict_blocks(X, groups), whole, rtol=1e-5)


def test_arrays_tensors_lists_and_labels(exact: GPRegressor) -> None:
    X, groups = points(20)
    named = exact.predict_blocks(X, groups)
    texts = np.array([f"region {g}" for g in groups], dtype=object)
    np.testing.assert_array_equal(exact.predict_blocks(X, texts), named)
    plain = GPRegressor(
        n_steps=0, init=THETA, device="cpu", solver="cholesky", n_probes=4, n_features=100, random_state=0
    )
    plain.fit(*(part.to_numpy() for part in data()))
    for values in (X.to_numpy(), X.to_numpy().tolist(), torch.tensor(X.to_numpy())):
        mean, std = plain.predict_blocks(values, torch.tensor(groups))
        assert isinstance(mean, torch.Tensor) is isinstance(std, torch.Tensor) is isinstance(values, torch.Tensor)
        np.testing.assert_allclose([np.asarray(mean), np.asarray(std)], named, rtol=1e-12)


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("groups", "told"),
    [
        (None, "give groups, one label for each row"),
        ([1, 2], r"one label for each of the 20 rows of X, got shape \(2,\)"),
        ([[1]] * 20, r"got shape \(20, 1\)"),
        ([1.0, np.nan] * 10, "label that is missing"),
        ([None, "a"] * 10, "label that is missing"),
        (np.array([1, "a"] * 10, dtype=object), "cannot be sorted"),
    ],
)
def test_bad_groups_are_refused(groups: object, told: str, exact: GPRegressor) -> None:
    with pytest.raises(ValueError, match=told):
        exact.predict_blocks(points(20)[0], groups)


def test_points_are_for_grids(exact: GPRegressor) -> None:
    X, groups = points(20)
    with pytest.raises(ValueError, match="no points"):
        exact.predict_blocks(X, groups, points=3)
