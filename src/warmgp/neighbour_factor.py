"""P = L Lᵀ + V ≈ H: a low rank for what is common to all points, near neighbours for what is left.

Given its m nearest earlier points N(i), the value at point i hardly depends on other earlier points, the more so the
less noise there is. So V, for what the low rank leaves of H, E = H − L Lᵀ, has the sparse inverse factor

    V⁻¹ = SᵀS,    S = D^(−½) (I − A),    A[i, N(i)] = E[i, N(i)] E[N(i), N(i)]⁻¹,    D_i = E_ii − A[i, :] E[:, i],

the best one with that pattern (Vecchia's). With S L = Q Cᵀ, C Cᵀ = I + (S L)ᵀ S L, it follows that

    P⁻¹ = Sᵀ (I − Q Qᵀ) S,    Q = S L C⁻ᵀ.

All of it is float64: P⁻¹ has eigenvalues from 1/σ² down to those of the smoothest functions, which float32 would lose
in rounding, and beside a product with H it costs nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.neighbours import Neighbours
from warmgp.operators.base import KernelOperator, ranges
from warmgp.preconditioners import PivotedCholesky, Pivots


@dataclass(frozen=True)
class NeighbourRecipe:
    """What a factor is made again from after a resume, to the same bits."""

    length_scales: Tensor
    low: Pivots | None


class NeighbourFactor:
    """P⁻¹ for one operator. Build it with :meth:`build`.

    Parameters
    ----------
    operator : KernelOperator
    neighbours : Neighbours
    low : PivotedCholesky or None
        Whose factor is L.
    """

    def __init__(self, operator: KernelOperator, neighbours: Neighbours, low: PivotedCholesky | None) -> None:
        self.origin = operator.origin
        self.neighbours = neighbours
        self.low = low
        L = None if low is None else low.unit_factor * operator.signal_variance**0.5  # (n, k)
        self._S = _Sparse(neighbours.groups, _sparse_factor(operator, neighbours.groups, L))
        self._St = self._S.transposed()
        self._Q: Tensor | None = None
        if L is not None:
            SL = self._S.matmul(L)  # (n, k)
            inner = SL.T @ SL
            inner.diagonal().add_(1.0)
            self._Q = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), SL.T, upper=False)  # (k, n)

    @classmethod
    def build(
        cls,
        operator: KernelOperator,
        m: int,
        low: PivotedCholesky | None,
        kept: NeighbourFactor | NeighbourRecipe | None = None,
    ) -> NeighbourFactor:
        """The factor at the operator's θ; with the neighbours of an earlier one while they serve."""
        near = None
        if isinstance(kept, NeighbourRecipe):
            near = Neighbours.seek(operator, m, kept.length_scales)
        elif isinstance(kept, NeighbourFactor) and kept.origin.same_data(operator.origin):
            if kept.neighbours.groups.shape[1] == min(m, operator.n - 1) + 1:
                near = kept.neighbours
            if near is not None and kept.low is low and kept.origin.same(operator.origin):
                return kept
        if near is None or not near.serve(operator):
            near = Neighbours.seek(operator, m)
        return cls(operator, near, low)

    @property
    def recipe(self) -> NeighbourRecipe:
        return NeighbourRecipe(self.neighbours.length_scales, None if self.low is None else self.low.pivots)

    def solve(self, R: Tensor) -> Tensor:
        """P⁻¹ R, (n, c)."""
        U = self._S.matmul(R.double())
        if self._Q is not None:
            U = torch.addmm(U, self._Q.T, self._Q @ U, alpha=-1.0)
        return self._St.matmul(U).to(R.dtype)


def _sparse_factor(operator: KernelOperator, groups: Tensor, L: Tensor | None) -> Tensor:
    """Entries of S at the places of ``groups``, (n, m + 1) in float64; the point's own comes last."""
    n, size = groups.shape
    values = torch.zeros(n, size, dtype=torch.float64, device=groups.device)
    rank = 0 if L is None else L.shape[1]
    for rows in ranges(n, max(1, operator.tile_entries // (size * (size + rank)))):
        group = groups[rows]  # (p, m + 1)
        E = operator.group_kernels(group)
        if L is not None:
            near = L[group]  # (p, m + 1, k)
            E.baddbmm_(near, near.mT, alpha=-1.0)
        E.diagonal(dim1=1, dim2=2).add_(operator.noise_variance)
        own = E[:, -1, -1].clone()
        absent = group == group[:, -1:]
        absent[:, -1] = False
        E.masked_fill_(absent[:, :, None] | absent[:, None, :], 0.0)
        E.diagonal(dim1=1, dim2=2).masked_fill_(absent, 1.0)
        C, failed = torch.linalg.cholesky_ex(E)  # its last row is the point given its neighbours
        A = torch.linalg.solve_triangular(C[:, :-1, :-1].mT, C[:, -1, :-1, None], upper=True)[..., 0]
        scale = 1.0 / C[:, -1, -1]
        lost = failed != 0  # what is left is mostly rounding: the point stands for itself
        values[rows, :-1] = (A * -scale[:, None]).masked_fill_(lost[:, None], 0.0)
        values[rows, -1] = torch.where(lost, own.clamp_min(operator.noise_variance).rsqrt(), scale)
    return values


class _Sparse:
    """A matrix with entries ``values`` (n, k) in the columns ``columns`` (n, k) of its rows."""

    def __init__(self, columns: Tensor, values: Tensor) -> None:
        n, k = columns.shape
        rows = torch.arange(0, n * k + 1, k, device=columns.device)
        self._matrix = _csr(rows, columns.reshape(-1), values.reshape(-1), n)
        self._columns = columns

    def transposed(self) -> _Transposed:
        return _Transposed(self._columns, self._matrix.values())

    def matmul(self, R: Tensor) -> Tensor:
        return self._matrix @ R


class _Transposed(_Sparse):
    """The transpose of such a matrix, by rows of its own: products with it are sums in a fixed order."""

    def __init__(self, columns: Tensor, values: Tensor) -> None:
        n, k = columns.shape
        place = columns.reshape(-1).sort(stable=True)
        counts = torch.bincount(place.values, minlength=n)
        rows = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self._matrix = _csr(rows, place.indices // k, values[place.indices], n)


def _csr(rows: Tensor, columns: Tensor, values: Tensor, n: int) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return torch.sparse_csr_tensor(rows.int(), columns.int(), values, (n, n), check_invariants=False)
