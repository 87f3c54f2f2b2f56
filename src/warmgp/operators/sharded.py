"""H over several processes: each works on its rows, and they exchange what :mod:`warmgp.processes` moves.

Inputs x are on every process. Of arrays of n rows, (n, 1 + s) each, a process has its own rows: a product with all of H
gathers one such array, in panels; one with some columns of H needs nothing that is not there; rows of H are summed over
the processes. The gradient needs all pairs of rows: each two processes share those between them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator
from warmgp.operators.factory import make_operator
from warmgp.operators.indices import Index, index_size
from warmgp.operators.part import Answer, Part
from warmgp.operators.row_noise import rows_at
from warmgp.operators.summing import sum_dtype
from warmgp.processes import Piece, Team


class ShardedOperator(KernelOperator):
    """Divides the work of another operator among the processes of a team.

    Parameters
    ----------
    inner : KernelOperator
        H on all inputs: dense, chunked or fused. A dense one is kept whole by every process.
    team : Team
    """

    def __init__(self, inner: KernelOperator, team: Team) -> None:
        vars(self).update(vars(inner))  # the same inputs, noise and count of entries
        self.inner, self.team = inner, team

    @property
    def entry_size(self) -> float:
        return self.inner.entry_size if self.team.size == 1 else 1.0  # sums of parts are rounded before they are added

    @property
    def sums_count(self) -> bool:
        return self.inner.sums_count

    @property
    def part(self) -> Part:
        return Part(self.inner) if self.team.size == 1 else Shard(self)

    def at(self, theta: Hyperparameters) -> Self:
        return type(self)(self.inner.at(theta), self.team)

    def moved_to(self, theta: Hyperparameters) -> Self:
        return type(self)(self.inner.moved_to(theta), self.team)

    @cached_property
    def mine(self) -> KernelOperator:
        """H of the rows of this process alone."""
        rows, kind = self.team.rows(self.n), "fused" if self.inner.uses_triton else "chunked"
        made = make_operator(
            kind, self.x[rows], self.kernel, self.theta, tile_entries=self.tile_entries, rows=rows_at(self.rows, rows)
        )
        made._counter = self._counter
        return made

    # -- the contract: of all rows, by this process alone --------------------------------------------------------------
    def matmul(self, V: Tensor) -> Tensor:
        return self.inner.matmul(V)

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        return self.inner.residual(b, v)

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        return self.inner.rows_matmul(index, V)

    def cross_matmul(self, x_new: Tensor, V: Tensor) -> Tensor:
        return self.inner.cross_matmul(x_new, V)

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        return self.inner.columns_matmul(index, W)

    def kernel_matmul(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        return self.inner.kernel_matmul(rows, columns, V)

    def block(self, index: Index) -> Tensor:
        return self.inner.block(index)

    def part_matmul(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        return self.inner.part_matmul(rows, columns, V)

    def dense(self, dtype: torch.dtype) -> Tensor:
        return self.inner.dense(dtype)

    def quadratic_gradient(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        return self.inner.quadratic_gradient(A, B, weights)


class Shard(Part):
    """Does for the rows of one process what :class:`Part` does for all."""

    alone = False

    def __init__(self, operator: ShardedOperator) -> None:
        self.operator: KernelOperator = operator.inner
        self.sharded, self.team = operator, operator.team
        self.size, self.rank = self.team.size, self.team.rank

    @property
    def here(self) -> slice:
        return self.team.rows(self.operator.n)

    def in_float64(self, x: Tensor | None = None) -> Part:
        return ShardedOperator(self.operator.in_float64(x=x), self.team).part

    # -- arrays ------------------------------------------------------------------------------------------------------
    def own(self, A: Tensor) -> Tensor:
        return A[self.here]

    def whole(self, A: Tensor) -> Tensor:
        return self.team.gather(A, self.operator.n)

    def take(self, A: Tensor, index: Index) -> Tensor:
        places, local = self._mine(index, A.device)
        rows = A.new_zeros(index_size(index), A.shape[1])
        rows[places] = A[local]
        return self.team.sum(rows)

    def add(self, A: Tensor, index: Index, W: Tensor) -> None:
        places, local = self._mine(index, A.device)
        A.index_add_(0, local, W[places])

    def put(self, A: Tensor, index: Tensor, W: Tensor) -> None:
        places, local = self._mine(index, A.device)
        A.index_copy_(0, local, W[places])

    def _mine(self, index: Index, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns which of the rows ``index`` are of this process: their places in it, and their own numbers here."""
        rows = torch.arange(index.start, index.stop, device=device) if isinstance(index, slice) else index
        places = ((rows >= self.here.start) & (rows < self.here.stop)).nonzero()[:, 0]
        return places, rows[places] - self.here.start

    # -- sums over rows ----------------------------------------------------------------------------------------------
    def sum(self, values: Tensor) -> Tensor:
        return self.team.sum(values)

    def largest(self, A: Tensor) -> Tensor:
        own = A.abs().amax(0) if len(A) else A.new_zeros(A.shape[1:])
        return self.team.every(own).amax(0)

    def norms(self, R: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        squares = torch.linalg.vector_norm(R, dim=0, dtype=torch.float64).square()
        return self.team.sum(squares).sqrt().to(dtype or R.dtype)

    def root_mean_squares(self, R: Tensor) -> Tensor:
        return self.norms(R) / self.operator.n**0.5

    def all_finite(self, A: Tensor) -> bool:
        return not int(self.team.sum((~torch.isfinite(A)).sum()))

    # -- products ----------------------------------------------------------------------------------------------------
    def matmul(self, V: Tensor) -> Tensor:
        n, out = self.operator.n, None
        for panel in self.team.panels(V, n):
            for columns, values in _joined(panel, n):
                found = self.operator.part_matmul(self.here, columns, values)
                if columns == slice(0, n):
                    return found
                out = found.to(sum_dtype(V)) if out is None else out.add_(found)
        assert out is not None
        return out.to(V.dtype)

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        return b - self.matmul(v)

    def rows_matmul(self, index: Tensor, V: Tensor) -> Tensor:
        return self.team.sum(self.operator.part_matmul(index, self.here, V))

    def cross_matmul(self, x_new: Tensor, V: Tensor) -> Tensor:
        none = V.new_zeros(len(x_new), V.shape[1])
        return self.team.sum(self.sharded.mine.cross_matmul(x_new, V) if len(V) else none)

    def quadratic_gradient(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        n, here, c = self.operator.n, self.here, A.shape[1]
        both = A if A is B else torch.cat([A, B], 1)
        total = torch.zeros(2 + self.operator.theta.length_scales.numel(), dtype=torch.float64)
        if len(A):
            total += self.sharded.mine.quadratic_gradient(A, B, weights)
        for panel in self.team.panels(both, n):
            for piece in panel:
                rows, columns = pairs(self.team, here, piece, n)
                if index_size(rows) == 0 or index_size(columns) == 0:
                    continue
                its = piece.values[columns.start - piece.rows.start : columns.stop - piece.rows.start]
                values = torch.cat([both[rows.start - here.start : rows.stop - here.start], its])
                left, right = (values, values) if A is B else (values[:, :c], values[:, c:])
                total += self.operator.cross_gradient(rows, columns, left, right, weights)
        return self.team.sum(total)

    def subtract_columns(self, R: Tensor, index: Index, W: Tensor) -> None:
        R -= self.operator.part_matmul(self.here, index, W)

    # -- decisions ---------------------------------------------------------------------------------------------------
    def agreed(self, answer: Answer) -> Answer:
        return self.team.from_first(lambda: answer)

    def by_first(self, answer: Callable[[], bool]) -> bool:
        return self.team.from_first(answer)

    def every(self, values: Tensor) -> Tensor:
        return self.team.every(values)

    def owner(self, row: int) -> int:
        return self.team.owner(row, self.operator.n)

    def from_rank(self, rank: int, make: Callable[[], Tensor], like: Tensor) -> Tensor:
        return self.team.from_rank(rank, make, like)


def pairs(team: Team, here: slice, piece: Piece, n: int) -> tuple[slice, slice]:
    """Returns the rows of this process and those of a piece of another's whose pairs this process sums: all of the
    pairs between two processes are summed by one of them, half of them by each, or none by this one.

    A process takes those with the processes after it, in a circle, as far as half way round; the pairs with the one
    just opposite are halved: by the rows of the one of the higher rank.
    """
    ahead, none = 2 * ((piece.rank - team.rank) % team.size), slice(here.start, here.start)
    if piece.rank == team.rank or ahead > team.size:
        return none, piece.rows
    if ahead < team.size:
        return here, piece.rows
    later = team.rows(n, max(team.rank, piece.rank))
    half = (later.start + later.stop) // 2
    if piece.rank < team.rank:
        return slice(half, here.stop), piece.rows
    return here, slice(piece.rows.start, max(piece.rows.start, min(piece.rows.stop, half)))


def _joined(panel: list[Piece], n: int) -> list[tuple[slice, Tensor]]:
    """Returns the pieces of a panel as (rows, values): as one where they are all n rows."""
    if sum(index_size(piece.rows) for piece in panel) == n:
        return [(slice(0, n), torch.cat([piece.values for piece in panel]))]
    return [(piece.rows, piece.values) for piece in panel]
