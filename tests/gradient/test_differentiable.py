"""The posterior with gradients in the points: its values, slopes and covariances against dense float64 truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from gp_truth import PROFILES, kernel_matrix, posterior
from warmgp import GPRegressor, Hyperparameters
from warmgp.differentiable import Differentiable
from warmgp.joint import _Share
from warmgp.posterior import Posterior

THETA = Hyperparameters(0.2, 1.3, [0.8, 1.0, 1.4])


def rows(n: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    X -= X.mean(0)  # as a model that does not standardise does
    return torch.tensor(X), torch.tensor(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_normal(n))


def fitted(kernel: str = "matern32", **settings: object) -> Posterior:
    """At given hyperparameters, in the units of the data: the truth has the same numbers."""
    X, y = rows()
    settings = {"solver": "cg", "init": THETA, "n_steps": 0, **settings}
    return GPRegressor(kernel, standardize=False, random_state=0, **settings).fit(X.numpy(), y.numpy()).posterior_


@pytest.fixture(scope="module")
def sampled() -> Posterior:
    found = fitted()
    assert not found.exact and found.targets is not None
    return found


def blocks(b: int, q: int, apart: float = 0.4, seed: int = 5) -> Tensor:
    """Blocks of q points near each other, (b, q, 3), so that they are correlated."""
    generator = torch.Generator().manual_seed(seed)
    middle = 3 * torch.rand(b, 1, 3, dtype=torch.float64, generator=generator) - 1.5
    return middle + apart * torch.randn(b, q, 3, dtype=torch.float64, generator=generator)


def truth(kernel: str, x: Tensor, X: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Means, (b, q), and latent covariances, (b, q, q), of every block."""
    own, y = rows()
    return in_blocks(*posterior(kernel, own if X is None else X, y, x.flatten(0, 1), THETA), x)


