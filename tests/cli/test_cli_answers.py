"""The command line writes no answer that is no number, points out codes for missing values, and shows names safely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cli_tools import API, FAST, refused, run, table
from warmgp import GPRegressor
from warmgp.cli.terminal import printable

STEER = "\x1b[2J\x1b]0;owned\x07"


def _break(monkeypatch: pytest.MonkeyPatch, row: int, which: int, value: float) -> None:
    """Make GPRegressor.predict answer with that value in that row of the mean (0) or the std (1)."""
    whole = GPRegressor.predict

    def predict(self: GPRegressor, X: Any, **options: Any) -> Any:
        found = whole(self, X, **options)
        (found if isinstance(found, tuple) else (found,))[which][row] = value
        return found

    monkeypatch.setattr(GPRegressor, "predict", predict)


@pytest.mark.parametrize("extension", [".csv", ".parquet"])
@pytest.mark.parametrize(("which", "value", "name"), [(0, np.nan, "mean"), (1, np.nan, "std"), (0, -np.inf, "mean")])
def test_predictions_that_are_no_numbers_are_not_written(
    which: int, value: float, name: str, extension: str,
    cli_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    _break(monkeypatch, 16, which, value)
    model, data, out = cli_folder / "numbers.model", cli_folder / "numbers.csv", tmp_path / f"p{extension}"
    says = [f"the {name} predicted for row 17 of", "numbers.csv", str(value), "missing values", "--dtype float64"]
    refused(capsys, ["predict", model, data, "--out", out, "--std", "--quiet"], says, code=1)
    assert list(tmp_path.iterdir()) == []
    refused(capsys, ["score", model, data, "--target", "y", "--quiet"], says, code=1)


def test_functions_that_are_no_numbers_are_not_written(
    cli_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(GPRegressor, "sample_y", lambda self, X, n: np.full((len(X), n), np.nan))
    arguments = ["predict", cli_folder / "numbers.model", cli_folder / "numbers.csv", "--out", tmp_path / "p.npz"]
    refused(capsys, [*arguments, "--samples", 2, "--quiet"], ["the sample_1 predicted for row 1 of", "79 more"], code=1)
    assert list(tmp_path.iterdir()) == []


def test_held_out_rows_are_named_by_their_row_in_the_table(
    cli_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from warmgp.cli.held_out import split

    _break(monkeypatch, 2, 0, np.nan)
    held = split(80, 0.1, 0)[1]
    arguments = [cli_folder / "numbers.csv", "--target", "y", "--out", tmp_path / "m", "--test-fraction", 0.1]
    code, out, err = run(capsys, "fit", *arguments, *FAST)
    assert code == 1 and f"the mean predicted for row {held[2] + 1} of" in err
    assert "RMSE" not in out


def test_codes_for_missing_values_are_pointed_out(
    cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table()[["a", "b", "y"]]
    data.loc[4, "b"] = -9999
    data.loc[[7, 9], "a"] = 1e6
    data.to_csv(tmp_path / "t.csv", index=False)
    model, out = cli_folder / "numbers.model", tmp_path / "p.csv"
    code, _, err = run(capsys, "predict", model, tmp_path / "t.csv", "--out", out, "--quiet")
    assert code == 0 and err.count("\n") == 1
    assert err.startswith("warning: column 'b' of ") and "t.csv is -9999 in row 5, more than 1,000 standard" in err
    assert "(3 rows have such cells): is it a code for a missing value?" in err
    assert np.isfinite(pd.read_csv(out)).all().all()
    code, _, err = run(capsys, "score", model, tmp_path / "t.csv", "--target", "y", "--quiet")
    assert code == 0 and err.startswith("warning: column 'b' of ") and "in row 5" in err


def test_nothing_is_said_of_rare_categories_and_usual_rows(
    cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model, data in (("numbers.model", "numbers.csv"), ("colour.model", "data.csv")):
        code, _, err = run(
            capsys, "predict", cli_folder / model, cli_folder / data, "--out", tmp_path / "p.csv", "--quiet"
        )
        assert (code, err) == (0, "")
    X = np.zeros((30, 2))
    X[:, 0], X[3, 1] = np.linspace(0, 1, 30), 1e-9  # one cell that differs from the others, in range at prediction
    GPRegressor(**API).fit(X, X[:, 0]).save(tmp_path / "m")
    np.savez(tmp_path / "t.npz", X=X)
    code, _, err = run(capsys, "predict", tmp_path / "m", tmp_path / "t.npz", "--out", tmp_path / "p.csv", "--quiet")
    assert (code, err) == (0, "")


# -- names -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ü 数", "plain ü 数"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\x00", r"a\nb\tc\x00"),
        ("\udcff", r"\udcff"),
        ("right\u202eleft", r"right\u202eleft"),
    ],
)
def test_what_cannot_be_seen_is_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert printable(expected) == expected


def test_no_command_prints_what_a_terminal_obeys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"a{STEER}", "[bold]:smile:[/]"]
    data = table()[["a", "b", "y"]].rename(columns=dict(zip("ab", names, strict=True)))
    folder = tmp_path / f"f{STEER}"
    folder.mkdir()
    path, model = folder / "t.csv", folder / "m"
    data.to_csv(path, index=False)
    bad, far, cells = folder / "bad.csv", folder / "far.csv", folder / "cells.csv"
    bad.write_text(f"a{STEER},b\n1,2\n")
    data.assign(**{names[0]: -1e9}).to_csv(far, index=False)
    data.astype(object).assign(**{names[0]: f"red{STEER}"}).to_csv(cells, index=False)
    commands: list[tuple[int, list[object]]] = [
        (0, ["fit", path, "--target", "y", "--out", model, "--test-fraction", 0.2, *FAST]),
        (0, ["info", model]),
        (0, ["score", model, path, "--target", "y"]),
        (0, ["predict", model, path, "--out", folder / "p.csv"]),
        (0, ["predict", model, far, "--out", folder / "p.csv"]),
        (2, ["predict", model, bad, "--out", folder / "p.csv"]),
        (2, ["predict", model, cells, "--out", folder / "p.csv"]),
        (2, ["fit", cells, "--target", "y", "--dry-run"]),
        (2, ["fit", path, "--target", f"q{STEER}", "--dry-run"]),
        (2, ["fit", path, "--target", "y", "--drop", f"q{STEER}", "--dry-run"]),
        (2, ["info", path]),
        (2, ["fit", folder, "--target", "y", "--dry-run"]),
        (2, ["fit", path, f"--q{STEER}"]),
    ]
    said = ""
    for code, arguments in commands:
        found, out, err = run(capsys, *arguments)
        assert found == code, err
        said += out + err
        assert not {letter for letter in out + err if not letter.isprintable()} - {"\n"}, (arguments, out + err)
    assert r"\x1b[2J" in said and "[bold]:smile:[/]" in said
