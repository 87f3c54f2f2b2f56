"""Rows with noise of their own: every product, block and gradient of H, and points given near ones, against float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from row_noise_truth import THETA, dense_h, log_likelihood, posterior, problem, slope
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import KernelOperator, has_triton, make_operator
from warmgp.operators.conditionals import conditionals
from warmgp.operators.new_points import NearPoints
from warmgp.operators.row_noise import Noise, RowNoise

N = 67
BOUND = {torch.float32: 1e-5, torch.float64: 1e-11}
KINDS = ["dense", "chunked", *(["fused"] if has_triton() else [])]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def operator_of(kind: str, name: str, dtype: torch.dtype) -> tuple[KernelOperator, Tensor]:
    """An operator in small tiles, and H in float64 of the very same inputs."""
    x, _, w, e, rows = problem(N)
    x = x.to(dtype)
    operator = make_operator(
        kind, x.to(DEVICE), get_kernel(name), THETA, tile_entries=300, rows=rows.to(DEVICE)
    )  # fmt: skip
    return operator, dense_h(name, x.double(), THETA.vector, w, e)


def columns(n: int, c: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(n, c, dtype=torch.float64, generator=torch.Generator().manual_seed(c)).to(dtype)


def close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    error = float((found.cpu().double() - expected).norm()) / float(expected.norm())
    assert error <= BOUND[dtype], f"{error:.1e}"


def check(operator: KernelOperator, H: Tensor) -> None:
    dtype, n = operator.dtype, operator.n
    V = columns(n, 3, dtype).to(DEVICE)
    close(operator.matmul(V), H @ V.cpu().double(), dtype)
    close(operator.residual(V, V), V.cpu().double() - H @ V.cpu().double(), dtype)
    index = torch.tensor([n // 2, 0, n - 1, n // 3])
    for some in (index, slice(n // 3, n - 1)):
        here = some.to(DEVICE) if isinstance(some, Tensor) else some
        W = V[here]
        close(operator.rows_matmul(here, V), H[some] @ V.cpu().double(), dtype)
        close(operator.columns_matmul(here, W), H[:, some] @ W.cpu().double(), dtype)
        close(operator.block(here), H[some][:, some], dtype)
        close(operator.block_in_float64(here), H[some][:, some], torch.float64)
    R = V.clone()
    operator.subtract_columns_at(R, index.to(DEVICE), V[index.to(DEVICE)])
    close(R, V.cpu().double() - H[:, index] @ V.cpu().double()[index], dtype)
    R, squares = V.clone(), torch.empty(n, dtype=dtype, device=DEVICE)
    W = torch.cat([V[50:], V.new_zeros(33, 3)])  # a block that runs over the end
    operator.subtract_columns(R, torch.tensor([50], device=DEVICE), W, squares)
    expected = V.cpu().double() - H[:, 50:] @ V.cpu().double()[50:]
    close(R, expected, dtype)
    close(squares, expected.square().sum(1), dtype)
    close(operator.dense(torch.float64), H, torch.float64)
    pairs = torch.tensor([[3, 1, 60], [0, 66, 20]])
    close(operator.blocks(pairs.to(DEVICE)), torch.stack([H[p][:, p] for p in pairs]), torch.float64)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kind", KINDS[:2])
def test_every_product(kind: str, name: str, dtype: torch.dtype) -> None:
    check(*operator_of(kind, name, dtype))


@pytest.mark.skipif("fused" not in KINDS, reason="Triton is not here")
@pytest.mark.parametrize("dtype", BOUND)
def test_every_product_fused(dtype: torch.dtype) -> None:
    check(*operator_of("fused", "matern32", dtype))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kind", KINDS[:2])
def test_gradient(kind: str, name: str) -> None:
    """∂/∂θ Σ_c weights_c a_cᵀ H b_c by automatic differentiation; nothing of e is in ∂σ."""
    operator, _ = operator_of(kind, name, torch.float64)
    check_gradient(operator, name)


@pytest.mark.skipif("fused" not in KINDS, reason="Triton is not here")
@pytest.mark.parametrize("dtype", BOUND)
def test_gradient_fused(dtype: torch.dtype) -> None:
    operator, _ = operator_of("fused", "matern52", dtype)
    check_gradient(operator, "matern52")


def check_gradient(operator: KernelOperator, name: str) -> None:
    x, _, w, e, _ = problem(N)
    A, B = columns(N, 2, operator.dtype), columns(N, 3, operator.dtype)[:, :2]
    weights = torch.tensor([0.5, -0.2], dtype=torch.float64)
    vector = THETA.vector.clone().requires_grad_()
    H = dense_h(name, x.to(operator.dtype).double(), vector, w, e)
    for one, other in ((A, B), (A, A)):
        value = (weights * (one.double() * (H @ other.double())).sum(0)).sum()
        expected = torch.autograd.grad(value, vector, retain_graph=True)[0]
        left = one.to(DEVICE)
        right = left if other is one else other.to(DEVICE)
        found = operator.quadratic_gradient(left, right, weights)
        assert torch.allclose(found, expected, rtol=100 * BOUND[operator.dtype], atol=BOUND[operator.dtype])


def test_the_same_noise_goes_on() -> None:
    """To another θ, to float64, and into the books: another noise of rows is another H."""
    operator, _ = operator_of("chunked", "matern32", torch.float32)
    x, _, _, _, rows = problem(N)
    moved = operator.at(THETA)
    assert moved.rows is operator.rows and operator.in_float64().rows is operator.rows
    assert operator.origin.same(moved.origin)
    other = make_operator("chunked", operator.x, operator.kernel, THETA, rows=rows.to(DEVICE))
    assert not operator.origin.same_data(other.origin)
    with pytest.raises(ValueError, match="67 rows of x"):
        make_operator("dense", x, operator.kernel, THETA, rows=rows.at(slice(0, 5)))
    with pytest.raises(ValueError, match="float64"):
        RowNoise(torch.ones(3), torch.zeros(3))
    with pytest.raises(ValueError, match="one shape"):
        RowNoise(torch.ones(3, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))


def test_weights_of_one_and_no_known_noise_change_nothing() -> None:
    x = problem(N)[0]
    rows = RowNoise(torch.ones(N, dtype=torch.float64), torch.zeros(N, dtype=torch.float64))
    with_rows, without = Noise(THETA, rows), Noise(THETA, None)
    for name in ("least", "least_scale", "most", "unit"):
        assert getattr(with_rows, name) == pytest.approx(getattr(without, name), rel=1e-14)
    a, b = (make_operator("dense", x, get_kernel("rbf"), THETA, rows=r).H for r in (rows, None))
    assert torch.equal(a, b)


def test_the_unit_of_residuals() -> None:
    """That a residual spread evenly is small in units of √d: the harmonic mean, which little noise rules."""
    rows = RowNoise(torch.tensor([1.0, 0.01], dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    noise = Noise(THETA, rows)
    assert noise.unit == pytest.approx((2 / (1 / 0.09 + 1 / 0.0009)) ** 0.5)
    assert (noise.least, noise.most) == pytest.approx((0.0009, 0.09))


# -- points given near ones ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("last", [N, 20])
@pytest.mark.parametrize("name", KERNELS)
def test_conditionals(name: str, last: int) -> None:
    x, y, w, e, rows = problem(N)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    densities, gradient = conditionals(x, y, order[None], get_kernel(name), THETA, last, rows)
    parts = [order] if last == N else [order, order[:-last]]
    values = [log_likelihood(name, x[p], y[p], THETA.vector, w[p], e[p]) for p in parts]
    slopes = [slope(name, x[p], y[p], THETA.vector, w[p], e[p]) for p in parts]
    assert float(densities[0]) == pytest.approx(float(values[0] - (values[1] if len(parts) > 1 else 0.0)), rel=1e-9)
    expected = slopes[0] - (slopes[1] if len(parts) > 1 else 0.0)
    assert torch.allclose(gradient, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", KERNELS)
def test_new_points_given_near_ones(name: str) -> None:
    """Given all points, which are near then, they are the exact posterior."""
    x, y, w, e, rows = problem(N)
    x_new = torch.tensor([[0.1, 0.2], [2.0, -1.0]], dtype=torch.float64)
    found = NearPoints(x, get_kernel(name), THETA, N, rows).predict(x_new)
    mean = (found.weights * y[found.groups]).sum(1)
    expected = posterior(name, x, y, x_new, THETA.vector, w, e)
    assert torch.allclose(mean, expected[0], rtol=1e-8)
    assert torch.allclose(found.variance, expected[1], rtol=1e-7)
