"""The columns of a table as numbers: those that a model is trained on, and those that it reads again to predict.

A text column becomes indicator columns named ``column=value``: the names alone are enough to build them again for new
rows. Whatever is no finite number is refused by column, row and value.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.cli.tables import CHUNK_ROWS, Table, TableError, quoted
from warmgp.data.input_map import InputMap

MOST_CATEGORIES = 200
"""The most values of a column that --one-hot encodes."""
LARGEST = 1e150
"""The largest number that a table may hold: standardisation and distances square it."""
EXACT = 2.0**53
"""The size up to which float64 holds every whole number."""

FloatArray = NDArray[np.float64]


class UsageError(ValueError):
    """Says that options do not go together, or that the value of one makes no sense."""


# -- training ----------------------------------------------------------------------------------------------------------
def training_table(
    table: Table, target: str, drop: Sequence[str], one_hot: Sequence[str]
) -> tuple[pd.DataFrame, FloatArray]:
    """Returns features as a DataFrame of numbers, in the file's order, and the target; refuses what is no number."""
    X, y, _ = training_columns(table, target, drop, one_hot)
    return X, y


def training_columns(
    table: Table, target: str, drop: Sequence[str], one_hot: Sequence[str], beside: Sequence[str] = ()
) -> tuple[pd.DataFrame, FloatArray, dict[str, FloatArray]]:
    """Returns features, the target, and the columns ``beside``, which are no features, as numbers of the same rows."""
    for option, names in (("--drop", drop), ("--one-hot", one_hot)):
        for name in names:
            check_column(table, name, option)
            if name == target:
                raise UsageError(f"{option} {name}: that is the target")
    both = sorted(set(drop) & set(one_hot))
    if both:
        raise UsageError(f"--drop and --one-hot both name {quoted(both)}: choose one")
    dropped, encoded = {*drop, *beside}, set(one_hot)
    names = [name for name in table.columns if name != target and name not in dropped]
    if not names:
        raise TableError(f"{table.path} has no column left to learn from besides the target {target!r}")
    unnamed = [name for name in names if name.startswith("Unnamed: ")]
    if unnamed:
        raise TableError(f"a column of {table.path} has no name: name it, or leave it out: --drop {unnamed[0]!r}")
    frame = table.read([*names, target, *beside], one_hot)
    texts = {name: cell for name in names if name not in encoded and (cell := text_cell(frame[name])) is not None}
    if texts:
        told = ", ".join(f"{name!r} ({cell[:40]!r})" for name, cell in texts.items())
        first = next(iter(texts))
        raise TableError(f"not numbers in {table.path}: {told}. Use --drop {first!r} or --one-hot {first!r}, and so on")
    text = _numbers(frame[target])
    if text is not None and np.isnan(text).all() and not frame[target].isna().all():
        raise TableError(f"the target {target!r} of {table.path} holds text alone, and no number: check --target")
    y = numeric(frame[target], table.path, remedy="correct it or leave the row out")
    if len(y) < 2:
        raise TableError(f"{table.path} has one row: at least two are needed to learn from")
    made: dict[str, NDArray[Any]] = {}
    for name in names:
        if name not in encoded:
            remedy = f"correct it, leave the row out, or --drop {name!r}"
            made[name] = feature(frame[name], table.path, remedy=remedy)
            continue
        known = categories(frame[name], table.path)
        for value in known:  # a prediction knows no more than the names
            if resolve([f"{name}={value}"], table) != ([], {name: [value]}):
                raise TableError(
                    f"--one-hot {name}: '{name}={value}' reads as another column of {table.path}: rename one"
                )
        made |= indicators(frame[name], known, table.path)
    remedy = "correct it or leave the row out"
    return pd.DataFrame(made), y, {name: numeric(frame[name], table.path, remedy=remedy) for name in beside}


# -- places -----------------------------------------------------------------------------------------------------------
def places(given: Sequence[str]) -> dict[tuple[str, ...], str] | None:
    """Returns what --geographic says of columns, as GPRegressor takes it; None where it is not given."""
    pairs = [tuple(part.strip() for part in text.split(",")) for text in given]
    for text, pair in zip(given, pairs, strict=True):
        if len(pair) != 2 or not all(pair):
            raise UsageError(f"--geographic takes two columns, latitude,longitude, got {text!r}")
    return dict.fromkeys(pairs, "geographic") or None


