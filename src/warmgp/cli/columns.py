"""The columns of a table as numbers: those that a model is trained on, and those that it reads again to predict.

Categories and dates stay text, which the model reads (:mod:`warmgp.data.reading`). Models of earlier versions have
indicator columns named ``column=value`` instead, which are built again from their names. Whatever else is no finite
number is refused by column, row and value.
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
from warmgp.data.input_map import InputMap, said
from warmgp.data.reading import could_be, not_numbers

LARGEST = 1e150
"""The largest number that a table may hold: standardisation and distances square it."""
EXACT = 2.0**53
"""The size up to which float64 holds every whole number."""

FloatArray = NDArray[np.float64]


class UsageError(ValueError):
    """Says that options do not go together, or that the value of one makes no sense."""


# -- training ----------------------------------------------------------------------------------------------------------
def training_columns(
    table: Table,
    target: str | Sequence[str],
    drop: Sequence[str],
    columns: Mapping[Any, Any] | None = None,
    fills: bool = False,
    beside: Sequence[str] = (),
) -> tuple[pd.DataFrame, FloatArray, dict[str, FloatArray]]:
    """Returns the inputs as a DataFrame, in the file's order, the target, (n,), and the columns ``beside``, which are
    no inputs, as numbers of the same rows; refuses what is no number.

    What ``columns`` says are categories or dates is text, which the model reads. Blank cells are NaN where it ``fills``
    them in. Several targets are (n, q), and NaN where their cells are blank.
    """
    targets = [target] if isinstance(target, str) else list(target)
    for name in drop:
        check_column(table, name, "--drop")
        if name in targets:
            raise UsageError(f"--drop {name}: that is {'the' if len(targets) == 1 else 'a'} target")
    dropped, texts = {*drop, *beside}, _text_columns(columns)
    names = [name for name in table.columns if name not in targets and name not in dropped]
    if not names:
        told = ", ".join(map(repr, targets))
        raise TableError(f"{table.path} has no column left to learn from besides the target {told}")
    unnamed = [name for name in names if name.startswith("Unnamed: ")]
    if unnamed:
        raise TableError(f"a column of {table.path} has no name: name it, or leave it out: --drop {unnamed[0]!r}")
    frame = table.read([*names, *targets, *beside], texts)
    _refuse_text(frame, [name for name in names if name not in texts], table.path)
    y = _target_values(frame, targets, table.path)
    if len(y) < 2:
        raise TableError(f"{table.path} has one row: at least two are needed to learn from")
    made: dict[str, Any] = {}
    for name in names:
        remedy = f"correct it, leave the row out, or --drop {name!r}"
        remedy += "" if fills else ", or let --missing mean fill in what is blank"
        made[name] = cells(frame[name], table.path, text=name in texts, blank=fills, remedy=remedy)
    remedy = "correct it or leave the row out"
    return pd.DataFrame(made), y, {name: numeric(frame[name], table.path, remedy=remedy) for name in beside}


def _target_values(frame: pd.DataFrame, targets: Sequence[str], path: Path) -> FloatArray:
    """Returns the target as numbers, (n,), or several, (n, q), whose blank cells are NaN."""
    several, found = len(targets) > 1, []
    for name in targets:
        text = _numbers(frame[name])
        if text is not None and np.isnan(text).all() and not frame[name].isna().all():
            raise TableError(f"the target {name!r} of {path} holds text alone, and no number: check --target")
        found.append(numeric(frame[name], path, remedy="correct it or leave the row out", blank=several))
    return np.stack(found, 1) if several else found[0]


def _text_columns(columns: Mapping[Any, Any] | None) -> list[str]:
    """Returns the columns that are read as text: categories, and dates with what repeats in them."""
    kinds = {key: said(given) for key, given in (columns or {}).items()}
    dated = {key for key, (_, options) in kinds.items() if any(isinstance(one, str) for one in options)}
    return [key for key, (kind, _) in kinds.items() if kind in ("category", "date") or key in dated]


def _refuse_text(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    """Refuses text among numbers, by its cell, and columns of text, by what could be said of them."""
    told, advice = [], []
    for name in names:
        cell = text_cell(frame[name])
        if cell is None:
            continue
        bad = not_numbers(frame[name])
        if 2 * bad.sum() < (~frame[name].isna()).sum():
            row, more = int(bad.argmax()), f" (and in {int(bad.sum()) - 1} more rows)" if bad.sum() > 1 else ""
            raise TableError(
                f"{path}, row {row + 1}, column {name!r}: {cell[:40]!r} is not a number{more}: correct it, leave the "
                f"row out, or --drop {name!r}"
            )
        told.append(f"{name!r} ({cell[:40]!r})")
        advice.append(f"{_option_for(frame[name])} {name!r}")
    if told:
        left_out = all(one.startswith(("--drop", "--keep")) for one in advice)
        end = "" if left_out else ", or --keep (or --drop) what is no input"
        raise TableError(f"not numbers in {path}: {', '.join(told)}. Use {', '.join(advice)}{end}")


def _option_for(column: Any) -> str:
    """Returns the option for a column that is not numbers: what its cells can be."""
    kind = could_be(column)
    if kind:
        return f"--{kind}"
    return "--keep" if column.notna().any() and isinstance(column.dropna().iloc[0], str) else "--drop"


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


def cells(
    column: Any, path: Path, first_row: int = 1, *, text: bool = False, blank: bool = False, remedy: str = ""
) -> NDArray[Any]:
    """Returns an input column as it is handed to a model: numbers, or text that it reads; blanks where it may."""
    if not text:
        return feature(column, path, first_row, remedy, blank)
    missing = column.isna().to_numpy()
    if missing.any() and not blank:
        row, more = int(missing.argmax()), f" and {int(missing.sum()) - 1} more" if missing.sum() > 1 else ""
        raise TableError(f"column {column.name!r} of {path} is blank in row {first_row + row}{more}: {remedy}")
    return np.asarray(column.to_numpy(dtype=object))


def feature(column: Any, path: Path, first_row: int = 1, remedy: str = "", blank: bool = False) -> NDArray[Any]:
    """Returns an input column as finite float64, or as its whole numbers where float64 cannot hold them all.

    With ``blank`` a cell may be blank, and is NaN.
    """
    if _is_plain(column) and column.dtype.kind in "iu" and _loses_digits(column, column.to_numpy(np.float64)):
        return np.asarray(column.to_numpy())
    return numeric(column, path, first_row, remedy, blank)


def numeric(column: Any, path: Path, first_row: int = 1, remedy: str = "", blank: bool = False) -> FloatArray:
    """Returns a column as finite float64; raises a TableError that names it and its first bad row otherwise.

    With ``blank`` a cell may be blank, and is NaN.
    """
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
    missing = column.isna().to_numpy()
    for bad, problem in (
        (missing & (not blank), "is blank"),
        (np.isnan(values) & ~missing, "is not a number"),
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
    table: Table,
    names: Sequence[str],
    extra: Sequence[str] = (),
    rows: int = CHUNK_ROWS,
    *,
    columns: InputMap | None = None,
    keep: Sequence[str] = (),
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yields chunks of (the features of a model in its order, the extra columns), all checked.

    ``columns`` is what the model knows of them: which are text, and which may be blank. ``keep`` are more columns, as
    they stand in the file.
    """
    plain, one_hot = resolve(names, table)
    texts = set() if columns is None else {names[j] for j in columns.read}
    blank = set() if columns is None else {names[j] for j in columns.with_gaps}
    needed = list(dict.fromkeys([*plain, *one_hot, *extra]))
    raw = [name for name in keep if name not in needed]
    row, remedy = 1, "correct it or leave the row out"
    for part in table.chunks([*needed, *raw], [*one_hot, *texts], rows, raw):
        made: dict[str, NDArray[Any]] = {
            name: cells(part[name], table.path, row, text=name in texts, blank=name in blank, remedy=remedy)
            for name in plain
        }
        for name, known in one_hot.items():
            made |= indicators(part[name], known, table.path, row)
        others: dict[str, Any] = {name: numeric(part[name], table.path, row, remedy) for name in extra}
        others |= {name: part[name] for name in keep}
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
