"""P = L Lᵀ + V ≈ H: a low rank for what is common to all points, near neighbours for what is left.

Given its m nearest earlier points N(i), the value at point i hardly depends on other earlier points, the more so the
less noise there is. So V, for what the low rank leaves of H, E = H − L Lᵀ, has the sparse inverse factor

    V⁻¹ = SᵀS,    S = D^(−½) (I − A),    A[i, N(i)] = E[i, N(i)] E[N(i), N(i)]⁻¹,    D_i = E_ii − A[i, :] E[:, i],

the best one with that pattern (Vecchia's). With S L = Q Cᵀ, C Cᵀ = I + (S L)ᵀ S L, it follows that

    P⁻¹ = Sᵀ (I − Q Qᵀ) S,    Q = S L C⁻ᵀ.

All of it is float64: P⁻¹ has eigenvalues from 1/σ² down to those of the smoothest functions, which float32 would lose
in rounding. Applying it costs 2(m + 1 + k)/n of a product with H, making it a few products' time at some thousand
points and a small part of one at many. On a GPU sparse products may add up in another order from run to run.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count
from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import ranges
from warmgp.schema import DOUBLE, TensorRule, check_tensors, expect
from warmgp.solvers.base import Packed
from warmgp.solvers.preconditioners.base import Preconditioner, Preconditioning, Recipe
from warmgp.solvers.preconditioners.low_rank import LowRank, PivotedCholesky, Pivots
from warmgp.solvers.preconditioners.neighbour_search import Neighbours

MOST_GROUPS = 2**15
"""The most small matrices that are factored at once: libraries have limits of their own."""


@dataclass(frozen=True)
class NearNeighbours(Preconditioning):
    """Makes a sparse factor from near neighbours, beside a low rank.

    Parameters
    ----------
    count : int
        Near points that a point is conditioned on.
    low : LowRank or None
        How L is made; None for no low rank.
    """

    count: int = 30
    low: LowRank | None = None

    name = "near neighbours"
    fast = True

    def __post_init__(self) -> None:
        check_count("count", self.count)

    def build(self, operator: KernelOperator) -> NeighbourFactor:
        low = None if self.low is None else self.low.build(operator)
        return NeighbourFactor(operator, Neighbours.seek(operator, self.count), low, self)

    def going_on(
        self, operator: KernelOperator, near: Neighbours, low: PivotedCholesky | Pivots | None
    ) -> NeighbourFactor:
        """Returns the factor at the operator's θ: with these neighbours while they serve, else with new ones."""
        moved = self._low_at(operator, low)
        return NeighbourFactor(operator, self._near_at(operator, near), moved, self)

    def unpack(
        self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]
    ) -> NeighbourRecipe:
        rule = {"neighbour_lengths": TensorRule(("l",), DOUBLE, positive=True)}
        lengths = check_tensors({name: tensors[name] for name in rule if name in tensors}, rule)["l"]
        expect(lengths in (1, shape[1]), "neighbour_lengths", f"{shape[1]} numbers or one", lengths)
        others = {name: tensor for name, tensor in tensors.items() if name not in rule}
        low = None
        if others or content:
            expect(self.low is not None, "pivots", "missing without a low rank", "there")
            assert self.low is not None
            low = self.low.unpack(others, content, shape)
        return NeighbourRecipe(tensors["neighbour_lengths"], low, self)

    def _low_at(self, operator: KernelOperator, low: PivotedCholesky | Pivots | None) -> PivotedCholesky | None:
        if self.low is None:
            return None
        made = self.low.at(operator, low)
        assert isinstance(made, PivotedCholesky)
        return made

    def _near_at(self, operator: KernelOperator, near: Neighbours) -> Neighbours:
        return near if near.still_serve(operator) else Neighbours.seek(operator, self.count)


@dataclass(frozen=True)
class NeighbourRecipe(Recipe):
    """Holds the length scales by which neighbours were sought, and the pivots of the low rank beside them."""

    length_scales: Tensor
    low: Pivots | None
    made_by: NearNeighbours

    def at(self, operator: KernelOperator) -> NeighbourFactor:
        near = Neighbours.seek(operator, self.made_by.count, self.length_scales)
        return self.made_by.going_on(operator, near, self.low)

    def pack(self) -> Packed:
        tensors, content = ({}, {}) if self.low is None else self.low.pack()
        return {"neighbour_lengths": self.length_scales, **tensors}, content


class NeighbourFactor(Preconditioner):
    """Applies P⁻¹ = Sᵀ (I − Q Qᵀ) S of one operator.

    Parameters
    ----------
    operator : KernelOperator
    neighbours : Neighbours
    low : PivotedCholesky or None
        The low rank, whose factor is L.
    made_by : NearNeighbours
    """

    made_by: NearNeighbours
    residual_may_rise = True

    def __init__(
        self, operator: KernelOperator, neighbours: Neighbours, low: PivotedCholesky | None, made_by: NearNeighbours
    ) -> None:
        self.origin = operator.origin
        self.neighbours = neighbours
        self.low = low
        self.made_by = made_by
        self._S, self._Qt = _factors(operator, neighbours.groups, _in_double(low, operator))
        self._St = self._S.transposed()

    def at(self, operator: KernelOperator) -> NeighbourFactor | None:
        if not self.origin.same_data(operator.origin):
            return None
        if self.origin.same(operator.origin):
            return self
        return self.made_by.going_on(operator, self.neighbours, self.low)

    @property
    def recipe(self) -> NeighbourRecipe:
        low = None if self.low is None else self.low.pivots
        return NeighbourRecipe(self.neighbours.length_scales, low, self.made_by)

    def apply(self, R: Tensor) -> Tensor:
        U = self._S.matmul(R.double())
        if self._Qt is not None:
            U.addmm_(self._Qt.T, self._Qt @ U, alpha=-1.0)
        return self._St.matmul(U).to(R.dtype)

    # -- S alone, for P = V without a low rank -----------------------------------------------------------------------
    def root(self, R: Tensor) -> Tensor:
        """Returns S R, (n, c), in float64."""
        return self._S.matmul(R.double())

    def root_transposed(self, R: Tensor) -> Tensor:
        """Returns SᵀR, (n, c), in float64."""
        return self._St.matmul(R.double())

    @property
    def root_log_determinant(self) -> float:
        """The logarithm of |S|, which is triangular in the order of the search: a point's own entry is its diagonal."""
        return float(self._S.own.log().sum())


