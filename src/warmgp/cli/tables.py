"""Tables in files: CSV (also .csv.gz), Parquet and npz, read by column name in chunks.

A CSV has a header and commas. Parquet may be a folder of files with the same columns. An npz holds ``X`` (columns
x0, x1, …) and, for training, ``y``. NetCDF is read, too: a row for each cell that has all that is asked for;
:mod:`warmgp.cli.maps` writes it.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import math
import os
import warnings
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.cli.lines import BoundedRows, RowError
from warmgp.data.grids import CHUNK_ROWS, GridError, chunks, missing_cells
from warmgp.data.named_grids import read_cells
from warmgp.files.paths import check_readable
from warmgp.processes import Team

FORMATS = (".csv", ".csv.gz", ".parquet", ".pq", ".npz")
"""The extensions of tables."""
PARQUET = (".parquet", ".pq")
"""Those of Parquet."""
GRID = ".nc"
"""The extension of a grid, which is read as a table and written by a map alone."""
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "null", "NULL", "None"]
"""Cells of a CSV that count as blank."""
# from pandas 3.1 on every number is parsed exactly, and the option is deprecated
_EXACT = {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}

FloatArray = NDArray[np.float64]


class TableError(ValueError):
    """Says that a table, or a cell of it, cannot be used."""


# -- reading ---------------------------------------------------------------------------------------------------------
class Table(ABC):
    """Reads a table in a file: columns in order, rows in chunks, and the fraction of it that they have used up.

    ``left_out`` counts rows that a grid has, and that lack a value.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        repeated = sorted(name for name, times in Counter(columns).items() if times > 1)
        if repeated:
            raise TableError(f"{path} has more than one column named {quoted(repeated[:20])}: rename them")
        self.path = path
        self.columns = list(columns)
        self._known = frozenset(columns)
        self.fraction = 0.0
        self.left_out = 0
        self.team: Team | None = None  # the processes that read it together, each a part where the format has parts

    def __contains__(self, name: str) -> bool:
        """Says whether it has a column of that name."""
        return name in self._known

    def chunks(
        self, columns: Sequence[str], text: Sequence[str] = (), rows: int = CHUNK_ROWS, raw: Sequence[str] = ()
    ) -> Iterator[Any]:
        """Yields DataFrames of those columns, of exactly ``rows`` rows but the last; ``text`` columns as strings.

        Those of ``raw`` stay what they are in the file: of a CSV text, to the last letter.
        """
        waiting: list[Any] = []
        count = total = 0
        for part in self._parts(list(columns), [*text, *raw], rows):
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
            gaps = f" ({self.left_out:,} cells lack a value)" if self.left_out else ""
            raise TableError(f"{self.path} has column names but no rows{gaps}: add some")

    def read(self, columns: Sequence[str], text: Sequence[str] = ()) -> Any:
        """Returns all rows of those columns as one DataFrame."""
        return pd.concat(list(self.chunks(columns, text)), ignore_index=True)

    @abstractmethod
    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        """Yields DataFrames of those columns, of whatever length the format reads best."""


def open_table(path: str | os.PathLike[str], about: Sequence[str] = ()) -> Table:
    """Opens the table in a file, by its extension; of a grid the rows are the cells of the variables ``about``."""
    path = Path(path)
    if path.is_dir():
        return _ParquetTable(path)
    kind = table_format(path)
    check_readable(path)
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty: it must name its columns and have rows")
    if kind == ".npz":
        return _NpzTable(path)
    if kind == GRID:
        return NetcdfTable(path, about)
    return _ParquetTable(path) if kind in PARQUET else _CsvTable(path)


def table_format(path: Path) -> str:
    """Returns the extension of a path, one of ``FORMATS`` or ``GRID``; raises for any other."""
    for known in (*FORMATS, GRID):
        if path.name.lower().endswith(known):
            return known
    raise TableError(f"{path} has an unknown extension: tables are {', '.join(FORMATS)}, grids are {GRID}")


