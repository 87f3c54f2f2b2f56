"""The truth for rows with noise of their own, dense and in float64: H = K + diag(σ²/w + e)."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_truth import kernel_matrix, toy
from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.row_noise import RowNoise

THETA = Hyperparameters.from_vector(torch.tensor([0.3, 1.2, 0.7, 1.1], dtype=torch.float64))


def weights_and_errors(n: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Weights over a factor of 30, and known variances over a factor of 1,000, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    w, e = torch.rand(2, n, dtype=torch.float64, generator=generator)
    e = 1e-3 * 1000**e
    e[::5] = 0.0
    return 0.2 * 30**w, e


def dense_h(name: str, x: Tensor, vector: Tensor, w: Tensor, e: Tensor) -> Tensor:
    """H at θ = [noise, signal, lengths…], differentiable in ``vector``."""
    return kernel_matrix(name, x, x, vector[1], vector[2:]) + torch.diag(vector[0] ** 2 / w + e)


def log_likelihood(name: str, x: Tensor, y: Tensor, vector: Tensor, w: Tensor, e: Tensor) -> Tensor:
    H = dense_h(name, x, vector, w, e)
    return torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance_matrix=H).log_prob(y)


def slope(name: str, x: Tensor, y: Tensor, vector: Tensor, w: Tensor, e: Tensor) -> Tensor:
    """∂L/∂θ by automatic differentiation."""
    vector = vector.clone().requires_grad_()
    return torch.autograd.grad(log_likelihood(name, x, y, vector, w, e), vector)[0]


def posterior(
    name: str, x: Tensor, y: Tensor, x_new: Tensor, vector: Tensor, w: Tensor, e: Tensor
) -> tuple[Tensor, Tensor]:
    """Exact mean and latent variance at x_new."""
    H = dense_h(name, x, vector, w, e)
    cross = kernel_matrix(name, x_new, x, vector[1], vector[2:])
    return cross @ torch.linalg.solve(H, y), vector[1] ** 2 - (cross * torch.linalg.solve(H, cross.T).T).sum(1)


def problem(n: int = 67) -> tuple[Tensor, Tensor, Tensor, Tensor, RowNoise]:
    """x (n, 2), y, w, e (n,) and the same for the library."""
    x, y = toy(n)
    w, e = weights_and_errors(n)
    return x, y, w, e, RowNoise(1 / w, e)
