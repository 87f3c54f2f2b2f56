"""The truth of a trend, written apart from the library: dense universal kriging in float64, in the user's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_truth import h_matrix, kernel_matrix


def monomials(X: np.ndarray, kind: str | Sequence[int]) -> np.ndarray:
    """The trend's columns in the user's units: 1, the inputs, then their squares and products."""
    d = X.shape[1]
    columns = range(d) if isinstance(kind, str) else kind
    made = [np.ones(len(X))]
    if kind != "constant":
        made += [X[:, j] for j in columns]
    if kind == "quadratic":
        made += [X[:, i] * X[:, j] for i in range(d) for j in range(i, d)]
    return np.column_stack(made)


@dataclass(frozen=True)
class Kriging:
    """What dense universal kriging says: coefficients, mean and latent covariance at new points."""

    coefficients: np.ndarray
    covariance: np.ndarray  # of the coefficients
    mean: np.ndarray
    latent: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(np.diag(self.latent))


def kriging(
    name: str, X: np.ndarray, y: np.ndarray, new: np.ndarray, T: np.ndarray, t: np.ndarray, vector: np.ndarray
) -> Kriging:
    """Universal kriging at θ = [noise, signal, lengths…] in the units of X and y; T (n, p) and t (m, p) are the trend.

    By the bordered system [[H, T], [Tᵀ, 0]], which knows nothing of residuals or of A.
    """
    n, p = T.shape
    theta = torch.as_tensor(vector)
    x, x_new = torch.as_tensor(X), torch.as_tensor(new)
    scale = np.abs(T).max(0)  # for the condition of the system alone
    border = np.zeros((n + p, n + p))
    border[:n, :n] = h_matrix(name, x, theta).numpy()
    border[:n, n:], border[n:, :n] = T / scale, (T / scale).T
    cross = kernel_matrix(name, x, x_new, theta[1], theta[2:]).numpy()
    right = np.vstack([cross, (t / scale).T])
    solved = np.linalg.solve(border, np.column_stack([np.append(y, np.zeros(p)), right]))
    prior = kernel_matrix(name, x_new, x_new, theta[1], theta[2:]).numpy()
    inverse = np.linalg.inv(border)
    return Kriging(
        solved[n:, 0] / scale,
        -inverse[n:, n:] / np.outer(scale, scale),
        right.T @ solved[:, 0],
        prior - right.T @ solved[:, 1:],
    )


def in_user_units(model: Any) -> np.ndarray:
    """A fitted model's θ = [noise, signal, lengths…] in the units of X and y."""
    theta, scaler = model.hyperparameters_, model.scaler_
    lengths = theta.length_scales.numpy() * scaler.x_scale
    return np.array([float(theta.noise_scale), float(theta.signal_scale), *lengths]) * np.array(
        [scaler.y_scale, scaler.y_scale, *np.ones(len(lengths))]
    )


def profile_likelihood(name: str, x: Tensor, y: Tensor, T: Tensor, vector: Tensor) -> Tensor:
    """max over β of log N(y | Tβ, H(θ)), differentiable in θ."""
    H = h_matrix(name, x, vector)
    solved = torch.linalg.solve(H, T)
    left = y - T @ torch.linalg.solve(T.T @ solved, solved.T @ y)
    return torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance_matrix=H).log_prob(left)
