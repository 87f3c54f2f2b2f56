"""The posterior with gradients in the points that it is asked about: mean, samples, and covariances of few points.

What is computed is what :mod:`warmgp.posterior` computes, in float64 whatever the model's own precision, and with one
mechanism for all slopes (:mod:`warmgp.operators.slopes`). Covariances are exact for an exact model, and otherwise from
samples and near points (:mod:`warmgp.joint`). There are first derivatives only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from warmgp.control import near_count
from warmgp.joint import Blocks, scaled
from warmgp.operators.indices import ranges
from warmgp.operators.new_points import LEAST, NearPoints
from warmgp.operators.slopes import entries, products, with_slope
from warmgp.posterior import Posterior, within_reach

HELD = 2**25
"""Numbers of float64 that are held at once for a covariance: 256 MiB."""


@dataclass(frozen=True, eq=False)
class Differentiable:
    """Answers for a posterior with gradients, in standardised units; points are float64, on the posterior's device.

    Attributes
    ----------
    posterior : Posterior
    continuous : bool
        Whether covariances from samples change without jumps, for searches; else the variance of a point alone is that
        of :meth:`Posterior.mean_and_variance`. Both have the same error by chance.
    """

    posterior: Posterior
    continuous: bool = False

    def mean(self, x: Tensor) -> Tensor:
        """Returns the mean at points x, (m,), for x of (m, d)."""
        mean = self._products(x, self.posterior.solution[:, :1])[:, 0]
        return mean if self.posterior.trend is None else mean + self.posterior.trend.mean(x)

    def samples(self, x: Tensor, functions: Tensor | None = None) -> Tensor:
        """Returns the stored posterior functions at points x, (m, s), or those of these numbers; without noise."""
        posterior = self.posterior
        numbers = torch.arange(posterior.n_samples) if functions is None else functions
        columns = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + numbers.cpu()]).to(posterior.x.device)
        found = self._products(x, posterior.solution[:, columns])
        values = found[:, :1] + self._prior(x)[:, columns[1:] - 1] - found[:, 1:]
        if posterior.trend is None:
            return values
        left = self._trend_left(x) @ posterior.trend.coefficients[:, columns[1:]]
        return values + posterior.trend.mean(x)[:, None] - left

    def joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns means, (b, q), and latent covariances, (b, q, q), of blocks of points x, (b, q, d)."""
        n, (b, q, _) = len(self.posterior.x), x.shape
        near = 0 if self._blocks is None else self._blocks.count(q)
        size = max(1, HELD // max(1, n * q, near * max(near, self.posterior.n_samples, q * x.shape[2])))
        parts = [self._joint(x[some]) for some in ranges(b, size)]
        if not parts:
            return x.new_zeros(0, q), x.new_zeros(0, q, q)
        means, covariances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(covariances)

    def _joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns means and covariances of blocks that are held at once."""
        flat, shape, posterior = x.flatten(0, 1), x.shape[:2], self.posterior
        if posterior.exact:
            mean, latent = self._products(flat, posterior.solution[:, :1])[:, 0], self._exact(flat, shape)
        else:
            found = self._products(flat, posterior.solution)
            mean, known = found[:, 0], found[:, 1:].unflatten(0, shape)
            latent = self._sampled(flat, known, self._prior(flat).unflatten(0, shape) - known)
        if posterior.trend is not None:
            mean = mean + posterior.trend.mean(flat)
            left = self._trend_left(flat).unflatten(0, shape)
            latent = latent + left @ posterior.trend.covariance @ left.mT
        return mean.unflatten(0, shape), latent

    def _sampled(self, flat: Tensor, known: Tensor, deviation: Tensor) -> Tensor:
        """Returns the covariances by samples, (b, q, q), for what data say and leave open of each, (b, q, s)."""
        if self._blocks is None:  # no targets are kept: samples alone
            return scaled(0.0, 1.0, deviation, deviation.square().mean(2), LEAST * self._signal)
        shape = deviation.shape[:2]
        x, z = self._reached(flat).unflatten(0, shape), self._scaled(flat).unflatten(0, shape)
        return self._blocks.covariance(x, z, known, deviation)

    def _exact(self, flat: Tensor, shape: torch.Size) -> Tensor:
        """Returns k(x, x) − k(x, X) H⁻¹ k(X, x) of every block, (b, q, q), by the factor of H."""
        z, signal, kernel = self._scaled(flat), self._signal, self.posterior.kernel
        cross = signal * entries(self._z, z, kernel)  # (n, b q)
        half = torch.linalg.solve_triangular(self.posterior.cholesky_factor(), cross, upper=False)
        half = half.unflatten(1, shape).movedim(1, 0)  # (b, n, q)
        own = z.unflatten(0, shape)
        latent = signal * entries(own, own, kernel) - half.mT @ half
        lacking = (LEAST * signal - latent.diagonal(dim1=1, dim2=2)).clamp_min(0.0)  # what rounding took
        return latent + torch.diag_embed(lacking)

    # -- parts -------------------------------------------------------------------------------------------------------
    def _products(self, x: Tensor, V: Tensor) -> Tensor:
        """Returns k(x, X) V, (m, c)."""
        return self._signal * products(self._scaled(x), self._z, V, self.posterior.kernel)

    def _prior(self, x: Tensor) -> Tensor:
        """Returns the prior functions at x, (m, s)."""
        prior, theta = self.posterior.prior, self.posterior.theta
        return with_slope(
            self._reached(x), lambda x: prior.evaluate(x, theta), lambda x, weights: prior.slope(x, weights, theta)
        )

    def _trend_left(self, x: Tensor) -> Tensor:
        """Returns t(x) − k(x, X) V, (m, p): what of the trend the data near by do not fix."""
        trend = self.posterior.trend
        assert trend is not None
        return trend.basis.at(x) - self._products(x, trend.solution)

    def _reached(self, x: Tensor) -> Tensor:
        """Returns points x, (m, d), with those outside of the kernel's reach moved to its border."""
        return within_reach(x, self._corners, self.posterior.theta, self.posterior.kernel)

    def _scaled(self, x: Tensor) -> Tensor:
        """Returns points x, (m, d), from the middle of the training inputs, in units of the length scales."""
        return (self._reached(x) - self._middle) / self._lengths

    @cached_property
    def _signal(self) -> float:
        """The variance of the prior."""
        return float(self.posterior.theta.signal_scale) ** 2

    @cached_property
    def _lengths(self) -> Tensor:
        """The length scales, (d,) or (1,)."""
        return self.posterior.theta.length_scales.to(self.posterior.x.device)

    @cached_property
    def _middle(self) -> Tensor:
        """The mean of the training inputs, (d,)."""
        return self.posterior.x.double().mean(0)

    @cached_property
    def _corners(self) -> Tensor:
        """The least and the largest of each training input, (2, d)."""
        return torch.stack([self.posterior.x.amin(0), self.posterior.x.amax(0)]).double()

    @cached_property
    def _z(self) -> Tensor:
        """The training inputs from their middle, in units of the length scales, (n, d)."""
        return (self.posterior.x.double() - self._middle) / self._lengths

    @cached_property
    def _blocks(self) -> Blocks | None:
        """The estimator of covariances by samples and near points, where the samples' targets are known."""
        old = self.posterior
        if old.exact or old.targets is None:
            return None
        near = NearPoints(old.x, old.kernel, old.theta, near_count(*old.x.shape), old.noise)
        return Blocks(self._z, near, old.targets, self.continuous)
