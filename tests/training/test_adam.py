"""Adam against torch.optim.Adam."""

from __future__ import annotations

import pytest
import torch

from warmgp.training.adam import Adam


@pytest.mark.parametrize("learning_rate", [0.1, 0.03])
def test_forty_steps_are_those_of_torch(learning_rate: float) -> None:
    """The gradients differ in scale by coordinate (down to ε's own size) and change sign over the steps."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([1e-8, 1e-3, 1.0, 50.0, 0.0], dtype=torch.float64)
    parameter = torch.nn.Parameter(torch.randn(5, dtype=torch.float64, generator=generator))
    reference = torch.optim.Adam([parameter], lr=learning_rate, maximize=True)
    nu, adam = parameter.detach().clone(), Adam.zeros(5)
    for _ in range(40):
        gradient = scale * (torch.randn(5, dtype=torch.float64, generator=generator) + 0.3)
        parameter.grad = gradient.clone()
        reference.step()
        nu, adam = adam.ascend(nu, gradient, learning_rate)
        torch.testing.assert_close(nu, parameter.detach(), rtol=1e-11, atol=1e-13)
    assert adam.t == 40


def test_first_step_goes_uphill_by_the_learning_rate() -> None:
    nu, _ = Adam.zeros(2).ascend(torch.zeros(2, dtype=torch.float64), torch.tensor([3.0, -0.2]), 0.1)
    assert nu.tolist() == pytest.approx([0.1, -0.1], rel=1e-6)


def test_a_step_changes_neither_its_state_nor_its_input() -> None:
    start, adam = torch.ones(3, dtype=torch.float64), Adam.zeros(3)
    gradient = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    first = adam.ascend(start, gradient, 0.1)
    second = adam.ascend(start, gradient, 0.1)
    assert torch.equal(first[0], second[0])
    assert start.tolist() == [1.0] * 3
    assert gradient.tolist() == [1.0, -2.0, 3.0]
    assert (adam.t, adam.first.tolist(), adam.second.tolist()) == (0, [0.0] * 3, [0.0] * 3)