class _CsvTable(Table):
    def __init__(self, path: Path) -> None:
        with _reading(path), _csv_file(path) as (_, file):
            lines = io.TextIOWrapper(io.BufferedReader(file), "utf-8-sig", newline="")
            header = next(csv.reader(lines, skipinitialspace=True), [])
        names = [name.strip().strip("\ufeff").strip() for name in header]  # marks of files put together
        if any("\0" in name for name in names):
            raise TableError(f"{path} is not text (it holds NUL characters): save it as CSV in UTF-8")
        if not any(names):
            raise TableError(f"{path} is empty: its first line must name the columns")
        if pd.to_numeric(pd.Series(names), errors="coerce").notna().all():
            raise TableError(f"{path} has no header (its first line is numbers): add a line that names the columns")
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            raise TableError(f"{path} is not separated by commas (its header is {names[0]!r}): save it with commas")
        super().__init__(path, [name or f"Unnamed: {i}" for i, name in enumerate(names)])

    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        size, texts = self.path.stat().st_size, set(text)
        with _reading(self.path), _csv_file(self.path) as (raw, file), warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a row with more cells than the header
            file.text = True
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
                na_values={name: [""] if name in texts else MISSING for name in self.columns} if texts else MISSING,
                encoding="utf-8-sig",
                **_EXACT,
            )
            file.expect(rows + 1)  # the header, too
            for part in reader:
                self.fraction = raw.tell() / size
                yield part[columns].copy()
                file.expect(rows)


