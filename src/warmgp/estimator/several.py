"""Several targets in one fit: what cannot be had with them, and the patterns of rows in which their values are known.

Targets whose values are known in the same rows form a pattern. They share these rows, hence H, and are solved for
together. Hyperparameters come from the pattern with the most values; every other pattern has one solve of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warmgp.posterior import Posterior

if TYPE_CHECKING:
    from warmgp.estimator.prepare import TrainingData

FloatArray = NDArray[np.float64]

MOST_PATTERNS = 8
"""The most patterns of missing values: each has a matrix H and solves of its own."""

APART = "fit the targets apart, one model for each"
"""The remedy for what several targets cannot have."""


@dataclass(frozen=True)
class Pattern:
    """Holds targets that are known in rows of their own, and their posterior.

    Attributes
    ----------
    which : tuple of int
        The numbers of the targets.
    posterior : Posterior
        The model's kernel, hyperparameters and inputs, given these rows.
    rows : ndarray of int, (n,)
        The numbers of the rows in the user's X.
    y : ndarray, (n,), or (n, k) for k targets
        Their values, in the user's units.
    """

    which: tuple[int, ...]
    posterior: Posterior
    rows: NDArray[np.int64]
    y: FloatArray


def check_several(model: Any, names: Sequence[str], y: FloatArray, noise_variance: ArrayLike | None) -> None:
    """Raises where several targets are given with what only one can have, or with values missing here and there."""
    if not names:
        return
    for j, name in enumerate(names):
        if name in names[:j]:
            raise ValueError(f"y has two columns {name!r}: give each target a name of its own")
    told = f"y has {len(names)} targets, and"
    if model.robust:
        raise ValueError(f"{told} robust=True weighs the rows of one: {APART}, or use robust=False")
    if noise_variance is not None:
        raise ValueError(
            f"{told} noise_variance is in the units of one: each would have a kernel matrix of its own. {APART}"
        )
    lack = np.isnan(y)
    if not lack.any():
        return
    count = len(np.unique(lack, axis=1).T)
    if count > MOST_PATTERNS:
        raise ValueError(
            f"{told} their values are missing in {count} different sets of rows, each of which needs solves of its own "
            f"(at most {MOST_PATTERNS}): fill in values, leave out rows where some are missing, or {APART}"
        )
    if model.trend is not None:
        raise ValueError(f"{told} some values are missing, which trend={model.trend!r} does not allow: {APART}")


def any_value(y: FloatArray, sample_weight: ArrayLike | None) -> Any:
    """Returns weights of rows that leave out those in which no target has a value; the given ones where there are
    none such."""
    if y.ndim == 1 or not (nothing := np.isnan(y).all(1)).any():
        return sample_weight
    if sample_weight is None:
        return (~nothing).astype(np.float64)
    weights = np.array(sample_weight, dtype=np.float64)
    return np.where(nothing, 0.0, weights) if weights.shape == nothing.shape else weights


def by_pattern(data: TrainingData) -> tuple[TrainingData, tuple[TrainingData, ...]]:
    """Returns the data of the pattern with the most values, from which hyperparameters are learned, and of the others.

    Of as many values the first target's pattern counts. Without missing values all is one pattern.
    """
    if data.y.ndim == 1 or not np.isnan(data.y).any():
        return data, ()
    known, found = ~np.isnan(data.y), {}
    for j in data.which:
        found.setdefault(known[:, j].tobytes(), []).append(j)
    patterns = [_of_pattern(data, tuple(which)) for which in found.values()]
    patterns.sort(key=lambda one: -one.y.size)
    return patterns[0], tuple(patterns[1:])


def _of_pattern(data: TrainingData, which: tuple[int, ...]) -> TrainingData:
    """Returns the rows in which these targets are known, with these alone."""
    rows = np.flatnonzero(~np.isnan(data.y[:, which[0]]))
    columns = which[0] if len(which) == 1 else list(which)

    def own(values: FloatArray) -> FloatArray:
        return np.ascontiguousarray(values[rows][:, columns])

    held_out = data.held_out and (data.held_out[0], np.ascontiguousarray(data.held_out[1][:, columns]))
    return replace(
        data, x=data.x[rows], y=own(data.y), held_out=held_out, said=data.said.at(rows), rows=data.rows[rows],
        y_given=own(data.y_given), which=which,
    )  # fmt: skip


def told_of_patterns(names: Sequence[str], first: TrainingData, others: Sequence[TrainingData]) -> str:
    """Says from which rows hyperparameters come where values are missing; "" where none are."""
    if not others:
        return ""
    own = ", ".join(repr(names[j]) for j in first.which)
    rest = "; ".join(f"{', '.join(repr(names[j]) for j in one.which)} in {len(one.x):,}" for one in others)
    return (
        f"Values are missing: hyperparameters come from the {len(first.x):,} rows in which {own} "
        f"{'is' if len(first.which) == 1 else 'are'} known, the most values. Solved for apart, with these: {rest} rows."
    )


def gathered(parts: Sequence[tuple[tuple[int, ...], FloatArray]]) -> FloatArray:
    """Returns what patterns say of their targets, (m,) for one or (m, k, …) each, for all targets in order, (m, q, …)."""
    q = sum(len(which) for which, _ in parts)
    values = [part if len(which) > 1 else part[:, None] for which, part in parts]
    made = np.empty((len(values[0]), q, *values[0].shape[2:]))
    for (which, _), part in zip(parts, values, strict=True):
        made[:, list(which)] = part
    return made
