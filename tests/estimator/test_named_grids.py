"""Named grids: an xarray grid in, a Dataset over the same dimensions out, with the numbers of plain predictions."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import warmgp
from warmgp import GPRegressor
from warmgp.estimator import maps

xr = pytest.importorskip("xarray", reason="named grids need xarray: pip install 'warmgp[maps]'")
OPTIONS = {"n_steps": 0, "n_features": 100, "n_probes": 4, "solver": "cholesky", "device": "cpu", "random_state": 0}


def table(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform([5, 43, 0], [17, 49, 2], (n, 3)), columns=["lon", "lat", "height"])
    return data.assign(temperature=20 + np.sin(data["lon"]) - 6 * data["height"] + 0.2 * rng.normal(size=n))


@pytest.fixture(scope="module")
def flat() -> GPRegressor:
    return GPRegressor(**OPTIONS).fit(table()[["lon", "lat"]], table()["temperature"])


@pytest.fixture(scope="module")
def tall() -> GPRegressor:
    return GPRegressor(**OPTIONS).fit(table()[["lon", "lat", "height"]], table()["temperature"])


def plain(model: GPRegressor, **columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return model.predict(
        pd.DataFrame({name: columns[name].ravel() for name in maps.feature_names(model)}), return_std=True
    )


# -- predictions -------------------------------------------------------------------------------------------------------
def test_a_grid_comes_back_with_its_coordinates(flat: GPRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = warmgp.grid(lon=(5, 17, 2), lat=(49, 43, -1))
    lat, lon = np.meshgrid(grid["lat"], grid["lon"], indexing="ij")
    mean, std = plain(flat, lon=lon, lat=lat)
    found = flat.predict(grid, return_std=True)
    assert found["mean"].dims == found["std"].dims == ("lat", "lon") and found["mean"].shape == (7, 7)
    np.testing.assert_array_equal(found["mean"].values.ravel(), mean)
    np.testing.assert_array_equal(found["std"].values.ravel(), std)
    assert found["lat"].equals(grid["lat"]) and found.attrs["target"] == "temperature"
    assert "noise" in found["std"].attrs["long_name"] and list(flat.predict(grid)) == ["mean"]
    latent = flat.predict(grid, return_std=True, include_noise=False)
    assert (latent["std"] < found["std"]).all() and "without the noise" in latent["std"].attrs["long_name"]
    monkeypatch.setattr(maps, "chunks", lambda size: [(0, 20), (20, size)])
    np.testing.assert_allclose(flat.predict(grid)["mean"], found["mean"], rtol=1e-12)


def test_inputs_may_be_variables_numbers_and_missing(tall: GPRegressor) -> None:
    rng = np.random.default_rng(1)
    height = rng.uniform(0, 2, (4, 3)).astype(np.float32)
    height[1, 2] = np.nan
    area = xr.Dataset(
        {"height": (("lat", "lon"), height), "name": ("lon", ["a", "b", "c"])},
        coords={"lon": [6.0, 9.0, 12.0], "lat": [44.0, 45.0, 46.0, 47.0]},
    )
    found = tall.predict(area, return_std=True)
    assert found["mean"].dims == ("lat", "lon") and np.isnan(found["mean"][1, 2]) and np.isnan(found["std"][1, 2])
    assert int(found["mean"].isnull().sum()) == 1
    lat, lon = np.meshgrid(area["lat"], area["lon"], indexing="ij")
    there = ~np.isnan(height)
    mean, _ = plain(tall, lon=lon[there], lat=lat[there], height=height[there].astype(np.float64))
    np.testing.assert_allclose(found["mean"].values[there], mean, rtol=1e-12)
    level = tall.predict(area[["lon", "lat"]].assign_coords(height=1.0))
    assert level["height"] == 1.0 and level["mean"].dims == ("lon", "lat")  # as the Dataset has them
    mean = plain(tall, lon=lon.T, lat=lat.T, height=np.ones(12))[0]
    np.testing.assert_array_equal(level["mean"].values.ravel(), mean)
    turned = tall.predict(area["height"].transpose("lon", "lat"))  # a DataArray that is itself an input
    assert turned["mean"].dims == ("lon", "lat")
    np.testing.assert_allclose(turned["mean"].values.T, found["mean"].values, rtol=1e-12)


def test_coordinates_may_have_two_dimensions(flat: GPRegressor) -> None:
    """A map in a projection of its own: lon and lat over (y, x); another variable is carried by nothing."""
    lon, lat = np.meshgrid(np.linspace(6, 9, 3), np.linspace(44, 47, 2))
    field = xr.DataArray(
        np.zeros((2, 3)), dims=("y", "x"), coords={"lon": (("y", "x"), lon + lat / 50), "lat": (("y", "x"), lat)}
    )
    found = flat.predict(field)
    assert found["mean"].dims == ("y", "x") and set(found.coords) == {"lon", "lat"}
    np.testing.assert_array_equal(found["mean"].values.ravel(), plain(flat, lon=lon + lat / 50, lat=lat)[0])
    path = xr.Dataset(coords={"lon": ("s", [6.0, 7.0]), "lat": ("s", [44.0, 45.0])})  # a transect
    assert flat.predict(path)["mean"].dims == ("s",)
    with pytest.raises(ValueError, match=r"'lat' lies over 's', as 'lon' has.*groups"):
        flat.predict_blocks(path, points=2)
    with pytest.raises(ValueError, match=r"'lon' lies over the dimensions \('y', 'x'\)"):
        flat.predict_blocks(field, points=2)


def test_a_model_without_names_has_x0_x1() -> None:
    X = table()[["lon", "lat"]].to_numpy()
    model = GPRegressor(**OPTIONS).fit(X, table()["temperature"].to_numpy())
    found = model.predict(warmgp.grid(x0=(5, 7, 1), x1=(44, 45, 1)))
    assert found["mean"].shape == (2, 3) and "target" not in found.attrs and model.target_name_ is None
    assert found["mean"][1, 2] == model.predict([[7.0, 45.0]])[0]


# -- blocks ------------------------------------------------------------------------------------------------------------
def test_blocks_of_a_grid_are_groups_of_points(tall: GPRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = warmgp.grid(lon=(6, 12, 3), lat=(44, 46, 2), height=1.0)
    found = tall.predict_blocks(grid, points=4)
    offsets = (np.arange(4) + 0.5) / 4 - 0.5
    rows, groups = [], []
    for i, lat in enumerate(grid["lat"].values):
        for j, lon in enumerate(grid["lon"].values):
            rows += [(lon + 3 * a, lat + 2 * b, 1.0) for b in offsets for a in offsets]
            groups += [3 * i + j] * 16
    mean, std = tall.predict_blocks(pd.DataFrame(rows, columns=["lon", "lat", "height"]), groups)
    np.testing.assert_allclose(found["mean"].values.ravel(), mean, rtol=1e-10)
    np.testing.assert_allclose(found["std"].values.ravel(), std, rtol=1e-6)
    assert found["mean"].dims == ("lat", "lon") and "average" in found["std"].attrs["long_name"]
    monkeypatch.setattr(maps, "CHUNK_ROWS", 40)  # two cells at once
    np.testing.assert_allclose(tall.predict_blocks(grid, points=4)["std"], found["std"], rtol=1e-6)


def test_cells_of_any_width_have_bounds(flat: GPRegressor) -> None:
    edges = np.array([[5.0, 6.0], [6.0, 10.0]])
    grid = xr.Dataset({"edges": (("lon", "side"), edges)}, coords={"lon": edges.mean(1), "lat": 45.0})
    with pytest.raises(ValueError, match=r"'lon' is one value"):
        flat.predict_blocks(grid.isel(lon=[0]), points=2)
    grid["lon"].attrs["bounds"] = "edges"
    found = flat.predict_blocks(grid, points=2)
    points = pd.DataFrame({"lon": [5.25, 5.75, 7.0, 9.0], "lat": 45.0})
    right = flat.predict_blocks(points, [0, 0, 1, 1])
    np.testing.assert_allclose([found["mean"], found["std"]], right, rtol=1e-7)


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_bad_grids_are_refused(flat: GPRegressor) -> None:
    grid = warmgp.grid(lon=(5, 7, 1), lat=(43, 44, 1))
    with pytest.raises(ValueError, match=r"lacks the model's input 'lat' \(it has 'lon'\).*assign_coords\(lat=…\)"):
        flat.predict(grid.drop_vars("lat"))
    with pytest.raises(ValueError, match="return_cov is not for named grids"):
        flat.predict(grid, return_cov=True)
    with pytest.raises(ValueError, match="give points"):
        flat.predict_blocks(grid)
    with pytest.raises(ValueError, match="points must be"):
        flat.predict_blocks(grid, points=0)
    with pytest.raises(ValueError, match="no groups"):
        flat.predict_blocks(grid, [1], points=2)
    dates = grid.assign_coords(lat=pd.date_range("2026-01-01", periods=2))
    with pytest.raises(ValueError, match=r"(?i)dates not supported.*'lat'"):
        flat.predict(dates)
    with pytest.raises(ValueError, match=r"infinity"):
        flat.predict(grid.assign_coords(lat=[43.0, np.inf]))
    with pytest.raises(ValueError, match="X is a grid of xarray, for predict and predict_blocks"):
        flat.sample_y(grid)
    for wrong in ((1, 2), "5:17:1", (0, 1, np.nan), None):
        with pytest.raises(ValueError, match=r"'lon' must be \(start, stop, step\) or a number"):
            warmgp.grid(lon=wrong)


def test_without_xarray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, flat: GPRegressor) -> None:
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"warmgp.grid needs xarray: pip install 'warmgp\[maps\]'"):
        warmgp.grid(lon=(5, 7, 1))
    assert flat.predict(table()[["lon", "lat"]]).shape == (60,)  # which needs no xarray
