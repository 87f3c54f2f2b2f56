"""What the Triton kernels share: numbers as float16 halves, squared distances.

Numbers. The tensor core multiplies float16 (11 bits). A float32 number is split into two of them, hi + lo (22 bits),
and a product takes three: hi·hi + hi·lo + lo·hi. The tensor core truncates when it adds, so it adds within one tile
only. Sums over tiles are float32, and where there are many tiles each sum has a second number beside it, what rounding
has taken from it: v is of the order 1/σ with either sign, so that a sum over a million points passes through values
thousands of times as large as what it ends at.

Distances. Inputs come scaled by ``FusedForm.alpha``/ℓ, as the kernel's functions want them. Squared distances are
one product of augmented rows [−2z, |z|², 1]·[z, 1, |z|²], or differences, input by input, where close pairs must keep
their digits. In float64 they are |a|² + |b|² − 2 a·b, or differences.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def halves(k):
    """Returns hi and lo in float16; hi by cutting the last 13 bits of the mantissa, which is cheaper than rounding."""
    high = (k.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return high.to(tl.float16), (k - high).to(tl.float16)


@triton.jit
def scale_of(bits):
    """Returns the power of two that brings a largest magnitude of these bits to between 512 and 1024; 1 for zero."""
    exponent = tl.minimum(tl.maximum((bits >> 23) - 127, -116), 120)
    return tl.where(bits == 0, 1.0, ((136 - exponent) << 23).to(tl.float32, bitcast=True))


@triton.jit
def split_dot(a_high, a_low, b_high, b_low):
    """Returns a·b to 22 bits from float16 halves, adding inside this one tile only."""
    part = tl.dot(a_low, b_high)
    part = tl.dot(a_high, b_low, part)
    return tl.dot(a_high, b_high, part)


@triton.jit
def add_to(total, lost, part, LONG: tl.constexpr):
    """Returns the sum with ``part`` added, and what rounding has taken from it so far (Kahan); that stays as it was
    where the sum is not ``LONG``."""
    if LONG:
        part = part - lost
        added = total + part
        lost = (added - total) - part
    else:
        added = total + part
    return added, lost


@triton.jit
def add_squares(square, rows, columns, XA, XB, a_stride, b_stride, DIM: tl.constexpr):
    """Returns square + Σ_k (a_ik − b_jk)², from inputs stored one per line: (DIM, a_stride) and (DIM, b_stride)."""
    if DIM <= 16:
        for k in tl.static_range(DIM):
            difference = tl.load(XA + k * a_stride + rows)[:, None] - tl.load(XB + k * b_stride + columns)[None, :]
            square = tl.fma(difference, difference, square)
    else:
        for k in range(DIM):
            difference = tl.load(XA + k * a_stride + rows)[:, None] - tl.load(XB + k * b_stride + columns)[None, :]
            square = tl.fma(difference, difference, square)
    return square


@triton.jit
def squares64(a, rows, columns, ZA, ZB, SA, SB, D: tl.constexpr):
    """Returns |a_i|² + |b_j|² − 2 a_i·b_j in float64, no less than 0, from inputs stored one point per line of D
    numbers, and their squares. ``a`` are the first 64 numbers of the rows, or all D; the others are loaded here."""
    WIDTH: tl.constexpr = D if D < 64 else 64
    inputs = tl.arange(0, WIDTH)
    at_rows, at_columns = rows.to(tl.int64)[:, None] * D, columns.to(tl.int64)[:, None] * D
    product = tl.dot(a, tl.trans(tl.load(ZB + at_columns + inputs[None, :])), out_dtype=tl.float64)
    for part in tl.range(1, D // WIDTH, num_stages=1):
        more = part * WIDTH + inputs[None, :]
        b = tl.load(ZB + at_columns + more)
        product = tl.dot(tl.load(ZA + at_rows + more), tl.trans(b), product, out_dtype=tl.float64)
    both = tl.load(SA + rows)[:, None] + tl.load(SB + columns)[None, :]
    return tl.maximum(both - 2.0 * product, 0.0)
