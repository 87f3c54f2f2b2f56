"""Data made up from a known truth, without files.

:func:`surface` is a two-dimensional surface whose truth is known everywhere; :func:`gp_sample` an exact draw from a
Gaussian-process prior whose hyperparameters are known. Both are also found in :mod:`warmgp.data.datasets`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from warmgp.checks import check_count
from warmgp.kernels import get_kernel

__all__ = ["gp_sample", "surface"]

FloatArray = NDArray[np.float64]

#: Heights, centres and widths of the bumps of the surface: broad hills, a pit and one narrow peak.
_BUMPS = (
    (1.2, (-0.45, 0.40), 0.30),
    (-1.0, (0.40, -0.35), 0.25),
    (0.7, (0.55, 0.60), 0.20),
    (0.8, (-0.30, -0.65), 0.12),
)


def _surface(X: ArrayLike) -> FloatArray:
    """Returns the noise-free test surface, (m,), at points X, (m, 2)."""
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"X must have shape (m, 2); got {X.shape}")
    f = 0.3 * np.sin(4.0 * X[:, 0] + 2.0 * X[:, 1] ** 2)
    for height, centre, width in _BUMPS:
        f += height * np.exp(-((X - centre) ** 2).sum(axis=1) / (2.0 * width**2))
    return f


def surface(
    n: int = 5000, noise: float = 0.1, seed: int = 0
) -> tuple[FloatArray, FloatArray, Callable[[ArrayLike], FloatArray]]:
    """Draws noisy observations of a smooth surface over the square [−1, 1] × [−1, 1].

    It is a bent wave with hills, a pit and a narrow peak: enough structure to see whether a fit is right, few enough
    dimensions to draw it, and a truth to compare with.

    Parameters
    ----------
    n : int, default 5000
        Number of observations, uniform over the square.
    noise : float, default 0.1
        Standard deviation of the Gaussian noise; the surface itself spans about −0.7 to 0.9.
    seed : int, default 0
        Seed of the locations and the noise.

    Returns
    -------
    X : ndarray of shape (n, 2)
        Locations.
    y : ndarray of shape (n,)
        Noisy observations.
    f_true : callable
        Maps locations of shape (m, 2) to the noise-free values of shape (m,).
    """
    check_count("n", n)
    noise = _noise(noise)
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, 2))
    return X, _surface(X) + noise * rng.standard_normal(n), _surface


_MAX_DENSE = 5000
#: The least value added to the kernel's diagonal: without it a smooth kernel of thousands of points is not numerically
#: positive definite. It stands for noise of standard deviation 3e-5.
_JITTER = 1e-9


def gp_sample(
    n: int,
    d: int,
    *,
    kernel: str = "matern32",
    noise: float = 0.1,
    length_scale: float | ArrayLike = 1.0,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray]:
    """Draws a dataset from a Gaussian-process prior, so that the true hyperparameters are known.

    The draw is exact (a Cholesky factor of the full covariance), not by random features: it can serve to judge
    methods that use random features. The signal scale is one.

    Parameters
    ----------
    n : int
        Number of observations, at most 5,000: the covariance is dense.
    d : int
        Number of inputs; they are standard normal.
    kernel : {"matern32", "rbf", "matern12", "matern52"}
        Covariance of the prior.
    noise : float, default 0.1
        Standard deviation of the Gaussian noise. Variances below 1e-9 are raised to that, for the factorisation.
    length_scale : float or array-like of shape (d,), default 1.0
        One length scale for all inputs, or one each.
    seed : int, default 0
        Seed of inputs, function and noise.

    Returns
    -------
    X : ndarray of shape (n, d)
        Inputs.
    y : ndarray of shape (n,)
        Noisy values of the drawn function.
    """
    check_count("n", n)
    check_count("d", d)
    noise = _noise(noise)
    if n > _MAX_DENSE:
        raise ValueError(f"n must be at most {_MAX_DENSE}, since an exact draw factorises an n x n matrix; got {n}")
    profile = get_kernel(kernel).profile
    scales = np.asarray(length_scale, dtype=np.float64)
    if scales.shape not in {(), (d,)} or not np.all((scales > 0) & np.isfinite(scales)):
        raise ValueError(f"length_scale must be positive and finite, one number or {d} of them; got {scales.tolist()}")

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    Z = X / scales
    squares = (Z**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2.0 * (Z @ Z.T), 0.0))
    np.fill_diagonal(distances, 0.0)  # the expanded square leaves rounding there, and its root is not small
    covariance = profile(torch.from_numpy(distances)).numpy()
    covariance[np.diag_indices(n)] += max(noise**2, _JITTER)
    # One factor of kernel plus noise: the sum of function and noise has exactly this covariance.
    return X, np.linalg.cholesky(covariance) @ rng.standard_normal(n)


def _noise(noise: float) -> float:
    """Returns a noise standard deviation; raises unless it is finite and not negative."""
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise is a standard deviation: it must be finite and not negative; got {noise}")
    return float(noise)
