"""Acquisition functions on a WarmModel: values and gradients against those on a dense float64 model; searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gp_truth import posterior as dense
from warmgp import GPRegressor, Hyperparameters

pytest.importorskip("botorch", reason="warmgp.botorch needs BoTorch: pip install 'warmgp[botorch]'")
from botorch.acquisition.analytic import LogExpectedImprovement, PosteriorMean
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.distributions import MultivariateNormal

from warmgp.botorch import WarmModel

THETA = Hyperparameters(0.3, 1.0, [0.9, 0.9, 1.5])
BOUNDS = torch.tensor([[0.0] * 3, [10.0] * 3], dtype=torch.float64)


def table(n: int = 250) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (n, 3))
    return X, 100 + 10 * (np.sin(X[:, 0]) + np.cos(0.7 * X[:, 1]) + 0.1 * X[:, 2]) + 3 * rng.standard_normal(n)


def fitted(**settings: Any) -> WarmModel:
    settings = {"init": THETA, "n_steps": 0, "random_state": 0, **settings}
    return WarmModel(GPRegressor("matern52", **settings).fit(*table()))


@pytest.fixture(scope="module")
def exact() -> WarmModel:
    return fitted(n_probes=8)


@pytest.fixture(scope="module")
def sampled() -> WarmModel:
    return fitted(solver="cg")


class Dense(Model):
    """The truth as a model: means and covariances by dense float64 algebra, with torch's own gradients."""

    num_outputs, batch_shape = 1, torch.Size()

    def posterior(self, X: Tensor, posterior_transform: Any = None, **kwargs: Any) -> GPyTorchPosterior:
        rows, y = map(torch.tensor, table())
        middle, spread, scale = rows.mean(0), rows.std(0, correction=0), y.std(correction=0)
        targets = (y - y.mean()) / scale
        blocks = X.reshape(-1, *X.shape[-2:])
        found = [dense("matern52", (rows - middle) / spread, targets, (x - middle) / spread, THETA) for x in blocks]
        mean = torch.stack([y.mean() + scale * part for part, _ in found]).reshape(X.shape[:-1])
        covariance = torch.stack([scale**2 * part for _, part in found]).reshape(*X.shape[:-1], X.shape[-2])
        return GPyTorchPosterior(MultivariateNormal(mean, covariance))


BEST = 118.0
ACQUISITIONS: dict[str, tuple[int, Callable[[Model], Any]]] = {
    "log_ei": (1, lambda model: LogExpectedImprovement(model, best_f=BEST)),
    "q_log_ei": (3, lambda model: qLogExpectedImprovement(model, best_f=BEST, sampler=sampler())),
    "q_ucb": (3, lambda model: qUpperConfidenceBound(model, beta=4.0, sampler=sampler())),
}


def sampler() -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([128]), seed=0)


def starts(b: int, q: int) -> Tensor:
    """Blocks near a top, where an improvement is thinkable."""
    generator = torch.Generator().manual_seed(2)
    return torch.tensor([1.6, 8.8, 8.0]).double() + 0.5 * torch.randn(b, q, 3, dtype=torch.float64, generator=generator)


