"""What tests of Triton's operators share: problems on a GPU, or in the interpreter, and dense float64 beside them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gp_truth import h_matrix, toy
from warmgp import (
    Hyperparameters,
    KernelOperator,
)
from warmgp.kernels import get_kernel
from warmgp.operators import has_triton

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux; its operators need it", allow_module_level=True)

from warmgp.operators.triton.fused import FusedOperator

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SLOW = pytest.mark.gpu  # seconds in the interpreter: a GPU runs every case, a CPU a part of them
BOUND = 1e-5


def theta_of(d: int, noise: float = 0.3) -> Hyperparameters:
    return Hyperparameters.from_vector(torch.cat([torch.tensor([noise, 1.2]), torch.linspace(0.7, 2.0, d)]))


def problem(kernel: str, n: int, d: int, noise: float = 0.3, **options: Any) -> tuple[FusedOperator, Tensor]:
    """An operator on points of which some coincide, and H in float64 of the very same inputs."""
    x = toy(n, d)[0].float()
    if n > 12:
        x[11] = x[12]
    theta = theta_of(d, noise)
    operator = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta, **options)
    return operator, h_matrix(kernel, x.double(), theta.vector)


def columns(n: int, c: int, seed: int = 0) -> Tensor:
    return torch.randn(n, c, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: Tensor, bound: float = BOUND) -> None:
    error = float((found.cpu().double() - expected).norm())
    assert error <= bound * float(expected.norm()), f"{error / float(expected.norm()):.1e} > {bound:.0e}"


def check_products(operator: KernelOperator, H: Tensor, c: int) -> None:
    n = operator.n
    V = columns(n, c)
    close(operator.matmul(V.to(DEVICE)), H @ V.double())
    index = torch.tensor([n // 2, 0, n - 1, n // 3])
    close(operator.rows_matmul(index.to(DEVICE), V.to(DEVICE)), H[index] @ V.double())
    close(operator.columns_matmul(index.to(DEVICE), V[:4].to(DEVICE)), H[:, index] @ V[:4].double())
    part = slice(n // 3, n - 1)
    W = V[part]
    close(operator.rows_matmul(part, V.to(DEVICE)), H[part] @ V.double())
    close(operator.columns_matmul(part, W.to(DEVICE)), H[:, part] @ W.double())
    close(operator.block(part), H[part, part])
