"""Partitions of the rows into blocks of near points, and the inverse of H on every block, for recombined projections.

What a block of points leaves unexplained of one of its members is small where they are near each other, by the length
scales of H: a random block of 4,000 among 500,000 points of houseelectric left 300 noise variances of a point, and
20 epochs on near blocks leave less than 80 epochs on random ones (`benchmarks/results/README.md`). The partitions
differ: each comes from a tree of cuts along random directions, so that points apart in one are together in another, and
no order of the rows plays a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator, ranges
from warmgp.solvers.block_factors import block_dtype, block_in_float64
from warmgp.solvers.triangular import factor_or_raise, inverse_by_halves

ALIGNED = 32
"""The rows of a block are a multiple of this, unless there is one block: products are faster for it."""

SEEN = 64
"""Points of a part that its spread is measured on."""


@dataclass(frozen=True)
class Partition:
    """Holds one partition of the rows into blocks of b: they overlap where b does not divide n, which a projection does
    not mind.

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
        blocks = -(-n // min(block_size, n))
        b = min(n, -(-n // (blocks * ALIGNED)) * ALIGNED)
        first = torch.linspace(0, n - b, blocks, dtype=torch.float64).round().long()
        z = operator.x / operator.theta.length_scales.to(operator.x)
        return cls(near_order(z, blocks, generator)[(first[:, None] + torch.arange(b)).to(operator.device)])

    def factors(self, operator: KernelOperator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the rows of each block in turn, (b,), and its lower Cholesky factor, (b, b): for a CPU."""
        dtype = block_dtype(operator, self.index.shape[1])
        for rows in self.index:
            yield rows, factor_or_raise(block_in_float64(operator, rows), "a block of H").to(dtype)

    def inverses(self, operator: KernelOperator, together: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the rows of some blocks, (k, b), and their inverses, (k, b, b), k = ``together`` at once: for a GPU,
        where products are fast and substitution is not."""
        dtype = block_dtype(operator, self.index.shape[1])
        for some in ranges(len(self.index), together):
            yield self.index[some], self._inverted(operator, some).to(dtype)

    def _inverted(self, operator: KernelOperator, some: slice) -> Tensor:
        """Returns the inverses of some blocks in float64, (some, b, b), made all at once."""
        batch = operator.blocks(self.index[some])
        inverses, failed = inverse_by_halves(batch)
        if bool(failed):  # name one that failed
            for H in batch:
                factor_or_raise(H, "a block of H")
        return inverses


def near_order(z: Tensor, blocks: int, generator: torch.Generator) -> Tensor:
    """Returns an order of the points z, (n, d), in which each of so many equal stretches holds points near each other.

    A tree cuts the points in two, each part in two again, until a part is one stretch: each time in the middle, along
    a random direction in which wide inputs weigh more.
    """
    n, device = z.shape[0], z.device
    order = torch.randperm(n, generator=generator).to(device)
    counts = [blocks]  # stretches in each part
    while max(counts) > 1:
        ends = torch.tensor(counts).cumsum(0) * n // blocks
        sizes = torch.diff(ends, prepend=torch.zeros(1, dtype=torch.int64))
        part = torch.repeat_interleave(sizes.to(device), output_size=n)  # of each place, (n,)
        seen = (ends - sizes)[:, None] + sizes[:, None] * torch.arange(SEEN) // SEEN  # (parts, SEEN)
        spread = z[order[seen.to(device)]].std(1)  # (parts, d)
        direction = spread * torch.randn(len(counts), z.shape[1], generator=generator).to(z)
        along = torch.linalg.vecdot(z[order], direction[part])
        sorted_along = along.argsort(stable=True)
        order = order[sorted_along[part[sorted_along].argsort(stable=True)]]
        counts = [half for count in counts for half in ((count // 2, count - count // 2) if count > 1 else (count,))]
    return order
