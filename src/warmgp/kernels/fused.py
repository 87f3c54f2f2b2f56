"""The kernels' forms for Triton: profiles as powers of two, which a GPU computes fastest.

With ρ = αr, exp(−√(2ν) r) = 2^−ρ for α = √(2ν)/log 2, and exp(−r²/2) = 2^−ρ² for α² = 1/(2 log 2). The √(2ν) r that
multiplies it in Matérn-3/2 and 5/2 is ρ log 2. :class:`~warmgp.kernels.base.FusedForm` says what each function is.
This module needs Triton, and is imported only where a form is asked for.
"""

from __future__ import annotations

import math

import numpy as np
import triton
import triton.language as tl
from numpy.polynomial import Chebyshev, Polynomial

from warmgp.kernels.base import FusedForm

AMPLIFY = tl.constexpr(256.0)  # k · 256 uses more of float16's range; the product divides by it
LN2 = tl.constexpr(math.log(2))
TINY = tl.constexpr(1e-12)  # least ρ² in a gradient: rounding may have made it negative
THIRD = tl.constexpr(1 / 3)
SHIFT = tl.constexpr(1.5 * 2.0**52)  # what is added to this loses its fraction, and has its integer in the last bits
T1, T2, T3, T4, T5, T6, T7, T8, T9, T10, T11, T12 = (
    tl.constexpr(math.log(2) ** k / math.factorial(k)) for k in range(1, 13)
)  # Taylor's series of 2^f


def near_zero(*polynomial: float, power: int) -> list[tl.constexpr]:
    """Returns seven coefficients, the constant first, of (1 − p(a) e^−a)/a^power for a from 0 to 1, off by at most 10⁻⁸
    of it: p is the polynomial with these coefficients, ``power`` the first power of a that does not vanish."""
    series = np.zeros(30)
    for i, factor in enumerate(polynomial):
        series[i:] -= [factor * (-1.0) ** k / math.factorial(k) for k in range(30 - i)]
    series[0] += 1.0
    found = Chebyshev.interpolate(Polynomial(series[power:]), 6, domain=[0.0, 1.0])
    return [tl.constexpr(float(value)) for value in found.convert(kind=Polynomial).coef]


E0, E1, E2, E3, E4, E5, E6 = near_zero(1.0, power=1)
M0, M1, M2, M3, M4, M5, M6 = near_zero(1.0, 1.0, power=2)
N0, N1, N2, N3, N4, N5, N6 = near_zero(1.0, 1.0, 1.0 / 3.0, power=2)


# -- float64, with a third of the operations of what is behind tl.exp2 and tl.sqrt
@triton.jit
def sqrt64(square):
    """Returns √square in float64: a reciprocal root in float32, and a step of Newton's. Off by 1e-15 at zero."""
    safe = tl.minimum(tl.maximum(square, 1e-30), 1e30)
    reciprocal = tl.rsqrt(safe.to(tl.float32)).to(tl.float64)
    root = safe * reciprocal
    return tl.fma(0.5 * reciprocal, tl.fma(-root, root, safe), root)


@triton.jit
def horner(x, value, coefficient):
    """Returns x · value + coefficient in float64."""
    return tl.fma(x, value, tl.full(x.shape, coefficient, tl.float64))


@triton.jit
def exp2_64(t):
    """Returns 2^t in float64 for t ≤ 0: Taylor's series of the fraction, and the integer into the exponent."""
    t = tl.maximum(t, -1000.0)
    shifted = t + SHIFT
    fraction = t - (shifted - SHIFT)  # within ±0.5
    value = horner(fraction, tl.full(t.shape, T12, tl.float64), T11)
    value = horner(fraction, value, T10)
    value = horner(fraction, value, T9)
    value = horner(fraction, value, T8)
    value = horner(fraction, value, T7)
    value = horner(fraction, value, T6)
    value = horner(fraction, value, T5)
    value = horner(fraction, value, T4)
    value = horner(fraction, value, T3)
    value = horner(fraction, value, T2)
    value = horner(fraction, value, T1)
    value = horner(fraction, value, 1.0)
    exponent = shifted.to(tl.int64, bitcast=True) << 52
    return (value.to(tl.int64, bitcast=True) + exponent).to(tl.float64, bitcast=True)


