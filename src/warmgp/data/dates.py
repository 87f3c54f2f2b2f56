"""Dates: text, or the types of pandas, polars and numpy, as days since the beginning of 1970."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.data.categories import as_text

FloatArray = NDArray[np.float64]

_TIMES = ("", " %H:%M", " %H:%M:%S")
_DAYS = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d, %Y",
    "%B %d, %Y",
)  # fmt: skip
FORMATS = tuple(day + time for day, time in itertools.product(_DAYS, _TIMES))
"""The ways of writing dates that are tried after ISO 8601; a column has one of them throughout."""
SAMPLE = 200
"""The different cells by which formats are left out before whole columns are read."""
MICROSECONDS = 86_400_000_000
"""Those of a day."""


GIVE_FORMAT = 'give the format, ("date", "%d/%m/%Y")'
"""What helps where dates can be read in two ways."""


class BadDateError(ValueError):
    """Says which cell of a column is no date: its row, counted from 0, how many are none, and what is wrong."""

    def __init__(self, row: int, rows: int, problem: str) -> None:
        super().__init__(problem)
        self.row, self.rows = row, rows


def read_dates(column: Any, date_format: str = "", *, learn: bool = False) -> tuple[FloatArray, str]:
    """Returns the days of a column's cells, (m,) with NaN where one is missing, and the format that they were in.

    Dates without a time zone are taken as they are, others in UTC. ``date_format`` is that of text ("" for ISO 8601);
    with ``learn`` it may be another one where none was given. Raises a BadDateError for a cell that is no date.
    """
    if hasattr(column, "dtype") and getattr(column.dtype, "kind", "") == "M":
        return _days(pd.Series(column)), date_format
    texts = as_text(column)
    there = ~pd.isna(texts)
    if learn and not date_format:
        date_format = _found_format(texts[there])
    days = _days(_parsed(texts, date_format))
    bad = np.isnan(days) & there
    if bad.any():
        row = int(bad.argmax())
        written = f"a date written as {date_format}" if date_format else "a date such as 2024-03-01 or 2024-03-01 12:30"
        told = f"is {str(texts[row])[:40]!r}, which is not {written}"
        raise BadDateError(row, int(bad.sum()), f"{told}: correct it or leave the row out")
    return days, date_format


def looks_like_dates(column: Any) -> bool:
    """Says whether most cells of a column of text are dates, by a few of them."""
    found = pd.unique(as_text(column))
    texts = found[~pd.isna(found)][:20]
    if not len(texts):
        return False
    return any(_parsed(texts, one).notna().mean() > 0.5 for one in ("", *FORMATS))


def _found_format(texts: NDArray[Any]) -> str:
    """Returns the format that all texts have, or else most of them."""
    every = pd.unique(texts)
    some = every[:SAMPLE]
    shares = {one: float(_parsed(some, one).notna().mean()) for one in ("", *FORMATS)} if len(some) else {"": 1.0}
    best = max(shares.values())
    likely = [one for one, share in shares.items() if share == best]
    if len(likely) > 1:
        shares = {one: float(_parsed(every, one).notna().mean()) for one in likely}
        likely = [one for one in likely if shares[one] == max(shares.values())]
    if len(likely) > 1 and best > 0 and _parsed(every, likely[0]).ne(_parsed(every, likely[1])).any():
        both = f"another date by {likely[0]} than by {likely[1]}, and so are all others"
        shown = str(texts[0])[:40]
        raise BadDateError(0, 1, f"is {shown!r}, which is {both}: {GIVE_FORMAT}, or write dates as 2024-03-01")
    return likely[0] if best > 0 else ""


def _parsed(texts: NDArray[Any], date_format: str) -> Any:
    """Returns texts as a Series of times in UTC, NaT for what is no date of that format."""
    series = pd.Series(texts, dtype=object)
    return pd.to_datetime(series, format=date_format or "ISO8601", errors="coerce", utc=True)


def _days(times: Any) -> FloatArray:
    """Returns a Series of times as days since the beginning of 1970, NaN for none."""
    if getattr(times.dtype, "tz", None) is not None:
        times = times.dt.tz_convert("UTC").dt.tz_localize(None)
    moments = times.to_numpy().astype("datetime64[us]")
    days = moments.astype(np.int64) / MICROSECONDS
    days[np.isnat(moments)] = np.nan
    return np.asarray(days, dtype=np.float64)
