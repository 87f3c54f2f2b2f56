"""What the options say of columns (--category, --date, --periodic, --geographic, --keep), as GPRegressor takes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.cli.columns import UsageError, check_column
from warmgp.cli.tables import Table, TableError
from warmgp.data.column_kinds import PERIODS
from warmgp.data.dates import GIVE_FORMAT
from warmgp.data.input_map import CellError, InputMap, said
from warmgp.data.reading import levels_in

FloatArray = NDArray[np.float64]

OPTIONS = {"geographic": "--geographic", "category": "--category (or --one-hot)", "date": "--date",
           "periodic": "--periodic"}  # fmt: skip
"""The options behind the kinds of columns."""
LABEL = re.compile(r"(?:^|[_\s.-])(?:id|ids|nr|no|key|index|row)$", re.IGNORECASE)
"""Names of columns that number rows."""
FEW = 10
"""The rows below which whole numbers in order say nothing."""


# -- options ----------------------------------------------------------------------------------------------------------
def columns_asked(
    geographic: Sequence[str] | None,
    category: Sequence[str] | None,
    one_hot: Sequence[str] | None,
    date: Sequence[str] | None,
    periodic: Sequence[str] | None,
) -> dict[Any, Any] | None:
    """Returns what the options say of columns, as ``GPRegressor(columns=…)`` takes it; None where they say nothing."""
    found: dict[Any, Any] = {}
    for text in geographic or ():
        pair = tuple(part.strip() for part in text.split(","))
        if len(pair) != 2 or not all(pair):
            raise UsageError(f"--geographic takes two columns, latitude,longitude, got {text!r}")
        found[pair] = "geographic"
    categories = [*_listed("--category", category or ()), *(one_hot or ())]
    dates = dict(_dates(date or ()))
    for name in categories:
        if name in dates:
            raise UsageError(f"--category and --date both name {name!r}: choose one")
        found[name] = "category"
    found |= dates
    for name, period in _periods(periodic or ()):
        if found.get(name) == "category":
            raise UsageError(f"--category and --periodic both name {name!r}: choose one")
        kind, options = said(found.get(name, "periodic"))
        found[name] = (kind, *options, period)
    return found or None


def _listed(option: str, given: Sequence[str]) -> list[str]:
    """Returns the columns of an option that takes several, with commas between them."""
    names = [name.strip() for text in given for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{option} takes columns with commas between them, got {', '.join(map(repr, given))}")
    return names


def _dates(given: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yields (column, what it is) of --date COL,COL and --date COL=FORMAT."""
    for text in given:
        name, _, written = text.partition("=")
        if "%" in written:
            yield name.strip(), ("date", written)
        else:
            yield from ((one, "date") for one in _listed("--date", [text]))


def _periods(given: Sequence[str]) -> Iterator[tuple[str, float | str]]:
    """Yields (column, period) of --periodic COL=PERIOD,COL=PERIOD; the period is a number, or one of a date."""
    for item in _listed("--periodic", given):
        name, _, period = item.rpartition("=")
        try:
            value: float | str = period.strip() if period.strip() in PERIODS else float(period)
        except ValueError:
            value = 0.0
        if not name.strip() or (isinstance(value, float) and not 0 < value < float("inf")):
            raise UsageError(f"--periodic takes COL=PERIOD, a number or {', '.join(PERIODS)}, got {item!r}")
        yield name.strip(), value


def kept_columns(table: Table, given: Sequence[str] | None, results: Sequence[str] = ()) -> list[str]:
    """Returns the columns that --keep names, each once; raises for one that the table lacks, or that a result hides."""
    names = [name for text in given or () for name in ([text] if text in table else _listed("--keep", [text]))]
    for name in names:
        check_column(table, name, "--keep")
        if name in results:
            raise UsageError(f"--keep {name}: the predictions have a column of that name: rename it in {table.path}")
    return list(dict.fromkeys(names))


