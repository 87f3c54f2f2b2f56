"""The squared-exponential kernel, k(r) = exp(−r²/2), with the spectral density N(0, I)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warmgp.kernels.base import FusedForm, Kernel


class RBF(Kernel):
    """Evaluates the squared-exponential kernel, k(r) = exp(−r²/2)."""

    name = "rbf"
    reach = 1e3  # exp(−5·10⁵) is zero in float64, whose least number is about 10⁻³²⁴
    near_neighbours_suffice = False  # so smooth that points far away still tell something

    def profile(self, r: Tensor) -> Tensor:
        return torch.exp(-0.5 * r * r)

    def length_weight(self, r: Tensor) -> Tensor:
        return torch.exp(-0.5 * r * r)

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        k = torch.mul(r, r, out=work).mul_(-0.5).exp_()
        return r.copy_(k), k

    def fused_form(self) -> FusedForm:
        from warmgp.kernels import fused

        return fused.RBF

    def spectral_log_density(self, omega: Tensor) -> Tensor:
        d = omega.shape[-1]
        return -0.5 * omega.square().sum(-1) - 0.5 * d * math.log(2 * math.pi)

    def sample_frequencies(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        return torch.randn(m, d, dtype=torch.float64, generator=generator)

    def tail_scales(self, d: int) -> tuple[float, ...]:
        """Returns stretches that reach 1 to 5 beyond the usual |ω|, which is √d ± 0.7.

        n points with noise σ tell frequencies up to about |ω|² = 2 log(n/σ²).
        """
        return tuple(1 + t / math.sqrt(d) for t in range(1, 6))
