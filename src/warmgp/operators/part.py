"""The rows of H that a process works on, and what is done with arrays of n rows: all of it goes through here.

Targets, solutions, probes and all that a solver keeps are by the rows of their process, in a solve and around it.
:class:`Part` is for a process alone, which has all rows: nothing is moved, nothing is copied.
:class:`~warmgp.operators.sharded.Shard` is for one of several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from warmgp.operators.indices import Index

if TYPE_CHECKING:
    from warmgp.operators.base import KernelOperator


Answer = TypeVar("Answer")


class Part:
    """Does for all rows of H what training needs of the rows of its process."""

    alone = True  # whether there is no other process
    size, rank = 1, 0

    def __init__(self, operator: KernelOperator) -> None:
        self.operator = operator

    @property
    def here(self) -> slice:
        """The rows of this process."""
        return slice(0, self.operator.n)

    def in_float64(self, x: Tensor | None = None) -> Part:
        """Returns the same rows of H in float64; x (n, d) are the inputs before they were rounded, if these differ."""
        return Part(self.operator.in_float64(x=x))

    # -- arrays ------------------------------------------------------------------------------------------------------
    def own(self, A: Tensor) -> Tensor:
        """Returns the rows of this process, of an array (n, c) that has all of them."""
        return A

    def whole(self, A: Tensor) -> Tensor:
        """Returns all rows, (n, c), of an array of which each process has its own."""
        return A

    def take(self, A: Tensor, index: Index) -> Tensor:
        """Returns the rows ``index`` of all, (b, c), on every process."""
        return A[index] if isinstance(index, slice) else A.index_select(0, index)

    def add(self, A: Tensor, index: Index, W: Tensor) -> None:
        """Adds W (b, c) to the rows ``index`` of A, in place."""
        if isinstance(index, slice):
            A[index] += W
        else:
            A.index_add_(0, index, W)

    def put(self, A: Tensor, index: Tensor, W: Tensor) -> None:
        """Writes W (b, c) to the rows ``index`` of A."""
        A.index_copy_(0, index, W)

    # -- sums over rows ----------------------------------------------------------------------------------------------
    def sum(self, values: Tensor) -> Tensor:
        """Returns the sum over all processes of what each has summed over its own rows."""
        return values

    def largest(self, A: Tensor) -> Tensor:
        """Returns the largest size of a number in each column of an array, (c,)."""
        return A.abs().amax(0)

    def norms(self, R: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Returns the norms of the columns of an array, (c,), in that dtype, by default its own."""
        return torch.linalg.vector_norm(R, dim=0, dtype=dtype)

    def root_mean_squares(self, R: Tensor) -> Tensor:
        """Returns the root mean square of each column of an array, (c,)."""
        return R.square().mean(0).sqrt()

    def all_finite(self, A: Tensor) -> bool:
        """Says whether all numbers of an array are finite."""
        return bool(torch.isfinite(A).all())

    # -- products ----------------------------------------------------------------------------------------------------
    def matmul(self, V: Tensor) -> Tensor:
        """Returns the own rows of H V."""
        return self.operator.matmul(V)

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        """Returns the own rows of b − H v."""
        return self.operator.residual(b, v)

    def rows_matmul(self, index: Tensor, V: Tensor) -> Tensor:
        """Returns H[index, :] V, (b, c), on every process."""
        return self.operator.rows_matmul(index, V)

    def cross_matmul(self, x_new: Tensor, V: Tensor) -> Tensor:
        """Returns K(x_new, x) V, (m, c), on every process."""
        return self.operator.cross_matmul(x_new, V)

    def quadratic_gradient(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        """Returns ∂/∂θ Σ_c weights_c a_cᵀ H(θ) b_c, (2 + d,) in float64, on every process, for A and B of (n, c)."""
        return self.operator.quadratic_gradient(A, B, weights)

    def subtract_columns(self, R: Tensor, index: Index, W: Tensor) -> None:
        """Subtracts the own rows of H[:, index] W from R in place, for W of (b, c)."""
        if isinstance(index, slice):
            R -= self.operator.columns_matmul(index, W)
        else:
            self.operator.subtract_columns_at(R, index, W)

    # -- decisions ---------------------------------------------------------------------------------------------------
    def agreed(self, answer: Answer) -> Answer:
        """Returns rank 0's answer: processes whose last digits differ must not part ways."""
        return answer

    def by_first(self, answer: Callable[[], bool]) -> bool:
        """Returns what rank 0 answers; an error of it is raised by all."""
        return answer()

    def every(self, values: Tensor) -> Tensor:
        """Returns what each process has, (size, …), for values of one shape."""
        return values[None]

    def owner(self, row: int) -> int:
        """Returns the rank of the process that has a row."""
        return 0

    def from_rank(self, rank: int, make: Callable[[], Tensor], like: Tensor) -> Tensor:
        """Returns what one process makes, in the shape and dtype of ``like``."""
        return make()
