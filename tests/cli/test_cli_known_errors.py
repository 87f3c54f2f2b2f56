"""Weights and known errors from columns of a table: the same numbers as the Python API, and bad columns refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli_tools import API, FAST, read_csv, refused, run, table
from warmgp import GPRegressor


def measured(path: Path, **columns: object) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    made = table()[["a", "b", "y"]].assign(w=rng.integers(0, 4, 80), err=0.1 + rng.uniform(size=80), **columns)
    made.to_csv(path, index=False)
    return made


def test_fit_is_the_python_api(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The columns are left out of the inputs, and held-out rows out of the training, with their weights."""
    source, file, out = tmp_path / "t.csv", tmp_path / "m.safetensors", tmp_path / "p.csv"
    rows = measured(source)
    fit = ["fit", source, "--target", "y", "--out", file, "--solver", "cg", *FAST]
    noise = ["--weight-column", "w", "--noise-column", "err"]
    assert run(capsys, *fit, *noise)[0] == 0
    X, said = rows[["a", "b"]], {"sample_weight": rows["w"], "noise_variance": rows["err"] ** 2}
    model = GPRegressor(solver="cg", **API).fit(X, rows["y"], **said)
    assert run(capsys, "predict", file, source, "--out", out, "--std", "--quiet")[0] == 0
    np.testing.assert_array_equal(read_csv(out).to_numpy().T, model.predict(X, return_std=True))
    code, shown, _ = run(capsys, *fit, *noise, "--no-learn-noise", "--test-fraction", "0.25")
    assert code == 0 and "20 held-out rows" in shown
    assert GPRegressor.load(file).learn_noise is False
    plain = GPRegressor(solver="cg", **API).fit(X, rows["y"])
    assert np.abs(plain.predict(X) - model.predict(X)).max() > 0.01


def test_bad_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, file = tmp_path / "t.csv", tmp_path / "m.safetensors"
    minus = np.where(np.arange(80) == 4, -0.5, 1.0)
    measured(source, minus=minus, gaps=np.where(minus < 0, np.nan, 1.0), none=0.0, text="x")
    fit = ["fit", source, "--target", "y", "--out", file, *FAST]
    for options, expected in (
        (["--weight-column", "weight"], ["--weight-column", "no column 'weight'"]),
        (["--noise-column", "y"], ["--noise-column y: that is the target"]),
        (["--noise-column", "err", "--drop", "err"], ["another option names that column"]),
        (["--noise-column", "err", "--weight-column", "err"], ["both name 'err'"]),
        (["--noise-column", "minus"], ["column 'minus'", "row 5 (-0.5)", "--noise-column takes numbers of at least"]),
        (["--weight-column", "gaps"], ["column 'gaps'", "is blank in row 5"]),
        (["--weight-column", "text"], ["column 'text'", "is not a number in row 1"]),
        (["--weight-column", "none"], ["column 'none'", "is 0 in every row", "--weight-column"]),
    ):
        drop = [part for name in ("minus", "gaps", "none", "text") if name not in options for part in ("--drop", name)]
        refused(capsys, [*fit, *options, *drop], expected)
    assert not file.exists()


def test_robust_is_the_python_api(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, file, out = tmp_path / "t.csv", tmp_path / "m.safetensors", tmp_path / "p.csv"
    rows = table()[["a", "b", "y"]]
    rows.loc[[7, 40], "y"] = [400.0, -900.0]
    rows.to_csv(source, index=False)
    fit = ["fit", source, "--target", "y", "--out", file, "--solver", "cg", "--robust", *FAST]
    code, shown, err = run(capsys, *fit)
    assert code == 0 and "left out 2 of 80 rows as outliers (--robust): warmgp info names some" in shown
    assert "y has" not in err  # two values that rule it
    model = GPRegressor(solver="cg", robust=True, **API).fit(rows[["a", "b"]], rows["y"])
    assert np.flatnonzero(model.robust_weights_ < 1).tolist() == [7, 40]
    assert run(capsys, "predict", file, source, "--out", out, "--std", "--quiet")[0] == 0
    np.testing.assert_array_equal(read_csv(out).to_numpy().T, model.predict(rows[["a", "b"]], return_std=True))
    assert "(rows 7, 40, counted from 0)" in " ".join(run(capsys, "info", file)[1].replace("│", " ").split())
