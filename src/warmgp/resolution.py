"""Whether float32 can tell the inputs apart.

A float32 number near x is known to ε|x|, so points closer than about 10⁻⁷ of the spread of all become one. That is
harmless where points are dense everywhere, since nothing changes over such a distance. It is not where points come in
tight groups far apart (a second of recording every year): all that a group has to tell is within a few float32 numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

NEAR = 64
"""Float32 numbers between neighbours up to which they belong to one group."""
WIDE = 4096
"""Float32 numbers that a group spans from which it is told apart well enough."""
MANY = 8
"""Different values that make a group: fewer are near duplicates."""
SHARE = 0.05
"""Of the different values, from which groups matter."""
ROWS = 100_000
"""Rows that are looked at, evenly spread: groups that hold a share of the points show in these."""


def unresolved_columns(x: FloatArray) -> list[int]:
    """The columns of centred inputs x (n, d), in any units, with groups of points that float32 does not tell apart."""
    some = x[:: max(1, len(x) // ROWS)]
    return [j for j in range(x.shape[1]) if _unresolved(np.unique(some[:, j]))]


def _unresolved(values: FloatArray) -> bool:
    """Whether ``SHARE`` of these sorted, different values lie in groups that are too tight for float32."""
    if len(values) < MANY:
        return False
    step = np.finfo(np.float32).eps * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    ends = np.flatnonzero(np.diff(values) > NEAR * step)  # the last value of every group but the last
    first, last = np.r_[0, ends + 1], np.r_[ends, len(values) - 1]
    size, span = last - first + 1, values[last] - values[first]
    width = np.finfo(np.float32).eps * np.maximum(np.abs(values[first]), np.abs(values[last]))
    tight = (size >= MANY) & (span < WIDE * width)
    return bool(size[tight].sum() >= SHARE * len(values))
