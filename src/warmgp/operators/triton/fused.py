"""H never stored, and K never formed: products fused on a GPU by Triton, at near the accuracy of float32 arithmetic.

The torch operators write every kernel entry to memory several times; here an entry lives in registers from the
distance to the product. :mod:`warmgp.operators.triton.parts` says how the kernels keep float32's digits on a tensor
core; this file prepares their operands. What has no fused form (dense blocks, single columns) comes from the
torch path, which is also the reference in tests. Results do not depend on timing: partial sums are added in a fixed
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
import triton
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import Index, ranges
from warmgp.operators.chunked import ChunkedOperator
from warmgp.operators.triton import gradient as triton_gradient
from warmgp.operators.triton import products as triton_products
from warmgp.operators.triton.launch import run_kernel
from warmgp.operators.triton.parts import ALPHA, PROFILES
from warmgp.operators.triton.split import (
    PAD,
    Columns,
    Job,
    Tile,
    groups_of,
    largest_bits,
    multiply,
    scales,
    split,
    splits_for,
)

LARGEST_SQUARE = 3e4  # |αz|² up to which float16 halves can hold it
ROUNDING = 2.0**-21  # of a squared distance by products, relative to |z|²
LENGTH_WEIGHT = {"rbf": 1.0, "matern12": ALPHA["matern12"], "matern32": 3.0, "matern52": 5.0 / 3.0}
"""What the gradient kernel leaves out of −k′(r)/r."""


@dataclass(frozen=True)
class Points:
    """One set of inputs as the kernels take it: for differences (d, padded), or halves of augmented rows (padded, D).

    The first ``differenced`` inputs are for differences and the others for products; where there are no others the
    halves are zeros of (PAD, 16). All inputs have their line.
    """

    n: int
    differenced: int
    lines: Tensor  # αz, one input per line, (d, padded)
    row_high: Tensor  # halves of [−2αz, |αz|², 1] of the other inputs, |αz|² in two parts
    row_low: Tensor
    column_high: Tensor  # halves of [αz, 1, |αz|²]
    column_low: Tensor

    @classmethod
    def prepare(cls, z: Tensor, differenced: int) -> Points:
        """From inputs αz of (n, d); float64 ones are for differences, all of them."""
        n, d = z.shape
        padded = triton.cdiv(n, PAD) * PAD
        lines = torch.zeros(d, padded, device=z.device, dtype=z.dtype)
        lines[:, :n] = z.T
        if differenced == d:
            nought = torch.zeros(PAD, 16, device=z.device, dtype=torch.float16)
            return cls(n, d, lines, nought, nought, nought, nought)
        z, d = z[:, differenced:], d - differenced
        D = max(16, triton.next_power_of_2(d + 4))
        rows, columns = (torch.zeros(padded, D, device=z.device, dtype=torch.float32) for _ in range(2))
        high, low = (half.double() for half in _halves(z))
        square = (high * (high + 2.0 * low)).sum(1)  # |z|² as the three products see it: coincident points cancel
        coarse = (
            torch.stack(_halves(square.float())).float().sum(0)
        )  # what two halves hold; the rest has its own column
        rest = (square - coarse.double()).float()
        rows[:n, :d], rows[:n, d], rows[:n, d + 1], rows[:n, d + 2 : d + 4] = -2.0 * z, coarse, rest, 1.0
        columns[:n, :d], columns[:n, d : d + 2], columns[:n, d + 2], columns[:n, d + 3] = z, 1.0, coarse, rest
        return cls(n, differenced, lines, *_halves(rows), *_halves(columns))

    @property
    def has_products(self) -> bool:
        return self.differenced < self.lines.shape[0]

    @property
    def distances(self) -> dict[str, int | bool]:
        """The constants that say how a kernel makes distances."""
        return {"PRODUCTS": self.has_products, "DIFFERENCED": self.differenced, "D": self.row_high.shape[1]}


class FusedOperator(ChunkedOperator):
    """H(θ) evaluated inside its products by Triton kernels. See :class:`KernelOperator` for the contract.

    In float32 everything is fused; in float64 the products are, and the gradient is the torch path's. Needs one of the
    four kernels of this library. Use it on CUDA; on a CPU only Triton's interpreter can run it.

    Parameters
    ----------
    tile : Tile, optional
        Shape of the tiles of products; by default what was measured to be good.
    exact_distances : bool, optional
        Distances by differences, or by products, of all inputs. By default by differences where the rounding of a
        product would matter; always for up to three inputs and for kernels that are not smooth at zero.
    """

    uses_triton = True

    def __init__(
        self,
        x: Tensor,
        kernel: Kernel,
        theta: Hyperparameters,
        *,
        tile_entries: int | None = None,
        tile: Tile | None = None,
        exact_distances: bool | None = None,
    ) -> None:
        reason = cannot_fuse(x, kernel)
        if reason:
            raise ValueError(f"the fused operator cannot be used here: {reason}")
        super().__init__(x, kernel, theta, tile_entries=tile_entries)
        self.tile = tile
        self.exact_distances = exact_distances

    def at(self, theta: Hyperparameters) -> Self:
        other = type(self)(
            self.x, self.kernel, theta, tile_entries=self.tile_entries, tile=self.tile,
            exact_distances=self.exact_distances,
        )  # fmt: skip
        other.entries_evaluated += self.entries_evaluated
        return other

    # -- the contract ----------------------------------------------------------------------------------------------
    def matmul(self, V: Tensor) -> Tensor:
        return self._product(V, own=self._own)

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        rows = self._own[index] if isinstance(index, slice) else index
        return self._product(V, rows=rows, own=rows)

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        if isinstance(index, slice):
            out = self._product(W, first=torch.full((1,), index.start, device=self.device))
            out[index] += self.noise_variance * W
        else:
            out = self._product(W, columns=index)
            out.index_add_(0, index, W, alpha=self.noise_variance)
        return out

    def subtract_columns(self, R: Tensor, first: Tensor, W: Tensor, squares: Tensor | None = None) -> None:
        if self.dtype == torch.float64:
            super().subtract_columns(R, first, W, squares)
            return
        self._product(W, first=first, subtract_from=R, squares=squares)

    def cross_matmul(self, x_new: Tensor, V: Tensor) -> Tensor:
        if x_new.shape[0] == 0:
            return V.new_zeros(0, V.shape[1])
        z, differenced = self._alpha_z(x_new), self._points.differenced
        if float(z[:, differenced:].square().sum(1).max()) > LARGEST_SQUARE:  # halves would overflow
            differenced = z.shape[1]
        return self._product(V, points=Points.prepare(z, differenced))

    def quadratic_gradient(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        if self.dtype == torch.float64:
            return super().quadratic_gradient(A, B, weights)
        sums = self._gradient_sums(A, B, weights).cpu()
        ell, d = self.theta.length_scales, self.x.shape[1]
        factor = self.signal_variance * LENGTH_WEIGHT[self.kernel.name] / self._alpha**2
        per_input = factor * sums[2:][self._order.argsort().cpu()]
        lengths = per_input / ell if ell.numel() == d else per_input.sum(0, keepdim=True) / ell
        scales_of_sums = torch.stack([self.theta.noise_scale, self.theta.signal_scale])
        return torch.cat([2.0 * scales_of_sums * sums[:2], lengths])

    def _gradient_sums(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        """[Σ_i G_ii, Σ_ij G k, Σ_ij G ω (z_i − z_j)² per input] for G = A diag(weights) Bᵀ, float64, on the device.

        Inputs in the order of ``_order``.
        """
        symmetric = A is B
        A, B, weights = A.contiguous(), B.contiguous(), weights.to(device=A.device, dtype=torch.float64)
        trace = torch.stack([(A[i].double() * B[i].double()).sum(0) for i in ranges(self.n, 2**18)]).sum(0) @ weights
        bits_a = largest_bits(A)
        bits_b = bits_a if symmetric else largest_bits(B)
        magnitude = weights / (scales(bits_a) * scales(bits_b))  # what the scaled columns have to be multiplied by
        largest = magnitude.abs().max().clamp_min(1e-300)
        padded = self._points.lines.shape[1]
        left = split(A, bits_a, padded, gain=(magnitude / largest).float())
        right = split(B, bits_b, padded)
        products = self._points.has_products and self.x.shape[1] > 8
        sums_of = self._sums_by_products if products else self._sums_by_differences
        sums = torch.stack([sums_of(a, b, symmetric) for a, b in zip(left, right, strict=True)]).sum(0)
        return torch.cat([trace[None], sums * largest])

    # -- operands --------------------------------------------------------------------------------------------------
    @property
    def _alpha(self) -> float:
        return ALPHA[self.kernel.name]

    @property
    def _exact(self) -> bool:
        """Of what the torch path does."""
        return self._differenced > 0

    @cached_property
    def _order(self) -> Tensor:
        """Inputs by their largest |z|, (d,): those whose differences matter most come first."""
        return self._z.abs().amax(0).argsort(descending=True, stable=True)

    @cached_property
    def _differenced(self) -> int:
        """How many inputs are differenced: as few as keep the rounding of the others' product far below the noise.

        That rounding grows with the largest Σ z² of the inputs in the product. All of them where more than half have to
        be, or where the kernel is not smooth at zero. Powers of two: every number is a kernel to compile.
        """
        d = self.x.shape[1]
        if self.dtype == torch.float64 or self._exact_differences:
            return d
        if self.exact_distances is not None:
            return d if self.exact_distances else 0
        squares = self._z[:, self._order].square().flip(1).cumsum(1).amax(0).flip(0)  # of inputs k and after, (d,)
        most = min(LARGEST_SQUARE / self._alpha**2, 0.1 * self.noise_variance / self.signal_variance / ROUNDING)
        needed = int((squares > most).sum())
        rounded = triton.next_power_of_2(needed) if needed else 0
        return rounded if rounded <= d // 2 else d

    def _alpha_z(self, x: Tensor) -> Tensor:
        return self._scaled(x)[:, self._order] * self._alpha

    @cached_property
    def _points(self) -> Points:
        return Points.prepare(self._alpha_z(self.x), self._differenced)

    @cached_property
    def _own(self) -> Tensor:
        return torch.arange(self.n, device=self.device)

    @cached_property
    def _nought(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=self.device)

    # -- launches --------------------------------------------------------------------------------------------------
    def _product(
        self,
        V: Tensor,
        *,
        points: Points | None = None,
        rows: Tensor | None = None,
        columns: Tensor | None = None,
        first: Tensor | None = None,
        own: Tensor | None = None,
        subtract_from: Tensor | None = None,
        squares: Tensor | None = None,
    ) -> Tensor:
        """K[rows, columns] V + noise · V[own], or that of H subtracted from something, and its ``squares`` by row.

        Rows are of ``points`` (default: the training inputs), all of them or those at ``rows``. Columns are training
        inputs: those at ``columns``, or as many as V has rows, from ``first`` on.
        """
        self._check(V)
        mine, its = points or self._points, self._points
        m, b = mine.n if rows is None else rows.numel(), V.shape[0]
        self.entries_evaluated += m * b
        sign = 1.0 if subtract_from is None else -1.0
        start = next((t for t in (columns, first) if t is not None), self._nought)
        if self.dtype == torch.float64:
            out = self._product64(V, mine, rows, columns is not None, start)
            if own is not None:
                out += self.noise_variance * V[own]
            return out

        def launch(job: Job) -> None:
            group = job.group
            run_kernel(
                triton_products.product, job.grid,
                mine.row_high, mine.row_low, its.column_high, its.column_low,
                mine.lines, its.lines, mine.lines.shape[1], its.lines.shape[1],
                group.high, group.low, group.single,
                self._nought if rows is None else rows, start,
                job.squares, job.out, *job.epilogue, m, its.n - 1, b, job.columns_per_split, group.width,
                GATHER_ROWS=rows is not None, GATHER_COLUMNS=columns is not None,
                KERNEL=PROFILES[self.kernel.name], **mine.distances, **job.options,
            )  # fmt: skip

        return multiply(
            V, m, launch, lambda S: self.tile or good_tile(mine, S), factor=sign * self.signal_variance / 256.0,
            noise=sign * self.noise_variance, own=own, add_to=subtract_from, squares=squares,
        )  # fmt: skip

    def _product64(self, V: Tensor, mine: Points, rows: Tensor | None, gather: bool, start: Tensor) -> Tensor:
        """K[rows, columns] V in float64."""
        m, (b, c), V = mine.n if rows is None else rows.numel(), V.shape, V.contiguous()
        BM, BN = 64, 32
        row_tiles = triton.cdiv(m, BM)
        per_split = triton.cdiv(triton.cdiv(b, splits_for(row_tiles, triton.cdiv(b, BN))), BN) * BN
        splits = triton.cdiv(b, per_split)
        out = torch.empty(splits, m, c, device=V.device, dtype=torch.float64)
        for first, used, plain, size in groups_of(c):
            run_kernel(
                triton_products.product64, (row_tiles, splits),
                mine.lines, self._points.lines, mine.lines.shape[1], self._points.lines.shape[1], V,
                self._nought if rows is None else rows, start, out, m, self.n - 1, b, per_split, c, first, used,
                GATHER_ROWS=rows is not None, GATHER_COLUMNS=gather, KERNEL=PROFILES[self.kernel.name],
                DIM=self.x.shape[1], S=size, PLAIN=plain, BM=BM, BN=BN, num_warps=4,
            )  # fmt: skip
        return out.sum(0).mul_(self.signal_variance)

    def _check(self, V: Tensor) -> None:
        if V.dtype != self.dtype or V.device != self.device:
            raise ValueError(f"V must be {self.dtype} on {self.device} like the operator, got {V.dtype} on {V.device}")

    def _sums_by_differences(self, left: Columns, right: Columns, symmetric: bool) -> Tensor:
        """[Σ G k, Σ G ω (z_i − z_j)² per input] of one group of columns, float64: from half of the tiles."""
        points, d, BM = self._points, self.x.shape[1], 64
        n_tiles = triton.cdiv(self.n, BM)
        splits = splits_for(triton.cdiv(n_tiles, 2), n_tiles)
        out = torch.zeros(n_tiles, splits, 1 + d, device=self.device)
        run_kernel(
            triton_gradient.gradient, (n_tiles, splits),
            points.row_high, points.row_low, points.column_high, points.column_low,
            points.lines, points.lines.shape[1],
            left.high, left.low, left.single, right.high, right.low, right.single,
            out, self.n, n_tiles, splits,
            KERNEL=PROFILES[self.kernel.name], **points.distances, DIM=d,
            S=left.size, PLAIN=left.plain, SYMMETRIC=symmetric, BM=BM, num_warps=4,
        )  # fmt: skip
        self.entries_evaluated += self.n * (self.n + 1) // 2
        return out.sum((0, 1), dtype=torch.float64)

    def _sums_by_products(self, left: Columns, right: Columns, symmetric: bool) -> Tensor:
        """The same from all tiles, with Σ_j G ω [z_j, 1] on the tensor core, but for inputs that are differenced."""
        points, n, tile = self._points, self.n, Tile(64, 64, 4, 2)
        d, differenced = self.x.shape[1] - points.differenced, points.differenced
        slots = triton.next_power_of_2(max(1, differenced))
        D = points.row_high.shape[1]
        row_tiles = triton.cdiv(n, tile.rows)
        splits = splits_for(row_tiles, triton.cdiv(n, tile.columns))
        per_split = triton.cdiv(triton.cdiv(n, splits), tile.columns) * tile.columns
        splits = triton.cdiv(n, per_split)
        signal = torch.empty(splits, n, device=self.device)
        out = torch.empty(splits, n, D, device=self.device)
        by_difference = torch.empty(splits, n, slots, device=self.device)
        run_kernel(
            triton_gradient.gradient_rows, (row_tiles, splits),
            points.row_high, points.row_low, points.column_high, points.column_low,
            points.lines, points.lines.shape[1],
            left.high, left.low, left.single, right.high, right.low, right.single, signal, out, by_difference,
            n, per_split,
            KERNEL=PROFILES[self.kernel.name], **points.distances, SLOTS=slots, S=left.size, PLAIN=left.plain,
            SYMMETRIC=symmetric,
            BM=tile.rows, BN=tile.columns, STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
        self.entries_evaluated += n * n
        W = out.sum(0, dtype=torch.float64) * 2.0**11  # (n, D): [Wz, W1, …]
        z = (points.column_high[:n, :d].float() + points.column_low[:n, :d].float()).double()
        lengths = 2.0 * (z * (z * W[:, d : d + 1] - W[:, :d])).sum(0)
        first = by_difference.sum((0, 1), dtype=torch.float64)[:differenced]
        sums = torch.cat([signal.sum(dtype=torch.float64)[None], first, lengths])
        return sums if symmetric else 0.5 * sums


def cannot_fuse(x: Tensor, kernel: Kernel) -> str:
    """Why the fused operator cannot be used for these inputs and that kernel; empty where it can."""
    if kernel.name not in PROFILES or type(kernel).__module__ != "warmgp.kernels":
        return f"there is no fused form of the kernel {kernel!r}"
    if x.shape[0] * max(128, x.shape[1] + 4) >= 2**31:
        return f"{x.shape[0]:,} rows are too many for 32-bit addresses"
    if x.device.type != "cuda" and type(triton_products.product).__name__ != "InterpretedFunction":
        return f"it needs a CUDA device, and x is on {x.device}"
    if x.dtype not in (torch.float32, torch.float64):
        return f"it computes in float32 or float64, and x is {x.dtype}"
    return ""


def good_tile(points: Points, S: int) -> Tile:
    """A tile that was measured to be good on an H200."""
    if not points.has_products:
        return Tile(64, 128, 4, 3) if S <= 64 else Tile(64, 64, 4, 2)
    if points.differenced and points.row_high.shape[1] <= 64:
        return Tile(64, 128, 4, 2)
    if points.row_high.shape[1] <= 64:
        return Tile(64, 64, 4, 3 if points.row_high.shape[1] <= 16 else 2, registers=168)
    return Tile(64, 32, 4, 2)


def _halves(values: Tensor) -> tuple[Tensor, Tensor]:
    """hi and lo in float16 with hi + lo = values to 22 bits."""
    high = values.to(torch.float16)
    return high, (values - high.to(torch.float32)).to(torch.float16)
