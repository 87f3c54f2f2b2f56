"""Intervals, quantiles and the plan on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cli_tools import read_csv, refused, run, table
from warmgp import GPRegressor


def test_intervals_and_quantiles_are_columns(
    cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, source, out = cli_folder / "numbers.model", cli_folder / "numbers.csv", tmp_path / "p.csv"
    code, _, err = run(capsys, "predict", model, source, "--interval", 0.9, "--quantiles", "0.5,0.975", "--out", out)
    assert code == 0, err
    found = read_csv(out)
    assert list(found) == ["mean", "lower_90", "upper_90", "q0.5", "q0.975"]
    fitted = GPRegressor.load(model, "cpu")
    X = table()[["a", "b"]]
    np.testing.assert_array_equal(found[["lower_90", "upper_90"]], fitted.predict_interval(X, 0.9))
    np.testing.assert_array_equal(found[["q0.5", "q0.975"]], fitted.predict_quantiles(X, [0.5, 0.975]))
    assert run(capsys, "predict", model, source, "--interval", 0.999, "--std", "--out", out)[0] == 0
    assert list(read_csv(out)) == ["mean", "std", "lower_99.9", "upper_99.9"]


@pytest.mark.parametrize("more", [(), ("--blocks", 2)])
def test_maps_have_them_too(
    more: tuple[object, ...], cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    xarray = pytest.importorskip("xarray")
    out, asked = tmp_path / "map.nc", ("--grid", "a=-1:1:0.5,b=-1:1:1", "--interval", 0.5, "--quantiles", "0.9")
    code, _, err = run(capsys, "predict", cli_folder / "numbers.model", *asked, *more, "--out", out)
    assert code == 0, err
    with xarray.open_dataset(out, engine="h5netcdf") as found:
        names = ["mean", "std", "lower_50", "upper_50", "q0.9"]
        assert [name for name in found if "edges" not in name] == names
        half, tenth = 0.6744897501960817, 1.2815515655446004  # of a standard normal
        np.testing.assert_allclose(found["lower_50"], found["mean"] - half * found["std"])
        np.testing.assert_allclose(found["q0.9"], found["mean"] + tenth * found["std"])
        told = found["q0.9"].attrs["long_name"]
        assert told == f"quantile 0.9 of {'the field' if more else 'a new observation'}" + (
            "'s average over the cell" if more else ""
        )


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--interval", "90", "--interval must be a number between 0 and 1, such as 0.9 for 90%, got 90.0"),
        ("--quantiles", "0.5,2", "--quantiles must be numbers between 0 and 1, such as [0.05, 0.5, 0.95], got 2.0"),
        ("--quantiles", "0.5;0.9", "--quantiles must be numbers between 0 and 1 with commas between"),
        ("--quantiles", "", "--quantiles must be numbers between 0 and 1 with commas between"),
    ],
)
def test_what_is_no_share_is_refused_before_a_model_is_read(
    option: str, value: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    arguments = ["predict", tmp_path / "none", tmp_path / "t.csv", option, value, "--out", tmp_path / "p.csv"]
    refused(capsys, arguments, [told])


# -- the plan --------------------------------------------------------------------------------------------------------
def test_the_plan_is_told_in_lines_of_the_terminals_width(
    cli_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GPRegressor, "fit", lambda *_, **__: pytest.fail("trained"))
    monkeypatch.setenv("COLUMNS", "60")
    source = cli_folder / "numbers.csv"
    code, out, err = run(capsys, "plan", source, "--target", "y", "--n-steps", 7)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "80 rows of 2 columns" and lines[1].startswith(
        "Exact training, less than a second, under 0.1 GiB,"
    )
    assert max(map(len, lines)) <= 60 and any(line.startswith("Details: 7 Adam steps") for line in lines)
    assert run(capsys, "fit", source, "--target", "y", "--n-steps", 7, "--dry-run")[1] == out
    refused(capsys, ["plan", source, "--target", "y", "--kernel", "cubic"], ["--kernel must be"])


def test_info_has_the_plan_line_by_line(cli_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = GPRegressor.load(cli_folder / "numbers.model", "cpu")
    code, out, _ = run(capsys, "info", cli_folder / "numbers.model")
    assert code == 0
    told = " ".join(out.replace("│", " ").split())
    for line in str(model.plan_).splitlines():
        assert line in told
    assert "\\n" not in out and f"({model.noise_std_:.6g} in units of y)" in told
