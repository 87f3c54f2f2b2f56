"""Maps by the command line: grids and NetCDF files in, rasters out, with the numbers of the Python API."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import warmgp
from cli_tools import FAST, read_csv, refused, run
from warmgp import GPRegressor
from warmgp.cli import maps
from warmgp.cli.commands import main

xr = pytest.importorskip("xarray", reason="maps need xarray: pip install 'warmgp[maps]'")
pytest.importorskip("h5py", reason="NetCDF 4 needs h5py: pip install 'warmgp[maps]'")
h5netcdf = pytest.importorskip("h5netcdf", reason="NetCDF 4 needs h5netcdf: pip install 'warmgp[maps]'")
GRID = "lon=5:17:1.5,lat=49:43:-1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a model of it, and the same field as a NetCDF file with gaps, an elevation and a text."""
    path = tmp_path_factory.mktemp("maps")
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform([5, 43], [17, 49], (60, 2)), columns=["lon", "lat"])
    data["temperature"] = 20 + np.sin(data["lon"]) + 0.2 * rng.normal(size=60)
    data.to_csv(path / "data.csv", index=False)
    fit = ["fit", path / "data.csv", "--target", "temperature", "--out", path / "model"]
    assert main([str(a) for a in [*fit, *FAST, "--solver", "cholesky"]]) == 0
    field().to_netcdf(path / "field.nc", engine="h5netcdf")
    classic = field().drop_vars("station").astype(np.float64)
    classic.to_netcdf(path / "classic.nc", engine="scipy")
    return path


def field() -> xr.Dataset:
    lat, lon, day = np.linspace(43, 49, 7), np.linspace(5, 17, 9), np.array([30.0, 60.0])
    values = 20 + np.sin(lon) + 0.1 * lat[:, None] + 0.01 * day[:, None, None]
    values[0, 2, 3] = values[1, 0, 0] = np.nan
    return xr.Dataset(
        {
            "temperature": (("day", "lat", "lon"), values),
            "elevation": (("lat", "lon"), np.add.outer(lat, lon) ** 2 % 7),
            "day_edges": (("day", "side"), np.column_stack([day - 15, day + 15])),
            "station": ("lon", list("abcdefghi")),
            "crs": 4326,
        },
        coords={
            "lon": lon,
            "lat": lat,
            "day": ("day", day, {"units": "days since 2026-01-01", "bounds": "day_edges"}),
        },
    )


def loaded(folder: Path) -> GPRegressor:
    return GPRegressor.load(folder / "model", device="cpu")


