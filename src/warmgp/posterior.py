"""The posterior from solutions alone: mean, variance and whole functions at new points, with no further solve.

    mean(·)      = k(·, x) v_y
    sample_j(·)  = f_j(·) + k(·, x)(v_y − ẑ_j)
    variance(·)  ≈ 1/s Σ_j (f_j(·) − k(·, x) ẑ_j)²          (latent; add σ² for observations)

What near points say of each f_j, whose variance is known, takes most of the error by chance from that average
(``control.py``).

Several targets have a v_y each, and share the rest: their deviations have one distribution, and the same functions f_j
serve each of them.

With a trend v_y is H⁻¹(y − Tβ̂), and t(·)ᵀβ̂, u(·)ᵀA⁻¹u(·) and −u(·)ᵀβ̃_j are added to the three (:mod:`warmgp.trend`).

New points go through in batches, so memory is bounded by batch × (tile + samples), never n × n_new. A model solved
exactly also has the Cholesky factor of H, and then variances and covariances are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from warmgp.control import Control, Targets, std_error
from warmgp.gradient.features import FeaturePrior
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators import KernelOperator, make_operator
from warmgp.operators.indices import ranges
from warmgp.operators.row_noise import RowNoise
from warmgp.solvers.cholesky import factorise
from warmgp.trend import Trend


def within_reach(x_new: Tensor, x: Tensor, theta: Hyperparameters, kernel: Kernel) -> Tensor:
    """Returns the new points, (m, d), with those outside of the kernel's reach moved to its border.

    Out there k(·, x) is zero to the last bit: the prior's mean and variance are back as they were, and no square of a
    distance overflows.
    """
    most = (torch.finfo(x.dtype).max / x.shape[1]) ** 0.5 / 4  # whose square is a number, added up over inputs
    beyond = min(kernel.reach, most) * theta.length_scales.to(x)
    return x_new.clamp(x.amin(0) - beyond, x.amax(0) + beyond)


@dataclass(frozen=True)
class Posterior:
    """Holds a trained Gaussian process, in the units it was trained in.

    Attributes
    ----------
    x : Tensor, (n, d)
        Training inputs.
    kernel : Kernel
    theta : Hyperparameters
    solution : Tensor, (n, q + s)
        [v_y, ẑ_1 … ẑ_s], with a v_y for each of q targets
    prior : FeaturePrior
        The functions f_j behind ẑ_j.
    exact : bool
        Whether variances and covariances come from the Cholesky factor of H instead of the samples.
    factor : Tensor or None, (n, n)
        That factor in float64; an exact posterior without one makes it when first needed.
    batch_size : int
        New points handled at once.
    trend : Trend or None
        A trend beside the process; v_y is then H⁻¹(y − Tβ̂).
    targets : Targets or None
        What the ẑ_j were solved for, by which variances from samples lose most of their error by chance; without it
        they are averages over the samples alone.
    noise : RowNoise or None
        What the noise of each training row is made of; None where it is σ² for all.
    n_targets : int
        The number of targets, q. A mean is (m,) for one target, and (m, q) for several.
    """

    x: Tensor
    kernel: Kernel
    theta: Hyperparameters
    solution: Tensor
    prior: FeaturePrior
    exact: bool = False
    factor: Tensor | None = None
    batch_size: int = 8192
    trend: Trend | None = None
    targets: Targets | None = None
    noise: RowNoise | None = None
    n_targets: int = 1

    @property
    def n_samples(self) -> int:
        """The number of posterior functions, s."""
        return self.solution.shape[1] - self.n_targets

    @property
    def noise_variance(self) -> float:
        """The variance of the noise of a new observation, σ²: of weight one, without a known error."""
        return float(self.theta.noise_scale) ** 2

    def to(self, device: torch.device | str) -> Posterior:
        """Returns the same posterior on ``device``; θ stays on the CPU."""
        prior = FeaturePrior(*(part.to(device) for part in vars(self.prior).values()))
        factor = None if self.factor is None else self.factor.to(device)
        trend = None if self.trend is None else self.trend.to(device)
        targets = None if self.targets is None else self.targets.to(device)
        noise = None if self.noise is None else self.noise.to(device)
        return replace(
            self, x=self.x.to(device), solution=self.solution.to(device), prior=prior, factor=factor, trend=trend,
            targets=targets, noise=noise,
        )  # fmt: skip

    def of_target(self, which: int) -> Posterior:
        """Returns the posterior of one of the targets alone, counted from 0."""
        q, trend = self.n_targets, self.trend
        own = [which, *range(q, self.solution.shape[1])]
        if trend is not None:
            trend = replace(trend, coefficients=trend.coefficients[:, own], n_targets=1)
        return replace(self, solution=self.solution[:, own], trend=trend, n_targets=1)

    def mean(self, x_new: Tensor) -> Tensor:
        """Returns k(x_new, x) v_y and the trend, (m,) or (m, q), without evaluating the samples."""
        operator, own = self._operator(), self.solution[:, : self.n_targets]
        mean = self._flat(self._batched(x_new, lambda x: operator.cross_matmul(x, own)))
        return mean if self.trend is None else mean + self._in_parts(x_new, self.trend.mean)

    def mean_and_variance(self, x_new: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean, (m,) or (m, q), and the latent variance, (m,), which all targets share; from samples in one
        pass over k(x_new, x)."""
        operator, q = self._operator(), self.n_targets

        def both(x: Tensor) -> Tensor:
            if self.exact:
                mean = operator.cross_matmul(x, self.solution[:, :q])
                return torch.cat([mean, self._exact_covariance(operator, x, diagonal=True).to(mean)[:, None]], 1)
            products, deviation = self._products_and_deviation(operator, x)
            return torch.cat([products[:, :q], self._sampled_variance(x, products, deviation)[0][:, None]], 1)

        made = self._batched(x_new, both)
        return self._with_trend(x_new, self._flat(made[:, :q]), made[:, q])

    def std_error(self, x_new: Tensor, noise_variance: float = 0.0) -> Tensor:
        """Returns the relative error by chance of the std at x_new, (m,): zero where variances are exact.

        It is that of √(variance + ``noise_variance``), estimated from the same samples. What a trend adds to the
        variance has no such error.
        """
        if self.exact:
            return torch.zeros(len(x_new), dtype=self.x.dtype, device=self.x.device)
        operator = self._operator()

        def both(x: Tensor) -> Tensor:
            return torch.stack(self._sampled_variance(x, *self._products_and_deviation(operator, x)), 1)

        latent, of_latent = self._batched(x_new, both).T
        none = torch.zeros(len(latent), self.n_targets).to(latent)
        _, variance = self._with_trend(x_new, self._flat(none), latent)
        return of_latent * latent / (variance + noise_variance).clamp_min(torch.finfo(latent.dtype).tiny)

    def products(self, x_new: Tensor) -> Tensor:
        """Returns k(x_new, x) [v_y, ẑ_1 … ẑ_s], (m, q + s), by the arithmetic of every prediction."""
        operator = self._operator()
        return self._batched(x_new, lambda x: operator.cross_matmul(x, self.solution))

    def samples(self, x_new: Tensor) -> Tensor:
        """Returns every stored posterior function at x_new, (m, s), or (m, q, s) for several targets; the functions are
        the same at every call.

        Targets are independent given θ: function k of target j has the deviation of prior function k + j, counted in a
        circle, so that those of one k have nothing in common.
        """
        operator, q = self._operator(), self.n_targets

        def functions(x: Tensor) -> Tensor:
            products, deviation = self._products_and_deviation(operator, x)
            return self._flat(products[:, :q, None] + self._for_targets(deviation))

        found = self._batched(x_new, functions)
        if self.trend is None:
            return found
        deviation = self._flat(self._for_targets(self._trend_left(x_new) @ self.trend.deviations))
        return found + self._in_parts(x_new, self.trend.mean)[..., None] - deviation

    def covariance(self, x_new: Tensor) -> Tensor:
        """Returns the latent covariance, (m, m): exact with a factor, else of rank at most s from the samples.

        The samples' deviations are scaled to the variances of :meth:`mean_and_variance`, which are its diagonal.
        """
        operator = self._operator()
        if self.exact:
            near = within_reach(x_new, self.x, self.theta, self.kernel)
            latent = self._exact_covariance(operator, near, diagonal=False)
        else:

            def scaled(x: Tensor) -> Tensor:
                products, deviation = self._products_and_deviation(operator, x)
                size = torch.linalg.vector_norm(deviation, dim=1).clamp_min(torch.finfo(x.dtype).tiny)
                return deviation * (self._sampled_variance(x, products, deviation)[0].sqrt() / size)[:, None]

            deviation = self._batched(x_new, scaled)
            latent = deviation @ deviation.T
        if self.trend is None:
            return latent
        left = self._trend_left(x_new)
        return latent + left @ self.trend.covariance @ left.T

    def cholesky_factor(self, *, keep: bool = True) -> Tensor:
        """Returns the lower Cholesky factor of H, (n, n), in float64.

        It is made once, in n³/3 operations, where it did not come with the model; without ``keep`` it is made for the
        caller alone.
        """
        if self.factor is not None:
            return self.factor
        made = factorise(self._operator())
        if keep:
            object.__setattr__(self, "factor", made)
        return made

    def _trend_left(self, x_new: Tensor) -> Tensor:
        """Returns u = t(x_new) − k(x_new, x) V, (m, p) in float64: what of the trend the data near by do not fix."""
        assert self.trend is not None
        operator, solution = self._operator(), self.trend.solution
        return self.trend.basis.at(x_new) - self._batched(x_new, lambda x: operator.cross_matmul(x, solution)).double()

    def _with_trend(self, x_new: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and latent variance with what the trend adds to them: t β̂ and uᵀA⁻¹u."""
        if self.trend is None:
            return mean, variance
        trend = self.trend

        def both(x: Tensor) -> Tensor:
            left, centre = self._trend_left(x), trend.mean(x).reshape(len(x), -1)
            return torch.cat([centre, ((left @ trend.covariance) * left).sum(1, keepdim=True)], 1)

        added = self._in_parts(x_new, both)
        return mean + self._flat(added[:, :-1]), variance + added[:, -1]

    def _flat(self, means: Tensor) -> Tensor:
        """Returns means (m, q), or functions (m, q, s), as they are asked for: of one target without its axis."""
        return means[:, 0] if self.n_targets == 1 else means

    def _for_targets(self, deviations: Tensor) -> Tensor:
        """Returns deviations (m, s) as each of the targets has them, (m, q, s)."""
        return torch.stack([deviations.roll(-j, 1) if j else deviations for j in range(self.n_targets)], 1)

    def _operator(self) -> KernelOperator:
        return make_operator("auto", self.x, self.kernel, self.theta, rows=self.noise)

    def _products_and_deviation(self, operator: KernelOperator, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns k [v_y, ẑ_1 … ẑ_s], (b, q + s), and f_j − k ẑ_j, (b, s)."""
        products = operator.cross_matmul(x, self.solution)
        return products, self.prior.evaluate(x, self.theta) - products[:, self.n_targets :]

    def _sampled_variance(self, x: Tensor, products: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the latent variances, (b,), and the relative errors by chance of their square roots, (b,)."""
        if self._control is None:
            variance = deviation.square().mean(1)
            return variance, std_error(torch.zeros_like(variance), self.n_samples)
        variance, error = self._control.variance(x, products[:, self.n_targets :], deviation)
        return variance.to(x.dtype), error.to(x.dtype)

    @cached_property
    def _control(self) -> Control | None:
        """The control of variances from samples, where their targets are known."""
        return None if self.targets is None else Control.of(self.x, self.kernel, self.theta, self.targets, self.noise)

    def _exact_covariance(self, operator: KernelOperator, x: Tensor, *, diagonal: bool) -> Tensor:
        """Returns k(x, x) − k(x, X) H⁻¹ k(X, x) in float64, (b, b), or its diagonal, (b,)."""
        double = operator.in_float64()
        cross = double.kernel_between(x.double())  # (n, b)
        half = torch.linalg.solve_triangular(self.cholesky_factor(), cross, upper=False)
        if diagonal:
            return (double.signal_variance - half.square().sum(0)).clamp_min_(0.0)
        new = make_operator("chunked", x.double(), self.kernel, self.theta)
        prior = new.kernel_columns(slice(0, x.shape[0]))
        return prior - half.T @ half

    def _batched(self, x_new: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return self._in_parts(within_reach(x_new, self.x, self.theta, self.kernel), f)

    def _in_parts(self, x_new: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        # an exact variance takes n numbers per new point: at most 2²⁶ at once
        size = self.batch_size if not self.exact else max(1, min(self.batch_size, 2**26 // self.x.shape[0]))
        parts = [f(x_new[rows]) for rows in ranges(x_new.shape[0], size)]
        return torch.cat(parts) if parts else f(x_new)
