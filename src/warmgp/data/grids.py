"""Grids of cells by the names of a model's inputs: from text or numbers, walked in bounded chunks, cut into points.

Cells are counted with the last dimension fastest, as in a raster's file. A grid that is written down as
``lon=5:17:0.05,lat=43:49:0.05`` is a raster with ``lon`` along its rows: what is named first is the last dimension, so
that x, y, … give (…, y, x).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Column = tuple[tuple[str, ...], NDArray[Any]]
"""An input over some dimensions of a grid: (their names, the values)."""

CHUNK_ROWS = 2 * 8192
"""Rows that are predicted at once: a multiple of the posterior's batches, so that chunks change no digit."""
MOST_CELLS = 100_000_000
"""The most points that one grid may ask for: some 4 GB of numbers in an output, and hours of kernel products."""
ON_GRID = 1e-6
"""The share of a step by which the stop of an axis may miss the grid, from rounding, and still be part of it."""
EVEN = 1e-3
"""The share of a step by which evenly spaced coordinates may be off, as rounded to float32 in a file."""


class GridError(ValueError):
    """Says that a grid is not what a model can be asked for."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Holds the cells of a grid: inputs over named dimensions, of which each cell has one value.

    Attributes
    ----------
    dims : tuple of str
        The dimensions, slowest first.
    shape : tuple of int
        Their lengths.
    columns : mapping of str to (tuple of str, ndarray)
        Inputs by name: the dimensions that each lies over (none for a number), and its values.
    bounds : mapping of str to ndarray, (k, 2)
        The edges of the cells along a coordinate, where they are known.
    coordinates : tuple of str
        The columns that say where a cell is.
    attributes : mapping of str to mapping
        What a file says of a column, such as its units.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    columns: Mapping[str, Column]
    bounds: Mapping[str, FloatArray] = field(default_factory=dict)
    coordinates: tuple[str, ...] = ()
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    def rows(self, names: Sequence[str], start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Returns columns of the cells from ``start`` to ``stop``, (stop − start,) each."""
        where = dict(zip(self.dims, self._indices(start, stop), strict=True))
        found = {}
        for name in names:
            dims, values = self.columns[name]
            found[name] = values[tuple(where[dim] for dim in dims)] if dims else np.repeat(values, stop - start)
        return found

    def points(self, names: Sequence[str], start: int, stop: int, per_side: int) -> dict[str, NDArray[Any]]:
        """Returns columns of points inside the cells from ``start`` to ``stop``, those of a cell one after the other.

        Each side of a cell is cut into ``per_side`` equal parts, and the points are the middles:
        low + (high − low)(j + ½)/per_side; (stop − start)·per_sideᵏ of them over k dimensions.
        """
        where = self._indices(start, stop)
        k = len(self.dims)
        parts = (np.indices((per_side,) * k).reshape(k, -1) + 0.5) / per_side  # (k, per_sideᵏ), in (0, 1)
        found = {}
        for name in names:
            dims, values = self.columns[name]
            if not dims:
                found[name] = np.repeat(values, (stop - start) * per_side**k)
                continue
            j = self.dims.index(dims[0])
            low, high = self.bounds[name][where[j]].T[:, :, None]
            found[name] = (low + (high - low) * parts[j]).ravel()
        return found

    def with_bounds(self, names: Sequence[str], per_side: int) -> Cells:
        """Returns the same cells with the edges of all; raises where a cell has none, or where there are too many."""
        used: dict[str, str] = {}
        bounds = {}
        for name in names:
            dims, values = self.columns[name]
            if not dims:
                continue
            if len(dims) > 1 or dims[0] in used:
                other = f"{dims[0]!r}, as {used[dims[0]]!r} has" if len(dims) == 1 else f"the dimensions {dims}"
                raise GridError(
                    f"the input {name!r} lies over {other}: blocks need each input as a number or as the coordinate of "
                    f"a dimension of its own; give points and their groups instead"
                )
            used[dims[0]] = name
            bounds[name] = self.bounds[name] if name in self.bounds else even_bounds(name, values)
        check_size(self.size * per_side ** len(self.dims), f"{self.size:,} cells of {per_side} points a side")
        return Cells(self.dims, self.shape, self.columns, bounds, self.coordinates, self.attributes)

    def _indices(self, start: int, stop: int) -> tuple[NDArray[np.intp], ...]:
        """Returns where cells are along each dimension, (stop − start,) each."""
        return np.unravel_index(np.arange(start, stop), self.shape) if self.dims else ()


