"""WarmModel as BoTorch's model: joint posteriors, units, fantasies, updates, and what it refuses."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from gp_truth import posterior as dense
from house import SOURCE
from warmgp import GPRegressor, Hyperparameters

pytest.importorskip("botorch", reason="warmgp.botorch needs BoTorch: pip install 'warmgp[botorch]'")
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.model import ModelList
from botorch.sampling import SobolQMCNormalSampler

from warmgp.botorch import FantasyModel, WarmModel

THETA = Hyperparameters(0.2, 1.0, [0.6, 0.9])
LOW, HIGH = torch.tensor([1000.0, -0.01]).double(), torch.tensor([1010.0, 0.02]).double()


def table(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Two columns in units far from one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(LOW.numpy(), HIGH.numpy(), (n, 2))
    return X, 50 + 20 * np.sin(X[:, 0]) + 1e3 * X[:, 1] + 2 * rng.standard_normal(n)


def fitted(**settings: Any) -> GPRegressor:
    settings = {"init": THETA, "n_steps": 0, "random_state": 0, "n_probes": 32, **settings}
    return GPRegressor("matern32", **settings).fit(*table())


@pytest.fixture(scope="module")
def exact() -> WarmModel:
    return WarmModel(fitted())


@pytest.fixture(scope="module")
def sampled() -> WarmModel:
    return WarmModel(fitted(solver="cg"))


def places(*shape: int, seed: int = 1) -> Tensor:
    unit = torch.rand(*shape, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return LOW + (HIGH - LOW) * unit


def truth(X_new: Tensor, X: Tensor | None = None, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and latent covariance at rows X_new, in units of y, given rows in the units of the table."""
    own_X, own_y = map(torch.tensor, table())
    X, y = (own_X, own_y) if X is None or y is None else (X, y)
    middle, spread, scale = own_X.mean(0), own_X.std(0, correction=0), own_y.std(correction=0)
    x, x_new = (X - middle) / spread, (X_new - middle) / spread
    mean, covariance = dense("matern32", x, (y - own_y.mean()) / scale, x_new, THETA)
    return own_y.mean() + scale * mean, scale**2 * covariance


