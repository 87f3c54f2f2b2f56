"""What the command line predicts, and two checks: that every answer is a finite number, and that inputs make sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.cli.kinds import cells_of, check_cells
from warmgp.data.arrays import check_inputs
from warmgp.estimator.maps import feature_names
from warmgp.estimator.regressor import GPRegressor

FloatArray = NDArray[np.float64]

FAR = 1000.0
"""The distance beyond the range of a training column, in its standard deviations, at which a value is pointed out."""


class NoAnswerError(RuntimeError):
    """Says that a prediction is not a finite number."""


def length_scales(model: GPRegressor) -> list[tuple[str, str, str]]:
    """Returns (name, length scale, the same in its units) of everything that has one, in the model's order.

    What is made of several columns has one row. Turned inputs have no units of their own.
    """
    scaler, x = model.scaler_, model.posterior_.x
    lengths = model.hyperparameters_.length_scales.expand(x.shape[1]).tolist()
    constant = (x == x[0]).all(0).tolist()
    if scaler.angle:
        return [(f"turned input {j + 1}", f"{length:.6g}", "–") for j, length in enumerate(lengths)]
    columns = replace(scaler.columns, names=tuple(feature_names(model)))
    rows = []
    for name, inputs, kind in columns.groups:
        length = lengths[inputs[0]]
        in_units = length * float(scaler.x_scale[inputs[0]])
        told = f"{length:.6g}", f"{in_units:.6g}" if kind is None else kind.in_units(in_units)
        rows.append((name, *(("constant", "–") if all(constant[j] for j in inputs) else told)))
    return rows


def inputs_for(model: GPRegressor, X: pd.DataFrame) -> Any:
    """Returns a table as a model takes it: with names, or without where it was fitted so."""
    return X if hasattr(model, "feature_names_in_") else X.to_numpy()


def answer(
    model: GPRegressor,
    X: pd.DataFrame,
    path: Path,
    rows: NDArray[np.intp] | range,
    *,
    std: bool = False,
    samples: int = 0,
) -> dict[str, FloatArray]:
    """Returns mean, and perhaps std and functions, of the rows in X, by column; raises where one is not finite.

    ``rows`` are their numbers in the table at ``path``, counted from 1.
    """
    inputs = inputs_for(model, X)
    made: dict[str, FloatArray] = {}
    if std:
        made["mean"], made["std"] = model.predict(inputs, return_std=True)
    else:
        made["mean"] = np.asarray(model.predict(inputs))
    if samples:
        functions = model.sample_y(inputs, samples)
        made |= {f"sample_{k + 1}": functions[:, k] for k in range(samples)}
    _check_finite(made, path, rows)
    return made


def _check_finite(made: Mapping[str, FloatArray], path: Path, rows: NDArray[np.intp] | range) -> None:
    for name, values in made.items():
        bad = ~np.isfinite(values)
        if bad.any():
            first = int(bad.argmax())
            more = f" and those of {int(bad.sum()) - 1} more rows are not either" if bad.sum() > 1 else ""
            raise NoAnswerError(
                f"the {name} predicted for row {rows[first]} of {path} is not a finite number ({values[first]}){more}: "
                "no predictions are given; look for codes of missing values in that row, or fit again with --dtype "
                "float64"
            )


class FarInputs:
    """Looks for cells so far outside of what a model was trained on that they may be codes for missing values.

    Such a value (−9999, 1e20, 9.97e36) is a number like any other to a model, which answers with its prior there.
    """

    def __init__(self, model: GPRegressor) -> None:
        self._model, self._scaler = model, model.scaler_
        x = self._scaler.turn(model.posterior_.x.double().cpu().numpy(), back=True)
        self._low, self._high, spread = x.min(0), x.max(0), x.std(0)
        self._reach = FAR * np.where(spread > 0, spread, 1.0)  # a constant column has units of its own
        back = f"go back to the prior, with mean {self._scaler.y_mean:g}"
        self._there = back if model.posterior_.trend is None else "are those of the trend alone"
        self._first = ""
        self._rows = 0

    def look(self, X: pd.DataFrame, path: Path, rows: NDArray[np.intp] | range) -> None:
        """Looks at the rows in X, which have these numbers in their table, counted from 1."""
        with cells_of(path, rows):
            numbers = check_inputs(self._model, inputs_for(self._model, X))
        check_cells(self._scaler.columns, numbers, path, rows)  # before a prediction counts rows by chunks
        z = self._scaler.turn(self._scaler.x(numbers), back=True)
        far = (z < self._low - self._reach) | (z > self._high + self._reach)
        if not far.any():
            return
        if not self._rows:
            row, column = divmod(int(far.argmax()), far.shape[1])
            column = self._scaler.columns.sources[column]
            given = X.iloc[row, column]
            cell = f"{given if isinstance(given, str) else format(given, 'g')} in row {rows[row]}"
            self._first = f"column {X.columns[column]!r} of {path} is {cell}"
        self._rows += int(far.any(1).sum())

    @property
    def warning(self) -> str:
        """The warning about the rows that were looked at; "" where there is none."""
        if not self._rows:
            return ""
        more = f" ({self._rows} rows have such cells)" if self._rows > 1 else ""
        return (
            f"{self._first}, more than {FAR:,.0f} standard deviations beyond all rows of the training{more}: is it a "
            f"code for a missing value? That far out predictions {self._there}"
        )
