"""Laws: properties that hypothesis tries to break, with the battery's seed and scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import hypothesis
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hostile.reference import Reference
from warmgp import GPRegressor, Hyperparameters

Array = NDArray[np.float64]
KERNELS = ("matern32", "rbf", "matern12", "matern52")
NEW = 23
"""Points at which a world is predicted."""


def law(*strategies: st.SearchStrategy, examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of a property: so many examples at full scale, drawn with the fixtures ``rng`` and ``scale``."""

    def test_of(holds: Callable[..., None]) -> Callable[..., None]:
        def test(rng: np.random.Generator, scale: float) -> None:
            count = max(3, round(examples * scale))
            settings = hypothesis.settings(
                max_examples=count,
                deadline=None,
                database=None,
                phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            drawn = hypothesis.given(*strategies)(holds)
            settings(hypothesis.seed(int(rng.integers(2**62)))(drawn))()

        test.__name__, test.__doc__, test.__module__ = holds.__name__, holds.__doc__, holds.__module__
        return test

    return test_of


@dataclass(frozen=True)
class World:
    """Data and hyperparameters, in which some rows may repeat and columns be constant, binary or whole numbers."""

    n: int
    d: int
    kernel: str
    noise: float
    signal: float
    length: float
    seed: int
    repeats: bool
    column: str

    @property
    def lengths(self) -> Array:
        return self.length * np.linspace(0.8, 1.5, self.d) * self.d**0.5

    @property
    def theta(self) -> Hyperparameters:
        return Hyperparameters(self.noise, self.signal, self.lengths)

    @property
    def data(self) -> tuple[Array, Array, Array]:
        """Inputs, targets and new inputs."""
        rng = np.random.default_rng(self.seed)
        X, X_new = rng.normal(size=(self.n, self.d)), 1.5 * rng.normal(size=(NEW, self.d))
        if self.column == "constant" and self.d > 1:
            X[:, 0] = X_new[:, 0] = 7.0
        if self.column == "binary":
            X[:, -1] = np.arange(self.n) % 2
        if self.column == "whole":
            X[:, -1] = np.round(3 * X[:, -1])
            X[0, -1], X[1, -1] = 5.0, -5.0
        if self.repeats and self.n > 5:
            X[-(self.n // 3) :] = X[: self.n // 3]
        y = np.sin(2 * X[:, 0]) + X.sum(1) / self.d + 0.3 * rng.normal(size=self.n)
        X_new[:3] = X[rng.integers(self.n, size=3)]
        return X, y, X_new

    def fit(self, X: Array, y: Array, said: dict[str, Array] | None = None, **settings: object) -> GPRegressor:
        """A model at these hyperparameters, which are in standardised units; ``said`` of the noise of rows."""
        options = {"kernel": self.kernel, "init": self.theta, "n_steps": 0, "random_state": self.seed} | settings
        return GPRegressor(**options).fit(X, y, **(said or {}))

    def reference(self, X: Array, y: Array, *, standardize: bool = True) -> Reference:
        return Reference(X, y, self.kernel, self.noise, self.signal, self.lengths, standardize)


def worlds(most: int = 60, least_noise: float = 1e-2) -> st.SearchStrategy[World]:
    return st.builds(
        World,
        n=st.integers(3, most),
        d=st.integers(1, 8),
        kernel=st.sampled_from(KERNELS),
        noise=st.floats(least_noise, 1.0),
        signal=st.floats(0.3, 3.0),
        length=st.floats(0.1, 10.0),
        seed=st.integers(0, 2**31 - 1),
        repeats=st.booleans(),
        column=st.sampled_from(["ordinary", "constant", "binary", "whole"]),
    )
