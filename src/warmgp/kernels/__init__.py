"""Stationary kernels k(x, x') = signal² · k(r) with r = |(x − x')/ℓ|: RBF and Matérn-1/2, 3/2, 5/2.

A kernel is three functions of the scaled distance r, and a spectral density:

- ``profile``        k(r), with k(0) = 1;
- ``derivative``     k′(r);
- ``length_weight``  ω(r) = −k′(r)/r, because ∂k/∂ℓ_j = ω(r) (x_j − x'_j)² / ℓ_j³. It is finite at r = 0 except for
  Matérn-1/2, which is not differentiable there: coincident pairs count zero, like the factor (x_j − x'_j)² says;
- ``spectral_log_density`` and ``sample_frequencies``: the density p(ω) with k(r) = E_p[cos(ω·δ)], |δ| = r. It is
  N(0, I) for RBF and a multivariate t with 2ν degrees of freedom for Matérn-ν.

To add a kernel, subclass :class:`Kernel` and fill in the three functions and the spectrum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Kernel(ABC):
    """One stationary kernel of unit signal and unit length."""

    name: ClassVar[str]
    smooth_at_zero: ClassVar[bool] = True  # whether k(r) − 1 = O(r²), so that rounding in r² near 0 is harmless

    def __init_subclass__(cls, **options: Any) -> None:
        """A kernel with functions of its own does not inherit another one's shortcut for them."""
        super().__init_subclass__(**options)
        author = next(c for c in cls.__mro__ if "evaluate" in vars(c))
        same = cls.profile is author.profile and cls.length_weight is author.length_weight  # type: ignore[attr-defined]
        if author not in (cls, Kernel) and not same:
            cls.evaluate = Kernel.evaluate  # type: ignore[method-assign]

    @abstractmethod
    def profile(self, r: Tensor) -> Tensor:
        """k(r)."""

    @abstractmethod
    def derivative(self, r: Tensor) -> Tensor:
        """k′(r)."""

    @abstractmethod
    def length_weight(self, r: Tensor) -> Tensor:
        """ω(r) = −k′(r)/r, zero where r = 0 if the limit is not finite."""

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        """(k(r), ω(r)), which may be written over r and over ``work`` of the same shape: for tiles in a hurry."""
        return self.profile(r), self.length_weight(r)

    @abstractmethod
    def spectral_log_density(self, omega: Tensor) -> Tensor:
        """log p(ω) for frequencies ω of shape (m, d); returns (m,)."""

    @abstractmethod
    def sample_frequencies(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        """m draws from p(ω), (m, d), float64 on the CPU."""

    def tail_scales(self, d: int) -> tuple[float, ...]:
        """Stretches of p(ω) that reach into its tail, where the posterior's variance is: :mod:`warmgp.gradient.features`."""
        return ()


class RBF(Kernel):
    """Squared exponential, k(r) = exp(−r²/2)."""

    name = "rbf"

    def profile(self, r: Tensor) -> Tensor:
        return torch.exp(-0.5 * r * r)

    def derivative(self, r: Tensor) -> Tensor:
        return -r * torch.exp(-0.5 * r * r)

    def length_weight(self, r: Tensor) -> Tensor:
        return torch.exp(-0.5 * r * r)

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        k = torch.mul(r, r, out=work).mul_(-0.5).exp_()
        return r.copy_(k), k

    def spectral_log_density(self, omega: Tensor) -> Tensor:
        d = omega.shape[-1]
        return -0.5 * omega.square().sum(-1) - 0.5 * d * math.log(2 * math.pi)

    def sample_frequencies(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        return torch.randn(m, d, dtype=torch.float64, generator=generator)

    def tail_scales(self, d: int) -> tuple[float, ...]:
        """Up to five standard deviations of |ω|, which is √d ± 0.7: n points with noise σ tell frequencies up to about
        |ω|² = 2 log(n/σ²)."""
        return tuple(1 + t / math.sqrt(d) for t in range(1, 6))


class Matern(Kernel):
    """What the three Matérn kernels share: a multivariate-t spectrum with 2ν degrees of freedom."""

    nu: ClassVar[float]
    stretch: ClassVar[float]  # from one scale of the tail to the next: the rougher the kernel, the further

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
    """Matérn-1/2 (exponential), k(r) = exp(−r). Not differentiable at r = 0."""

    name = "matern12"
    nu = 0.5
    stretch = 6.0
    smooth_at_zero = False

    def profile(self, r: Tensor) -> Tensor:
        return torch.exp(-r)

    def derivative(self, r: Tensor) -> Tensor:
        return -torch.exp(-r)

    def length_weight(self, r: Tensor) -> Tensor:
        coincident = r == 0
        return torch.exp(-r).div_(r.masked_fill(coincident, 1.0)).masked_fill_(coincident, 0.0)

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        k = torch.neg(r, out=work).exp_()
        coincident = r == 0
        return k, torch.div(k, r, out=r).masked_fill_(coincident, 0.0)


class Matern32(Matern):
    """Matérn-3/2, k(r) = (1 + √3 r) exp(−√3 r): the paper's kernel."""

    name = "matern32"
    nu = 1.5
    stretch = 3.0

    def profile(self, r: Tensor) -> Tensor:
        a = r * math.sqrt(3.0)
        return torch.exp(-a).mul_(a.add_(1.0))

    def derivative(self, r: Tensor) -> Tensor:
        return -3.0 * r * torch.exp(-math.sqrt(3.0) * r)

    def length_weight(self, r: Tensor) -> Tensor:
        return torch.exp(r * -math.sqrt(3.0)).mul_(3.0)

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        a = r.mul_(math.sqrt(3.0))
        e = torch.neg(a, out=work).exp_()
        return torch.addcmul(e, a, e, out=a), e.mul_(3.0)


class Matern52(Matern):
    """Matérn-5/2, k(r) = (1 + √5 r + 5r²/3) exp(−√5 r)."""

    name = "matern52"
    nu = 2.5
    stretch = 2.5

    def profile(self, r: Tensor) -> Tensor:
        a = r * math.sqrt(5.0)
        return torch.exp(-a).mul_((a * a).div_(3.0).add_(a).add_(1.0))

    def derivative(self, r: Tensor) -> Tensor:
        a = r * math.sqrt(5.0)
        return -5.0 / 3.0 * r * (1.0 + a) * torch.exp(-a)

    def length_weight(self, r: Tensor) -> Tensor:
        a = r * math.sqrt(5.0)
        return torch.exp(-a).mul_(a.add_(1.0)).mul_(5.0 / 3.0)

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        a = r.mul_(math.sqrt(5.0))
        e = torch.neg(a, out=work).exp_()
        square = (a * a).mul_(e).div_(3.0)
        linear = torch.addcmul(e, a, e, out=e)
        return torch.add(square, linear, out=a), linear.mul_(5.0 / 3.0)


KERNELS: dict[str, Kernel] = {k.name: k for k in (RBF(), Matern12(), Matern32(), Matern52())}


def get_kernel(kernel: str | Kernel) -> Kernel:
    """The kernel of that name, or the kernel itself."""
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str) or kernel not in KERNELS:
        names = ", ".join(map(repr, KERNELS))
        raise ValueError(f"kernel must be one of {names} or an object such as warmgp.Matern32(), got {kernel!r}")
    return KERNELS[kernel]