def check_places(
    table: Table, target: str, columns: Mapping[tuple[str, ...], str] | None, others: Sequence[str]
) -> None:
    """Refuses places made of columns that the table lacks, of the target, and of what ``others`` drop or encode."""
    for pair in columns or ():
        for name in pair:
            check_column(table, name, "--geographic")
            if name == target:
                raise UsageError(f"--geographic {','.join(pair)}: {name!r} is the target")
            if name in others:
                raise UsageError(f"--geographic {','.join(pair)}: {name!r} is in --drop or --one-hot, too: choose one")


def check_cells(columns: InputMap, X: FloatArray, path: Path, rows: NDArray[np.intp] | range) -> None:
    """Raises for a cell of X that has no meaning in its column, by the numbers of the rows in the table at ``path``."""
    bad = columns.bad_cell(X)
    if bad is not None:
        more = f" and {bad.rows - 1} more" if bad.rows > 1 else ""
        where = f"column {columns.names[bad.column]!r} of {path}, row {rows[bad.row]}{more}"
        raise TableError(f"{where}, {bad.problem}")


# -- columns -----------------------------------------------------------------------------------------------------------
def check_column(table: Table, name: str, what: str) -> None:
    """Raises where the table lacks a column, with the nearest names."""
    if name in table:
        return
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1 and all(part in table for part in parts):
        raise TableError(
            f"{what}: {table.path} has no column {name!r}; give the option once for each of {quoted(parts)}"
        )
    near = difflib.get_close_matches(name, table.columns, n=3, cutoff=0.5)
    hint = f"did you mean {quoted(near, ' or ')}?" if near else f"its columns are {quoted(table.columns[:20])}"
    raise TableError(f"{what}: {table.path} has no column {name!r}; {hint}")


def one_target(table: Table, given: Sequence[str]) -> str:
    """Returns the column that --target names; refuses one that the table lacks, and several."""
    parts = [part.strip() for part in given[0].split(",")]
    listed = given[0] not in table and len(parts) > 1 and any(part in table for part in parts)
    if len(given) > 1 or listed:
        raise UsageError(
            f"--target takes one column, got {', '.join(given)}: fit one model for each, and --drop the others"
        )
    check_column(table, given[0], "--target")
    return given[0]


def feature(column: Any, path: Path, first_row: int = 1, remedy: str = "") -> NDArray[Any]:
    """Returns an input column as finite float64, or as its whole numbers where float64 cannot hold them all."""
    if _is_plain(column) and column.dtype.kind in "iu" and _loses_digits(column, column.to_numpy(np.float64)):
        return np.asarray(column.to_numpy())
    return numeric(column, path, first_row, remedy)


def numeric(column: Any, path: Path, first_row: int = 1, remedy: str = "") -> FloatArray:
    """Returns a column as finite float64; raises a TableError that names it and its first bad row otherwise."""
    values = _numbers(column)
    label, end = f"column {column.name!r} of {path}", f": {remedy}" if remedy else ""
    if values is None:
        raise TableError(f"{label} holds {column.dtype}, not numbers{end}")
    largest = np.abs(values).max(initial=0.0)
    if largest >= EXACT and _loses_digits(column, values):
        warnings.warn(
            f"{label} has whole numbers beyond 2**53, whose last digits are lost: subtract a constant from the column, "
            f"or leave it out if its numbers are labels",
            stacklevel=2,
        )
    if largest <= LARGEST:  # false with NaN
        return values
    for bad, problem in (
        (column.isna().to_numpy(), "is blank"),
        (np.isnan(values), "is not a number"),
        (np.isinf(values), "is infinite"),
        (np.abs(values) > LARGEST, "is too large to square"),
    ):
        if bad.any():
            row = int(bad.argmax())
            more = f" and {int(bad.sum()) - 1} more" if bad.sum() > 1 else ""
            shown = f" ({str(column.iloc[row])[:40]!r})" if problem == "is not a number" else ""
            raise TableError(f"{label} {problem} in row {first_row + row}{shown}{more}{end}")
    return values


def text_cell(column: Any) -> str | None:
    """Returns the first cell that is text where a number should be, or None."""
    if _is_plain(column):
        return None
    values = _numbers(column)
    if values is None:
        return str(column.iloc[0])
    bad = np.isnan(values) & ~column.isna().to_numpy()
    return str(column.iloc[int(bad.argmax())]) if bad.any() else None


