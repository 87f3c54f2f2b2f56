"""The diagonal that H has beside K: one noise variance for all rows, or one for each.

    d_i = σ²/w_i + e_i        with weights w_i, and variances e_i of measurement errors that are known.

σ² is learned, w and e belong to the data: they travel with the inputs x, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.indices import Index


@dataclass(frozen=True, eq=False)
class RowNoise:
    """Holds what the noise of each row is made of: d_i = σ² ``shares_i`` + ``known_i``.

    Attributes
    ----------
    shares : Tensor, (n,), float64
        1/w_i.
    known : Tensor, (n,), float64
        e_i, in the units of training.
    """

    shares: Tensor
    known: Tensor

    def __post_init__(self) -> None:
        if self.shares.shape != self.known.shape:
            raise ValueError(f"shares and known must be of one shape, got {self.shares.shape} and {self.known.shape}")
        for part in (self.shares, self.known):
            if part.dtype != torch.float64:
                raise ValueError(f"the noise of rows must be float64, got {part.dtype}")

    def variances(self, theta: Hyperparameters) -> Tensor:
        """Returns d at θ, in the shape of ``shares``, in float64."""
        return self.shares * float(theta.noise_scale) ** 2 + self.known

    def at(self, rows: Index) -> RowNoise:
        """Returns that of some rows, in the shape of ``rows``."""
        return RowNoise(self.shares[rows], self.known[rows])

    def to(self, device: torch.device | str) -> RowNoise:
        """Returns the same on ``device``."""
        return RowNoise(self.shares.to(device), self.known.to(device))


def rows_at(noise: RowNoise | None, rows: Index) -> RowNoise | None:
    """Returns the noise of some rows; None where all rows have the same."""
    return None if noise is None else noise.at(rows)


class Noise:
    """Applies the diagonal of one H: σ² alone, to the same bits as ever, or a number for each row.

    Parameters
    ----------
    theta : Hyperparameters
    rows : RowNoise or None
        What rows have of their own; None where all have σ².
    """

    def __init__(self, theta: Hyperparameters, rows: RowNoise | None) -> None:
        self.scale = float(theta.noise_scale)
        self.variance = self.scale**2
        self.rows = rows
        self._each = None if rows is None else rows.variances(theta)  # (n,)

    # -- in one number ---------------------------------------------------------------------------------------------
    @cached_property
    def least(self) -> float:
        """The least variance of a row: no eigenvalue of H is below it."""
        return self.variance if self._each is None else float(self._each.min())

    @property
    def least_scale(self) -> float:
        """The square root of the least variance."""
        return self.scale if self._each is None else self.least**0.5

    @cached_property
    def most(self) -> float:
        """The largest variance of a row."""
        return self.variance if self._each is None else float(self._each.max())

    @cached_property
    def unit(self) -> float:
        """The scale that residuals are measured in: σ, or that of the harmonic mean of all variances.

        A residual r moves a prediction by at most √Σ r_i²/d_i of its standard deviations; where r is spread evenly
        that is its root mean square over this.
        """
        return self.scale if self._each is None else float(self._each.reciprocal().mean().rsqrt())

    # -- row by row ------------------------------------------------------------------------------------------------
    def at(self, index: Index | None = None) -> float | Tensor:
        """Returns σ², or the variances of the rows of ``index`` (all by default) in its shape, in float64."""
        if self._each is None:
            return self.variance
        return self._each if index is None else self._each[index]

    def scale_at(self, index: Index | None = None) -> float | Tensor:
        """Returns σ, or √d of those rows, as a column, (b, 1), in float64."""
        if self._each is None:
            return self.scale
        return (self._each if index is None else self._each[index]).sqrt()[:, None]

    @property
    def scales(self) -> Tensor:
        """The square roots of d, (n, 1), in float64, where rows have noise of their own."""
        assert self._each is not None
        return self._each.sqrt()[:, None]

    def times(self, V: Tensor, index: Index | None = None) -> Tensor:
        """Returns d V, (b, c), for V of (b, c), whose rows are those of ``index``, all by default."""
        return V * self.variance if self._each is None else V * self._column(V, index)

    def add_rows(self, out: Tensor, index: Tensor, W: Tensor, sign: float = 1.0) -> None:
        """Adds ± d W to the rows ``index`` of ``out`` in place, for W of (b, c)."""
        if self._each is None:
            out.index_add_(0, index, W, alpha=sign * self.variance)
        else:
            out.index_add_(0, index, W * self._column(W, index), alpha=sign)

    def trace(self, diagonal: Tensor) -> float:
        """Returns Σ_i G_ii/w_i, all that ∂σ needs, for the diagonal of G, (n,)."""
        return float((diagonal if self.rows is None else diagonal.double() * self.rows.shares).sum())

    def quadratic_trace(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        """Returns Σ_i G_ii/w_i for G = A diag(weights) Bᵀ, a number in float64 on the device; A and B are (n, c)."""
        assert self.rows is not None
        weights = weights.to(device=A.device, dtype=torch.float64)
        parts = (slice(i, i + 2**18) for i in range(0, len(A), 2**18))
        return torch.stack([self.rows.shares[i] @ ((A[i].double() * B[i].double()) @ weights) for i in parts]).sum()

    def _column(self, V: Tensor, index: Index | None) -> Tensor:
        assert self._each is not None
        return (self._each if index is None else self._each[index])[:, None].to(V.dtype)


def add_noise(out: Tensor, noise: Noise, rows: Index, columns: Index, V: Tensor) -> Tensor:
    """Adds the noise of those rows that are columns, too, to a product K[rows, columns] V, (p, c), and returns it.

    One of both is a slice; a tensor of indices has no number twice.
    """
    if isinstance(rows, slice) and isinstance(columns, slice):
        low, high = max(rows.start, columns.start), min(rows.stop, columns.stop)
        if low < high:
            some = slice(low, high)
            out[low - rows.start : high - rows.start] += noise.times(
                V[low - columns.start : high - columns.start].to(out.dtype), some
            )
        return out
    index, other = (rows, columns) if isinstance(columns, slice) else (columns, rows)
    assert isinstance(index, Tensor) and isinstance(other, slice)
    places = ((index >= other.start) & (index < other.stop)).nonzero()[:, 0]
    own = index[places] - other.start
    at, its = (places, own) if isinstance(columns, slice) else (own, places)
    out.index_add_(0, at, noise.times(V[its].to(out.dtype), index[places]))
    return out
