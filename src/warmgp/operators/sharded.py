"""H over several processes: each works on its rows, and they exchange what :mod:`warmgp.processes` moves.

Inputs x are on every process. Of what a solver keeps, (n, 1 + s) each, a process has its own rows: a product with all
of H gathers one such array, one with some columns of H needs nothing that is not there, and rows of H are summed over
the processes. What is asked from outside of a solver has all rows, on every process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import Index, index_size, part_of
from warmgp.operators.part import Answer, Part
from warmgp.processes import Team

FEW = 64
"""Rows for each process below which a product is done by every one of them, instead of by parts that are gathered."""


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
    def part(self) -> Part:
        return Part(self.inner) if self.team.size == 1 else Shard(self)

    def at(self, theta: Hyperparameters) -> Self:
        return type(self)(self.inner.at(theta), self.team)

    def moved_to(self, theta: Hyperparameters) -> Self:
        return type(self)(self.inner.moved_to(theta), self.team)

    # -- the contract, for arrays of all rows --------------------------------------------------------------------------
    def matmul(self, V: Tensor) -> Tensor:
        if self.team.size == 1:
            return self.inner.matmul(V)
        return self.team.gather(self.inner.part_matmul(self.team.rows(self.n), slice(0, self.n), V), self.n)

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        return self._divided(index_size(index), lambda some: self.inner.rows_matmul(part_of(index, some), V))

    def cross_matmul(self, x_new: Tensor, V: Tensor) -> Tensor:
        return self._divided(len(x_new), lambda some: self.inner.cross_matmul(x_new[some], V))

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        return self.inner.columns_matmul(index, W)

    def block(self, index: Index) -> Tensor:
        return self.inner.block(index)

    def part_matmul(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        return self.inner.part_matmul(rows, columns, V)

    def dense(self, dtype: torch.dtype) -> Tensor:
        return self.inner.dense(dtype)

    def quadratic_gradient(self, A: Tensor, B: Tensor, weights: Tensor, *, share: tuple[int, int] = (0, 1)) -> Tensor:
        if share != (0, 1):
            raise ValueError("the processes share the gradient already")
        mine = self.inner.quadratic_gradient(A, B, weights, share=(self.team.rank, self.team.size))
        return self.team.sum(mine)

    def _divided(self, rows: int, product: Callable[[slice], Tensor]) -> Tensor:
        """Returns a product of so many rows, of which each process makes its own where they are many."""
        if rows < FEW * self.team.size or self.team.size == 1:
            return product(slice(0, rows))
        return self.team.gather(product(self.team.rows(rows)), rows)


class Shard(Part):
    """Does for the rows of one process what :class:`Part` does for all."""

    alone = False

    def __init__(self, operator: ShardedOperator) -> None:
        self.operator: KernelOperator = operator.inner
        self.team = operator.team
        self.size, self.rank = self.team.size, self.team.rank

    @property
    def here(self) -> slice:
        return self.team.rows(self.operator.n)

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

    def norms(self, R: Tensor) -> Tensor:
        squares = torch.linalg.vector_norm(R, dim=0, dtype=torch.float64).square()
        return self.team.sum(squares).sqrt().to(R.dtype)

    # -- products ----------------------------------------------------------------------------------------------------
    def matmul(self, V: Tensor) -> Tensor:
        return self.operator.part_matmul(self.here, slice(0, self.operator.n), self.whole(V))

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        return b - self.matmul(v)

    def rows_matmul(self, index: Tensor, V: Tensor) -> Tensor:
        return self.team.sum(self.operator.part_matmul(index, self.here, V))

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
