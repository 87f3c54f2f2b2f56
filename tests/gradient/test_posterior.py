"""The posterior from solutions against the exact posterior."""

from __future__ import annotations

import pytest
import torch

from gp_truth import posterior as true_posterior
from gp_truth import toy
from warmgp import Cholesky, DenseOperator, Exact, Hyperparameters, Pathwise, Posterior, StoppingRule, TrainingOptions
from warmgp.kernels import get_kernel
from warmgp.training import Problem
from warmgp.training.last_solve import finish
from warmgp.training.step import initial_state

THETA = Hyperparameters.from_vector(torch.tensor([0.3, 1.2, 0.8, 1.5]))


def solved(
    kernel: str, n_samples: int, *, exact: bool = False, n_features: int = 4000
) -> tuple[Posterior, torch.Tensor]:
    x, y = toy(60)
    H = DenseOperator(x, get_kernel(kernel), THETA)
    gradient = Exact() if exact else Pathwise(n_samples, n_features)
    options = TrainingOptions(Cholesky(), gradient, rule=StoppingRule(1e-9), n_samples=n_samples, n_features=n_features)
    generator = torch.Generator().manual_seed(0)
    return finish(Problem(H, y), options, initial_state(H, options), generator).posterior, y


@pytest.fixture
def x_new() -> torch.Tensor:
    return torch.randn(37, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
def test_exact_posterior(kernel: str, x_new: torch.Tensor) -> None:
    posterior, y = solved(kernel, 4, exact=True)
    mean, covariance = true_posterior(kernel, posterior.x, y, x_new, THETA)
    found, variance = posterior.mean_and_variance(x_new)
    assert torch.allclose(posterior.mean(x_new), mean, atol=1e-9)
    assert torch.allclose(found, mean, atol=1e-9)
    assert torch.allclose(variance, covariance.diagonal(), atol=1e-9)
    assert torch.allclose(posterior.covariance(x_new), covariance, atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
def test_samples_have_the_posteriors_moments(kernel: str, x_new: torch.Tensor) -> None:
    """2,000 functions: variances within 16% (five standard errors of a sample variance), the covariance within 20% in
    norm, sample means within 5 standard errors."""
    posterior, y = solved(kernel, 2000, n_features=10_000)
    mean, covariance = true_posterior(kernel, posterior.x, y, x_new, THETA)
    found, variance = posterior.mean_and_variance(x_new)
    truth = covariance.diagonal()
    assert torch.allclose(found, mean, atol=1e-8)  # the mean is k v_y, never the samples' mean
    assert ((variance / truth - 1).abs() < 0.16).all()
    samples = posterior.samples(x_new)
    assert ((samples.mean(1) - mean).abs() < 5 * (truth / 2000).sqrt()).all()
    assert (posterior.covariance(x_new) - covariance).norm() < 0.2 * covariance.norm()


def test_samples_are_functions(x_new: torch.Tensor) -> None:
    """The same functions in any order, subset or batch; through the data when the noise is small."""
    posterior, _ = solved("matern32", 5, n_features=200)
    whole = posterior.samples(x_new)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(posterior.samples(x_new[order]), whole[order], atol=1e-10)
    small = Posterior(posterior.x, posterior.kernel, posterior.theta, posterior.solution, posterior.prior, batch_size=5)
    assert torch.allclose(small.samples(x_new), whole, atol=1e-10)
    mean, variance = small.mean_and_variance(x_new)
    assert torch.allclose(mean, posterior.mean(x_new), atol=1e-10)
    deviation = whole - mean[:, None]
    assert torch.allclose(variance, deviation.square().mean(1), atol=1e-10)
    assert torch.allclose(small.covariance(x_new).diagonal(), variance, atol=1e-10)
    assert torch.linalg.matrix_rank(small.covariance(x_new)) <= 5


def test_far_away_is_the_prior() -> None:
    posterior, _ = solved("matern32", 2000)
    mean, variance = posterior.mean_and_variance(torch.full((1, 2), 1e3, dtype=torch.float64))
    assert abs(float(mean)) < 1e-12
    assert float(variance) == pytest.approx(1.2**2, rel=0.15)  # 2,000 samples: standard error 3%


def test_no_new_points() -> None:
    posterior, _ = solved("matern32", 3, n_features=20)
    empty = torch.zeros(0, 2, dtype=torch.float64)
    assert posterior.mean(empty).shape == (0,) and posterior.samples(empty).shape == (0, 3)
