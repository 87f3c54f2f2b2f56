"""The truth, written apart from the library: dense float64 kernel, marginal likelihood and posterior."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters

PROFILES = {
    "rbf": lambda r: torch.exp(-0.5 * r**2),
    "matern12": lambda r: torch.exp(-r),
    "matern32": lambda r: (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r),
    "matern52": lambda r: (1 + math.sqrt(5) * r + 5 / 3 * r**2) * torch.exp(-math.sqrt(5) * r),
}


def kernel_matrix(name: str, a: Tensor, b: Tensor, signal: Tensor, lengths: Tensor) -> Tensor:
    """K(a, b) with a square root that is safe for autograd at zero distance."""
    square = ((a[:, None] - b[None]) / lengths).square().sum(-1)
    safe = torch.where(square > 0, square, torch.ones_like(square))
    r = torch.where(square > 0, safe.sqrt(), torch.zeros_like(square))
    return signal**2 * PROFILES[name](r)


def h_matrix(name: str, x: Tensor, vector: Tensor) -> Tensor:
    """H at θ = [noise, signal, lengths…], differentiable in ``vector``."""
    eye = torch.eye(x.shape[0], dtype=x.dtype)
    return kernel_matrix(name, x, x, vector[1], vector[2:]) + vector[0] ** 2 * eye


def log_marginal_likelihood(name: str, x: Tensor, y: Tensor, vector: Tensor) -> Tensor:
    H = h_matrix(name, x, vector)
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance_matrix=H)
    return normal.log_prob(y)


def derivatives(name: str, x: Tensor, theta: Hyperparameters) -> list[Tensor]:
    """∂H/∂θ_k as dense matrices, in the order of ``theta.vector``."""
    jacobian = torch.autograd.functional.jacobian(lambda v: h_matrix(name, x, v), theta.vector)
    return list(jacobian.unbind(-1))


def posterior(name: str, x: Tensor, y: Tensor, x_new: Tensor, theta: Hyperparameters) -> tuple[Tensor, Tensor]:
    """Exact mean and latent covariance at x_new."""
    H = h_matrix(name, x, theta.vector)
    cross = kernel_matrix(name, x_new, x, theta.signal_scale, theta.length_scales)
    prior = kernel_matrix(name, x_new, x_new, theta.signal_scale, theta.length_scales)
    return cross @ torch.linalg.solve(H, y), prior - cross @ torch.linalg.solve(H, cross.T)


def toy(n: int = 60, d: int = 2, *, noise: float = 0.2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A smooth function of a few inputs plus noise, float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=torch.float64, generator=generator)
    y = torch.sin(2 * x[:, 0]) + 0.3 * x.sum(1) + noise * torch.randn(n, dtype=torch.float64, generator=generator)
    return x, (y - y.mean()) / y.std()


def exact_prediction(
    X: np.ndarray, y: np.ndarray, X_new: np.ndarray, name: str, vector: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Exact mean and predictive std in the units of y, at θ in standardised units, from inputs as they come, (m,) each.

    Offsets are subtracted first, which is exact for float64 numbers of one size.
    """
    centred, new = X - X[0], X_new - X[0]
    mean, scale = centred.mean(0), centred.std(0)
    x, x_new = (torch.tensor((values - mean) / scale) for values in (centred, new))
    theta = Hyperparameters.from_vector(torch.tensor(vector))
    centre, covariance = posterior(name, x, torch.tensor((y - y.mean()) / y.std()), x_new, theta)
    std = (covariance.diagonal().clamp_min(0) + theta.noise_scale**2).sqrt()
    return y.mean() + y.std() * centre.numpy(), y.std() * std.numpy()
