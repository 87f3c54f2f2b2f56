"""The gradient from parts: of groups of rows by themselves, and of pairs between two of them."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from gp_truth import toy
from warmgp import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import KernelOperator, has_triton, make_operator
from warmgp.operators.row_noise import RowNoise, rows_at

N = 150
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CUTS = (slice(0, 67), slice(67, 80), slice(80, N))  # no multiple of a tile, and one that is smaller


def operator_of(kind: str, kernel: str, d: int, dtype: torch.dtype, rows: RowNoise | None) -> KernelOperator:
    x = toy(N, d)[0].to(dtype)
    x[100] = x[3]  # in different groups
    theta = Hyperparameters.from_vector(torch.cat([torch.tensor([0.9, 1.2]), torch.linspace(1.0, 2.0, d)]))
    return make_operator(
        kind, x.to(DEVICE if kind == "fused" else "cpu"), get_kernel(kernel), theta, tile_entries=50**2, rows=rows
    )


def by_parts(operator: KernelOperator, kind: str, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
    """The gradient as several processes add it up."""
    total = torch.zeros(2 + operator.x.shape[1], dtype=torch.float64)
    for rows in CUTS:
        own = make_operator(kind, operator.x[rows], operator.kernel, operator.theta, rows=rows_at(operator.rows, rows))
        left = A[rows]
        total += own.quadratic_gradient(left, left if A is B else B[rows], weights)
    for rows, columns in combinations(CUTS, 2):
        first, second = (columns, rows) if rows.start == 0 else (rows, columns)  # before or after the rows
        left = torch.cat([A[first], A[second]])
        right = left if A is B else torch.cat([B[first], B[second]])
        total += operator.cross_gradient(first, second, left, right, weights)
    return total


def check(kind: str, kernel: str, d: int, dtype: torch.dtype, bound: float, *, alike: bool, c: int = 5) -> None:
    generator = torch.Generator().manual_seed(d)
    rows = None if alike else RowNoise(*torch.rand(2, N, generator=generator, dtype=torch.float64))
    operator = operator_of(kind, kernel, d, dtype, rows and rows.to(DEVICE if kind == "fused" else "cpu"))
    A = torch.randn(N, c, generator=generator, dtype=torch.float64).to(dtype)
    B = A if alike else torch.randn(N, c, generator=generator, dtype=torch.float64).to(dtype)
    weights = torch.linspace(-0.5, 1.0, c, dtype=torch.float64)
    expected = operator_of("chunked", kernel, d, torch.float64, rows).quadratic_gradient(
        A.double(), A.double() if alike else B.double(), weights
    )
    A = A.to(operator.device)
    found = by_parts(operator, kind, A, A if alike else B.to(operator.device), weights)
    scale = expected.abs().max()
    assert float((found - expected).abs().max()) <= bound * float(scale), (found, expected)


@pytest.mark.parametrize("alike", [True, False], ids=["one array", "two, with noise of rows"])
@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize("kernel", KERNELS)
def test_parts_add_up_to_the_gradient(kernel: str, d: int, alike: bool) -> None:
    check("chunked", kernel, d, torch.float64, 1e-11, alike=alike)


@pytest.mark.skipif(not has_triton(), reason="Triton comes with torch for CUDA on Linux")
@pytest.mark.parametrize("alike", [True, False], ids=["one array", "two, with noise of rows"])
@pytest.mark.parametrize(("kernel", "d"), [("matern32", 2), ("rbf", 12)], ids=["differences", "products"])
def test_parts_add_up_to_the_gradient_by_triton(kernel: str, d: int, alike: bool) -> None:
    check("fused", kernel, d, torch.float32, 2e-5, alike=alike, c=17)


@pytest.mark.skipif(not has_triton(), reason="Triton comes with torch for CUDA on Linux")
@pytest.mark.parametrize("alike", [True, False], ids=["one array", "two, with noise of rows"])
@pytest.mark.parametrize(("kernel", "d"), [("matern32", 2), ("rbf", 20)], ids=["differences", "products"])
def test_parts_add_up_to_the_gradient_by_triton_in_float64(kernel: str, d: int, alike: bool) -> None:
    check("fused", kernel, d, torch.float64, 1e-10, alike=alike, c=17)
