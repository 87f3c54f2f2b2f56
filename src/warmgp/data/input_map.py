"""From a user's columns to inputs: plain ones as they are, the others by what they mean.

An :class:`InputMap` is made once, from what a user says of the columns and the names that the table has. It is part of
the :class:`warmgp.data.scaling.Standardizer`, so that training and predictions go through the same map. Inputs made of
one thing (a place, say) share a unit and a length scale.
"""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgp.data.column_kinds import KINDS, BadCell, BadOptionError, ColumnKind, Number
from warmgp.data.gaps import Gaps

FloatArray = NDArray[np.float64]

EXAMPLE = 'columns={("lat", "lon"): "geographic"}'
"""What an error shows."""


class CellError(ValueError):
    """Says what is wrong with a cell, or with a whole column where the row is None, of a table called ``name``."""

    def __init__(self, name: str, column: str | int, row: int | None, rows: int, problem: str) -> None:
        more = f" (and {rows - 1} more rows)" if rows > 1 else ""
        where = f"{name}, column {column!r}" + ("" if row is None else f", row {row}, counted from 0{more}")
        super().__init__(f"{where}, {problem}")
        self.column, self.row, self.rows, self.problem = column, row, rows, problem


@dataclass(frozen=True)
class InputMap:
    """Holds what a user's columns are, and turns a table of them into inputs.

    Attributes
    ----------
    names : tuple of str or int
        The user's columns, by name, or by number where they have none.
    parts : tuple of ColumnKind
        What is not plain, in the order of the columns; several may be made of one column (a date and what repeats in
        it). All other columns are inputs as they are.
    """

    names: tuple[str | int, ...]
    parts: tuple[ColumnKind, ...] = ()
    _order: tuple[int | ColumnKind, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Puts columns and parts in order: a part stands where the first of its columns does."""
        at: dict[int, list[ColumnKind]] = {}
        for part in self.parts:
            at.setdefault(min(part.columns), []).append(part)
        taken = {j for part in self.parts for j in part.columns}
        order = [one for j in range(len(self.names)) for one in at.get(j, [] if j in taken else [j])]
        object.__setattr__(self, "_order", tuple(order))

    @classmethod
    def plain(cls, count: int) -> InputMap:
        """Returns the map that leaves so many columns as they are."""
        return cls(tuple(range(count)))

    @classmethod
    def of(cls, columns: Mapping[Any, Any] | None, names: Sequence[str | int]) -> InputMap:
        """Returns the map for a table with these names, by what a user says of its columns (see ``EXAMPLE``).

        Raises a ValueError for what :func:`check_columns` refuses, for a column that the table lacks, and for one that
        is used twice.
        """
        check_columns(columns)
        parts: list[ColumnKind] = []
        used: dict[int, str] = {}
        for key, kind in (columns or {}).items():
            found = tuple(_number_of(one, names) for one in _listed(key))
            for j in found:
                if j in used:
                    raise ValueError(f"columns uses column {names[j]!r} twice: in {used[j]} and in {key!r}")
                used[j] = repr(key)
            kind, options = said(kind)
            parts += KINDS[kind].made(found, options)
        return cls(tuple(names), tuple(sorted(parts, key=lambda part: part.columns)))

    # -- what it says of the inputs ----------------------------------------------------------------------------------
    @property
    def groups(self) -> tuple[tuple[str, tuple[int, ...], ColumnKind | None], ...]:
        """What the inputs are, in their order: (name, numbers of the inputs, kind or None), one for each thing."""
        found, first = [], 0
        for one in self._order:
            width, kind = (one.width, one) if isinstance(one, ColumnKind) else (1, None)
            label = one.label(self.names) if isinstance(one, ColumnKind) else str(self.names[one])
            found.append((label, tuple(range(first, first + width)), kind))
            first += width
        return tuple(found)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The name of each input, (d,): its column, x0, x1, … for one without a name, and "lat, lon: x" of a place."""
        found: list[str] = []
        for label, _, kind in replace(self, names=self._told).groups:
            found += [label] if kind is None else kind.input_names(label)
        return tuple(found)

    @property
    def things(self) -> tuple[str, ...]:
        """The name of everything that has a length scale: a column, a place, a period of a date."""
        return tuple(label for label, _, _ in replace(self, names=self._told).groups)

    @property
    def _told(self) -> tuple[str, ...]:
        """The names of the columns; x0, x1, … for those without."""
        return tuple(name if isinstance(name, str) else f"x{j}" for j, name in enumerate(self.names))

    @property
    def sources(self) -> tuple[int, ...]:
        """The column of the user that each input comes from, the first where there are several, (d,)."""
        firsts = [(one.columns[0], one.width) if isinstance(one, ColumnKind) else (one, 1) for one in self._order]
        return tuple(j for j, width in firsts for _ in range(width))

    @property
    def tied(self) -> tuple[int, ...]:
        """The group of each input's length scale, (d,); empty where each has its own."""
        if not self.parts:
            return ()
        return tuple(number for number, (_, inputs, _) in enumerate(self.groups) for _ in inputs)

    def shared(self, spread: FloatArray) -> FloatArray:
        """Returns standard deviations of inputs, (d,), with one for all inputs of a thing.

        Its square is their sum of squares over the dimension of the thing: a small country, flat but for the curvature
        of the Earth, gets what two plain columns of the same extent would.
        """
        spread = spread.copy()
        for _, inputs, kind in self.groups:
            if kind is not None:
                spread[list(inputs)] = np.sqrt(np.square(spread[list(inputs)]).sum() / kind.dimension)
        return spread

    def largest(self, values: FloatArray) -> FloatArray:
        """Returns numbers of inputs, (d,), with the largest one for all inputs of a thing."""
        values = values.copy()
        for _, inputs, _ in self.groups:
            values[list(inputs)] = values[list(inputs)].max()
        return values

    @property
    def read(self) -> dict[int, str]:
        """The columns that are no numbers in a user's table, and what they are there: "date" or "category"."""
        return {j: part.reads for part in self.parts if part.reads != "number" for j in part.columns}

    @property
    def dates(self) -> tuple[Any, ...]:
        """The parts that are made of dates, without what fills in missing ones: each has a ``date_format``."""
        inner = [part.of if isinstance(part, Gaps) else part for part in self.parts]
        return tuple(part for part in inner if part.reads == "date")

    @property
    def with_gaps(self) -> tuple[int, ...]:
        """The columns in which a cell may be missing."""
        return tuple(j for part in self.parts if isinstance(part, Gaps) for j in part.columns)

    @property
    def redundant(self) -> tuple[int, ...]:
        """The inputs that are one less others, and no terms of a trend: the first indicator of every category."""
        return tuple(j for _, inputs, kind in self.groups if kind is not None for j in inputs[: kind.redundant])

    # -- what training adds ------------------------------------------------------------------------------------------
    def learned(self, column: int, change: Callable[[ColumnKind], ColumnKind]) -> InputMap:
        """Returns the map with a change to everything that is made of a column."""
        return replace(self, parts=tuple(change(part) if column in part.columns else part for part in self.parts))

    def filled(self, X: FloatArray) -> InputMap:
        """Returns the map that fills in what is missing: for the columns of a training table X (n, …) that have NaN.

        Raises a ValueError that names a column, or what is made of several, without a single row.
        """
        if not np.isnan(X).any():
            return self
        parts: list[ColumnKind] = []
        for one in self._order:
            part = one if isinstance(one, ColumnKind) else Number((one,))
            missing = np.isnan(X[:, list(part.columns)]).any(1)
            if missing.all():
                raise ValueError(f"X, column {part.label(self.names)!r}, is missing in all {len(X)} rows: leave it out")
            if missing.any():
                parts.append(Gaps.fit(part, X))
            elif isinstance(one, ColumnKind):
                parts.append(part)
        return replace(self, parts=tuple(parts))

    # -- what it does ------------------------------------------------------------------------------------------------
    def bad_cell(self, X: FloatArray) -> BadCell | None:
        """Returns the first cell of X that has no meaning where it is, by parts; None for none."""
        return next((bad for part in self.parts if (bad := part.bad_cell(X)) is not None), None)

    def inputs(self, X: FloatArray, name: str = "X") -> FloatArray:
        """Returns the inputs, (m, d), of a table X (m, columns of the user); the table itself where all are plain.

        Raises a ValueError that names the column and the row of a cell that has no meaning; ``name`` is that of X.
        """
        if X.ndim != 2 or X.shape[1] != len(self.names):
            raise ValueError(
                f"{name} must have shape (m, {len(self.names)}), as many columns as the training inputs; got {X.shape}"
            )
        if not self.parts:
            return X
        bad = self.bad_cell(X)
        if bad is not None:
            raise CellError(name, self.names[bad.column], bad.row, bad.rows, bad.problem)
        made = [one.inputs(X) if isinstance(one, ColumnKind) else X[:, one, None] for one in self._order]
        return np.ascontiguousarray(np.concatenate(made, 1))

    def rest(self, rest: FloatArray | None) -> FloatArray | None:
        """Returns what float64 cannot hold of the inputs, (m, d), from what it cannot hold of the columns."""
        if rest is None or not self.parts:
            return rest
        made = [
            np.zeros((len(rest), one.width)) if isinstance(one, ColumnKind) else rest[:, one, None]
            for one in self._order
        ]
        return np.concatenate(made, 1)


def check_columns(columns: Any) -> None:
    """Raises a ValueError unless ``columns`` says of some columns which kind they are, as far as no table is needed."""
    if columns is None:
        return
    if not isinstance(columns, Mapping):
        raise ValueError(f"columns must be a dict such as {EXAMPLE}, got {type(columns).__name__}")
    for key, given in columns.items():
        kind, options = said(given)
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"columns[{key!r}] must be one of {', '.join(map(repr, KINDS))}, got {given!r}")
        parts = _listed(key)
        if not all(_is_column(one) for one in parts):
            raise ValueError(f"columns must name columns by text or by number from 0, as {EXAMPLE} does, got {key!r}")
        of = KINDS[kind]
        if len(parts) != of.count or (not isinstance(key, tuple) and of.count > 1):
            raise ValueError(f"columns: {kind!r} takes {of.takes}, as {EXAMPLE} does, got {key!r}")
        try:
            of.made(tuple(range(of.count)), options)
        except BadOptionError as error:
            raise ValueError(f"columns[{key!r}]: {error}") from error


