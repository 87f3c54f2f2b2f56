"""What a user's columns can mean, beyond plain numbers: a kind is one class, and turns its columns into inputs.

To add one: a subclass of :class:`ColumnKind` and a line in ``KINDS``. Everything else (names, units, files, ties
between length scales, predictions) goes by what the class says of itself. Kinds take numbers: what is text or a date in
a user's table is read first (:mod:`warmgp.data.reading`), a category as the number of its value, a date as days since
the beginning of 1970. What a kind has to know of the training data (the values of a category) are fields of it.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

EARTH_KM = 6371.0
"""The mean radius of the Earth in kilometres: what a distance on the unit sphere is told in."""


class BadCell(NamedTuple):
    """Names a cell that a kind cannot turn into inputs: its row and column, counted from 0, and what is wrong."""

    row: int
    column: int
    rows: int
    """How many rows have such a cell."""
    problem: str
    """What the cell holds and what it may hold: it follows the name of the column and the row."""


class BadOptionError(ValueError):
    """Says what is wrong with the options that a user gave a kind: it follows the name of the column."""


@dataclass(frozen=True)
class ColumnKind(ABC):
    """Turns some columns of a user's table into inputs that share one length scale and one unit.

    Attributes
    ----------
    columns : tuple of int
        The numbers of the columns, in the order in which the kind takes them.
    """

    columns: tuple[int, ...]

    name: ClassVar[str]
    """What users write for it."""
    takes: ClassVar[str]
    """What it is given, for an error: "a pair …"."""
    count: ClassVar[int] = 1
    """How many columns it takes."""

    @classmethod
    def made(cls, columns: tuple[int, ...], options: tuple[Any, ...]) -> tuple[ColumnKind, ...]:
        """Returns what columns become by the options that a user gave with the name: one kind, or several.

        Raises a :class:`BadOptionError` for options that it does not take.
        """
        if options:
            raise BadOptionError(f"{cls.name!r} takes no options, got {options!r}")
        return (cls(columns),)

    @property
    @abstractmethod
    def axes(self) -> tuple[str, ...]:
        """What each of the inputs is called, (width,)."""

    @property
    def width(self) -> int:
        """How many inputs it makes of the columns."""
        return len(self.axes)

    @property
    def reads(self) -> str:
        """What its cells are in a user's table: "number", "date" or "category"."""
        return "number"

    @property
    def dimension(self) -> int:
        """In how many of its inputs points are free to move: their variances add up to so many squares of the unit."""
        return 1

    @property
    def unit(self) -> str:
        """The unit that distances are told in; "" for that of the column."""
        return ""

    @property
    def unit_length(self) -> float:
        """How many of it one unit of the inputs is."""
        return 1.0

    @property
    def redundant(self) -> int:
        """How many of the first inputs are one less the others: they are no terms of a trend that has a constant."""
        return 0

    def bad_cell(self, X: FloatArray) -> BadCell | None:
        """Returns the first cell of a table X (m, columns of the user) that has no meaning here; None for none."""
        return None

    @abstractmethod
    def inputs(self, X: FloatArray) -> FloatArray:
        """Returns what the columns become, (m, width), from a whole table X (m, columns of the user)."""

    @abstractmethod
    def cells(self, inputs: FloatArray) -> FloatArray:
        """Returns the cells of the columns, (m, columns), that inputs (m, width) come from, as far as these tell."""

    def in_units(self, length: float) -> str:
        """Tells a length scale, in units of the inputs, as a user would."""
        return f"{length * self.unit_length:.6g} {self.unit}".strip()

    def label(self, names: Sequence[str | int]) -> str:
        """Returns the name of what the columns are together, by the names of all columns."""
        return ", ".join(str(names[j]) for j in self.columns)

    def input_names(self, label: str) -> tuple[str, ...]:
        """Returns the name of each input, (width,), by that of the whole."""
        return (label,) if self.width == 1 else tuple(f"{label}: {axis}" for axis in self.axes)


