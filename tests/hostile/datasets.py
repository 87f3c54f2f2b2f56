"""Hostile data sets: a kind of inputs, a kind of targets, and settings, all drawn with one generator.

Inputs come in the units and types that people have: int64 nanoseconds, years, one-hot columns, a data frame of several.
What depends on the case number is only its size, so that a run of any length meets every regime of the planner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp import Hyperparameters

Rng = np.random.Generator
Array = NDArray[Any]

INPUTS: dict[str, Callable[[Rng, int, int], Any]] = {}
TARGETS: dict[str, Callable[[Rng, Array], Array]] = {}
EXTREME_UNITS = {"tiny_units", "huge_units"}
"""Inputs that a fit may refuse, naming the column."""

LARGE_FROM = 322
"""From this case on there are thousands of points more: minutes, for a full run only."""


def inputs(make: Callable[[Rng, int, int], Any]) -> Callable[[Rng, int, int], Any]:
    INPUTS[make.__name__] = make
    return make


def targets(make: Callable[[Rng, Array], Array]) -> Callable[[Rng, Array], Array]:
    TARGETS[make.__name__] = make
    return make


def log_uniform(rng: Rng, low: float, high: float, size: Any = None) -> Any:
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


# -- inputs ----------------------------------------------------------------------------------------------------------
@inputs
def normal(rng: Rng, n: int, d: int) -> Array:
    return rng.normal(size=(n, d))


@inputs
def uniform(rng: Rng, n: int, d: int) -> Array:
    return rng.uniform(-1.7, 1.7, (n, d))


@inputs
def single_precision(rng: Rng, n: int, d: int) -> Array:
    return rng.uniform(0, 100, (n, d)).astype(np.float32)


@inputs
def heavy_tails(rng: Rng, n: int, d: int) -> Array:
    return rng.standard_t(1.5, (n, d))


@inputs
def outliers(rng: Rng, n: int, d: int) -> Array:
    x = rng.normal(size=(n, d))
    x[rng.integers(n, size=1 + n // 200), rng.integers(d)] *= log_uniform(rng, 1e2, 1e6)
    return x


@inputs
def duplicates(rng: Rng, n: int, d: int) -> Array:
    return rng.normal(size=(n, d))[rng.integers(1 + n // 3, size=n) % n] + 0.0 + (np.arange(n) < 1)[:, None]


@inputs
def near_duplicates(rng: Rng, n: int, d: int) -> Array:
    return duplicates(rng, n, d) + 1e-9 * rng.normal(size=(n, d))


@inputs
def many_scales(rng: Rng, n: int, d: int) -> Array:
    """Clusters whose widths are spread over eight powers of ten."""
    k = 1 + n // 30
    which = rng.integers(k, size=n)
    return rng.normal(size=(k, d))[which] + log_uniform(rng, 1e-8, 1, (k, 1))[which] * rng.normal(size=(n, d))


@inputs
def grid(rng: Rng, n: int, d: int) -> Array:
    d = min(d, 3)
    side = max(2, round(n ** (1 / d)))
    return np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * d), -1).reshape(-1, d)[rng.permutation(side**d)]


@inputs
def sorted_rows(rng: Rng, n: int, d: int) -> Array:
    x = rng.uniform(size=(n, d))
    return x[np.lexsort(x.T)]


@inputs
def collinear(rng: Rng, n: int, d: int) -> Array:
    return rng.normal(size=(n, 1 + d // 3)) @ rng.normal(size=(1 + d // 3, d))


@inputs
def constant_columns(rng: Rng, n: int, d: int) -> Array:
    x = rng.normal(size=(n, d + 2))
    x[:, 0], x[:, -1] = 0.1, -3e7
    return x


@inputs
def binary(rng: Rng, n: int, d: int) -> Array:
    return np.column_stack([rng.integers(0, 2, (n, d)).astype(float), rng.normal(size=n)])


@inputs
def one_hot(rng: Rng, n: int, d: int) -> Array:
    return np.column_stack([np.eye(min(d + 1, 12))[rng.integers(min(d + 1, 12), size=n)], rng.uniform(size=n)])


@inputs
def integers(rng: Rng, n: int, d: int) -> Array:
    x = rng.integers(-20, 20, (n, d))
    x[0] += 1
    return x


@inputs
def unix_seconds(rng: Rng, n: int, d: int) -> Array:
    """Seconds since 1970, over a second to a year; the other columns are ordinary."""
    x = rng.normal(size=(n, min(d, 5)))
    x[:, 0] = 1.7e9 + log_uniform(rng, 1, 3e7) * rng.uniform(size=n)
    return x


@inputs
def nanoseconds(rng: Rng, n: int, d: int) -> Array:
    """int64 beyond 2⁵³, within milliseconds to hours of each other."""
    span = log_uniform(rng, 5e5, 1e12)
    return (1_700_000_000_000_000_000 + (span * rng.uniform(size=(n, min(d, 2)))).astype(np.int64)).astype(np.int64)


@inputs
def recordings(rng: Rng, n: int, d: int) -> Array:
    """Eight short recordings, a year apart."""
    return (3.15e7 * rng.integers(8, size=n) + log_uniform(rng, 1, 1e5) * rng.uniform(size=n))[:, None]


@inputs
def years(rng: Rng, n: int, d: int) -> Array:
    x = rng.normal(size=(n, d))
    x[:, 0] = rng.integers(1950, 2026, n) + rng.integers(0, 12, n) / 12
    return x


@inputs
def tiny_units(rng: Rng, n: int, d: int) -> Array:
    return rng.normal(size=(n, d)) * log_uniform(rng, 1e-150, 1e-20)


@inputs
def huge_units(rng: Rng, n: int, d: int) -> Array:
    return rng.normal(size=(n, d)) * log_uniform(rng, 1e20, 1e150)


@inputs
def mixed_units(rng: Rng, n: int, d: int) -> Array:
    return (rng.normal(size=(n, d)) + rng.normal(size=d) * 100) * log_uniform(rng, 1e-12, 1e12, d)


@inputs
def a_curve(rng: Rng, n: int, d: int) -> Array:
    t = rng.uniform(0, 6, n)
    return np.sin(t[:, None] * rng.uniform(0.2, 2, d) + rng.uniform(0, 6, d))


@inputs
def frame(rng: Rng, n: int, d: int) -> pd.DataFrame:
    """A time stamp in nanoseconds, a measurement, a count and a flag, each in its own type."""
    time = 1_700_000_000_000_000_000 + np.sort(rng.integers(0, int(log_uniform(rng, 1e6, 1e15)), n))
    parts = {"time": time, "level": rng.normal(size=n), "count": rng.integers(0, 9, n), "flag": rng.random(n) < 0.5}
    return pd.DataFrame(parts).astype({"flag": np.int8})


# -- targets ---------------------------------------------------------------------------------------------------------
def waves(rng: Rng, z: Array, fastest: float, count: int = 6) -> Array:
    directions = rng.normal(size=(z.shape[1], count)) / np.sqrt(z.shape[1])
    return np.sin(z @ directions * rng.uniform(0.2, fastest, count) + rng.uniform(0, 6.3, count)) @ rng.normal(
        size=count
    )


@targets
def smooth(rng: Rng, z: Array) -> Array:
    return waves(rng, z, 2.0)


@targets
def linear(rng: Rng, z: Array) -> Array:
    return z @ rng.normal(size=z.shape[1])


@targets
def rough(rng: Rng, z: Array) -> Array:
    return sum(waves(rng, z, 2.0**k, 3) / 2 ** (k / 2) for k in range(10))


@targets
def step(rng: Rng, z: Array) -> Array:
    return (z[:, 0] > rng.uniform(-1, 1)).astype(float)


@targets
def checkerboard(rng: Rng, z: Array) -> Array:
    return np.floor(3 * z[:, : min(2, z.shape[1])]).sum(1) % 2


@targets
def one_spike(rng: Rng, z: Array) -> Array:
    y = np.full(len(z), rng.normal())
    y[rng.integers(len(z))] += rng.choice([-1, 1]) * log_uniform(rng, 1e-3, 1e6)
    return y


@targets
def heavy_noise(rng: Rng, z: Array) -> Array:
    return smooth(rng, z) + 0.3 * rng.standard_t(1.5, len(z))


@targets
def uneven_noise(rng: Rng, z: Array) -> Array:
    return smooth(rng, z) + np.exp(1.5 * np.clip(z[:, 0], -4, 4)) * 0.3 * rng.normal(size=len(z))


@targets
def noise_only(rng: Rng, z: Array) -> Array:
    return rng.normal(size=len(z))


@targets
def counts(rng: Rng, z: Array) -> Array:
    return rng.poisson(np.exp(np.clip(smooth(rng, z), -3, 3))) + (np.arange(len(z)) == 0)


# -- a whole case ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Attack:
    """Data, new points and the estimator's settings; ``name`` says all that a reader needs to make it again."""

    name: str
    X: Any
    y: Array
    X_new: Any
    settings: dict[str, Any]
    may_refuse: bool


