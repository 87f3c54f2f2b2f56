"""Predictions over named grids: every cell, by the names of a model's inputs and in chunks, and back as a Dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.checks import check_count
from warmgp.data.grids import CHUNK_ROWS, Cells, chunk_of_cells, chunks, missing_cells
from warmgp.data.named_grids import cells_of, dataset_like
from warmgp.estimator.blocks import group_averages

FloatArray = NDArray[np.float64]

WITH_NOISE = "standard deviation of a new observation: of the field, and of the noise"
WITHOUT_NOISE = "standard deviation of the field, without the noise of observations"
OF_BLOCKS = "standard deviation of the field's average over the cell, without the noise of observations"


def feature_names(model: Any) -> list[str]:
    """Returns the names of a model's inputs; x0, x1, … where it was fitted without names."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{j}" for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def inputs_frame(model: Any, columns: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
    """Returns columns as a table of a model's inputs, in their order."""
    return pd.DataFrame({name: columns[name] for name in feature_names(model)})


def inputs_of(model: Any, columns: Mapping[str, NDArray[Any]]) -> Any:
    """Returns columns as the X that a model takes: with names, or without where it was fitted so."""
    X = inputs_frame(model, columns)
    return X if hasattr(model, "feature_names_in_") else X.to_numpy()


def described(
    model: Any, std: str, *, blocks: bool = False, target: str | None = None
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Returns what a map says of itself, and of its variables "mean" and "std", for whom finds the file later.

    ``target`` is one of several targets; by default the model's own.
    """
    target = target or getattr(model, "target_name_", None)
    of = f" of {target}" if target else ""
    mean = f"mean{of}, averaged over the cell" if blocks else f"mean{of}"
    about = {"target": target} if target else {}
    return about | {"source": "warmgp"}, {"mean": {"long_name": mean}, "std": {"long_name": std}}


def predict_named(model: Any, X: Any, *, std: bool, include_noise: bool, predict: Callable[..., Any]) -> Any:
    """Returns the mean, and perhaps std, of every cell of a named grid; NaN where an input is missing.

    ``predict`` is the method of the model that is asked for rows.
    """
    names = feature_names(model)
    cells = cells_of(X, names)
    made = {name: np.full(_shape(model, cells), np.nan) for name in ("mean", "std")[: 1 + std]}
    for start, stop in chunks(cells.size):
        columns = cells.rows(names, start, stop)
        there = ~missing_cells(columns)
        if not there.any():
            continue
        inputs = inputs_of(model, {name: values[there] for name, values in columns.items()})
        found = predict(inputs, return_std=std, include_noise=include_noise)
        for values, part in zip(made.values(), found if std else (found,), strict=True):
            values[start:stop][there] = part
    return _dataset(model, X, cells, made, WITH_NOISE if include_noise else WITHOUT_NOISE)


def blocks_named(model: Any, X: Any, points: int) -> Any:
    """Returns mean and std of the field's average over each cell of a named grid, by so many points a side."""
    names = feature_names(model)
    check_count("points", points)
    cells = cells_of(X, names).with_bounds(names, points)
    made = {name: np.empty(_shape(model, cells)) for name in ("mean", "std")}
    for start, stop in chunks(cells.size, chunk_of_cells(points, len(cells.dims), CHUNK_ROWS)):
        made["mean"][start:stop], made["std"][start:stop] = cell_averages(model, cells, start, stop, points)
    return _dataset(model, X, cells, made, OF_BLOCKS, blocks=True)


def cell_averages(model: Any, cells: Cells, start: int, stop: int, points: int) -> tuple[FloatArray, FloatArray]:
    """Returns mean and std of the field's average over cells from ``start`` to ``stop``, with known edges: (m,) each,
    or (m, q) of several targets."""
    inputs = inputs_of(model, cells.points(feature_names(model), start, stop, points))
    return group_averages(model, inputs, np.repeat(np.arange(start, stop), points ** len(cells.dims)))


def _shape(model: Any, cells: Cells) -> tuple[int, ...]:
    """Returns the shape of what is predicted of cells: (m,), or (m, q) of several targets."""
    return (cells.size, *([len(model.target_names_)] if model.target_names_ else []))


def _dataset(
    model: Any, X: Any, cells: Cells, made: Mapping[str, FloatArray], std: str, *, blocks: bool = False
) -> Any:
    """Returns what was predicted as a Dataset: of several targets with the variables "mean_a" and so on."""
    about, said = described(model, std, blocks=blocks)
    if not model.target_names_:
        return dataset_like(X, cells, {one: (values, said[one]) for one, values in made.items()}, about)
    told: dict[str, Any] = {}
    for j, name in enumerate(model.target_names_):
        _, said = described(model, std, blocks=blocks, target=name)
        told |= {f"{one}_{name}": (np.ascontiguousarray(values[:, j]), said[one]) for one, values in made.items()}
    return dataset_like(X, cells, told, about | {"target": ", ".join(model.target_names_)})
