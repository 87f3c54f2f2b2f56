"""The units of hyperparameters: those of a fit carry them, and those that are given to another are converted."""

from __future__ import annotations

from typing import Any

import numpy as np

from warmgp.data.scaling import Standardizer
from warmgp.hyperparameters import Hyperparameters, Units


def units_of(scaler: Standardizer) -> Units | None:
    """Returns what a standardised unit is of the target, if it is one, and of each input; None where inputs are turned,
    so that none is of one input alone."""
    if scaler.angle:
        return None
    return Units(None if np.ndim(scaler.y_scale) else scaler.y_scale, tuple(scaler.x_scale.tolist()))


def known(theta: Hyperparameters, scaler: Standardizer) -> Hyperparameters:
    """Returns hyperparameters that were found on data so scaled, with their units where these can be told."""
    units = units_of(scaler)
    return theta if units is None else theta.known_in(units)


def given_start(init: Any, scaler: Standardizer, lengths: int) -> Hyperparameters | None:
    """Returns hyperparameters that were given as ``init``, in the units of data so scaled; None where none were.

    Those of another model know their units, which are standardised ones of its own data. ``lengths`` is the number of
    length scales: one for each input, or 1.
    """
    if not isinstance(init, Hyperparameters):
        return None
    units = units_of(scaler)
    return init if units is None else init.in_units(units, shared=lengths == 1)
