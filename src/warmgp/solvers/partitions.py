"""Partitions of the rows into blocks of near points, and the inverse of H on every block, for recombined projections.

What a block of points leaves unexplained of one of its members is small where they are near each other, by the length
scales of H: a random block of 4,000 among 500,000 points of houseelectric left 300 noise variances of a point, and
20 epochs on near blocks leave less than 80 epochs on random ones (`benchmarks/results/README.md`). The partitions
differ: each comes from a tree of cuts along random directions, so that points apart in one are together in another, and
no order of the rows plays a part. All stretches begin elsewhere each time, too: with one input there is one direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import ranges
from warmgp.operators.near_order import even_ends, near_order
from warmgp.solvers.block_factors import block_dtype
from warmgp.solvers.triangular import factor_or_raise, inverse_factors, solve_with_factor

ALIGNED = 32
"""The rows of a block are a multiple of this, unless there is one block: products are faster for it."""


MOVED_FROM = 8
"""The even blocks from which on there is one more, so that all of them can begin elsewhere each time. Where one input
alone tells points apart, directions do not: the cuts were always the same, and a solve for 12,000 points of a time
series took 51 epochs instead of 5."""


def partition_shape(n: int, block_size: int) -> tuple[int, int]:
    """Returns the number of blocks into which n rows are divided, and the rows of each: at most ``block_size``, but for
    what makes it a multiple of ``ALIGNED``."""
    even = -(-n // min(block_size, n))
    return even + (even >= MOVED_FROM and n >= even * ALIGNED), min(n, -(-n // (even * ALIGNED)) * ALIGNED)


@dataclass(frozen=True)
class Partition:
    """Holds one partition of the rows into blocks of b: they overlap where b does not divide n, and at both ends, which
    a projection does not mind.

    Attributes
    ----------
    index : Tensor, (blocks, b)
        The numbers of the rows of each block.
    """

    index: Tensor

    @classmethod
    def draw(cls, operator: KernelOperator, block_size: int, generator: torch.Generator) -> Partition:
        """Draws a partition into blocks of at most that many rows, near each other by the length scales of H."""
        n = operator.n
        blocks, b = partition_shape(n, block_size)
        ends = even_ends(n, blocks)
        if blocks > -(-n // min(block_size, n)):  # one more than needed: the outer two share the rows of one
            share = 0.05 + 0.9 * torch.rand((), dtype=torch.float64, generator=generator)
            ends = ((torch.arange(blocks) + share) * (n / (blocks - 1))).round().long().clamp_max_(n)
        first = torch.cat([torch.zeros(1, dtype=torch.int64), ends[:-1]]).clamp_max_(n - b)
        z = operator.x / operator.theta.length_scales.to(operator.x, non_blocking=True)
        places = first.to(z.device, non_blocking=True)[:, None] + torch.arange(b, device=z.device)  # (blocks, b)
        return cls(near_order(z, ends, generator)[places])

    def factors(self, operator: KernelOperator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the rows of each block in turn, (b,), and its lower Cholesky factor, (b, b): for a CPU."""
        dtype = block_dtype(operator, self.index.shape[1])
        for rows in self.index:
            yield rows, factor_or_raise(operator.block_in_float64(rows), "a block of H").to(dtype)

    def solver_of(self, operator: KernelOperator, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """Returns what solves exactly on one block, for a residual (b, c): by its factor, on a GPU by X = L⁻¹."""
        dtype = block_dtype(operator, len(rows))
        if operator.device.type == "cpu":
            factor = factor_or_raise(operator.block_in_float64(rows), "a block of H").to(dtype)
            return lambda residual: solve_with_factor(factor, residual.to(dtype)).to(residual.dtype)
        factors, wrong = inverted(operator, rows[None])
        check_factors(operator, rows[None], wrong)
        factor = factors[0].to(dtype)  # X = L⁻¹
        return lambda residual: (factor.mT @ (factor @ residual.to(dtype))).to(residual.dtype)


@dataclass(frozen=True)
class Batch:
    """Holds some blocks of a partition and the factors of their inverses.

    Attributes
    ----------
    index : Tensor, (k, b)
        The numbers of the rows of each block.
    factors : Tensor, (k, b, b)
        X = L⁻¹ of each block L Lᵀ, whose inverse is XᵀX.
    wrong : Tensor, ()
        Whether one of the blocks has no factor.
    """

    index: Tensor
    factors: Tensor
    wrong: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that it holds on a device."""
        return self.index, self.factors, self.wrong


def inverted_blocks(
    operator: KernelOperator, block_size: int, generator: torch.Generator, together: int
) -> Iterator[Batch]:
    """Yields blocks of one partition after another without end, k = ``together`` at once, with factors of their
    inverses: for a GPU, where products are fast and substitution is not. Nothing waits for the device."""
    while True:
        index = Partition.draw(operator, block_size, generator).index
        dtype = block_dtype(operator, index.shape[1])
        for some in ranges(len(index), together):
            factors, wrong = inverted(operator, index[some])
            factors = factors.to(dtype)
            yield Batch(index[some], factors, wrong)
            del factors  # before the next are made


def inverted(operator: KernelOperator, index: Tensor) -> tuple[Tensor, Tensor]:
    """Returns X = L⁻¹ of each block L Lᵀ, (k, b, b) in float64 for rows ``index`` (k, b), and whether one has none."""
    return inverse_factors(operator.blocks(index), by_triton=operator.uses_triton)


def check_factors(operator: KernelOperator, index: Tensor, wrong: Tensor) -> None:
    """Raises LinAlgError where one of the blocks, (k, b), has no factor, as ``wrong`` says of parts of them. Waits for
    the device."""
    if bool(wrong.any()):
        for rows in index:  # name one that failed
            factor_or_raise(operator.blocks(rows[None])[0], "a block of H")
        raise torch.linalg.LinAlgError("a block of H is so nearly singular that it has no inverse: raise noise_floor")


class Attempt:
    """Solves exactly on one block, whose factor is made at once; where it has none, that is said when it is asked."""

    def __init__(self, partition: Partition, operator: KernelOperator, rows: Tensor) -> None:
        self._failed: torch.linalg.LinAlgError | None = None
        try:
            self._solve = partition.solver_of(operator, rows)
        except torch.linalg.LinAlgError as error:
            self._failed = error

    def __call__(self, residual: Tensor) -> Tensor:
        """Returns the step for a residual, (b, c)."""
        if self._failed is not None:
            raise self._failed
        return self._solve(residual)
