"""New points given the training points nearest to them: the prediction from those alone, and its variance, exactly.

From the targets b_N of m near points, with the covariance C = K_NN + σ²I (or diag(d)), a new point * is predicted by

    w = C⁻¹ k_N,        f* ≈ wᵀ b_N,        Var(f* − wᵀ b_N) = k** − k_Nᵀ C⁻¹ k_N.

It takes m³/3 operations a point, whatever n is. Near points are sought among all, in tiles, where these are few; among
many in the leaves next to the new point (:mod:`warmgp.operators.leaves`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.distances import distances_within
from warmgp.operators.indices import ranges
from warmgp.operators.leaves import Leaves
from warmgp.operators.near_points import nearest_others, without_own
from warmgp.operators.row_noise import Noise, RowNoise

DISTANCES = {True: 2**19, False: 2**27}
"""Distances of new points to all training points that are held at once, by whether that is on a CPU."""

ENTRIES = {True: 2**17, False: 2**25}
"""Entries of the covariances of near points that are held at once, in float64, by whether that is on a CPU."""

PROBED, SHUFFLED = 32, 0.05
"""Training points by which it is judged whether float32 ranks distances: its rounding has to be below that share of
the square of their typical distance to the last of their near points."""

LEAVES_FROM = 2**14
"""Training points from which on near ones are looked for in leaves: to look at all of them would take longer than the
product of a prediction, on a GPU from some ten thousand points on."""

TREE_INPUTS = 3
"""The most inputs for which trees find near points faster than looking at all pairs."""

LEAST = 1e-12
"""Variances, as a share of the prior's, below which rounding in float64 may have made them."""


@dataclass(frozen=True)
class NearPrediction:
    """Holds what near points say of new ones.

    Attributes
    ----------
    groups : Tensor, (b, m)
        The near training points of each new one.
    weights : Tensor, (b, m), float64
        What their targets are multiplied with, w.
    variance : Tensor, (b,), float64
        The variance of the error of that prediction; NaN where rounding leaves none.
    """

    groups: Tensor
    weights: Tensor
    variance: Tensor


