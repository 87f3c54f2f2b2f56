"""The patterns of rows in which several targets are known: from which hyperparameters come, and what is solved apart.

Targets whose values are known in the same rows form a pattern. They share these rows, hence H, and are solved for
together. Hyperparameters come from the pattern with the most values; every other pattern has one solve of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from warmgp.estimator.prepare import TrainingData

FloatArray = NDArray[np.float64]


def by_pattern(data: TrainingData) -> tuple[TrainingData, tuple[TrainingData, ...]]:
    """Returns the data of the pattern with the most values, from which hyperparameters are learned, and of the others.

    Of as many values the first target's pattern counts. Without missing values all is one pattern.
    """
    if data.y.ndim == 1 or not np.isnan(data.y).any():
        return data, ()
    known = ~np.isnan(data.y)
    found: dict[bytes, list[int]] = {}
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
