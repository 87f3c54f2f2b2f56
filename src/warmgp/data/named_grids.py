"""The border to xarray and NetCDF files: named grids in, named grids out. Both are optional: ``warmgp[maps]``.

Files of NetCDF 4 are read by h5netcdf, those of NetCDF 3 by scipy. Times stay the numbers that a file holds ("days
since …"): a model takes numbers, and the file's own units are those that its coordinates come back with.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warmgp.data.grids import MOST_CELLS, Cells, Column, FloatArray, GridError, grid_cells

EXTRA = "pip install 'warmgp[maps]'"
"""What installs xarray and what it reads and writes NetCDF by."""


def xarray_for(what: str) -> Any:
    """Returns xarray; raises where it is not installed, for what it was needed."""
    try:
        import xarray
    except ImportError as error:
        raise ImportError(f"{what} needs xarray: {EXTRA}") from error
    return xarray


def is_named(X: Any) -> bool:
    """Says whether X is a Dataset or a DataArray of xarray, which is not imported for the question."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(X, xarray.Dataset | xarray.DataArray)


def grid(**inputs: tuple[float, float, float] | float) -> Any:
    """Returns a regular grid as an ``xarray.Dataset`` of coordinates, for ``model.predict`` and ``predict_blocks``.

    Each input is ``(start, stop, step)`` or a number that it has everywhere. Values are start, start + step, …; stop is
    included where it falls on the grid. What is named first is the last dimension: ``grid(lon=…, lat=…)`` has the
    dimensions (lat, lon), as rasters have.

    Examples
    --------
    >>> import warmgp
    >>> warmgp.grid(lon=(5, 17, 0.5), lat=(43, 49, 0.5), day=180.0).sizes["lon"]
    25
    """
    xarray = xarray_for("warmgp.grid")
    axes, fixed = {}, {}
    for name, given in inputs.items():
        numbers = np.asarray(given)
        if numbers.shape not in ((), (3,)) or numbers.dtype.kind not in "iuf" or not np.isfinite(numbers).all():
            raise GridError(f"the grid's {name!r} must be (start, stop, step) or a number, got {given!r}")
        if numbers.shape:
            start, stop, step = numbers.tolist()
            axes[name] = (float(start), float(stop), float(step))
        else:
            fixed[name] = float(numbers)
    cells = grid_cells(axes, fixed)
    return xarray.Dataset(coords=dict(cells.columns))


# -- Datasets ----------------------------------------------------------------------------------------------------------
def cells_of(X: Any, names: Sequence[str]) -> Cells:
    """Returns the cells of a Dataset or DataArray whose coordinates or variables carry these inputs."""
    dataset = as_dataset(X, names)
    held = [str(name) for name in dataset.variables]
    missing = [name for name in names if name not in held]
    if missing:
        raise GridError(
            f"the grid lacks the model's input{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing[:20]))} "
            f"(it has {', '.join(map(repr, held[:20]))}): add such a coordinate, or a number: ds.assign_coords("
            f"{missing[0]}=…)"
        )
    return dataset_cells(dataset, names, names)


def as_dataset(X: Any, names: Sequence[str] = ()) -> Any:
    """Returns X as a Dataset: of a DataArray its coordinates, and its values where they are one of the inputs."""
    if not hasattr(X, "to_dataset") or hasattr(X, "data_vars"):
        return X
    dataset = X.coords.to_dataset()
    return dataset.assign({X.name: X.variable}) if X.name in names and X.name not in dataset else dataset


def dataset_cells(dataset: Any, names: Sequence[str], columns: Sequence[str]) -> Cells:
    """Returns the cells over the dimensions of the variables ``names``, with these columns."""
    dims = _dims(dataset, names)
    found: dict[str, Column] = {}
    attributes: dict[str, Mapping[str, Any]] = {}
    bounds: dict[str, FloatArray] = {}
    for name in columns:
        variable = dataset[name]
        found[name] = (tuple(map(str, variable.dims)), np.asarray(variable.values))
        attributes[name] = dict(variable.attrs)
        edges = variable.attrs.get("bounds")
        if edges in dataset.variables and dataset[edges].shape == (*variable.shape, 2):
            bounds[name] = np.asarray(dataset[edges].values, dtype=np.float64)
    coordinates = tuple(name for name in columns if name in dataset.coords)
    return Cells(dims, tuple(dataset.sizes[dim] for dim in dims), found, bounds, coordinates, attributes)


