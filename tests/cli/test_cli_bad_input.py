"""Bad input to the command line: each kind refused in one line that names the column, option or file and the remedy.

The exit code is 2, and nothing is half written.
"""

from __future__ import annotations

import decimal
import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli_tools import FAST, refused, run
from warmgp import GPRegressor

# -- warmgp fit: what the table holds --------------------------------------------------------------------------------
ROWS = "a,b,y\n" + "".join(f"{i},{i * i % 7},{i % 5}\n" for i in range(12))
FIT_ERRORS = {
    "unknown extension": ("d.xlsx", "x", [], ["d.xlsx", ".parquet"]),
    "empty file": ("d.csv", "", [], ["d.csv", "empty", "name its columns"]),
    "header only": ("d.csv", "a,b,y\n", [], ["d.csv", "no rows", "add"]),
    "no header": ("d.csv", "1,2\n3,4\n", [], ["d.csv", "no header", "add a line"]),
    "semicolons": ("d.csv", ROWS.replace(",", ";"), [], ["d.csv", "not separated by commas", "save it with commas"]),
    "too many cells": ("d.csv", "a,y\n1,2,3\n2,3\n", [], ["d.csv", "more cells than the header", "quote"]),
    "not text": ("d.csv", "\0" * 50, [], ["d.csv", "not text", "save it"]),
    "one row": ("d.csv", "a,y\n1,2\n", [], ["d.csv", "one row", "at least two"]),
    "target not there": ("d.csv", ROWS.replace("y", "yield"), [], ["--target", "'y'", "'yield'"]),
    "a target named twice": ("d.csv", ROWS, ["--target", "y"], ["--target names 'y' twice"]),
    "text column": ("d.csv", "a,colour,y\n1,red,2\n2,blue,3\n", [], ["'colour'", "'red'", "--drop", "--category"]),
    "decimal comma": ("d.csv", 'a,y\n"1,5",2\n"2,5",3\n', [], ["'a'", "'1,5'", "--drop"]),
    "blank cell": ("d.csv", ROWS.replace("\n3,2,", "\n3,,"), [], ["'b'", "blank in row 4", "--drop"]),
    "NaN cell": ("d.csv", ROWS.replace("\n3,2,", "\n3,NaN,"), [], ["'b'", "blank in row 4", "leave the row out"]),
    "blank target": ("d.csv", ROWS.replace("\n3,2,3", "\n3,2,"), [], ["'y'", "blank in row 4", "leave the row out"]),
    "text target": ("d.csv", ROWS.replace("\n3,2,3", "\n3,2,high"), [], ["'y'", "row 4 ('high')", "correct it"]),
    "target of text": ("d.csv", "a,y\n1,Oslo\n2,Rome\n", [], ["'y'", "text alone", "check --target"]),
    "infinite": ("d.csv", ROWS.replace("\n3,2,", "\n3,inf,"), [], ["'b'", "infinite in row 4", "--drop"]),
    "too large": ("d.csv", ROWS.replace("\n3,2,", "\n3,2e300,"), [], ["'b'", "too large", "row 4", "--drop"]),
    "constant target": ("d.csv", "a,y\n1,2\n2,2\n3,2\n", [], ["'y'", "constant", "check --target"]),
    "duplicated column": ("d.csv", "a,a,y\n1,2,3\n", [], ["more than one column named 'a'", "rename"]),
    "drop unknown": ("d.csv", ROWS, ["--drop", "c"], ["--drop", "'c'", "'a', 'b'"]),
    "drop a list": ("d.csv", ROWS, ["--drop", "a,b"], ["--drop", "once for each of 'a', 'b'"]),
    "drop target": ("d.csv", ROWS, ["--drop", "y"], ["--drop y", "target"]),
    "drop all": ("d.csv", ROWS, ["--drop", "a", "--drop", "b"], ["d.csv", "no column left"]),
    "target alone": ("d.csv", "y\n1\n2\n", [], ["d.csv", "no column left", "'y'"]),
    "one-hot unknown": ("d.csv", ROWS, ["--one-hot", "c"], ["--one-hot", "'c'"]),
    "one-hot and drop": ("d.csv", ROWS, ["--one-hot", "a", "--drop", "a"], ["--one-hot", "'a' is in --drop"]),
    "one-hot blank": ("d.csv", "a,y\nu,1\n,2\n", ["--one-hot", "a"], ["'a'", "blank in row 2", "--missing mean"]),
    "one-hot of many": (
        "d.csv", "a,y\n" + "".join(f"k{i},{i}\n" for i in range(201)), ["--one-hot", "a"], ["'a'", "201", "--drop a"]
    ),
    "drift unknown": (
        "d.csv", ROWS.replace("\n0,", "\n0.5,"), ["--trend", "drift:c"], ["trend names the column 'c'", "'a', 'b'"]
    ),
    "trend too rich": ("d.csv", "a,y\n1,2\n2,3\n3,5\n", ["--trend", "linear"], ["2 terms", "3 rows", "at least 4"]),
    "nameless column": ("d.csv", ",a,y\n0,1,3\n1,3,4\n", [], ["no name", "--drop 'Unnamed: 0'"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FIT_ERRORS)
def test_fit_refuses_a_table(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, content, options, expected = FIT_ERRORS[case]
    (tmp_path / name).write_text(content)
    refused(capsys, ["fit", tmp_path / name, "--target", "y", "--out", tmp_path / "m", *FAST, *options], expected)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_several_targets_in_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.csv").write_text(ROWS)
    fit = ["fit", tmp_path / "d.csv", "--out", tmp_path / "m", *FAST, "--target"]
    refused(capsys, [*fit, "b, q"], ["--target", "no column 'q'"])
    refused(capsys, [*fit, "p,q"], ["--target", "no column 'p,q'", "'a', 'b', 'y'"])
    (tmp_path / "d.csv").write_text(ROWS.replace("a,b,y", '"a,b",c,y'))  # a name may hold a comma
    assert run(capsys, *fit, "a,b")[0] == 0


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(12, 2)), columns=["a", "y"])


def bad_files(folder: Path) -> dict[str, list[str]]:
    """Files that are damaged or hold what is no table of numbers: {name: what the error must say}."""
    whole = gzip.compress(frame().to_csv(index=False).encode())
    (folder / "cut.csv.gz").write_bytes(whole[:-30])
    (folder / "spoilt.csv.gz").write_bytes(whole[:40] + b"spoilt" + whole[46:])
    (folder / "plain.csv.gz").write_bytes(b"a,y\n1,2\n")
    (folder / "latin.csv").write_bytes("a,y\n1,\xe9\n".encode("latin-1"))
    frame().to_parquet(folder / "cut.parquet")
    (folder / "cut.parquet").write_bytes((folder / "cut.parquet").read_bytes()[:-20])
    (folder / "text.parquet").write_text("a,y\n1,2\n")
    frame().assign(when=pd.date_range("2026-01-01", periods=12)).to_parquet(folder / "dates.parquet")
    frame().assign(list=[[1, 2]] * 12).to_parquet(folder / "nested.parquet")
    frame().iloc[:0].to_parquet(folder / "rows.parquet")
    np.savez(folder / "cut.npz", X=np.ones((3, 2)), y=np.arange(3.0))
    (folder / "cut.npz").write_bytes((folder / "cut.npz").read_bytes()[:-40])
    with (folder / "array.npz").open("wb") as file:
        np.save(file, np.ones((3, 2)))
    np.savez(folder / "no_x.npz", Z=np.ones((3, 2)), y=np.ones(3))
    np.savez(folder / "no_y.npz", X=np.ones((3, 2)))
    np.savez(folder / "one_dimension.npz", X=np.ones(3), y=np.ones(3))
    np.savez(folder / "no_columns.npz", X=np.ones((3, 0)), y=np.arange(3.0))
    np.savez(folder / "short_y.npz", X=np.ones((3, 2)), y=np.ones(2))
    np.savez(folder / "two_y.npz", X=np.ones((3, 2)), y=np.ones((3, 2)))
    np.savez(folder / "complex.npz", X=np.ones((3, 2)) * 1j, y=np.arange(3.0))
    np.savez(folder / "text.npz", X=np.array([["u", "v"]] * 3), y=np.arange(3.0))
    np.savez(folder / "objects.npz", X=np.array([[1, None]], dtype=object), y=np.ones(1))
    (folder / "folder.csv").mkdir()
    damaged = ["cannot be read", "save it again"]
    return {
        "cut.csv.gz": damaged,
        "spoilt.csv.gz": damaged,
        "plain.csv.gz": damaged,
        "latin.csv": ["not UTF-8", "save it as UTF-8"],
        "cut.parquet": damaged,
        "text.parquet": damaged,
        "dates.parquet": ["'when'", "--drop"],
        "nested.parquet": ["'list'", "--drop"],
        "rows.parquet": ["no rows"],
        "cut.npz": damaged,
        "array.npz": ["single array", "savez"],
        "no_x.npz": ["no array named X", "'Z'", "save it with X="],
        "no_y.npz": ["--target", "'y'", "'x0', 'x1'"],
        "one_dimension.npz": ["X in", "(3,)", "reshape"],
        "no_columns.npz": ["no column left"],
        "short_y.npz": ["y in", "(3,)", "(2,)"],
        "two_y.npz": ["y in", "(3, 2)", "one model per column"],
        "complex.npz": ["'x0'", "1j", "--drop"],
        "text.npz": ["'x0'", "'u'", "--category"],
        "objects.npz": ["X in", "objects of Python", "save it as numbers"],
        "folder.csv": ["is a folder"],
        "missing.csv": ["no such file"],
    }


def test_fit_refuses_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, expected in bad_files(tmp_path).items():
        arguments = ["fit", tmp_path / name, "--target", "y", "--out", tmp_path / "m", *FAST]
        refused(capsys, arguments, [name, *expected])
    assert not (tmp_path / "m").exists() and not list(tmp_path.glob("*.tmp"))


def test_decimals_and_booleans_of_parquet_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What looks odd and is not refused: the audit must not cost what works."""
    odd = frame().assign(d=[decimal.Decimal(i) / 4 for i in range(12)], f=[True, False] * 6, extra="text")
    odd.to_parquet(tmp_path / "odd.parquet")
    fit = ["fit", tmp_path / "odd.parquet", "--target", "y", "--drop", "extra", "--out", tmp_path / "m", *FAST]
    assert run(capsys, *fit)[0] == 0
    predict = ["predict", tmp_path / "m", tmp_path / "odd.parquet", "--out", tmp_path / "p.csv", "--quiet"]
    assert run(capsys, *predict)[0] == 0  # columns that the model does not read are ignored


# -- warmgp fit: options and paths -----------------------------------------------------------------------------------
OPTION_ERRORS = {
    "--solver magic": ["--solver", "'magic'", "'cg'"],
    "--kernel magic": ["--kernel", "'magic'", "'rbf'"],
    "--gradient magic": ["--gradient", "'magic'", "'pathwise'"],
    "--gradient exact --solver cg": ["--gradient", "cholesky"],
    "--init magic": ["--init", "'magic'", '"subset"'],
    "--dtype float16": ["--dtype", "'float16'", '"float32"'],
    "--device gpu9": ["--device", "'gpu9'", '"cpu"'],
    "--tol -1": ["--tol must be a positive number below 1", "-1"],
    "--tol nan": ["--tol must be a positive number below 1", "nan"],
    "--tol abc": ["--tol", "Invalid value"],
    "--n-steps -1": ["--n-steps", "at least 0", "-1"],
    "--n-steps many": ["--n-steps", "'many'", "auto"],
    "--n-steps 1.5": ["--n-steps", "whole number", "'1.5'"],
    "--n-probes 0": ["--n-probes", "at least 1"],
    "--n-probes -8": ["--n-probes", "at least 1", "-8"],
    "--n-features 7": ["--n-features", "even", "7"],
    "--n-features -2": ["--n-features", "even", "-2"],
    "--max-epochs -1": ["--max-epochs", "positive", "-1"],
    "--max-epochs nan": ["--max-epochs", "positive", "nan"],
    "--learning-rate 0": ["--learning-rate", "positive"],
    "--learning-rate inf": ["--learning-rate", "positive", "inf"],
    "--noise-floor -1": ["--noise-floor", "at least 0"],
    "--noise-floor low": ["--noise-floor", "a number", "auto", "'low'"],
    "--checkpoint-every 0": ["--checkpoint-every", "at least 1"],
    "--seed -1": ["--seed", "-1"],
    "--test-fraction 1.5": ["--test-fraction", "1.5"],
    "--test-fraction nan": ["--test-fraction", "nan"],
    "--test-fraction 0.001": ["--test-fraction", "80 rows"],
    "--trend cubic": ["--trend must be constant, linear, quadratic or drift:COL,COL", "'cubic'"],
    "--trend drift:": ["--trend", "drift:COL,COL", "'drift:'"],
    "--trend drift:a,,b": ["--trend", "drift:COL,COL"],
    "--magic": ["--magic"],
    "--resume": ["--resume", "--checkpoint"],
}


@pytest.mark.parametrize("case", OPTION_ERRORS)
def test_fit_refuses_an_option(case: str, cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit = ["fit", cli_folder / "numbers.csv", "--target", "y", "--out", tmp_path / "m", *FAST, *case.split()]
    refused(capsys, fit, OPTION_ERRORS[case])
    assert list(tmp_path.iterdir()) == []


def test_options_are_checked_before_the_table_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit = ["fit", tmp_path / "missing.csv", "--target", "y", "--out", tmp_path / "m", "--tol", "-1", "--quiet"]
    refused(capsys, fit, ["--tol"])


def test_fit_refuses_paths(cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = cli_folder / "numbers.csv", tmp_path / "m"
    target = ["--target", "y", *FAST]
    refused(capsys, ["fit", data, "--out", tmp_path / "no" / "m", *target], ["no does not exist", "make it"])
    refused(capsys, ["fit", data, "--out", tmp_path, *target], ["is a folder", "name of a file"])
    refused(capsys, ["fit", data, "--out", data, *target], ["DATA and --out", "same file", "another name"])
    refused(capsys, ["fit", data, *target], ["--out"])
    refused(capsys, ["fit", "--target", "y"], ["DATA"])
    refused(capsys, ["magic"], ["'magic'", "--help"])
    checkpoint = ["fit", data, "--out", out, *target, "--checkpoint"]
    refused(capsys, [*checkpoint, tmp_path], ["is a folder"])
    refused(capsys, [*checkpoint, tmp_path / "no" / "c"], ["no does not exist"])
    refused(capsys, [*checkpoint, out], ["--out and --checkpoint", "same file"])
    (tmp_path / "c").write_text("something")
    refused(capsys, [*checkpoint, tmp_path / "c"], ["c exists", "--resume", "delete"])
    refused(capsys, [*checkpoint, tmp_path / "c", "--resume"], ["c is not a whole warmgp file", "give one that is"])
    assert not out.exists() and (tmp_path / "c").read_text() == "something"


def test_a_checkpoint_of_another_run(cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, checkpoint = cli_folder / "numbers.csv", tmp_path / "c"
    options = ["--out", tmp_path / "m", *FAST, "--solver", "cg", "--checkpoint", checkpoint]
    assert run(capsys, "fit", data, "--target", "y", *options)[0] == 0
    (tmp_path / "m").unlink()
    before = checkpoint.read_bytes()
    other = ["other data or settings", "delete it", "another path"]
    refused(capsys, ["fit", data, "--target", "b", *options, "--resume"], ["c belongs to", *other])
    refused(capsys, ["fit", data, "--target", "y", *options, "--resume", "--tol", "0.02"], ["c belongs to", *other])
    refused(capsys, ["info", checkpoint], ["c is a warmgp checkpoint, not a model"])
    model = cli_folder / "numbers.model"
    resume = ["fit", data, "--target", "y", "--out", tmp_path / "m", *FAST, "--checkpoint", model, "--resume"]
    refused(capsys, resume, ["numbers.model is a warmgp model, not a checkpoint"])
    assert checkpoint.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("what", ["read", "write"])
def test_no_permission(
    what: str,
    cli_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Root may do everything, so that what the system answers is put in its mouth."""
    real, bit = os.access, {"read": os.R_OK, "write": os.W_OK}[what]
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & bit and real(path, mode))
    model, data, out = cli_folder / "numbers.model", cli_folder / "numbers.csv", tmp_path / "p.csv"
    said = {"read": ["numbers", "not readable"], "write": [tmp_path.name, "no permission to write", "use another"]}[
        what
    ]
    fitted = GPRegressor.load(model) if what == "write" else None
    refused(capsys, ["fit", data, "--target", "y", "--out", out, *FAST], said)
    refused(capsys, ["predict", model, data, "--out", out], said)
    with pytest.raises(PermissionError, match=f"no permission to {what}"):
        fitted.save(tmp_path / "m") if fitted else GPRegressor.load(model)
    assert list(tmp_path.iterdir()) == []


