"""A fit that outliers do not rule: what ``GPRegressor(robust=True)`` does before it trains, and says of it afterwards.

Rows that do not belong to the rest get less weight, or none, and then all is as with weights that a user gives: the
unit of y, plans, training, checkpoints and files.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from warmgp.checks import warn_user
from warmgp.data.scaling import ROUNDING
from warmgp.estimator.parameters import floor_of
from warmgp.estimator.prepare import training_data
from warmgp.estimator.row_weights import row_weights
from warmgp.kernels import get_kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.planning.devices import resolve_device
from warmgp.planning.request import is_auto
from warmgp.training.kernel_choice import USUAL
from warmgp.training.limits import Limits
from warmgp.training.outlying import BEYOND, TOLERATED, Rows, outlying_weights

FloatArray = NDArray[np.float64]

LEAST_ROWS = 10
"""The rows below which none is held to be out."""

NAMED = 5
"""The rows that a report names."""

MANY = 0.15
"""The share of rows without weight from which on a fit warns: so many are hardly mistakes."""


def robust_noise(
    model: Any, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None, variance: ArrayLike | None
) -> tuple[ArrayLike | None, ArrayLike | None]:
    """Returns weights and known variances of rows with which an estimator that is robust trains; the given ones
    otherwise. Sets ``robust_weights_`` on it, (n,), by which weights were multiplied and variances divided.

    Input that is no good is refused as in any fit; what is warned of is warned of when the fit goes on.
    """
    model.robust_weights_ = None
    if not model.robust:
        return weight, variance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = training_data(model, X, y, None, weight, variance)
    device = resolve_device(model.device)

    def tensor(values: FloatArray) -> Tensor:
        return torch.as_tensor(values).to(device)

    targets, said = data.as_given["y"], data.said  # in their own units: beside 1e15 a standard deviation has no digits
    noise = None
    if said.given:
        shares = np.ones_like(targets) if said.weights is None else 1.0 / said.weights
        noise = RowNoise(tensor(shares), tensor(data.as_given.get("noise_variance", np.zeros_like(targets))))
    trend = None if data.trend is None else tensor(data.trend.basis.at(torch.as_tensor(data.x)).numpy())
    rows = Rows(tensor(data.x), tensor(targets - np.median(targets)), noise, trend)
    tied = data.scaler.columns.tied if model.ard else ()
    limits = Limits(floor_of(model.noise_floor), tied=tied, learned=model.learn_noise)
    kernel = get_kernel(USUAL if is_auto(model.kernel) else model.kernel)
    found = np.ones(len(targets))
    if len(targets) >= LEAST_ROWS:
        lengths = data.x.shape[1] if model.ard else 1
        found = outlying_weights(rows, kernel, lengths, limits, torch.Generator().manual_seed(0))[0]
        found = np.where(found > 0, np.maximum(found.round(2), 0.01), 0.0)  # no more digits than another machine finds
    left = targets[found > 0]
    if len(left) < 2 or np.ptp(left) <= ROUNDING * np.spacing(np.abs(left).max()):
        found = np.ones(len(targets))  # all but a few are the same: what is rare is all there is to learn
    return _combined(model, weight, variance, found)


def _combined(
    model: Any, weight: ArrayLike | None, variance: ArrayLike | None, found: FloatArray
) -> tuple[ArrayLike | None, ArrayLike | None]:
    """Returns what is given times what was found for the rows that are used, and sets the latter on the estimator."""
    one = next((values for values in (weight, variance) if values is not None), None)
    n = len(found) if one is None else len(np.asarray(one))
    used = row_weights(weight, variance, n)[1]
    weights = np.ones(n)
    weights[slice(None) if used is None else used] = found
    model.robust_weights_ = weights
    if (out := float(np.mean(found == 0))) > MANY:
        warn_user(
            f"robust=True leaves out {out:.0%} of the rows, whose targets the others do not predict: so many are "
            "hardly mistakes, and predictions are of the others alone. Look at robust_weights_, or use robust=False"
        )
    if (weights == 1).all():
        return weight, variance
    if variance is not None:
        with np.errstate(divide="ignore"):
            variance = np.where(weights > 0, np.asarray(variance, dtype=np.float64) / weights, np.inf)
    return weights if weight is None else np.asarray(weight, dtype=np.float64) * weights, variance


def set_aside(weights: FloatArray | None) -> tuple[str, ...]:
    """Says which rows a robust fit has left out, or given less weight, (n,); nothing where it was not robust."""
    if weights is None:
        return ()
    out, less = np.flatnonzero(weights == 0), int(((weights > 0) & (weights < 1)).sum())
    if not len(out) and not less:
        return ("every row counted in full: no target is an outlier",)
    listed = ", ".join(map(str, out[:NAMED])) + (f" and {len(out) - NAMED:,} more" if len(out) > NAMED else "")
    parts = []
    if len(out):
        parts.append(
            f"{len(out):,} of {len(weights):,} rows were left out, whose targets are more than {TOLERATED * BEYOND:g} "
            f"predicted standard deviations off (row{'s' * (len(out) > 1)} {listed}, counted from 0)"
        )
    if less:
        parts.append(f"{less:,} more than {TOLERATED:g} off had less weight")
    return (" and ".join(parts) + ": robust_weights_ has them all",)
