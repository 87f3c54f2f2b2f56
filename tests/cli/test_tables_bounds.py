"""Wide tables take work that grows with their columns, and endless rows of a text table no memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cli_tools import read_csv, run
from warmgp import GPRegressor
from warmgp.cli import lines
from warmgp.cli.columns import check_column, feature_chunks, resolve, training_columns
from warmgp.cli.tables import Table, TableError, open_table
from warmgp.cli.targets import targets_of


class CountedName(str):
    """A column name that counts how often any is compared with another."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class _Numbers(Table):
    """Two rows of every column."""

    def _parts(self, columns: list[str], text: list[str], rows: int) -> Iterator[Any]:
        yield pd.DataFrame(np.arange(2.0 * len(columns)).reshape(2, -1), columns=columns)


def test_work_grows_with_the_columns_and_not_with_their_square() -> None:
    # on the version before: 4 million comparisons to make the table, and 2 million to resolve its names
    d = 2000
    names = [CountedName(f"c{j}") for j in range(d)]
    CountedName.comparisons = 0
    table = _Numbers(Path("wide.csv"), names)
    asked = [CountedName(f"c{j}") for j in range(d)]
    assert resolve(asked, table) == (asked, {})
    for name in asked:
        check_column(table, name, "--drop")
    targets_of(table, asked[-1:])
    assert CountedName.comparisons <= 10 * d


def test_a_wide_csv_is_read_checked_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d, path = 3000, tmp_path / "wide.csv"
    values = np.random.default_rng(0).normal(size=(4, d + 1)).round(3)
    names = [*(f"c{j}" for j in range(d)), "y"]
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in values)]))
    X, y, _ = training_columns(open_table(path), "y", [], [])
    np.testing.assert_array_equal(X.to_numpy(), values[:, :-1])
    np.testing.assert_array_equal(y, values[:, -1])
    ((chunk, _),) = feature_chunks(open_table(path), names[:-1][::-1])
    np.testing.assert_array_equal(chunk.to_numpy(), values[:, :-1][:, ::-1])
    code, out, err = run(capsys, "fit", path, "--target", "y", "--dry-run")
    assert code == 0 and "4 rows of 3000 columns" in out, err


# -- endless rows ------------------------------------------------------------------------------------------------------
def _zipped(first: bytes, again: bytes, times: int) -> bytes:
    """The gz of a table far larger than itself, made piece by piece."""
    maker = zlib.compressobj(1, wbits=31)
    return b"".join([maker.compress(first), *(maker.compress(again) for _ in range(times)), maker.flush()])


MEGABYTE = b"1" * 2**20
BOMBS = {
    "a header without an end": (b"", MEGABYTE, "has a line of more than 33,554,432 bytes: write one row"),
    "a row without an end": (b"a,y\n1,", MEGABYTE, "has a line of more than 33,554,432 bytes: write one row"),
    "a row of many cells": (b"a,y\n1", b",1" * 2**19, "has a line of more than 33,554,432 bytes: write one row"),
    "an open quote": (b'a,y\n1,"', b"1\n" * 2**19, "has a row of more than 33,554,432 bytes: is a quotation mark"),
}
LIMITED = """
import resource, sys
from warmgp.cli.commands import main
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 640 * 2**20, resource.RLIM_INFINITY))
sys.exit(max(abs(main(["fit", path, "--target", "y", "--dry-run"]) - 2) for path in sys.argv[1:]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's count of a process's memory")
def test_rows_without_end_are_refused_in_little_memory(tmp_path: Path) -> None:
    paths = [tmp_path / f"bomb{i}.csv.gz" for i in range(len(BOMBS))]
    for path, (first, again, _) in zip(paths, BOMBS.values(), strict=True):
        path.write_bytes(_zipped(first, again, 320))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, paths)], capture_output=True, text=True, check=False
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and len(lines) == len(BOMBS), done.stderr
    for line, path, (_, _, message) in zip(lines, paths, BOMBS.values(), strict=True):
        assert line.startswith(f"error: {path}") and message in line


def test_the_bound_is_on_rows_and_not_on_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(lines, "LONGEST_ROW", 400_000)  # the parser asks for 262,144 characters at once
    path, rows, names = tmp_path / "t.csv.gz", 200_000, ["a", "b"]
    for text in ("a,b\n" + "1,2\n" * rows, "a,b\r" + "1,2\r" * rows, "a,b\r\n" + '1,"2"\r\n' * rows):
        path.write_bytes(gzip.compress(text.encode(), 1))
        assert sum(len(X) for X, _ in feature_chunks(open_table(path), names)) == rows
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * rows + b"1," + b"2" * 400_000, 1))
    with pytest.raises(TableError, match=r"t\.csv\.gz has a line of more than 400,000 bytes"):
        list(feature_chunks(open_table(path), names))
    path.write_bytes(gzip.compress(b"a,note,b\n" + b'1,"two\nlines",2\n' * rows, 1))  # more line ends than rows
    assert sum(len(X) for X, _ in feature_chunks(open_table(path), names)) == rows


def test_a_model_of_many_columns_predicts_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d, rng = 1500, np.random.default_rng(0)
    data = pd.DataFrame(rng.normal(size=(12, d)), columns=[f"c{j}" for j in range(d)])
    model = GPRegressor(n_steps=1, n_features=20, n_probes=2, device="cpu", random_state=0)
    model.fit(data, rng.normal(size=12)).save(tmp_path / "m")
    data[data.columns[::-1]].to_csv(tmp_path / "t.csv", index=False)
    code, _, err = run(capsys, "predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv", "--quiet")
    assert code == 0, err
    np.testing.assert_array_equal(read_csv(tmp_path / "p.csv")["mean"], model.predict(data))