# -- warmgp predict, score, info -------------------------------------------------------------------------------------
PREDICT_ERRORS = {
    "missing column": ("b,colour\n1,red\n", ["'a'", "lacks column", "add what is missing"]),
    "another column in its place": ("A,b,colour\n1,2,red\n", ["'a'", "lacks column", "'A', 'b', 'colour'"]),
    "missing text column": ("a,b\n1,2\n", ["lacks column 'colour'"]),
    "unseen category": ("a,b,colour\n1,2,red\n1,2,green\n", ["'colour'", "row 2, is 'green'", "'blue', 'red'"]),
    "blank category": ("a,b,colour\n1,2,red\n1,2,\n", ["'colour'", "blank in row 2", "leave the row out"]),
    "text in a number": ("a,b,colour\n1,2,red\n1,two,red\n", ["'b'", "row 2 ('two')", "correct it"]),
    "blank": ("a,b,colour\n1,2,red\n,2,red\n", ["'a'", "blank in row 2", "leave the row out"]),
    "infinite": ("a,b,colour\n1,2,red\n1e999,2,red\n", ["'a'", "in row 2", "correct it"]),
    "duplicated column": ("a,b,a,colour\n1,2,3,red\n", ["more than one column named 'a'", "rename"]),
    "header only": ("a,b,colour\n", ["no rows"]),
    "empty": ("", ["empty"]),
}


