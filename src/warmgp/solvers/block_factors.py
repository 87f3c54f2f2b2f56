"""Cholesky factors and inverses of the diagonal blocks of one H, for alternating projections."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import ranges
from warmgp.operators.origin import Origin
from warmgp.solvers.triangular import factor_or_raise
from warmgp.solvers.triton.packed import pack_symmetric, packed_size, unpack_symmetric

SPOILT = 0.25
"""Relative error of a step in float32 above which blocks are solved in float64. Divergence was seen at 1."""


@dataclass
class BlockFactors:
    """Keeps Cholesky factors of the diagonal blocks of one H, made when first used, or inverses of all blocks at once.

    They are made in float64 and kept in ``dtype``: see :meth:`of`.
    """

    origin: Origin
    block_size: int
    dtype: torch.dtype
    factors: dict[int, Tensor] = field(default_factory=dict)
    inverses: Tensor | None = None  # (blocks, packed size): see :mod:`warmgp.solvers.triton.packed`

    @classmethod
    def of(cls, operator: KernelOperator, block_size: int) -> BlockFactors:
        """Returns an empty store, in the precision that :func:`block_dtype` says."""
        return cls(operator.origin, block_size, block_dtype(operator, block_size))

    def get(self, operator: KernelOperator, index: int, rows: slice) -> Tensor:
        """Returns the lower factor of H[rows, rows], (b, b), made when it is first asked for."""
        if index not in self.factors:
            factor = factor_or_raise(operator.block_in_float64(rows), _name(rows))
            self.factors[index] = factor.to(self.dtype)
        return self.factors[index]

    def inverse(self, index: Tensor) -> Tensor:
        """Returns the inverse, (b, b), of the block whose number is in ``index``, (1,), on the device.

        :meth:`all_inverses` has to be called before.
        """
        assert self.inverses is not None
        return unpack_symmetric(self.inverses.index_select(0, index)[0], self.block_size)

    def all_inverses(self, operator: KernelOperator) -> None:
        """Inverts every block, once. A short last block is filled up with the identity.

        Keeps the lower triangle of each inverse: n·b/2 numbers in all, and n·16 more for whole tiles.
        """
        if self.inverses is None:
            b = self.block_size
            blocks = list(ranges(operator.n, b))
            self.inverses = torch.empty(len(blocks), packed_size(b), dtype=self.dtype, device=operator.device)
            for some in ranges(len(blocks), max(1, 2**24 // max(b**2, packed_size(b)))):  # 128 MiB of float64 at a time
                self.inverses[some] = pack_symmetric(self._inverted(operator, blocks[some]).to(self.dtype))

    def _inverted(self, operator: KernelOperator, blocks: list[slice]) -> Tensor:
        """Returns the inverses of those blocks in float64, (blocks, b, b)."""
        b = self.block_size
        batch = torch.eye(b, dtype=torch.float64, device=operator.device).repeat(len(blocks), 1, 1)
        for H, rows in zip(batch, blocks, strict=True):
            size = rows.stop - rows.start
            H[:size, :size] = operator.block_in_float64(rows)
        factor, info = torch.linalg.cholesky_ex(batch)
        if bool(info.any()):  # name one that failed
            worst = int(info.argmax())
            factor_or_raise(batch[worst], _name(blocks[worst]))
        del batch
        return torch.cholesky_inverse(factor)


def block_dtype(operator: KernelOperator, block_size: int) -> torch.dtype:
    """Returns the precision that blocks are solved in: float64 where float32 would spoil a step, so that it could
    diverge.

    A step is wrong by about ε times the condition number of its block, which is at most b s²/σ², with the least noise
    of a row.
    """
    wrong = torch.finfo(operator.dtype).eps * block_size * operator.signal_variance / operator.noise.least
    return torch.float64 if wrong > SPOILT else operator.dtype


def _name(rows: slice) -> str:
    return f"the block of rows {rows.start} to {rows.stop} of H"
