"""An exact Gaussian process in numpy and scipy, float64, written apart from the library.

It starts at the inputs as they were given. A column less its mean, over its standard deviation, is held as the sum of
two float64 numbers, computed in long double, so that time stamps in nanoseconds lose nothing; distances are plain
differences of those. A mean has the doubt that rounding in float64 leaves it with, so that a comparison knows what it
may ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular

Array = NDArray[np.float64]
EPS = np.finfo(np.float64).eps

PROFILES = {
    "rbf": lambda r: np.exp(-0.5 * r * r),
    "matern12": lambda r: np.exp(-r),
    "matern32": lambda r: (1.0 + math.sqrt(3.0) * r) * np.exp(-math.sqrt(3.0) * r),
    "matern52": lambda r: (1.0 + math.sqrt(5.0) * r + 5.0 / 3.0 * r * r) * np.exp(-math.sqrt(5.0) * r),
}


def columns_of(X: object) -> list[NDArray[np.longdouble]]:
    """The columns of an array or a data frame in long double, which holds every int64."""
    if hasattr(X, "iloc"):
        return [X.iloc[:, j].to_numpy().astype(np.longdouble) for j in range(X.shape[1])]
    return [column.astype(np.longdouble) for column in np.asarray(X).T]


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of some numbers, in long double; a constant has scale 1."""

    mean: np.longdouble
    scale: np.longdouble

    @classmethod
    def of(cls, values: NDArray[np.longdouble]) -> Scale:
        first = values[0]  # a constant column has its own value as the mean, to the last bit
        mean = first + (values - first).mean()
        unit = np.abs(values - mean).max()
        return cls(mean, unit * np.sqrt((((values - mean) / unit) ** 2).mean()) if unit > 0 else np.longdouble(1))

    def standard(self, values: NDArray[np.longdouble]) -> tuple[Array, Array]:
        """(value − mean)/scale as the sum of two float64 numbers."""
        exact = (values - self.mean) / self.scale
        high = exact.astype(np.float64)
        return high, (exact - high).astype(np.float64)


@dataclass(frozen=True)
class Answer:
    """Exact predictions in standardised units: mean, latent std, and what rounding may have done to the mean."""

    mean: Array
    latent: Array
    doubt: Array


class Reference:
    """The posterior of given data at given hyperparameters, which are in standardised units.

    ``lengths`` are one per column, or one for all. With ``standardize=False`` the data are used as they are.
    """

    def __init__(
        self,
        X: object,
        y: Array,
        kernel: str,
        noise: float,
        signal: float,
        lengths: Sequence[float],
        standardize: bool = True,
    ) -> None:
        columns = columns_of(X)
        asis = Scale(np.longdouble(0), np.longdouble(1))
        self.scales = [Scale.of(column) if standardize else asis for column in columns]
        self.target = Scale.of(np.asarray(y).astype(np.longdouble)) if standardize else asis
        self.y = self.target.standard(np.asarray(y).astype(np.longdouble))[0]
        self.profile = PROFILES[kernel]
        self.noise, self.signal = float(noise), float(signal)
        self.lengths = np.broadcast_to(np.asarray(lengths, np.float64), (len(columns),))
        self.z = self._standard(columns)
        self.n = len(self.y)

    def _standard(self, columns: list[NDArray[np.longdouble]]) -> list[tuple[Array, Array]]:
        return [scale.standard(column) for scale, column in zip(self.scales, columns, strict=True)]

    def _kernel(self, a: list[tuple[Array, Array]], b: list[tuple[Array, Array]]) -> Array:
        """signal² k(|a − b|/length) by differences, column after column."""
        square = np.zeros((len(a[0][0]), len(b[0][0])))
        for (high_a, low_a), (high_b, low_b), length in zip(a, b, self.lengths, strict=True):
            difference = high_a[:, None] - high_b
            if low_a.any() or low_b.any():
                difference += low_a[:, None] - low_b
            difference /= length
            with np.errstate(over="ignore", under="ignore"):  # far beyond any length: k is zero
                square += np.square(difference, out=difference)
        with np.errstate(under="ignore", invalid="ignore"):
            k = self.signal**2 * self.profile(np.sqrt(square))
        return np.where(np.isfinite(square), k, 0.0)

    @cached_property
    def H(self) -> Array:
        return self._kernel(self.z, self.z) + self.noise**2 * np.eye(self.n)

    @cached_property
    def factor(self) -> Array:
        return cholesky(self.H, lower=True)

    def solve(self, b: Array) -> Array:
        """H⁻¹b, refined twice."""
        v = cho_solve((self.factor, True), b)
        for _ in range(2):
            v += cho_solve((self.factor, True), b - self.H @ v)
        return v

    @cached_property
    def v(self) -> Array:
        return self.solve(self.y)

    def residual(self, v: Array) -> float:
        """|y − Hv|/|y| of anyone's solution."""
        return float(np.linalg.norm(self.y - self.H @ v) / np.linalg.norm(self.y))

    def predict(self, X_new: object) -> Answer:
        cross = self._kernel(self._standard(columns_of(X_new)), self.z)  # (m, n)
        half = solve_triangular(self.factor, cross.T, lower=True, overwrite_b=False)
        variance = np.maximum(self.signal**2 - np.square(half).sum(0), 0.0)
        entries = 4 * EPS * np.sqrt(np.square(self.H) @ np.square(self.v))  # rounding of the entries of H, in Hv
        weights = solve_triangular(self.factor, half, lower=True, trans="T")  # H⁻¹ k, (n, m)
        doubt = 4 * np.sqrt(np.square(weights).T @ np.square(entries))
        return Answer(cross @ self.v, np.sqrt(variance), doubt)

    def covariance(self, X_new: object) -> Array:
        """The latent covariance, (m, m)."""
        z = self._standard(columns_of(X_new))
        half = solve_triangular(self.factor, self._kernel(z, self.z).T, lower=True)
        return self._kernel(z, z) - half.T @ half

    def log_likelihood(self) -> float:
        half = solve_triangular(self.factor, self.y, lower=True)
        return float(-0.5 * half @ half - np.log(np.diagonal(self.factor)).sum() - 0.5 * self.n * math.log(2 * math.pi))

    # -- the units of the data ----------------------------------------------------------------------------------------
    def standard_mean(self, mean: Array) -> Array:
        """A mean in the units of y, standardised."""
        high, low = self.target.standard(np.asarray(mean).astype(np.longdouble))
        return high + low

    def standard_std(self, std: Array) -> Array:
        return (np.asarray(std).astype(np.longdouble) / self.target.scale).astype(np.float64)

    @property
    def rounding(self) -> float:
        """What the digits of float64 leave open of a mean in the units of y, standardised."""
        return float(4 * EPS * (abs(self.target.mean) / self.target.scale + np.abs(self.y).max()))