def _dims(dataset: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the dimensions of variables in the order of the variable that has most of them, else of the Dataset."""
    used = {dim for name in names for dim in dataset[name].dims}
    widest = max((v.dims for v in dataset.data_vars.values()), key=lambda dims: len(used & set(dims)), default=())
    order = [*widest, *dataset.sizes] if used <= set(widest) else list(dataset.sizes)
    return tuple(str(dim) for dim in dict.fromkeys(order) if dim in used)


def dataset_like(X: Any, cells: Cells, made: Mapping[str, tuple[FloatArray, Mapping[str, Any]]], about: Any) -> Any:
    """Returns (values, attributes) by name as a Dataset with the dimensions and coordinates of X."""
    xarray, dataset = xarray_for("a named grid"), as_dataset(X)
    kept = {name: c for name, c in dataset.coords.items() if set(c.dims) <= set(cells.dims)}
    variables = {name: (cells.dims, values.reshape(cells.shape), dict(told)) for name, (values, told) in made.items()}
    return xarray.Dataset(variables, coords=kept, attrs=dict(about))


# -- NetCDF files ------------------------------------------------------------------------------------------------------
def read_cells(path: Path, about: Sequence[str] = ()) -> Cells:
    """Returns what a NetCDF file holds over the dimensions of the variables ``about``, as columns of numbers.

    Coordinates come first, then the other variables over these dimensions or some of them; text and dates are left out.
    Numbers with no dimension are left out, too, unless they are named. Without a variable that is there, the dimensions
    are those of the widest one.
    """
    with _opened(path) as dataset:
        named = [name for name in about if name in dataset.variables]
        if not any(dataset[name].dims for name in named):
            wide = sorted(dataset.data_vars, key=lambda name: -len(dataset[name].dims)) or list(dataset.variables)
            named += wide[:1]
        if not named:
            raise GridError("holds no variable: save it with the one to predict and its coordinates")
        dims = set(_dims(dataset, named))
        claimed = math.prod(dataset.sizes[dim] for dim in dims)
        if claimed > MOST_CELLS:  # a small file may claim any number
            raise GridError(f"has {claimed:,} cells, of which at most {MOST_CELLS:,} are read: cut it into parts")
        over = [
            name
            for name in (*dataset.coords, *dataset.data_vars)
            if set(dataset[name].dims) <= dims
            and dataset[name].dtype.kind in "fiub"
            and (dataset[name].dims or name in about)
        ]
        cells = dataset_cells(dataset, [name for name in named if name in over] or over, list(map(str, over)))
    _check_covered(cells, named)
    return cells


def _opened(path: Path) -> Any:
    """Returns the Dataset of a file, by its first bytes: HDF5 (NetCDF 4) or classic NetCDF 3."""
    xarray = xarray_for(f"{path}: NetCDF")
    with path.open("rb") as file:
        mark = file.read(4)
    if mark == b"\x89HDF":
        h5netcdf_for(str(path))
    elif mark[:3] != b"CDF":
        raise GridError("is not a NetCDF file: save it as one")
    engine = "h5netcdf" if mark == b"\x89HDF" else "scipy"
    return xarray.open_dataset(path, engine=engine, decode_times=False, cache=False)


def h5netcdf_for(what: str) -> Any:
    """Returns h5netcdf; raises where it, or h5py below it, is not installed."""
    try:
        import h5netcdf
        import h5py  # noqa: F401 - h5netcdf does without until a file is opened
    except ImportError as error:
        raise ImportError(f"{what}: NetCDF 4 needs h5netcdf and h5py: {EXTRA}") from error
    return h5netcdf


def _check_covered(cells: Cells, named: Sequence[str]) -> None:
    """Raises where a dimension has no coordinate: nothing says where along it a cell is."""
    said = {dim for name, (dims, _) in cells.columns.items() if name not in named or name in cells.dims for dim in dims}
    said |= {dim for name in cells.coordinates for dim in cells.columns[name][0]}
    bare = [dim for dim, length in zip(cells.dims, cells.shape, strict=True) if length > 1 and dim not in said]
    if bare:
        raise GridError(
            f"has no coordinates along {', '.join(map(repr, bare))}, a dimension of {named[0]!r}, so that nothing says "
            f"where its cells are: add a coordinate variable {bare[0]!r}, or two-dimensional ones such as lat and lon"
        )
