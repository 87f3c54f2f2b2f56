"""Prior functions f ~ GP(0, k): random Fourier features anywhere, exact draws at the training points.

Random features (m sin/cos pairs) turn a prior draw into a finite sum that can be evaluated at any x:

    f(x) = s/√m Σ_i [ a_i sin(ω_i·x/ℓ) + b_i cos(ω_i·x/ℓ) ],   ω_i ~ p(ω) of the kernel,  a_i, b_i ~ N(0, 1),

because E[f(x) f(x')] = s²/m Σ_i cos(ω_i·(x − x')/ℓ) → s² k(r).

Beyond the paper, frequencies are not drawn from p(ω) but from a q(ω) with a heavier tail, and a_i, b_i ~ N(0, p/q): the
same kernel on average. It matters where noise is low. A posterior variance is the share of the prior's variance that
the data leave open, and that is its highest frequencies, of which p has next to none: a share of 10⁻⁵ is a hundredth of
one frequency out of 1,000, and the variance from such samples is off by a factor of ten or more.

What is random (ω, a, b) is drawn once; evaluating at a new θ moves the same function with it, which is what the paper
means by fixed probes. Everything is drawn in float64 on the CPU, so that a seed means the same functions on every
device and in every dtype.

Exact draws f = chol(K) u exist at the training points only and cost n³/3: they show what random features cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.checks import check_features
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import KernelOperator, default_tile_entries
from warmgp.operators.indices import ranges

FASTEST = 2e4
"""Frequency over length scale above which phases are made in float64: float32 would round them by 0.01 and more."""


@dataclass(frozen=True)
class FeaturePrior:
    """Holds s prior functions as weights of m sin/cos pairs.

    Attributes
    ----------
    frequencies : Tensor, (m, d)
        ω of the unit kernel; evaluation divides by the length scales.
    sin_weights, cos_weights : Tensor, (m, s)
        The weights a and b of each function.
    """

    frequencies: Tensor
    sin_weights: Tensor
    cos_weights: Tensor

    @classmethod
    def draw(
        cls,
        kernel: Kernel,
        d: int,
        n_features: int,
        n_functions: int,
        *,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
        plain: bool = False,
    ) -> FeaturePrior:
        """Draws ``n_functions`` prior functions of ``n_features`` features (half sin, half cos).

        With ``plain`` the frequencies come from p(ω) itself, as in the paper.
        """
        check_features(n_features)
        m = n_features // 2
        frequencies, amplitudes = spread_frequencies(kernel, m, d, generator, () if plain else kernel.tail_scales(d))
        weights = torch.randn(2, m, n_functions, dtype=torch.float64, generator=generator) * amplitudes[:, None]
        parts = (frequencies, weights[0], weights[1])
        return cls(*(part.to(device=device, dtype=dtype) for part in parts))

    def in_float64(self) -> FeaturePrior:
        """Returns the same functions in float64."""
        return FeaturePrior(self.frequencies.double(), self.sin_weights.double(), self.cos_weights.double())

    @property
    def n_features(self) -> int:
        """The number of features, 2m."""
        return 2 * self.frequencies.shape[0]

    @property
    def n_functions(self) -> int:
        """The number of functions, s."""
        return self.sin_weights.shape[1]

    def evaluate(self, x: Tensor, theta: Hyperparameters, *, tile_entries: int | None = None) -> Tensor:
        """Returns f(x) of every function at θ, (rows of x, s), by blocks of rows and features of bounded memory."""
        tile_entries = tile_entries or default_tile_entries(x.device)
        m = self.frequencies.shape[0]
        scaled = x / theta.length_scales.to(x)
        out = x.new_zeros(x.shape[0], self.n_functions)
        width = min(m, max(1, tile_entries // max(1, min(x.shape[0], 2048))))
        for part, exact in self._by_speed(x.dtype, theta):
            for pairs in ranges(part.frequencies.shape[0], width):
                frequencies = part.frequencies[pairs].T.to(x)
                sin_weights, cos_weights = part.sin_weights[pairs].to(x), part.cos_weights[pairs].to(x)
                for rows in ranges(x.shape[0], max(1, tile_entries // width)):
                    phase = _exact_phase(scaled[rows], frequencies) if exact else scaled[rows] @ frequencies
                    out[rows] += torch.sin(phase) @ sin_weights
                    out[rows] += phase.cos_() @ cos_weights
        return out.mul_(float(theta.signal_scale) / math.sqrt(m))

    def slope(self, x: Tensor, weights: Tensor, theta: Hyperparameters) -> Tensor:
        """Returns Σ_j weights_j ∂f_j(x)/∂x, (rows of x, d), for weights of (rows of x, s), in the dtype of x."""
        m, lengths = self.frequencies.shape[0], theta.length_scales.to(x)
        scaled, out = x / lengths, torch.zeros_like(x)
        width = min(m, max(1, default_tile_entries(x.device) // max(1, x.shape[0])))
        for pairs in ranges(m, width):
            frequencies = self.frequencies[pairs].to(x)
            phase = scaled @ frequencies.T
            along = torch.cos(phase).mul_(weights @ self.sin_weights[pairs].to(x).T)
            along -= phase.sin_().mul_(weights @ self.cos_weights[pairs].to(x).T)
            out += along @ frequencies
        return out.mul_(float(theta.signal_scale) / math.sqrt(m)).div_(lengths)

    def _by_speed(self, dtype: torch.dtype, theta: Hyperparameters) -> list[tuple[FeaturePrior, bool]]:
        """Returns (features, whether their phases need float64): float32 does for all but the few of the tail."""
        if dtype == torch.float64:
            return [(self, False)]
        fast = (self.frequencies.abs() / theta.length_scales.to(self.frequencies)).amax(1) > FASTEST
        if not bool(fast.any()):
            return [(self, False)]
        parts = (self.frequencies, self.sin_weights, self.cos_weights)
        return [
            (FeaturePrior(*(part[which] for part in parts)), exact) for which, exact in ((~fast, False), (fast, True))
        ]


def _exact_phase(scaled: Tensor, frequencies: Tensor) -> Tensor:
    """Returns ω·x/ℓ less whole turns, computed in float64, in the dtype of ``scaled``."""
    return (scaled.double() @ frequencies.double()).remainder_(2 * math.pi).to(scaled)


def spread_frequencies(
    kernel: Kernel, m: int, d: int, generator: torch.Generator, scales: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Returns m frequencies, (m, d), and amplitudes √(p/q), (m,), which make up for more in p's tail than p has.

    Half of the frequencies are from p, the other half from p stretched by each of ``scales``, in equal parts:

        q(ω) = Σ_c m_c/m · c⁻ᵈ p(ω/c)        with m_c frequencies of scale c.
    """
    counts = [m - m // 2, *[len(part) for part in torch.arange(m // 2).tensor_split(len(scales))]] if scales else [m]
    stretch = torch.tensor([1.0, *scales], dtype=torch.float64).repeat_interleave(torch.tensor(counts))
    frequencies = stretch[:, None] * kernel.sample_frequencies(m, d, generator)
    log_q = torch.stack([
        math.log(count / m) - d * math.log(scale) + kernel.spectral_log_density(frequencies / scale)
        for count, scale in zip(counts, (1.0, *scales), strict=True)
        if count
    ]).logsumexp(0)  # fmt: skip
    return frequencies, torch.exp(0.5 * (kernel.spectral_log_density(frequencies) - log_q))


@dataclass(frozen=True)
class ExactPrior:
    """Holds s exact prior draws at the training points: f = chol(K(x, x; θ)) u with u frozen.

    Attributes
    ----------
    normal : Tensor, (n, s)
        The standard normal numbers u, in float64 on the CPU.
    """

    normal: Tensor

    @classmethod
    def draw(cls, n: int, n_functions: int, *, generator: torch.Generator) -> ExactPrior:
        """Draws u for ``n_functions`` functions at n points."""
        return cls(torch.randn(n, n_functions, dtype=torch.float64, generator=generator))

    def evaluate(self, operator: KernelOperator) -> Tensor:
        """Returns f(x) at the operator's own points and θ, (n, s)."""
        K = operator.in_float64().kernel_columns(slice(0, operator.n))
        K.diagonal().add_(1e-10 * operator.signal_variance)  # K alone may be singular (duplicated rows)
        return (torch.linalg.cholesky(K) @ self.normal.to(K)).to(operator.dtype)
