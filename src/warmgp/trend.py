"""The trend of a process: a few known functions of the inputs whose coefficients the data decide, T β beside f.

    y = T β + f(x) + σw,      flat prior on β,      A = TᵀH⁻¹T,      V = H⁻¹T

    β̂        = A⁻¹Tᵀv_y                                   (generalised least squares)
    mean(·)   = t(·)ᵀβ̂ + k(·, x)(v_y − V β̂)
    u(·)      = t(·) − Vᵀk(x, ·)
    cov(·, ∘) = latent + u(·)ᵀA⁻¹u(∘)                      (universal kriging)

:class:`Basis` holds the functions t(·), :class:`TrendColumns` their values in a training, :class:`TrendSolution` what
its steps hand on, :class:`Trend` what predictions need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

Term = tuple[int, ...]
"""A function of the basis: the product of these columns of x; () is the constant."""

DEPENDENT = 1e-7
"""The share of a term that the terms before it may leave unexplained and still count as all of it."""


class DependentTermError(ValueError):
    """Says that a term of a trend is a combination of the terms before it; ``term`` is which."""

    def __init__(self, term: Term) -> None:
        super().__init__(f"the trend's term {term} is a combination of those before it")
        self.term = term


@dataclass(frozen=True)
class Basis:
    """Holds the functions of a trend: products of inputs, combined so that they are orthogonal over the training rows.

    Attributes
    ----------
    terms : tuple of Term
    transform : Tensor, (p, p), float64
        From the products to the functions: t(x) = products(x) C, with TᵀT = n I over the rows that it was made from.
    angle: float
        Degrees by which the inputs that it is asked about are turned: they are turned back first, so that terms and
        coefficients are those of the inputs as they were. 0 for none.
    """

    terms: tuple[Term, ...]
    transform: Tensor
    angle: float = 0.0

    @classmethod
    def fit(cls, terms: Sequence[Term], x: Tensor) -> Basis:
        """Makes the functions from training rows x, (n, d) in float64 and of mean zero; names a term that depends."""
        products = _products(terms, x)
        norms = torch.linalg.vector_norm(products, dim=0)
        safe = torch.where(norms > 0, norms, 1.0)
        _, upper = torch.linalg.qr(products / safe, mode="r")
        for term, left in zip(terms, upper.diagonal().abs().tolist(), strict=True):
            if not left > DEPENDENT:
                raise DependentTermError(term)
        inverse = torch.linalg.solve_triangular(upper, torch.eye(len(terms)).to(upper), upper=True)
        transform = len(x) ** 0.5 * inverse / safe[:, None]
        return cls(tuple(terms), transform.contiguous())  # as a file holds it: the same bits

    def at(self, x: Tensor) -> Tensor:
        """Returns t(x), (m, p), in float64."""
        return _products(self.terms, self._turned_back(x.double())) @ self.transform.to(x.device)

    def over(self, x: Tensor) -> Basis:
        """Returns the same terms with functions that are orthogonal over other training rows x, (n, d)."""
        return replace(Basis.fit(self.terms, self._turned_back(x.double())), angle=self.angle)

    def into(self, other: Basis) -> Tensor:
        """Returns what turns these functions into those of another basis of the same terms, (p, p): T_other = T M."""
        return torch.linalg.solve(self.transform, other.transform.to(self.transform))

    def _turned_back(self, x: Tensor) -> Tensor:
        """Returns inputs (m, 2) as they were before they were turned; any others where the angle is 0."""
        if not self.angle:
            return x
        c, s = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        return torch.stack([c * x[:, 0] - s * x[:, 1], c * x[:, 1] + s * x[:, 0]], 1)


def _products(terms: Sequence[Term], x: Tensor) -> Tensor:
    """Returns the products of columns that the terms are, (m, p)."""
    return torch.stack([x[:, list(term)].prod(1) for term in terms], 1)


@dataclass(frozen=True)
class TrendColumns:
    """Holds the trend of a training: its functions at the training rows, and what of it the targets no longer have.

    Attributes
    ----------
    basis : Basis
    columns : Tensor, (n, p)
        T, in the dtype of the operator; of several processes each has its own rows.
    offset : Tensor, (p,), or (p, q) for several targets, float64
        Coefficients by ordinary least squares, which are taken off y beforehand. Generalised least squares finds
        the rest; the sum is the same for any offset, and y is small beside it in every precision.
    """

    basis: Basis
    columns: Tensor
    offset: Tensor


@dataclass(frozen=True)
class TrendSolution:
    """Holds the trend's part of a state of training: what the next solve starts from.

    Attributes
    ----------
    solution : Tensor, (n, p)
        V = H⁻¹T; of several processes each has its own rows.
    coefficients : Tensor, (p,), or (p, q) for several targets, float64
        β̂, beside the offset that y no longer has.
    """

    solution: Tensor
    coefficients: Tensor

    def in_float64(self) -> TrendSolution:
        """Returns the same in float64."""
        return TrendSolution(self.solution.double(), self.coefficients)


@dataclass(frozen=True)
class Trend:
    """Holds the trend of a posterior.

    Attributes
    ----------
    basis : Basis
    solution : Tensor, (n, p)
        V = H⁻¹T.
    coefficients : Tensor, (p, q + s), float64
        [β̂, β̃_1 … β̃_s]: the estimate of each target, and the deviation A⁻¹Tᵀẑ_j of each posterior function.
    covariance : Tensor, (p, p), float64
        A⁻¹.
    n_targets : int
        The number of targets, q.
    """

    basis: Basis
    solution: Tensor
    coefficients: Tensor
    covariance: Tensor
    n_targets: int = 1

    @property
    def estimates(self) -> Tensor:
        """The estimates β̂, (p,), or (p, q) for several targets."""
        return self.coefficients[:, 0] if self.n_targets == 1 else self.coefficients[:, : self.n_targets]

    @property
    def deviations(self) -> Tensor:
        """The deviations β̃ of the posterior functions, (p, s)."""
        return self.coefficients[:, self.n_targets :]

    def mean(self, x_new: Tensor) -> Tensor:
        """Returns t(x_new)ᵀβ̂, (m,) or (m, q), in float64."""
        return self.basis.at(x_new) @ self.estimates

    def with_functions(self, x: Tensor, solution: Tensor) -> Trend:
        """Returns the trend for other posterior functions, of solutions ẑ (n, s) at the training rows x."""
        own = self.coefficients[:, : self.n_targets]
        return replace(self, coefficients=torch.cat([own, self._deviations(x, solution)], 1))

    def _deviations(self, x: Tensor, solution: Tensor) -> Tensor:
        """Returns A⁻¹Tᵀẑ, (p, s)."""
        return self.covariance @ (self.basis.at(x).T @ solution.double())

    def to(self, device: torch.device | str) -> Trend:
        """Returns the same trend on ``device``."""
        basis = replace(self.basis, transform=self.basis.transform.to(device))
        solution, coefficients, covariance = (
            part.to(device) for part in (self.solution, self.coefficients, self.covariance)
        )
        return Trend(basis, solution, coefficients, covariance, self.n_targets)


# -- what a user may ask for -----------------------------------------------------------------------------------------
NAMED = ("constant", "linear", "quadratic")
"""Trends that have a name."""

MOST_TERMS, ROWS_PER_TERM = 200, 2
"""The most terms of a trend, and the fewest rows for each of them."""

Asked = str | Sequence[int | str] | None
"""A trend as it is asked for: one of ``NAMED``, columns by name or number, or None."""


def check_trend(trend: Any) -> None:
    """Raises unless this may be a trend, whatever the data."""
    columns = isinstance(trend, list | tuple) and len(trend) > 0
    columns = columns and all(isinstance(c, str | int | np.integer) and not isinstance(c, bool) for c in trend)
    if trend is not None and not columns and not (isinstance(trend, str) and trend in NAMED):
        names = ", ".join(f'"{name}"' for name in NAMED)
        raise ValueError(f"trend must be None, {names} or a list of columns by name or number, got {trend!r}")


def term_count(trend: Asked, d: int) -> int:
    """Returns the number of terms p that a trend has over d inputs; 0 for none."""
    counts = {None: 0, "constant": 1, "linear": 1 + d, "quadratic": 1 + d + d * (d + 1) // 2}
    return counts[trend] if trend is None or isinstance(trend, str) else 1 + len(trend)


def check_rich(trend: Asked, n: int, d: int) -> None:
    """Raises where a trend has too many terms for n rows of d inputs, or at all."""
    p = term_count(trend, d)
    if p > MOST_TERMS:
        remedy = 'use "linear", or a list of the columns that matter'
        raise ValueError(f"trend={trend!r} has {p} terms with {d} inputs, at most {MOST_TERMS} are possible: {remedy}")
    if n < ROWS_PER_TERM * p:
        raise ValueError(
            f"trend={trend!r} has {p} terms, and X has {n} rows: at least {ROWS_PER_TERM * p} are needed. Use a trend "
            f"with fewer terms"
        )


def terms_of(trend: Asked, d: int, names: Sequence[str] | None) -> tuple[Term, ...]:
    """Returns the terms of a trend over d inputs, by ``names`` where they have some; the constant is the first."""
    if trend is None:
        return ()
    columns = list(range(d)) if isinstance(trend, str) else [_column(c, d, names) for c in trend]
    for place, column in enumerate(columns):
        if column in columns[:place]:
            assert not isinstance(trend, str)
            raise ValueError(f"trend names the column {trend[place]!r} twice: {trend!r}")
    terms: list[Term] = [()]
    if trend != "constant":
        terms += [(column,) for column in columns]
    if trend == "quadratic":
        terms += [(i, j) for i in columns for j in columns[i:]]
    return tuple(terms)


def _column(column: int | str, d: int, names: Sequence[str] | None) -> int:
    """Returns the number of a column that a trend names."""
    if isinstance(column, str):
        if names is None:
            raise ValueError(
                f"trend names the column {column!r}, but X has no column names: give its number, or X as a data frame"
            )
        if column not in list(names):
            known = ", ".join(repr(str(name)) for name in list(names)[:10]) + (", …" if len(names) > 10 else "")
            raise ValueError(f"trend names the column {column!r}, which X does not have: it has {known}")
        return list(names).index(column)
    if not 0 <= column < d:
        raise ValueError(f"trend names column {column}, which X does not have: its {d} columns are 0 to {d - 1}")
    return int(column)
