"""Tables in files: CSV (also .csv.gz), Parquet and npz, read by column name in chunks, written whole or not at all.

A CSV has a header and commas. An npz holds ``X`` (its columns are x0, x1, …) and, for training, ``y``. A text column
becomes indicator columns named ``column=value``: the names alone are enough to build them again for new rows.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import io
import os
import warnings
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CHUNK_ROWS = 6 * 8192
"""Rows per chunk: a multiple of the posterior's batches, so that chunks change no digit of a prediction."""
MOST_CATEGORIES = 200
FORMATS = (".csv", ".csv.gz", ".parquet", ".pq", ".npz")
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "null", "NULL", "None"]
# from 3.1 on every number is parsed exactly, and the option is deprecated
_EXACT = {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}

FloatArray = NDArray[np.float64]


class TableError(ValueError):
    """A table, or a cell of it, that cannot be used."""


# -- reading ---------------------------------------------------------------------------------------------------------
class Table(ABC):
    """A table in a file: its columns in order, its rows in chunks, and the fraction of it that they have used up."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        repeated = sorted({name for name in columns if list(columns).count(name) > 1})
        if repeated:
            raise TableError(f"{path} has more than one column named {quoted(repeated)}: rename them")
        self.path = path
        self.columns = list(columns)
        self.fraction = 0.0

    def chunks(self, columns: Sequence[str], text: Sequence[str] = (), rows: int = CHUNK_ROWS) -> Iterator[Any]:
        """DataFrames of those columns, each of exactly ``rows`` rows but the last; ``text`` columns as strings."""
        waiting: list[Any] = []
        count = total = 0
        for part in self._parts(list(columns), list(text), rows):
            for name in text:
                part[name] = _as_text(part[name])
            total += len(part)
            while count + len(part) >= rows:
                cut = rows - count
                yield pd.concat([*waiting, part.iloc[:cut]], ignore_index=True)
                part, waiting, count = part.iloc[cut:], [], 0
            if len(part):
                waiting.append(part)
                count += len(part)
        if waiting:
            yield pd.concat(waiting, ignore_index=True)
        if total == 0:
            raise TableError(f"{self.path} has column names but no rows")

    def read(self, columns: Sequence[str], text: Sequence[str] = ()) -> Any:
        """All rows of those columns as one DataFrame."""
        return pd.concat(list(self.chunks(columns, text)), ignore_index=True)

    @abstractmethod
    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        """DataFrames of those columns, of whatever length the format reads best."""


def open_table(path: str | os.PathLike[str]) -> Table:
    """The table of that file, by its extension."""
    path = Path(path)
    kind = table_format(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is {'a folder, not a file' if path.is_dir() else 'missing: no such file'}")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    if kind == ".npz":
        return _NpzTable(path)
    return _ParquetTable(path) if kind in (".parquet", ".pq") else _CsvTable(path)


def table_format(path: Path) -> str:
    """The extension, one of FORMATS."""
    for known in FORMATS:
        if path.name.lower().endswith(known):
            return known
    raise TableError(f"{path} has an unknown extension: tables are {', '.join(FORMATS)}")


class _CsvTable(Table):
    def __init__(self, path: Path) -> None:
        with _reading(path), _csv_file(path) as (_, file), io.TextIOWrapper(file, "utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines, skipinitialspace=True), [])
        names = [name.strip() for name in header]
        if not any(names):
            raise TableError(f"{path} is empty: its first line must name the columns")
        if pd.to_numeric(pd.Series(names), errors="coerce").notna().all():
            raise TableError(f"{path} has no header (its first line is numbers): add a line that names the columns")
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            raise TableError(f"{path} is not separated by commas (its header is {names[0]!r}): save it with commas")
        super().__init__(path, [name or f"Unnamed: {i}" for i, name in enumerate(names)])

    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        size = self.path.stat().st_size
        with _reading(self.path), _csv_file(self.path) as (raw, file), warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a row with more cells than the header
            reader = pd.read_csv(
                file,
                header=0,
                names=self.columns,  # all are read: with usecols, rows of too many cells would pass unnoticed
                index_col=False,
                chunksize=rows,
                low_memory=False,
                skipinitialspace=True,
                skip_blank_lines=len(self.columns) > 1,
                dtype=dict.fromkeys(text, str),
                keep_default_na=False,
                na_values={name: [""] if name in text else MISSING for name in self.columns},
                encoding="utf-8-sig",
                **_EXACT,
            )
            for part in reader:
                self.fraction = raw.tell() / size
                yield part[columns].copy()


class _ParquetTable(Table):
    def __init__(self, path: Path) -> None:
        with _reading(path), _arrow(path).parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
        super().__init__(path, [name for name in names if not name.startswith("__index_level_")])

    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        with _reading(self.path), _arrow(self.path).parquet.ParquetFile(self.path) as file:
            done = 0
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                done += batch.num_rows
                self.fraction = done / file.metadata.num_rows
                yield batch.to_pandas(ignore_metadata=True)[columns]


class _NpzTable(Table):
    def __init__(self, path: Path) -> None:
        with _reading(path):
            loaded = np.load(path, allow_pickle=False)
            arrays = {name: loaded[name] for name in ("X", "y") if name in loaded.files}
            held = loaded.files
        if "X" not in arrays:
            raise TableError(f"{path} has no array named X (it has {quoted(held) or 'none'}): save it with X=…")
        X = arrays["X"]
        if X.ndim != 2:
            raise TableError(f"X in {path} must have two dimensions (rows, columns), got shape {X.shape}")
        self.arrays = {f"x{j}": X[:, j] for j in range(X.shape[1])}
        if "y" in arrays:
            if arrays["y"].shape != X.shape[:1]:
                raise TableError(f"y in {path} must have shape ({len(X)},) as X has rows, got {arrays['y'].shape}")
            self.arrays["y"] = arrays["y"]
        self.n_rows = len(X)
        super().__init__(path, list(self.arrays))

    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        for start in range(0, self.n_rows, rows):
            self.fraction = min(1.0, (start + rows) / self.n_rows)
            yield pd.DataFrame({name: self.arrays[name][start : start + rows] for name in columns})


def _arrow(path: Path) -> Any:
    """pyarrow, which only Parquet needs."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise TableError(f"{path}: Parquet needs pyarrow: pip install pyarrow") from error
    return pyarrow