def draw(rng: Rng, case: int) -> Attack:
    """The attack of this number."""
    n, d = _size(rng, case)
    kind = str(rng.choice(list(INPUTS)))
    if case >= LARGE_FROM and d > 3:
        kind = str(rng.choice(["normal", "uniform", "collinear", "near_duplicates"]))
    X = INPUTS[kind](rng, n, d)
    n, d = X.shape
    z = standardised(X)
    law = str(rng.choice(list(TARGETS)))
    y = TARGETS[law](rng, z)
    noise = rng.choice([0.0, log_uniform(rng, 1e-4, 1.0)])
    y = y + noise * (y.std() or 1.0) * rng.normal(size=n)
    if np.ptp(y) == 0:  # a step that all points are on one side of
        y[0] += 1.0
    y = y * float(rng.choice([1.0, log_uniform(rng, 1e-6, 1e6)])) + float(rng.choice([0.0, 0.0, 1e3]))
    settings = _settings(rng, case, n, d)
    name = f"{kind} X of {n} x {d}, {law} y with noise {noise:.2g}, {settings}"
    return Attack(name, X, y, new_points(rng, X), settings, kind in EXTREME_UNITS)


def _size(rng: Rng, case: int) -> tuple[int, int]:
    """Points and inputs: few, exact training, exact variances, samples; a few thousand more at the end."""
    if case >= LARGE_FROM:
        return int(rng.integers(6_000, 7_500)), int(rng.choice([1, 2, 3, 8]))
    low, high = ((2, 30), (501, 1_200), (31, 500), (501, 1_600), (2_501, 3_000), (31, 500), (1_200, 2_500))[case % 7]
    return int(rng.integers(low, high + 1)), int(rng.choice([1, 1, 2, 2, 3, 4, 6, 10, 20, 60]))


