"""A Triton kernel that makes the operands of distances by products, from any centre.

|a|² + |b|² − 2 a·b loses what |a|² has more than the distance: near points that are far from the centre of all data
have distances that are off by 2⁻²² |a|², all to the same side, since a tensor core truncates, and a block of a thousand
such points adds these errors up. With the centre of the block in the place of that of the data, what is lost is a share
of the distance to the block.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def two_halves(value):
    """Returns hi and lo in float16 with hi + lo = value to 22 bits."""
    high = value.to(tl.float16)
    return high, (value - high.to(tl.float32)).to(tl.float16)


@triton.jit
def augment(
    LINES, CENTRE, HIGH, LOW, stride, first, d, ROWS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr
):  # fmt: skip
    """Writes the halves of [−2z, |z|², 1] of ``ROWS``, else of [z, 1, |z|²], (…, D), with |z|² in two parts.

    z are d inputs from ``first`` on, less their CENTRE, of LINES with one input each.
    """
    rows, inputs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    valid = inputs < d
    centre = tl.load(CENTRE + first + inputs, mask=valid, other=0.0)
    z = tl.load(LINES + (first + inputs).to(tl.int64)[None, :] * stride + rows[:, None], mask=valid[None, :], other=0.0)
    z = z - centre[None, :]
    high, low = two_halves(z)
    exact_high, exact_low = high.to(tl.float64), low.to(tl.float64)
    square = tl.sum(exact_high * (exact_high + 2.0 * exact_low), 1)  # as three products see it: equal points cancel
    coarse_high, coarse_low = two_halves(square.to(tl.float32))
    coarse = coarse_high.to(tl.float32) + coarse_low.to(tl.float32)  # what two halves hold
    rest = (square - coarse.to(tl.float64)).to(tl.float32)
    place = (inputs - d)[None, :]
    if ROWS:
        value = tl.where(place < 0, -2.0 * z, 0.0)
        value = tl.where(place == 0, coarse[:, None], tl.where(place == 1, rest[:, None], value))
        value = tl.where((place == 2) | (place == 3), 1.0, value)
    else:
        value = tl.where(place < 0, z, 0.0)
        value = tl.where(place == 2, coarse[:, None], tl.where(place == 3, rest[:, None], value))
        value = tl.where((place == 0) | (place == 1), 1.0, value)
    high, low = two_halves(value)
    at = rows.to(tl.int64)[:, None] * D + inputs[None, :]
    tl.store(HIGH + at, high)
    tl.store(LOW + at, low)
