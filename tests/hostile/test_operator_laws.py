"""H as every operator has it: linear, symmetric, positive definite, one matrix by rows, columns and blocks, and the
reference's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from hostile.laws import World, law, worlds
from warmgp.kernels import get_kernel
from warmgp.operators import has_triton, make_operator

DTYPES = st.sampled_from([torch.float64, torch.float32])
TORCH = st.sampled_from(["dense", "chunked"])


def check(world: World, kind: str, dtype: torch.dtype, tile: int | None) -> None:
    x = torch.as_tensor(world.data[0]).to(dtype)
    n, options = len(x), {} if tile is None else {"tile_entries": tile}
    operator = make_operator(kind, x, get_kernel(world.kernel), world.theta, **options)
    H = world.reference(x.double().numpy(), np.zeros(n), standardize=False).H
    z = (x.double().numpy() - x.double().numpy().mean(0)) / world.lengths
    eps = float(torch.finfo(dtype).eps)
    # rounding of inputs on their way to a distance, and what the operators allow themselves: a tenth of the noise
    rounding = eps * (16 + 8 * np.abs(z).max() * world.d**0.5) * (world.signal**2 + world.noise**2)
    bound = rounding + 0.15 * min(world.noise**2, 64 * eps * np.square(z).sum(1).max() * world.signal**2)

    def close(found: torch.Tensor, expected: np.ndarray, weight: float, what: str) -> None:
        worst = float(np.abs(found.double().numpy() - expected).max())
        assert worst <= weight * bound, f"{what}: {worst:.2g} > {weight * bound:.2g}"

    dense = operator.matmul(torch.eye(n, dtype=dtype))
    close(dense, H, 1, "H")
    close(dense.T, dense.double().numpy(), 2, "symmetry")
    generator = torch.Generator().manual_seed(world.seed)
    V, W = torch.randn(2, n, 3, generator=generator, dtype=torch.float64).to(dtype)
    size = float(n * max(V.abs().max(), W.abs().max()))
    close(
        operator.matmul(2.5 * V - W), (2.5 * operator.matmul(V) - operator.matmul(W)).double().numpy(), 8 * size, "sum"
    )
    close(operator.matmul(V), H @ V.double().numpy(), size, "product")
    energy = (V.double() * operator.matmul(V).double()).sum(0) / V.double().square().sum(0)
    assert float(energy.min()) >= world.noise**2 - n * bound, "not positive definite"
    rows = torch.randperm(n, generator=generator)[: max(1, n // 2)]
    part = slice(n // 3, n)
    for index in (rows, part):
        at = index if isinstance(index, slice) else index.numpy()
        Hv, b = H[at], len(H[at])
        close(operator.rows_matmul(index, V), Hv @ V.double().numpy(), size, "rows")
        close(operator.columns_matmul(index, W[:b]), H[:, at] @ W[:b].double().numpy(), size, "columns")
        close(operator.block(index), Hv[:, at], 1, "block")
    K = H - world.noise**2 * np.eye(n)
    for mine, its in ((rows, part), (part, rows), (rows, rows)):
        block = K[mine if isinstance(mine, slice) else mine.numpy()][:, its if isinstance(its, slice) else its.numpy()]
        few = W[: block.shape[1]]
        close(operator.kernel_matmul(mine, its, few), block @ few.double().numpy(), size, "kernel product")


@law(worlds(60, 1e-3), TORCH, DTYPES, st.sampled_from([None, 7, 50, 900]), examples=600)
def test_operators_in_torch(world: World, kind: str, dtype: torch.dtype, tile: int | None) -> None:
    check(world, kind, dtype, tile)


@pytest.mark.skipif(not has_triton(), reason="needs Triton")
@pytest.mark.skipif(torch.cuda.is_available(), reason="for the interpreter; tests/operators/test_gpu.py has the GPU")
def test_operators_in_triton(rng: np.random.Generator, scale: float) -> None:
    law(worlds(24, 3e-2), DTYPES, examples=40)(_in_triton)(rng, scale)


def _in_triton(world: World, dtype: torch.dtype) -> None:
    check(world, "fused", dtype, None)
