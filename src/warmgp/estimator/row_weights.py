"""What users say of the noise of each row, checked: weights, and variances of measurement errors that are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from warmgp.data.arrays import to_numpy
from warmgp.operators.row_noise import RowNoise

FloatArray = NDArray[np.float64]
Rows = NDArray[np.bool_] | NDArray[np.intp]


ROUNDS, CLOSE = 100, 1e-9
"""The most rounds in which the variance of targets and their weights are found, and the change that ends them."""


@dataclass(frozen=True)
class RowWeights:
    """Holds what is said of the noise of rows, of which none may be left out any more.

    Attributes
    ----------
    weights : ndarray, (n,), or None
        By which the variance σ² of the noise is divided; None where all are one.
    variances : ndarray, (n,), or None
        The known variances of measurement errors; None where there are none.
    """

    weights: FloatArray | None = None
    variances: FloatArray | None = None

    @property
    def given(self) -> dict[str, FloatArray]:
        """The arrays that were given, by the names of their arguments."""
        both = {"sample_weight": self.weights, "noise_variance": self.variances}
        return {name: values for name, values in both.items() if values is not None}

    def of_targets(self, y: FloatArray) -> FloatArray | None:
        """Returns the weights by which targets y, (n,), are centred and scaled; None where all are one.

        They are those of observations with the noise s²/w_i + e_i, for the variance s² of y by these very weights: rows
        whose known errors are far above all that varies say nothing about the size of that.
        """
        if self.variances is None:
            return self.weights
        shares = np.ones_like(y) if self.weights is None else 1.0 / self.weights
        y, weights = y - y[0], 1.0 / shares
        with np.errstate(over="ignore", invalid="ignore"):  # targets that are too large are refused later
            square = whole = float(np.var(y))
            for _ in range(ROUNDS):
                weights = 1.0 / (shares + self.variances / max(square, CLOSE * whole))
                mean = np.average(y, weights=weights)
                before, square = square, float(np.average(np.square(y - mean), weights=weights))
                if not abs(square - before) > CLOSE * before:
                    break
        return np.asarray(weights)

    def at(self, rows: Rows) -> RowWeights:
        """Returns that of some rows."""
        parts = (None if part is None else part[rows] for part in (self.weights, self.variances))
        return RowWeights(*parts)

    def in_units(self, scale: float) -> RowWeights:
        """Returns the same for targets that are divided by ``scale``."""
        return self if self.variances is None else replace(self, variances=self.variances / scale**2)

    @classmethod
    def of(cls, noise: RowNoise | None) -> RowWeights:
        """Returns what is said of rows whose noise is made of this."""
        if noise is None:
            return cls()
        weights, variances = 1.0 / noise.shares.cpu().numpy(), noise.known.cpu().numpy()
        return cls(weights if (weights != 1).any() else None, variances if variances.any() else None)

    def followed_by(self, other: RowWeights, counts: tuple[int, int]) -> RowWeights:
        """Returns what is said of these rows and of others after them, of which there are so many."""
        both = []
        for name, usual in (("weights", 1.0), ("variances", 0.0)):
            parts = [getattr(self, name), getattr(other, name)]
            filled = [np.full(n, usual) if part is None else part for part, n in zip(parts, counts, strict=True)]
            both.append(None if all(part is None for part in parts) else np.concatenate(filled))
        return RowWeights(*both)

    def row_noise(self, device: torch.device | str) -> RowNoise | None:
        """Returns what the noise of each row is made of, on that device; None where all rows have σ² alone."""
        if not self.given:
            return None
        one = next(iter(self.given.values()))
        shares = np.ones_like(one) if self.weights is None else 1.0 / self.weights
        known = np.zeros_like(one) if self.variances is None else self.variances
        return RowNoise(torch.as_tensor(shares), torch.as_tensor(known)).to(device)


def row_weights(
    sample_weight: ArrayLike | None, noise_variance: ArrayLike | None, n: int, least: int = 2
) -> tuple[RowWeights, NDArray[np.bool_] | None]:
    """Returns what is said of n rows, and which of them are used, (n,): None for all, else at least ``least``.

    A weight of zero and an infinite noise variance leave a row out. Raises a ValueError that names the argument and the
    row of anything else that is no weight, or no variance.
    """
    weights = None if sample_weight is None else _checked("sample_weight", sample_weight, n)
    variances = None if noise_variance is None else _checked("noise_variance", noise_variance, n, infinite=True)
    used = np.ones(n, dtype=bool)
    if weights is not None:
        used &= weights > 0
    if variances is not None:
        used &= np.isfinite(variances)
    said = RowWeights(weights, variances)
    if used.all():
        return said, None
    if used.sum() < least:
        names, needed = " and ".join(said.given), "at least two are" if least == 2 else "one is"
        raise ValueError(
            f"{names}: {used.sum()} of {n} rows are left to learn from, and {needed} needed: a row counts "
            f"where its weight is above zero and its noise variance finite"
        )
    left = said.at(used)
    if left.weights is not None and (left.weights == 1).all():  # they only said which rows are left out
        left = replace(left, weights=None)
    return left, used


REMEDIES = {
    "sample_weight": "a weight divides the variance of the noise, and 0 leaves the row out",
    "noise_variance": "it is the square of a standard error in units of y, and infinity leaves the row out",
}


def _checked(name: str, values: Any, n: int, *, infinite: bool = False) -> FloatArray:
    """Returns values as float64, (n,); raises where one is negative or NaN, or infinite where that has no meaning."""
    values = to_numpy(values)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not numbers ({error}): give one number for each row of X") from error
    if array.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one number for each row of X, got shape {array.shape}")
    wrong = {
        "NaN": np.isnan(array),
        "a negative number": array < 0,
        "infinity": np.isinf(array) & (not infinite),
    }
    for what, bad in wrong.items():
        if bad.any():
            row = int(bad.argmax())
            told = f"{what} ({array[row]:g})" if what == "a negative number" else what
            more = f" (and in {int(bad.sum()) - 1} more)" if bad.sum() > 1 else ""
            raise ValueError(f"{name} has {told} in row {row}, counted from 0{more}: {REMEDIES[name]}")
    return np.array(array)  # the user's own stays theirs
