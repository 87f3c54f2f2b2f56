"""What a kernel is: k(x, x') = signal² · k(r), a function of the scaled distance r = |(x − x')/ℓ| with k(0) = 1.

A kernel of this library is two functions of r and a spectral density:

- ``profile``        k(r);
- ``length_weight``  ω(r) = −k′(r)/r, because ∂k/∂ℓ_j = ω(r) (x_j − x'_j)² / ℓ_j³. It is finite at r = 0 except for
  Matérn-1/2, which is not differentiable there: coincident pairs count zero, as the factor (x_j − x'_j)² says;
- ``spectral_log_density`` and ``sample_frequencies``: the density p(ω) with k(r) = E_p[cos(ω·δ)], |δ| = r.

All else has a default that is right for any kernel, and that a kernel may replace by what is known of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class FusedForm:
    """Holds a kernel in the form that Triton evaluates inside of a product: functions of ρ² with ρ = ``alpha`` · r.

    The scale is free: with the right one the kernel is a power of two, and exp2 is what a GPU computes fastest. The
    functions are decorated with ``@triton.jit`` and take a tile of ρ². They are passed to the Triton kernels as they
    are, so every form is compiled on its own.

    Attributes
    ----------
    alpha : float
        The scale of the inputs, ρ/r.
    weight_factor : float
        The factor that ``profile_and_weight`` leaves out of ω(r): ω = ``weight_factor`` · weight.
    profile : JITFunction
        256 k in float32, which fills more of float16's range; rounding may have made ρ² negative.
    profile_and_weight : JITFunction
        (k, weight) in float32; again ρ² may be negative. A weight is finite, and at most 1 where the kernel is smooth
        at zero: it is split into float16 halves. That of coincident pairs is free, as (x_j − x'_j)² multiplies it.
    profile64 : JITFunction
        k in float64.
    profile_and_weight64 : JITFunction or None
        (k, weight) in float64, for kernels that are smooth at zero, whose weight is bounded: sums over it are of
        products, and those of near points with a weight like 1/r would cancel. None leaves these gradients to torch.
    fall : JITFunction or None
        1 − k in float32, to as many digits as it has itself, however small; again ρ² may be negative. None leaves all
        products to ``profile``.
    """

    alpha: float
    weight_factor: float
    profile: Any
    profile_and_weight: Any
    profile64: Any
    profile_and_weight64: Any = None
    fall: Any = None


@dataclass(frozen=True)
class Kernel(ABC):
    """Holds all that is known of a stationary kernel k(r) of unit signal and unit length scale."""

    name: ClassVar[str]

    smooth_at_zero: ClassVar[bool] = True
    """Whether k(r) − 1 = O(r²), so that rounding in r² near 0 is harmless."""

    near_neighbours_suffice: ClassVar[bool] = True
    """Whether, with few inputs, a point's near neighbours tell nearly all that there is to know of it."""

    follow: ClassVar[float] = 0.0
    """The power of the signal by which length scales change while the kernel stays the same at short distances."""

    reach: ClassVar[float] = math.inf
    """The scaled distance from which on k is zero in float64: points further away have the prior, to the bit."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Keeps a kernel with functions of its own from inheriting shortcuts for those that it has replaced."""
        super().__init_subclass__(**options)
        for shortcut in ("evaluate", "fused_form", "reach"):
            author: Any = next(c for c in cls.__mro__ if shortcut in vars(c))
            same = cls.profile is author.profile and cls.length_weight is author.length_weight
            if author not in (cls, Kernel) and not same:
                setattr(cls, shortcut, vars(Kernel)[shortcut])

    # -- functions of the distance ---------------------------------------------------------------------------------
    @abstractmethod
    def profile(self, r: Tensor) -> Tensor:
        """Returns k(r), in memory of its own."""

    @abstractmethod
    def length_weight(self, r: Tensor) -> Tensor:
        """Returns ω(r) = −k′(r)/r, in memory of its own; zero where r = 0 if the limit is not finite."""

    def evaluate(self, r: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (k(r), ω(r)), which it may write over r and over ``work``, of the same shape, to spare memory."""
        return self.profile(r), self.length_weight(r)

    def fused_form(self) -> FusedForm | None:
        """Returns the kernel's form for Triton, or None where it has none.

        A form needs Triton: ask :func:`warmgp.operators.why_not_fused` first.
        """
        return None

    # -- random features -------------------------------------------------------------------------------------------
    @abstractmethod
    def spectral_log_density(self, omega: Tensor) -> Tensor:
        """Returns log p(ω), (m,), for frequencies ω of (m, d)."""

    @abstractmethod
    def sample_frequencies(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        """Draws m frequencies from p(ω), (m, d), in float64 on the CPU."""

    def tail_scales(self, d: int) -> tuple[float, ...]:
        """Returns the factors by which p(ω) is stretched to reach into its tail, where the posterior's variance is."""
        return ()

    def least_features(self, d: int) -> int:
        """Returns the least number of random features with d inputs, however few the points."""
        return 2_000
