"""Features of the product kernel have the covariance of that kernel, and not that of the kernel of distances."""

from __future__ import annotations

import math

import pytest
import torch

from experiments.product_prior import ProductPathwise, by_input
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32
from warmgp.operators import DenseOperator

M = 200_000


def matern(r: torch.Tensor) -> torch.Tensor:
    return (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r)


@pytest.mark.parametrize("d", [1, 3, 9])
def test_frequencies_by_input_are_those_of_the_product(d: int) -> None:
    """Within 4 standard errors of E cos(ω·δ), which is known to 1/√m."""
    delta = torch.linspace(0.2, 0.6, d, dtype=torch.float64)
    cosines = torch.cos(by_input(M, d, torch.Generator().manual_seed(0)) @ delta)
    error = float(cosines.std()) / M**0.5
    assert abs(float(cosines.mean() - matern(delta).prod())) < 4 * error
    apart = abs(float(cosines.mean() - matern(delta.norm()))) / error
    assert apart < 4 if d == 1 else apart > 20


def test_the_estimator_draws_them_and_keeps_the_rest() -> None:
    x = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    operator = DenseOperator(x, Matern32(), Hyperparameters.ones(3))
    draw = ProductPathwise(4, 100).draw(operator, torch.Generator().manual_seed(2))
    again = ProductPathwise(4, 100).draw(operator, torch.Generator().manual_seed(2))
    assert draw.prior.frequencies.shape == (50, 3) and draw.noise.shape == (40, 4)
    assert torch.equal(draw.prior.frequencies, again.prior.frequencies)
    assert ProductPathwise(4, 100).targets(operator, x[:, 0], draw).shape == (40, 5)