@contextlib.contextmanager
def _csv_file(path: Path) -> Iterator[tuple[IO[bytes], Any]]:
    """(the file itself, the file unzipped)."""
    with path.open("rb") as raw:
        yield raw, gzip.GzipFile(fileobj=raw) if path.name.lower().endswith(".gz") else raw


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns whatever a damaged file raises into a TableError that names it."""
    try:
        yield
    except (TableError, PermissionError):
        raise
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not UTF-8 text: save it as UTF-8") from error
    except pd.errors.ParserWarning as error:
        raise TableError(f"{path} has rows with more cells than the header names columns") from error
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile, csv.Error) as error:
        raise TableError(f"{path} cannot be read (damaged or another format): {error}") from error


# -- columns ---------------------------------------------------------------------------------------------------------
def check_column(table: Table, name: str, what: str) -> None:
    """Refuse a column that the table lacks, with the nearest names."""
    if name in table.columns:
        return
    near = difflib.get_close_matches(name, table.columns, n=3, cutoff=0.5)
    hint = f"did you mean {quoted(near, ' or ')}?" if near else f"its columns are {quoted(table.columns[:20])}"
    raise TableError(f"{what}: {table.path} has no column {name!r}; {hint}")


def numeric(column: Any, path: Path, first_row: int = 1, remedy: str = "") -> FloatArray:
    """A column as finite float64; raises TableError naming the column and the first bad row (counted from 1)."""
    values = _numbers(column)
    label, end = f"column {column.name!r} of {path}", f": {remedy}" if remedy else ""
    if values is None:
        raise TableError(f"{label} holds {column.dtype}, not numbers{end}")
    for bad, problem in (
        (column.isna().to_numpy(), "is blank"),
        (np.isnan(values), "is not a number"),
        (np.isinf(values), "is infinite"),
    ):
        if bad.any():
            row = int(bad.argmax())
            more = f" and {int(bad.sum()) - 1} more" if bad.sum() > 1 else ""
            shown = f" ({str(column.iloc[row])[:40]!r})" if problem == "is not a number" else ""
            raise TableError(f"{label} {problem} in row {first_row + row}{shown}{more}{end}")
    return values


def text_cell(column: Any) -> str | None:
    """The first cell that is text where a number should be, or None."""
    values = _numbers(column)
    if values is None:
        return str(column.iloc[0])
    bad = np.isnan(values) & ~column.isna().to_numpy()
    return str(column.iloc[int(bad.argmax())]) if bad.any() else None


def categories(column: Any, path: Path) -> list[str]:
    """The different values of a text column, sorted."""
    found = sorted(column.dropna().unique())  # blanks are refused by indicators
    if len(found) > MOST_CATEGORIES:
        raise TableError(
            f"column {column.name!r} of {path} has {len(found):,} different values, too many for --one-hot "
            f"(at most {MOST_CATEGORIES}): use --drop {column.name}"
        )
    return found


def indicators(column: Any, known: Sequence[str], path: Path, first_row: int = 1) -> dict[str, FloatArray]:
    """One column ``column=value`` of zeros and ones for each known value; refuses a value that is not known."""
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
    """Which columns give a model's features: (numeric columns, {text column: its known values})."""
    plain: list[str] = []
    one_hot: dict[str, list[str]] = {}
    missing: list[str] = []
    for name in names:
        splits = [i for i, letter in enumerate(name) if letter == "=" and name[:i] in table.columns]
        if name in table.columns:
            plain.append(name)
        elif splits:
            one_hot.setdefault(name[: splits[-1]], []).append(name[splits[-1] + 1 :])
        else:
            missing.append(name)
    if missing:
        raise TableError(
            f"{table.path} lacks {'column' if len(missing) == 1 else 'columns'} {quoted(missing[:20])} of the model "
            f"(a name column=value is made from a text column): it has {quoted(table.columns[:20])}"
        )
    return plain, one_hot


