"""A user's cells as numbers: a category as the number of its value, a date as days; the rest of a table as it came.

What has to be learned from the training table (the values of a category, how dates are written) is kept in the kinds of
an :class:`InputMap`, so that every later table is read in the same way, whole or in chunks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.data.categories import MOST, UnknownValueError, codes_of, levels_of
from warmgp.data.column_kinds import Category
from warmgp.data.dates import BadDateError, looks_like_dates, read_dates
from warmgp.data.gaps import Gaps
from warmgp.data.input_map import CellError, InputMap

FloatArray = NDArray[np.float64]

SHOWN = 20
"""The most values of a category that an error lists."""


def column_names(X: Any, count: int) -> tuple[str | int, ...]:
    """Returns what a user knows the columns of X by: their names where it is a table, their numbers otherwise."""
    if not is_frame(X):
        return tuple(range(count))
    return tuple(name if isinstance(name, str) or type(name) is int else str(name) for name in X.columns)


def is_frame(X: Any) -> bool:
    """Says whether X is a table of pandas or polars."""
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def read_columns(estimator: Any, X: Any, *, learn: bool, name: str) -> tuple[Any, InputMap | None]:
    """Returns X with numbers in place of categories and dates, and what the columns are; X itself where it has none.

    Columns are what the estimator's parameter ``columns`` says, with ``learn``, and what its training has learned
    without. The map is None where nothing is said, and where X is no table of that many columns, which others refuse.
    """
    columns = _said(estimator, X) if learn else _known(estimator, X)
    if columns is None or not columns.read:
        return X, columns
    cells = _cells(X)
    made: dict[int, Any] = dict(enumerate(cells))
    zero = getattr(estimator, "unknown_category", "error") == "zero"
    for j, kind in columns.read.items():
        try:
            if kind == "date":
                made[j], columns = _dates(cells[j], j, columns, learn)
            else:
                made[j], columns = _category(cells[j], j, columns, learn, zero, name)
        except (BadDateError, UnknownValueError) as error:
            raise CellError(name, columns.names[j], error.row, error.rows, _problem(error, columns, j)) from error
    if not is_frame(X):
        return np.stack([np.asarray(made[j], dtype=object) for j in range(len(cells))], 1), columns
    frame = pd.DataFrame({j: np.asarray(made[j]) for j in range(len(cells))})
    frame.columns = list(X.columns)
    return frame, columns


def _said(estimator: Any, X: Any) -> InputMap | None:
    """Returns what an estimator's parameters say of the columns of a training table; None where they say nothing."""
    said = getattr(estimator, "columns", None)
    if not said:
        return None
    count = len(X.columns) if is_frame(X) else np.shape(X)[1] if np.ndim(X) == 2 else 0
    return InputMap.of(said, column_names(X, count)) if count else None


def _known(estimator: Any, X: Any) -> InputMap | None:
    """Returns what an estimator has learned of columns; None where X has others, by name or number."""
    columns = known_columns(estimator)
    if not columns.read:
        return columns
    if is_frame(X):
        names = column_names(X, len(X.columns))
        unnamed = not any(isinstance(name, str) for name in columns.names)
        return columns if names == columns.names or (unnamed and len(names) == len(columns.names)) else None
    return columns if np.ndim(X) == 2 and np.shape(X)[1] == len(columns.names) else None


def known_columns(estimator: Any) -> InputMap:
    """Returns what an estimator's training has learned of columns."""
    found = getattr(estimator, "columns_", None)
    return estimator.scaler_.columns if found is None else found


def _cells(X: Any) -> list[Any]:
    """Returns the columns of a table or an array."""
    if isinstance(X, pd.DataFrame):
        return [X.iloc[:, j] for j in range(X.shape[1])]
    if is_frame(X):  # polars
        return [X.to_series(j).to_numpy() for j in range(X.shape[1])]
    return list(np.asarray(X, dtype=None if isinstance(X, np.ndarray) else object).T)


def _dates(column: Any, j: int, columns: InputMap, learn: bool) -> tuple[FloatArray, InputMap]:
    """Returns the days of a column, and the map with the format that they were found in."""
    given = next(part.date_format for part in columns.dates if j in part.columns)
    days, found = read_dates(column, given, learn=learn)
    return days, columns.learned(j, lambda part: replace(part, date_format=found)) if learn else columns  # type: ignore[call-arg]