@dataclass(frozen=True)
class Geographic(ColumnKind):
    """Turns latitude and longitude in degrees into a point of the unit sphere.

    The inputs are (cos φ cos λ, cos φ sin λ, sin φ) at latitude φ and longitude λ, so that the distance of two places
    is that of the straight line between them, the chord, in radii of the Earth: every kernel stays a kernel, and
    neither the date line nor a pole is an edge.
    """

    name = "geographic"
    takes = "a pair (latitude, longitude) in degrees"
    count, dimension = 2, 2
    axes = ("x", "y", "z")
    unit, unit_length = "km", EARTH_KM  # of a chord

    def bad_cell(self, X: FloatArray) -> BadCell | None:
        """Returns the first latitude beyond a pole; any finite longitude is one."""
        latitude = X[:, self.columns[0]]
        beyond = ~(np.abs(latitude) <= 90.0)
        if not beyond.any():
            return None
        row = int(beyond.argmax())
        problem = f"is {latitude[row]:g}, but latitudes are between -90 and 90 degrees: give (latitude, longitude)"
        return BadCell(row, self.columns[0], int(beyond.sum()), problem)

    def inputs(self, X: FloatArray) -> FloatArray:
        """Returns the points of the unit sphere, (m, 3). Whole turns are taken off exactly before any sine."""
        latitude, longitude = (X[:, j] for j in self.columns)
        phi, lam = np.deg2rad(latitude), np.deg2rad(np.remainder(longitude, 360.0))
        level = np.cos(phi)
        return np.stack([level * np.cos(lam), level * np.sin(lam), np.sin(phi)], 1)

    def cells(self, inputs: FloatArray) -> FloatArray:
        """Returns latitudes and longitudes from −180 to 180, (m, 2)."""
        x, y, z = inputs.T
        return np.rad2deg(np.stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)], 1))


@dataclass(frozen=True)
class Number(ColumnKind):
    """Leaves a column of numbers as it is: what is filled in where a plain column has missing cells."""

    name = "number"
    takes = "a column of numbers"
    axes = ("",)

    def inputs(self, X: FloatArray) -> FloatArray:
        """Returns the column, (m, 1)."""
        return X[:, list(self.columns)]

    def cells(self, inputs: FloatArray) -> FloatArray:
        """Returns the same, (m, 1)."""
        return inputs


@dataclass(frozen=True)
class Circle(ColumnKind):
    """Turns a column that begins again after a period, such as an hour of the day, into a point of the unit circle.

    The inputs are (cos 2πt/P, sin 2πt/P) at t and period P: 23:59 is near 00:00. A short way along the circle is as
    long as it was in the column, and the longest is the diameter.

    Attributes
    ----------
    period : float
        P, in units of the column, or in days where it holds dates.
    called : str
        Which period of a date it is ("year", "week" or "day"); "" where the column holds numbers.
    date_format : str
        How dates are written, as :attr:`Days.date_format`.
    """

    period: float
    called: str = ""
    date_format: str = ""

    name = "periodic"
    takes = 'a column and its period, such as ("periodic", 24), or "year", "week" or "day" of dates'
    axes = ("cos", "sin")

    @classmethod
    def made(cls, columns: tuple[int, ...], options: tuple[Any, ...]) -> tuple[ColumnKind, ...]:
        """Returns a circle for each period: numbers, or names of periods of a date."""
        if not options:
            raise BadOptionError(f"{cls.name!r} takes {cls.takes}")
        if any(isinstance(one, str) for one in options):
            return circles_of_dates(columns, options)
        for period in options:
            number = isinstance(period, numbers.Real) and not isinstance(period, bool | np.bool_)
            if not (number and np.isfinite(period) and period > 0):
                raise BadOptionError(f"the period must be a number above 0, or 'year', 'week' or 'day', got {period!r}")
        if len(set(options)) < len(options):
            raise BadOptionError(f"the periods must be different, got {options!r}")
        return tuple(cls(columns, float(period)) for period in options)

    @property
    def reads(self) -> str:
        """A date where the period is one of dates."""
        return "date" if self.called else "number"

    @property
    def unit(self) -> str:
        """Days of a date."""
        return "days" if self.called else ""

    @property
    def unit_length(self) -> float:
        """How far in time one radius is, along the circle."""
        return self.period / (2 * math.pi)

    def inputs(self, X: FloatArray) -> FloatArray:
        """Returns the points of the unit circle, (m, 2). Whole turns are taken off exactly before any sine."""
        angle = np.remainder(X[:, self.columns[0]], self.period) * (2 * math.pi / self.period)
        return np.stack([np.cos(angle), np.sin(angle)], 1)

    def cells(self, inputs: FloatArray) -> FloatArray:
        """Returns the first time from 0 on, (m, 1): whole periods are not in the inputs."""
        angle = np.arctan2(inputs[:, 1], inputs[:, 0])
        return np.remainder(angle, 2 * math.pi)[:, None] * (self.period / (2 * math.pi))

    def label(self, names: Sequence[str | int]) -> str:
        """Returns the name of the column, with that of the period of a date."""
        return f"{super().label(names)}: {self.called}" if self.called else super().label(names)


