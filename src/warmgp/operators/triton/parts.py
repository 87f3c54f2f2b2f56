"""What the Triton kernels share: profiles as powers of two, numbers as float16 halves, squared distances.

Numbers. The tensor core multiplies float16 (11 bits). A float32 number is split into two of them, hi + lo (22 bits),
and a product takes three: hi·hi + hi·lo + lo·hi. The tensor core truncates when it adds, so it adds within one tile
only; sums over tiles are ordinary float32.

Distances. Inputs come scaled by ``ALPHA``/ℓ, so that the kernel is a power of two, 2^−ρ or 2^−ρ². Either as one product
of augmented rows [−2z, |z|², 1]·[z, 1, |z|²], or from differences, input by input, where close pairs must keep their
digits. ``KERNEL`` numbers the profile: see ``PROFILES``.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

PROFILES = {"rbf": 0, "matern12": 1, "matern32": 2, "matern52": 3}
"""The kernels that are fused, by name."""

ALPHA = {
    "rbf": math.sqrt(0.5 / math.log(2)),
    "matern12": 1 / math.log(2),
    "matern32": math.sqrt(3) / math.log(2),
    "matern52": math.sqrt(5) / math.log(2),
}
"""Scale of the inputs: ρ = alpha · r, so that exp(−√(2ν) r) = 2^−ρ and exp(−r²/2) = 2^−ρ²."""

AMPLIFY = tl.constexpr(256.0)  # k · 256 uses more of float16's range; the epilogue divides by it
LN2 = tl.constexpr(math.log(2))
TINY = tl.constexpr(1e-12)


@triton.jit
def profile(square, KERNEL: tl.constexpr):
    """256 k(ρ) from ρ², which rounding may have made negative."""
    if KERNEL == 0:
        return tl.exp2(8.0 - tl.maximum(square, 0.0))
    rho = tl.sqrt(tl.abs(square))
    if KERNEL == 1:
        return tl.exp2(8.0 - rho)
    if KERNEL == 2:
        return tl.fma(rho, LN2 * AMPLIFY, AMPLIFY) * tl.exp2(-rho)
    a = rho * LN2
    return tl.fma(a, tl.fma(a, AMPLIFY / 3.0, AMPLIFY), AMPLIFY) * tl.exp2(-rho)


@triton.jit
def profile_and_weight(square, KERNEL: tl.constexpr):
    """k(ρ) and −k′(r)/r up to a constant factor that the host applies, from ρ²; coincident pairs may weigh 0."""
    safe = tl.maximum(square, TINY)
    if KERNEL == 0:
        k = tl.exp2(-safe)
        return k, k
    rho = safe * tl.rsqrt(safe)
    e = tl.exp2(-rho)
    if KERNEL == 1:
        return e, tl.where(square <= TINY, 0.0, e / rho)
    a = rho * LN2
    if KERNEL == 2:
        return tl.fma(a, e, e), e
    return tl.fma(a, tl.fma(a, 1.0 / 3.0, 1.0), 1.0) * e, tl.fma(a, e, e)


@triton.jit
def halves(k):
    """hi and lo in float16; hi by cutting the last 13 bits of the mantissa, which is cheaper than rounding."""
    high = (k.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return high.to(tl.float16), (k - high).to(tl.float16)


@triton.jit
def scale_of(bits):
    """The power of two that brings a column whose largest magnitude has these bits near 1024; 1 for zero."""
    exponent = tl.minimum(tl.maximum((bits >> 23) - 127, -116), 120)
    return tl.where(bits == 0, 1.0, ((136 - exponent) << 23).to(tl.float32, bitcast=True))


@triton.jit
def split_dot(a_high, a_low, b_high, b_low):
    """a·b to 22 bits from float16 halves, adding inside this one tile only."""
    part = tl.dot(a_low, b_high)
    part = tl.dot(a_high, b_low, part)
    return tl.dot(a_high, b_high, part)


@triton.jit
def add_squares(square, rows, columns, XA, XB, a_stride, b_stride, DIM: tl.constexpr):
    """square + Σ_k (a_ik − b_jk)², from inputs stored one input per line: (DIM, a_stride) and (DIM, b_stride)."""
    if DIM <= 16:
        for k in tl.static_range(DIM):
            difference = tl.load(XA + k * a_stride + rows)[:, None] - tl.load(XB + k * b_stride + columns)[None, :]
            square = tl.fma(difference, difference, square)
    else:
        for k in range(DIM):
            difference = tl.load(XA + k * a_stride + rows)[:, None] - tl.load(XB + k * b_stride + columns)[None, :]
            square = tl.fma(difference, difference, square)
    return square
