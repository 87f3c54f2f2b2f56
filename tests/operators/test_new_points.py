"""New points given near ones: the nearest by brute force, weights and variances by dense float64 algebra."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gp_truth import PROFILES, h_matrix, kernel_matrix
from warmgp import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators.new_points import NearPoints

THETA = Hyperparameters.from_vector(torch.tensor([0.2, 1.3, 0.7, 1.9]))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def brute(x: Tensor, x_new: Tensor, theta: Hyperparameters, m: int) -> Tensor:
    """The distances to the m nearest points, the nearest first, (b, m)."""
    gaps = ((x_new[:, None] - x[None]) / theta.length_scales).square().sum(2).sqrt()
    return gaps.sort(1).values[:, :m]


@pytest.mark.parametrize(("n", "m"), [(5, 5), (40, 16), (333, 16), (2000, 7)])
def test_the_nearest_are_found(n: int, m: int) -> None:
    x, x_new = normal(n, 2), normal(23, 2, seed=1)
    found = NearPoints(x, get_kernel("rbf"), THETA, m).nearest(x_new)
    gaps = ((x_new[:, None] - x[found]) / THETA.length_scales).square().sum(2).sqrt().sort(1).values
    assert torch.allclose(gaps, brute(x, x_new, THETA, m))
    assert all(len(set(row.tolist())) == m for row in found)


def test_points_that_float32_cannot_rank_are_ranked_in_float64() -> None:
    """Clusters on a time axis of a million length scales: squares of 10¹² would drown the gaps of near points."""
    theta = Hyperparameters.from_vector(torch.tensor([0.2, 1.0, 1.0]))
    x = (1e6 * normal(50, 1) + normal(1, 20, seed=1)).reshape(-1, 1)
    near = NearPoints(x, get_kernel("matern32"), theta, 16)
    gaps = (x[::9, None] - x[near.nearest(x[::9])]).abs().sum(2).sort(1).values
    assert torch.allclose(gaps, brute(x, x[::9], theta, 16))
    assert near._ranked[0].dtype == torch.float64
    assert NearPoints(normal(1000, 1), get_kernel("matern32"), theta, 16)._ranked[0].dtype == torch.float32


@pytest.mark.parametrize("kernel", PROFILES)
def test_weights_and_variances(kernel: str) -> None:
    x, x_new = normal(60, 2), torch.cat([normal(9, 2, seed=1), normal(60, 2)[:2]])  # two are training points
    found = NearPoints(x, get_kernel(kernel), THETA, 16).predict(x_new)
    for row, group in enumerate(found.groups):
        C = h_matrix(kernel, x[group], THETA.vector)
        k = kernel_matrix(kernel, x[group], x_new[row : row + 1], THETA.signal_scale, THETA.length_scales)[:, 0]
        assert torch.allclose(found.weights[row], torch.linalg.solve(C, k), atol=1e-8)
        variance = THETA.signal_scale**2 - k @ torch.linalg.solve(C, k)
        assert float(found.variance[row]) == pytest.approx(float(variance), rel=1e-7)


def test_rounding_is_not_taken_for_a_variance() -> None:
    """At a training point with a noise of 10⁻⁸ the variance is 10⁻¹⁶ of the prior's: NaN, never a number of chance."""
    theta = Hyperparameters.from_vector(torch.tensor([1e-8, 1.0, 1.0, 1.0]))
    x = normal(50, 2)
    found = NearPoints(x, get_kernel("rbf"), theta, 16).predict(x[:5])
    assert bool(found.variance.isnan().all())


def test_no_new_points() -> None:
    found = NearPoints(normal(30, 2), get_kernel("rbf"), THETA, 16).predict(normal(0, 2))
    assert found.groups.shape == found.weights.shape == (0, 16) and found.variance.shape == (0,)
