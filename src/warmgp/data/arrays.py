"""The border to users' arrays: numpy in, numpy out; tensor in, tensor out on its device; what is no number, refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d, validate_data

from warmgp.data.input_map import InputMap
from warmgp.data.named_grids import is_named
from warmgp.data.reading import column_names, is_frame, known_columns, read_columns, text_problem

FloatArray = NDArray[np.float64]

NO_NUMBERS = {"c": "Complex data", "M": "Dates", "m": "Time spans"}
"""Kinds of numpy dtypes that convert to float64 and lose their meaning on the way."""


def to_numpy(values: Any) -> Any:
    """Returns a tensor as a numpy array, whatever its device; anything else as it came.

    Raises a ValueError for a tensor that requires a gradient while gradients are recorded: it would be lost unnoticed.
    """
    if isinstance(values, torch.Tensor):
        if values.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "a tensor that requires a gradient came where none is given back. predict and sample_y give one in X, "
                "warmgp.botorch.WarmModel joint predictions of a few points with one; elsewhere pass the tensor's "
                "detach()"
            )
        return values.detach().cpu().numpy()
    return values


def like(values: Any, result: np.ndarray) -> Any:
    """Returns the result as what ``values`` are: a tensor of their device and floating dtype, or a numpy array."""
    if isinstance(values, torch.Tensor):
        dtype = values.dtype if values.dtype.is_floating_point else torch.float64
        return torch.as_tensor(result).to(device=values.device, dtype=dtype)
    return result


def check_inputs(estimator: Any, X: Any, *, reset: bool = False, least: int = 1, name: str = "X") -> FloatArray:
    """Returns inputs as a finite float64 array of (n, d), in one memory layout: the same numbers give the same bits.

    Parameters
    ----------
    estimator : BaseEstimator
        Its ``n_features_in_`` and ``feature_names_in_`` are set with ``reset``, and held against X without.
    X : array, tensor or data frame
    least : int
        The least number of rows.
    name : str
        The name of X in an error.
    """
    if is_named(X):
        raise ValueError(f"{name} is a grid of xarray, for predict and predict_blocks: give rows of numbers")
    X, fills = to_numpy(X), getattr(estimator, "missing", "error") == "mean"
    if fills:
        X = _unmasked(X)
    _check_mask(name, X)
    X, columns = read_columns(estimator, X, learn=reset, name=name)
    for column, dtype in _dtypes(X):
        _check_kind(f"{name}{column}", dtype, column.strip(", ").removeprefix("column "))
    try:
        inputs = validate_data(
            estimator, X, reset=reset, dtype=np.float64, order="C", ensure_min_samples=least, ensure_all_finite=False
        )
    except (ValueError, TypeError) as error:
        problem = text_problem(X)
        if problem is None:
            if name == "X":
                raise
            raise type(error)(f"{name}: {error}") from error
        raise type(error)(f"{name}{problem[0]} ({error}): {problem[1]}") from error
    inputs, names = np.asarray(inputs), column_names(X, inputs.shape[1])
    if reset:
        columns = columns or InputMap.of(getattr(estimator, "columns", None), names)
        check_finite(name, inputs, names, range(len(names)) if fills else (), _OR_FILL)
        estimator.columns_ = columns.filled(inputs) if fills else columns
    else:
        check_finite(name, inputs, names, known_columns(estimator).with_gaps, _NO_GAPS if fills else "")
    return inputs


def all_finite(predicted: FloatArray) -> FloatArray:
    """Returns the predictions, (m, …); raises where one is not a finite number."""
    bad = ~np.isfinite(predicted)
    if bad.any():
        raise FloatingPointError(
            f"the prediction of row {int(np.argwhere(bad)[0][0])}, counted from 0, is not a finite number: its inputs "
            "or the units of y are out of the range of floating point, rescale them"
        )
    return predicted


EXACT = 2**53
"""The size of integers up to which float64 holds each of them."""


def integer_rest(X: Any) -> FloatArray | None:
    """Returns what float64 cannot hold of large integers, X − float64(X), (n, d); None where it holds all.

    Nanoseconds since 1970 are about 2⁶⁰, where neighbouring float64 numbers are 256 ns apart.
    """
    X = to_numpy(X)
    if is_frame(X):
        columns = [np.asarray(X[name]) for name in X.columns]
    else:
        table = np.asarray(X)
        columns = list(table.T) if table.ndim == 2 and table.dtype.kind in "iu" else []
    rest: FloatArray | None = None
    for j, column in enumerate(columns):
        if column.dtype.kind not in "iu" or not len(column) or -EXACT <= column.min() <= column.max() <= EXACT:
            continue
        if rest is None:
            rest = np.zeros((len(column), len(columns)))
        rest[:, j] = _rest(column)
    return rest


def _rest(column: NDArray[Any]) -> FloatArray:
    """Returns integers less their float64 values, exactly, (n,)."""
    held = column.astype(np.float64)
    if column.dtype == np.int64 and np.abs(held).max() < 2.0**63:
        return (column - held.astype(np.int64)).astype(np.float64)
    return np.array([int(whole) - int(near) for whole, near in zip(column, held, strict=True)], dtype=np.float64)


def check_targets(
    y: Any,
    n: int,
    name: str = "y",
    inputs: str = "X",
    *,
    q: int | None = 1,
    may_lack: bool = False,
    known: Sequence[str] = (),
) -> FloatArray:
    """Returns targets as a finite float64 array of (n,); takes one column of (n, 1) with scikit-learn's warning.

    ``name`` and ``inputs`` are the names of y and X in an error. ``q`` is the number of targets, None for any: several
    are (n, q), of which single values are NaN where ``may_lack`` says that they may be missing. ``known`` are the names
    of a model's several targets: the columns of a table have to be these, in the same order.
    """
    if y is None:
        raise ValueError(f"GPRegressor requires {name} to be passed, but the target {name} is None")
    y = to_numpy(y)
    _check_mask(name, y)
    try:
        y = y if hasattr(y, "shape") else np.asarray(y)
    except ValueError as error:
        raise ValueError(f"{name} must be one column of shape ({n},): {error}") from error
    shape, names = tuple(y.shape), column_names(y, y.shape[1]) if len(y.shape) == 2 else ()
    for column, dtype in _dtypes(y):
        _check_kind(f"{name}{column}", dtype)
    several = len(shape) == 2 and shape[1] > 1
    if len(shape) > 2 or shape[1:] == (0,) or (q is not None and (shape[1] if several else 1) != q):
        one = f"one column of shape ({n},)"
        wanted = {None: f"{one}, or ({n}, q) for q targets", 1: one}.get(q, f"the model's {q} targets, ({n}, {q})")
        raise ValueError(f"{name} must be {wanted}, got shape {shape}")
    if several and is_frame(y):
        _check_names(name, target_names(y, np.empty(shape)), known)
    targets = np.asarray(y) if several else column_or_1d(y, warn=True)
    if len(targets) != n:
        raise ValueError(
            f"inconsistent numbers of rows: {inputs} has {n} and {name} has {len(targets)}: give one target for each "
            f"row"
        )
    if targets.dtype == object:  # of pandas, whose missing values may be NA
        targets = np.where(pd.isna(targets), np.nan, targets)
    try:
        values = np.ascontiguousarray(targets, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not numbers ({error}): {_TO_NUMBERS}") from error
    lack = range(values.shape[1]) if several and may_lack else ()
    check_finite(name, values, names if several else None, lack)
    return values


def target_names(y: Any, targets: FloatArray) -> tuple[str, ...]:
    """Returns the names of several targets, checked from y: those of the columns of a table, or y0, y1, …; none for one
    target."""
    names = column_names(y, targets.shape[1]) if targets.ndim == 2 else ()
    return tuple(name if isinstance(name, str) else f"y{name}" for name in names)


def target_name(y: Any) -> str | None:
    """Returns the name of one target: that of a series, or of the one column of a table; None where it has none."""
    name = y.columns[0] if is_frame(y) and len(y.columns) == 1 else getattr(y, "name", None)
    return name if isinstance(name, str) else None


def _check_names(name: str, given: tuple[str, ...], known: Sequence[str]) -> None:
    """Raises where the columns of y are not the targets that a model knows, in their order; any will do where it was
    fitted to an array."""
    known = tuple(known)
    if known and given != known and known != tuple(f"y{j}" for j in range(len(known))):
        raise ValueError(
            f"{name} has the columns {', '.join(map(repr, given))}, and the model was fitted to "
            f"{', '.join(map(repr, known))}: give these, in the same order"
        )


def check_finite(
    name: str, values: FloatArray, columns: Any = None, may_lack: Sequence[int] = (), remedy: str = ""
) -> None:
    """Raises where a cell of an array of (n,) or (n, d) is NaN or infinite; names the first of them.

    ``columns`` are the names of the columns; by default their numbers. NaN is allowed in those of the numbers
    ``may_lack``. ``remedy`` is what helps for NaN, beyond other data.
    """
    bad = ~np.isfinite(values)
    if len(may_lack):
        bad[:, list(may_lack)] &= ~np.isnan(values[:, list(may_lack)])
    if not bad.any():
        return
    first = np.unravel_index(int(bad.argmax()), values.shape)
    where = f"row {first[0]}"
    if values.ndim > 1:
        where += f", column {list(range(values.shape[1]) if columns is None else columns)[first[1]]!r}"
    what = "NaN" if np.isnan(values[first]) else "infinity"
    more = f" (and in {int(bad.sum()) - 1} more cells)" if bad.sum() > 1 else ""
    end = remedy if what == "NaN" else ""
    raise ValueError(f"{name} contains {what} in {where}, counted from 0{more}: fill in or leave out such rows{end}")


def check_validation(estimator: Any, validation: Any, known: Sequence[str] = ()) -> tuple[FloatArray, FloatArray]:
    """Returns held-out inputs and targets, of several by the names ``known``, checked against what the estimator was
    given to fit."""
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise ValueError(f"validation must be a pair (X, y) of held-out rows, got {type(validation).__name__}")
    X = check_inputs(estimator, validation[0], name="validation X")
    return X, check_targets(validation[1], len(X), "validation y", "validation X", q=max(1, len(known)), known=known)


_TO_NUMBERS = "turn it into numbers or leave it out"
_OR_FILL = ', or let missing="mean" fill them in'
_NO_GAPS = ". No row of the training lacks that column: the model has not learned what a missing value means there"


def _check_kind(name: str, dtype: Any, column: str = "") -> None:
    """Raises for a dtype that would lose its meaning as numbers; ``column`` is how ``columns=`` would name it."""
    kind = NO_NUMBERS.get(getattr(dtype, "kind", ""))
    if hasattr(dtype, "is_temporal") and dtype.is_temporal():  # polars
        kind = "Dates"
    if kind is not None:
        say = f', or say what it is: columns={{{column}: "date"}}' if kind == "Dates" and column else ""
        raise ValueError(f"{kind} not supported: {name} has dtype {dtype}: {_TO_NUMBERS}{say}")


def _check_mask(name: str, values: Any) -> None:
    """Raises for a masked array with masked cells, or a list of such: numpy would go on with what is under the mask."""
    rows = values if isinstance(values, list | tuple) else [values]
    if not any(isinstance(row, np.ma.MaskedArray) for row in rows):
        return
    masks = [np.ma.getmaskarray(row) for row in rows]
    mask = masks[0] if rows[0] is values else np.concatenate([np.atleast_2d(part) for part in masks])
    if mask.any():
        where = ", column ".join(map(str, np.argwhere(mask)[0][:2]))
        more = f" (and {int(mask.sum()) - 1} more)" if mask.sum() > 1 else ""
        raise ValueError(
            f"{name} is masked in row {where}, counted from 0{more}: a masked value is a missing one, fill in or leave "
            f"out such rows"
        )


def _unmasked(values: Any) -> Any:
    """Returns a masked array, or a list of such, with NaN under the mask; anything else as it came."""
    if isinstance(values, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(values), np.nan, np.ma.getdata(values))
    if isinstance(values, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in values):
        return [_unmasked(row) for row in values]
    return values


def _dtypes(X: Any) -> list[tuple[str, Any]]:
    """Returns (which column, dtype) of each column of a data frame; one pair for a whole array."""
    if is_frame(X):
        return [(f", column {column!r},", dtype) for column, dtype in zip(X.columns, X.dtypes, strict=False)]
    return [("", getattr(X, "dtype", None))]
