"""The Matérn kernels ν = 1/2, 3/2 and 5/2, with a multivariate t of 2ν degrees of freedom as their spectral density."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from warmgp.kernels.base import FusedForm, Kernel


class Matern(Kernel):
    """Holds what the three Matérn kernels share: a multivariate-t spectrum with 2ν degrees of freedom."""

    nu: ClassVar[float]
    stretch: ClassVar[float]  # factor from one scale of the tail to the next: the rougher the kernel, the larger

    def tail_scales(self, d: int) -> tuple[float, ...]:
        return tuple(self.stretch**k for k in range(1, 7))

    def spectral_log_density(self, omega: Tensor) -> Tensor:
        d, df = omega.shape[-1], 2 * self.nu
        constant = math.lgamma((df + d) / 2) - math.lgamma(df / 2) - 0.5 * d * math.log(df * math.pi)
        return constant - 0.5 * (df + d) * torch.log1p(omega.square().sum(-1) / df)

    def sample_frequencies(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        df = int(2 * self.nu)  # 1, 3 or 5: the chi-square is a sum of that many squared normals
        normal = torch.randn(m, d, dtype=torch.float64, generator=generator)
        chi2 = torch.randn(m, df, dtype=torch.float64, generator=generator).square().sum(1, keepdim=True)
        return normal * torch.sqrt(df / chi2)


class Matern12(Matern):
    """Evaluates the Matérn-1/2 (exponential) kernel, k(r) = exp(−r), which is not differentiable at r = 0."""

    name = "matern12"
    nu = 0.5
    follow = 2.0
    stretch = 6.0
    reach = 1e3  # exp(−1000) is zero in float64, whose least number is about 10⁻³²⁴
    smooth_at_zero = False

    def profile(self, r: Tensor) -> Tensor:
        return torch.exp(-r)

    def length_weight(self, r: Tensor) -> Tensor:
        coincident = r == 0
        return torch.exp(-r).div_(r.masked_fill(coincident, 1.0)).masked_fill_(coincident, 0.0)

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        k = torch.neg(r, out=work).exp_()
        coincident = r == 0
        return k, torch.div(k, r, out=r).masked_fill_(coincident, 0.0)

    def fused_form(self) -> FusedForm:
        from warmgp.kernels import fused

        return fused.MATERN12

    def least_features(self, d: int) -> int:
        """Returns 8,000 for one input, where what data leave open is spread over five powers of ten of frequencies.

        2,000 features give its std to 7% only, 8,000 to 3%.
        """
        return 8_000 if d == 1 else super().least_features(d)


class Matern32(Matern):
    """Evaluates the Matérn-3/2 kernel, k(r) = (1 + √3 r) exp(−√3 r), which the paper uses."""

    name = "matern32"
    nu = 1.5
    follow = 1 / 1.5
    stretch = 3.0
    reach = 1e3  # exp(−1000) is zero in float64, whose least number is about 10⁻³²⁴

    def profile(self, r: Tensor) -> Tensor:
        a = r * math.sqrt(3.0)
        return torch.exp(-a).mul_(a.add_(1.0))

    def length_weight(self, r: Tensor) -> Tensor:
        return torch.exp(r * -math.sqrt(3.0)).mul_(3.0)

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        a = r.mul_(math.sqrt(3.0))
        e = torch.neg(a, out=work).exp_()
        return torch.addcmul(e, a, e, out=a), e.mul_(3.0)

    def fused_form(self) -> FusedForm:
        from warmgp.kernels import fused

        return fused.MATERN32


class Matern52(Matern):
    """Evaluates the Matérn-5/2 kernel, k(r) = (1 + √5 r + 5r²/3) exp(−√5 r)."""

    name = "matern52"
    nu = 2.5
    follow = 1 / 2.5
    stretch = 2.5
    reach = 1e3  # exp(−1000) is zero in float64, whose least number is about 10⁻³²⁴

    def profile(self, r: Tensor) -> Tensor:
        a = r * math.sqrt(5.0)
        return torch.exp(-a).mul_((a * a).div_(3.0).add_(a).add_(1.0))

    def length_weight(self, r: Tensor) -> Tensor:
        a = r * math.sqrt(5.0)
        return torch.exp(-a).mul_(a.add_(1.0)).mul_(5.0 / 3.0)

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        a = r.mul_(math.sqrt(5.0))
        e = torch.neg(a, out=work).exp_()
        square = (a * a).mul_(e).div_(3.0)
        linear = torch.addcmul(e, a, e, out=e)
        return torch.add(square, linear, out=a), linear.mul_(5.0 / 3.0)

    def fused_form(self) -> FusedForm:
        from warmgp.kernels import fused

        return fused.MATERN52
