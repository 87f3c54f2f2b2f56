"""A trend as users say it and read it: from ``trend=`` to terms and detrended targets, and back to coefficients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from warmgp.data.gaps import Gaps
from warmgp.data.input_map import InputMap
from warmgp.data.scaling import Standardizer, check_varies
from warmgp.trend import Basis, DependentTermError, Term, Trend, check_rich, terms_of

FloatArray = NDArray[np.float64]

LEAST_LEFT = 1e-6
"""The least share of the standard deviation of y that counts as left by a trend: below it is rounding."""


@dataclass(frozen=True)
class OrdinaryTrend:
    """Holds a trend by ordinary least squares, which is taken off the targets before training.

    Attributes
    ----------
    basis : Basis
    offset : ndarray, (p,), or (p, q) for several targets
        Its coefficients, in standardised units of y.
    asked : str or sequence
        The parameter ``trend`` as it was given.
    names : sequence of str
        The names of the inputs.
    """

    basis: Basis
    offset: FloatArray
    asked: str | Sequence[int | str]
    names: Sequence[str]

    @classmethod
    def fit(
        cls,
        terms: Sequence[Term],
        asked: str | Sequence[int | str],
        names: Sequence[str],
        x: FloatArray,
        y: FloatArray,
        weights: FloatArray | None = None,
    ) -> tuple[OrdinaryTrend, FloatArray]:
        """Returns the trend of y over inputs x, (n, d), both in standardised units, and what it leaves of y, (n,) or
        (n, q).

        Least squares are by the weights of rows, (n,), where there are some.
        """
        try:
            basis = Basis.fit(terms, torch.as_tensor(x))
        except DependentTermError as error:
            told = term_name(error.term, names)
            raise ValueError(
                f"trend={asked!r} has the term {told!r}, which is a combination of the others in all {len(x)} rows: "
                f"their coefficients cannot be told apart. Leave a column out of X, or give trend a list without it"
            ) from error
        columns = basis.at(torch.as_tensor(x)).numpy()
        if weights is None:
            offset = columns.T @ y / len(x)
        else:
            root = np.sqrt(weights)
            offset = np.linalg.lstsq(columns * root[:, None], (y.T * root).T, rcond=None)[0]
        return cls(basis, offset, asked, names), y - columns @ offset

    def refitted(
        self, x: FloatArray, residual: FloatArray, rows: NDArray[np.intp], weights: FloatArray | None = None
    ) -> tuple[OrdinaryTrend, FloatArray]:
        """Returns the same trend over some rows of x, and what it leaves there of the targets."""
        whole = residual[rows] + self.basis.at(torch.as_tensor(x[rows])).numpy() @ self.offset
        return OrdinaryTrend.fit(self.basis.terms, self.asked, self.names, x[rows], whole, weights)

    def turned(self, angle: float) -> OrdinaryTrend:
        """Returns the same trend, with the same coefficients, over inputs that are turned by an angle in degrees."""
        return replace(self, basis=replace(self.basis, angle=float(angle)))


def check_inputs_of(trend: Any, columns: InputMap) -> None:
    """Raises where a trend cannot be made of what columns are: by half of a place, or by squares of its coordinates."""
    several = [part for part in columns.parts if len(part.axes) > 1]
    if trend == "quadratic" and several:
        what = "a place on the globe" if several[0].name == "geographic" else several[0].label(columns.names)
        raise ValueError(
            f"trend='quadratic' is not possible with {what}, the squares of whose inputs are not free of each other: "
            "use 'linear', or a list of plain columns"
        )
    if trend is None or isinstance(trend, str):
        return
    for part in several:
        if isinstance(part, Gaps) and len(part.axes) == 2:
            continue  # a column of numbers or dates, filled in
        taken = {*part.columns, *(name for j in part.columns if isinstance(name := columns.names[j], str))}
        for column in trend:
            if column in taken:
                what = "place" if part.name == "geographic" else part.name
                raise ValueError(
                    f"trend names the column {column!r}, which is part of the {what} ({part.label(columns.names)}): "
                    f"only plain columns can be named. trend='linear' is linear in what is made of it, too"
                )


def _terms(model: Any, columns: InputMap, d: int) -> tuple[Term, ...]:
    """Returns the terms that a model asks for, by d inputs; a list names the columns of X that they are made from."""
    if isinstance(model.trend, str):
        left_out = set(columns.redundant)
        return tuple(term for term in terms_of(model.trend, d, None) if not left_out & set(term))
    named = terms_of(model.trend, len(columns.names), getattr(model, "feature_names_in_", None))
    return tuple(tuple(columns.sources.index(column) for column in term) for term in named)


def detrended(
    model: Any,
    X: FloatArray,
    x: FloatArray,
    targets: FloatArray,
    scaler: Standardizer,
    weights: FloatArray | None = None,
) -> tuple[OrdinaryTrend | None, FloatArray, Standardizer]:
    """Returns the trend that a model asks for, the standardised targets without it, and the maps that they are by.

    The unit of y is the standard deviation of what the trend leaves, unless data are used as they are: noise and signal
    are then of order one, however steep the trend. ``weights`` are those of the rows, (n,).
    """
    if model.trend is None:
        return None, scaler.y(targets), scaler
    names, inputs = scaler.columns.input_names, scaler.columns.inputs(X)
    check_rich(model.trend, *x.shape)
    terms = _terms(model, scaler.columns, x.shape[1])
    for column in sorted({column for term in terms for column in term}):
        what = f"column {names[column]!r} of X, which trend={model.trend!r} uses,"
        check_varies(inputs[:, column], what, "leave it out of X, or give trend a list without it")
    trend, y = OrdinaryTrend.fit(terms, model.trend, names, x, scaler.y(targets), weights)
    if not model.standardize:
        return trend, y, scaler
    spread = y.std(0) if weights is None else np.sqrt(np.diag(np.atleast_2d(np.cov(y.T, aweights=weights, ddof=0))))
    unit: Any = np.maximum(spread.reshape(y.shape[1:]), LEAST_LEFT)
    unit = float(unit) if y.ndim == 1 else unit
    scaler = replace(scaler, y_scale=scaler.y_scale * unit)
    return OrdinaryTrend(trend.basis, trend.offset / unit, model.trend, names), y / unit, scaler


# -- names and units -------------------------------------------------------------------------------------------------
def term_name(term: Term, names: Sequence[str]) -> str:
    """Returns how a term reads: "1", "lon", "lon²", "lon·lat"."""
    powers = {column: term.count(column) for column in term}
    return "·".join(names[column] + ("²" if power == 2 else "") for column, power in powers.items()) or "1"


@dataclass(frozen=True, eq=False)
class TrendCoefficients:
    """Holds the coefficients of a trend in the units of X and y; ``print`` shows them as a table.

    The trend at a row X is the sum of ``coefficients`` times the terms: "1" is one, "lon" that column, "lon²" its
    square, "lon·lat" a product. Of a place on the globe "lat, lon: x", "… y" and "… z" are the coordinates of its point
    on the sphere of radius one: x towards 0° N 0° E, y towards 0° N 90° E, z towards the north pole.

    Attributes
    ----------
    names : tuple of str
        The terms.
    coefficients, std_errors : ndarray, (p,)
        Estimates by generalised least squares, and their standard errors, given the hyperparameters.
    covariance : ndarray, (p, p)
        The covariance of the estimates, whose diagonal is the square of the errors.
    """

    names: tuple[str, ...]
    coefficients: FloatArray
    std_errors: FloatArray
    covariance: FloatArray

    def __str__(self) -> str:
        wide = max(len("term"), *map(len, self.names))
        lines = [f"{'term':<{wide}}  {'coefficient':>13}  {'std error':>11}"]
        for name, value, error in zip(self.names, self.coefficients, self.std_errors, strict=True):
            lines.append(f"{name:<{wide}}  {value:>13.6g}  {error:>11.3g}")
        return "\n".join(lines)


def coefficients_of(trend: Trend, scaler: Standardizer) -> TrendCoefficients:
    """Returns a trend's coefficients in the units of the inputs as they came, or as columns made them.

    A product of (X_i − m_i)/s_i is multiplied out into products of X_i: γ = E C β, with C of the basis.
    """
    terms = trend.basis.terms
    place = {term: row for row, term in enumerate(terms)}
    out = np.zeros((len(terms), len(terms)))  # E
    for column, term in enumerate(terms):
        scale = np.prod([scaler.x_scale[j] for j in term])
        for kept in itertools.product((True, False), repeat=len(term)):
            rest = np.prod([-scaler.x_mean[j] for j, keep in zip(term, kept, strict=True) if not keep])
            row = place[tuple(j for j, keep in zip(term, kept, strict=True) if keep)]
            out[row, column] += rest / scale
    into = scaler.y_scale * (out @ trend.basis.transform.cpu().numpy())
    values = into @ trend.coefficients[:, 0].cpu().numpy()
    values[place[()]] += scaler.y_mean
    covariance = into @ trend.covariance.cpu().numpy() @ into.T
    told = tuple(term_name(term, scaler.columns.input_names) for term in terms)
    return TrendCoefficients(told, values, np.sqrt(np.diag(covariance)), covariance)