@dataclass(frozen=True, eq=False)
class NearPoints:
    """Predicts new points from the m training points nearest to them.

    Attributes
    ----------
    x : Tensor, (n, d)
        Training inputs.
    kernel : Kernel
    theta : Hyperparameters
    m : int
        How many near points, at most n.
    noise : RowNoise or None
        What the noise of each training point is made of; None where it is σ² for all.
    """

    x: Tensor
    kernel: Kernel
    theta: Hyperparameters
    m: int
    noise: RowNoise | None = None

    def predict(self, x_new: Tensor) -> NearPrediction:
        """Returns weights and variances for new points, (b, d), of which all are held at once."""
        new = self._scaled(x_new)
        groups, entries = self._nearest(new), ENTRIES[x_new.device.type == "cpu"]
        parts = [self._given(new[rows], groups[rows]) for rows in
                 ranges(len(x_new), max(1, entries // self.m**2))]  # fmt: skip
        empty = torch.zeros(0, self.m, dtype=torch.float64, device=x_new.device)
        weights, variances = zip(*parts, strict=True) if parts else ((empty,), (empty[:, 0],))
        return NearPrediction(groups, torch.cat(weights), torch.cat(variances))

    def nearest(self, x_new: Tensor) -> Tensor:
        """Returns the m nearest training points of each new one by the length scales, (b, m), in no order: most of them
        where there are many points."""
        return self._nearest(self._scaled(x_new))

    def _nearest(self, new: Tensor) -> Tensor:
        """Returns what :meth:`nearest` does, for points in units of the length scales, (b, d)."""
        z, squares = self._ranked
        n, new = len(z), new.to(z.dtype)
        if n >= LEAVES_FROM:
            return self._leaves.nearest(new, self.m)
        found = [torch.zeros(0, self.m, dtype=torch.int64, device=z.device)]
        for rows in ranges(len(new), max(4, DISTANCES[z.device.type == "cpu"] // n)):
            tile = torch.addmm(squares, new[rows], z.T, alpha=-2.0)  # squared distance, up to the new point's square
            found.append(_smallest(tile, self.m))
        return torch.cat(found)

    def nearest_to_blocks(self, x_new: Tensor, m: int) -> Tensor:
        """Returns the m training points nearest to any point of each block, (b, m), for blocks of (b, q, d)."""
        (z, squares), q = self._ranked, x_new.shape[1]
        new, found = self._scaled(x_new).to(z.dtype), [torch.zeros(0, m, dtype=torch.int64, device=z.device)]
        for blocks in ranges(len(new), max(1, DISTANCES[z.device.type == "cpu"] // (len(z) * q))):
            points = new[blocks].flatten(0, 1)
            tile = torch.addmm(squares, points, z.T, alpha=-2.0).add_(points.square().sum(1, keepdim=True))
            found.append(_smallest(tile.unflatten(0, (-1, q)).amin(1), m))
        return torch.cat(found)

    def nearest_others(self) -> Tensor:
        """Returns the m nearest others of each training point, (n, m), in no order; m is then below n."""
        if self.x.shape[1] <= TREE_INPUTS:
            found = nearest_others(self._z.cpu().numpy(), self.m)
        else:
            found = without_own(replace(self, m=self.m + 1).nearest(self.x).cpu().numpy())
        return torch.as_tensor(found, device=self.x.device)

    def _scaled(self, x: Tensor) -> Tensor:
        """Returns z = (x − the middle of the training inputs)/ℓ in float64, (b, d)."""
        return (x.double() - self._middle) / self._lengths

    @cached_property
    def _lengths(self) -> Tensor:
        """The length scales where the inputs are, (d,) or (1,), in float64."""
        return self.theta.length_scales.to(self.x.device)

    @cached_property
    def _noise(self) -> Noise:
        """The noise of every training point."""
        return Noise(self.theta, self.noise)

    @cached_property
    def _leaves(self) -> Leaves:
        """The training points in leaves of near ones."""
        return Leaves.of(self._ranked[0])

    @cached_property
    def _middle(self) -> Tensor:
        """The mean of the training inputs, (d,), in float64."""
        return self.x.double().mean(0)

    @cached_property
    def _z(self) -> Tensor:
        """The training points in units of the length scales, (n, d), in float64."""
        return self._scaled(self.x)

    @cached_property
    def _ranked(self) -> tuple[Tensor, Tensor]:
        """The training points by which distances are ranked, in float32 if that tells near ones apart, and |z|²."""
        z = self._z
        squares = z.square().sum(1)
        some = z[:: max(1, len(z) // PROBED)][:PROBED]
        gaps = (squares[None] - 2.0 * some @ z.T).add_(some.square().sum(1, keepdim=True))
        last = float(gaps.kthvalue(self.m, 1).values.median())
        if 4.0 * torch.finfo(torch.float32).eps * float(squares.max()) <= SHUFFLED * last:
            return z.float(), squares.float()
        return z, squares

    def given(self, x_new: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Returns w, (b, m), and the variance, (b,), in float64, of new points given groups of training points."""
        return self._given(self._scaled(x_new), groups)

    def _given(self, new: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what :meth:`given` does, for points in units of the length scales, (b, d)."""
        signal = float(self.theta.signal_scale) ** 2
        z = self._z[groups] - new[:, None]  # (b, m, d), from the new point
        C = self.kernel.profile(distances_within(z, exact=not self.kernel.smooth_at_zero)).mul_(signal)
        C.diagonal(dim1=1, dim2=2).add_(self._noise.at(groups))
        k = self.kernel.profile(z.square().sum(2).sqrt_()).mul_(signal)[..., None]  # (b, m, 1)
        L, info = torch.linalg.cholesky_ex(C)
        half = torch.linalg.solve_triangular(L, k, upper=False)
        variance = signal - half.square().sum((1, 2))
        weights = torch.linalg.solve_triangular(L.mT, half, upper=True)[..., 0]
        good = (info == 0) & (variance > LEAST * signal)
        return weights, torch.where(good, variance, torch.nan)


def _smallest(tile: Tensor, m: int) -> Tensor:
    """Returns the places of the m smallest numbers of each row, (b, m), in no order.

    Groups of numbers are compared by their smallest first, in one fast pass: the m smallest numbers are in the m groups
    with the smallest. With √(n/m) numbers each, there are as many groups as numbers in the groups that are left.
    """
    n = tile.shape[1]
    size = math.isqrt(n // m)
    width = n // max(1, size)
    if size < 2:
        return tile.topk(m, 1, largest=False, sorted=False).indices
    least = tile[:, : width * size].unflatten(1, (size, width)).amin(1)  # (b, width)
    groups = least.topk(m, 1, largest=False, sorted=False).indices
    members = groups[:, None] + width * torch.arange(size, device=tile.device)[:, None]  # (b, size, m)
    rest = torch.arange(width * size, n, device=tile.device).expand(len(tile), -1)
    places = torch.cat([members.flatten(1), rest], 1)
    return places.gather(1, tile.gather(1, places).topk(m, 1, largest=False, sorted=False).indices)
