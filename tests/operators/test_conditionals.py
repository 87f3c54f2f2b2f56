"""Densities of points given near ones, and their gradient, against autograd through dense float64."""

from __future__ import annotations

import math

import pytest
import torch

from gp_truth import h_matrix, toy
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import conditionals as module
from warmgp.operators.conditionals import conditionals


def truth(
    kernel: str, x: torch.Tensor, y: torch.Tensor, groups: torch.Tensor, vector: torch.Tensor, last: int = 1
) -> torch.Tensor:
    """log p(y_T | y_N) of every group as the difference of two joint log-densities, (p,)."""
    found = []
    for rows in groups:
        H = h_matrix(kernel, x[rows], vector)
        joint = []
        for size in (len(rows), len(rows) - last):
            part = H[:size, :size]
            quadratic = y[rows[:size]] @ torch.linalg.solve(part, y[rows[:size]])
            joint.append(-0.5 * (quadratic + torch.logdet(part) + size * math.log(2 * math.pi)))
        found.append(joint[0] - joint[1])
    return torch.stack(found)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("at_once", "last"), [(2**24, 1), (1, 1), (2**24, 5), (1, 12)])
def test_densities_and_gradient(
    kernel: str, shared: bool, at_once: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", {True: at_once})
    x, y = toy(60, 3)
    groups = torch.stack([torch.randperm(60, generator=torch.Generator().manual_seed(i))[:12] for i in range(7)])
    theta = Hyperparameters(0.3, 1.2, [0.9] if shared else [0.5, 1.0, 4.0])
    vector = theta.vector.clone().requires_grad_()
    expected = truth(kernel, x, y, groups, vector, last)
    (slope,) = torch.autograd.grad(expected.sum(), vector)
    densities, gradient = conditionals(x, y, groups, get_kernel(kernel), theta, last)
    assert torch.allclose(densities, expected, rtol=1e-9, atol=1e-10)
    assert torch.allclose(gradient, slope, rtol=1e-7, atol=1e-8)


def test_one_other_point_and_far_offsets() -> None:
    x, y = toy(20, 2)
    groups = torch.tensor([[3, 4], [7, 0]])
    theta = Hyperparameters(0.2, 1.0, [1.0, 2.0])
    near, slope = conditionals(x, y, groups, get_kernel("matern32"), theta)
    far, slope_far = conditionals(x + 1e6, y, groups, get_kernel("matern32"), theta)
    assert torch.allclose(near, far, rtol=1e-6) and torch.allclose(slope, slope_far, rtol=1e-5)
    assert torch.allclose(near, truth("matern32", x, y, groups, theta.vector))
