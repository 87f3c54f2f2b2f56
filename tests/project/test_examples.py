"""The examples run as their page says, print what they found, and draw it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

imread = pytest.importorskip("matplotlib.image", reason="the examples draw: pip install 'warmgp[plot]'").imread

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
if not EXAMPLES.is_dir():
    pytest.skip("there is no examples folder beside the tests", allow_module_level=True)

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
FIELDS = ("plan", "n", "fitted in", "RMSE", "LLH", "95% coverage", "converged", "picture")


def run(
    name: str, picture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[dict[str, str], np.ndarray]:
    """Run an example at its small size: the fields of its summary, and its picture as (rows, columns, channels)."""
    script = EXAMPLES / f"{name}.py"
    monkeypatch.chdir(picture.parent)
    monkeypatch.setattr("sys.argv", [str(script), "--quick", *options, "--device", "cpu", "--out", str(picture)])
    runpy.run_path(str(script), run_name="__main__")
    shown = capsys.readouterr().out
    summary = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in shown.splitlines())
    assert set(FIELDS) <= set(summary), shown
    return summary, imread(picture)


def check(summary: dict[str, str], picture: np.ndarray) -> None:
    """Finite scores, a share between 0 and 1 near what it should be, and a picture that is not blank."""
    number = {}
    for name in FIELDS[1:6]:
        found = re.search(r"-?[\d.]+", summary[name].replace(",", ""))
        assert found, f"{name}: {summary[name]}"
        number[name] = float(found[0])
    assert number["n"] >= 80 and number["fitted in"] > 0
    assert 0 < number["RMSE"] < np.inf and np.isfinite(number["LLH"])
    assert 80 <= number["95% coverage"] <= 100
    assert summary["converged"].startswith("yes")
    colours = (255 * picture[:, :, :3]).astype(int)
    assert colours.shape[0] > 300 and colours.shape[1] > 800
    for part in np.array_split(colours, 3, axis=1):  # something was drawn from left to right
        assert part.std() > 12
        assert len(np.unique(part.reshape(-1, 3), axis=0)) > 50


@pytest.mark.parametrize("name", NAMES)
def test_quick(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "acquisition":
        pytest.importorskip("botorch", reason="this example needs BoTorch: pip install 'warmgp[botorch]'")
    summary, picture = run(name, tmp_path / "out.png", monkeypatch, capsys)
    check(summary, picture)
    if name == "terrain":  # the error is far below the spread of the heights
        error, spread = map(float, re.findall(r"([\d.]+) m", summary["RMSE"]))
        assert error < 0.3 * spread
    if name == "satellite":
        error, spread = map(float, re.findall(r"([\d.]+) °C", summary["RMSE"]))
        assert error < 0.5 * spread and summary["data"].startswith("made up") and "nugget" in summary["variogram"]
    if name == "tabular":
        error, spread, trees = map(float, re.findall(r"\d+\.\d+", summary["RMSE"]))
        assert error < 0.5 * spread and error < trees
    if name == "acquisition":  # nearer to the top than random search
        assert float(summary["nearer"].split()[0]) > 1.5
    if name == "thompson":
        assert float(summary["best"].split()[0]) > float(summary["at random"].split()[0])


def test_tabular_on_bike(
    uci_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (uci_folder / "bike").is_dir():
        pytest.skip("no bike/ in the UCI folder")
    summary, picture = run(
        "tabular", tmp_path / "out.png", monkeypatch, capsys, "--set", "bike", "--data", str(uci_folder)
    )
    check(summary, picture)
    assert "16 columns" in summary["n"]  # seven numbers, three on circles, three kinds of weather


@pytest.mark.parametrize("log", [True, pytest.param(False, marks=pytest.mark.whole)])
def test_terrain_from_a_file(
    log: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plain of known slope: heights from a npz file, with the logarithm and without."""
    rng = np.random.default_rng(0)
    X = rng.uniform((10.0, 40.0), (14.0, 44.0), (900, 2)).astype(np.float32)
    np.savez(tmp_path / "heights.npz", X=X, y=(300 * (X[:, 0] - 10) + 5 * rng.normal(size=900)).astype(np.float32))
    options = ["--data", str(tmp_path / "heights.npz"), *(["--log"] if log else [])]
    summary, picture = run("terrain", tmp_path / "out.png", monkeypatch, capsys, *options)
    check(summary, picture)
    error, spread = map(float, re.findall(r"([\d.]+) m", summary["RMSE"]))
    assert error < 0.1 * spread


def test_satellite_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plain that warms to the east, with a gap in the middle; a file without the pixels of the gap is refused."""
    rng = np.random.default_rng(0)
    x = rng.uniform((-96.0, 34.0), (-91.0, 37.0), (600, 2))
    y, hidden = 30 + 2 * (x[:, 0] + 96) + 0.3 * rng.normal(size=600), np.abs(x[:, 0] + 93.5) < 0.5
    parts = {"x_train": x[~hidden], "y_train": y[~hidden], "x_test": x[hidden], "y_test": y[hidden]}
    np.savez(tmp_path / "satellite.npz", **parts)
    options = ["--data", str(tmp_path), "--rows", "200"]
    summary, picture = run("satellite", tmp_path / "out.png", monkeypatch, capsys, *options)
    check(summary, picture)
    assert summary["n"].startswith("200 of ") and summary["data"].endswith("satellite.npz")
    assert float(summary["MAE"].split()[0]) < 0.5
    np.savez(tmp_path / "half.npz", x_train=x, y_train=y)
    with pytest.raises(ValueError, match="there is no x_test, y_test"):
        run("satellite", tmp_path / "out.png", monkeypatch, capsys, "--data", str(tmp_path / "half.npz"))


def test_every_example_has_its_page() -> None:
    """A script, a line in the folder's README, a page that shows the script, a thumbnail that leads to it."""
    listed, index = (EXAMPLES / "README.md").read_text(), (ROOT / "docs" / "gallery" / "index.md").read_text()
    assert NAMES == ["acquisition", "satellite", "tabular", "terrain", "thompson"]
    for name in NAMES:
        page = (ROOT / "docs" / "gallery" / f"{name}.md").read_text()
        assert f"examples/{name}.py" in page and f"examples/{name}.py" in listed and f"({name}.md)" in index
        for picture in re.findall(r"\((\.\./images/gallery-[\w-]+\.png)\)", page):
            assert (ROOT / "docs" / "gallery" / picture).stat().st_size < 400_000
