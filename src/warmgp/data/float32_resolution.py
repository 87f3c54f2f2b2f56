"""Whether float32 can tell the inputs apart.

A float32 number near x is known to ε|x|, so points closer than about 10⁻⁷ of the spread of all become one. That is
harmless where points are dense everywhere, since nothing changes over such a distance. It is not where points come in
tight groups far apart (a second of recording every year): all that a group has to tell is within a few float32 numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warmgp.data.input_map import InputMap

FloatArray = NDArray[np.float64]

NEAR = 64
"""The most float32 numbers between neighbours of one group."""
WIDE = 4096
"""The span of a group, in float32 numbers, from which on its points are told apart well enough."""
MANY = 8
"""The fewest different values that make a group: fewer are near duplicates."""
ALONE = 4.0
"""The least gap between a group and others, in its own widths: chance makes no such gaps among many points."""
SHARE = 0.05
"""The share of all different values from which on groups matter."""
ROWS = 2_000_000
"""The rows that are looked at, evenly spread over all (up to twice as many): of larger data, groups of few points may
not show."""


def unresolved_columns(x: FloatArray) -> dict[int, float]:
    """Returns the columns of centred inputs x (n, d) with groups of points that float32 does not tell apart.

    They are numbers of columns, each with the median width of its groups, in the units of x.
    """
    some = x[:: max(1, len(x) // ROWS)]
    found = {j: _tight_width(np.unique(some[:, j])) for j in range(x.shape[1])}
    return {j: width for j, width in found.items() if width > 0}


def _tight_width(values: FloatArray) -> float:
    """Returns the median width of the groups too tight for float32 among sorted, different values, (m,).

    It is 0 where such groups hold less than ``SHARE`` of the values.
    """
    if len(values) < MANY:
        return 0.0
    step = np.finfo(np.float32).eps * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    ends = np.flatnonzero(np.diff(values) > NEAR * step)  # the last value of every group but the last
    first, last = np.r_[0, ends + 1], np.r_[ends, len(values) - 1]
    size, span = last - first + 1, values[last] - values[first]
    width = np.finfo(np.float32).eps * np.maximum(np.abs(values[first]), np.abs(values[last]))
    apart = np.r_[np.inf, values[first[1:]] - values[last[:-1]], np.inf]  # before each group, and after the last
    alone = np.minimum(apart[:-1], apart[1:]) > ALONE * span
    tight = alone & (size >= MANY) & (span < WIDE * width)
    return float(np.median(span[tight])) if size[tight].sum() >= max(1, SHARE * len(values)) else 0.0


def too_fine(columns: InputMap, x: FloatArray) -> str:
    """Says what has points that float32 does not tell apart, the first such column; "" where there is none.

    Inputs x, (n, d), are centred, and what ``columns`` make. Points of several inputs are told apart by any of them.
    """
    found = unresolved_columns(x)
    for name, inputs, kind in columns.groups:
        if not all(j in found for j in inputs):
            continue
        known = columns.names[columns.sources[inputs[0]]] if kind is None else name
        share = max(found[j] / float(x[:, j].std()) for j in inputs)
        return f"column {known!r} has groups of points {share:.1g} of its std wide, which float32 does not tell apart"
    return ""
