"""A trend from the command line: the same numbers as the Python API, and its coefficients shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cli_tools import API, FAST, read_csv, run, table
from warmgp import GPRegressor


@pytest.mark.parametrize(("option", "trend"), [("linear", "linear"), ("drift:b, a", ["b", "a"])])
def test_fit_with_a_trend_is_the_python_api(
    option: str, trend: str | list[str], cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, file, out = cli_folder / "numbers.csv", tmp_path / "m.safetensors", tmp_path / "p.csv"
    fit = ["fit", source, "--target", "y", "--out", file, "--trend", option, "--solver", "cg", *FAST]
    code, shown, _ = run(capsys, *fit)
    X = table()[["a", "b"]]
    model = GPRegressor(trend=trend, solver="cg", **API).fit(X, table()["y"])
    slope = f"{model.trend_.coefficients[model.trend_.names.index('b')]:.6g}"
    assert code == 0 and "std error" in shown and slope in shown
    assert run(capsys, "predict", file, source, "--out", out, "--std", "--quiet")[0] == 0
    np.testing.assert_array_equal(read_csv(out).to_numpy().T, model.predict(X, return_std=True))
    code, told, _ = run(capsys, "info", file)
    assert code == 0 and "trend" in told and slope in told
