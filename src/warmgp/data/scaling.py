"""The standardisation of inputs and targets: from the user's units to numbers of order one, and back.

Everything behind the public interface works in standardised units: each input column and the target have mean zero and
standard deviation one over the training rows. Length scales, the noise and the signal are then all of order one, which
is what the default hyperparameters, learning rates and noise floor assume. A :class:`Standardizer` is fitted on the
training rows once, is applied to every later input, and brings predictions back to the user's units::

    scaling = Standardizer.fit(X_train, y_train)
    x, y = scaling.x(X_train), scaling.y(y_train)  # train in these units
    mean, std = predict(scaling.x(X_new))
    mean, std = scaling.y_back(mean), scaling.y_scale_back(std)  # answer in the user's

All arithmetic is float64 whatever comes in: subtracting a large mean in float32 would lose the digits that carry the
signal (a year column, a Unix time stamp). Cast to the working precision afterwards. The difference of two float64
numbers of the same size is exact, so an offset costs nothing as long as the numbers that come in hold the digits; what
float64 cannot hold of large integers (nanoseconds since 1970) is added after the subtraction, as ``rest``.

Columns that are more than plain numbers become inputs first (:mod:`warmgp.data.input_map`), and inputs that are one
thing get one scale. Two standardised inputs may be turned by an angle at the end: then length scales are ranges along
other directions than the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warmgp.checks import warn_user
from warmgp.data.arrays import check_finite
from warmgp.data.input_map import InputMap

__all__ = ["Standardizer", "check_varies", "check_vary", "warn_of_units"]

FloatArray = NDArray[np.float64]

FAR = 20.0
"""The factor, up or down, by which data that are used as they are may differ from standardised without a warning."""

ROUNDING = 4.0
"""The most spacings of float64 numbers in a standard deviation that is rounding, not variation."""
FEW = 1000.0
"""The spacings of float64 numbers below which a standard deviation has lost digits that may matter."""

PLAIN = InputMap(())
"""Stands for columns that are inputs as they are, as many as there are."""


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Holds the maps between the user's units and standardised units: affine ones, for inputs after an InputMap.

    Standard deviations use ``ddof = 0``, as in the paper's tables.

    Parameters
    ----------
    x_mean, x_scale : ndarray of shape (d,)
        What is subtracted from each input and what it is then divided by; float64, scales positive.
    y_mean, y_scale : float, or ndarray of shape (q,)
        The same for the target, or for each of several targets.
    columns : InputMap, optional
        From the user's columns to the inputs; by default they are the same.
    angle : float
        Degrees by which two standardised inputs are turned: the first is then the distance along the direction at this
        angle from the first axis, towards the second. 0 for none.
    """

    x_mean: FloatArray
    x_scale: FloatArray
    y_mean: Any
    y_scale: Any
    columns: InputMap = PLAIN
    angle: float = 0.0

    def __post_init__(self) -> None:
        """Brings the fields to float64 and refuses what could not be undone (a scale of zero, a shape mismatch)."""
        object.__setattr__(self, "x_mean", np.array(self.x_mean, dtype=np.float64))
        object.__setattr__(self, "x_scale", np.array(self.x_scale, dtype=np.float64))
        for name in ("y_mean", "y_scale"):
            given = np.array(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, given if given.ndim else float(given))
        if self.x_mean.ndim != 1 or self.x_mean.shape != self.x_scale.shape:
            raise ValueError(
                f"x_mean and x_scale must be one-dimensional and of one length; "
                f"got shapes {self.x_mean.shape} and {self.x_scale.shape}"
            )
        if not (np.all(self.x_scale > 0) and np.all(self.y_scale > 0)):
            raise ValueError("x_scale and y_scale must be positive; a constant column takes scale 1, not 0")
        if self.columns is PLAIN:
            object.__setattr__(self, "columns", InputMap.plain(self.x_mean.shape[0]))
        if len(self.columns.sources) != self.x_mean.shape[0]:
            raise ValueError(
                f"columns make {len(self.columns.sources)} inputs, but x_mean has {self.x_mean.shape[0]} entries"
            )
        if self.angle and self.x_mean.shape[0] != 2:
            raise ValueError(f"two inputs can be turned by an angle, got {self.x_mean.shape[0]}")

    @classmethod
    def fit(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        rest: FloatArray | None = None,
        columns: InputMap | None = None,
        weights: FloatArray | None = None,
        y_weights: FloatArray | None = None,
    ) -> Standardizer:
        """Makes the maps from the means and standard deviations of training rows.

        A constant input gets scale 1, or a larger one beside which rounding comes to nothing: it carries no
        information, and dividing by zero, or by what rounding left of zero, would turn it into noise that does. Inputs
        that are one thing get one scale, so that a sphere stays a sphere.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Training inputs.
        y : array-like of shape (n,) or (n, q)
            Training targets; of several, values may be missing (NaN).
        rest : ndarray of shape (n, d), optional
            What float64 cannot hold of the inputs: they are X + rest.
        columns : InputMap, optional
            What the columns of X are; plain numbers by default.
        weights, y_weights : ndarray of shape (n,), optional
            Weights of the rows of X, and of y, for means and standard deviations.

        Returns
        -------
        Standardizer

        Warns
        -----
        UserWarning
            If a column varies so little about a large offset that float64 has few numbers for it.

        Raises
        ------
        ValueError
            If the shapes do not fit together, a value is not finite or too large to square, or ``y`` is constant.
        """
        X = np.asarray(X, dtype=np.float64)
        y = np.asarray(y, dtype=np.float64)
        if X.ndim != 2:
            raise ValueError(f"X must have shape (n, d); got {X.shape}")
        if y.ndim not in (1, 2):
            raise ValueError(f"y must have shape (n,), or (n, q) for several targets; got {y.shape}")
        if X.shape[0] != y.shape[0]:
            raise ValueError(f"X and y must have the same number of rows; got {X.shape[0]} and {y.shape[0]}")
        if y.size == 0:
            raise ValueError("X and y have no rows; at least two training rows are needed")
        columns = InputMap.plain(X.shape[1]) if columns is None else columns
        check_finite("X", X, may_lack=columns.with_gaps)
        check_finite("y", y, may_lack=range(y.shape[1]) if y.ndim == 2 else ())
        check_vary(y)

        X, rest = columns.inputs(X), columns.rest(rest)
        with np.errstate(over="ignore", invalid="ignore"):
            moved = X - X[0] if rest is None else (X - X[0]) + rest  # exact where an offset is large
            middle, spread = _mean_and_std(moved, weights)
            x_mean, x_scale = X[0] + middle, columns.shared(spread)
            y_mean, y_scale = _scaling_of(y, y_weights)
        large = [f"column {columns.names[columns.sources[j]]!r} of X" for j in np.flatnonzero(~np.isfinite(x_scale))]
        if large or not np.isfinite(y_scale).all():
            raise ValueError(f"{', '.join(large) or 'y'} has values too large to standardise: divide by a constant")
        largest = np.abs(X).max(axis=0)
        exact = np.zeros(X.shape[1], dtype=bool) if rest is None else (rest != 0).any(axis=0)
        spacing = columns.largest(np.spacing(np.where(exact, np.abs(moved).max(axis=0), largest)))
        computed = {j for _, inputs, kind in columns.groups if kind is not None for j in inputs}
        for j in np.flatnonzero((x_scale > 0) & (x_scale < FEW * spacing)):
            if x_scale[j] <= ROUNDING * spacing[j] and (j in computed or len(np.unique(X[:, j])) <= 3):
                continue  # 0.3 and 0.1 + 0.2: one number, computed in two ways; a pole, from any longitude
            warn_user(
                f"column {columns.names[columns.sources[j]]!r} of X varies by {x_scale[j]:.3g} about {x_mean[j]:.10g}, "
                f"where numbers of float64 are {spacing[j]:.2g} apart: digits are lost. Subtract a constant before it "
                "becomes floating point, or pass integers"
            )
            break
        rounded = (x_scale > 0) & (x_scale <= ROUNDING * spacing)
        x_scale[rounded] = np.maximum(1.0, 2.0**30 * spacing[rounded])  # what rounding has left comes to nothing
        x_scale[x_scale == 0] = 1.0
        return cls(x_mean, x_scale, y_mean, y_scale, columns)

    @classmethod
    def identity(cls, d: int) -> Standardizer:
        """Makes the maps that change nothing, for data that are already in good units.

        Parameters
        ----------
        d : int
            Number of input columns.

        Returns
        -------
        Standardizer
        """
        return cls(np.zeros(d), np.ones(d), 0.0, 1.0)

    @classmethod
    def centring(cls, X: FloatArray, columns: InputMap | None = None) -> Standardizer:
        """Makes the maps that only move inputs, by X (n, columns of the user) and what these are, to mean zero.

        No distance changes, and float32 keeps the digits of inputs far from zero, such as times in seconds.
        """
        columns = InputMap.plain(X.shape[1]) if columns is None else columns
        x = columns.inputs(X)
        return cls(x[0] + (x - x[0]).mean(0), np.ones(x.shape[1]), 0.0, 1.0, columns)

    def of_target(self, which: int) -> Standardizer:
        """Returns the same maps for one of several targets, counted from 0."""
        return replace(self, y_mean=self.y_mean[which], y_scale=self.y_scale[which])

    def turned(self, angle: float) -> Standardizer:
        """Returns the same maps with the two inputs turned by an angle in degrees, in the place of any before."""
        return replace(self, angle=float(angle))

    def turn(self, z: FloatArray, back: bool = False) -> FloatArray:
        """Returns standardised inputs (m, 2) turned by the angle, or back: a copy; the same for any number of inputs
        where the angle is 0."""
        if not self.angle:
            return z
        phi = np.deg2rad(-self.angle if back else self.angle)
        c, s = np.cos(phi), np.sin(phi)
        return np.stack([c * z[:, 0] + s * z[:, 1], c * z[:, 1] - s * z[:, 0]], 1)

    def x(self, X: ArrayLike, rest: FloatArray | None = None, name: str = "X") -> FloatArray:
        """Standardises inputs.

        Parameters
        ----------
        X : array-like of shape (m, columns of the user)
            Inputs in the user's units.
        rest : ndarray of the same shape, optional
            What float64 cannot hold of them.
        name : str
            The name of X in an error.

        Returns
        -------
        ndarray of shape (m, d)
            A new float64 array. What is too far from the training rows for a float64 is infinite.
        """
        X, rest = self.columns.inputs(np.asarray(X, dtype=np.float64), name), self.columns.rest(rest)
        with np.errstate(over="ignore", invalid="ignore"):
            return self.turn(((X - self.x_mean) if rest is None else (X - self.x_mean) + rest) / self.x_scale)

    def y(self, y: ArrayLike) -> FloatArray:
        """Standardises targets of any shape.

        Parameters
        ----------
        y : array-like
            Targets in the user's units.

        Returns
        -------
        ndarray
            A new float64 array of the same shape.
        """
        return np.asarray((np.asarray(y, dtype=np.float64) - self.y_mean) / self.y_scale)

    def y_back(self, mean: ArrayLike) -> FloatArray:
        """Brings values of the target (means, samples), of any shape, back to the user's units.

        Parameters
        ----------
        mean : array-like
            Values in standardised units.

        Returns
        -------
        ndarray
            ``y_mean + y_scale * mean``, float64.
        """
        return np.asarray(self.y_mean + self.y_scale * np.asarray(mean, dtype=np.float64))

    def y_scale_back(self, std: ArrayLike) -> FloatArray:
        """Brings spreads of the target (standard deviations, errors), of any shape, back to the user's units.

        Differences are not shifted, only scaled; a variance needs the square of this.

        Parameters
        ----------
        std : array-like
            Standard deviations in standardised units.

        Returns
        -------
        ndarray
            ``y_scale * std``, float64.
        """
        return np.asarray(self.y_scale * np.asarray(std, dtype=np.float64))