def check_said(table: Table, targets: Sequence[str], columns: Mapping[Any, Any] | None, others: Sequence[str]) -> None:
    """Refuses to say something of columns that the table lacks, of targets, and of what ``others`` leave out."""
    for key, given in (columns or {}).items():
        kind, _ = said(given)
        names = key if isinstance(key, tuple) else (key,)
        for name in names:
            check_column(table, name, OPTIONS[kind])
            if name in targets:
                raise UsageError(f"{OPTIONS[kind]} {','.join(names)}: {name!r} is the target")
            if name in others:
                raise UsageError(f"{OPTIONS[kind]} {','.join(names)}: {name!r} is in --drop or --keep, too: choose one")


def text_inputs(model: Any) -> list[str]:
    """Returns the columns of a model that are categories or dates, and text in a table."""
    columns = model.scaler_.columns
    return [str(columns.names[j]) for j in columns.read]


# -- cells -------------------------------------------------------------------------------------------------------------
@contextmanager
def cells_of(path: Path, rows: NDArray[np.intp] | range) -> Iterator[None]:
    """Names a bad cell by the table at ``path`` and its row there; ``rows`` are their numbers, counted from 1."""
    try:
        yield
    except CellError as error:
        more = f" and {error.rows - 1} more" if error.rows > 1 else ""
        where = "" if error.row is None else f", row {rows[error.row]}{more}"
        problem = error.problem.replace('unknown_category="zero"', "--unknown-category zero")
        problem = problem.replace("leave it out", f"leave it out: --drop {error.column}")
        problem = problem.replace(GIVE_FORMAT, f'give the format, --date "{error.column}=%d/%m/%Y"')
        raise TableError(f"column {error.column!r} of {path}{where}, {problem}") from error


def check_cells(columns: InputMap, X: FloatArray, path: Path, rows: NDArray[np.intp] | range) -> None:
    """Raises for a cell of X that has no meaning in its column, by the numbers of the rows in the table at ``path``."""
    bad = columns.bad_cell(X)
    if bad is not None:
        with cells_of(path, rows):
            raise CellError("X", columns.names[bad.column], bad.row, bad.rows, bad.problem)


def declared(X: pd.DataFrame, said_of: Mapping[Any, Any] | None, columns: InputMap) -> tuple[pd.DataFrame, Any]:
    """Returns a table whose part will be trained on, and what is said of its columns, with all that the whole tells.

    Categories know all their values, and dates how they are written: what the held-out rows have is then not new.
    """
    X, found = X.copy() if columns.read else X, dict(said_of or {})
    for j, kind in columns.read.items():
        name = X.columns[j]
        if kind == "category":
            X[name] = pd.Categorical(X[name], categories=list(levels_in(columns, j)))
            continue
        written = next(part.date_format for part in columns.dates if j in part.columns)
        one, options = said(found[name])
        if written and written not in options:
            found[name] = (one, *options, written)
    return X, found or None


# -- remarks -----------------------------------------------------------------------------------------------------------
def labels_among(X: pd.DataFrame) -> list[str]:
    """Returns the columns that seem to number the rows: whole, all different, and counted from 0 or 1, or named so."""
    found = []
    for name in X.columns:
        if not pd.api.types.is_numeric_dtype(X[name].dtype) or len(X) < FEW:
            continue
        values = X[name].to_numpy()
        if not (np.all(values == np.round(values)) and len(np.unique(values)) == len(values)):
            continue
        counted = values[0] in (0, 1) and np.all(np.diff(values) == 1)
        if LABEL.search(str(name)) or counted:
            found.append(str(name))
    return found


def repeated(numbers: FloatArray, y: FloatArray, train: NDArray[np.intp], test: NDArray[np.intp]) -> int:
    """Returns how many held-out rows are in the training, too: the same inputs and the same target."""
    if not len(test):
        return 0
    rows = pd.util.hash_pandas_object(pd.DataFrame(np.column_stack([numbers, y]) + 0.0), index=False).to_numpy()
    return int(np.isin(rows[test], rows[train]).sum())


def answerable(numbers: FloatArray, train: NDArray[np.intp], test: NDArray[np.intp]) -> NDArray[np.intp]:
    """Returns the held-out rows that lack no column that all training rows have: for others there is no answer."""
    lacks = np.isnan(numbers)
    unknown = lacks & ~lacks[train].any(0)
    return test[~unknown[test].any(1)]