# -- maps --------------------------------------------------------------------------------------------------------------
def test_a_grid_becomes_a_raster(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = loaded(folder).predict(warmgp.grid(lon=(5, 17, 1.5), lat=(49, 43, -1)), return_std=True)
    monkeypatch.setattr(maps, "CHUNK_ROWS", 10)  # chunks that end within a row of the raster
    code, out, err = run(capsys, "predict", folder / "model", "--grid", GRID, "--out", tmp_path / "map.nc")
    assert (code, out) == (0, "") and "predicted 63 cells (7 lat × 9 lon)" in err
    with xr.open_dataset(tmp_path / "map.nc") as found:
        assert found["mean"].dims == ("lat", "lon") and found.attrs["target"] == "temperature"
        assert "noise" in found["std"].attrs["long_name"] and "temperature" in found["mean"].attrs["long_name"]
        xr.testing.assert_allclose(found, right, rtol=1e-12)
    monkeypatch.undo()
    for name in ("map.csv", "map.csv.gz", "map.parquet", "map.npz"):
        assert run(capsys, "predict", folder / "model", "--grid", GRID, "--out", tmp_path / name, "--quiet")[0] == 0
    flat = right.to_dataframe().reset_index()[["lat", "lon", "mean", "std"]]
    for table in (
        read_csv(tmp_path / "map.csv"),
        read_csv(tmp_path / "map.csv.gz"),
        pd.read_parquet(tmp_path / "map.parquet"),
        pd.DataFrame(dict(np.load(tmp_path / "map.npz"))),
    ):
        pd.testing.assert_frame_equal(table, flat, check_exact=True)


def test_functions_and_numbers_are_part_of_a_map(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["predict", folder / "model", "--grid", "lat=45,lon=5:8:1", "--out", tmp_path / "m.nc", "--samples", 2]
    assert run(capsys, *line, "--quiet")[::2] == (0, "")
    with xr.open_dataset(tmp_path / "m.nc") as found:
        assert list(found) == ["mean", "std", "sample_1", "sample_2"] and found["lat"] == 45.0
        assert found["mean"].dims == ("lon",) and "lat" in found["mean"].coords
        X = pd.DataFrame({"lon": [5.0, 6, 7, 8], "lat": 45.0})
        np.testing.assert_array_equal(found["sample_2"], loaded(folder).sample_y(X, 2)[:, 1])


def test_blocks_are_averages_over_cells(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = loaded(folder).predict_blocks(warmgp.grid(lon=(5, 17, 1.5), lat=(49, 43, -1)), points=3)
    monkeypatch.setattr(maps, "CHUNK_ROWS", 100)
    line = ["predict", folder / "model", "--grid", GRID, "--blocks", 3, "--quiet", "--out"]
    assert run(capsys, *line, tmp_path / "blocks.nc")[::2] == (0, "")
    assert run(capsys, *line, tmp_path / "blocks.csv")[::2] == (0, "")
    with xr.open_dataset(tmp_path / "blocks.nc") as found:
        xr.testing.assert_allclose(found[["mean", "std"]].drop_vars(["lat_edges", "lon_edges"], errors="ignore"), right)
        assert found["mean"].attrs["cell_methods"] == "lat: lon: mean" and "average" in found["std"].attrs["long_name"]
        np.testing.assert_allclose(found[found["lon"].attrs["bounds"]][0], [4.25, 5.75])
        again = loaded(folder).predict_blocks(found, points=3)  # the file itself is such a grid
        np.testing.assert_allclose(again["std"], right["std"], rtol=1e-6)
    np.testing.assert_allclose(read_csv(tmp_path / "blocks.csv")["std"], right["std"].values.ravel(), rtol=1e-9)


# -- NetCDF as data ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["field.nc", "classic.nc"])
def test_a_field_is_a_table_of_its_cells(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Coordinates and variables over the target's dimensions are columns; cells that lack a value are left out."""
    flat = field()[["temperature", "elevation"]].to_dataframe(["day", "lat", "lon"]).reset_index().dropna()
    flat[["lon", "lat", "day", "elevation", "temperature"]].to_csv(tmp_path / "flat.csv", index=False)
    models = []
    for source, more in ((folder / name, []), (tmp_path / "flat.csv", [])):
        out = tmp_path / f"{source.stem}.model"
        line = ["fit", source, "--target", "temperature", "--out", out, "--test-fraction", 0.2, "--drop", "elevation"]
        code, told, err = run(capsys, *line, *more, *FAST)
        assert code == 0 and ("2 cells of" in err) is (source.suffix == ".nc") and "124 rows" not in told
        models.append(GPRegressor.load(out, device="cpu"))
    assert list(models[0].feature_names_in_) == ["lon", "lat", "day"] and models[0].target_name_ == "temperature"
    assert models[0].hyperparameters_.equals(models[1].hyperparameters_)
    score = run(capsys, "score", tmp_path / f"{Path(name).stem}.model", folder / name, "--target", "temperature")
    assert score[0] == 0 and "124 rows of" in score[1]


def test_a_file_comes_back_with_its_dimensions(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ["fit", folder / "field.nc", "--target", "temperature", "--out", tmp_path / "m", *FAST]
    assert run(capsys, *fit)[0] == 0
    model = GPRegressor.load(tmp_path / "m", device="cpu")
    assert list(model.feature_names_in_) == ["lon", "lat", "day", "elevation"]
    holes = field().drop_vars("temperature")
    holes["elevation"][1, 1] = np.nan
    holes.to_netcdf(tmp_path / "new.nc", engine="h5netcdf")
    line = ["predict", tmp_path / "m", tmp_path / "new.nc", "--std", "--out"]
    code, _, err = run(capsys, *line, tmp_path / "out.nc")
    assert code == 0 and "2 cells of" in err and "predicted 124 cells" in err
    assert run(capsys, *line, tmp_path / "out.csv")[0] == 0
    right = model.predict(holes, return_std=True)
    with xr.open_dataset(tmp_path / "out.nc", decode_times=False) as found:
        assert dict(found.sizes) == {"lat": 7, "lon": 9, "day": 2}
        assert found["day"].attrs["units"] == "days since 2026-01-01" and "bounds" not in found["day"].attrs
        np.testing.assert_allclose(found["std"].transpose(*right["std"].dims), right["std"], rtol=1e-12)
        assert int(found["mean"].isnull().sum()) == 2
    table = read_csv(tmp_path / "out.csv")
    assert list(table) == ["lon", "lat", "day", "mean", "std"] and len(table) == 124


def test_coordinates_over_two_dimensions_are_columns(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lon, lat = np.meshgrid(np.linspace(5, 17, 6), np.linspace(43, 49, 5))
    coords = {"lon": (("y", "x"), lon), "lat": (("y", "x"), lat)}
    swath = xr.Dataset({"temperature": (("y", "x"), 20 + np.sin(lon))}, coords=coords)
    swath.to_netcdf(tmp_path / "swath.nc", engine="h5netcdf")
    fit = ["fit", tmp_path / "swath.nc", "--target", "temperature", "--out", tmp_path / "m", *FAST]
    assert run(capsys, *fit)[0] == 0
    assert list(GPRegressor.load(tmp_path / "m").feature_names_in_) == ["lon", "lat"]
    assert run(capsys, "predict", tmp_path / "m", tmp_path / "swath.nc", "--out", tmp_path / "o.nc", "--quiet")[0] == 0
    with xr.open_dataset(tmp_path / "o.nc") as found:
        assert found["mean"].dims == ("y", "x") and set(found.coords) == {"lon", "lat"} and list(found) == ["mean"]


# -- whole or not at all -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["map.nc", "map.csv"])
def test_a_failure_leaves_what_was_there(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text("before")
    real, calls = GPRegressor.predict, []

    def predict(self: GPRegressor, X: pd.DataFrame, **options: bool) -> object:
        calls.append(len(X))
        mean, std = real(self, X, **options)
        return (mean, std * np.nan) if len(calls) == 3 else (mean, std)

    monkeypatch.setattr(maps, "CHUNK_ROWS", 10)
    monkeypatch.setattr(GPRegressor, "predict", predict)
    line = ["predict", folder / "model", "--grid", GRID, "--out", tmp_path / name]
    refused(capsys, line, ["the std predicted for row 21 of --grid is not a finite number"], code=1)
    assert (tmp_path / name).read_text() == "before" and [p.name for p in tmp_path.iterdir()] == [name]


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], ["predict needs DATA", "--grid"]),
        (["{folder}/data.csv", "--grid", GRID], ["DATA", "or --grid, not both"]),
        (["{folder}/data.csv"], ["NetCDF holds a grid, and these are rows: use --grid, or write .csv"]),
        (["{folder}/data.csv", "--blocks", "2"], ["--blocks averages over cells", "data.csv has rows"]),
        (["--grid", GRID, "--blocks", "0"], ["--blocks must be a count", "got 0"]),
        (["--grid", GRID, "--blocks", "2", "--samples", "1"], ["--samples and --blocks do not go together"]),
        (["--grid", GRID, "--samples", "7"], ["--samples must be between 0 and the 6"]),
        (["--grid", "lon=5:17:1"], ["lacks the model's input 'lat'", "add lat=start:stop:step, or lat=value"]),
        (["--grid", "lon=5:17:1,lat=1:2:1,x=1"], ["'x', which is no input of the model"]),
        (["--grid", "lon=5:17:0.0001,lat=43:49:0.001"], ["720,126,001 points", "at most 100,000,000"]),
        (["--grid", GRID, "--blocks", "2000"], ["252,000,000 points (63 cells of 2000 points a side)"]),
    ],
)
def test_bad_requests_are_refused(
    options: list[str], told: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [option.format(folder=folder) for option in options]
    refused(capsys, ["predict", folder / "model", "--out", tmp_path / "map.nc", *given], told)
    assert not list(tmp_path.iterdir())


def test_bad_files_are_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = xr.Dataset({"t": (("y", "x"), np.zeros((2, 3)))}, coords={"y": [1.0, 2.0]})
    bare.to_netcdf(tmp_path / "bare.nc", engine="h5netcdf")
    empty = field()[["temperature", "elevation"]] * np.nan
    empty.to_netcdf(tmp_path / "gaps.nc", engine="h5netcdf")
    (tmp_path / "text.nc").write_text("lon,lat\n1,2\n")
    (tmp_path / "cut.nc").write_bytes((folder / "field.nc").read_bytes()[:700])
    (tmp_path / "none.nc").write_bytes(b"")
    for name, told in {
        "bare.nc": ["no coordinates along 'x', a dimension of 't'", "add a coordinate variable 'x'"],
        "text.nc": ["text.nc is not a NetCDF file"],
        "cut.nc": ["cut.nc cannot be read (damaged or another format)"],
        "none.nc": ["none.nc is empty"],
    }.items():
        refused(capsys, ["fit", tmp_path / name, "--target", "t", "--out", tmp_path / "m"], told)
    gaps = ["fit", tmp_path / "gaps.nc", "--target", "temperature", "--out", tmp_path / "m"]
    refused(capsys, gaps, ["no rows (126 cells lack a value)"])
    with h5netcdf.File(tmp_path / "claim.nc", "w") as file:
        file.dimensions = {"y": 10**6, "x": 10**6}
        for name, dims in (("y", ("y",)), ("x", ("x",)), ("t", ("y", "x"))):
            file.create_variable(name, dims, "f8")
    assert (tmp_path / "claim.nc").stat().st_size < 10**5
    claim = ["fit", tmp_path / "claim.nc", "--target", "t", "--out", tmp_path / "m"]
    refused(capsys, claim, ["claim.nc has 1,000,000,000,000 cells, of which at most 100,000,000 are read"])
    wrong = ["fit", folder / "field.nc", "--target", "temperatur", "--out", tmp_path / "m"]
    refused(capsys, wrong, ["has no column 'temperatur'; did you mean 'temperature'"])
    lacking = ["predict", folder / "model", tmp_path / "bare.nc", "--out", tmp_path / "o.nc"]
    bare.assign_coords(x=[1.0, 2.0, 3.0]).to_netcdf(tmp_path / "bare.nc", engine="h5netcdf")
    refused(capsys, lacking, ["lacks columns 'lon', 'lat' of the model"])


def test_names_that_a_map_cannot_have_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = read_csv(folder / "data.csv")
    several = data.rename(columns={"temperature": "µg/m³"}).assign(other=data["temperature"] ** 2)
    several.to_csv(tmp_path / "s.csv", index=False)
    assert run(capsys, "fit", tmp_path / "s.csv", "--target", "µg/m³,other", "--out", tmp_path / "m", *FAST)[0] == 0
    line = ["predict", tmp_path / "m", "--grid", "lon=5:6:1,lat=43:44:1", "--quiet", "--out"]
    refused(capsys, [*line, tmp_path / "o.nc"], ["NetCDF cannot name a variable 'mean_µg/m³'", "write .csv"])
    assert run(capsys, *line, tmp_path / "o.csv")[0] == 0
    for name, told in (("mean", "has the name of a result"), ("m/s", "NetCDF cannot name a coordinate 'm/s'")):
        data.rename(columns={"lat": name}).to_csv(tmp_path / "d.csv", index=False)
        fit = ["fit", tmp_path / "d.csv", "--target", "temperature", "--out", tmp_path / "m", *FAST]
        assert run(capsys, *fit)[0] == 0
        refused(
            capsys,
            ["predict", tmp_path / "m", "--grid", f"lon=5:6:1,{name}=43:44:1", "--out", tmp_path / "o.nc"],
            [told],
        )


@pytest.mark.parametrize(("module", "name"), [("xarray", "xarray"), ("h5netcdf", "h5netcdf"), ("h5py", "h5netcdf")])
def test_without_the_extra_it_is_named(
    module: str, name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, module, None)
    told = [f"needs {name}", "pip install 'warmgp[maps]'"]
    refused(capsys, ["fit", folder / "field.nc", "--target", "temperature", "--out", tmp_path / "m"], told)
    line = ["predict", folder / "model", "--grid", GRID, "--out"]
    if module != "xarray":  # maps are written without it
        refused(capsys, [*line, tmp_path / "m.nc"], told)
    assert run(capsys, *line, tmp_path / "m.csv")[0] == 0