def feature_chunks(
    table: Table, names: Sequence[str], extra: Sequence[str] = (), rows: int = CHUNK_ROWS
) -> Iterator[tuple[Any, dict[str, FloatArray]]]:
    """Chunks of (the features of a model in its order, the extra columns), all checked."""
    plain, one_hot = resolve(names, table)
    needed = list(dict.fromkeys([*plain, *one_hot, *extra]))
    row, remedy = 1, "correct it or leave the row out"
    for part in table.chunks(needed, list(one_hot), rows):
        made: dict[str, FloatArray] = {name: numeric(part[name], table.path, row, remedy) for name in plain}
        for name, known in one_hot.items():
            made |= indicators(part[name], known, table.path, row)
        others = {name: numeric(part[name], table.path, row, remedy) for name in extra}
        yield pd.DataFrame({name: made[name] for name in names}), others
        row += len(part)


def quoted(names: Sequence[str], between: str = ", ") -> str:
    return between.join(map(repr, map(str, names)))


def _numbers(column: Any) -> FloatArray | None:
    """As float64 with NaN for what is no number; None where the type cannot be numbers (dates, …)."""
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


def _as_text(column: Any) -> Any:
    """Strings, stripped; whole numbers without a decimal point; blanks stay blank."""

    def text(value: Any) -> str | None:
        whole = isinstance(value, float | np.floating) and float(value).is_integer()
        return None if pd.isna(value) else str(int(value) if whole else value).strip() or None

    return column.astype(object).map(text).astype(object)


# -- writing ---------------------------------------------------------------------------------------------------------
class TableWriter:
    """Writes a table chunk by chunk to a temporary name beside ``path``, which appears only when all is written.

    A context manager: leaving it by an exception removes what was written. Floats are written so that they read back
    to the same bits.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.kind = table_format(self.path)
        check_writable(self.path)
        if self.kind in (".parquet", ".pq"):
            _arrow(self.path)  # or refuse at once
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self._stream: Any = None  # a gzip or Parquet writer over the file
        self._kept: list[Any] = []  # of an npz, which is written in one go
        self._begun = False

    def __enter__(self) -> Self:
        self._file = self._temporary.open("wb")
        if self.kind == ".csv.gz":
            self._stream = gzip.GzipFile("", "wb", fileobj=self._file)
        return self

    def write(self, columns: Mapping[str, FloatArray]) -> None:
        """Append rows."""
        frame = pd.DataFrame(dict(columns))
        if self.kind == ".npz":
            self._kept.append(frame)
        elif self.kind in (".parquet", ".pq"):
            rows = _arrow(self.path).Table.from_pandas(frame, preserve_index=False)
            self._stream = self._stream or _arrow(self.path).parquet.ParquetWriter(self._file, rows.schema)
            self._stream.write_table(rows)
        else:
            text = frame.to_csv(index=False, header=not self._begun, lineterminator="\n")
            (self._stream or self._file).write(text.encode())
        self._begun = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                if self._stream is not None:
                    self._stream.close()
                if self._kept:
                    whole = pd.concat(self._kept)
                    np.savez(self._file, **{name: whole[name].to_numpy() for name in whole})
                self._file.flush()
                os.fsync(self._file.fileno())
                self._temporary.replace(self.path)
        finally:
            self._file.close()
            self._temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Refuse a target whose folder is missing, or that is a folder, before any work is done."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
