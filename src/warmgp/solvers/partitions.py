"""Random partitions of the rows into blocks, and the inverse of H on every block, for recombined projections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator, ranges
from warmgp.solvers.block_factors import block_dtype, block_in_float64
from warmgp.solvers.triangular import factor_or_raise, inverse_by_halves, solve_with_factor


@dataclass
class Partition:
    """Holds one random partition of the rows, and what solves its blocks.

    All blocks have b rows: the last ones overlap where b does not divide n, which a projection does not mind.

    Attributes
    ----------
    index : Tensor, (blocks, b)
        The numbers of the rows of each block.
    inverses : Tensor or None, (blocks, b, b)
        The inverses of all blocks, on a GPU: products are fast there, and substitution is not.
    factors : dict
        The lower Cholesky factors of blocks by their number, on a CPU, made when first used.
    """

    index: Tensor
    inverses: Tensor | None = None
    factors: dict[int, Tensor] = field(default_factory=dict)

    @classmethod
    def draw(cls, operator: KernelOperator, block_size: int, generator: torch.Generator) -> Partition:
        """Draws a partition into blocks of that many rows, at most n."""
        n, b = operator.n, min(block_size, operator.n)
        blocks = -(-n // b)
        first = torch.linspace(0, n - b, blocks, dtype=torch.float64).round().long()
        rows = torch.randperm(n, generator=generator)[first[:, None] + torch.arange(b)]
        return cls(rows.to(operator.device))

    def steps(self, operator: KernelOperator, *, keep: bool, together: int = 1) -> Iterator[tuple[Tensor, Solves]]:
        """Yields the rows of each block in turn, and what solves it.

        With ``keep`` the factors or inverses stay for the next sweep at this θ; without it they are gone once the
        blocks are done, and a sweep needs memory for a few blocks only: for ``together`` of them on a GPU.
        """
        dtype = block_dtype(operator, self.index.shape[1])
        if operator.device.type == "cpu":
            for number, rows in enumerate(self.index):
                factor = self.factors.get(number)
                if factor is None:
                    factor = factor_or_raise(block_in_float64(operator, rows), "a block of H").to(dtype)
                    if keep:
                        self.factors[number] = factor
                yield rows, Substituted(factor)
            return
        if keep and self.inverses is None:
            shape = (*self.index.shape, self.index.shape[1])
            self.inverses = torch.empty(shape, dtype=dtype, device=self.index.device)
            for some in ranges(len(self.index), together):
                self.inverses[some] = self._inverted(operator, some)
        for some in ranges(len(self.index), together):
            inverses = self._inverted(operator, some).to(dtype) if self.inverses is None else self.inverses[some]
            for rows, inverse in zip(self.index[some], inverses, strict=True):
                yield rows, Multiplied(inverse)

    def _inverted(self, operator: KernelOperator, some: slice) -> Tensor:
        """Returns the inverses of some blocks in float64, (some, b, b), made all at once."""
        batch = operator.blocks(self.index[some])
        inverses, failed = inverse_by_halves(batch)
        if bool(failed):  # name one that failed
            for H in batch:
                factor_or_raise(H, "a block of H")
        return inverses


@dataclass(frozen=True)
class Substituted:
    """Solves one block by substitution with its lower Cholesky factor, (b, b)."""

    factor: Tensor

    def __call__(self, r: Tensor) -> Tensor:
        return solve_with_factor(self.factor, r.to(self.factor.dtype)).to(r.dtype)


@dataclass(frozen=True)
class Multiplied:
    """Solves one block by a product with its inverse, (b, b)."""

    inverse: Tensor

    def __call__(self, r: Tensor) -> Tensor:
        return (self.inverse @ r.to(self.inverse.dtype)).to(r.dtype)


Solves = Substituted | Multiplied
