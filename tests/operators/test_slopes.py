"""Kernel entries and products with gradients in the points, against dense float64 autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gp_truth import PROFILES, kernel_matrix
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS
from warmgp.operators import slopes
from warmgp.operators.new_points import NearPoints

ONE = torch.tensor(1.0, dtype=torch.float64)


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def truth(name: str, a: Tensor, b: Tensor) -> Tensor:
    return kernel_matrix(name, a, b, ONE, torch.ones(a.shape[-1], dtype=torch.float64))


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("tile", [3, 2**20])
def test_products_and_their_slopes(name: str, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tile by tile and in one; the first new point is a training point, where Matérn-1/2 has no derivative: zero."""
    monkeypatch.setattr(slopes, "TILE", {True: tile, False: tile})
    b, V, weights = points(30, 3, seed=1), points(30, 4, seed=2), points(5, 4, seed=3)
    a = points(5, 3)
    a[0] = b[7]
    ours, theirs = a.clone().requires_grad_(), a.clone().requires_grad_()
    found, expected = slopes.products(ours, b, V.float(), KERNELS[name]), truth(name, theirs, b) @ V.float().double()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    assert torch.isfinite(ours.grad).all()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", PROFILES)
def test_entries_have_slopes_in_both_sets(name: str) -> None:
    a, b = points(2, 4, 3).requires_grad_(), points(2, 6, 3, seed=1).requires_grad_()
    found = slopes.entries(a, b, KERNELS[name])
    expected = torch.stack([truth(name, *pair) for pair in zip(a, b, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = points(2, 4, 6, seed=2)
    pairs = [torch.autograd.grad((weights * part).sum(), (a, b)) for part in (found, expected)]
    torch.testing.assert_close(*pairs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", PROFILES)
def test_a_set_with_itself(name: str) -> None:
    """Every point coincides with itself, and both sets move at once: no slope is infinite."""
    a = points(4, 3).requires_grad_()
    found, expected = slopes.entries(a, a, KERNELS[name]), truth(name, a, a)
    weights = points(4, 4, seed=2)
    pair = [torch.autograd.grad((weights * part).sum(), a)[0] for part in (found, expected)]
    torch.testing.assert_close(*pair, rtol=1e-10, atol=1e-11)


def test_a_second_derivative_is_refused() -> None:
    a = points(2, 3).requires_grad_()
    b, V = points(3, 3, seed=1), points(3, 2, seed=2)
    for value in (slopes.entries(a, b, KERNELS["rbf"]), slopes.products(a, b, V, KERNELS["rbf"])):
        with pytest.raises(NotImplementedError, match="first ones only"):
            torch.autograd.grad(value.sum(), a, create_graph=True)


def test_points_near_to_a_block() -> None:
    """The nearest to any of its points, against all distances."""
    x, new = points(300, 2), points(4, 3, 2, seed=1)
    theta = Hyperparameters(0.1, 1.0, [0.5, 2.0])
    found = NearPoints(x, KERNELS["matern32"], theta, 9).nearest_to_blocks(new, 12)
    apart = ((new[:, :, None] - x) / theta.length_scales).square().sum(3).amin(1)  # (4, 300)
    expected = apart.topk(12, largest=False).indices
    assert torch.equal(found.sort(1).values, expected.sort(1).values)
