"""Maps: the cells of a grid predicted in chunks, and written as NetCDF or as a table, whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from warmgp import __version__
from warmgp.cli.answers import NONE, FarInputs, answer, by_level
from warmgp.cli.columns import UsageError, resolve
from warmgp.cli.ranks import answered, in_parts
from warmgp.cli.table_writer import TableWriter
from warmgp.cli.tables import GRID, NetcdfTable, TableError, open_table, quoted, table_format
from warmgp.cli.targets import by_target, names_of_answers
from warmgp.cli.terminal import bar, say, tell
from warmgp.data.grids import CHUNK_ROWS, Cells, boxes, chunk_of_cells, chunks, missing_cells
from warmgp.data.named_grids import h5netcdf_for
from warmgp.estimator.maps import OF_BLOCKS, WITH_NOISE, cell_averages, described, feature_names, inputs_frame
from warmgp.estimator.regressor import GPRegressor
from warmgp.files.atomic import whole_file
from warmgp.files.paths import check_writable
from warmgp.processes import writes

FloatArray = NDArray[np.float64]


def predict_map(
    model: GPRegressor,
    cells: Cells,
    source: Path,
    out: Path,
    *,
    std: bool = True,
    samples: int = 0,
    blocks: int | None = None,
    quantiles: Mapping[str, float] = NONE,
    quiet: bool = False,
) -> None:
    """Predicts every cell that has all inputs and writes a map; with ``blocks`` the averages over cells.

    ``source`` is what the cells came from, for messages. A table has a row for each cell that is predicted, with its
    coordinates; NetCDF has NaN in the others. Of several processes each predicts a part of every chunk, and rank 0
    writes.
    """
    names = feature_names(model)
    if blocks:
        cells = cells.with_bounds(names, blocks)
    plain = ["mean", *(["std"] if std else []), *quantiles, *(f"sample_{k + 1}" for k in range(samples))]
    results = names_of_answers(model, plain)
    writer = map_writer(out, model, cells, results, blocks, quantiles)
    far, done = FarInputs(model), 0
    size = chunk_of_cells(blocks or 1, len(cells.dims), CHUNK_ROWS)

    def averaged(start: int, some: slice) -> dict[str, FloatArray]:
        means = cell_averages(model, cells, start + some.start, start + some.stop, blocks or 1)
        found = dict(zip(("mean", "std"), means, strict=True))
        return found | by_level(found["mean"], found["std"], quantiles)

    def asked(X: Any, which: Any) -> dict[str, FloatArray]:
        return answer(model, X, source, which, std=std, samples=samples, quantiles=quantiles)

    with writer if writes() else contextlib.nullcontext(), bar(quiet) as shown:
        task = shown.add_task("predicting", total=1.0, rows="0 cells")
        for start, stop in chunks(cells.size, size):
            columns = cells.rows(list(dict.fromkeys([*names, *cells.coordinates])), start, stop)
            there = ~missing_cells({name: columns[name] for name in names})
            numbers = np.arange(start + 1, stop + 1)[there]
            made = {name: np.full(stop - start, np.nan) for name in results}
            if len(numbers):
                X = inputs_frame(model, {name: columns[name][there] for name in names})
                far.look(X, source, numbers)
                found = in_parts(stop - start, partial(averaged, start)) if blocks else answered(X, numbers, asked)
                told = by_target(model, found)
                for name, values in made.items():
                    values[there] = told[name]
            if writes():
                writer.write(columns, made, there)
            done += len(numbers)
            shown.update(task, completed=stop / cells.size, rows=f"{done:,} cells")
    if far.warning:
        say("warning", far.warning)
    if done < cells.size and not quiet:
        tell(f"{cells.size - done:,} cells of {source} lack an input: no prediction for them", stderr=True)
    if not quiet:
        sides = " × ".join(f"{length:,} {dim}" for dim, length in zip(cells.dims, cells.shape, strict=True))
        tell(f"predicted {done:,} cells ({sides}): {out}", stderr=True)


def cells_in(path: Path, names: Sequence[str], texts: Sequence[str] = ()) -> Cells:
    """Returns the cells of the grid in a NetCDF file, which must have these inputs, and none of them as text."""
    table = open_table(path, names)
    _, one_hot = resolve(names, table)
    text = [*texts, *one_hot]
    if text or not isinstance(table, NetcdfTable):
        raise TableError(f"{path} has no text columns, and the model was fitted to {quoted(text)}: use a table")
    return table.cells


def check_map_path(out: Path) -> None:
    """Refuses a file that a map cannot be written to, before any work is done."""
    if table_format(out) != GRID:
        TableWriter(out)
        return
    check_writable(out)
    _h5netcdf(out)


def _h5netcdf(path: Path) -> Any:
    """Returns what writes NetCDF; raises where it is not installed."""
    try:
        return h5netcdf_for(str(path))
    except ImportError as error:
        raise TableError(str(error)) from error


def map_writer(
    out: Path,
    model: GPRegressor,
    cells: Cells,
    results: list[str],
    blocks: int | None,
    quantiles: Mapping[str, float] = NONE,
) -> Any:
    """Returns what writes a map, by the extension of its file; refuses names that it could not write."""
    clash = sorted(set(cells.coordinates) & set(results))
    if clash:
        raise UsageError(f"the coordinate {quoted(clash)} has the name of a result: rename that column, and fit again")
    if table_format(out) != GRID:
        return MapTable(out, cells)
    about, told = described(model, OF_BLOCKS if blocks else WITH_NOISE, blocks=bool(blocks))
    about |= {"source": f"warmgp {__version__}", "Conventions": "CF-1.8"}
    of = "the field's average over the cell" if blocks else "a new observation"
    told |= {name: {"long_name": f"quantile {level:g} of {of}"} for name, level in quantiles.items()}
    sampled = {"long_name": "a function drawn from the posterior, without the noise of observations"}
    if model.target_names_:  # by the names of targets
        about["target"] = ", ".join(model.target_names_)
        told = {
            f"{name}_{target}": said | {"long_name": f"{said['long_name']}, of {target}"}
            for name, said in told.items() for target in model.target_names_
        }  # fmt: skip
    return MapFile(out, cells, {name: told.get(name, sampled) for name in results}, about, averaged=bool(blocks))


class MapTable:
    """Writes a map as a table: a row for each cell that was predicted, with its coordinates."""

    def __init__(self, path: Path, cells: Cells) -> None:
        self._writer = TableWriter(path)
        self._coordinates = [name for name in cells.coordinates if cells.columns[name][0]]

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def write(
        self, columns: Mapping[str, NDArray[Any]], made: Mapping[str, FloatArray], there: NDArray[np.bool_]
    ) -> None:
        """Appends the next cells: coordinates, what was predicted, and where there is a prediction."""
        rows = {name: columns[name] for name in self._coordinates} | dict(made)
        if there.any():
            self._writer.write({name: values[there] for name, values in rows.items()})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._writer.__exit__(kind, error, trace)


class MapFile:
    """Writes a map as NetCDF 4, cell after cell, in bounded memory; it appears only when all is written.

    Parameters
    ----------
    path : Path
    cells : Cells
        The dimensions, and the coordinates that are written with their attributes.
    variables : mapping of str to mapping
        The attributes of what is predicted, by name.
    about : mapping
        The attributes of the file.
    averaged : bool
        Whether values are averages over cells, whose edges are then written, too.
    """

    def __init__(
        self,
        path: Path,
        cells: Cells,
        variables: Mapping[str, Mapping[str, str]],
        about: Mapping[str, str],
        averaged: bool = False,
    ) -> None:
        self._h5netcdf = _h5netcdf(path)
        for what, names in (("coordinate", (*cells.dims, *cells.coordinates)), ("variable", variables)):
            bad = [name for name in names if "/" in name or "\0" in name or name == "."]
            if bad:
                raise UsageError(f"{path}: NetCDF cannot name a {what} {quoted(bad[:20])}: write .csv instead")
        self.cells, self.variables, self.about, self.averaged = cells, variables, about, averaged
        self._whole = whole_file(path)
        self._done = 0

    def __enter__(self) -> Self:
        file = self._whole.__enter__()
        try:
            self._file = self._h5netcdf.File(os.fspath(file.name), "w")  # HDF5 writes by the name of the same file
            self._begin()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _begin(self) -> None:
        """Writes dimensions, coordinates and attributes, and makes the variables, empty."""
        cells, file = self.cells, self._file
        file.dimensions = dict(zip(cells.dims, cells.shape, strict=True))
        for name in cells.coordinates:
            dims, values = cells.columns[name]
            made = file.create_variable(name, dims, values.dtype, data=values)
            for key, value in cells.attributes.get(name, {}).items():
                if key != "bounds" and isinstance(value, str | int | float | np.number):
                    made.attrs[key] = value
        if self.averaged:
            file.dimensions["edges"] = 2
            for name, edges in cells.bounds.items():
                file.create_variable(f"{name}_edges", (*cells.columns[name][0], "edges"), "f8", data=edges)
                file[name].attrs["bounds"] = f"{name}_edges"
        beside = [name for name in cells.coordinates if name not in cells.dims and " " not in name]
        for name, told in self.variables.items():
            made = file.create_variable(name, cells.dims, "f8", fillvalue=np.nan)
            for key, value in told.items():
                made.attrs[key] = value
            if beside:
                made.attrs["coordinates"] = " ".join(beside)
            if self.averaged:
                made.attrs["cell_methods"] = " ".join(f"{dim}:" for dim in cells.dims) + " mean"
        for key, value in self.about.items():
            file.attrs[key] = value

    def write(
        self, columns: Mapping[str, NDArray[Any]], made: Mapping[str, FloatArray], there: NDArray[np.bool_]
    ) -> None:
        """Appends the next cells: those without a prediction are NaN in ``made``."""
        stop = self._done + len(there)
        for name, values in made.items():
            used = 0
            for box in boxes(self.cells.shape, self._done, stop):
                shape = tuple(part.stop - part.start for part in box)
                count = int(np.prod(shape))
                self._file[name][box] = values[used : used + count].reshape(shape)
                used += count
        self._done = stop

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        with contextlib.ExitStack() as stack:
            stack.push(self._whole)
            if error is not None:
                if hasattr(self, "_file"):
                    with contextlib.suppress(Exception):  # nobody wants its complaint about a file that is gone
                        self._file.close()
                raise error
            self._file.close()