def chunks(size: int, rows: int = CHUNK_ROWS) -> Iterator[tuple[int, int]]:
    """Yields (start, stop) of parts of at most so many rows."""
    for start in range(0, size, max(1, rows)):
        yield start, min(size, start + max(1, rows))


def boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[tuple[slice, ...]]:
    """Yields the boxes, in order, that cells from ``start`` to ``stop`` fill: at most 2k − 1 over k dimensions."""
    if len(shape) == 1 or start >= stop:
        if start < stop:
            yield (slice(start, stop),)
        return
    inner = math.prod(shape[1:])
    first, last = -(-start // inner), stop // inner  # whole slices of the first dimension
    if first > last:  # within one slice
        for box in boxes(shape[1:], start - last * inner, stop - last * inner):
            yield (slice(last, last + 1), *box)
        return
    for box in boxes(shape[1:], start - (first - 1) * inner, inner) if start < first * inner else ():
        yield (slice(first - 1, first), *box)
    if first < last:
        yield (slice(first, last), *(slice(0, length) for length in shape[1:]))
    for box in boxes(shape[1:], 0, stop - last * inner):
        yield (slice(last, last + 1), *box)


def missing_cells(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Returns where a cell has a column that is not a number, (m,)."""
    gaps = [np.isnan(values) for values in columns.values() if values.dtype.kind == "f"]
    return np.logical_or.reduce(gaps) if gaps else np.zeros(len(next(iter(columns.values()))), dtype=bool)


def chunk_of_cells(per_side: int, dims: int, rows: int) -> int:
    """Returns how many cells of so many points go into so many rows, at least one."""
    return max(1, rows // per_side**dims)


# -- from numbers ------------------------------------------------------------------------------------------------------
def axis(name: str, start: float, stop: float, step: float) -> FloatArray:
    """Returns start, start + step, …, up to stop, which is included where it falls on the grid.

    That is where (stop − start)/step is a whole number to within a millionth; the last value is then ``stop`` itself.
    A negative step goes down.
    """
    if not all(map(math.isfinite, (start, stop, step))):
        raise GridError(f"the grid's {name!r} must be finite numbers start, stop and step, got {start}, {stop}, {step}")
    if step == 0 or (stop - start) / step < 0:
        remedy = f"a step of {-step:g}" if step else "a step that is not zero"
        raise GridError(f"the grid's {name!r} cannot go from {start:g} to {stop:g} by steps of {step:g}: use {remedy}")
    steps = (stop - start) / step
    check_size(steps + 1, f"{name!r} alone")
    whole = round(steps)
    if abs(steps - whole) <= ON_GRID:
        return np.linspace(start, stop, whole + 1, dtype=np.float64)
    return start + step * np.arange(math.floor(steps) + 1, dtype=np.float64)


def grid_cells(axes: Mapping[str, tuple[float, float, float]], fixed: Mapping[str, float | str]) -> Cells:
    """Returns the cells of a grid by (start, stop, step) of its inputs, centred on these values; others are fixed.

    The first of ``axes`` is the last dimension. What is fixed to a text is no coordinate: rasters hold numbers.
    """
    values = {name: axis(name, *given) for name, given in reversed(list(axes.items()))}
    check_size(math.prod(map(len, values.values())), " × ".join(f"{len(v):,} of {n!r}" for n, v in values.items()))
    half = {name: step / 2 for name, (_, _, step) in axes.items()}
    columns: dict[str, Column] = {name: ((name,), centres) for name, centres in values.items()}
    text = {name for name, value in fixed.items() if isinstance(value, str)}
    columns |= {name: ((), np.asarray(value, dtype=object if name in text else float)) for name, value in fixed.items()}
    bounds = {name: np.column_stack([v - half[name], v + half[name]]) for name, v in values.items()}
    told = tuple(name for name in columns if name not in text)
    return Cells(tuple(values), tuple(map(len, values.values())), columns, bounds, told)


def even_bounds(name: str, centres: NDArray[Any]) -> FloatArray:
    """Returns the edges of evenly spaced cells, (k, 2); raises where they are not even, or only one."""
    middle = np.asarray(centres, dtype=np.float64)
    steps = np.diff(middle)
    if not len(steps) or (np.abs(steps - steps.mean()) > EVEN * abs(steps.mean())).any() or steps.mean() == 0:
        what = "is one value" if not len(steps) else "is not evenly spaced"
        raise GridError(
            f"the coordinate {name!r} {what}, so that its cells have no known width: give their edges as a variable of "
            f"shape ({len(middle)}, 2), named by the coordinate's attribute 'bounds'"
        )
    half = steps.mean() / 2
    return np.column_stack([middle - half, middle + half])


def check_size(points: float, what: str) -> None:
    """Raises where a grid has more points than one may have."""
    if points > MOST_CELLS:
        raise GridError(
            f"the grid has {points:,.0f} points ({what}), and one may have at most {MOST_CELLS:,}: use larger steps, "
            f"or several grids that cover it"
        )


# -- from text ---------------------------------------------------------------------------------------------------------
def parse_grid(text: str, names: Sequence[str], texts: Sequence[str] = ()) -> Cells:
    """Returns the grid that a text such as ``lon=5:17:0.05,lat=43:49:0.05,day=180`` describes, for these inputs.

    ``name=start:stop:step`` is an axis (:func:`axis`), ``name=value`` a number. Those of ``texts``, categories and
    dates, are fixed by ``bed=sand``. In models of earlier versions they became indicators ``bed=sand``, ``bed=gravel``:
    that indicator is 1, its siblings are 0.
    """
    axes: dict[str, tuple[float, float, float]] = {}
    fixed: dict[str, float | str] = {}
    for part in text.split(","):
        item = part.strip()
        name, sign, value = (piece.strip() for piece in item.rpartition("="))
        if not sign or not name or not value:
            raise GridError(f"the grid's part {item!r} is not name=start:stop:step or name=value: write it so")
        if name not in names and item in names:
            family = [other for other in names if other.startswith(f"{name}=")]
            _check_new(name, {*axes, *fixed}, family)
            fixed |= {other: float(other == item) for other in family}
            continue
        _check_known(name, names)
        _check_new(name, {*axes, *fixed}, [name])
        if name in texts:
            fixed[name] = value
            continue
        numbers = _numbers(name, value)
        if len(numbers) == 1:
            fixed[name] = numbers[0]
        else:
            axes[name] = (numbers[0], numbers[1], numbers[2])
    missing = [name for name in names if name not in axes and name not in fixed]
    if missing:
        raise GridError(
            f"the grid lacks the model's input{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing[:20]))}: "
            f"add {missing[0]}=start:stop:step, or {missing[0]}=value to fix it"
        )
    if not axes:
        raise GridError("the grid is a single point: give at least one input as name=start:stop:step")
    return grid_cells(axes, fixed)


def _numbers(name: str, value: str) -> list[float]:
    """Returns the one or three finite numbers of a part of a grid."""
    try:
        numbers = [float(piece) for piece in value.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
        raise GridError(f"the grid's {name!r} must be start:stop:step or one value, in finite numbers, got {value!r}")
    return numbers


def _check_known(name: str, names: Sequence[str]) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "name those"
        told = ", ".join(map(repr, list(names)[:20]))
        raise GridError(f"the grid names {name!r}, which is no input of the model (they are {told}): {hint}")


def _check_new(name: str, known: set[str], new: Sequence[str]) -> None:
    if known & set(new):
        raise GridError(f"the grid names {name!r} more than once: give it once")
