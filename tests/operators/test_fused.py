"""Triton's operators against dense float64: on a GPU where there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gp_truth import h_matrix, toy
from warmgp import (
    AlternatingProjections,
    ChunkedOperator,
    ConjugateGradients,
    DenseOperator,
    Hyperparameters,
    KernelOperator,
    Matern32,
    Pathwise,
    Solver,
    StoppingRule,
)
from warmgp.kernels import KERNELS, FusedForm, Kernel, get_kernel
from warmgp.operators import fusing, has_triton, make_operator, why_not_fused

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux; its operators need it", allow_module_level=True)
import triton
import triton.language as tl

from warmgp.operators.triton import split
from warmgp.operators.triton.fused import FusedOperator
from warmgp.operators.triton.points import ROUNDING, Points
from warmgp.operators.triton.split import Tile, largest_bits, scales, splits_for
from warmgp.solvers.triton.packed import pack_symmetric
from warmgp.solvers.triton.steps import pick_block, project_block

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


# -- products --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("d", [1, pytest.param(4, marks=SLOW), 20])
@pytest.mark.parametrize("kernel", KERNELS)
def test_products_of_every_kernel(kernel: str, d: int) -> None:
    check_products(*problem(kernel, 100, d), c=17)


@pytest.mark.parametrize(
    ("n", "c"),
    [
        (4, 1),
        (64, 65),
        (67, 2),
        (67, 74),
        *(pytest.param(n, c, marks=SLOW) for n, c in ((257, 129), (65, 16), (130, 81), (70, 145))),
    ],
)
@pytest.mark.parametrize("d", [3, 11])
def test_products_of_odd_shapes(d: int, n: int, c: int) -> None:
    check_products(*problem("matern32", n, d), c=c)


@pytest.mark.parametrize(("d", "c"), [(1, 1), (4, 17), pytest.param(20, 66, marks=SLOW)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_float64(kernel: str, d: int, c: int) -> None:
    x = toy(100, d)[0]
    x[11] = x[12]
    theta = theta_of(d)
    operator, H = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta), h_matrix(kernel, x, theta.vector)
    V, index, W = columns(100, c).double(), torch.tensor([50, 0, 99, 33]), columns(20, c).double()
    close(operator.matmul(V.to(DEVICE)), H @ V, 1e-12)
    close(operator.rows_matmul(index.to(DEVICE), V.to(DEVICE)), H[index] @ V, 1e-12)
    close(operator.columns_matmul(index.to(DEVICE), V[:4].to(DEVICE)), H[:, index] @ V[:4], 1e-12)
    close(operator.columns_matmul(slice(20, 40), W.to(DEVICE)), H[:, 20:40] @ W, 1e-12)
    R = V.clone().to(DEVICE)
    operator.subtract_columns(R, torch.tensor([40], device=DEVICE), W.to(DEVICE))
    close(R, V - H[:, 40:60] @ W, 1e-12)
    reference = ChunkedOperator(x, get_kernel(kernel), theta)
    close(operator.cross_matmul(x[:7].to(DEVICE), V.to(DEVICE)), reference.cross_matmul(x[:7], V), 1e-12)
    gradient = operator.quadratic_gradient(V.to(DEVICE), V.to(DEVICE), torch.ones(c))
    close(gradient, reference.quadratic_gradient(V, V, torch.ones(c)), 1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kernel", "d"), [("matern12", 1), ("matern32", 6), pytest.param("rbf", 20, marks=SLOW)])
def test_kernel_products_of_some_rows_and_columns(kernel: str, d: int, dtype: torch.dtype) -> None:
    """No noise, also where rows and columns meet; indices repeat, and need not be contiguous in memory."""
    x, theta, bound = toy(100, d)[0].to(dtype), theta_of(d), BOUND if dtype == torch.float32 else 1e-12
    x[11] = x[12]
    operator = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta)
    H, noise = h_matrix(kernel, x.double(), theta.vector), operator.noise_variance
    K = H - noise * torch.eye(100, dtype=torch.float64)
    every_third = torch.arange(100)[::3]
    assert not every_third.is_contiguous()
    sets = (slice(0, 100), slice(7, 80), torch.tensor([50, 0, 99, 33, 0]), every_third)
    for rows in sets:
        for its in sets:
            block = K[rows][:, its]
            V = columns(block.shape[1], 17).to(dtype)
            on_device = [i if isinstance(i, slice) else i.to(DEVICE) for i in (rows, its)]
            before = operator.entries_evaluated
            close(operator.kernel_matmul(*on_device, V.to(DEVICE)), block @ V.double(), bound)
            assert operator.entries_evaluated - before == block.numel()
    V = columns(100, 3).to(DEVICE, dtype)
    close(operator.rows_matmul(every_third.to(DEVICE), V), H[every_third] @ V.cpu().double(), bound)
    none = torch.tensor([], dtype=torch.int64, device=DEVICE)
    assert operator.kernel_matmul(none, slice(0, 100), V).shape == (0, 3)
    assert bool((operator.kernel_matmul(slice(0, 9), none, V[:0]) == 0).all())
    with pytest.raises(ValueError, match="a row for each of the 4 columns of K, got 100 rows"):
        operator.kernel_matmul(slice(0, 9), slice(0, 4), V)


@pytest.mark.parametrize("exact", [True, False])
def test_many_inputs(exact: bool) -> None:
    operator, H = problem("matern52", 90, 128, exact_distances=exact)
    V = columns(90, 3)
    close(operator.matmul(V.to(DEVICE)), H @ V.double(), 2e-4 if not exact else BOUND)  # |z|² is 100 and more


@pytest.mark.parametrize(
    "tile",
    [
        Tile(64, 32, 4, 2, 168),
        *(pytest.param(tile, marks=SLOW) for tile in (Tile(128, 64, 8, 1), Tile(32, 128, 4, 2, 128))),
    ],
)
def test_tiles_of_other_shapes(tile: Tile) -> None:
    operator, H = problem("rbf", 140, 5, tile=tile)
    V = columns(140, 33)
    close(operator.matmul(V.to(DEVICE)), H @ V.double())


def test_subtracting_columns_from_a_place_on_the_device() -> None:
    """A range that runs over the end stands for the rows there are: its W is zero beyond."""
    operator, H = problem("matern32", 130, 4)
    W = columns(36, 5)
    W[22:] = 0.0
    first = torch.tensor([108], device=DEVICE)
    for this in (operator, DenseOperator(operator.x, operator.kernel, operator.theta)):
        R = columns(130, 5, seed=4)
        left = R.clone().to(DEVICE)
        squares = torch.full((130,), 7.0, device=DEVICE)
        this.subtract_columns(left, first, W.to(DEVICE), squares)
        expected = R.double() - H[:, 108:] @ W[:22].double()
        close(left, expected)
        close(squares, expected.square().sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_residuals_are_fused(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The torch path writes every entry to memory: one residual of 500,000 points took as long as ten products."""
    single, H = problem("matern32", 70, 4)
    operator = FusedOperator(single.x.to(dtype), single.kernel, single.theta)
    monkeypatch.setattr(FusedOperator, "_kernel_tile", None)
    v = columns(70, 3).to(dtype)
    b = v.flip(0)
    close(operator.residual(b.to(DEVICE), v.to(DEVICE)), b.double() - H @ v.double())