# -- 1 − k: the last digits of 1 are all that 1 less a k near it would have
@triton.jit
def sextic(
    a, c0: tl.constexpr, c1: tl.constexpr, c2: tl.constexpr, c3: tl.constexpr, c4: tl.constexpr, c5: tl.constexpr,
    c6: tl.constexpr,
):  # fmt: skip
    """Returns c0 + c1 a + … + c6 a⁶ in float32, for a up to 1; those above it are taken for 1."""
    a = tl.minimum(a, 1.0)
    value = tl.fma(a, tl.full(a.shape, c6, tl.float32), tl.full(a.shape, c5, tl.float32))
    value = tl.fma(a, value, tl.full(a.shape, c4, tl.float32))
    value = tl.fma(a, value, tl.full(a.shape, c3, tl.float32))
    value = tl.fma(a, value, tl.full(a.shape, c2, tl.float32))
    value = tl.fma(a, value, tl.full(a.shape, c1, tl.float32))
    return tl.fma(a, value, tl.full(a.shape, c0, tl.float32))


@triton.jit
def rbf_fall(square):
    """Returns 1 − 2^−ρ², with a = ρ² log 2."""
    square = tl.maximum(square, 0.0)
    a = square * LN2
    return tl.where(a < 1.0, a * sextic(a, E0, E1, E2, E3, E4, E5, E6), 1.0 - tl.exp2(-square))


@triton.jit
def matern12_fall(square):
    """Returns 1 − 2^−ρ, with a = ρ log 2."""
    rho = tl.sqrt(tl.abs(square))
    a = rho * LN2
    return tl.where(a < 1.0, a * sextic(a, E0, E1, E2, E3, E4, E5, E6), 1.0 - tl.exp2(-rho))


@triton.jit
def matern32_fall(square):
    """Returns 1 − (1 + a) 2^−ρ, with a = ρ log 2."""
    rho = tl.sqrt(tl.abs(square))
    a = rho * LN2
    return tl.where(a < 1.0, a * a * sextic(a, M0, M1, M2, M3, M4, M5, M6), 1.0 - tl.fma(rho, LN2, 1.0) * tl.exp2(-rho))


@triton.jit
def matern52_fall(square):
    """Returns 1 − (1 + a + a²/3) 2^−ρ, with a = ρ log 2."""
    rho = tl.sqrt(tl.abs(square))
    a = rho * LN2
    far = 1.0 - tl.fma(a, tl.fma(a, 1.0 / 3.0, 1.0), 1.0) * tl.exp2(-rho)
    return tl.where(a < 1.0, a * a * sextic(a, N0, N1, N2, N3, N4, N5, N6), far)


# -- the kernels


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
    return exp2_64(-square)


@triton.jit
def rbf_and_weight64(square):
    """Returns k = 2^−ρ² and the weight, which is the same, in float64."""
    k = exp2_64(-square)
    return k, k


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
    return exp2_64(-sqrt64(square))


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
    rho = sqrt64(square)
    e = exp2_64(-rho)
    return tl.fma(rho * LN2, e, e)


@triton.jit
def matern32_and_weight64(square):
    """Returns k = (1 + ρ log 2) 2^−ρ and the weight 2^−ρ in float64."""
    rho = sqrt64(square)
    e = exp2_64(-rho)
    return tl.fma(rho * LN2, e, e), e


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
    rho = sqrt64(square)
    a = rho * LN2
    return horner(a, horner(a, tl.full(a.shape, THIRD, tl.float64), 1.0), 1.0) * exp2_64(-rho)


@triton.jit
def matern52_and_weight64(square):
    """Returns k = (1 + a + a²/3) 2^−ρ and the weight (1 + a) 2^−ρ in float64, with a = ρ log 2."""
    rho = sqrt64(square)
    a, e = rho * LN2, exp2_64(-rho)
    k = horner(a, horner(a, tl.full(a.shape, THIRD, tl.float64), 1.0), 1.0) * e
    return k, tl.fma(a, e, e)


RBF = FusedForm(math.sqrt(0.5 / math.log(2)), 1.0, rbf, rbf_and_weight, rbf64, rbf_and_weight64, rbf_fall)
MATERN12 = FusedForm(
    1 / math.log(2), 1 / math.log(2), matern12, matern12_and_weight, matern12_64, fall=matern12_fall
)  # fmt: skip
MATERN32 = FusedForm(
    math.sqrt(3) / math.log(2), 3.0, matern32, matern32_and_weight, matern32_64, matern32_and_weight64, matern32_fall
)
MATERN52 = FusedForm(
    math.sqrt(5) / math.log(2), 5.0 / 3.0, matern52, matern52_and_weight, matern52_64, matern52_and_weight64,
    matern52_fall,
)  # fmt: skip
