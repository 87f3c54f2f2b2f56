"""The pivoted-Cholesky preconditioner P = L Lᵀ + D ≈ H for conjugate gradients, with the noise D = σ²I or diag(d).

L (n, k) is a partial Cholesky factor of K that always eliminates the largest remaining diagonal entry. By Woodbury

    P⁻¹ r = (r − L (σ²I + LᵀL)⁻¹ Lᵀ r) / σ² = (r − Wᵀ W r) / σ²,      W = C⁻¹Lᵀ,  C Cᵀ = σ²I + LᵀL.

Where rows have noise of their own, D^(−½) is taken out on both sides first: P⁻¹ = D^(−½) (I − WᵀW) D^(−½) with W and C
of D^(−½)L and σ = 1.

L depends on the length scales only, up to the signal: it is kept for unit signal and rescaled, so an operator whose
length scales are the same reuses it whatever its noise and signal. Where they have moved a little, the *pivots* are
still good: with their indices p,  L = K[:, p] D⁻ᵀ,  D Dᵀ = K[p, p],  which is matrix products, not a loop over columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count
from warmgp.operators.base import KernelOperator
from warmgp.operators.origin import Origin
from warmgp.operators.part import Part
from warmgp.schema import TensorRule, check_tensors, expect, list_of, record, whole
from warmgp.solvers.base import Packed
from warmgp.solvers.graphs import Recorded
from warmgp.solvers.preconditioners.base import Preconditioner, Preconditioning, Recipe

JITTER = 1e-10
"""Share of the signal variance added to the diagonal of K[p, p]: pivots of another θ may be nearly dependent."""


@dataclass(frozen=True)
class LowRank(Preconditioning):
    """Makes a pivoted Cholesky factor of low rank.

    Parameters
    ----------
    rank : int
        Columns of the factor.
    pivot_every : int
        New pivots are sought at every ``pivot_every``-th change of the length scales.
    """

    rank: int = 100
    pivot_every: int = 1

    name = "low rank"

    def __post_init__(self) -> None:
        check_count("rank", self.rank)
        check_count("pivot_every", self.pivot_every)

    def build(self, operator: KernelOperator) -> PivotedCholesky:
        L, pivots = eliminate(operator, self.rank)
        return PivotedCholesky(L / operator.signal_variance**0.5, operator, Pivots(pivots, self))

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> Pivots:
        record({"pivots": list_of(whole(), 2)})(content, "")
        check_tensors(tensors, {"pivots": TensorRule(("k",), (torch.int64,))})
        index, (rank, age), n = tensors["pivots"], content["pivots"], shape[0]
        expect(bool(((index >= 0) & (index < n)).all()), "pivots", f"numbers of the {n} rows", "others")
        return Pivots(index, LowRank(rank, self.pivot_every), age)


def eliminate(operator: KernelOperator, rank: int, tolerance: float | None = None) -> tuple[Tensor, Tensor]:
    """Returns a partial pivoted Cholesky factor of K without noise, (n, k) with k ≤ rank, and its pivots, (k,).

    It ends early when the largest remaining diagonal entry is below ``tolerance`` times the signal variance, by default
    the size of rounding in the operator's dtype: then L Lᵀ already is K. On a GPU nothing is transferred per column.
    """
    if tolerance is None:
        tolerance = max(1e-10, 10 * torch.finfo(operator.dtype).eps)
    least = tolerance * operator.signal_variance
    n = operator.n
    rank = min(rank, n)
    L = torch.zeros(n, rank, dtype=operator.dtype, device=operator.device)
    remaining = torch.full((n,), operator.signal_variance, dtype=operator.dtype, device=operator.device)
    pivots = torch.zeros(rank, dtype=torch.int64, device=operator.device)
    left = torch.zeros(rank, dtype=operator.dtype, device=operator.device)  # largest remaining entry before each column
    k = torch.zeros(1, dtype=torch.int64, device=operator.device)

    def eliminate_one() -> None:
        pivot = remaining.argmax().view(1)
        largest = remaining[pivot]
        pivots.index_copy_(0, k, pivot)
        left.index_copy_(0, k, largest)
        column = operator.kernel_columns(pivot)[:, 0] - L @ L[pivot][0]  # later columns are still zero
        column /= largest.clamp_min(torch.finfo(operator.dtype).tiny).sqrt()
        L.index_copy_(1, k, column[:, None])
        remaining.sub_(column.square()).clamp_min_(0.0)
        remaining.index_fill_(0, pivot, 0.0)
        k.add_(1)

    run = Recorded(eliminate_one, operator)
    check_every = 1 if operator.device.type == "cpu" else 64
    for done in range(rank):
        if done % check_every == 0 and float(remaining.max()) <= least:
            break
        run()
    found = int((left > least).long().cumprod(0).sum())
    return L[:, :found].contiguous(), pivots[:found]


@dataclass(frozen=True)
class Pivots(Recipe):
    """Holds the rows that a factor was built from: all that the next θ, or a resumed training, needs of it.

    Attributes
    ----------
    index : Tensor, (k,)
        Numbers of the rows. There may be fewer than the rank that was asked for.
    made_by : LowRank
    age : int
        How many times they have been carried to other length scales.
    """

    index: Tensor
    made_by: LowRank
    age: int = 0

    def at(self, operator: KernelOperator) -> PivotedCholesky | None:
        """Returns the factor from the same pivots at other length scales; None where they are too old for that."""
        return self.factor_at(operator) if self.age + 1 < self.made_by.pivot_every else None

    def factor_at(self, operator: KernelOperator) -> PivotedCholesky | None:
        """Returns a new factor at the operator's θ, or None where the pivots have become dependent."""
        index = self.index.to(operator.device)
        columns = operator.in_float64().kernel_columns(index) / operator.signal_variance  # (n, k)
        square = columns[index]
        square.diagonal().add_(JITTER)
        factor, info = torch.linalg.cholesky_ex(square)
        if int(info) != 0:
            return None
        unit = torch.linalg.solve_triangular(factor, columns.T, upper=False).T
        return PivotedCholesky(unit.contiguous(), operator, Pivots(index, self.made_by, self.age + 1))

    def pack(self) -> Packed:
        return {"pivots": self.index}, {"pivots": [self.made_by.rank, self.age]}