@pytest.mark.parametrize("c", [1, 17, 33])
def test_subtracting_gathered_columns(c: int) -> None:
    """Rows of a random block, low ones among them: the noise belongs to the rows of the block alone."""
    operator, H = problem("matern32", 130, 4)
    index = torch.tensor([0, 129, 3, 64, 1, 77, 128])
    W, R = columns(7, c), columns(130, c, seed=4)
    for this in (operator, DenseOperator(operator.x, operator.kernel, operator.theta)):
        left = R.clone().to(DEVICE)
        this.subtract_columns_at(left, index.to(DEVICE), W.to(DEVICE))
        close(left, R.double() - H[:, index] @ W.double())


@pytest.mark.parametrize("c", [1, 17, 74, pytest.param(129, marks=SLOW)])
def test_squares_of_all_groups_of_columns(c: int) -> None:
    operator, H = problem("matern32", 67, 4)
    W, R = columns(20, c), columns(67, c, seed=4)
    left, squares = R.clone().to(DEVICE), torch.full((67,), 7.0, device=DEVICE)
    operator.subtract_columns(left, torch.tensor([40], device=DEVICE), W.to(DEVICE), squares)
    close(squares, (R.double() - H[:, 40:60] @ W.double()).square().sum(1))


@pytest.mark.parametrize("m", [0, 1, 70])
def test_cross_products(m: int) -> None:
    operator, _ = problem("matern32", 100, 6)
    x_new, V = columns(m, 6, seed=3), columns(100, 65)
    expected = ChunkedOperator(operator.x.cpu().double(), operator.kernel, operator.theta)
    close(operator.cross_matmul(x_new.to(DEVICE), V.to(DEVICE)), expected.cross_matmul(x_new.double(), V.double()))


