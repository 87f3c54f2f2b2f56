"""What a user's columns can mean, beyond plain numbers: a kind is one class, and turns its columns into inputs.

To add one: a subclass of :class:`ColumnKind` and a line in ``KINDS``. Everything else (names, units, files, ties
between length scales, predictions) goes by what the class says of itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
    count: ClassVar[int]
    """How many columns it takes."""
    width: ClassVar[int]
    """How many inputs it makes of them."""
    axes: ClassVar[tuple[str, ...]]
    """What each of these inputs is called, (width,)."""
    dimension: ClassVar[int]
    """In how many of them points are free to move: their variances add up to so many squares of the unit."""
    unit: ClassVar[str]
    """The unit that distances are told in."""
    unit_length: ClassVar[float]
    """How many of it one unit of the inputs is."""

    @abstractmethod
    def bad_cell(self, X: FloatArray) -> BadCell | None:
        """Returns the first cell of a table X (m, columns of the user) that has no meaning here; None for none."""

    @abstractmethod
    def inputs(self, X: FloatArray) -> FloatArray:
        """Returns what the columns become, (m, width), from a whole table X (m, columns of the user)."""

    def in_units(self, length: float) -> str:
        """Tells a length scale, in units of the inputs, as a user would."""
        return f"{length * self.unit_length:.6g} {self.unit}"

    def label(self, names: Sequence[str | int]) -> str:
        """Returns the name of what the columns are together, by the names of all columns."""
        return ", ".join(str(names[j]) for j in self.columns)


@dataclass(frozen=True)
class Geographic(ColumnKind):
    """Turns latitude and longitude in degrees into a point of the unit sphere.

    The inputs are (cos φ cos λ, cos φ sin λ, sin φ) at latitude φ and longitude λ, so that the distance of two places
    is that of the straight line between them, the chord, in radii of the Earth: every kernel stays a kernel, and
    neither the date line nor a pole is an edge.
    """

    name = "geographic"
    takes = "a pair (latitude, longitude) in degrees"
    count, width, dimension = 2, 3, 2
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


KINDS: dict[str, type[ColumnKind]] = {kind.name: kind for kind in (Geographic,)}
"""The kinds of columns by the names that users write."""