def _in_double(low: PivotedCholesky | None, operator: KernelOperator) -> Tensor | None:
    """Returns L in float64, (n, k); None without a low rank, or where its pivots have become dependent.

    A factor that was made in float32 is made again from its pivots: what L leaves of H has to be known to a fraction
    of the noise.
    """
    if low is not None and operator.dtype != torch.float64 and low.pivots.age == 0:
        low = low.pivots.factor_at(operator)
    return None if low is None else low.unit_factor * operator.signal_variance**0.5


def _factors(operator: KernelOperator, groups: Tensor, L: Tensor | None) -> tuple[_Sparse, Tensor | None]:
    """Returns S and Qᵀ, (k, n).

    Leaves out L, with None for Qᵀ, where I − QQᵀ would be lost in rounding even in float64.
    """
    S = _Sparse(groups, _sparse_factor(operator, groups, L))
    if L is None:
        return S, None
    SL = S.matmul(L)  # (n, k)
    inner = SL.T @ SL
    inner.diagonal().add_(1.0)
    C, failed = torch.linalg.cholesky_ex(inner)
    rounding = torch.finfo(torch.float64).eps * operator.n**0.5 * float(inner.diagonal().max())
    if int(failed) != 0 or not rounding <= 0.1:
        return _factors(operator, groups, None)
    return S, torch.linalg.solve_triangular(C, SL.T, upper=False)


def _sparse_factor(operator: KernelOperator, groups: Tensor, L: Tensor | None) -> Tensor:
    """Returns the entries of S at the places of ``groups``, (n, m + 1), in float64; a point's own comes last."""
    n, size = groups.shape
    values = torch.zeros(n, size, dtype=torch.float64, device=groups.device)
    rank = 0 if L is None else L.shape[1]
    for rows in ranges(n, min(MOST_GROUPS, max(1, operator.tile_entries // (size * (size + rank))))):
        group = groups[rows]  # (p, m + 1)
        E = operator.group_kernels(group)
        if L is not None:
            near = L[group]  # (p, m + 1, k)
            E.baddbmm_(near, near.mT, alpha=-1.0)
        E.diagonal(dim1=1, dim2=2).add_(operator.noise.at(group))
        own = E[:, -1, -1].clone()
        absent = group == group[:, -1:]
        absent[:, -1] = False
        E.masked_fill_(absent[:, :, None] | absent[:, None, :], 0.0)
        E.diagonal(dim1=1, dim2=2).masked_fill_(absent, 1.0)
        C, failed = torch.linalg.cholesky_ex(E)  # its last row is the point given its neighbours
        A = torch.linalg.solve_triangular(C[:, :-1, :-1].mT, C[:, -1, :-1, None], upper=True)[..., 0]
        scale = 1.0 / C[:, -1, -1]
        alone = failed != 0  # what is left is mostly rounding: the point stands for itself
        values[rows, :-1] = (A * -scale[:, None]).masked_fill_(alone[:, None], 0.0)
        values[rows, -1] = torch.where(alone, own.clamp_min(operator.noise.at(group[:, -1])).rsqrt(), scale)
    return values


class _Sparse:
    """Holds a matrix, (n, n), with the entries ``values``, (n, k), in the columns ``columns``, (n, k), of its rows."""

    def __init__(self, columns: Tensor, values: Tensor) -> None:
        n, k = columns.shape
        rows = torch.arange(0, n * k + 1, k, device=columns.device)
        self._columns, self._values = columns, values
        self._matrix = _csr(rows, columns.reshape(-1), values.reshape(-1), n)

    @property
    def own(self) -> Tensor:
        """The last entry of every row, (n,): a point's own."""
        return self._values[:, -1]

    def matmul(self, R: Tensor) -> Tensor:
        return self._matrix @ R

    def transposed(self) -> _Transposed:
        return _Transposed(self._columns, self._values)


class _Transposed:
    """Holds the transpose of such a matrix, stored by its own rows: no sum waits for another."""

    def __init__(self, columns: Tensor, values: Tensor) -> None:
        n, k = columns.shape
        place = columns.reshape(-1).sort(stable=True)
        counts = torch.bincount(place.values, minlength=n)
        rows = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self._matrix = _csr(rows, place.indices // k, values.reshape(-1)[place.indices], n)

    def matmul(self, R: Tensor) -> Tensor:
        return self._matrix @ R


def _csr(rows: Tensor, columns: Tensor, values: Tensor, n: int) -> Tensor:
    if values.numel() >= 2**31:
        raise ValueError(f"neighbours: {values.numel():,} of them in all are too many; take fewer")
    with warnings.catch_warnings():
        # torch says that CSR is in beta, and how to switch on checks
        for known in ("Sparse CSR tensor support", "Sparse invariant checks"):
            warnings.filterwarnings("ignore", message=known)
        return torch.sparse_csr_tensor(rows.int(), columns.int(), values, (n, n), check_invariants=False)
