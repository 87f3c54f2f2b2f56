"""Problems for tests of operators, and their dense float64 truth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import (
    OPERATORS,
    Index,
    KernelOperator,
)

PROFILES = {
    "rbf": lambda r: torch.exp(-(r**2) / 2),
    "matern12": lambda r: torch.exp(-r),
    "matern32": lambda r: (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r),
    "matern52": lambda r: (1 + math.sqrt(5) * r + 5 / 3 * r**2) * torch.exp(-math.sqrt(5) * r),
}
TILE_ENTRIES = {1: 50, 7: 10, 257: 3000}  # tiles of 3 × 3 in 7 × 7, of 54 × 55 in 257 × 257: neither divides
SHAPES = [(1, 1), (1, 4), (7, 1), (7, 3), (7, 4), (257, 1), (257, 3), (257, 4), (257, 20)]

KINDS = pytest.mark.parametrize("kind", list(OPERATORS))
NAMES = pytest.mark.parametrize("name", list(KERNELS))
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
GRID = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Hundreds of tiny tiles: two threads on a busy machine would wait milliseconds for each other at every one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cache
def inputs(n: int, d: int) -> Tensor:
    """float64 that float32 holds exactly: from d = 3 on a constant and a 0/1 column (more of those in d = 20), and
    from n = 7 on the last third of the rows repeats the first."""
    x = torch.randn(n, d, generator=rng(10 * n + d)).double()
    if d >= 3:
        x[:, 1] = 4.25
        x[:, 2] = (x[:, 2] > 0).double()
    if d == 20:
        x[:, 8:14] = torch.nn.functional.one_hot(torch.arange(n) % 6, 6).double()
    if n >= 7:
        x[-(n // 3) :] = x[: n // 3]
    return x


def lengths(d: int) -> Tensor:
    """Between 0.7√d and 1.4√d, so that entries of K spread over (0, 1) in every dimension."""
    return math.sqrt(d) * torch.linspace(0.7, 1.4, d, dtype=torch.float64)


def hyperparameters(d: int, *, shared: bool = False) -> Hyperparameters:
    return Hyperparameters(0.3, 1.7, [0.9 * math.sqrt(d)] if shared else lengths(d))


def reference_kernel(xa: Tensor, xb: Tensor, name: str, theta: Hyperparameters) -> Tensor:
    """signal² k(|(a − b)/ℓ|) in float64, from an array of all differences."""
    r = ((xa[:, None].double() - xb[None].double()) / theta.length_scales).square().sum(-1).sqrt()
    return theta.signal_scale**2 * PROFILES[name](r)


@cache
def reference(n: int, d: int, name: str) -> Tensor:
    """H in float64. With repeated rows its off-diagonal entries reach signal², but σ² is on the diagonal only."""
    K = reference_kernel(inputs(n, d), inputs(n, d), name, hyperparameters(d))
    return K + 0.3**2 * torch.eye(n, dtype=torch.float64)


def operator_for(kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]) -> KernelOperator:
    n, d = shape
    x = inputs(n, d).to(dtype)
    return OPERATORS[kind](x, get_kernel(name), hyperparameters(d), tile_entries=TILE_ENTRIES[n])


def indices(n: int) -> dict[str, Index]:
    """Every kind of index the contract allows; the tensors are strided, unsorted, and with repetitions."""
    start = n // 3
    return {
        "slice": slice(start, start + max(1, n // 2)),
        "whole": slice(0, n),
        "strided": torch.arange(0, n, 2),
        "unsorted": torch.randperm(n, generator=rng(n))[: max(1, n // 2)],
        "repeated": torch.tensor([n - 1, 0, n - 1, n // 2, 0]),
    }


def assert_near(value: Tensor, truth: Tensor, dtype: torch.dtype, what: str = "", f64: float = 1e-12) -> None:
    """Relative error in the Frobenius norm: 1e-12 in float64, 1e-5 in float32."""
    assert value.dtype == dtype, f"{what}: {value.dtype}"
    assert value.shape == truth.shape, f"{what}: {tuple(value.shape)} instead of {tuple(truth.shape)}"
    error = float((value.double() - truth).norm() / truth.norm())
    assert error <= (f64 if dtype == torch.float64 else 1e-5), f"{what}: relative error {error:.2e}"


def columns(n: int, c: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers in ``dtype``; the truth is computed from the same rounded numbers."""
    return torch.randn(n, c, generator=rng(n + c), dtype=torch.float64).to(dtype)
