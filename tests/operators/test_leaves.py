"""Near points found in leaves: how many of the nearest they are, and that none comes twice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from warmgp import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import new_points
from warmgp.operators.leaves import LEAF, Leaves
from warmgp.operators.new_points import NearPoints


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200, 1000, 4097])
def test_every_point_is_in_one_leaf(n: int) -> None:
    leaves = Leaves.of(normal(n, 3))
    there = torch.isfinite(leaves.points).all(2)
    assert leaves.index[there].sort().values.tolist() == list(range(n))
    assert leaves.index.shape[1] <= max(n, 2 * LEAF) and bool((there.sum(1) >= leaves.index.shape[1] - 1).all())
    assert torch.equal(leaves.points[there], normal(n, 3)[leaves.index[there]])


@pytest.mark.parametrize(("d", "m", "share"), [(1, 32, 0.99), (2, 32, 0.98), (3, 32, 0.97), (8, 64, 0.6)])
def test_most_of_the_nearest_are_found(d: int, m: int, share: float) -> None:
    z, new = normal(20_000, d), normal(200, d, seed=1)
    found = Leaves.of(z).nearest(new, m)
    nearest = torch.cdist(new, z).topk(m, 1, largest=False).indices
    common = sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), nearest.tolist(), strict=True))
    assert common >= share * m * len(new)
    assert all(len(set(row)) == m for row in found.tolist())


@pytest.mark.parametrize("n", [64, 100, 129, 700])
def test_no_point_comes_twice_where_there_are_hardly_enough(n: int) -> None:
    """Copies of one point, as many as leaves have, and all of them asked for."""
    z = normal(n, 2)
    z[: n // 2] = z[0]
    found = Leaves.of(z).nearest(normal(5, 2, seed=1), min(64, n))
    assert all(len(set(row)) == min(64, n) for row in found.tolist())


def test_weights_and_variances_are_those_of_the_points_that_were_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_points, "LEAVES_FROM", 100)
    theta = Hyperparameters.from_vector(torch.tensor([0.2, 1.3, 0.7, 1.9]))
    x, new = normal(1500, 2), normal(40, 2, seed=1)
    near = NearPoints(x, get_kernel("matern32"), theta, 16)
    found = near.predict(new)
    weights, variance = NearPoints(x, get_kernel("matern32"), theta, 16).given(new, found.groups)
    assert torch.allclose(found.weights, weights) and torch.allclose(found.variance, variance)
    monkeypatch.setattr(new_points, "LEAVES_FROM", 10**9)
    of_all = NearPoints(x, get_kernel("matern32"), theta, 16).predict(new)
    assert torch.allclose(found.variance.mean(), of_all.variance.mean(), rtol=0.01)
