"""Distances, kernels of one's own and gradients of Triton's operators against dense float64: see ``test_fused.py``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fused_tools import BOUND, DEVICE, SLOW, check_products, close, columns, problem, theta_of
from gp_truth import h_matrix, toy
from warmgp import (
    ChunkedOperator,
    ConjugateGradients,
    Hyperparameters,
    Matern32,
    StoppingRule,
)
from warmgp.kernels import KERNELS, FusedForm, Kernel, get_kernel
from warmgp.operators import has_triton

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux; its operators need it", allow_module_level=True)
import triton
import triton.language as tl

from warmgp.operators.triton.fused import FusedOperator
from warmgp.operators.triton.points import ROUNDING, Points


# -- a kernel of one's own -------------------------------------------------------------------------------------------
@triton.jit
def inverse(square):
    return 256.0 / (1.0 + tl.maximum(square, 0.0))


@triton.jit
def inverse_and_weight(square):
    k = 1.0 / (1.0 + tl.maximum(square, 0.0))
    return k, k * k


@triton.jit
def inverse64(square):
    return 1.0 / (1.0 + square)


class RationalQuadratic(Kernel):
    """k(r) = 1/(1 + r²/2), whose −k′(r)/r is k²; ρ² = r²/2."""

    name = "rational-quadratic"

    def profile(self, r: Tensor) -> Tensor:
        return 1.0 / (1.0 + 0.5 * r * r)

    def length_weight(self, r: Tensor) -> Tensor:
        return self.profile(r).square()

    def fused_form(self) -> FusedForm:
        return FusedForm(0.5**0.5, 1.0, inverse, inverse_and_weight, inverse64)

    def spectral_log_density(self, omega: Tensor) -> Tensor:
        raise NotImplementedError

    def sample_frequencies(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        raise NotImplementedError


@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_with_functions_of_its_own_is_fused(dtype: torch.dtype, d: int) -> None:
    """Against H and the gradient by automatic differentiation, written down once more."""
    x, theta, bound = toy(100, d)[0].to(dtype), theta_of(d), BOUND if dtype == torch.float32 else 1e-12
    x[11] = x[12]
    vector = theta.vector.requires_grad_()
    square = ((x[:, None] - x).double() / vector[2:]).square().sum(-1)
    H = vector[1] ** 2 / (1 + square / 2) + vector[0] ** 2 * torch.eye(100, dtype=torch.float64)
    operator = FusedOperator(x.to(DEVICE), RationalQuadratic(), theta)
    assert operator._points.has_products == (d == 12 and dtype == torch.float32)
    V, index, weights = columns(100, 17).to(dtype), torch.tensor([50, 0, 99, 33]), torch.linspace(-1.0, 2.0, 17)
    close(operator.matmul(V.to(DEVICE)), H.detach() @ V.double(), bound)
    close(operator.columns_matmul(index.to(DEVICE), V[:4].to(DEVICE)), H.detach()[:, index] @ V[:4].double(), bound)
    (expected,) = torch.autograd.grad((((V.double() * weights) @ V.double().T) * H).sum(), vector)
    close(operator.quadratic_gradient(V.to(DEVICE), V.to(DEVICE), weights), expected, 10 * bound)


# -- distances -------------------------------------------------------------------------------------------------------
def test_close_pairs_get_exact_distances_where_it_matters() -> None:
    x = columns(50, 8).to(DEVICE)
    assert not FusedOperator(x, Matern32(), Hyperparameters.ones(8))._exact
    assert FusedOperator(x, get_kernel("matern12"), Hyperparameters.ones(8))._exact  # not smooth at zero
    assert FusedOperator(x[:, :3], Matern32(), Hyperparameters.ones(3))._exact  # cheap
    assert FusedOperator(x, Matern32(), theta_of(8, noise=1e-3))._exact  # rounding would rival the noise
    assert FusedOperator(1e3 * x, Matern32(), Hyperparameters.ones(8))._exact  # too large for float16


def wide_inputs(d: int, wide: tuple[int, ...], noise: float) -> tuple[FusedOperator, Tensor]:
    """Points in near pairs, some inputs of which spread over many length scales, and H in float64."""
    x = toy(100, d)[0]
    x[50:] = x[:50] + 0.01 * toy(50, d)[0]
    x[:, list(wide)] *= 8.0
    theta = Hyperparameters.from_vector(torch.cat([torch.tensor([noise, 1.2]), torch.linspace(0.7, 2.0, d)]))
    operator = FusedOperator(x.float().to(DEVICE), Matern32(), theta)
    return operator, h_matrix("matern32", x.float().double(), theta.vector)


@pytest.mark.parametrize(("d", "wide"), [(5, (2,)), (11, (1, 7, 10)), (20, (3,))])
def test_wide_inputs_are_differenced_and_the_others_multiplied(d: int, wide: tuple[int, ...]) -> None:
    operator, H = wide_inputs(d, wide, noise=0.02)
    assert operator._differenced == {1: 1, 3: 4}[len(wide)]  # powers of two
    assert set(operator._order[: len(wide)].tolist()) == set(wide)
    check_products(operator, H, c=17)
    V = columns(100, 17)
    plain = FusedOperator(operator.x, operator.kernel, operator.theta, exact_distances=False)
    truth = H @ V.double()
    error, error_of_plain = (float((o.matmul(V.to(DEVICE)).cpu().double() - truth).norm()) for o in (operator, plain))
    assert 3 * error < error_of_plain
    weights, vector = torch.linspace(-1.0, 2.0, 17), operator.theta.vector.requires_grad_()
    B = V.roll(1, 0)
    H = h_matrix("matern32", operator.x.cpu().double(), vector)
    for A in (V, B):
        G = (A.double() * weights) @ B.double().T
        (expected,) = torch.autograd.grad((G * H).sum(), vector, retain_graph=True)
        left, right = A.to(DEVICE), B.to(DEVICE)
        close(operator.quadratic_gradient(left, left if A is B else right, weights), expected, 1e-4)
    x_new = operator.x.cpu()[:9] + 0.01
    reference = ChunkedOperator(operator.x.cpu().double(), operator.kernel, operator.theta)
    close(operator.cross_matmul(x_new.to(DEVICE), V.to(DEVICE)), reference.cross_matmul(x_new.double(), V.double()))


@pytest.mark.parametrize("d", [6, pytest.param(14, marks=SLOW), pytest.param(40, marks=SLOW)])
def test_the_rounding_of_squares_by_products_is_what_is_assumed(d: int) -> None:
    """Near pairs far from the centre: k = s²(1 − 3/2 r²) there, so an error of k is one of the squared distance."""
    x = 3.0 * toy(200, d)[0]
    x[100:] = x[:100] + 0.01 * toy(100, d)[0]
    x = x.float()
    operator = FusedOperator(x.to(DEVICE), Matern32(), Hyperparameters.ones(d), exact_distances=False)
    H = operator.matmul(torch.eye(200, device=DEVICE))
    error = (H.cpu().double() - h_matrix("matern32", x.double(), torch.ones(2 + d))).abs()
    near = torch.cdist(x.double(), x.double()) < 0.2
    assert int(near.sum()) >= 300
    assert float(error[near].max()) <= 1.5 * ROUNDING * float(x.square().sum(1).max())


def test_all_inputs_are_differenced_where_most_have_to_be() -> None:
    assert wide_inputs(5, (0, 2, 4), noise=0.02)[0]._differenced == 5


def test_coincident_points_cancel_in_the_product_of_halves() -> None:
    z = 5.0 * columns(1, 20).repeat(64, 1)
    points = Points.prepare(z.to(DEVICE), differenced=0)
    rows = (points.row_high.double() + points.row_low.double()).cpu()
    high, low = points.column_high.double().cpu(), points.column_low.double().cpu()
    square = points.row_high.double().cpu() @ (high + low).T + points.row_low.double().cpu() @ high.T  # three products
    assert float(square[:64, :64].abs().max()) <= 1e-9 * float(rows.square().sum(1).max())


@SLOW
def test_nearly_coincident_points_at_low_noise_solve_truly() -> None:
    """Pairs 1e-4 apart at noise 0.01: the residual that float32 reports holds in float64."""
    x = toy(120, 2)[0].float().repeat(2, 1)
    x[120:] += 1e-4
    theta = Hyperparameters(0.01, 1.0, [0.5, 0.5])
    operator = FusedOperator(x.to(DEVICE), Matern32(), theta)
    b = columns(240, 3).to(DEVICE)
    result = ConjugateGradients(50).solve(operator, b, rule=StoppingRule(0.01))
    H = h_matrix("matern32", x.double(), theta.vector)
    residual = (b.cpu().double() - H @ result.solution.cpu().double()).norm(dim=0) / b.cpu().double().norm(dim=0)
    assert result.converged and float(residual[0]) <= 0.0105 and float(residual[1:].mean()) <= 0.0105


# -- the gradient ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("d", "c"), [(1, 1), pytest.param(4, 65, marks=SLOW), (12, 17), pytest.param(20, 2, marks=SLOW)]
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_quadratic_gradient(kernel: str, d: int, c: int, same: bool) -> None:
    operator, _ = problem(kernel, 100, d)
    A = columns(100, c).to(DEVICE)
    B = A if same else A.roll(1, 0)
    weights = torch.linspace(-1.0, 2.0, c)
    vector = operator.theta.vector.requires_grad_()
    G = (A.cpu().double() * weights) @ B.cpu().double().T
    H = h_matrix(kernel, operator.x.cpu().double(), vector)
    (expected,) = torch.autograd.grad((G * H).sum(), vector)
    close(operator.quadratic_gradient(A, B, weights), expected, 1e-4)


def test_quadratic_gradient_of_one_shared_length_and_zero_weights() -> None:
    x = columns(100, 12).to(DEVICE)
    theta = Hyperparameters(0.3, 1.2, [1.5])
    A, weights = columns(100, 3).to(DEVICE), torch.tensor([1.0, -2.0, 0.5])
    reference = ChunkedOperator(x.double(), Matern32(), theta).quadratic_gradient(A.double(), A.double(), weights)
    operator = FusedOperator(x, Matern32(), theta)
    close(operator.quadratic_gradient(A, A, weights), reference, 1e-4)
    assert bool((operator.quadratic_gradient(A, A, torch.zeros(3)) == 0).all())