def _category(
    column: Any, j: int, columns: InputMap, learn: bool, zero: bool, name: str
) -> tuple[FloatArray, InputMap]:
    """Returns the numbers of a column's values, and the map with these values."""
    if learn:
        levels = levels_of(column)
        if len(levels) > MOST:
            problem = f"has {len(levels):,} different values, too many for a category (at most {MOST})"
            raise CellError(name, columns.names[j], None, 1, f"{problem}: put rare ones together, or leave it out")
        columns = columns.learned(j, lambda part: replace(part, levels=levels))  # type: ignore[call-arg]
    return codes_of(column, levels_in(columns, j), zero=zero), columns


def levels_in(columns: InputMap, j: int) -> tuple[str, ...]:
    """Returns the values of the category that a column is."""
    inner = [part.of if isinstance(part, Gaps) else part for part in columns.parts]
    return next(part.levels for part in inner if isinstance(part, Category) and j in part.columns)


def _problem(error: Exception, columns: InputMap, j: int) -> str:
    """Says what is wrong with a cell, and what helps."""
    if isinstance(error, BadDateError):
        return str(error)
    known = levels_in(columns, j)
    told = ", ".join(map(repr, known[:SHOWN])) + (", …" if len(known) > SHOWN else "")
    return (
        f"is {str(error)[:40]!r}, which training has not seen (it knows {told}): correct it or leave the row out, "
        f'or fit with unknown_category="zero"'
    )


# -- what is not numbers and was not said to be anything --------------------------------------------------------------
def text_problem(X: Any) -> tuple[str, str] | None:
    """Returns where X is not numbers and what helps, for an error; None where that is not what is wrong with X.

    One cell among numbers is named by its row; columns without numbers all at once, by what could be said of them.
    """
    try:
        table = X if is_frame(X) else np.asarray(X, dtype=object)
    except ValueError:  # rows of different lengths, which scikit-learn has said
        return None
    if not is_frame(X) and table.ndim != 2:
        return None
    cells = _cells(table)
    texts: list[tuple[str | int, str | None]] = []  # names need not differ
    for name, column in zip(column_names(X, len(cells)), cells, strict=True):
        try:
            np.asarray(column, dtype=np.float64)
        except (ValueError, TypeError):
            bad = not_numbers(column)
            if 2 * bad.sum() < len(bad):
                row = int(bad.argmax())
                more = f" (and {int(bad.sum()) - 1} more rows)" if bad.sum() > 1 else ""
                cell = f"{str(np.asarray(column, dtype=object)[row])[:40]!r}"
                where = f", column {name!r}, row {row}, counted from 0{more}, is {cell}, which is not a number"
                return where, "correct it or leave the row out"
            texts.append((name, could_be(column)))
    return _columns_of_text(texts) if texts else None


def could_be(column: Any) -> str | None:
    """Returns what a column that is not numbers could be said to be, "date" or "category"; None where it has as many
    different values as an id, or no text at all."""
    if looks_like_dates(column):
        return "date"
    there = pd.Series(np.asarray(column, dtype=object)).dropna()
    if not any(isinstance(cell, str) for cell in there):
        return None
    try:
        different = there.nunique()
    except TypeError:  # lists and their like
        return None
    return "category" if different <= min(MOST, max(2, len(there) // 2)) else None


def _columns_of_text(texts: list[tuple[str | int, str | None]]) -> tuple[str, str]:
    """Returns which columns are not numbers, and what helps: one setting for all that can be something else."""
    told = ", ".join(repr(name) for name, _ in texts)
    one = len(texts) == 1
    where = f", column {told}, is not numbers" if one else f", columns {told}, are not numbers"
    kinds = ", ".join(f'{name!r}: "{kind}"' for name, kind in texts if kind)
    remedy = f"turn {'it' if one else 'them'} into numbers or leave {'it' if one else 'them'} out"
    if kinds:
        remedy += f", or say what {'it is' if one else 'they are'}: columns={{{kinds}}}"
    others = [name for name, kind in texts if not kind]
    if others:
        remedy += f" ({', '.join(map(repr, others))}: too many different values, or no text)"
    return where, remedy


def not_numbers(column: Any) -> NDArray[np.bool_]:
    """Returns which cells of a column are there and are no numbers, (m,)."""
    cells = pd.Series(np.asarray(column, dtype=object))
    kept = cells.map(lambda cell: cell if isinstance(cell, str | int | float | np.number) else "?")
    return np.asarray(pd.to_numeric(kept, errors="coerce").isna() & ~cells.isna())
