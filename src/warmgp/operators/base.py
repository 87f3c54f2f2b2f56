"""The contract of H = K(x, x) + σ²I, or + diag(d) where rows have noise of their own, and what all of them share.

Nothing that fits or predicts evaluates a kernel outside this folder. A solver sees products with H, with some of its
rows or columns, and dense diagonal blocks; whether H is stored, recomputed in tiles, or fused on a GPU is invisible to
it.

An operator belongs to one θ. :meth:`KernelOperator.at` makes the operator of another θ on the same data.
``entries_evaluated`` counts kernel entries computed; how many entries a *product applied* is for the caller to count,
from the shapes, because caching and symmetry do not change it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.distances import distances, distances_within
from warmgp.operators.indices import Index, check_rows, cut_tiles, index_size, part_of, upper_tiles, zero_own
from warmgp.operators.origin import Origin
from warmgp.operators.part import Part
from warmgp.operators.quadratic import symmetric_tiles
from warmgp.operators.rounding import RESOLVED, rounding
from warmgp.operators.row_noise import Noise, RowNoise, add_noise, rows_at
from warmgp.operators.scratch import Counter, Scratch, default_tile_entries
from warmgp.operators.summing import add_product, sum_dtype

if TYPE_CHECKING:
    from warmgp.operators.chunked import ChunkedOperator
    from warmgp.operators.dense import DenseOperator


class KernelOperator(ABC):
    """Multiplies with H(θ) = K(x, x; θ) + σ²I, (n, n), on the inputs x, and gives its blocks and its gradient.

    Parameters
    ----------
    x : Tensor, (n, d)
        Inputs; they fix the operator's device and dtype.
    kernel : Kernel
    theta : Hyperparameters
    tile_entries : int, optional
        The most kernel entries of a tile; by default what suits the device.
    rows : RowNoise, optional
        What the noise of each row is made of, on the device of x; by default it is σ² for all.
    """

    uses_triton = fuses_gradients = False  # whether Triton kernels can run where it does, and make its gradients

    def __init__(
        self, x: Tensor, kernel: Kernel, theta: Hyperparameters, *, tile_entries: int | None = None,
        rows: RowNoise | None = None,
    ) -> None:  # fmt: skip
        if x.ndim != 2 or x.shape[0] == 0 or x.shape[1] == 0:
            raise ValueError(f"x must be a matrix of at least one row and one column, got shape {tuple(x.shape)}")
        if not x.dtype.is_floating_point:
            raise ValueError(f"x must be a floating-point tensor, got {x.dtype}")
        if tile_entries is not None and tile_entries < 1:
            raise ValueError(f"tile_entries must be at least 1, got {tile_entries}")
        if rows is not None and rows.shares.shape != x.shape[:1]:
            raise ValueError(f"rows must have noise for the {len(x)} rows of x, got {tuple(rows.shares.shape)}")
        theta.check_dimension(x.shape[1])
        self.x = x
        self.kernel = kernel
        self.theta = theta
        self.tile_entries = tile_entries or default_tile_entries(x.device)
        self._counter = Counter()
        self.rows = rows
        self.noise = Noise(theta, rows)
        self.noise_variance = self.noise.variance  # σ², that of a row of weight one
        self.signal_variance = float(theta.signal_scale) ** 2
        self._lengths = theta.length_scales.to(device=x.device, dtype=x.dtype)
        self._centre = x.mean(0)
        self._z = self._scaled(x)  # (n, d)
        self._largest = float(self._z.square().sum(1).max())  # max |z|²
        self._scratch = Scratch(x)

    # -- what it is ------------------------------------------------------------------------------------------------
    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    @property
    def origin(self) -> Origin:
        return Origin(self.x, self.kernel, self.theta, self.rows)

    @property
    def entries_evaluated(self) -> int:
        """Kernel entries computed so far, by this operator and its twins in float64."""
        return self._counter.entries

    @entries_evaluated.setter
    def entries_evaluated(self, entries: int) -> None:
        self._counter.entries = entries

    @property
    def part(self) -> Part:
        """The rows that this process works on, through which a solver sees H."""
        return Part(self)

    @property
    def entry_size(self) -> float:
        """The mean of what products are made of, in units of the signal variance: rounding is a share of it."""
        return 1.0

    @property
    def sums_count(self) -> bool:
        """Whether the sum of a solution counts more than float32 has digits for (:mod:`warmgp.solvers.sums`)."""
        return False

    @property
    def rounding(self) -> float:
        """What rounding of products in float32 leaves of a residual, in units of the noise."""
        return rounding(float(self.theta.signal_scale) / self.noise.unit, self.n, self.entry_size)

    def at(self, theta: Hyperparameters) -> Self:
        """Returns the operator of the same kind and data at another θ; its count of evaluated entries goes on."""
        other = type(self)(self.x, self.kernel, theta, tile_entries=self.tile_entries, rows=self.rows)
        other.entries_evaluated += self.entries_evaluated
        return other

    def moved_to(self, theta: Hyperparameters) -> Self:
        """Returns what :meth:`at` does, for a caller that is done with this operator: the other may take its memory."""
        return self.at(theta)

    @overload
    def in_float64(self, kind: Literal["chunked"] = "chunked", *, x: Tensor | None = None) -> ChunkedOperator: ...
    @overload
    def in_float64(self, kind: Literal["dense"], *, x: Tensor | None = None) -> DenseOperator: ...
    @overload
    def in_float64(self, kind: str, *, x: Tensor | None = None) -> KernelOperator: ...
    def in_float64(self, kind: str = "chunked", *, x: Tensor | None = None) -> KernelOperator:
        """Returns the twin of this operator in float64, of any kind; both count evaluated entries together.

        Parameters
        ----------
        kind : str
            The kind of the twin, as in :func:`warmgp.operators.make_operator`.
        x : Tensor, (n, d), optional
            The inputs in float64 as they were before they were rounded; by default those of this operator.
        """
        from warmgp.operators.factory import make_operator

        if x is not None and x.dtype != torch.float64:
            raise ValueError(f"x must be float64, got {x.dtype}: leave it out for the operator's own inputs")
        double = self.x.double() if x is None else x
        twin = make_operator(kind, double, self.kernel, self.theta, tile_entries=self.tile_entries, rows=self.rows)
        twin._counter = self._counter
        return twin

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Returns the whole of H in that dtype, (n, n), as a matrix that the caller may write over: for a factor."""
        from warmgp.operators.factory import make_operator

        options: dict[str, Any] = {"tile_entries": self.tile_entries, "rows": self.rows}
        whole = make_operator("dense", self.x.to(dtype), self.kernel, self.theta, **options)
        whole._counter = self._counter
        return whole.take()

    # -- the contract ----------------------------------------------------------------------------------------------
    @abstractmethod
    def matmul(self, V: Tensor) -> Tensor:
        """Returns H V, (n, c), for V of (n, c)."""

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        """Returns b − H v, (n, c), for b and v of (n, c), with sums as precise as the implementation has them."""
        return b - self.matmul(v)

    @abstractmethod
    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        """Returns H[index, :] V, (b, c), for V of (n, c)."""

    @abstractmethod
    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        """Returns H[:, index] W, (n, c), for W of (b, c)."""

    def subtract_columns(self, R: Tensor, first: Tensor, W: Tensor, squares: Tensor | None = None) -> None:
        """Subtracts H[:, first : first + b] W from R in place, for W of (b, c), with ``first`` on the device.

        Nothing is transferred to the host. ``first`` is a multiple of b. Where the block runs over the end, W must be
        zero there. ``squares`` (n,) receives the sum of squares of every row of the new R.
        """
        index = (first + torch.arange(W.shape[0], device=self.device)).clamp_max_(self.n - 1)
        R -= self.columns_matmul(index, W)
        if squares is not None:
            torch.sum(R.square(), 1, out=squares)

    def subtract_columns_at(self, R: Tensor, index: Tensor, W: Tensor) -> None:
        """Subtracts H[:, index] W from R (n, c) in place, for W of (b, c) and b different numbers in ``index``."""
        R -= self.columns_matmul(index, W)

    def part_matmul(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        """Returns H[rows, columns] V, (p, c), for V of (q, c), of which rows or columns are a slice."""
        p, q = index_size(rows), index_size(columns)
        check_rows(V, q)
        out = V.new_zeros(p, V.shape[1], dtype=sum_dtype(V))
        for mine, its in cut_tiles(p, q, self.tile_entries):
            add_product(out[mine], self._kernel_tile(part_of(rows, mine), part_of(columns, its)), V[its])
        return add_noise(out, self.noise, rows, columns, V).to(V.dtype)

    @abstractmethod
    def block(self, index: Index) -> Tensor:
        """Returns H[index, index] as a dense matrix of its own, (b, b)."""

    def kernel_columns(self, index: Index) -> Tensor:
        """Returns K[:, index] without the noise, (n, b): for pivoting."""
        return self._kernel(slice(0, self.n), index)

    def kernel_matmul(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        """Returns K[rows, columns] V without the noise, (p, c), for V of (q, c), in tiles."""
        p, q = index_size(rows), index_size(columns)
        check_rows(V, q)
        out = V.new_zeros(p, V.shape[1])
        for mine, its in cut_tiles(p, q, self.tile_entries):
            out[mine].addmm_(self._kernel_tile(part_of(rows, mine), part_of(columns, its)), V[its])
        return out

    def blocks(self, index: Tensor) -> Tensor:
        """Returns H among the points of each row of ``index`` (k, b), all different, as (k, b, b) in float64: at once,
        which a GPU does many times faster than one after the other."""
        lengths = self.theta.length_scales.to(self.x.device, non_blocking=True)
        z = (self.x[index].double() - self._centre.double()) / lengths  # (k, b, d)
        self.entries_evaluated += index.numel() * index.shape[1]
        H = self._kernels_within(z, exact=not self.kernel.smooth_at_zero)
        H.diagonal(dim1=1, dim2=2).add_(self.noise.at(index))
        return H

    def block_in_float64(self, index: Index) -> Tensor:
        """Returns H[index, index] in float64, (b, b): a float32 block may not be positive definite."""
        if self.dtype == torch.float64:
            return self.block(index)
        from warmgp.operators.factory import make_operator

        some = make_operator(
            "chunked", self.x[index].double(), self.kernel, self.theta, tile_entries=self.tile_entries,
            rows=rows_at(self.rows, index),
        )  # fmt: skip
        some._counter = self._counter
        return some.block(slice(0, index_size(index)))

    def group_kernels(self, groups: Tensor) -> Tensor:
        """Returns K among the points of each row of ``groups`` (p, m), without the noise, (p, m, m) in float64."""
        from_last = self.x[groups].double() - self.x[groups[:, -1:]].double()  # (p, m, d)
        self.entries_evaluated += groups.numel() * groups.shape[1]
        return self._kernels_within(from_last / self.theta.length_scales.to(self.device), exact=True)

    def _kernels_within(self, z: Tensor, *, exact: bool) -> Tensor:
        """Returns s² k among the points of each group, (k, b, b), for z of (k, b, d) near zero, in float64."""
        return self.kernel.profile(distances_within(z, exact=exact)).mul_(self.signal_variance)

    def kernel_between(self, x_new: Tensor) -> Tensor:
        """Returns K(x, x_new), (n, m), dense: for exact variances at few points."""
        self.entries_evaluated += self.n * x_new.shape[0]
        r = distances(self._z, self._scaled(x_new), exact=self._exact)
        return self.kernel.profile(r).mul_(self.signal_variance)

    def cross_matmul(self, x_new: Tensor, V: Tensor) -> Tensor:
        """Returns K(x_new, x) V, (m, c), for V of (n, c), in tiles.

        Here it is computed in float64 where k in float32 does not resolve it; a GPU may have products of 1 − k.
        """
        if self.dtype == torch.float32 and self.rounding > RESOLVED:
            return self.in_float64().cross_matmul(x_new.double(), V.double()).to(V.dtype)
        z_new = self._scaled(x_new)
        out = V.new_zeros(x_new.shape[0], V.shape[1], dtype=sum_dtype(V))
        for rows, columns in cut_tiles(x_new.shape[0], self.n, self.tile_entries):
            tile, work = (self._scratch.tile(name, index_size(rows), index_size(columns)) for name in ("out", "work"))
            r = distances(z_new[rows], self._z[columns], exact=self._exact, out=tile, work=work)
            self.entries_evaluated += r.numel()
            add_product(out[rows], self.kernel.evaluate(r, work)[0].mul_(self.signal_variance), V[columns])
        return out.to(V.dtype)

    def quadratic_gradient(self, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        """Returns ∂/∂θ Σ_c weights_c a_cᵀ H(θ) b_c, a float64 vector in the order of ``Hyperparameters.vector``.

        It takes one pass over the kernel. With G = A diag(weights) Bᵀ formed tile by tile,

            ∂σ:  2σ Σ_c weights_c a_cᵀ b_c            (its terms over w_i where rows have weights)
            ∂s:  2s Σ_ij G_ij k(r_ij)
            ∂ℓ_k: s² Σ_ij G_ij ω(r_ij) (z_ik − z_jk)² / ℓ_k,     z = x/ℓ.

        Parameters
        ----------
        A, B : Tensor, (n, c)
        weights : Tensor, (c,)
        """
        if self.rows is None:
            trace = float(((A * weights.to(A)).double() * B.double()).sum())
        else:
            trace = float(self.noise.quadratic_trace(A, B, weights))
        return self.gradient_from_weights(symmetric_tiles(A, B, weights, self._scratch), trace)

    def cross_gradient(self, rows: slice, columns: slice, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
        """Returns what pairs of one of p ``rows`` and one of q other ``columns`` add to :meth:`quadratic_gradient`.

        Both orders of a pair count. A and B, (p + q, c), have the values of the rows first, then those of the columns.
        """
        p, q = index_size(rows), index_size(columns)
        G = symmetric_tiles(A, B, weights, self._scratch, rows.start, columns.start - p)
        tiles = ((part_of(rows, mine), part_of(columns, its)) for mine, its in cut_tiles(p, q, self.tile_entries))
        return self.gradient_from_weights(G, 0.0, tiles)

    def gradient_from_weights(
        self,
        weights: Callable[[slice, slice], Tensor],
        trace: float,
        tiles: Iterable[tuple[slice, slice]] | None = None,
    ) -> Tensor:
        """Returns ∂/∂θ Σ_ij G_ij H_ij(θ) for a symmetric G by tiles: ``weights(rows, columns)`` is G[rows, columns].

        ``trace`` is Σ_i G_ii/w_i, all that the noise needs. With W = G∘ω(r) the length scales need only
        Σ_ij W_ij (z_i − z_j)² = Σ_i z_i² (W1)_i + Σ_j z_j² (Wᵀ1)_j − 2 Σ_i z_i (Wz)_i, so a tile costs one product
        with [1, z], never an n × n × d array. That sum cancels for close pairs: where their weights are huge, or where
        there are few inputs, differences are taken input by input instead. ``tiles`` are those on and above the
        diagonal, unless they are given: one off the diagonal counts for that across it, too.
        """
        d = self._z.shape[1]
        signal = torch.zeros((), dtype=torch.float64, device=self.device)
        lengths = torch.zeros(d, dtype=torch.float64, device=self.device)
        precise = torch.float64 if self._largest > 1e3 else self.dtype  # the sum over W cancels by a factor of |z|²
        for rows, columns in upper_tiles(self.n, self.tile_entries) if tiles is None else tiles:
            k, W = self._evaluate(rows, columns)
            G = weights(rows, columns)
            times = 1.0 if columns.start == rows.start else 2.0  # for the tile across the diagonal, too
            W.mul_(G)
            signal += times * k.mul_(G).sum()
            if self._exact_differences:
                for j in range(d):
                    difference = self._z[rows, j, None] - self._z[columns, j]
                    lengths[j] += times * difference.square_().mul_(W).sum()
                continue
            if columns.start == rows.start:  # a point with itself: zero by (z_i − z_i)², whatever its weight
                W.diagonal().zero_()
            z1 = torch.cat([self._z.new_ones(W.shape[1], 1), self._z[columns]], 1).to(precise)  # (b', 1 + d)
            Wz = (W.to(precise) @ z1).double()  # (b, 1 + d)
            column_sums = W.sum(0, dtype=precise).double()  # (b',)
            zr, zc = self._z[rows].double(), self._z[columns].double()
            lengths += times * (Wz[:, 0] @ zr.square() + column_sums @ zc.square() - 2.0 * (zr * Wz[:, 1:]).sum(0))
        per_input = self.signal_variance * lengths.cpu()
        ell = self.theta.length_scales
        gradient_lengths = per_input / ell if ell.numel() == d else per_input.sum(0, keepdim=True) / ell
        gradient_signal = 2.0 * self.theta.signal_scale * signal.cpu()
        gradient_noise = 2.0 * self.theta.noise_scale * trace
        return torch.cat([gradient_noise[None], gradient_signal[None], gradient_lengths])

    # -- evaluating kernels ----------------------------------------------------------------------------------------
    def _scaled(self, x: Tensor) -> Tensor:
        """Returns z = (x − centre)/ℓ, (m, d): centring changes no distance, and keeps their digits."""
        return (x - self._centre) / self._lengths

    def _kernel(self, rows: Index, columns: Index) -> Tensor:
        """Returns K[rows, columns], a matrix of its own."""
        self.entries_evaluated += index_size(rows) * index_size(columns)
        r = distances(self._z[rows], self._z[columns], exact=self._exact)
        zero_own(r, rows, columns)
        return self.kernel.profile(r).mul_(self.signal_variance)

    def _kernel_tile(self, rows: Index, columns: Index) -> Tensor:
        """Returns K[rows, columns], in memory that the next tile will overwrite."""
        if type(self.kernel).evaluate is Kernel.evaluate:  # it would evaluate the weights, too
            return self._kernel(rows, columns)
        return self._evaluate(rows, columns)[0].mul_(self.signal_variance)

    def _evaluate(self, rows: Index, columns: Index) -> tuple[Tensor, Tensor]:
        """Returns (k(r), ω(r)) of a tile, in memory that the next tile will overwrite."""
        height, width = index_size(rows), index_size(columns)
        self.entries_evaluated += height * width
        out, work = self._scratch.tile("out", height, width), self._scratch.tile("work", height, width)
        r = distances(self._z[rows], self._z[columns], exact=self._exact, out=out, work=work)
        zero_own(r, rows, columns)
        return self.kernel.evaluate(r, work)

    @property
    def _exact_differences(self) -> bool:
        """Whether differences cost little (few inputs) or are needed (the kernel is not smooth at zero)."""
        return not self.kernel.smooth_at_zero or self.x.shape[1] <= 3

    @property
    def _exact(self) -> bool:
        """Whether distances are differences: also where a product's rounding in r² would rival the noise, in float64,
        which is taken for the truth, that of n entries together: pairs of categories have the same."""
        rounding = 4.0 * torch.finfo(self.dtype).eps * self._largest * (self.n if self.dtype == torch.float64 else 1)
        return self._exact_differences or rounding > 0.1 * self.noise.least / self.signal_variance
