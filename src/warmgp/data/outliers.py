"""Single values that rule a column: what is left of its spread without them is next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

MOST_ROWS, SHARE, APART, INPUTS_APART = 3, 0.9, 10.0, 100.0
"""How many values may rule a column together; the share of its sum of squares that they have; and how many times
further out than all others they are, in a target and in an input. Heavy tails have no such gap, but inputs that are
hardly ever anything but zero do: up to 60 times in 100 rows of *pol* and *houseelectric*."""


@dataclass(frozen=True)
class Outliers:
    """Holds the rows of a column, counted from 0, whose values rule it, the values, and how far out they are.

    Attributes
    ----------
    rows, values : tuple
        The furthest out first.
    usual : (float, float)
        The least and the largest of all other values.
    times : float
        How many times the standard deviation is smaller without them.
    """

    rows: tuple[int, ...]
    values: tuple[float, ...]
    usual: tuple[float, float]
    times: float


def outliers(column: FloatArray, apart: float = APART) -> Outliers | None:
    """Returns the values that rule a column, (n,), ``apart`` times further out than all others; None where there are
    none.

    A column of which all other values are the same has none: that is how an indicator of something rare looks.
    """
    n = len(column)
    if n < 10 * MOST_ROWS:
        return None
    largest = float(np.abs(column).max())
    if not 0 < largest < np.inf:
        return None
    given, column = column, column / largest
    from_mean = np.square(column - column.mean())
    if from_mean.max() < 0.1 * from_mean.sum():  # 0.9/3, less what the mean has moved
        return None
    away = np.abs(column - np.median(column))
    order = np.argsort(-away, kind="stable")[: MOST_ROWS + 1]
    squares = np.square(away)
    for count in range(1, MOST_ROWS + 1):
        out, rest = order[:count], away[order[count]]
        if rest > 0 and away[out[-1]] >= apart * rest and squares[out].sum() >= SHARE * squares.sum():
            spread, kept = float(np.delete(column, out).std()), np.delete(given, out)
            times = float(column.std()) / spread if spread > 0 else float("inf")
            return Outliers(
                tuple(map(int, out)), tuple(map(float, given[out])), (float(kept.min()), float(kept.max())), times
            )
    return None


def outliers_of(X: FloatArray, names: Sequence[str | int]) -> list[tuple[str | int, Outliers]]:
    """Returns the columns of X, (n, d), that few values rule, by name."""
    found = [(names[j], outliers(X[:, j], INPUTS_APART)) for j in range(X.shape[1])]
    return [(name, one) for name, one in found if one is not None]
