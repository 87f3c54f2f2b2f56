"""H never stored, and K never formed: products fused on a GPU by Triton, nearly as exact as float32 arithmetic.

The torch operators write every kernel entry to memory several times; here an entry lives in registers from the
distance to the product. :mod:`warmgp.operators.triton.parts` says how the kernels keep float32's digits on a tensor
core; this file prepares their operands. What has no fused form (single blocks and columns) comes from the
torch path, which is also the reference in tests. Results do not depend on timing: partial sums are added in a fixed
order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

import torch
import triton
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.chunked import ChunkedOperator
from warmgp.operators.fusing import why_not_fused
from warmgp.operators.indices import Index, check_rows, index_size
from warmgp.operators.rounding import rounding
from warmgp.operators.row_noise import RowNoise, add_noise
from warmgp.operators.triton import products as triton_products
from warmgp.operators.triton.double import product_in_float64
from warmgp.operators.triton.entries import kernels_within
from warmgp.operators.triton.falling import FALLING, SUMS_WORTH, WORTH, Entries, mean_fall
from warmgp.operators.triton.groups import near_groups
from warmgp.operators.triton.launch import run_kernel
from warmgp.operators.triton.points import LARGEST_SQUARE, ROUNDING, Points
from warmgp.operators.triton.split import Job, Tile, multiply
from warmgp.operators.triton.sums import TILE, gradient_sums
from warmgp.operators.triton.sums64 import gradient_sums64
from warmgp.operators.triton.tiles import good_tile

DIFFERENCED64 = 16
"""The most inputs that are differenced in float64: each costs 0.8 ps a pair on an H200, and products 3 ps for 64."""

ROUNDED64 = 0.01
"""What rounding of squared distances in float64 may add up to over all points, in units of the noise variance."""


class FusedOperator(ChunkedOperator):
    """Evaluates H(θ) inside its products, by Triton, and keeps none of it. See :class:`KernelOperator`.

    It needs a kernel with a fused form; where that has none for gradients in float64, they are the torch path's. Use it
    on CUDA; on a CPU only Triton's interpreter can run it.

    Parameters
    ----------
    tile : Tile, optional
        The shape of the tiles of products; by default what was measured to be good.
    exact_distances : bool, optional
        Whether distances are differences of all inputs, or products. By default they are differences where the rounding
        of a product would matter; always for up to three inputs and for kernels that are not smooth at zero, and in
        float64 up to ``DIFFERENCED64`` inputs.
    falling : bool, optional
        Whether products in float32 are made of 1 − k instead of k. By default they are where points are near each other
        and rounding of k would be seen (:mod:`warmgp.operators.triton.falling`).
    """

    uses_triton = True

    def __init__(
        self,
        x: Tensor,
        kernel: Kernel,
        theta: Hyperparameters,
        *,
        tile_entries: int | None = None,
        rows: RowNoise | None = None,
        tile: Tile | None = None,
        exact_distances: bool | None = None,
        falling: bool | None = None,
    ) -> None:
        super().__init__(x, kernel, theta, tile_entries=tile_entries, rows=rows)
        reason, form = why_not_fused(kernel, x.device, x.dtype, *x.shape), kernel.fused_form()
        if reason or form is None:
            raise ValueError(f"the fused operator cannot be used here: {reason}: use 'dense' or 'chunked'")
        self._form = form
        self.fuses_gradients = x.dtype == torch.float32 or form.profile_and_weight64 is not None
        self.tile = tile
        self.exact_distances = exact_distances
        self.falling = falling

    def at(self, theta: Hyperparameters) -> Self:
        other = type(self)(
            self.x, self.kernel, theta, tile_entries=self.tile_entries, rows=self.rows, tile=self.tile,
            exact_distances=self.exact_distances, falling=self.falling,
        )  # fmt: skip
        other.entries_evaluated += self.entries_evaluated
        return other

    # -- the contract ----------------------------------------------------------------------------------------------
    def matmul(self, V: Tensor) -> Tensor:
        return self._product(V, own=self._own)

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        if not self._near:
            return b - self.matmul(v)
        left = (b - self._sum_of(v, self._entries)).contiguous()
        for index in self._near:
            self._product(v[index], columns=index, subtract_from=left, sums=False)
        self.noise.add_rows(left, self._own, v, -1.0)
        return left

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        rows = self._own[index] if isinstance(index, slice) else index
        return self._product(V, rows=rows, own=rows)

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        if isinstance(index, slice):
            out = self._product(W, first=torch.full((1,), index.start, device=self.device))
            out[index] += self.noise.times(W, index)
        else:
            out = self._product(W, columns=index)
            self.noise.add_rows(out, index, W)
        return out

    def kernel_matmul(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        check_rows(V, index_size(columns))
        if index_size(rows) == 0 or V.numel() == 0:
            return V.new_zeros(index_size(rows), V.shape[1])
        if isinstance(rows, slice):
            rows = self._own[rows]
        if isinstance(columns, slice):
            return self._product(V, rows=rows, first=torch.full((1,), columns.start, device=self.device))
        return self._product(V, rows=rows, columns=columns)

    def part_matmul(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        return add_noise(self.kernel_matmul(rows, columns, V), self.noise, rows, columns, V)

    def subtract_columns(self, R: Tensor, first: Tensor, W: Tensor, squares: Tensor | None = None) -> None:
        if self.dtype == torch.float64:
            super().subtract_columns(R, first, W, squares)
            return
        if self.rows is None:
            self._product(W, first=first, subtract_from=R, squares=squares)
            return
        self._product(W, first=first, subtract_from=R)
        index = (first + torch.arange(len(W), device=self.device)).clamp_max_(self.n - 1)  # W is zero beyond the end
        self.noise.add_rows(R, index, W, -1.0)
        if squares is not None:
            torch.sum(R.square(), 1, out=squares)

    def subtract_columns_at(self, R: Tensor, index: Tensor, W: Tensor) -> None:
        if self.dtype == torch.float64:
            super().subtract_columns_at(R, index, W)
            return
        self._product(W, columns=index, subtract_from=R)
        self.noise.add_rows(R, index, W, -1.0)

    def cross_matmul(self, x_new: Tensor, V: Tensor) -> Tensor:
        if x_new.shape[0] == 0:
            return V.new_zeros(0, V.shape[1])
        z, differenced = self._entries.zoom * self._alpha_z(x_new), self._points.differenced
        if differenced < z.shape[1]:
            largest = float(z[:, differenced:].square().sum(1).max())
            single = self.dtype == torch.float32  # whose halves would overflow
            if largest > LARGEST_SQUARE if single else self._rounds64(largest / self._form.alpha**2):
                differenced = z.shape[1]
        points, entries = Points.prepare(z, differenced), self._entries
        if entries.falling:
            distance = float(z.square().sum(1).max()) ** 0.5 / (entries.zoom * self._form.alpha)
            entries = entries.within(self.kernel, distance + self._largest**0.5)
        if not points.has_products or not self._near:
            return self._product(V, points=points, entries=entries)
        out = torch.zeros(len(z), V.shape[1], device=V.device)
        for index in self._near:
            self._product(V[index], points=points, columns=index, subtract_from=out, entries=entries, sums=False)
        return out.neg_().add_(self._sum_of(V, entries))

    def _kernels_within(self, z: Tensor, *, exact: bool) -> Tensor:
        return kernels_within(self._form, z, self.signal_variance, differences=exact or z.shape[2] <= DIFFERENCED64)

    def quadratic_gradient(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        if not self.fuses_gradients:
            return super().quadratic_gradient(A, B, weights)
        return self._gradient_of(self._gradient_sums(A, B, weights))

    def cross_gradient(self, rows: slice, columns: slice, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        if not self.fuses_gradients:
            return super().cross_gradient(rows, columns, A, B, weights)
        p, alike = index_size(rows), A is B
        between = -p % TILE  # rows of zeros, so that the columns begin with a tile

        def spread(V: Tensor) -> Tensor:
            return torch.cat([V[:p], V.new_zeros(between, V.shape[1]), V[p:]])

        index = torch.cat([self._own[rows], self._own[rows.start].expand(between), self._own[columns]])
        A = spread(A)
        B = A if alike else spread(B)
        sums = self._pair_sums(self._points.at(index), A, B, weights, cut=p + between)
        sums[0] = 0.0  # no row is a column, too
        return self._gradient_of(sums)

    def _pair_sums(self, points: Points, A: Tensor, B: Tensor, weights: Tensor, cut: int | None = None) -> Tensor:
        """Returns the sums over pairs of points that gradients are made of, (2 + d,), in the order of ``_order``."""
        if self.dtype == torch.float64:
            sums, entries = gradient_sums64(points, self._form.profile_and_weight64, A, B, weights, cut)
        else:
            sums, entries = gradient_sums(points, self._form.profile_and_weight, A, B, weights, cut)
        self.entries_evaluated += entries
        return sums

    def _gradient_sums(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        """Returns the sums that the gradient is made of, (2 + d,), inputs in the order of ``_order``, on the device."""
        sums = self._pair_sums(self._points, A, B, weights)
        if self.rows is not None:
            sums[0] = self.noise.quadratic_trace(A, B, weights)
        return sums

    def _gradient_of(self, sums: Tensor) -> Tensor:
        """Returns the gradient that is made of these sums, on the host."""
        sums, ell, d = sums.cpu(), self.theta.length_scales, self.x.shape[1]
        factor = self.signal_variance * self._form.weight_factor / self._form.alpha**2
        per_input = factor * sums[2:][self._order.argsort().cpu()]
        lengths = per_input / ell if ell.numel() == d else per_input.sum(0, keepdim=True) / ell
        scales_of_sums = torch.stack([self.theta.noise_scale, self.theta.signal_scale])
        return torch.cat([2.0 * scales_of_sums * sums[:2], lengths])

    @property
    def sums_count(self) -> bool:
        return self._entries.falling and self._rounding_of_k > SUMS_WORTH

    @property
    def entry_size(self) -> float:
        return self._entries.size

    # -- operands --------------------------------------------------------------------------------------------------
    @property
    def _exact(self) -> bool:
        """Whether the torch path, for blocks and single columns, takes differences, too."""
        return self._differenced > 0

    @cached_property
    def _order(self) -> Tensor:
        """The order of inputs by their largest |z|, (d,): those whose differences matter most come first."""
        return self._z.abs().amax(0).argsort(descending=True, stable=True)

    @cached_property
    def _differenced(self) -> int:
        """The number of differenced inputs: as few as keep the rounding of the others' product below the noise.

        That rounding grows with the largest Σ z² of the inputs in the product. The number is 0 or a power of two,
        because each is a kernel to compile. It is all d where more than half have to be, for up to three inputs, and
        where the kernel is not smooth at zero. In float64 it is all or none.
        """
        d = self.x.shape[1]
        if self._exact_differences:
            return d
        if self.exact_distances is not None:
            return d if self.exact_distances else 0
        if self.dtype == torch.float64:
            return d if d <= DIFFERENCED64 or self._rounds64(self._largest) else 0
        squares = self._z[:, self._order].square().flip(1).cumsum(1).amax(0).flip(0)  # of inputs k and after, (d,)
        most = min(LARGEST_SQUARE / self._form.alpha**2, 0.1 * self.noise.least / self.signal_variance / ROUNDING)
        needed = int((squares > most).sum())
        rounded = triton.next_power_of_2(needed) if needed else 0
        return rounded if rounded <= d // 2 else d

    def _rounds64(self, largest: float) -> bool:
        """Says whether the rounding of products in float64 would matter, of points with |z|² up to ``largest``: pairs
        may have the same, as those of whole numbers and categories do."""
        rounding = 4.0 * torch.finfo(torch.float64).eps * largest * self.n
        return rounding > ROUNDED64 * self.noise.least / self.signal_variance

    def _alpha_z(self, x: Tensor) -> Tensor:
        return self._scaled(x)[:, self._order] * self._form.alpha

    @cached_property
    def _points(self) -> Points:
        return Points.prepare(self._alpha_z(self.x), self._differenced)

    @cached_property
    def _entries(self) -> Entries:
        """What products in float32 between training points are made of."""
        size = mean_fall(self._z, self.kernel)
        worth = size <= FALLING and self._rounding_of_k > WORTH
        falling = worth if self.falling is None else self.falling
        if not falling or self._form.fall is None or self.dtype == torch.float64:
            return Entries(self._form.profile)
        return Entries.of(self._form, self.kernel, size, self._largest**0.5)

    @property
    def _rounding_of_k(self) -> float:
        """What products of k would leave of a residual, in units of the noise."""
        return rounding(float(self.theta.signal_scale) / self.noise.unit, self.n)

    @cached_property
    def _factors(self) -> Points:
        """The training inputs as products take them: with the digits that small distances need."""
        zoom = self._entries.zoom
        return self._points if zoom == 1.0 else Points.prepare(zoom * self._alpha_z(self.x), self._differenced)

    @cached_property
    def _near(self) -> tuple[Tensor, ...]:
        """All columns in groups of near ones, each of which has distances from its own centre in long sums; none where
        one centre is good enough for all."""
        if self.dtype == torch.float64 or not self._factors.has_products:
            return ()
        multiplied = self._z[:, self._order[self._differenced :]]
        return near_groups(self._z, multiplied, self.signal_variance / self.noise.unit**2)

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
        entries: Entries | None = None,
        sums: bool = True,
    ) -> Tensor:
        """Returns K[rows, columns] V + noise · V[own], or ``subtract_from`` less H[rows, columns] V, in place.

        Where columns are gathered, or rows have noise of their own, ``subtract_from`` loses K V only: the noise is left
        to the caller.

        Rows are of ``points`` (default: the training inputs), all of them or those at ``rows``. Columns are training
        inputs: those at ``columns``, with distances from their own centre, or as many as V has rows, from ``first`` on.
        ``squares`` receives the sum of squares of every row of ``subtract_from``. ``entries`` are those of the training
        inputs, unless other points are farther. Without ``sums`` s² ΣV is left to the caller (:meth:`_sum_of`).
        """
        if V.dtype != self.dtype or V.device != self.device:
            raise ValueError(f"V must be {self.dtype} on {self.device} like the operator, got {V.dtype} on {V.device}")
        rows, columns, own = (None if t is None else t.contiguous() for t in (rows, columns, own))
        mine = points or self._factors
        mine = mine if rows is None else mine.at(rows)
        its = self._factors
        if columns is not None and self.dtype == torch.float32 and mine.has_products:
            its, centre = its.block(columns)
            mine = mine.around(centre)
        elif columns is not None:
            its = its.at(columns)
        m, b = mine.n, V.shape[0]
        self.entries_evaluated += m * b
        sign = 1.0 if subtract_from is None else -1.0
        start = self._nought if first is None else first
        if self.dtype == torch.float64:
            out = product_in_float64(V, mine, its, first, self._form.profile64).mul_(self.signal_variance)
            if own is not None:
                out += self.noise.times(V[own], own)
            return out
        entries = entries or self._entries
        common = self._sum_of(V, entries) if entries.falling and sums else None
        if common is not None and subtract_from is not None:
            subtract_from -= common
        alone = self.rows is None  # else rows have noise of their own, which is added outside of the kernel

        def launch(job: Job) -> None:
            group = job.group
            run_kernel(
                triton_products.product, job.grid,
                mine.row_high, mine.row_low, its.column_high, its.column_low,
                mine.lines, its.lines, mine.lines.shape[1], its.lines.shape[1],
                group.high, group.low, group.single,
                start, job.squares, job.out, *job.epilogue, m, its.n - 1, b, job.columns_per_split, group.width,
                entries.amplify, entries.zoom**-2, SHIFTED=first is not None, FALLING=entries.falling,
                PROFILE=entries.profile, **mine.distances, **job.options,
            )  # fmt: skip

        out = multiply(
            V, m, launch, lambda *sizes: self.tile or good_tile(mine, *sizes),
            factor=sign * entries.factor(self.signal_variance), noise=sign * self.noise_variance,
            own=own if alone else None, add_to=subtract_from, squares=squares, block=columns is None and alone,
        )  # fmt: skip
        if own is not None and not alone:
            out += self.noise.times(V[own], own)
        if common is not None and subtract_from is None:
            out += common
        return out

    def _sum_of(self, V: Tensor, entries: Entries) -> Tensor:
        """Returns s² ΣV, (c,), what products of 1 − k lack, the same for all rows; zeros where entries are k.

        Over all of V it is taken once: the sums of its parts are many times as large, and would be rounded.
        """
        factor = self.signal_variance if entries.falling else 0.0
        return (factor * V.sum(0, dtype=torch.float64)).to(V.dtype)
