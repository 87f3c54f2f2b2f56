"""Categories: the different values of a column as text, and each cell as the number of its value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

MOST = 200
"""The most values that a category may have: each is an input."""


class UnknownValueError(ValueError):
    """Says that a cell has a value that training has not seen: its row, counted from 0, and how many have one."""

    def __init__(self, row: int, rows: int, value: str) -> None:
        super().__init__(value)
        self.row, self.rows, self.value = row, rows, value


def as_text(column: Any) -> NDArray[Any]:
    """Returns the cells of a column as text without blanks around it, (m,) of str or None where a cell is missing.

    Whole numbers have no decimal point, so that they read alike with and without missing cells beside them.
    """
    cells = column if hasattr(column, "iloc") else np.asarray(column)
    try:
        codes, values = pd.factorize(cells)  # −1 for missing
    except TypeError:  # lists and other things that are no category
        return np.array([str(cell) for cell in cells], dtype=object)
    told = np.array([*map(_text, values), None], dtype=object)
    return np.asarray(told[codes], dtype=object)


def _text(value: Any) -> str | None:
    """Returns a cell as text; None where nothing is left of it."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value) if whole else value).strip() or None


def levels_of(column: Any) -> tuple[str, ...]:
    """Returns the different values of a column as text, sorted, with those that its type declares (pandas)."""
    found = {text for text in as_text(column) if text is not None}
    if isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        found |= {text for value in column.dtype.categories if (text := _text(value)) is not None}
    return tuple(sorted(found))


def codes_of(column: Any, levels: tuple[str, ...], *, zero: bool) -> FloatArray:
    """Returns the number of each cell's value among the levels, (m,): NaN where it is missing.

    A value that is not among them has the number behind the last with ``zero``, else an UnknownValueError is raised.
    """
    texts = as_text(column)
    numbers: FloatArray = pd.Index(list(levels), dtype=object).get_indexer(texts).astype(np.float64)
    missing = pd.isna(texts)
    numbers[missing] = np.nan
    unknown = (numbers == -1) & ~missing
    if unknown.any() and not zero:
        row = int(unknown.argmax())
        raise UnknownValueError(row, int(unknown.sum()), str(texts[row]))
    numbers[unknown] = len(levels)
    return numbers
