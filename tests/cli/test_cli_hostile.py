"""Awkward and hostile tables through the command line: the right numbers, or one line that says what to do.

Each case is a table of the columns a and y (x0, x1 and y for npz), and what `warmgp fit` makes of it: the numbers of
its inputs, or words of the error.
"""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_tools import refused, run
from warmgp.cli.columns import training_columns
from warmgp.cli.tables import open_table

NUMBERS = "Use --category 'a', or --keep"
NO_INPUT = "Use --drop 'a'"
GOOD = [[1.0], [3.0]]


def _seen(path: Path) -> tuple[list[str], list[list[float]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X, _, _ = training_columns(open_table(path), "y", [], [])
    return list(X.columns), X.to_numpy().tolist()


def _check(path: Path, expected: object, capsys: pytest.CaptureFixture[str], names: list[str] | None = None) -> None:
    arguments: list[object] = ["fit", path, "--target", "y", "--dry-run"]
    if isinstance(expected, str):
        refused(capsys, arguments, [path.name, expected])
        return
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "") and "rows of" in out
    assert _seen(path) == (names or ["a"], expected)


TEXTS: dict[str, tuple[str | bytes, object]] = {
    "byte order mark": (b"\xef\xbb\xbfa,y\n1,2\n3,4\n", GOOD),
    "mark and quotes": (b'\xef\xbb\xbf"a","y"\n1,2\n3,4\n', GOOD),
    "two marks": (b"\xef\xbb\xbf\xef\xbb\xbfa,y\n1,2\n3,4\n", GOOD),
    "mixed line ends": (b"a,y\r\n1,2\n3,4\r5,6\r\n", [[1.0], [3.0], [5.0]]),
    "old line ends": (b"a,y\r1,2\r3,4\r", GOOD),
    "no last line end": ("a,y\n1,2\n3,4", GOOD),
    "blank lines": ("a,y\n\n1,2\n\n\n3,4\n\n", GOOD),
    "quoted numbers": ('a,y\n"1","2"\n"3","4"\n', GOOD),
    "padding": ("a ,y\n 1 ,2\n\t3,4 \n", GOOD),
    "leading zeros": ("a,y\n010,2\n0020,4\n", [[10.0], [20.0]]),
    "underflow": ("a,y\n1e-400,2\n3,4\n", [[0.0], [3.0]]),
    "many digits": ("a,y\n0." + "1" * 5000 + ",2\n3,4\n", [[0.1111111111111111], [3.0]]),
    "booleans": ("a,y\nTrue,2\nFalse,4\n", [[1.0], [0.0]]),
    "NUL in a cell": (b"a,y\n1,2\n3\0,4\n", "it holds NUL characters"),
    "NUL between digits": (b"a,y\n1,2\n3\x009,4\n", "it holds NUL characters"),
    "NULs at the end": (b"a,y\n1,2\n3,4\n" + b"\0" * 100, "it holds NUL characters"),
    "UTF-16": ("a,y\n1,2\n".encode("utf-16"), "not UTF-8 text: save it as UTF-8"),
    "a gz under another name": (gzip.compress(b"a,y\n1,2\n"), "not UTF-8 text"),
    "a zip under another name": (b"PK\x03\x04" + b"\0" * 40, "not text"),
    "thousands": ('a,y\n"1,234",2\n3,4\n', "('1,234'). " + NUMBERS),
    "underscores": ("a,y\n1_000,2\n3,4\n", NUMBERS),
    "hexadecimal": ("a,y\n0x10,2\n3,4\n", NUMBERS),
    "Fortran's exponent": ("a,y\n1.5D+02,2\n3,4\n", NUMBERS),
    "digits of another script": ("a,y\n١٢,2\n３,4\n", NUMBERS),
    "another minus": ("a,y\n−1,2\n3,4\n", NUMBERS),
    "no-break space": ("a,y\n1\u00a0234,2\n3,4\n", NUMBERS),
    "per cent": ("a,y\n10%,2\n3,4\n", NUMBERS),
    "formula": ("a,y\n=1+1,2\n3,4\n", NUMBERS),
    "inch mark": ('a,y\n1,2\n3"4,5\n', NUMBERS),
    "Windows' NaN": ("a,y\n-1.#IND,2\n3,4\n", NUMBERS),
    "NaN": ("a,y\n1,2\nnan,4\n", "'a' of "),
    "overflow": ("a,y\n1,2\n1e400,4\n", "'a'"),  # infinite, or to older versions of pandas text
    "overflow in y": ("a,y\n1,2\n3,-1e400\n", "is infinite in row 2: correct it"),
    "infinity": ("a,y\nInfinity,2\n3,4\n", "is infinite in row 1"),
    "too large": ("a,y\n1e200,2\n3,4\n", "too large to square in row 1"),
    "a name twice but for a space": ("a,a ,y\n1,2,3\n4,5,6\n", "more than one column named 'a': rename"),
    "no name": ("a,,y\n1,2,3\n4,5,6\n", "has no name: name it, or leave it out: --drop 'Unnamed: 1'"),
    "a cell too few": ("a,y\n1,2\n4\n", "'y' of "),
    "a cell too many": ("a,y\n1,2\n3,4,5\n", "Expected 2 fields in line 3, saw 3"),
    "another separator": ("a;y\n1,5;2\n3;4\n", "not separated by commas"),
    "only line ends": ("\n\n\n", "is empty: its first line must name the columns"),
    "Ctrl-Z": (b"a,y\n1,2\n3,4\n\x1a", r"'\x1a'"),
    "a long name": ("a" * 200_000 + ",y\n1,2\n3,4\n", "field larger than field limit"),
    "a web page": ("<html>\n<body>\n", "has no column 'y'"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_text(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, expected = TEXTS[case]
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    _check(path, expected, capsys)


WHOLE = gzip.compress(b"a,y\n1,2\n3,4\n")
ZIPPED: dict[str, tuple[bytes, object]] = {
    "in two parts": (gzip.compress(b"a,y\n1,2\n") + gzip.compress(b"3,4\n"), GOOD),
    "padded": (WHOLE + b"\0" * 1000, GOOD),
    "cut": (WHOLE[:-12], "save it again: Compressed file ended"),
    "without its length": (WHOLE[:-4], "save it again: Compressed file ended"),
    "with another checksum": (WHOLE[:-8] + b"\0\0\0\0" + WHOLE[-4:], "save it again: CRC check failed"),
    "followed by something": (WHOLE + b"something", "save it again: Not a gzipped file"),
    "not zipped": (b"a,y\n1,2\n3,4\n", "save it again: Not a gzipped file"),
    "zipped twice": (gzip.compress(WHOLE), "not UTF-8 text"),
    "of nothing": (gzip.compress(b""), "is empty"),
}


@pytest.mark.parametrize("case", ZIPPED)
def test_zipped_text(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(ZIPPED[case][0])
    _check(path, ZIPPED[case][1], capsys)


COLUMNS: dict[str, tuple[Callable[[Any], Any], object]] = {
    "decimals": (lambda pa: pa.array([decimal.Decimal("1.50"), decimal.Decimal("-3")]), [[1.5], [-3.0]]),
    "a dictionary of numbers": (lambda pa: pa.array([1.5, 2.5]).dictionary_encode(), [[1.5], [2.5]]),
    "half precision": (lambda pa: pa.array(np.array([1, 3], np.float16)), GOOD),
    "digits": (lambda pa: pa.array(["1", "3"]), GOOD),
    "a dictionary of text": (lambda pa: pa.array(["u", "v"]).dictionary_encode(), NUMBERS),
    "lists": (lambda pa: pa.array([[1.0], [2.0]]), NO_INPUT),
    "structures": (lambda pa: pa.array([{"x": 1.0}, {"x": 2.0}]), NO_INPUT),
    "maps": (lambda pa: pa.array([[("k", 1)]] * 2, type=pa.map_(pa.string(), pa.int64())), NO_INPUT),
    "bytes": (lambda pa: pa.array([b"1", b"\xff"]), NO_INPUT),
    "dates": (lambda pa: pa.array([datetime.date(2026, 1, 1)] * 2), "Use --date 'a'"),
    "time spans": (lambda pa: pa.array([datetime.timedelta(1)] * 2), NO_INPUT),
    "nothing": (lambda pa: pa.nulls(2), "is blank in row 1 and 1 more"),
    "a whole number missing": (lambda pa: pa.array([1, None]), "is blank in row 2"),
    "a truth missing": (lambda pa: pa.array([True, None]), "is blank in row 2"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_parquet(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    make, expected = COLUMNS[case]
    parquet.write_table(pa.table({"a": make(pa), "y": pa.array([1.0, 2.0])}), tmp_path / "t.parquet")
    _check(tmp_path / "t.parquet", expected, capsys)


X, Y = np.arange(4.0).reshape(2, 2) ** 1.5, np.array([1.0, 2.0])
ARRAYS: dict[str, tuple[dict[str, Any], object]] = {
    "order of Fortran": ({"X": np.asfortranarray(X), "y": Y}, X.tolist()),
    "other byte order": ({"X": X.astype(">f8"), "y": Y.astype(">i4")}, X.tolist()),
    "objects": ({"X": X.astype(object), "y": Y}, "holds objects of Python, which are not loaded: save it as numbers"),
    "objects in y": ({"X": X, "y": Y.astype(object)}, "y in "),
    "no dimension": ({"X": np.array(3.0), "y": Y}, "got shape (): reshape it"),
    "no dimension of y": ({"X": X, "y": np.array(3.0)}, "y in "),
    "records": ({"X": np.zeros((2, 2), dtype=[("u", "f8")]), "y": Y}, "--drop 'x0'"),
    "complex": ({"X": X * 1j, "y": Y}, "--drop 'x0'"),
    "no columns": ({"X": X[:, :0], "y": Y}, "no column left"),
    "no rows": ({"X": X[:0], "y": Y[:0]}, "has no rows"),
    "another name": ({"x": X, "y": Y}, "no array named X"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_npz(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "t.npz", **ARRAYS[case][0])
    _check(tmp_path / "t.npz", ARRAYS[case][1], capsys, ["x0", "x1"])


def _header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


CODE = b"{'descr': __import__('os').mkdir('owned'), 'fortran_order': False, 'shape': (2, 2), }".ljust(117) + b"\n"
CLAIMS: dict[str, tuple[bytes, str]] = {
    "a huge shape": (_header((10**12, 2)) + bytes(64), "claims shape (1000000000000, 2)"),
    "a shape that overflows": (_header((2**62, 2**62)) + bytes(64), "save it again"),
    "a negative shape": (_header((-1, 2)) + bytes(64), "save it again"),
    "many columns of nothing": (_header((0, 10**9)), "has no rows"),  # took all memory to name them
    "too few bytes": (_header((2, 2)) + bytes(31), "32 bytes, and has 31: save it again"),
    "objects": (_header((2, 2), "|O") + pickle.dumps([1]), "holds objects of Python"),
    "a pickle": (pickle.dumps(X), "save it again"),
    "code": (b"\x93NUMPY\x01\x00\x76\x00" + CODE, "save it again"),
    "no array": (b"", "save it again"),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_npz_made_by_hand(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("t.npz", "w") as file:
        file.writestr("X.npy", CLAIMS[case][0])
    _check(Path("t.npz"), CLAIMS[case][1], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["t.npz"]


def test_what_is_no_npz(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("X", "1,2")
    _check(path, "X in ", capsys)
    for content in (pickle.dumps(X), b"a,y\n1,2\n", _header((2, 2)) + X.tobytes()):
        path.write_bytes(content)
        refused(capsys, ["fit", path, "--target", "y", "--dry-run"], ["t.npz", "save it again: numpy.savez"])


BIG = 2**53
WHOLE_NUMBERS: dict[str, tuple[list[int], bool]] = {
    "exact": ([BIG, BIG + 2, -BIG], False),
    "odd": ([BIG, BIG + 1, 3], True),
    "time stamps": ([1_700_000_000_000_000_001 + 10_000 * i for i in range(3)], True),
    "powers": ([2**62, -(2**62), 2**61], False),
    "negative": ([-BIG - 1, 2, 3], True),
    "without sign": ([2**64 - 1, 2**63 + 1, 5], True),
}


@pytest.mark.parametrize("case", WHOLE_NUMBERS)
@pytest.mark.parametrize("column", ["a", "y"])
def test_digits_that_are_lost_are_told(
    case: str, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the target are; inputs keep theirs."""
    values, lost = WHOLE_NUMBERS[case]
    lost = lost and column == "y"
    rows = [f"{value},{i}" if column == "a" else f"{i},{value}" for i, value in enumerate(values)]
    (tmp_path / "t.csv").write_text("\n".join(["a,y", *rows]))
    code, _, err = run(capsys, "fit", tmp_path / "t.csv", "--target", "y", "--dry-run")
    assert code == 0, err
    assert err.startswith(f"warning: column '{column}' of ") if lost else err == ""
    assert err.count("\n") == lost
    assert not lost or "beyond 2**53, whose last digits are lost: subtract a constant" in err


def test_time_stamps_in_nanoseconds_keep_their_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """60 rows one nanosecond apart, which are one number in float64."""
    rows = [f"{1_700_000_000_000_000_000 + i},{np.sin(i / 5):.6f}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["t,y", *rows]))
    code, _, err = run(capsys, "fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", "--quiet")
    assert code == 0 and err == "", err
    run(capsys, "predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv", "--quiet")
    found = np.loadtxt(tmp_path / "p.csv", skiprows=1)
    np.testing.assert_allclose(found, np.sin(np.arange(60) / 5), atol=0.05)
