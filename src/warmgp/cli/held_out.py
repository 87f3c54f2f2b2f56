"""Rows that the command line holds out, and how well a model predicts them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warmgp.cli.columns import UsageError

FloatArray = NDArray[np.float64]


def split(n: int, fraction: float | None, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns (training rows, held-out rows) in the order of the table; without a fraction none are held out."""
    if fraction is None:
        return np.arange(n), np.arange(0)
    held = round(fraction * n)
    if held < 1 or n - held < 2:
        raise UsageError(f"--test-fraction {fraction:g} of {n} rows leaves {n - held} to train on and {held} to test")
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[held:]), np.sort(order[:held])


def metrics(y: FloatArray, mean: FloatArray, std: FloatArray) -> dict[str, str]:
    """Returns RMSE, R², mean log predictive density and coverage as text, in the units of y."""
    error = y - mean
    spread = float(np.sum((y - y.mean()) ** 2))
    density = -0.5 * ((error / std) ** 2 + np.log(2 * np.pi * std**2))
    return {
        "RMSE": f"{np.sqrt(np.mean(error**2)):.6g}",
        "R²": f"{1 - float(np.sum(error**2)) / spread:.6g}"
        if spread > 0
        else "undefined: the true values are constant",
        "mean log predictive density": f"{density.mean():.6g}",
        "95% coverage": f"{np.mean(np.abs(error) <= 1.959964 * std):.1%}",
    }
