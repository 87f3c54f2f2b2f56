"""H stored whole: n² numbers, evaluated once, then every product is one matrix product."""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import Index, KernelOperator


class DenseOperator(KernelOperator):
    """H(θ) kept in memory, built on first use, tile by tile. See :class:`KernelOperator` for the contract."""

    def __init__(self, x: Tensor, kernel: Kernel, theta: Hyperparameters, *, tile_entries: int | None = None) -> None:
        super().__init__(x, kernel, theta, tile_entries=tile_entries)
        self._H: Tensor | None = None

    @property
    def H(self) -> Tensor:
        """The whole matrix, (n, n). Do not write into it."""
        if self._H is None:
            H = torch.empty(self.shape, dtype=self.dtype, device=self.device)
            for rows, columns in self._upper_tiles():
                tile = self._kernel(rows, columns)
                H[rows, columns] = tile
                H[columns, rows] = tile.T
            H.diagonal().add_(self.noise_variance)
            self._H = H
        return self._H

    def take(self) -> Tensor:
        """Hand H over to the caller, who may overwrite it; the operator forgets it."""
        H, self._H = self.H, None
        return H

    def matmul(self, V: Tensor) -> Tensor:
        return self.H @ V

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        return self.H[index] @ V

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        return self.H[index].T @ W  # H is symmetric, and its rows are contiguous

    def block(self, index: Index) -> Tensor:
        return self.H[index][:, index].clone()
