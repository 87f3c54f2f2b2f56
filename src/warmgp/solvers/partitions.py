"""Partitions of the rows into blocks of near points, and the inverse of H on every block, for recombined projections.

What a block of points leaves unexplained of one of its members is small where they are near each other, by the length
scales of H: a random block of 4,000 among 500,000 points of houseelectric left 300 noise variances of a point, and
20 epochs on near blocks leave less than 80 epochs on random ones (`benchmarks/results/README.md`). The partitions
differ: each comes from a tree of cuts along random directions, so that points apart in one are together in another, and
no order of the rows plays a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator, ranges
from warmgp.solvers.block_factors import block_dtype
from warmgp.solvers.triangular import factor_or_raise, inverse_by_halves, solve_with_factor

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
        z = operator.x / operator.theta.length_scales.to(operator.x, non_blocking=True)
        places = first.to(z.device, non_blocking=True)[:, None] + torch.arange(b, device=z.device)  # (blocks, b)
        return cls(near_order(z, blocks, generator)[places])

    def factors(self, operator: KernelOperator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the rows of each block in turn, (b,), and its lower Cholesky factor, (b, b): for a CPU."""
        dtype = block_dtype(operator, self.index.shape[1])
        for rows in self.index:
            yield rows, factor_or_raise(operator.block_in_float64(rows), "a block of H").to(dtype)

    def solver_of(self, operator: KernelOperator, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """Returns what solves exactly on one block, for a residual (b, c): by its factor, on a GPU by its inverse."""
        dtype = block_dtype(operator, len(rows))
        if operator.device.type == "cpu":
            factor = factor_or_raise(operator.block_in_float64(rows), "a block of H").to(dtype)
            return lambda residual: solve_with_factor(factor, residual.to(dtype)).to(residual.dtype)
        inverses, wrong = inverse_by_halves(operator.blocks(rows[None]))
        if bool(wrong.any()):
            factor_or_raise(operator.blocks(rows[None])[0], "a block of H")
        inverse = inverses[0].to(dtype)
        return lambda residual: (inverse @ residual.to(dtype)).to(residual.dtype)

    def inverses(self, operator: KernelOperator, together: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the rows of some blocks, (k, b), and their inverses, (k, b, b), k = ``together`` at once: for a GPU,
        where products are fast and substitution is not.

        Nothing waits for the device until the last block is used; where one has no inverse, the end raises.
        """
        dtype, failed = block_dtype(operator, self.index.shape[1]), []
        for some in ranges(len(self.index), together):
            inverses, wrong = inverse_by_halves(operator.blocks(self.index[some]))
            failed.append(wrong)
            yield self.index[some], inverses.to(dtype)
        if bool(torch.stack(failed).any()):
            for rows in self.index:  # name one that failed
                factor_or_raise(operator.blocks(rows[None])[0], "a block of H")


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


def near_order(z: Tensor, blocks: int, generator: torch.Generator) -> Tensor:
    """Returns an order of the points z, (n, d), in which each of so many equal stretches holds points near each other.

    A tree cuts the points in two, each part in two again, until a part is one stretch: each time in the middle, along
    a random direction in which wide inputs weigh more.
    """
    n = z.shape[0]

    def on_device(values: Tensor) -> Tensor:
        return values.to(z.device, non_blocking=True)  # the host does not wait

    order = on_device(torch.randperm(n, generator=generator))
    counts = [blocks]  # stretches in each part
    while max(counts) > 1:
        ends = torch.tensor(counts).cumsum(0) * n // blocks
        sizes = torch.diff(ends, prepend=torch.zeros(1, dtype=torch.int64))
        part = torch.repeat_interleave(on_device(sizes), output_size=n)  # of each place, (n,)
        seen = (ends - sizes)[:, None] + sizes[:, None] * torch.arange(SEEN) // SEEN  # (parts, SEEN)
        spread = z[order[on_device(seen)]].std(1)  # (parts, d)
        random = on_device(torch.randn(len(counts), z.shape[1], generator=generator))
        along = torch.linalg.vecdot(z[order], (spread * random.to(z.dtype))[part]).double()
        along *= 0.4 / along.abs().amax().clamp_min(torch.finfo(torch.float64).tiny)
        order = order[(along + part).argsort(stable=True)]  # by part, and within it along the direction
        counts = [half for count in counts for half in ((count // 2, count - count // 2) if count > 1 else (count,))]
    return order