def _settings(rng: Rng, case: int, n: int, d: int) -> dict[str, Any]:
    """Hyperparameters that are given, a short training, or all defaults where that takes seconds."""
    modes = ["given"] * 5 + ["short"] * 3 + (["default"] * 3 if n <= 300 else [])
    mode = "given" if case >= LARGE_FROM else rng.choice(modes)
    out: dict[str, Any] = {"kernel": str(rng.choice(["matern32", "rbf", "matern12", "matern52"]))}
    out["random_state"] = int(rng.integers(2**31))
    if mode == "default":
        return out
    ard = bool(rng.random() < 0.8)
    out["ard"] = ard
    solvers = ["auto"] * 6 + (["cholesky"] if n <= 2_500 else []) + (["cg", "cg"] if n <= 3_000 else [])
    solvers += (["ap"] * 2 if n <= 1_000 else []) + (["sgd"] if n <= 200 else [])
    out["solver"] = str(rng.choice(solvers))
    out["dtype"] = str(rng.choice(["auto", "auto", "auto", "float32", "float64"]))
    if case >= LARGE_FROM and out["dtype"] == "float32":  # who insists on it may wait minutes for "stagnated"
        out["dtype"] = "auto"
    if out["solver"] in ("ap", "sgd"):
        out["max_epochs"] = float(rng.choice([50.0, 500.0]))
    if out["solver"] in ("cg", "ap") or n > 2_500:  # more samples tell a bias from chance
        out["n_probes"] = 64 if case >= LARGE_FROM else int(rng.choice([64, 256]))
    if mode == "short":
        out["n_steps"] = int(rng.integers(3, 20 if n <= 1_000 else 5))
        return out
    lengths = log_uniform(rng, 0.05, 20, d if ard else 1) * float(rng.choice([1.0, np.sqrt(d)]))
    if rng.random() < 0.5:
        lengths[:] = lengths[0]
    noise, signal = float(log_uniform(rng, 1e-4, 1)), float(log_uniform(rng, 0.3, 3))
    return out | {"n_steps": 0, "init": Given(noise, signal, [float(f"{v:.4g}") for v in lengths])}


