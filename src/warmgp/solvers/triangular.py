"""Solves and inverses with a Cholesky factor L of H = L Lᵀ, by matrix products where those are faster."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from warmgp.operators.indices import ranges


def factor_or_raise(matrix: Tensor, what: str) -> Tensor:
    """Returns the lower Cholesky factor of a matrix in float64, or raises with the remedy where there is none."""
    factor, info = torch.linalg.cholesky_ex(matrix.double())
    if int(info) != 0:
        precise = "use dtype=float64, " if matrix.dtype == torch.float32 else ""
        raise torch.linalg.LinAlgError(
            f"{what} is not positive definite (Cholesky failed at row {int(info)} of {matrix.shape[0]}): "
            f"{precise}raise noise_floor, or remove near-duplicate rows"
        )
    return factor


def solve_with_factor(L: Tensor, B: Tensor) -> Tensor:
    """Returns H⁻¹B = L⁻ᵀL⁻¹B, stored by rows. Two substitutions are twice as fast as LAPACK's own pair on a CPU."""
    half = torch.linalg.solve_triangular(L, B, upper=False)
    return torch.linalg.solve_triangular(L.mT, half, upper=True).contiguous()


def triangular_inverse(L: Tensor, block: int = 2048) -> Tensor:
    """Returns X = L⁻¹ of a lower triangular L, (n, n), by blocks: n³/3 operations, nearly all in matrix products."""
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
    """Returns H⁻¹ = XᵀX with X = L⁻¹, (n, n), by blocks: 2n³/3 operations.

    On a CPU LAPACK does this; on a GPU the library would solve for n right-hand sides, three times the work. With
    ``block`` None the library does it on a CPU and for few rows, otherwise blocks of 2,048 rows do.
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


SMALL = 256
"""Rows of a matrix whose factor :func:`inverse_factors` leaves to the library."""


def inverse_factors(A: Tensor, *, by_triton: bool = False) -> tuple[Tensor, Tensor]:
    """Returns X = L⁻¹ of symmetric positive definite matrices A = L Lᵀ, (k, b, b), by halves, and whether one is not
    definite.

    With A = [[P, Qᵀ], [Q, R]], X_P of P, Y = Q X_Pᵀ and X_S of S = R − Y Yᵀ it is [[X_P, 0], [−X_S Y X_P, X_S]]: 4b³/3
    operations, nearly all in products of many matrices at once, which keep a GPU busy where a factorisation of one
    matrix of a few thousand rows does not. A⁻¹ = XᵀX. Were that itself put together by halves, S would lose κ(P) times
    the rounding instead of its root: at a signal of 8,000 times the noise no block had an inverse. The second result is
    a tensor, so that nothing waits for it. Small matrices are left to the library, or to a Triton kernel.
    """
    small, invert = SMALL, _invert_by_library
    if by_triton:
        from warmgp.solvers.triton.small_factors import LEAF, invert_small

        small, invert = LEAF, invert_small
    A = A if A.stride(-1) == 1 else A.contiguous()  # row by row
    X = torch.zeros_like(A, memory_format=torch.contiguous_format)
    failed = torch.zeros(1, dtype=torch.int32, device=A.device)
    _invert_by_halves(A, X, failed, small, invert)
    return X, failed.any()


Invert = Callable[[Tensor, Tensor, Tensor], None]
"""Writes the inverse factors of A into the lower triangles of X, (k, b, b) each, and 1 into ``failed``, (1,), where one
of A is not definite."""


def _invert_by_halves(A: Tensor, X: Tensor, failed: Tensor, small: int, invert: Invert) -> None:
    """Does what ``invert`` does with matrices of at most ``small`` rows, with matrices of any size."""
    b = A.shape[-1]
    if b <= small:
        invert(A, X, failed)
        return
    half = -(-b // (2 * small)) * small  # whole tiles of the smallest size
    P, S = X[:, :half, :half], X[:, half:, half:]
    _invert_by_halves(A[:, :half, :half], P, failed, small, invert)
    Y = A[:, half:, :half] @ P.mT
    _invert_by_halves(torch.baddbmm(A[:, half:, half:], Y, Y.mT, alpha=-1.0), S, failed, small, invert)
    X[:, half:, :half] = S @ torch.bmm(Y, P).neg_()


def _invert_by_library(A: Tensor, X: Tensor, failed: Tensor) -> None:
    factor, info = torch.linalg.cholesky_ex(A)
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).expand_as(A)
    X.copy_(torch.linalg.solve_triangular(factor, eye, upper=False))
    failed |= (info != 0).any()
