"""``warmgp report``: a page from a model file, with rows of a table scored, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cli_tools import FAST, refused, run, table
from warmgp import GPRegressor
from warmgp.cli import reporting
from warmgp.cli.commands import main


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table with dates and categories, a model of its first rows, and the others."""
    folder = tmp_path_factory.mktemp("report")
    data = table(100)
    data["when"] = pd.date_range("2021-05-01", periods=100, freq="3D").strftime("%d.%m.%Y")
    paths = {name: folder / f"{name}.csv" for name in ("train", "new", "lacking", "wrong")}
    data[:80].to_csv(paths["train"], index=False)
    data[70:].to_csv(paths["new"], index=False)
    data[70:].drop(columns=["b", "when"]).to_csv(paths["lacking"], index=False)
    data[70:].assign(colour="green").to_csv(paths["wrong"], index=False)
    paths["model"] = folder / "model.safetensors"
    kinds = ["--category", "colour", "--date", "when", "--kernel", "matern32"]
    fit = ["fit", paths["train"], "--target", "y", "--out", paths["model"], *kinds, *FAST]
    assert main([str(one) for one in fit]) == 0
    return paths


def test_a_page_of_a_model_and_a_table(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the scores that warmgp score prints, the units that were given, and the file that it is about."""
    shares: list[float] = []
    inside = reporting.report_on

    def watched(model: GPRegressor, out: Path, asked: Any) -> None:
        inside(model, out, replace(asked, tell=lambda what, share: shares.append(share)))

    monkeypatch.setattr(reporting, "report_on", watched)
    out = tmp_path / "report.html"
    code, said, _ = run(
        capsys, "report", files["model"], files["new"], "--out", out, "--unit", "y=°C", "--unit", "a=km"
    )
    assert code == 0 and said == f"report written to {out}\n"
    page = out.read_text()
    for text in ("model.safetensors", "30 rows of new.csv", "10 of them stand in the training data", "y (°C)",
                 "a (km)", "2021-05-01", "red (", "blue ("):  # fmt: skip
        assert text in page, text
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 1.0 and len(shares) > 10
    run(capsys, "report", files["model"], "--out", out, "--quiet")
    assert "No other rows were given" in out.read_text()
    _, scores, _ = run(capsys, "score", files["model"], files["new"], "--target", "y")
    rmse = float(re.findall(r"RMSE[^\d]+([\d.]+)", scores)[0])
    assert f"{rmse:.4g} °C" in page


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{model}", "--out", "{folder}"], ["a folder"]),
        (["{model}", "--out", "{folder}/none/report.html"], ["does not exist"]),
        (["{folder}/none.safetensors", "--out", "{folder}"], ["a folder"]),  # before a model is read
        (["{folder}/none.safetensors", "--out", "{folder}/report.html"], ["no such file"]),
        (["{train}", "--out", "{folder}/report.html"], ["train.csv"]),
        (["{model}", "--out", "{model}"], ["MODEL and --out are the same file"]),
        (["{model}", "{new}", "--out", "{new}"], ["DATA and --out are the same file"]),
        (["{model}", "{lacking}", "--out", "{folder}/report.html"], ["lacks columns 'b', 'when'"]),
        (["{model}", "{new}", "--target", "z", "--out", "{folder}/report.html"], ["no column 'z'"]),
        (["{model}", "{wrong}", "--out", "{folder}/report.html"], ["'green'", "row 1", "wrong.csv"]),
        (["{model}", "--target", "y", "--out", "{folder}/report.html"], ["give DATA, too"]),
        (["{model}", "--unit", "km", "--out", "{folder}/report.html"], ["--unit", "air=°C", "'km'"]),
        (["{model}", "--unit", "depth=km", "--out", "{folder}/report.html"], ["no column 'depth'"]),
    ],
)
def test_what_is_refused(
    arguments: list[str], expected: list[str], files: dict[str, Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In one line, before left-out rows are predicted, and with nothing written."""
    monkeypatch.setattr(GPRegressor, "loo_", property(lambda _: pytest.fail("work was done")))
    filled = [one.format(folder=tmp_path, **files) for one in arguments]
    refused(capsys, ["report", *filled, "--quiet"], expected)
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_several_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = table(60).assign(z=lambda t: 100 * t["b"])
    for name, part in (("train", data[:45]), ("new", data[45:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    model, out = tmp_path / "model.safetensors", tmp_path / "report.html"
    targets = ["--target", "y,z", "--category", "colour", "--kernel", "matern32"]
    assert run(capsys, "fit", tmp_path / "train.csv", *targets, "--out", model, *FAST)[0] == 0
    assert run(capsys, "report", model, tmp_path / "new.csv", "--out", out, "--unit", "z=km")[0] == 0
    page = out.read_text()
    assert "15 rows of new.csv" in page and "z: In short" in page and "y: Rows held out" in page and "z (km)" in page
