"""H never stored: every product evaluates the kernel tile by tile, for any n, on any torch device."""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import Index, index_size, ranges, upper_tiles
from warmgp.operators.summing import add_product, product, sum_dtype


class ChunkedOperator(KernelOperator):
    """Recomputes H(θ) at every product, tile by tile, and keeps none of it. See :class:`KernelOperator`."""

    def matmul(self, V: Tensor) -> Tensor:
        return self._summed(self.noise.times(V.to(sum_dtype(V))), V, self.dtype).to(V.dtype)

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        fine = sum_dtype(v)
        applied = self._summed(self.noise.times(v.to(fine)), v.to(fine), fine)
        return torch.sub(b, applied, out=applied).to(b.dtype)

    def _summed(self, out: Tensor, V: Tensor, dtype: torch.dtype) -> Tensor:
        """Adds K V to ``out`` and returns it; tiles of K are turned to that dtype first."""
        for rows, columns in upper_tiles(self.n, self.tile_entries):
            tile = self._kernel_tile(rows, columns).to(dtype)
            add_product(out[rows], tile, V[columns])
            if columns.start > rows.start:  # K is symmetric: the same tile serves across the diagonal
                add_product(out[columns], tile.T, V[rows])
        return out

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        out = self.noise.times(V[index].to(sum_dtype(V)), index)
        for columns in self._strips(index):
            add_product(out, self._kernel_tile(index, columns), V[columns])
        return out.to(V.dtype)

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        out = W.new_empty(self.n, W.shape[1])
        for rows in self._strips(index):
            out[rows] = product(self._kernel_tile(rows, index), W)
        if isinstance(index, slice):
            out[index] += self.noise.times(W, index)
        else:
            self.noise.add_rows(out, index, W)
        return out

    def block(self, index: Index) -> Tensor:
        H = self._kernel(index, index)
        if isinstance(index, slice):
            H.diagonal().add_(self.noise.at(index))
        else:
            H += self.noise.times((index[:, None] == index).to(H.dtype), index)
        return H

    def _strips(self, index: Index) -> list[slice]:
        return list(ranges(self.n, max(1, self.tile_entries // max(1, index_size(index)))))
