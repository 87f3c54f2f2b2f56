"""``--target a,b``: every verb that meets a model of several targets works by their names, or says what helps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli_tools import FAST, read_csv, refused, run
from warmgp import GPRegressor


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(-2, 2, (80, 2)), columns=["x", "z"])
    data["a"] = np.sin(2 * data["x"]) + 0.1 * rng.normal(size=80)
    data["b"] = 100 + 10 * np.cos(2 * data["z"]) + rng.normal(size=80)
    return data


@pytest.fixture
def fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A model of 60 rows and the targets a and b at ``model``; 20 more rows are in ``new.csv``."""
    data, out = rows(), tmp_path / "model"
    data[:60].to_csv(tmp_path / "old.csv", index=False)
    data[60:].to_csv(tmp_path / "new.csv", index=False)
    asked = ["--target", "a,b", "--out", out, "--test-fraction", "0.1", *FAST]
    code, told, err = run(capsys, "fit", tmp_path / "old.csv", *asked)
    assert code == 0, err
    assert "a: 6 held-out rows" in told and "b: 6 held-out rows" in told and told.count("RMSE") == 2
    return out


def test_predictions_have_columns_by_target(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, new, out = GPRegressor.load(fitted), tmp_path / "new.csv", tmp_path / "p.csv"
    assert model.target_names_ == ("a", "b")
    asked = ["--std", "--interval", "0.9", "--samples", "1", "--keep", "a", "--quiet"]
    assert run(capsys, "predict", fitted, new, "--out", out, *asked)[0] == 0
    found, inputs = read_csv(out), pd.read_csv(new)[["x", "z"]]
    each = ["mean", "std", "lower_90", "upper_90", "sample_1"]
    assert list(found.columns) == ["a", *(f"{one}_a" for one in each), *(f"{one}_b" for one in each)]
    mean, std = model.predict(inputs, return_std=True)
    np.testing.assert_allclose(found[["mean_a", "mean_b"]], mean)
    np.testing.assert_allclose(found[["std_a", "std_b"]], std)
    np.testing.assert_allclose(found[["sample_1_a", "sample_1_b"]], model.sample_y(inputs, 1)[..., 0])
    for more in ([], ["--blocks", "2"]):
        assert run(capsys, "predict", fitted, "--grid", "x=0:1:1,z=0:1:1", "--out", out, *more, "--quiet")[0] == 0
        assert list(read_csv(out).columns) == ["z", "x", "mean_a", "std_a", "mean_b", "std_b"]
    pytest.importorskip("h5netcdf")
    assert run(capsys, "predict", fitted, "--grid", "x=0:1:1,z=0:1:1", "--out", tmp_path / "g.nc", "--quiet")[0] == 0


def test_scores_updates_and_diagnoses_are_by_target(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, out = tmp_path / "new.csv", tmp_path / "more"
    _, both, _ = run(capsys, "score", fitted, new, "--quiet")
    _, one, _ = run(capsys, "score", fitted, new, "--target", "b", "--quiet")
    assert both.count("RMSE") == 2 and one.count("RMSE") == 1 and one.splitlines()[2] in both
    assert f"b: 20 rows of {new}" in one
    code, told, err = run(capsys, "update", fitted, new, "--target", "b,a", "--out", out)
    assert code == 0, err
    assert "added 20 rows to 54" in told and GPRegressor.load(out).y_train_.shape == (74, 2)
    frame = pd.read_csv(new)
    by_hand = GPRegressor.load(fitted).update(frame[["x", "z"]], frame[["a", "b"]].to_numpy())
    np.testing.assert_allclose(GPRegressor.load(out).predict(frame[["x", "z"]]), by_hand.predict(frame[["x", "z"]]))
    told = run(capsys, "info", out)[1]
    assert "a, b" in told and "in units of y" in told
    told = run(capsys, "diagnose", out)[1]
    assert "target a" in told and "target b" in told
    code, told, err = run(capsys, "diagnose", out, "--target", "b", "--out", tmp_path / "l.csv", "--likelihood")
    assert code == 0 and "target a" not in told and len(read_csv(tmp_path / "l.csv")) == 74, err


def test_blank_cells_of_targets_are_missing_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = rows(), tmp_path / "model"
    data.loc[:9, "a"] = np.nan
    data.to_csv(tmp_path / "d.csv", index=False)
    code, _, err = run(capsys, "fit", tmp_path / "d.csv", "--target", "a,b", "--out", out, *FAST)
    assert code == 0, err
    model = GPRegressor.load(out)
    assert len(model.of_target("a").y_train_) == 70 and len(model.of_target("b").y_train_) == 80
    refused(capsys, ["update", out, tmp_path / "d.csv", "--out", out], ["a", "blank in row 1"])
    assert "2 targets share" in run(capsys, "plan", tmp_path / "d.csv", "--target", "a,b")[1].replace("\n", " ")


def test_wrong_targets_are_refused_by_name(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, out = tmp_path / "old.csv", tmp_path / "new.csv", tmp_path / "more"
    fit = ["fit", old, "--out", out, *FAST]
    refused(capsys, [*fit, "--target", "a,q"], ["--target", "no column 'q'"])
    refused(capsys, [*fit, "--target", "a,b,a"], ["--target names 'a' twice"])
    refused(capsys, [*fit, "--target", "a,b", "--drop", "b"], ["--drop b", "a target"])
    refused(capsys, [*fit, "--target", "a,b", "--weight-column", "b"], ["--weight-column b", "target"])
    refused(capsys, [*fit, "--target", "a,b", "--robust"], ["robust=True", "fit the targets apart"])
    refused(capsys, ["update", fitted, new, "--target", "a", "--out", out], ["--target lacks 'b'", "a, b"])
    refused(capsys, ["score", fitted, new, "--target", "x", "--quiet"], ["--target x", "no such target", "a, b"])
    refused(capsys, ["diagnose", fitted, "--out", tmp_path / "l.csv"], ["--out", "one target", "--target"])
    refused(capsys, ["diagnose", fitted, "--target", "q"], ["--target q", "a, b"])
    assert not out.exists()
