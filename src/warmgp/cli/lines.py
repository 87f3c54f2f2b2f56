"""Bytes of a text table with a bound on the length of a row: a file that is one endless line cannot fill the memory."""

from __future__ import annotations

import io
from typing import Any

LONGEST_ROW = 2**25
"""The most bytes of one row of a text table, 32 MiB: a million columns of 32 characters."""


class RowError(ValueError):
    """Says that a row of a text table is longer than any table needs, or no text."""


class BoundedRows(io.RawIOBase):
    """Reads a binary file, and raises RowError as soon as it has given out a row that is too long.

    A line without an end is seen at once. A quoted cell may hold line ends, and only the parser knows where it closes:
    after as many line ends as rows were asked for (:meth:`expect`) the parser should have them, and may read on for
    the length of one row.

    Parameters
    ----------
    file : binary file
        The file that is read.
    most : int, optional
        The most bytes of a row; ``LONGEST_ROW`` by default.
    """

    def __init__(self, file: Any, most: int | None = None) -> None:
        super().__init__()
        self._file = file
        self._most = LONGEST_ROW if most is None else most
        self._line = 0  # bytes since the last line end
        self.text = False  # whether a NUL is an error: some parsers end a cell at one, and say nothing
        self.expect(1)

    def expect(self, rows: int) -> None:
        """Takes note that the parser is about to read this many rows."""
        self._ends = rows  # line ends that may still come
        self._beyond = 0  # bytes read since the last of them

    def readable(self) -> bool:
        """Says that the file can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into the buffer and returns how many bytes came; raises RowError for a row that will not do."""
        data = self._file.read(min(len(buffer), self._most))
        buffer[: len(data)] = data
        self._count(data)
        return len(data)

    def _count(self, data: bytes) -> None:
        if self.text and b"\0" in data:
            raise RowError("is not text (it holds NUL characters): save it as CSV in UTF-8")
        end = b"\n" if b"\n" in data else b"\r"
        first = data.find(end)
        self._line += len(data) if first < 0 else first
        if self._line > self._most:
            raise RowError(f"has a line of more than {self._most:,} bytes: write one row of the table per line")
        if first >= 0:
            self._line = len(data) - data.rfind(end) - 1
        if self._ends > 0:
            self._ends -= data.count(end)
            return
        self._beyond += len(data)
        if self._beyond > self._most:
            raise RowError(f"has a row of more than {self._most:,} bytes: is a quotation mark left open?")