def test_cross_products_far_away_are_zero_not_nan() -> None:
    operator, _ = problem("matern32", 100, 6)
    assert not operator._exact
    x_new = torch.cat([columns(3, 6, seed=3), torch.full((1, 6), 1e4), torch.full((1, 6), -1e6)])
    V = columns(100, 5)
    expected = ChunkedOperator(operator.x.cpu().double(), operator.kernel, operator.theta)
    found = operator.cross_matmul(x_new.to(DEVICE), V.to(DEVICE)).cpu()
    close(found, expected.cross_matmul(x_new.double(), V.double()))
    assert bool((found[3:] == 0).all())


def test_long_sums_make_up_for_their_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over many points that passes through large values and ends at small ones, as at low noise."""
    monkeypatch.setattr(split, "splits_for", lambda *_: 1)
    n = 6_000
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(0), device="cpu").to(DEVICE)
    operator = FusedOperator(x, get_kernel("matern12"), Hyperparameters(0.1, 1.0, [30.0] * 2))
    V = torch.ones(n, 17, device=DEVICE)
    V[n // 2 :] = -1.0  # half of the sum is 3,000, all of it nearly 0
    rows = torch.arange(40, device=DEVICE)
    truth = ChunkedOperator(x.double(), operator.kernel, operator.theta).rows_matmul(rows, V.double())
    errors = []
    for long in (10**9, 64):
        monkeypatch.setattr(split, "LONG", long)
        errors.append(float((operator.rows_matmul(rows, V).double() - truth).square().mean().sqrt()))
    assert errors[1] < 0.3 * errors[0], f"rounding left {errors[1]:.1e}, and {errors[0]:.1e} without its compensation"


def test_columns_of_very_different_size_keep_their_digits() -> None:
    """Every column is scaled by its own largest entry before it is split."""
    operator, H = problem("matern32", 100, 4)
    V = columns(100, 6) * torch.tensor([1e-20, 1e-6, 1.0, 1e6, 1e20, 0.0])
    found, expected = operator.matmul(V.to(DEVICE)).cpu().double(), H @ V.double()
    for c in range(5):
        close(found[:, c], expected[:, c])
    assert bool((found[:, 5] == 0).all())
    scaled = V * scales(largest_bits(V.to(DEVICE))).cpu()
    assert float(scaled[:, :5].abs().amax(0).min()) >= 512 and float(scaled.abs().max()) <= 1024


def test_a_result_repeats_bit_for_bit() -> None:
    operator, _ = problem("matern32", 130, 11)
    V, index = columns(130, 65).to(DEVICE), torch.arange(0, 130, 3, device=DEVICE)
    weights = torch.linspace(-1, 1, 65)
    for product in (
        lambda: operator.matmul(V),
        lambda: operator.rows_matmul(index, V),
        lambda: operator.quadratic_gradient(V, V, weights),
    ):
        assert torch.equal(product(), product())


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


# -- what it refuses, what it counts -----------------------------------------------------------------------------------
def test_what_cannot_be_fused_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    x = columns(20, 2).to(DEVICE)

    class Other(Matern32):
        def profile(self, r: Tensor) -> Tensor:
            return super().profile(2.0 * r)

    with pytest.raises(ValueError, match=r"float32 or float64, and x is torch\.float16"):
        FusedOperator(x.half(), Matern32(), Hyperparameters.ones(2))
    with pytest.raises(ValueError, match="no fused form"):
        FusedOperator(x, Other(), Hyperparameters.ones(2))
    with pytest.raises(ValueError, match=r"V must be torch\.float32"):
        FusedOperator(x, Matern32(), Hyperparameters.ones(2)).matmul(x.double())
    cuda = torch.device("cuda")
    assert why_not_fused(Matern32(), cuda, torch.float32, 2**24, 200).endswith("32-bit addresses")
    assert why_not_fused(Matern32(), cuda, torch.float64, 2**23, 200) == ""
    monkeypatch.setattr(fusing, "has_triton", lambda: False)
    assert why_not_fused(Matern32(), cuda, torch.float32, 100, 2).startswith("it needs Triton 3.5")


def test_on_a_cpu_only_the_interpreter_can_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "_is_interpreted", lambda: False)
    found = why_not_fused(Matern32(), torch.device("cpu"), torch.float32, 100, 2)
    assert found == "it needs a CUDA device, and x is on cpu"


def test_evaluated_entries() -> None:
    x, V = columns(50, 4).to(DEVICE), columns(50, 3).to(DEVICE)
    fused = make_operator("fused", x, Matern32(), Hyperparameters.ones(4))
    assert isinstance(fused, FusedOperator)
    fused.matmul(V)
    fused.rows_matmul(slice(0, 10), V)
    assert fused.entries_evaluated == 50 * 50 + 10 * 50
    assert fused.at(Hyperparameters.ones(4)).entries_evaluated == 3000
    options = FusedOperator(x, Matern32(), Hyperparameters.ones(4), exact_distances=True, tile=Tile(32, 32, 4, 1))
    assert options.at(theta_of(4)).exact_distances and options.at(theta_of(4)).tile == options.tile


def test_grids_fill_a_gpu_with_as_many_programs_as_its_registers_hold() -> None:
    """1,000 rows of 100,000 columns on 132 multiprocessors: three programs on each where a tile is bounded so."""
    tiles = {Tile(64, 64, 4, 3): 2, Tile(64, 64, 4, 3, 168): 3, Tile(64, 64, 4, 3, 128): 4, Tile(128, 64, 8, 2): 1}
    assert {tile: tile.programs for tile in tiles} == tiles
    assert [16 * splits_for(16, 1563, programs) for programs in (2, 3)] == [256, 384]
    assert splits_for(211, 211, 3) == 5 and splits_for(28_818, 28_818, 3) == 1 and splits_for(16, 7, 3) == 7


# -- solvers on it ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "solver",
    [ConjugateGradients(30), AlternatingProjections(30), AlternatingProjections(32, on_device=True)],
    ids=["cg", "ap", "ap on device"],
)
@SLOW
def test_solvers(solver: Solver) -> None:
    operator, H = problem("matern32", 100, 4)
    estimator, generator = Pathwise(5, 500), torch.Generator().manual_seed(0)
    targets = estimator.targets(operator, toy(100, 4)[1].float().to(DEVICE), estimator.draw(operator, generator))
    result = solver.solve(operator, targets, rule=StoppingRule(0.01))
    b = targets.cpu().double()
    residual = (b - H @ result.solution.cpu().double()).norm(dim=0) / b.norm(dim=0)
    assert result.converged and float(residual[0]) <= 0.0105 and float(residual[1:].mean()) <= 0.0105


@pytest.mark.parametrize(("b", "c"), [(70, 3), (16, 1), (7, 65), pytest.param(100, 17, marks=SLOW)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_step_of_a_projection(dtype: torch.dtype, b: int, c: int) -> None:
    """The worst block is found, and its packed inverse applied; the last block is a short one."""
    n, blocks = 3 * b - 2, 3
    A = torch.randn(blocks, b, b, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A = A + A.mT
    packed = pack_symmetric(A).to(DEVICE, dtype)
    r = torch.zeros(blocks * b, c)
    r[:n] = columns(n, c)
    v = columns(blocks * b, c, seed=1)
    for most in range(blocks):
        sums = torch.ones(blocks)
        sums[most] = 2.0
        worst, first, done = (torch.full((1,), 5, device=DEVICE) for _ in range(3))
        pick_block(sums.to(DEVICE), worst, first, done, b, n)
        assert (int(worst), int(first), int(done)) == (most, most * b, 5 + min(b, n - most * b))
        new = v.clone().to(DEVICE)
        step = project_block(packed, worst, r.to(DEVICE), new, b)
        rows = slice(most * b, (most + 1) * b)
        expected = A[most] @ r[rows].double()
        close(step, expected)
        moved = v.double()
        moved[rows] += expected
        close(new, moved)


def test_alternating_projections_that_pick_their_block_on_the_device() -> None:
    """The same method as with the host picking; here in the interpreter, so one epoch only."""
    operator, H = problem("matern32", 100, 4)
    b = columns(100, 3).to(DEVICE)
    rule = StoppingRule(0.01, max_epochs=1.3)
    here, there = (AlternatingProjections(32, on_device=w).solve(operator, b, rule=rule) for w in (False, True))
    assert here.iterations == there.iterations == 4 and here.iteration_epochs == there.iteration_epochs
    close(there.solution, here.solution.cpu().double(), 1e-4)
    residual = (b.cpu().double() - H @ there.solution.cpu().double()).norm(dim=0) / b.cpu().double().norm(dim=0)
    assert abs(float(residual[0]) - there.residual_mean) <= 1e-4