def said(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns (name, options) of what a user says a column is: "date", or ("date", "year")."""
    if isinstance(kind, tuple | list) and kind:
        return kind[0], tuple(kind[1:])
    return kind, ()


def _listed(key: Any) -> tuple[Any, ...]:
    """Returns the columns of a key: one alone, or a tuple of them."""
    return key if isinstance(key, tuple) else (key,)


def _is_column(one: Any) -> bool:
    """Says whether a value can name a column: text, or a number from 0."""
    whole = isinstance(one, numbers.Integral) and not isinstance(one, bool | np.bool_)
    return isinstance(one, str) or (whole and one >= 0)


def _number_of(one: str | int, names: Sequence[str | int]) -> int:
    """Returns the number of a column that is named or numbered; raises where the table lacks it."""
    if one in names:
        return list(names).index(one)
    if isinstance(one, numbers.Integral) and one < len(names):
        return int(one)
    named = any(isinstance(name, str) for name in names)
    if isinstance(one, str) and not named:
        raise ValueError(f"columns names {one!r}, but X has no names: give numbers, from 0 to {len(names) - 1}")
    near = difflib.get_close_matches(str(one), [str(name) for name in names], n=1) if named else []
    known = f"did you mean {near[0]!r}?" if near else f"its columns are {', '.join(repr(name) for name in names[:20])}"
    raise ValueError(f"columns names {one!r}, which X does not have: {known}")
