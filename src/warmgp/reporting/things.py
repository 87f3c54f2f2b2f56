"""What has a length scale, in the user's terms: a column, a date, a period of it, a category, a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgp.data.column_kinds import Category, Circle, ColumnKind, Days, Geographic, Number
from warmgp.data.gaps import Gaps
from warmgp.reporting.ticks import Axis, dated, degrees, linear, within_period
from warmgp.reporting.words import day, number

FloatArray = NDArray[np.float64]

FAR = 8.0
"""How many times as wide as the middle 98% of the rows the range of a column may be to be shown whole."""


@dataclass(frozen=True, eq=False)
class Thing:
    """Holds one thing that has a length scale: what it is called, what it is, and its cells in the training rows.

    Attributes
    ----------
    name, unit : str
        Its name as the model tells it, and the unit that a user gave; "" for none.
    kind : ColumnKind or None
        What it was said to be; None for plain numbers.
    inputs : tuple of int
        The numbers of its inputs.
    cells : ndarray, (n, columns)
        Its cells as numbers, by :meth:`ColumnKind.cells`, NaN where they are missing.
    columns : tuple of str
        The names of its columns.
    """

    name: str
    unit: str
    kind: ColumnKind | None
    inputs: tuple[int, ...]
    cells: FloatArray
    columns: tuple[str, ...]

    @property
    def part(self) -> ColumnKind:
        """What it is where no cell is missing."""
        kind = self.kind.of if isinstance(self.kind, Gaps) else self.kind
        return Number((0,)) if kind is None else kind

    @property
    def is_place(self) -> bool:
        """Whether it is a place on the globe."""
        return isinstance(self.part, Geographic)

    @property
    def is_category(self) -> bool:
        """Whether it has a few values without an order."""
        return isinstance(self.part, Category)

    @property
    def is_date(self) -> bool:
        """Whether its cells are days since the beginning of 1970."""
        return isinstance(self.part, Days)

    @property
    def is_period(self) -> bool:
        """Whether it begins again after a period."""
        return isinstance(self.part, Circle)

    @property
    def label(self) -> str:
        """Its name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @cached_property
    def there(self) -> FloatArray:
        """Its cells in the rows that lack none, (m, columns)."""
        return self.cells[~np.isnan(self.cells).any(1)]

    @property
    def missing(self) -> int:
        """The rows that lack a cell."""
        return len(self.cells) - len(self.there)

    @property
    def constant(self) -> bool:
        """Whether all rows have the same."""
        return bool((self.cells == self.cells[0]).all())

    @property
    def span(self) -> float:
        """How far apart the ends of its first column are."""
        return float(np.ptp(self.there[:, 0]))

    @cached_property
    def middle(self) -> FloatArray:
        """Its cells where it is not looked at, (columns,): the median, the commonest value, or a row in the middle."""
        if self.is_category:
            codes, counts = np.unique(self.there[:, 0], return_counts=True)
            return np.asarray(codes[counts.argmax()])[None]
        if not (self.is_place or self.is_period):
            return np.asarray(np.median(self.there, 0))
        inputs = self.inputs_at(self.there)
        return np.asarray(self.there[np.square(inputs - np.median(inputs, 0)).sum(1).argmin()])

    def inputs_at(self, cells: FloatArray) -> FloatArray:
        """Returns its inputs, (m, width), at cells (m, columns)."""
        part = self.part
        table = np.zeros((len(cells), max(part.columns) + 1))
        table[:, list(part.columns)] = cells
        return (self.kind or part).inputs(table)

    # -- in words ----------------------------------------------------------------------------------------------------
    def told(self, cells: FloatArray) -> str:
        """Returns cells (columns,) as a user would write them."""
        if np.isnan(cells).any():
            return "missing"
        part, value = self.part, float(cells[0])
        if isinstance(part, Category):
            return part.levels[int(value)] if int(value) < len(part.levels) else "another value"
        if isinstance(part, Days):
            return day(value, self.span)
        if isinstance(part, Geographic):
            return f"{_degree(value, 'NS')} {_degree(float(cells[1]), 'EW')}"
        if isinstance(part, Circle) and part.called:
            return _phase(value, part)
        return number(value)

    def levels(self) -> list[tuple[str, int]]:
        """Returns the values of a category and how many rows have each, the commonest first."""
        assert isinstance(self.part, Category)
        counts = np.bincount(self.there[:, 0].astype(int), minlength=len(self.part.levels))
        order = np.argsort(-counts, kind="stable")
        return [(self.told(np.array([k])), int(counts[k])) for k in order if counts[k] or k < len(self.part.levels)]

    def axis(self, *, most: int = 6) -> Axis:
        """Returns the axis of its values: over a whole period, or over the training rows, but for a few far ones."""
        part, values = self.part, self.there[:, 0]
        if isinstance(part, Circle):
            return within_period(part.period, part.called, self.label)
        low, high = float(values.min()), float(values.max())
        inner = np.quantile(values, [0.01, 0.99])
        if high - low > FAR * (inner[1] - inner[0]) > 0:
            reach = inner[1] - inner[0]
            low, high = max(low, inner[0] - reach), min(high, inner[1] + reach)
        if isinstance(part, Days):
            return dated(low, high, self.label)
        return linear(low, high, self.label, most=most)

    def place_axes(self) -> tuple[Axis, Axis]:
        """Returns the axes of longitude and latitude that hold all training rows."""
        (south, west), (north, east) = self.there.min(0).tolist(), self.there.max(0).tolist()
        wide, high = 0.03 * (east - west) + 1e-6, 0.03 * (north - south) + 1e-6
        west, east = (west - wide, east + wide) if east - west + 2 * wide < 360.0 else (west, west + 360.0)
        return degrees(west, east, "EW"), degrees(max(-90.0, south - high), min(90.0, north + high), "NS")