def in_blocks(mean: Tensor, covariance: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and covariances of all points of x (b, q, d) as those of its blocks."""
    whole = covariance.unflatten(0, x.shape[:2]).unflatten(2, x.shape[:2])  # (b, q, b, q)
    return mean.unflatten(0, x.shape[:2]), whole.diagonal(dim1=0, dim2=2).movedim(-1, 0)


def slope(x: Tensor, value: Tensor, weights: Tensor) -> Tensor:
    return torch.autograd.grad((value * weights).sum(), x, retain_graph=True)[0]


# -- exact models ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", PROFILES)
def test_an_exact_model(kernel: str) -> None:
    """Mean, covariance and the slopes of both, to rounding; a point of a block is a training point."""
    x, model = blocks(3, 2), fitted(kernel, solver="auto")
    x[0, 0] = model.x[11]
    x.requires_grad_()
    ours, theirs = Differentiable(model).joint(x), truth(kernel, x, model.x)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
        weights = torch.randn(found.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        pair = slope(x, found, weights), slope(x, expected, weights)
        torch.testing.assert_close(*pair, rtol=1e-6, atol=1e-7)


# -- models with samples ---------------------------------------------------------------------------------------------
def test_mean_and_its_slope(sampled: Posterior) -> None:
    x = blocks(4, 2).requires_grad_()
    mean, expected = Differentiable(sampled).mean(x.flatten(0, 1)), truth("matern32", x)[0].flatten()
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.01)
    pair = (torch.autograd.grad(part.sum(), x)[0] for part in (mean, expected))
    torch.testing.assert_close(*pair, rtol=0, atol=0.05)


def test_values_are_those_of_predictions(sampled: Posterior) -> None:
    """In float64 from solutions in float32: the same up to float32's rounding."""
    x, answers = blocks(30, 1), Differentiable(sampled)
    mean, variance = sampled.mean_and_variance(x[:, 0].to(sampled.x))
    torch.testing.assert_close(answers.joint(x)[1][:, 0, 0], variance.double(), rtol=1e-3, atol=0)
    torch.testing.assert_close(answers.joint(x)[0][:, 0], mean.double(), rtol=0, atol=1e-4)
    torch.testing.assert_close(
        answers.samples(x[:, 0]), sampled.samples(x[:, 0].to(sampled.x)).double(), rtol=0, atol=1e-3
    )
    some = torch.tensor([5, 2])
    torch.testing.assert_close(answers.samples(x[:, 0], some), answers.samples(x[:, 0])[:, some])


@pytest.mark.parametrize("continuous", [False, True])
def test_slopes_are_those_of_the_values(sampled: Posterior, continuous: bool) -> None:
    """Means, covariances and samples against central differences of themselves."""
    x, answers = blocks(2, 3), Differentiable(sampled, continuous)
    checks = (lambda x: answers.joint(x)[0], lambda x: answers.joint(x)[1], lambda x: answers.samples(x[0])[:, :3])
    for f in checks:
        assert torch.autograd.gradcheck(f, (x.clone().requires_grad_(),), eps=1e-6, atol=1e-5, rtol=1e-4)


def errors(answers: Differentiable, x: Tensor, expected: Tensor) -> tuple[float, float]:
    """Root mean squares of the errors of variances and of covariances, in units of the true variances."""
    size = expected.diagonal(dim1=1, dim2=2).sqrt()
    off = (answers.joint(x)[1] - expected) / (size[:, :, None] * size[:, None])
    own = torch.eye(x.shape[1], dtype=torch.bool)
    return float(off[:, own].square().mean().sqrt()), float(off[:, ~own].square().mean().sqrt())


@pytest.mark.parametrize("continuous", [False, True])
def test_covariances_are_near_the_truth(sampled: Posterior, continuous: bool) -> None:
    """With three inputs near points tell nearly all. The 64 samples alone are off by √(2/64) and 1/√64 by chance."""
    x = blocks(60, 4)
    _, expected = truth("matern32", x)
    variance, correlation = errors(Differentiable(sampled, continuous), x, expected)
    alone = errors(Differentiable(replace(sampled, targets=None), continuous), x, expected)
    assert variance < 0.02 and correlation < 0.03, (variance, correlation)
    assert alone[0] > 0.1 and alone[1] > 0.08, alone


def test_covariances_where_near_points_tell_little() -> None:
    """Six inputs, long length scales, much noise: variances within 10%, correlations within 0.11."""
    rng = np.random.default_rng(0)
    X, theta = torch.tensor(rng.uniform(-2, 2, (900, 6))), Hyperparameters(0.5, 1.0, [2.0] * 6)
    X -= X.mean(0)
    y = torch.tensor(rng.standard_normal(900))
    settings = {"solver": "cg", "init": theta, "n_steps": 0, "standardize": False, "random_state": 0}
    model = GPRegressor("matern32", **settings).fit(X.numpy(), y.numpy()).posterior_
    x = torch.tensor(rng.uniform(-1.5, 1.5, (40, 1, 6)) + 0.5 * rng.standard_normal((40, 4, 6)))
    _, expected = in_blocks(*posterior("matern32", X, y, x.flatten(0, 1), theta), x)
    variance, correlation = errors(Differentiable(model, True), x, expected)
    alone = errors(Differentiable(replace(model, targets=None), True), x, expected)
    assert variance < 0.1 and correlation < 0.11, (variance, correlation)
    assert variance < 0.6 * alone[0] and correlation < 0.9 * alone[1], alone


def test_covariances_are_positive_definite(sampled: Posterior) -> None:
    """Also of more points than samples, and of two points in one place."""
    x = torch.cat([blocks(1, 90, apart=1.0), blocks(1, 90, apart=0.01)])
    x[0, 1] = x[0, 0]
    covariance = Differentiable(sampled, True).joint(x)[1]
    least = torch.linalg.eigvalsh(covariance)[:, 0]
    assert (least > -1e-10).all(), least
    assert float(covariance[0, 0, 1] / covariance[0, 0, 0]) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("continuous", [False, True])
def test_nothing_jumps(sampled: Posterior, continuous: bool) -> None:
    """The largest step of the variance along a line, looked at a hundred times closer: a jump is still one there."""
    answers, ends = Differentiable(sampled, continuous), torch.tensor([[-1.0, -0.8, 0.3], [0.5, 0.4, -0.6]]).double()

    def steps(low: float, high: float, count: int) -> Tensor:
        place = torch.linspace(low, high, count + 1, dtype=torch.float64)[:, None]
        return answers.joint((ends[0] + place * (ends[1] - ends[0]))[:, None])[1][:, 0, 0].diff().abs()

    coarse = steps(0.0, 1.0, 1000)
    i = int(coarse.argmax())
    fine = steps(i / 1000, (i + 1) / 1000, 100)
    share = float(fine.max() / coarse.max())
    assert share < 0.05 if continuous else share > 0.5


def test_slopes_of_variances_are_near_the_truth(sampled: Posterior) -> None:
    """The slope of the std, over all directions: within a fifth of its root mean square."""
    x = blocks(40, 1).requires_grad_()
    pair = [
        torch.autograd.grad(part.diagonal(dim1=1, dim2=2).sqrt().sum(), x)[0]
        for part in (Differentiable(sampled, True).joint(x)[1], truth("matern32", x)[1])
    ]
    assert float((pair[0] - pair[1]).norm() / pair[1].norm()) < 0.2


def test_a_share_has_the_slope_of_its_equation() -> None:
    q, p = (torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    p = (1 - q) * (0.7 + 0.6 * p)  # as of samples of which q and p are the mean squares
    assert torch.autograd.gradcheck(_Share.apply, (q.requires_grad_(), p.requires_grad_()), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("continuous", [False, True])
def test_what_near_points_leave_is_exact(sampled: Posterior, continuous: bool) -> None:
    """The covariance of f* − wᵀb, by the weights themselves; the noise of points that fade is not really there."""
    answers, x = Differentiable(sampled, continuous), blocks(3, 2)
    estimate = answers._blocks
    groups = estimate.near.nearest_to_blocks(x, 40)
    found, weights, _ = estimate._given(answers._scaled(x.flatten(0, 1)).unflatten(0, (3, 2)), groups)
    X = sampled.x.double()
    for block, near, w, U in zip(x, X[groups], weights, found, strict=True):
        own, cross, C = (
            kernel_matrix("matern32", *pair, THETA.signal_scale, THETA.length_scales)
            for pair in ((block, block), (near, block), (near, near))
        )
        C = C + 0.2**2 * torch.eye(40, dtype=torch.float64)
        torch.testing.assert_close(U, own - w @ cross - (w @ cross).T + w @ C @ w.T, rtol=1e-6, atol=1e-8)


def test_far_away_the_prior_is_back(sampled: Posterior) -> None:
    x = torch.full((1, 1, 3), 1e9, dtype=torch.float64, requires_grad=True)
    mean, covariance = Differentiable(sampled, True).joint(x)
    assert mean.item() == 0.0 and 0.5 < covariance.item() / 1.3**2 < 2
    assert torch.isfinite(torch.autograd.grad(mean.sum() + covariance.sum(), x)[0]).all()


def test_rows_with_noise_of_their_own() -> None:
    """Weights of rows are part of H, and of what near points are told."""
    X, y = rows()
    weights = np.random.default_rng(3).uniform(0.1, 3.0, len(y))
    settings = {"solver": "cg", "init": THETA, "n_steps": 0, "standardize": False, "random_state": 0}
    model = GPRegressor("matern32", **settings).fit(X.numpy(), y.numpy(), sample_weight=weights).posterior_
    x = blocks(40, 2)
    flat = x.flatten(0, 1)
    K, cross, own = (
        kernel_matrix("matern32", *pair, THETA.signal_scale, THETA.length_scales)
        for pair in ((X, X), (flat, X), (flat, flat))
    )
    H = K + torch.diag(0.2**2 / torch.tensor(weights))
    _, expected = in_blocks(cross @ torch.linalg.solve(H, y), own - cross @ torch.linalg.solve(H, cross.T), x)
    variance, correlation = errors(Differentiable(model, True), x, expected)
    assert variance < 0.03 and correlation < 0.04, (variance, correlation)