def _scaling_of(y: FloatArray, weights: FloatArray | None) -> tuple[Any, Any]:
    """Returns mean and standard deviation of targets by the weights of rows: numbers for y (n,), else (q,) each, over
    the rows that a target has."""
    if y.ndim == 1:
        middle, spread = _mean_and_std(y - y[0], weights)
        return float(y[0] + middle), float(spread)
    found = []
    for column in y.T:
        there = ~np.isnan(column)
        found.append(_scaling_of(column[there], None if weights is None else weights[there]))
    return np.array([mean for mean, _ in found]), np.array([scale for _, scale in found])


def _mean_and_std(values: FloatArray, weights: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Returns mean and standard deviation over the rows of values, (n,) or (n, d), by their weights."""
    if weights is None:
        return values.mean(axis=0), values.std(axis=0)
    mean = np.average(values, axis=0, weights=weights)
    return mean, np.sqrt(np.average(np.square(values - mean), axis=0, weights=weights))


def check_vary(y: FloatArray, names: Sequence[str] = ()) -> None:
    """Raises where targets y (n,), or one of several (n, q), by its name, are constant or known in fewer than two
    rows."""
    if y.ndim == 1:
        return check_varies(y)
    for j, column in enumerate(y.T):
        what = f"the target {names[j]!r}" if names else f"column {j} of y"
        if (there := ~np.isnan(column)).sum() < 2:
            raise ValueError(f"{what} has {there.sum()} values, and at least two are needed: leave it out")
        check_varies(column[there], what, "leave it out, or check that the right column was passed")
    return None


def check_varies(y: FloatArray, what: str = "y", remedy: str = "check that the right column was passed as y") -> None:
    """Raises where targets y (n,) are constant, or vary by no more than rounding: there is nothing to learn.

    ``what`` is the name of y in the error, and ``remedy`` what it advises.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float((y - y[0]).std())
    if spread > ROUNDING * float(np.spacing(np.abs(y).max())) or np.isnan(spread):
        return  # or differences that overflow, which are too large to standardise
    if spread == 0.0 and np.ptp(y) > 0:
        raise ValueError(f"{what} has values too small for floating point: multiply by a constant")
    rounding = "" if np.ptp(y) == 0 else " but for rounding"
    raise ValueError(
        f"{what} is constant{rounding} ({y[0]:g} in all {y.size} rows), and there is nothing to learn: {remedy}"
    )


def warn_of_units(X: FloatArray, y: FloatArray, columns: InputMap | None = None) -> None:
    """Warns where data that are not to be standardised are far from it: training starts at mean 0 and scales of 1."""
    apart = []
    for j, target in enumerate(y.reshape(len(y), -1).T):
        mean, std = float(np.nanmean(target)), float(np.nanstd(target))
        name = "y" if y.ndim == 1 else f"column {j} of y"
        if abs(mean) > FAR * max(std, 1.0):
            apart.append(f"{name} has mean {mean:.3g}")
        if not 1 / FAR <= std <= FAR:
            apart.append(f"{name} has standard deviation {std:.3g}")
    columns = InputMap.plain(X.shape[1]) if columns is None else columns
    spread = columns.shared(columns.inputs(X).std(0))
    wide = np.flatnonzero((spread > 0) & ((spread > FAR) | (spread < 1 / FAR)))
    if len(wide):
        apart.append(
            f"column {columns.names[columns.sources[wide[0]]]!r} of X has standard deviation {spread[wide[0]]:.3g}"
        )
    if apart:
        warn_user(
            f"standardize=False, but {' and '.join(apart)}: training starts at mean 0 and scales of 1. Leave "
            "standardize=True, or give init=Hyperparameters(...) in the units of the data"
        )
