"""Tables written to files: CSV (also .csv.gz), Parquet and npz, chunk by chunk, whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.cli.tables import GRID, PARQUET, TableError, pyarrow_for, table_format
from warmgp.files.atomic import whole_file
from warmgp.files.paths import check_writable


class TableWriter:
    """Writes a table chunk by chunk; it appears only when all is written (:mod:`warmgp.files.atomic`).

    It is a context manager: leaving it by an exception removes what was written. Floats are written so that they read
    back to the same bits.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.kind = table_format(self.path)
        if self.kind == GRID:
            raise TableError(f"{path}: NetCDF holds a grid, and these are rows: use --grid, or write .csv")
        check_writable(self.path)
        if self.kind in PARQUET:
            pyarrow_for(self.path)  # or raise at once
        self._whole = whole_file(self.path)
        self._stream: Any = None  # a gzip or Parquet writer over the file
        self._kept: list[Any] = []  # the chunks of an npz, which is written in one go
        self._begun = False

    def __enter__(self) -> Self:
        self._file = self._whole.__enter__()
        if self.kind == ".csv.gz":
            self._stream = gzip.GzipFile("", "wb", fileobj=self._file)
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Appends rows, given by column."""
        frame = pd.DataFrame(dict(columns))
        if self.kind == ".npz":
            self._kept.append(frame)
        elif self.kind in PARQUET:
            rows = pyarrow_for(self.path).Table.from_pandas(frame, preserve_index=False)
            self._stream = self._stream or pyarrow_for(self.path).parquet.ParquetWriter(self._file, rows.schema)
            self._stream.write_table(rows)
        else:
            text = frame.to_csv(index=False, header=not self._begun, lineterminator="\n")
            (self._stream or self._file).write(text.encode())
        self._begun = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        with contextlib.ExitStack() as stack:
            stack.push(self._whole)
            if error is not None:
                if self._stream is not None:
                    with contextlib.suppress(Exception):  # nobody wants its complaint about a file that is gone
                        self._stream.close()
                raise error
            if self._stream is not None:
                self._stream.close()
            if self._kept:
                whole = pd.concat(self._kept)
                columns: dict[str, Any] = {name: _plain_array(whole[name]) for name in whole}
                np.savez(self._file, **columns)


def _plain_array(column: Any) -> NDArray[Any]:
    """Returns a column as an array that numpy writes without Python's objects: text as text, "" for none."""
    values = column.to_numpy()
    return values if values.dtype.kind in "fiubM" else np.asarray(column.fillna("").astype(str).to_numpy(dtype=str))
