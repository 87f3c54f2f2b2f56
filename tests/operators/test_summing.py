"""Products in float32 keep their digits where large entries cancel, as they do in solutions."""

from __future__ import annotations

import pytest
import torch

from warmgp import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import make_operator
from warmgp.operators.summing import PANEL, add_product, product, sum_dtype

N = 5_000
CPU = torch.device("cpu")


def cancelling() -> tuple[torch.Tensor, torch.Tensor, Hyperparameters]:
    """x, and large v of both signs without what is smooth in x, so that most of H v cancels."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(N, 4, generator=g)
    v = torch.randn(N, 2, generator=g).mul_(100.0)
    theta = Hyperparameters(0.03, 1.5, [3.0] * 4)
    features = torch.cat([torch.ones(N, 1), x, (x[:, :, None] * x[:, None, :]).reshape(N, 16)], 1)
    smooth = torch.linalg.qr(features.double()).Q
    v = v.double() - smooth @ (smooth.T @ v.double())
    return x, v.float(), theta


def test_sums_are_longer_than_their_terms() -> None:
    """Beside one long sum in float32 residuals are off by a twentieth (seen: 0.05), other products by a quarter."""
    x, v, theta = cancelling()
    operator = make_operator("chunked", x, get_kernel("matern32"), theta)
    double = operator.in_float64("dense", x=x.double())
    truth, b = double.H @ v.double(), torch.zeros_like(v)
    plain = float((double.H.float() @ v - truth).square().mean().sqrt())
    left = operator.residual(b, v)
    assert left.dtype == torch.float32 and float((left + truth).square().mean().sqrt()) < 0.1 * plain
    assert torch.equal(b, torch.zeros_like(v))
    for found, part in (
        (operator.matmul(v), slice(0, N)),
        (operator.rows_matmul(slice(100, 900), v), slice(100, 900)),
        (operator.cross_matmul(x, v) + operator.noise_variance * v, slice(0, N)),
    ):
        assert found.dtype == torch.float32
        assert float((found - truth[part]).square().mean().sqrt()) < 0.4 * plain


@pytest.mark.parametrize("columns", [1, PANEL, PANEL + 1, 3 * PANEL - 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_panels_of_any_number(columns: int, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(1)
    A, V = torch.randn(7, columns, generator=g, dtype=dtype), torch.randn(columns, 3, generator=g, dtype=dtype)
    truth = A.double() @ V.double()
    found = product(A, V)
    assert found.dtype == dtype and torch.allclose(
        found.double(), truth, atol=1e-5 if dtype == torch.float32 else 1e-12
    )
    out = torch.ones(7, 3, dtype=sum_dtype(V))
    add_product(out, A, V)
    assert sum_dtype(V) == torch.float64 and torch.allclose(out, truth + 1, atol=1e-5)