# -- posteriors ------------------------------------------------------------------------------------------------------
def test_joint_posterior_in_the_users_units(exact: WarmModel) -> None:
    X = places(2, 3, 4)
    found = exact.posterior(X)
    assert found.mean.shape == found.variance.shape == (2, 3, 4, 1) and found.mean.dtype == torch.float64
    for i in range(2):
        for j in range(3):
            mean, covariance = truth(X[i, j])
            torch.testing.assert_close(found.mean[i, j, :, 0], mean, rtol=1e-7, atol=1e-7)
            torch.testing.assert_close(found.variance[i, j, :, 0], covariance.diagonal(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(found.distribution.covariance_matrix[i, j], covariance, rtol=1e-5, atol=1e-5)
    assert exact.num_outputs == 1 and exact.batch_shape == torch.Size() and exact.subset_output([0]) is exact
    assert exact.posterior(X[0, 0].float()).mean.dtype == torch.float32


def test_samples_have_the_covariance(exact: WarmModel) -> None:
    """20,000 joint draws: a covariance is off by at most six of its errors by chance."""
    X = places(3)
    X[1] = X[0] + 0.05 * (HIGH - LOW)
    found = exact.posterior(X)
    draws = SobolQMCNormalSampler(torch.Size([2**14]), seed=0)(found)[..., 0]
    _, covariance = truth(X)
    size = covariance.diagonal().sqrt()
    off = (torch.cov(draws.T) - covariance) / (size[:, None] * size)
    assert float(off.abs().max()) < 6 * 2**-7
    assert float(covariance[0, 1] / (size[0] * size[1])) > 0.2  # there is something to find
    assert found.rsample(torch.Size([2])).shape == (2, 3, 1)


def test_a_factor_makes_any_model_exact(sampled: WarmModel) -> None:
    X = places(4)
    _, covariance = truth(X)
    made = WarmModel(sampled.regressor, exact=True).posterior(X)
    torch.testing.assert_close(made.distribution.covariance_matrix, covariance, rtol=1e-3, atol=1e-3)
    assert not sampled.answers.posterior.exact


def test_noise_of_observations(exact: WarmModel) -> None:
    X = places(3)
    plain, noisy = exact.posterior(X).variance, exact.posterior(X, observation_noise=True).variance
    torch.testing.assert_close(noisy - plain, torch.full_like(plain, (0.2 * np.std(table()[1])) ** 2))
    given = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    torch.testing.assert_close(exact.posterior(X, observation_noise=given).variance - plain, given)


def test_a_transform_of_the_posterior(exact: WarmModel) -> None:
    X = places(3)
    other = exact.posterior(X, posterior_transform=ScalarizedPosteriorTransform(torch.tensor([-2.0]).double(), 7.0))
    torch.testing.assert_close(other.mean, 7 - 2 * exact.posterior(X).mean)
    torch.testing.assert_close(other.variance, 4 * exact.posterior(X).variance)


def test_several_outcomes_are_a_list_of_models(exact: WarmModel, sampled: WarmModel) -> None:
    both = ModelList(exact, sampled)
    X = places(2, 3)
    assert both.posterior(X).mean.shape == (2, 3, 2) and both.num_outputs == 2
    torch.testing.assert_close(both.posterior(X).mean[..., :1], exact.posterior(X).mean)


# -- more observations -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("names", [False, True])
def test_observations_are_an_update(names: bool) -> None:
    """Rows join the model, with their own noise where it is given; the model before stays as it was."""
    X, y = table()
    given = pd.DataFrame(X, columns=["time", "shift"]) if names else X
    before = WarmModel(GPRegressor("matern32", init=THETA, n_steps=0, random_state=0, n_probes=8).fit(given, y))
    new = places(5, seed=3)
    values = truth(new)[0][:, None] + torch.tensor([[3.0], [-3.0], [1.0], [2.0], [-4.0]]).double()
    after = before.condition_on_observations(new, values)
    assert isinstance(after, WarmModel)
    assert (len(before.regressor.posterior_.x), len(after.regressor.posterior_.x)) == (120, 125)
    assert not before.regressor.updates_ and len(after.regressor.updates_) == 1
    X_new = places(4, seed=4)
    mean, covariance = truth(X_new, torch.cat([torch.tensor(X), new]), torch.cat([torch.tensor(y), values[:, 0]]))
    torch.testing.assert_close(after.posterior(X_new).mean[:, 0], mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(after.posterior(X_new).variance[:, 0], covariance.diagonal(), rtol=1e-5, atol=1e-5)
    certain = before.condition_on_observations(new, values, noise=torch.full((1, 1), 1e-6, dtype=torch.float64))
    torch.testing.assert_close(certain.posterior(new).mean, values, rtol=0, atol=1e-2)


def test_fantasies_are_what_updates_would_be(exact: WarmModel) -> None:
    """Batches of targets that were not made: each as if it had been, without a solve."""
    new, X_new = places(2, 3, seed=3), places(2, 4, seed=4)
    fantasy = exact.fantasize(new, SobolQMCNormalSampler(torch.Size([5]), seed=0))
    assert isinstance(fantasy, FantasyModel) and fantasy.batch_shape == (5, 2)
    found = fantasy.posterior(X_new)
    assert found.mean.shape == (5, 2, 4, 1)
    X, y = map(torch.tensor, table())
    for f, b in ((0, 1), (4, 0)):
        targets = fantasy.Y[f, b, :, 0]
        mean, covariance = truth(X_new[b], torch.cat([X, new[b]]), torch.cat([y, targets]))
        torch.testing.assert_close(found.mean[f, b, :, 0], mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found.distribution.covariance_matrix[f, b], covariance, rtol=1e-5, atol=1e-5)
    again = fantasy.condition_on_observations(new[:, :1] + 0.1, torch.full((1, 1), 40.0, dtype=torch.float64))
    targets = torch.cat([y, fantasy.Y[2, 1, :, 0], torch.tensor([40.0]).double()])
    mean, _ = truth(X_new[1], torch.cat([X, new[1], new[1, :1] + 0.1]), targets)
    torch.testing.assert_close(again.posterior(X_new).mean[2, 1, :, 0], mean, rtol=1e-6, atol=1e-6)


def test_a_fantasy_has_slopes_in_its_own_points(sampled: WarmModel) -> None:
    """What one-shot look-ahead moves: the points of the fantasies and those that are asked about."""
    new, X_new = places(1, 2, seed=3), places(1, 2, seed=4)
    sampler = SobolQMCNormalSampler(torch.Size([2]), seed=0)
    span = HIGH - LOW

    def value(u: Tensor, v: Tensor) -> Tensor:
        found = sampled.fantasize(LOW + span * u, sampler).posterior(LOW + span * v)
        return torch.cat([found.mean.flatten(), found.variance.flatten()])

    pair = [((part - LOW) / span).requires_grad_() for part in (new, X_new)]
    assert torch.autograd.gradcheck(value, pair, eps=1e-6, atol=1e-3, rtol=1e-3)


# -- refusals --------------------------------------------------------------------------------------------------------
def test_what_is_refused_says_why(exact: WarmModel) -> None:
    with pytest.raises(TypeError, match="fitted GPRegressor, got str"):
        WarmModel("model")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(…, q, 2\).*got \(3, 5\)"):
        exact.posterior(torch.zeros(3, 5))
    with pytest.raises(ValueError, match="NaN or infinity"):
        exact.posterior(torch.full((1, 2), torch.nan))
    for asked in (lambda: exact.subset_output([1]), lambda: exact.posterior(places(1), output_indices=[0, 1])):
        with pytest.raises(ValueError, match="ModelList"):
            asked()
    with pytest.raises(ValueError, match=r"a target for each of m points.*\(3, 2\) and \(2, 1\)"):
        exact.condition_on_observations(places(3), torch.zeros(2, 1).double())
    with pytest.raises(ValueError, match="more than the 32 functions"):
        exact.paths(33)
    rng = np.random.default_rng(0)
    beds = pd.DataFrame({"x": rng.uniform(0, 1, 60), "bed": ["sand", "rock", "clay"] * 20})
    model = GPRegressor("matern32", n_steps=0, init="ones", columns={"bed": "category"}, n_probes=8)
    with pytest.raises(ValueError, match=r"column 'bed' of X holds categor"):
        WarmModel(model.fit(beds, rng.standard_normal(60)))


def test_without_botorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else in the library needs it."""
    for name in [name for name in sys.modules if name.startswith("warmgp.botorch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botorch", None)
    with pytest.raises(ImportError, match=r"pip install 'warmgp\[botorch\]'"):
        importlib.import_module("warmgp.botorch")
    needs = re.compile(r"^\s*(?:import|from) (?:botorch|gpytorch|linear_operator)\b", re.MULTILINE)
    users = {str(path.relative_to(SOURCE).parent) for path in SOURCE.rglob("*.py") if needs.search(path.read_text())}
    assert users == {"botorch"}


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    """Computed where the regressor is; the answer is where X is, with its gradient."""
    model = WarmModel(fitted(solver="cg", device="cuda"))
    X = places(2, 3).requires_grad_()
    found = model.posterior(X)
    mean, covariance = truth(X[0])
    torch.testing.assert_close(found.mean[0, :, 0], mean, rtol=0, atol=0.2)
    torch.testing.assert_close(found.variance[0, :, 0], covariance.diagonal(), rtol=0.3, atol=0)
    assert torch.isfinite(torch.autograd.grad(found.variance.sum(), X)[0]).all()
    assert model.posterior(X.detach().cuda()).mean.device.type == "cuda"
    assert model.paths(2)(X).device.type == "cpu"