def categories(column: Any, path: Path) -> list[str]:
    """Returns the different values of a text column, sorted; raises where there are too many."""
    found = sorted(column.dropna().unique())  # blanks are refused by indicators
    if len(found) > MOST_CATEGORIES:
        raise TableError(
            f"column {column.name!r} of {path} has {len(found):,} different values, too many for --one-hot "
            f"(at most {MOST_CATEGORIES}): use --drop {column.name}"
        )
    return found


def indicators(column: Any, known: Sequence[str], path: Path, first_row: int = 1) -> dict[str, FloatArray]:
    """Returns a column ``column=value`` of zeros and ones for each known value; refuses a value that is not known."""
    if column.isna().any():
        row = first_row + int(column.isna().to_numpy().argmax())
        raise TableError(f"column {column.name!r} of {path} is blank in row {row}: fill it in or leave the row out")
    unseen = ~column.isin(list(known)).to_numpy()
    if unseen.any():
        row = int(unseen.argmax())
        raise TableError(
            f"column {column.name!r} of {path} has the value {column.iloc[row]!r} in row {first_row + row}, which the "
            f"model has not seen (it knows {quoted(known[:20])}): correct it or leave the row out"
        )
    return {f"{column.name}={value}": (column == value).to_numpy().astype(np.float64) for value in known}


def resolve(names: Sequence[str], table: Table) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the columns that give a model's features: (numeric columns, {text column: its known values})."""
    plain: list[str] = []
    one_hot: dict[str, list[str]] = {}
    missing: list[str] = []
    for name in names:
        splits = [i for i, letter in enumerate(name) if letter == "=" and name[:i] in table]
        if name in table:
            plain.append(name)
        elif splits:
            one_hot.setdefault(name[: splits[-1]], []).append(name[splits[-1] + 1 :])
        else:
            missing.append(name)
    if missing:
        raise TableError(
            f"{table.path} lacks {'column' if len(missing) == 1 else 'columns'} {quoted(missing[:20])} of the model "
            f"(a name column=value is made from a text column): add what is missing to {quoted(table.columns[:20])}"
        )
    return plain, one_hot


def feature_chunks(
    table: Table, names: Sequence[str], extra: Sequence[str] = (), rows: int = CHUNK_ROWS
) -> Iterator[tuple[Any, dict[str, FloatArray]]]:
    """Yields chunks of (the features of a model in its order, the extra columns), all checked."""
    plain, one_hot = resolve(names, table)
    needed = list(dict.fromkeys([*plain, *one_hot, *extra]))
    row, remedy = 1, "correct it or leave the row out"
    for part in table.chunks(needed, list(one_hot), rows):
        made: dict[str, NDArray[Any]] = {name: feature(part[name], table.path, row, remedy) for name in plain}
        for name, known in one_hot.items():
            made |= indicators(part[name], known, table.path, row)
        others = {name: numeric(part[name], table.path, row, remedy) for name in extra}
        yield pd.DataFrame({name: made[name] for name in names}), others
        row += len(part)


def _numbers(column: Any) -> FloatArray | None:
    """Returns a column as float64, NaN for what is no number; None where its type cannot be numbers (dates, …)."""
    if _is_plain(column):
        return np.asarray(column.to_numpy(), dtype=np.float64)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    types = pd.api.types
    if types.is_complex_dtype(column) or not (
        types.is_numeric_dtype(column) or types.is_string_dtype(column) or types.is_object_dtype(column)
    ):
        return None
    if not types.is_numeric_dtype(column):
        column = pd.to_numeric(column, errors="coerce")
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _loses_digits(column: Any, values: FloatArray) -> bool:
    """Says whether whole numbers of a column differ from their float64 ``values``."""
    if not pd.api.types.is_integer_dtype(column.dtype) or column.isna().any():
        return False
    whole = column.to_numpy(dtype=np.uint64 if column.min() >= 0 else np.int64)
    step = np.maximum(np.spacing(np.abs(values)), 1.0).astype(whole.dtype)  # between neighbours in float64
    return bool((whole % step).any())


def _is_plain(column: Any) -> bool:
    """Says whether numpy holds a column as real numbers, as nearly all of a wide table."""
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiub"
