"""Small trainings that several tests start from."""

from __future__ import annotations

from dataclasses import replace

import torch

from gp_truth import toy
from warmgp import (
    ConjugateGradients,
    DenseOperator,
    Hyperparameters,
    Pathwise,
    TrainingOptions,
)
from warmgp.gradient import GradientEstimator
from warmgp.kernels import get_kernel
from warmgp.solvers import Solver

KERNEL = get_kernel("matern32")


def operator(n: int = 60, d: int = 2, dtype: torch.dtype = torch.float64) -> tuple[DenseOperator, torch.Tensor]:
    x, y = toy(n, d)
    return DenseOperator(x.to(dtype), KERNEL, Hyperparameters.ones(d)), y.to(dtype)


def options(
    solver: Solver | None = None, gradient: GradientEstimator | None = None, **changes: object
) -> TrainingOptions:
    base = TrainingOptions(solver or ConjugateGradients(20), gradient or Pathwise(8, 200), n_steps=6, n_features=200)
    return replace(base, **changes)  # type: ignore[arg-type]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
