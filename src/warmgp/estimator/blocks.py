"""Averages of the field over groups of points: block kriging.

The average over a group is a linear function of the field, so its posterior is normal, too:

    mean  = 1/m Σ_i μ(x_i),        variance = 1/m² Σ_i Σ_k C(x_i, x_k),

with μ and C the posterior's mean and covariance without noise. A model that is exact has C; of any other the variance
is that of its posterior functions, averaged over the group: 1/s Σ_j (mean_i f_j(x_i) − mean)².
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warmgp.data.arrays import to_numpy
from warmgp.data.grids import CHUNK_ROWS, chunks
from warmgp.posterior import Posterior

FloatArray = NDArray[np.float64]

TOGETHER = 1024
"""The most points whose covariance is made at once; a larger group is taken by pairs of parts."""


class Field(Protocol):
    """Answers for a fitted model, in the user's units: what averages are made of."""

    posterior_: Posterior
    target_names_: tuple[str, ...]

    def of_target(self, which: int) -> Any:
        """Returns the model of one of several targets."""

    def predict(self, X: Any, return_std: bool = ..., return_cov: bool = ..., include_noise: bool = ...) -> Any:
        """Returns mean, and covariance where asked."""

    def sample_y(self, X: Any, n_samples: int = ..., random_state: int | None = ...) -> Any:
        """Returns posterior functions, (m, n_samples)."""


def group_averages(model: Field, X: ArrayLike, groups: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Returns mean and std of the field's average over each group of rows of X, in the order of the sorted labels:
    (groups,), or (groups, q) of q targets."""
    if q := len(model.target_names_):
        each = [group_averages(model.of_target(j), X, groups) for j in range(q)]
        return np.stack([mean for mean, _ in each], 1), np.stack([std for _, std in each], 1)
    rows: Any = X if hasattr(X, "shape") else np.asarray(X)
    labels, inverse = _labels(groups, len(rows))
    order = np.argsort(inverse, kind="stable")
    sizes = np.bincount(inverse, minlength=len(labels))
    if model.posterior_.exact:
        return _exact(model, rows, order, sizes)
    return _sampled(model, rows, order, np.repeat(np.arange(len(labels)), sizes), sizes)


def _labels(groups: ArrayLike, n: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Returns the sorted different labels, and of each row the number of its label."""
    given = np.asarray(to_numpy(groups))
    if given.shape != (n,):
        raise ValueError(f"groups must be one label for each of the {n} rows of X, got shape {given.shape}")
    blank = given != given if given.dtype.kind in "fO" else np.zeros(n, dtype=bool)
    if np.any(blank) or any(label is None for label in given if given.dtype.kind == "O"):
        raise ValueError("groups has a label that is missing (NaN or None): name a group for every row")
    try:
        labels, inverse = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups has labels that cannot be sorted ({error}): use numbers or texts alone") from error
    return labels, inverse.reshape(n)


def _take(X: Any, rows: NDArray[np.intp]) -> Any:
    """Returns rows of an array, a tensor or a data frame as what it is: names and whole numbers stay."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _exact(model: Field, X: Any, order: NDArray[np.intp], sizes: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
    """Returns mean and std from the exact covariance; small groups share one, of several groups at once."""
    mean, variance = np.empty(len(sizes)), np.empty(len(sizes))
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        begin = ends[first] - sizes[first]
        last = max(first + 1, int(np.searchsorted(ends, begin + TOGETHER, side="right")))
        rows = order[begin : ends[last - 1]]
        if len(rows) > TOGETHER:
            mean[first], variance[first] = _large(model, X, rows)
        else:
            starts = ends[first:last] - sizes[first:last] - begin
            centre, covariance = (to_numpy(a) for a in _with_covariance(model, X, rows))
            mean[first:last] = np.add.reduceat(centre, starts) / sizes[first:last]
            square = np.add.reduceat(np.add.reduceat(covariance, starts, 0), starts, 1)  # summed group by group
            variance[first:last] = np.diagonal(square) / sizes[first:last].astype(np.float64) ** 2
        first = last
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _large(model: Field, X: Any, rows: NDArray[np.intp]) -> tuple[float, float]:
    """Returns mean and variance of one group whose covariance is too large to hold: the sum over pairs of its parts."""
    parts = [rows[start:stop] for start, stop in chunks(len(rows), TOGETHER // 2)]
    centre = total = 0.0
    for i, part in enumerate(parts):
        values, own = (to_numpy(a) for a in _with_covariance(model, X, part))
        centre, total = centre + float(values.sum()), total + float(own.sum())
        for other in parts[:i]:
            _, both = _with_covariance(model, X, np.concatenate([part, other]))
            total += 2 * float(to_numpy(both)[: len(part), len(part) :].sum())
    return centre / len(rows), total / float(len(rows)) ** 2


def _with_covariance(model: Field, X: Any, rows: NDArray[np.intp]) -> Any:
    return model.predict(_take(X, rows), return_cov=True, include_noise=False)


def _sampled(
    model: Field, X: Any, order: NDArray[np.intp], group: NDArray[np.intp], sizes: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray]:
    """Returns mean and std by the posterior functions of the model, in chunks of rows."""
    s = model.posterior_.n_samples
    sums = np.zeros((len(sizes), 1 + s))  # of the mean and of each function
    for start, stop in chunks(len(order), CHUNK_ROWS):
        part = _take(X, order[start:stop])
        values = np.column_stack([to_numpy(model.predict(part)), to_numpy(model.sample_y(part, s))])
        here, first = np.unique(group[start:stop], return_index=True)  # sorted: each group is one stretch
        sums[here] += np.add.reduceat(values, first, 0)
    averages = sums / sizes[:, None]
    return averages[:, 0], np.sqrt(np.mean((averages[:, 1:] - averages[:, :1]) ** 2, 1))
