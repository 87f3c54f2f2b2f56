"""Tables of waves, and where a climb ends that takes them for noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warmgp import Hyperparameters
from warmgp.kernels import get_kernel

MATERN = get_kernel("matern32")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def waves(n: int, d: int = 1, periods: float = 60.0, noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Standardised inputs, and a sine along the last of them, with noise."""
    x = torch.rand(n, d, dtype=torch.float64, generator=seeded(seed))
    y = (2 * math.pi * periods * x[:, -1]).sin() + noise * torch.randn(
        n, dtype=torch.float64, generator=seeded(seed + 1)
    )
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def theta_of(*values: float) -> Hyperparameters:
    return Hyperparameters.from_vector(torch.tensor(values, dtype=torch.float64))


def asleep(d: int) -> Hyperparameters:
    """Where a climb ends that takes everything for noise."""
    return theta_of(1.0, 0.1, *[3.0] * d)