def value_and_slope(make: Callable[[Model], Any], model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
    X = X.clone().requires_grad_()
    value = make(model)(X)
    return value.detach(), torch.autograd.grad(value.sum(), X)[0]


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_an_exact_model_gives_the_truth(name: str, exact: WarmModel) -> None:
    q, make = ACQUISITIONS[name]
    X = starts(3, q)
    found, expected = (value_and_slope(make, model, X) for model in (exact, Dense()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_samples_give_nearly_the_truth(name: str, sampled: WarmModel) -> None:
    """The value within 5% of an e-fold, or 5% of the std for a bound; the slope within a fifth of its size."""
    q, make = ACQUISITIONS[name]
    X = starts(6, q)
    found, expected = (value_and_slope(make, model, X) for model in (sampled, Dense()))
    unit = 1.0 if "ei" in name else float(Dense().posterior(X).variance.sqrt().mean())
    assert float((found[0] - expected[0]).abs().max()) < 0.05 * unit
    assert float((found[1] - expected[1]).norm() / expected[1].norm()) < 0.2


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_slopes_are_those_of_differences(name: str, sampled: WarmModel) -> None:
    q, make = ACQUISITIONS[name]
    acquisition = make(sampled)
    assert torch.autograd.gradcheck(acquisition, (starts(2, q).requires_grad_(),), eps=1e-5, atol=1e-3, rtol=1e-3)


# -- functions -------------------------------------------------------------------------------------------------------
def test_paths_are_the_functions_of_the_model(sampled: WarmModel) -> None:
    """The same as sample_y's at any points; a batch of them each at its own."""
    X = starts(1, 5)[0]
    functions = torch.tensor(sampled.regressor.sample_y(X.numpy(), 3))
    one, three = sampled.paths(), sampled.paths(3)
    torch.testing.assert_close(one(X)[:, 0], functions[:, 0], rtol=0, atol=1e-3)
    torch.testing.assert_close(three(X)[..., 0], functions.T, rtol=0, atol=1e-3)
    torch.testing.assert_close(three[1](X)[:, 0], functions[:, 1], rtol=0, atol=1e-3)
    assert len(three) == 3 and three[2].batch_shape == ()
    own = X[:3, None]  # a point for each function
    torch.testing.assert_close(three(own)[:, 0, 0], functions.diagonal(), rtol=0, atol=1e-3)
    assert three.batch_shape == (3,) and three(own.expand(4, 3, 1, 3)).shape == (4, 3, 1, 1)
    assert torch.autograd.gradcheck(three, (own.clone().requires_grad_(),), eps=1e-6, atol=1e-3, rtol=1e-3)
    new = sampled.paths(2, random_state=1)
    expected = torch.tensor(sampled.regressor.sample_y(X.numpy(), 2, random_state=1))
    torch.testing.assert_close(new(X)[..., 0], expected.T, rtol=0, atol=1e-3)
    assert float((expected - functions[:, :2]).abs().max()) > 0.1


def test_the_mean_and_spread_of_paths_are_the_posterior(sampled: WarmModel) -> None:
    """64 functions: their mean is off by at most four of its errors by chance."""
    X = starts(1, 6)[0]
    values, found = sampled.paths(64)(X)[..., 0], sampled.posterior(X)
    std = found.variance[:, 0].sqrt()
    assert float(((values.mean(0) - found.mean[:, 0]).abs() / std).max()) < 4 / 8
    assert ((values.std(0) / std - 1).abs() < 4 / 128**0.5).all()


def test_botorchs_thompson_sampling_climbs_them(sampled: WarmModel) -> None:
    """Each place of the batch is a top of a function of its own: no slope is left, but against a border."""
    torch.manual_seed(0)
    acquisition = PathwiseThompsonSampling(sampled)
    found, _ = optimize_acqf(acquisition, BOUNDS, q=3, num_restarts=3, raw_samples=64)
    paths = acquisition.samples._path.functions
    assert len(set(paths.numbers.tolist())) == 3
    own = found[:, None].clone().requires_grad_()
    value = paths(own)[:, 0, 0]
    (slope,) = torch.autograd.grad(value.sum(), own)
    inside = (own.detach() + slope).clamp(BOUNDS[0], BOUNDS[1]) - own.detach()  # a step uphill that stays within
    assert float(inside.abs().max()) < 0.05
    random = BOUNDS[1] * torch.rand(64, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert float(value.detach().mean() - paths(random)[..., 0].mean()) > 15  # of a function that goes up and down by 12


# -- searches --------------------------------------------------------------------------------------------------------
def test_a_search_finds_the_top_of_the_mean(sampled: WarmModel) -> None:
    """Also from samples, without a failed line search; and one that looks ahead runs."""
    torch.manual_seed(0)
    top, value = optimize_acqf(PosteriorMean(sampled), BOUNDS, q=1, num_restarts=4, raw_samples=64)
    random = sampled.posterior(BOUNDS[1] * torch.rand(2000, 1, 3, dtype=torch.float64)).mean.amax()
    assert float(value) > float(random)
    best = qLogExpectedImprovement(sampled, best_f=float(value), sampler=sampler())
    begin = top + 0.3 * (starts(2, 2) - starts(2, 2).mean(1, keepdim=True))
    one, gained = optimize_acqf(best, BOUNDS, q=2, num_restarts=2, batch_initial_conditions=begin.clamp(0, 10))
    assert one.shape == (2, 3) and float(gained) > float(best(begin).max())
    gradient = qKnowledgeGradient(sampled, num_fantasies=2)
    X = starts(1, 3).requires_grad_()
    assert torch.isfinite(torch.autograd.grad(gradient(X).sum(), X)[0]).all()
