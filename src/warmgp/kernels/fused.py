"""The kernels' forms for Triton: profiles as powers of two, which a GPU computes fastest.

With ρ = αr, exp(−√(2ν) r) = 2^−ρ for α = √(2ν)/log 2, and exp(−r²/2) = 2^−ρ² for α² = 1/(2 log 2). The √(2ν) r that
multiplies it in Matérn-3/2 and 5/2 is ρ log 2. :class:`~warmgp.kernels.base.FusedForm` says what each function is.
This module needs Triton, and is imported only where a form is asked for.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from warmgp.kernels.base import FusedForm

AMPLIFY = tl.constexpr(256.0)  # k · 256 uses more of float16's range; the product divides by it
LN2 = tl.constexpr(math.log(2))
TINY = tl.constexpr(1e-12)  # least ρ² in a gradient: rounding may have made it negative


@triton.jit
def rbf(square):
    """Returns 256 k = 2^(8 − ρ²)."""
    return tl.exp2(8.0 - tl.maximum(square, 0.0))


@triton.jit
def rbf_and_weight(square):
    """Returns k = 2^−ρ² and the weight, which is the same."""
    k = tl.exp2(-tl.maximum(square, TINY))
    return k, k


@triton.jit
def rbf64(square):
    """Returns k = 2^−ρ² in float64."""
    return tl.exp2(-square)


@triton.jit
def matern12(square):
    """Returns 256 k = 2^(8 − ρ)."""
    return tl.exp2(8.0 - tl.sqrt(tl.abs(square)))


@triton.jit
def matern12_and_weight(square):
    """Returns k = 2^−ρ and the weight 2^−ρ/ρ, 0 for coincident pairs."""
    safe = tl.maximum(square, TINY)
    rho = safe * tl.rsqrt(safe)
    e = tl.exp2(-rho)
    return e, tl.where(square <= TINY, 0.0, e / rho)


@triton.jit
def matern12_64(square):
    """Returns k = 2^−ρ in float64."""
    return tl.exp2(-tl.sqrt(square))


@triton.jit
def matern32(square):
    """Returns 256 k = 256 (1 + ρ log 2) 2^−ρ."""
    rho = tl.sqrt(tl.abs(square))
    return tl.fma(rho, LN2 * AMPLIFY, AMPLIFY) * tl.exp2(-rho)


@triton.jit
def matern32_and_weight(square):
    """Returns k = (1 + ρ log 2) 2^−ρ and the weight 2^−ρ."""
    safe = tl.maximum(square, TINY)
    rho = safe * tl.rsqrt(safe)
    e = tl.exp2(-rho)
    return tl.fma(rho * LN2, e, e), e


@triton.jit
def matern32_64(square):
    """Returns k = (1 + ρ log 2) 2^−ρ in float64."""
    rho = tl.sqrt(square)
    return (1.0 + rho * LN2) * tl.exp2(-rho)


@triton.jit
def matern52(square):
    """Returns 256 k = 256 (1 + a + a²/3) 2^−ρ with a = ρ log 2."""
    rho = tl.sqrt(tl.abs(square))
    a = rho * LN2
    return tl.fma(a, tl.fma(a, AMPLIFY / 3.0, AMPLIFY), AMPLIFY) * tl.exp2(-rho)


@triton.jit
def matern52_and_weight(square):
    """Returns k = (1 + a + a²/3) 2^−ρ and the weight (1 + a) 2^−ρ, with a = ρ log 2."""
    safe = tl.maximum(square, TINY)
    rho = safe * tl.rsqrt(safe)
    e = tl.exp2(-rho)
    a = rho * LN2
    return tl.fma(a, tl.fma(a, 1.0 / 3.0, 1.0), 1.0) * e, tl.fma(a, e, e)


@triton.jit
def matern52_64(square):
    """Returns k = (1 + a + a²/3) 2^−ρ in float64, with a = ρ log 2."""
    rho = tl.sqrt(square)
    a = rho * LN2
    return (1.0 + a + a * a / 3.0) * tl.exp2(-rho)


RBF = FusedForm(math.sqrt(0.5 / math.log(2)), 1.0, rbf, rbf_and_weight, rbf64)
MATERN12 = FusedForm(1 / math.log(2), 1 / math.log(2), matern12, matern12_and_weight, matern12_64)
MATERN32 = FusedForm(math.sqrt(3) / math.log(2), 3.0, matern32, matern32_and_weight, matern32_64)
MATERN52 = FusedForm(math.sqrt(5) / math.log(2), 5.0 / 3.0, matern52, matern52_and_weight, matern52_64)