@dataclass(frozen=True)
class Days(ColumnKind):
    """Turns a column of dates, with or without times, into days.

    Attributes
    ----------
    date_format : str
        How dates are written where they are text, by the letters of ``strftime``; "" for ISO 8601 (2024-03-01 12:30).
        Training finds it, or a user gives it; predictions read dates in the same way.
    """

    date_format: str = ""

    name = "date"
    takes = 'a column of dates, and perhaps "year", "week" or "day" for what repeats, and a format such as "%d/%m/%Y"'
    reads = "date"
    axes = ("",)
    unit = "days"

    @classmethod
    def made(cls, columns: tuple[int, ...], options: tuple[Any, ...]) -> tuple[ColumnKind, ...]:
        """Returns the days, and a circle for each period that is named."""
        found = circles_of_dates(columns, options)
        return (cls(columns, _format_among(options)), *found)

    def inputs(self, X: FloatArray) -> FloatArray:
        """Returns the days, (m, 1)."""
        return X[:, list(self.columns)]

    def cells(self, inputs: FloatArray) -> FloatArray:
        """Returns the same, (m, 1)."""
        return inputs


@dataclass(frozen=True)
class Category(ColumnKind):
    """Turns a column with a few different values into an indicator for each: 1 where a row has the value, else 0.

    All share one length scale: any two values are equally far apart, √2 in units of the inputs.

    Attributes
    ----------
    levels : tuple of str
        The values of the training data, sorted, as text; the table holds their numbers.
    """

    levels: tuple[str, ...] = ()

    name = "category"
    takes = "a column with a few different values, text or numbers"
    reads = "category"
    unit, unit_length = "steps between two values", math.sqrt(0.5)

    @property
    def axes(self) -> tuple[str, ...]:
        """The values."""
        return self.levels

    @property
    def redundant(self) -> int:
        """The indicators add up to one."""
        return 1

    def inputs(self, X: FloatArray) -> FloatArray:
        """Returns the indicators, (m, values); all zero for the number behind the last, a value that is not known."""
        return np.asarray(X[:, list(self.columns)] == np.arange(len(self.levels)), dtype=np.float64)

    def cells(self, inputs: FloatArray) -> FloatArray:
        """Returns the number of each row's value, (m, 1); that behind the last where a row has none."""
        known = inputs.max(1) > 0.5
        return np.where(known, inputs.argmax(1), len(self.levels)).astype(np.float64)[:, None]

    def input_names(self, label: str) -> tuple[str, ...]:
        """Returns "column: value" for each value."""
        return tuple(f"{label}: {level}" for level in self.levels)


PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}
"""What can repeat in a date, and its length in days: a year is the mean one of the calendar."""


def circles_of_dates(columns: tuple[int, ...], options: tuple[Any, ...]) -> tuple[ColumnKind, ...]:
    """Returns a circle for each period that the options name; one option may be a format, with a %."""
    written = _format_among(options)
    named = [one for one in options if not (isinstance(one, str) and "%" in one)]
    for one in named:
        if not isinstance(one, str) or one not in PERIODS:
            raise BadOptionError(f"dates take {', '.join(map(repr, PERIODS))} or a format with %, got {one!r}")
    if len(set(named)) < len(named):
        raise BadOptionError(f"the periods must be different, got {options!r}")
    return tuple(Circle(columns, PERIODS[one], one, written) for one in named)


def _format_among(options: tuple[Any, ...]) -> str:
    """Returns the one option that is a format of dates; "" where there is none."""
    found = [one for one in options if isinstance(one, str) and "%" in one]
    if len(found) > 1:
        raise BadOptionError(f"dates take one format, got {found!r}")
    return found[0] if found else ""


KINDS: dict[str, type[ColumnKind]] = {kind.name: kind for kind in (Geographic, Circle, Days, Category)}
"""The kinds of columns by the names that users write."""
PARTS: dict[str, type[ColumnKind]] = {**KINDS, Number.name: Number}
"""The kinds of columns by the names that files have."""