class _ParquetTable(Table):
    """Reads a Parquet file, or the files of a folder one after the other, by their names."""

    def __init__(self, path: Path) -> None:
        self.files = _files_in(path) if path.is_dir() else [path]
        first, *others = (self._names(file) for file in self.files)
        for file, names in zip(self.files[1:], others, strict=True):
            if set(names) != set(first):
                odd = sorted(set(names) ^ set(first))
                raise TableError(f"{file} and {self.files[0]} differ in {quoted(odd[:20])}: one of them alone has it")
        super().__init__(path, first)

    @staticmethod
    def _names(path: Path) -> list[str]:
        with _reading(path), pyarrow_for(path).parquet.ParquetFile(path) as file:
            return [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]

    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        if self.team is not None:
            yield from self._divided(columns, self.team)
            return
        for number, path in enumerate(self.files):
            with _reading(path), pyarrow_for(path).parquet.ParquetFile(path) as file:
                done = 0
                for batch in file.iter_batches(batch_size=rows, columns=columns):
                    done += batch.num_rows
                    self.fraction = (number + done / file.metadata.num_rows) / len(self.files)
                    yield batch.to_pandas(ignore_metadata=True)[columns]

    def _divided(self, columns: list[str], team: Team) -> Iterator[Any]:
        """Yields the row groups, of which each process reads its own and has the others from those who did."""
        mine, count = [], 0
        for path in self.files:
            with _reading(path), pyarrow_for(path).parquet.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    if count % team.size == team.rank:
                        mine.append(file.read_row_group(group, columns=columns).to_pandas(ignore_metadata=True))
                    count += 1
        every = team.every_object(mine)
        for group in range(count):
            yield every[group % team.size][group // team.size][columns]


def _files_in(folder: Path) -> list[Path]:
    """Returns the Parquet files of a folder by name, without those of the programs that write such folders."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in PARQUET and path.name[0] not in "._")
    if not files:
        raise TableError(f"{folder} is a folder without a Parquet file in it (folders inside it are not looked at)")
    for path in files:
        check_readable(path)
    return files


class _NpzTable(Table):
    def __init__(self, path: Path) -> None:
        with _reading(path):
            if not zipfile.is_zipfile(path):  # numpy would advise to trust a pickle
                with path.open("rb") as file:
                    single = file.read(6) == b"\x93NUMPY"
                problem = (
                    "holds a single array, not X and y" if single else "cannot be read (damaged, or not an npz file)"
                )
                raise TableError(f"{path} {problem}, save it again: numpy.savez(…, X=X, y=y)")
            with np.load(path, allow_pickle=False) as loaded:
                held = loaded.files
                for name in {"X", "y"} & set(held):
                    _check_claim(path, loaded, name)
                arrays = {name: loaded[name] for name in ("X", "y") if name in held}
        if "X" not in arrays:
            raise TableError(f"{path} has no array named X (it has {quoted(held) or 'none'}): save it with X=…")
        X = arrays["X"]
        if X.ndim != 2:
            raise TableError(f"X in {path} must have two dimensions (rows, columns), got shape {X.shape}: reshape it")
        if not len(X):
            raise TableError(f"X in {path} has no rows (its shape is {X.shape}): add some")
        self.arrays = {f"x{j}": X[:, j] for j in range(X.shape[1])}
        if "y" in arrays:
            shape = arrays["y"].shape
            if shape != X.shape[:1]:
                several = ": fit one model per column" if shape[:1] == X.shape[:1] else ""
                raise TableError(f"y in {path} must have shape ({len(X)},) as X has rows, got {shape}{several}")
            self.arrays["y"] = arrays["y"]
        self.n_rows = len(X)
        super().__init__(path, list(self.arrays))

    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        for start in range(0, self.n_rows, rows):
            self.fraction = min(1.0, (start + rows) / self.n_rows)
            yield pd.DataFrame({name: self.arrays[name][start : start + rows] for name in columns})


class NetcdfTable(Table):
    """Reads a grid in a NetCDF file as a table: coordinates and variables are columns, cells are rows."""

    def __init__(self, path: Path, about: Sequence[str]) -> None:
        try:
            with _reading(path):
                self.cells = read_cells(path, about)
        except ImportError as error:
            raise TableError(str(error)) from error
        super().__init__(path, list(self.cells.columns))

    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        for start, stop in chunks(self.cells.size, rows):
            found = self.cells.rows(columns, start, stop)
            missing = missing_cells(found)
            self.left_out += int(missing.sum())
            self.fraction = stop / self.cells.size
            yield pd.DataFrame({name: values[~missing] for name, values in found.items()})


def _check_claim(path: Path, file: Any, name: str) -> None:
    """Refuses an array whose header claims another size than its file holds, before memory is asked for."""
    member = f"{name}.npy"
    if member not in file.zip.namelist():  # bytes that are no array
        raise TableError(f"{name} in {path} is not an array of numpy: write it with numpy.savez(…, X=X, y=y)")
    with file.zip.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        claimed, there = math.prod(shape) * dtype.itemsize, file.zip.getinfo(member).file_size - stream.tell()
    if dtype.hasobject:
        raise TableError(f"{name} in {path} holds objects of Python, which are not loaded: save it as numbers")
    if claimed != there or min(shape, default=0) < 0:
        raise TableError(
            f"{name} in {path} is damaged: it claims shape {shape} of {dtype}, {claimed:,} bytes, and has {there:,}: "
            f"save it again"
        )


def pyarrow_for(path: Path) -> Any:
    """Returns pyarrow, which only Parquet needs; raises where it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise TableError(f"{path}: Parquet needs pyarrow: pip install pyarrow") from error
    return pyarrow


@contextlib.contextmanager
def _csv_file(path: Path) -> Iterator[tuple[IO[bytes], BoundedRows]]:
    """Yields (the file itself, the file unzipped and with a bound on its rows)."""
    with path.open("rb") as raw:
        yield raw, BoundedRows(gzip.GzipFile(fileobj=raw) if path.name.lower().endswith(".gz") else raw)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns whatever a damaged file raises into a TableError that names it."""
    try:
        yield
    except (TableError, PermissionError):
        raise
    except (RowError, GridError) as error:
        raise TableError(f"{path} {error}") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not UTF-8 text: save it as UTF-8") from error
    except pd.errors.ParserWarning as error:
        raise TableError(
            f"{path} has rows with more cells than the header names columns: quote cells with commas"
        ) from error
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile, csv.Error) as error:
        raise TableError(f"{path} cannot be read (damaged or another format), save it again: {error}") from error


def quoted(names: Sequence[str], between: str = ", ") -> str:
    """Returns the names in quotation marks, one after the other."""
    return between.join(map(repr, map(str, names)))


def _as_text(column: Any) -> Any:
    """Returns a column as strings, stripped; whole numbers have no decimal point, and blanks stay blank."""

    def text(value: Any) -> str | None:
        whole = isinstance(value, float | np.floating) and float(value).is_integer()
        return None if pd.isna(value) else str(int(value) if whole else value).strip() or None

    return column.astype(object).map(text).astype(object)
