"""What training found, in the user's units: how far each column matters, how large the signal is and how large the
noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgp.data.column_kinds import ColumnKind
from warmgp.data.scaling import Standardizer
from warmgp.estimator.anisotropy import anisotropy_of
from warmgp.estimator.maps import feature_names
from warmgp.hyperparameters import Hyperparameters
from warmgp.posterior import Posterior

FloatArray = NDArray[np.float64]


class InUnits:
    """Tells the hyperparameters of a fitted estimator in the units of X and y."""

    posterior_: Posterior
    scaler_: Standardizer
    hyperparameters_: Hyperparameters

    @property
    def length_scales_(self) -> FloatArray:
        """The distance over which the function changes along each of ``columns_.things``, in its own units, (things,).

        A thing is a column, or what columns were said to be: a date has days, a category steps between two values, a
        place on the globe kilometres, where its first column stands. A short one, beside the spread of its column,
        marks a column that matters. NaN stands for a column that was constant. With
        ``anisotropy="rotated"`` there are two: along the direction of the longest range, and across (``anisotropy_``
        has the angle).
        """
        turned = anisotropy_of(self.scaler_, self.hyperparameters_)
        if turned is not None:
            return np.array([turned.along, turned.across])
        return np.array([length for _, _, length, _ in length_scales_of(self)])

    @property
    def signal_std_(self) -> float:
        """How far the function goes up and down about its mean, or about its trend: a standard deviation, in units of
        y."""
        return float(self.hyperparameters_.signal_scale) * self.scaler_.y_scale

    @property
    def noise_std_(self) -> float:
        """The scatter of observations about the function: a standard deviation, in units of y."""
        return float(self.hyperparameters_.noise_scale) * self.scaler_.y_scale


def length_scales_of(model: Any) -> list[tuple[str, float, float, ColumnKind | None]]:
    """Returns (name, standardised length scale, the same in units of X, kind or None) of each column or place of a
    fitted model, NaN where it was constant. Turned inputs have no column of their own."""
    scaler, x = model.scaler_, model.posterior_.x
    lengths = model.hyperparameters_.length_scales.expand(x.shape[1]).tolist()
    constant = (x == x[0]).all(0).tolist()
    found = []
    for name, inputs, kind in replace(scaler.columns, names=tuple(feature_names(model))).groups:
        first = inputs[0]
        length = float("nan") if all(constant[j] for j in inputs) else lengths[first]
        unit = float(scaler.x_scale[first]) * (1.0 if kind is None else kind.unit_length)
        found.append((name, length, length * unit, kind))
    return found