class Given(Hyperparameters):
    """Hyperparameters that are shown as one would type them."""

    def __repr__(self) -> str:
        lengths = self.length_scales.tolist()
        shown = f"[{lengths[0]:g}] * {len(lengths)}" if len(set(lengths)) == 1 else str(lengths)
        return f"Hyperparameters({float(self.noise_scale):.4g}, {float(self.signal_scale):.4g}, {shown})"


def _columns(X: Any) -> list[NDArray[np.longdouble]]:
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
    return [table.iloc[:, j].to_numpy().astype(np.longdouble) for j in range(table.shape[1])]


def standardised(X: Any) -> Array:
    parts = [(c - c[0]) / (np.abs(c - c[0]).max() or 1) for c in _columns(X)]
    return np.stack([((p - p.mean()) / (p.std() or 1)).astype(float) for p in parts], 1)


EACH = 40
PARTS = {
    "at training points": slice(0, 2 * EACH),
    "near them": slice(2 * EACH, 4 * EACH),
    "between them": slice(4 * EACH, 5 * EACH),
    "in their box": slice(5 * EACH, 6 * EACH),
    "outside": slice(6 * EACH, 7 * EACH),
}
"""Which of the new points are where."""


def new_points(rng: Rng, X: Any) -> Any:
    """Where to predict: at training points, near them, between them, in their box, outside it, far away."""
    columns, each = _columns(X), EACH
    n, shape = len(X), (2 * each, len(columns))
    first, second, third = rng.integers(n, size=2 * each), rng.integers(n, size=each), rng.integers(n, size=each)
    jitter = rng.normal(size=shape) * log_uniform(rng, 1e-5, 0.1, (2 * each, 1))
    share, sign = rng.uniform(size=(each, len(columns))), rng.choice([-1.0, 1.0], (each, len(columns)))
    away = np.where(np.arange(each) % 2, rng.uniform(0.6, 4, each), log_uniform(rng, 4, 1e3, each))
    new = []
    for j, column in enumerate(columns):
        low, high = column.min(), column.max()
        spread = (column - column[0]).std()
        new.append(
            np.concatenate([
                column[first],
                column[first] + spread * jitter[:, j],
                column[second] + (column[third] - column[second]) / 2,
                low + (high - low) * share[:, j],
                low + (high - low) * (0.5 + sign[:, j] * away),
            ])
        )  # fmt: skip
    if isinstance(X, pd.DataFrame):
        return pd.DataFrame({name: _cast(new[j], X[name].dtype) for j, name in enumerate(X.columns)})
    return np.stack([_cast(column, X.dtype) for column in new], 1)


def _cast(column: NDArray[np.longdouble], dtype: Any) -> Array:
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return np.clip(np.round(column), limits.min, limits.max).astype(dtype)
    return column.astype(dtype)