def things_of(model: Any, units: Mapping[str, str]) -> tuple[Thing, ...]:
    """Returns what has a length scale in a fitted model, with the cells of its training rows, in its order."""
    scaler, columns = model.scaler_, model.scaler_.columns
    x = scaler.turn(model.posterior_.x.double().cpu().numpy(), back=True)
    inputs = x * scaler.x_scale + scaler.x_mean
    names = [name if isinstance(name, str) else f"x{j}" for j, name in enumerate(columns.names)]
    found = []
    for name, (_, numbers, kind), first in zip(columns.things, columns.groups, firsts(columns), strict=True):
        own = inputs[:, list(numbers)]
        cells = own if kind is None else kind.cells(own)
        if isinstance(kind.of if isinstance(kind, Gaps) else kind, Geographic):
            cells[:, 1] = unrolled(cells[:, 1])
        used = tuple(names[j] for j in (kind.columns if kind is not None else (first,)))
        unit = units.get(name, "") or (units.get(used[0], "") if kind is None or kind.reads == "number" else "")
        found.append(Thing(name, unit, kind, numbers, cells, used))
    return tuple(found)


def firsts(columns: Any) -> list[int]:
    """Returns the first column of every thing."""
    return [columns.sources[inputs[0]] for _, inputs, _ in columns.groups]


def unrolled(longitude: FloatArray) -> FloatArray:
    """Returns longitudes that grow from west to east, (m,), cut where the longest stretch without any is."""
    turned = np.unique(np.remainder(longitude[np.isfinite(longitude)], 360.0))
    gaps = np.diff(turned, append=turned[0] + 360.0)
    west = float(turned[(int(gaps.argmax()) + 1) % len(turned)])
    west -= 360.0 if west >= 180.0 else 0.0
    return np.asarray(west + np.remainder(longitude - west + 1e-6, 360.0) - 1e-6)


def _degree(value: float, letters: str) -> str:
    value = (value + 180.0) % 360.0 - 180.0
    return f"{abs(value):.2f}°{letters[0] if value >= 0 else letters[1]}"


def _phase(value: float, part: Circle) -> str:
    """Returns a time within a year, a week or a day."""
    if part.called == "year":
        return str(np.datetime64(int(value % 365), "D"))[5:]
    ticks = within_period(7.0, "week").ticks
    if part.called == "week":
        return ticks[int(value) % 7][1]
    minutes = round(value * 1440) % 1440
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
