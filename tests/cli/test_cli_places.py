"""Places and angles on the command line: the same numbers as the Python API, and refusals by option, column and row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli_tools import API, FAST, read_csv, refused, run
from warmgp import GPRegressor
from warmgp.cli.answers import length_scales


def stations(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"lat": rng.uniform(-80, 80, n), "height": rng.uniform(0, 9, n), "lon": rng.uniform(0, 360, n)})
    data["t"] = np.cos(np.deg2rad(data["lat"])) * 20 - data["height"] + rng.normal(size=n)
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("places")
    data = stations()
    data.to_csv(path / "stations.csv", index=False)
    data.assign(lat=np.where(np.arange(60) == 41, 91.5, data["lat"])).to_csv(path / "bad.csv", index=False)
    data[["lat", "lon", "t"]].rename(columns={"lat": "e", "lon": "n"}).to_csv(path / "plane.csv", index=False)
    return path


def test_places_are_those_of_the_python_api(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, model = stations(), tmp_path / "m.safetensors"
    X = data[["lat", "height", "lon"]]
    truth = GPRegressor(columns={("lat", "lon"): "geographic"}, **API).fit(X, data["t"])
    source = folder / "stations.csv"
    code, *_ = run(capsys, "fit", source, "--target", "t", "--geographic", "lat, lon", "--out", model, *FAST)
    assert code == 0
    assert run(capsys, "predict", model, source, "--out", tmp_path / "p.csv", "--quiet")[0] == 0
    np.testing.assert_array_equal(read_csv(tmp_path / "p.csv")["mean"], truth.predict(X))
    code, told, _ = run(capsys, "info", model)
    assert code == 0 and "60, 3" in told
    rows = [line for line in told.splitlines() if " km " in line]
    length = float(truth.hyperparameters_.length_scales[0])
    assert len(rows) == 1 and "lat, lon" in rows[0] and f"{length:.6g}" in rows[0]
    assert [name for name, *_ in length_scales(truth)] == ["lat, lon", "height"]
    assert length_scales(truth)[0][2] == f"{length * truth.scaler_.x_scale[0] * 6371:.6g} km"
    for name in ("predict", "score"):
        more = ["--out", tmp_path / "none.csv"] if name == "predict" else ["--target", "t"]
        refused(capsys, [name, model, folder / "bad.csv", *more, "--quiet"], ["column 'lat'", "row 42, is 91.5"])
    assert not (tmp_path / "none.csv").exists()
    far = data.assign(height=-9999.0)
    far.to_csv(tmp_path / "far.csv", index=False)
    _, _, told = run(capsys, "predict", model, tmp_path / "far.csv", "--out", tmp_path / "q.csv", "--quiet")
    assert "warning: column 'height'" in told and "is -9999 in row 1" in told


def test_a_grid_of_places_with_a_trend_is_predicted_to_the_pole(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the numbers of the Python API; a grid that goes beyond a pole is refused by the cell."""
    model, source = tmp_path / "m.safetensors", folder / "stations.csv"
    asked = ["--geographic", "lat,lon", "--trend", "linear"]
    code, told, _ = run(capsys, "fit", source, "--target", "t", *asked, "--out", model, *FAST)
    assert code == 0 and "lat, lon: z" in told
    out = tmp_path / "map.csv"
    code, _, error = run(
        capsys, "predict", model, "--grid", "lon=-180:180:60,lat=-90:90:45,height=2", "--out", out, "--quiet"
    )
    assert code == 0, error
    made = pd.read_csv(out).assign(height=2.0)
    mean, std = GPRegressor.load(model, "cpu").predict(made[["lat", "height", "lon"]], return_std=True)
    np.testing.assert_array_equal(made["mean"], mean)
    np.testing.assert_array_equal(made["std"], std)
    assert np.ptp(made["mean"][made["lat"] == 90]) < 1e-6  # one place
    beyond = ["predict", model, "--grid", "lon=0,lat=-90:95:5,height=2", "--out", tmp_path / "none.csv", "--quiet"]
    refused(capsys, beyond, ["column 'lat'", "row 38, is 95, but latitudes are between -90 and 90"])


def test_an_angle_is_found_and_told(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, source = tmp_path / "m.safetensors", folder / "plane.csv"
    code, *_ = run(capsys, "fit", source, "--target", "t", "--anisotropy", "rotated", "--out", model, *FAST)
    assert code == 0
    fitted = GPRegressor.load(model, "cpu")
    assert fitted.anisotropy_ is not None
    told = " ".join(run(capsys, "info", model)[1].split())
    assert "turned input 1" in told and f"{fitted.anisotropy_.angle:.1f}°" in told
    far = read_csv(source).assign(n=1e9)
    far.to_csv(tmp_path / "far.csv", index=False)
    _, _, told = run(capsys, "predict", model, tmp_path / "far.csv", "--out", tmp_path / "q.csv", "--quiet")
    assert "warning: column 'n'" in told


REFUSED = {
    "one column": (["--geographic", "lat"], "--geographic takes two columns, latitude,longitude, got 'lat'"),
    "an empty name": (["--geographic", "lat,"], "--geographic takes two columns"),
    "no such column": (["--geographic", "lat,long"], "--geographic: "),
    "the target": (["--geographic", "lat,t"], "--geographic lat,t: 't' is the target"),
    "a dropped one": (["--geographic", "lat,lon", "--drop", "lon"], "'lon' is in --drop or --keep, too"),
    "one twice": (["--geographic", "lat,lon", "--geographic", "height,lon"], "columns uses column 'lon' twice"),
    "in another order": (["--geographic", "lon,lat"], "column 'lon' of "),
    "three inputs": (
        ["--anisotropy", "rotated"],
        "turns the plane of two plain inputs, got 3 columns: lat, height, lon",
    ),
    "a wrong name": (["--anisotropy", "turned"], "--anisotropy must be None or 'rotated', got 'turned'"),
    "one length": (["--anisotropy", "rotated", "--no-ard"], "--anisotropy rotated learns two length scales"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, message = REFUSED[what]
    arguments = ["fit", folder / "stations.csv", "--target", "t", "--out", tmp_path / "m", *FAST, *options]
    refused(capsys, arguments, [message])
    assert not (tmp_path / "m").exists()


def test_a_bad_latitude_is_named_by_its_row_in_the_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where only some of the rows are trained on."""
    options = ["--target", "t", "--geographic", "lat,lon", "--test-fraction", "0.5", "--out", tmp_path / "m", *FAST]
    refused(capsys, ["fit", folder / "bad.csv", *options], ["column 'lat' of", "row 42, is 91.5", "-90 and 90 degrees"])
