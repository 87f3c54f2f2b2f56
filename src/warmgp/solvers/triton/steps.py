"""Triton kernels of an alternating-projections iteration, whose parts are too small for a library call each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from warmgp.operators.triton.launch import run_kernel
from warmgp.solvers.triton.packed import T

MOST_BLOCKS = 2**14
"""The most blocks among which one program looks for the worst."""


@triton.jit
def pick(SUMS, WORST, FIRST, DONE, blocks, b, n, B: tl.constexpr):
    """Writes WORST = the block with the largest sum, FIRST = its first row, and DONE += its rows."""
    number = tl.arange(0, B)
    worst = tl.argmax(tl.load(SUMS + number, mask=number < blocks, other=-1.0), 0)
    tl.store(WORST, worst.to(tl.int64))
    tl.store(FIRST, worst.to(tl.int64) * b)
    tl.store(DONE, tl.load(DONE) + tl.minimum(b, n - worst * b))


@triton.jit
def project(
    PACKED, WORST, R, V, STEP, size, b, c, tiles, T: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """Writes STEP = A R[block], (b, c), and V[block] += STEP, for the block in WORST and its packed inverse A."""
    mine = tl.program_id(0)
    local = tl.arange(0, T)
    columns = tl.program_id(1) * BC + tl.arange(0, BC)
    worst = tl.load(WORST)
    A = PACKED + worst * size + local[:, None] * T + local[None, :]
    own = worst * b
    total = tl.zeros([T, BC], PACKED.dtype.element_ty)
    for other in range(0, mine + 1):
        a = tl.load(A + (mine * (mine + 1) // 2 + other) * T * T)
        total = add_product(total, a, R, own, other * T + local, columns, b, c)
    for other in range(mine + 1, tiles):
        a = tl.trans(tl.load(A + (other * (other + 1) // 2 + mine) * T * T))
        total = add_product(total, a, R, own, other * T + local, columns, b, c)
    rows = mine * T + local
    inside = (rows < b)[:, None] & (columns < c)[None, :]
    step = total.to(R.dtype.element_ty)
    tl.store(STEP + rows[:, None] * c + columns[None, :], step, mask=inside)
    at = (own + rows)[:, None] * c + columns[None, :]
    tl.store(V + at, tl.load(V + at, mask=inside, other=0.0) + step, mask=inside)


@triton.jit
def add_product(total, a, R, own, inner, columns, b, c):
    """Returns total + a R[own + inner, columns]."""
    at = (own + inner)[:, None] * c + columns[None, :]
    r = tl.load(R + at, mask=(inner < b)[:, None] & (columns < c)[None, :], other=0.0)
    return tl.dot(a, r.to(a.dtype), total, input_precision="ieee", out_dtype=a.dtype)


def pick_block(sums: Tensor, worst: Tensor, first: Tensor, done: Tensor, b: int, n: int) -> None:
    """Writes the number of the worst block by ``sums``, (blocks,), into ``worst`` and its first row into ``first``.

    Adds its number of rows to ``done``. These three are (1,) each.
    """
    blocks = sums.numel()
    run_kernel(pick, (1,), sums, worst, first, done, blocks, b, n, B=triton.next_power_of_2(blocks))


def project_block(packed: Tensor, worst: Tensor, r: Tensor, v: Tensor, b: int) -> Tensor:
    """Adds the step A r[block], (b, c), to v[block], and returns it.

    ``packed`` is (blocks, packed size); r and v have whole blocks.
    """
    c, tiles, BC = r.shape[1], triton.cdiv(b, T), 16
    step = torch.empty(b, c, dtype=r.dtype, device=r.device)
    run_kernel(
        project, (tiles, triton.cdiv(c, BC)),
        packed, worst, r, v, step, packed.shape[1], b, c, tiles, T=T, BC=BC, num_warps=8
    )  # fmt: skip
    return step
