"""The exact solver: one dense float64 factorisation, n³/3 operations and n² memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator, Origin, ranges
from warmgp.operators.dense import DenseOperator
from warmgp.solvers.base import Progress, Solver, SolveResult, StoppingRule, factor_or_raise


@dataclass(frozen=True)
class CholeskyState:
    """The factor of one H."""

    origin: Origin
    factor: Tensor  # (n, n), lower, float64


def factorise(operator: KernelOperator) -> CholeskyState:
    """Factor H in float64, evaluated afresh from the inputs whatever the operator keeps or its dtype."""
    dense = DenseOperator(operator.x.double(), operator.kernel, operator.theta, tile_entries=operator.tile_entries)
    factor = factor_or_raise(dense.take(), "H")
    operator.entries_evaluated += dense.entries_evaluated
    return CholeskyState(operator.origin, factor)


def triangular_inverse(L: Tensor, block: int = 2048) -> Tensor:
    """X = L⁻¹ of a lower triangular L, (n, n), by blocks: n³/3 operations, nearly all of them in matrix products."""
    parts = list(ranges(L.shape[0], block))
    X = torch.zeros_like(L)
    for j in reversed(parts):  # X_ij = −Σ_k X_ik L_kj X_jj over j < k ≤ i
        eye = torch.eye(j.stop - j.start, dtype=L.dtype, device=L.device)
        X[j, j] = torch.linalg.solve_triangular(L[j, j], eye, upper=False)
        below = L[j.stop :, j] @ X[j, j]  # (n − j.stop, block)
        for i in parts:
            if i.start >= j.stop:
                X[i, j] = X[i, j.stop : i.stop] @ below[: i.stop - j.stop]
                X[i, j].neg_()
    return X


def inverse_from_factor(L: Tensor, block: int | None = None) -> Tensor:
    """H⁻¹ = XᵀX with X = L⁻¹, (n, n), by blocks: 2n³/3 operations.

    On a CPU LAPACK does this; on a GPU the library would solve for n right-hand sides, three times the work. ``block``
    None: the library on a CPU and for few rows, else blocks of 2,048.
    """
    n = L.shape[0]
    if block is None:
        block = 2048
        if L.device.type == "cpu" or n <= block:
            return torch.cholesky_inverse(L)
    parts = list(ranges(n, block))
    X = triangular_inverse(L, block)
    inverse = torch.empty_like(L)
    for i in parts:
        for j in parts:
            if j.start <= i.start:
                tile = X[i.start :, i].T @ X[i.start :, j]
                if i == j:  # symmetric only up to rounding
                    tile = (tile + tile.T) / 2
                inverse[i, j], inverse[j, i] = tile, tile.T
    return inverse


@dataclass(frozen=True)
class Cholesky(Solver):
    """Direct solution in float64, whatever the operator's dtype.

    It counts as one iteration and no epochs (a factorisation applies no product); the check of its residual is one
    epoch of overhead. A start that already meets the tolerance is returned as it is.
    """

    name = "cholesky"

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: CholeskyState | None = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        if state is not None and not state.origin.same(operator.origin):
            state = None
        if start is not None and max(progress.norms()) <= rule.tol:
            progress.stop_reason = "converged"
            return progress.result(state)
        state = state or factorise(operator)
        v = torch.cholesky_solve(progress.b.double(), state.factor)  # by columns: a file would give it back by rows
        progress.v = v.to(operator.dtype).contiguous()
        progress.count(0.0)
        progress.refresh()
        progress.stop_reason = "converged" if max(progress.norms()) <= rule.tol else "stagnated"
        return progress.result(state)
