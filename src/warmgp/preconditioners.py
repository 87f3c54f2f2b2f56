"""Pivoted-Cholesky preconditioner P = L Lᵀ + σ²I ≈ H for conjugate gradients.

L (n, k) is a partial Cholesky factor of K that always eliminates the largest remaining diagonal entry. By Woodbury

    P⁻¹ r = (r − L (σ²I + LᵀL)⁻¹ Lᵀ r) / σ².

L depends on the length scales only, up to the signal: it is kept for unit signal and rescaled, so an operator whose
length scales are the same reuses it whatever its noise and signal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator


def pivoted_cholesky(operator: KernelOperator, rank: int, *, tolerance: float | None = None) -> Tensor:
    """Partial pivoted Cholesky factor of K without noise, (n, k) with k ≤ rank.

    It ends early when the largest remaining diagonal entry is below ``tolerance`` times the signal variance, by default
    what is rounding in the operator's dtype: then L Lᵀ already is K.
    """
    if tolerance is None:
        tolerance = max(1e-10, 10 * torch.finfo(operator.dtype).eps)
    n = operator.n
    rank = min(rank, n)
    L = torch.zeros(n, rank, dtype=operator.dtype, device=operator.device)
    remaining = torch.full((n,), operator.signal_variance, dtype=operator.dtype, device=operator.device)
    for k in range(rank):
        pivot = int(torch.argmax(remaining))
        largest = float(remaining[pivot])
        if largest <= tolerance * operator.signal_variance:
            return L[:, :k].contiguous()
        index = torch.tensor([pivot], device=operator.device)
        column = operator.kernel_columns(index)[:, 0] - L[:, :k] @ L[pivot, :k]
        column /= largest**0.5
        L[:, k] = column
        remaining = (remaining - column.square()).clamp_min_(0.0)
        remaining[pivot] = 0.0
    return L


class PivotedCholesky:
    """P⁻¹ for one operator. Build it with :meth:`build`, carry it to the next θ with :meth:`moved_to`."""

    def __init__(self, unit_factor: Tensor, operator: KernelOperator, rank: int) -> None:
        # float64 throughout: at low noise (r − L…) cancels, and a float32 P⁻¹ would not be positive definite
        self.unit_factor = unit_factor.double()  # (n, k), for signal 1
        self.rank = rank  # what was asked for; the factor may have fewer columns
        self.origin = operator.origin
        self.noise_variance = operator.noise_variance
        self.signal_variance = operator.signal_variance
        inner = operator.signal_variance * (self.unit_factor.T @ self.unit_factor)
        inner.diagonal().add_(operator.noise_variance)
        self._inner_factor = torch.linalg.cholesky(inner)

    @classmethod
    def build(cls, operator: KernelOperator, rank: int) -> PivotedCholesky:
        return cls(pivoted_cholesky(operator, rank) / operator.signal_variance**0.5, operator, rank)

    def moved_to(self, operator: KernelOperator, rank: int) -> PivotedCholesky | None:
        """The same factor at the operator's noise and signal, or None where it does not fit."""
        mine, its = self.origin.theta, operator.theta
        if (
            self.rank != rank
            or not self.origin.same_data(operator.origin)
            or not torch.equal(mine.length_scales, its.length_scales)
        ):
            return None
        return self if mine.equals(its) else PivotedCholesky(self.unit_factor, operator, rank)

    def solve(self, R: Tensor) -> Tensor:
        """P⁻¹ R, (n, c)."""
        R64 = R.double()
        correction = torch.cholesky_solve(self.unit_factor.T @ R64, self._inner_factor).mul_(self.signal_variance)
        return ((R64 - self.unit_factor @ correction) / self.noise_variance).to(R.dtype)
