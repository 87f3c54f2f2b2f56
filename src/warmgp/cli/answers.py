"""What the command line predicts, and two checks: that every answer is a finite number, and that inputs make sense."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.cli.columns import UsageError
from warmgp.cli.kinds import cells_of, check_cells
from warmgp.data.arrays import check_inputs
from warmgp.estimator.in_units import length_scales_of
from warmgp.estimator.intervals import check_coverage, check_levels, ends_of, normal_quantiles
from warmgp.estimator.regressor import GPRegressor

FloatArray = NDArray[np.float64]

NONE: Mapping[str, float] = {}
"""Stands for no quantiles."""

FAR = 1000.0
"""The distance beyond the range of a training column, in its standard deviations, at which a value is pointed out."""


class NoAnswerError(RuntimeError):
    """Says that a prediction is not a finite number."""


def length_scales(model: GPRegressor) -> list[tuple[str, str, str]]:
    """Returns (name, length scale, the same in its units) of everything that has one, in the model's order.

    What is made of several columns has one row. Turned inputs have no units of their own.
    """
    if model.scaler_.angle:
        lengths = model.hyperparameters_.length_scales.tolist()
        return [(f"turned input {j + 1}", f"{length:.6g}", "–") for j, length in enumerate(lengths)]
    rows = []
    for name, length, in_units, kind in length_scales_of(model):
        told = ("constant", "–") if math.isnan(length) else (f"{length:.6g}", f"{in_units:.6g}")
        rows.append((name, told[0], told[1] if kind is None or math.isnan(length) else f"{told[1]} {kind.unit}"))
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
    quantiles: Mapping[str, float] = NONE,
) -> dict[str, FloatArray]:
    """Returns mean, and perhaps std, quantiles and functions, of the rows in X, (m,) each, or (m, q) of several
    targets; raises where one is not finite.

    ``rows`` are their numbers in the table at ``path``, counted from 1. ``quantiles`` are levels by their columns.
    """
    inputs = inputs_for(model, X)
    made: dict[str, FloatArray] = {}
    if std or quantiles:
        made["mean"], spread = model.predict(inputs, return_std=True)
        made |= ({"std": spread} if std else {}) | by_level(made["mean"], spread, quantiles)
    else:
        made["mean"] = np.asarray(model.predict(inputs))
    if samples:
        functions = model.sample_y(inputs, samples)
        made |= {f"sample_{k + 1}": functions[..., k] for k in range(samples)}
    _check_finite(made, path, rows)
    return made


def by_level(mean: FloatArray, std: FloatArray, quantiles: Mapping[str, float]) -> dict[str, FloatArray]:
    """Returns quantiles by their columns, (m,) or (m, q) each, from means and standard deviations of that shape."""
    found = normal_quantiles(mean, std, list(quantiles.values()))
    return {name: found[..., k] for k, name in enumerate(quantiles)}


def levels_asked(interval: float | None, quantiles: str | None) -> dict[str, float]:
    """Returns the levels that --interval 0.9 and --quantiles 0.05,0.5 ask for, by their columns: lower_90, upper_90,
    q0.05, q0.5."""
    asked: dict[str, float] = {}
    if interval is not None:
        lower, upper = ends_of(_checked(check_coverage, interval, "--interval"))
        asked = {f"lower_{100 * interval:.10g}": lower, f"upper_{100 * interval:.10g}": upper}
    for text in (quantiles or "").split(",") if quantiles is not None else []:
        try:
            level = float(text)
        except ValueError:
            raise UsageError(
                f"--quantiles must be numbers between 0 and 1 with commas between, such as 0.05,0.5,0.95, got "
                f"{quantiles!r}"
            ) from None
        asked[f"q{level:.10g}"] = float(_checked(check_levels, level, "--quantiles")[0])
    return asked


def _checked(check: Callable[[Any, str], Any], value: float, option: str) -> Any:
    """Returns what a check of a parameter does, whose error names the option."""
    try:
        return check(value, option)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_finite(made: Mapping[str, FloatArray], path: Path, rows: NDArray[np.intp] | range) -> None:
    for name, values in made.items():
        bad = ~np.isfinite(values)
        if bad.any():
            bad = np.asarray(bad.reshape(len(bad), -1).any(1))
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
        means = [f"{mean:g}" for mean in np.atleast_1d(self._scaler.y_mean)]
        back = f"go back to the prior, with mean {', '.join(means)}"
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
