"""Triton kernels of an alternating-projections iteration, whose parts are too small for a library call each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_BLOCKS = 2**14
"""That one program looks through for the worst."""


@triton.jit
def pick(SUMS, WORST, FIRST, DONE, blocks, b, n, B: tl.constexpr):
    """WORST = the block with the largest sum, FIRST = its first row, DONE += its rows."""
    number = tl.arange(0, B)
    worst = tl.argmax(tl.load(SUMS + number, mask=number < blocks, other=-1.0), 0)
    tl.store(WORST, worst.to(tl.int64))
    tl.store(FIRST, worst.to(tl.int64) * b)
    tl.store(DONE, tl.load(DONE) + tl.minimum(b, n - worst * b))


@triton.jit
def project(
    TRIANGLES, WORST, R, V, STEP, triangle, b, c, BM: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """STEP = A R[block], (b, c), and V[block] += STEP, for the block in WORST and its inverse A, a packed triangle."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BC + tl.arange(0, BC)
    worst = tl.load(WORST)
    A, own = TRIANGLES + worst * triangle, worst * b
    total = tl.zeros([BM, BC], TRIANGLES.dtype.element_ty)
    for start in range(0, b, BK):
        inner = start + tl.arange(0, BK)
        high = tl.maximum(rows[:, None], inner[None, :])
        low = tl.minimum(rows[:, None], inner[None, :])
        a = tl.load(A + high * (high + 1) // 2 + low, mask=high < b, other=0.0)
        at = (own + inner)[:, None] * c + columns[None, :]
        r = tl.load(R + at, mask=(inner < b)[:, None] & (columns < c)[None, :], other=0.0)
        total = tl.dot(a, r.to(a.dtype), total, input_precision="ieee", out_dtype=a.dtype)
    inside = (rows < b)[:, None] & (columns < c)[None, :]
    step = total.to(R.dtype.element_ty)
    tl.store(STEP + rows[:, None] * c + columns[None, :], step, mask=inside)
    at = (own + rows)[:, None] * c + columns[None, :]
    tl.store(V + at, tl.load(V + at, mask=inside, other=0.0) + step, mask=inside)


def pick_block(sums: Tensor, worst: Tensor, first: Tensor, done: Tensor, b: int, n: int) -> None:
    """The number of the worst block by ``sums`` (blocks,) into ``worst``, its first row into ``first``, (1,) each."""
    blocks = sums.numel()
    pick[(1,)](sums, worst, first, done, blocks, b, n, B=triton.next_power_of_2(blocks))


def project_block(triangles: Tensor, worst: Tensor, r: Tensor, v: Tensor, b: int) -> Tensor:
    """A r[block], added to v[block]: the step (b, c). ``triangles`` (blocks, b(b + 1)/2); r and v have whole blocks."""
    c = r.shape[1]
    step = torch.empty(b, c, dtype=r.dtype, device=r.device)
    BM, BC = 16, 32
    project[(triton.cdiv(b, BM), triton.cdiv(c, BC))](
        triangles, worst, r, v, step, triangles.shape[1], b, c, BM=BM, BK=32, BC=BC, num_warps=4
    )
    return step