@pytest.mark.parametrize("case", PREDICT_ERRORS)
def test_predict_refuses_a_table(
    case: str, cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected = PREDICT_ERRORS[case]
    (tmp_path / "d.csv").write_text(content)
    (tmp_path / "p.csv").write_text("old")
    arguments = ["predict", cli_folder / "colour.model", tmp_path / "d.csv", "--out", tmp_path / "p.csv", "--quiet"]
    refused(capsys, arguments, ["d.csv", *expected])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.csv", "p.csv"]
    assert (tmp_path / "p.csv").read_text() == "old"  # what was there stays until there is something better


def test_predict_refuses_files(cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data, out = cli_folder / "numbers.model", cli_folder / "numbers.csv", tmp_path / "p.csv"
    (tmp_path / "cut").write_bytes(model.read_bytes()[:-10])
    for bad, expected in (
        (cli_folder / "data.csv", "not a whole"),
        (tmp_path / "cut", "not a whole"),
        (tmp_path / "no", "no such file"),
        (tmp_path, "is a folder"),
    ):
        for command in (["predict", bad, data, "--out", out], ["info", bad], ["score", bad, data, "--target", "y"]):
            refused(capsys, [*command], [bad.name, expected])
    refused(capsys, ["predict", model, tmp_path / "no.csv", "--out", out], ["no.csv"])
    refused(capsys, ["predict", model, data, "--out", tmp_path / "no" / "p.csv"], ["folder", "does not exist"])
    refused(capsys, ["predict", model, data, "--out", tmp_path / "p.txt"], ["p.txt", ".csv"])
    refused(capsys, ["predict", model, data, "--out", data], ["same file"])
    refused(capsys, ["predict", model, data, "--out", model], ["MODEL and --out", "same file"])
    refused(capsys, ["predict", model, data, "--out", out, "--samples", 7], ["--samples", "6 functions", "--n-probes"])
    refused(capsys, ["predict", model, data, "--out", out, "--samples", -1], ["--samples", "-1"])
    refused(capsys, ["predict", model, data, "--out", out, "--device", "gpu9"], ["device", "'gpu9'", '"cpu"'])
    refused(capsys, ["score", model, data, "--target", "z"], ["--target", "'z'"])
    refused(capsys, ["score", model, data, "--target", "a,y"], ["--target takes one column"])
    assert [p.name for p in tmp_path.iterdir()] == ["cut"]