class PivotedCholesky(Preconditioner):
    """Applies P⁻¹ = (I − WᵀW)/σ², the inverse of low rank plus noise, of one operator."""

    made_by: LowRank

    def __init__(self, unit_factor: Tensor, operator: KernelOperator, pivots: Pivots) -> None:
        self.unit_factor = unit_factor.double()  # (n, k), for signal 1
        self.pivots = pivots
        self.made_by = pivots.made_by
        self.origin: Origin = operator.origin
        even = operator.rows is None
        self.noise_variance = operator.noise_variance if even else 1.0
        scales = None if even else operator.noise.scales  # √d, (n, 1)
        scaled = self.unit_factor if scales is None else self.unit_factor / scales
        inner = operator.signal_variance * (scaled.T @ scaled)
        inner.diagonal().add_(self.noise_variance)
        W = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), scaled.T, upper=False)
        largest = float(torch.linalg.matrix_norm(inner))  # P, or D^(−½) P D^(−½), has no larger eigenvalue
        precise = _precision(operator.dtype, largest, self.noise_variance)
        self._W = W.mul_(operator.signal_variance**0.5).to(precise)  # (k, n)
        self._scales = None if scales is None else scales.to(precise)

    @property
    def recipe(self) -> Pivots:
        return self.pivots

    def at(self, operator: KernelOperator) -> PivotedCholesky | None:
        """Returns the same factor at another noise and signal, or a new one from its pivots at other length scales."""
        if not self.origin.same_data(operator.origin):
            return None
        mine, its = self.origin.theta, operator.theta
        if not torch.equal(mine.length_scales, its.length_scales):
            return self.pivots.at(operator)
        return self if mine.equals(its) else PivotedCholesky(self.unit_factor, operator, self.pivots)

    def apply(self, R: Tensor) -> Tensor:
        return self._applied(R, self._W, self._scales)

    def apply_to(self, part: Part, R: Tensor) -> Tensor:
        scales = None if self._scales is None else self._scales[part.here]
        return self._applied(R, self._W[:, part.here], scales, part)

    def _applied(self, R: Tensor, W: Tensor, scales: Tensor | None, part: Part | None = None) -> Tensor:
        """Returns P⁻¹R for the rows of R, whose columns of W and whose √d are given; W R is of all rows."""
        its = R.to(W.dtype)
        if scales is not None:
            its = its / scales
        coarse = W @ its if part is None else part.sum(W @ its)  # (k, c)
        left = torch.addmm(its, W.T, coarse, alpha=-1.0)
        return left.div_(self.noise_variance if scales is None else scales).to(R.dtype)


def _precision(dtype: torch.dtype, largest: float, noise_variance: float) -> torch.dtype:
    """Returns float64 where (r − WᵀW r)/σ² cancels so much that a float32 P⁻¹ might not be positive definite.

    Otherwise ``dtype``, the operator's, will do. The rounding is ε/σ², and no eigenvalue of P⁻¹ is below 1/``largest``.
    """
    safe = torch.finfo(dtype).eps * largest <= 0.1 * noise_variance
    return dtype if safe else torch.float64
