"""H stored whole: n² numbers, evaluated once, then every product is one matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import KernelOperator
from warmgp.operators.huge_pages import empty_matrix
from warmgp.operators.indices import Index, ranges, upper_tiles
from warmgp.operators.row_noise import RowNoise
from warmgp.operators.tall import tall_product

AT_ONCE = 2**21
"""Entries of scattered rows of H that are copied at once on a CPU. A copy of all rows of a block, 190 MB of 30,000
points, takes four times as long as its product, nearly all of it in getting the memory page by page."""


def dense_bytes(n: int, dtype: torch.dtype) -> int:
    """Returns the bytes of a stored H, (n, n)."""
    return n * n * dtype.itemsize


class DenseOperator(KernelOperator):
    """Keeps H(θ) in memory, n² numbers built on first use. See :class:`KernelOperator`."""

    def __init__(
        self, x: Tensor, kernel: Kernel, theta: Hyperparameters, *, tile_entries: int | None = None,
        rows: RowNoise | None = None,
    ) -> None:  # fmt: skip
        super().__init__(x, kernel, theta, tile_entries=tile_entries, rows=rows)
        self._H: Tensor | None = None
        self._memory: Tensor | None = None  # that of an H which is not needed any more

    def moved_to(self, theta: Hyperparameters) -> Self:
        """Returns the operator at another θ, in the memory of this one's H, which must not be used any more."""
        other = self.at(theta)
        other._memory, self._H, self._memory = self._H if self._memory is None else self._memory, None, None
        return other

    @property
    def H(self) -> Tensor:
        """The whole matrix, (n, n). Do not write into it."""
        if self._H is None:
            H = self._memory
            if H is None:
                H = empty_matrix(self.shape, self.dtype, self.device)
            for rows, columns in upper_tiles(self.n, self.tile_entries):
                tile = self._kernel_tile(rows, columns)
                H[rows, columns] = tile
                H[columns, rows] = tile.T
            H.diagonal().add_(self.noise.at())
            self._H, self._memory = H, None
        return self._H

    def take(self) -> Tensor:
        """Hands H over to the caller, who may overwrite it; the operator forgets it."""
        H, self._H = self.H, None
        return H

    def dense(self, dtype: torch.dtype) -> Tensor:
        kept = dtype == self.dtype and self._H is not None
        return self.H.clone() if kept else super().dense(dtype)

    def matmul(self, V: Tensor) -> Tensor:
        return tall_product(self.H, V)

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        if not self._in_pieces(index):
            return tall_product(self.H[index], V)
        return torch.cat([tall_product(some, V) for some in self._pieces(index)])

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        if not self._in_pieces(index):
            return tall_product(self.H[index].T, W)  # H is symmetric, and its rows are contiguous
        assert isinstance(index, Tensor)
        turned = W.T.contiguous()
        out = W.new_empty(W.shape[1], self.n)
        for columns in ranges(self.n, max(64, AT_ONCE // len(index))):
            torch.mm(turned, self.H[:, columns].index_select(0, index), out=out[:, columns])
        return out.T.contiguous()

    def part_matmul(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        return tall_product(self.H[rows][:, columns], V)

    def block(self, index: Index) -> Tensor:
        if isinstance(index, slice):
            return self.H[index, index].clone()
        return self.H[index[:, None], index]

    def _in_pieces(self, index: Index) -> bool:
        """Says whether rows of H are copied some at a time: scattered ones, on a CPU."""
        return self.device.type == "cpu" and not isinstance(index, slice) and len(index) * self.n > AT_ONCE

    def _pieces(self, index: Index) -> Iterator[Tensor]:
        """Yields some rows of H at a time: a copy, which the next one overwrites."""
        assert isinstance(index, Tensor)
        buffer = self.H.new_empty(max(1, AT_ONCE // self.n), self.n)
        for places in ranges(len(index), len(buffer)):
            yield torch.index_select(self.H, 0, index[places], out=buffer[: places.stop - places.start])
