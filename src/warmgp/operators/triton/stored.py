"""H stored whole in float32 on a GPU, filled and multiplied by Triton: reading it is the cost, 4 bytes an entry.

The library product in float32 leaves the tensor cores idle. Here each tile of H is read once, split into float16 halves
in registers, and multiplied as in the fused operator, with the same accuracy.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
import triton
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import Index
from warmgp.operators.triton import products as triton_products
from warmgp.operators.triton.fused import FusedOperator
from warmgp.operators.triton.launch import run_kernel
from warmgp.operators.triton.parts import PROFILES
from warmgp.operators.triton.split import PAD, Job, Tile, multiply


class StoredOperator(FusedOperator):
    """H(θ) kept in float32 and multiplied by split products. See :class:`KernelOperator` for the contract."""

    def __init__(self, x: Tensor, kernel: Kernel, theta: Hyperparameters, **options: Any) -> None:
        if x.dtype != torch.float32:
            raise ValueError(f"the stored operator computes in float32, and x is {x.dtype}: use the dense operator")
        super().__init__(x, kernel, theta, **options)

    @cached_property
    def H(self) -> Tensor:
        """The whole matrix, (n, n). Do not write into it.

        Its rows are a multiple of 16 numbers apart, with a row and at least 128 numbers to spare: blocks may be read
        past their end.
        """
        n, points, BM = self.n, self._points, 64
        width = -(-n // 16) * 16
        H = torch.empty(n + max(1, -(-PAD // width)), width, device=self.device)
        H[n:], H[:, n:] = 0.0, 0.0
        tiles = triton.cdiv(n, BM)
        run_kernel(
            triton_products.fill, (tiles, tiles),
            points.row_high, points.row_low, points.column_high, points.column_low,
            points.lines, points.lines.shape[1], H, width, self.signal_variance / 256.0, n,
            KERNEL=PROFILES[self.kernel.name], **points.distances, BM=BM, num_warps=4,
        )  # fmt: skip
        self.entries_evaluated += n * n
        H[:n, :n].diagonal().fill_(self.signal_variance + self.noise_variance)
        return H[:n, :n]

    def matmul(self, V: Tensor) -> Tensor:
        return self._stored_product(V, self._nought, align=16)

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        if isinstance(index, slice):
            first = torch.full((1,), index.start, device=self.device)
            return self._stored_product(W, first, align=math.gcd(index.start, 16) if index.start else 16)
        return super().columns_matmul(index, W)

    def subtract_columns(self, R: Tensor, first: Tensor, W: Tensor, squares: Tensor | None = None) -> None:
        # first is a multiple of the block's size
        self._stored_product(W, first, align=math.gcd(W.shape[0], 16), subtract_from=R, squares=squares)

    def _stored_product(
        self, V: Tensor, first: Tensor, align: int, subtract_from: Tensor | None = None, squares: Tensor | None = None
    ) -> Tensor:
        """H[:, first : first + len(V)] V, or that subtracted from something; ``align`` divides ``first``."""
        self._check(V)
        H, b = self.H, V.shape[0]
        gain = 256.0 / (self.signal_variance + self.noise_variance)
        sign = 1.0 if subtract_from is None else -1.0

        def launch(job: Job) -> None:
            group = job.group
            run_kernel(
                triton_products.stored_product, job.grid,
                H, H.stride(0), gain, group.high, group.low, group.single, first,
                job.squares, job.out, *job.epilogue, self.n, b, job.columns_per_split, group.width,
                ALIGN=align, **job.options,
            )  # fmt: skip

        return multiply(
            V, self.n, launch, lambda S: self.tile or Tile(128, 32, 4, 4), factor=sign / gain, add_to=subtract_from,
            squares=squares,
        )  # fmt: skip
