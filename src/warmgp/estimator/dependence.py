"""Whether residuals depend on something: how much of them, and of their size, groups of rows by it explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from warmgp.data.column_kinds import ColumnKind
from warmgp.estimator.left_out import LeaveOneOut

FloatArray = NDArray[np.float64]

GROUPS, ROWS = 16, 20
"""The most groups that rows are put in by a quantity, and the fewest rows of each, on average."""

LEVEL = 0.001
"""The probability, for all that is looked at together, with which residuals without a pattern are said to have one."""

SHARE_OF_MEAN, SHARE_OF_SIZE = 0.01, 0.02
"""The least shares of the variance of residuals, and of their absolute values, that are worth a word."""

ORDER, PREDICTION = "the order of rows", "the prediction"


@dataclass(frozen=True)
class Dependence:
    """Says how much residuals depend on one thing: an input, the order of rows or the prediction.

    Attributes
    ----------
    name : str
    of_mean : float
        The share of the variance of residuals that groups of rows with near values of it explain; 0 would be right.
    of_size : float
        The same of their absolute values: whether error bars are too small at some values and too large at others.
    mean_seen, size_seen : bool
        Whether that is more than chance, and enough to matter.
    kind : ColumnKind or None
        What the columns were said to be; None for plain numbers, and for what is no column.
    period : int
        The number of values of a plain column of consecutive whole numbers, a month say: it may repeat; else 0.
    """

    name: str
    of_mean: float
    of_size: float
    mean_seen: bool
    size_seen: bool
    kind: ColumnKind | None = None
    period: int = 0


def dependences(model: Any, loo: LeaveOneOut) -> tuple[Dependence, ...]:
    """Returns what the residuals depend on of all that a model knows, in its order."""
    things = [
        *_things(model),
        (ORDER, loo.rows[:, None].astype(float), None, 0),
        (PREDICTION, loo.mean[:, None], None, 0),
    ]
    size, level = np.abs(loo.residual), LEVEL / (2 * len(things))
    found = []
    for name, values, kind, period in things:
        means = [explained(loo.residual, column) for column in values.T]
        sizes = [explained(size, column) for column in values.T]
        mean, of_size = max(means), max(sizes)
        found.append(
            Dependence(
                name,
                mean[0],
                of_size[0],
                any(share >= SHARE_OF_MEAN and p < level / len(means) for share, p in means),
                any(share >= SHARE_OF_SIZE and p < level / len(sizes) for share, p in sizes),
                kind,
                period,
            )
        )
    return tuple(found)


def _things(model: Any) -> Iterator[tuple[str, FloatArray, ColumnKind | None, int]]:
    """Returns name, inputs (n, k), kind and perhaps period of everything that varies and has a length scale."""
    scaler, columns = model.scaler_, model.scaler_.columns
    x = model.posterior_.x.double().cpu().numpy()
    if scaler.angle:
        x = scaler.turn(x, back=True)
    for name, (_, inputs, kind) in zip(columns.things, columns.groups, strict=True):
        values = x[:, list(inputs)]
        if (values == values[0]).all():
            continue
        period = 0
        if kind is None:
            own = values[:, 0] * scaler.x_scale[inputs[0]] + scaler.x_mean[inputs[0]]
            period = _period(own)
        yield name, values, kind, period


def _period(values: FloatArray) -> int:
    """Returns how many values a column of consecutive whole numbers has, 4 to 366; 0 for any other."""
    different = np.unique(np.round(values, 4))
    whole = 4 <= len(different) <= 366 and np.allclose(different, np.round(different), atol=1e-3)
    return len(different) if whole and np.allclose(np.diff(different), 1.0) else 0


def explained(values: FloatArray, by: FloatArray) -> tuple[float, float]:
    """Returns the share of the variance of values, (n,), that groups of rows by another quantity explain, less what
    chance explains, and the probability of that much by chance alone."""
    n = len(values)
    shares = np.linspace(0, 1, min(GROUPS, n // ROWS) + 1)[1:-1] if n >= 2 * ROWS else np.zeros(0)
    edges = np.unique(np.quantile(by, shares))
    _, group = np.unique(np.searchsorted(edges, by), return_inverse=True)
    k = int(group.max()) + 1
    whole = float(np.sum((values - values.mean()) ** 2))
    if k < 2 or not whole > 0:
        return 0.0, 1.0
    counts, sums = np.bincount(group), np.bincount(group, weights=values)
    between = min(whole, float(np.sum(counts * (sums / counts - values.mean()) ** 2)))
    within = max(whole - between, np.finfo(float).tiny)
    share = 1.0 - (within / whole) * (n - 1) / (n - k)
    return max(0.0, share), float(f_distribution.sf((between / (k - 1)) / (within / (n - k)), k - 1, n - k))


def in_turn(loo: LeaveOneOut) -> float:
    """Returns the correlation of the residual of a row with that of the row before it."""
    r = loo.residual - loo.residual.mean()
    whole = float(r @ r)
    return float(r[1:] @ r[:-1]) / whole if len(r) > 2 and whole > 0 else 0.0
