"""H never stored: every product evaluates the kernel tile by tile, for any n, on any torch device."""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import Index, index_size, ranges


class ChunkedOperator(KernelOperator):
    """Recomputes H(θ) at every product, tile by tile, and keeps none of it. See :class:`KernelOperator`."""

    def matmul(self, V: Tensor) -> Tensor:
        out = self.noise_variance * V
        for rows, columns in self._upper_tiles():
            tile = self._kernel_tile(rows, columns)
            out[rows].addmm_(tile, V[columns])
            if columns.start > rows.start:  # K is symmetric: the same tile serves across the diagonal
                out[columns].addmm_(tile.T, V[rows])
        return out

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        out = self.noise_variance * V[index]
        for columns in self._strips(index):
            out.addmm_(self._kernel_tile(index, columns), V[columns])
        return out

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        out = W.new_empty(self.n, W.shape[1])
        for rows in self._strips(index):
            torch.mm(self._kernel_tile(rows, index), W, out=out[rows])
        if isinstance(index, slice):
            out[index] += self.noise_variance * W
        else:
            out.index_add_(0, index, W, alpha=self.noise_variance)
        return out

    def block(self, index: Index) -> Tensor:
        H = self._kernel(index, index)
        if isinstance(index, slice):
            H.diagonal().add_(self.noise_variance)
        else:
            H += self.noise_variance * (index[:, None] == index).to(H.dtype)
        return H

    def _strips(self, index: Index) -> list[slice]:
        return list(ranges(self.n, max(1, self.tile_entries // max(1, index_size(index)))))
