"""Products by 1 − k against dense float64: on a GPU where there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fused_tools import BOUND, DEVICE, SLOW, check_products, close, columns
from gp_truth import h_matrix, kernel_matrix, toy
from warmgp import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.operators.triton.falling import AMPLIFIED, FALLING, Entries, mean_fall
from warmgp.operators.triton.fused import FusedOperator
from warmgp.operators.triton.points import LARGEST_SQUARE

SIGNAL, NOISE = 100.0, 0.3


def near(kernel: str, n: int, d: int, lengths: float = 60.0, **options: bool) -> tuple[FusedOperator, Tensor]:
    """An operator on points that are near each other beside their length scales, and H in float64."""
    x = toy(n, d)[0].float()
    x[1] = x[2]
    theta = Hyperparameters.from_vector(torch.tensor([NOISE, SIGNAL] + d * [lengths]))
    operator = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta, **options)
    return operator, h_matrix(kernel, x.double(), theta.vector)


def balanced(n: int, c: int) -> Tensor:
    """Columns that add up to nothing but rounding, as solutions at a large signal do."""
    V = columns(n, c).double()
    return (V - V.mean(0)).float()


@pytest.mark.parametrize("d", [1, pytest.param(4, marks=SLOW), 20])
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_learned_from_keeps_its_digits(kernel: str, d: int) -> None:
    """K V is s² ΣV less s² (1 − k) V, and the second part is known to float32's digits, however small it is."""
    V = balanced(100, 17)
    found = {}
    for falling in (True, False):
        operator, H = near(kernel, 100, d, falling=falling)
        expected = H @ V.double()
        spread = SIGNAL**2 - H[0, 3:].min()  # the size of s² (1 − k)
        error = (operator.matmul(V.to(DEVICE)).cpu().double() - expected).abs().max()
        found[falling] = float(error / spread)
    assert found[True] <= 1e-5
    if kernel != "matern12":  # which falls by 3% and more within these points
        assert found[False] >= 20 * found[True]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("lengths", [60.0, 0.5])
def test_all_products(kernel: str, lengths: float) -> None:
    """Also where points are far apart, and nobody would ask for it: both sides of a = 1 are right."""
    operator, H = near(kernel, 70, 3, lengths, falling=True)
    check_products(operator, H, c=17)


def test_a_block_is_subtracted_with_its_squares() -> None:
    operator, H = near("matern32", 130, 4)
    W = balanced(36, 5)
    W[22:] = 0.0
    R = columns(130, 5, seed=4)
    left, squares = R.clone().to(DEVICE), torch.full((130,), 7.0, device=DEVICE)
    operator.subtract_columns(left, torch.tensor([108], device=DEVICE), W.to(DEVICE), squares)
    expected = R.double() - H[:, 108:] @ W[:22].double()
    close(left, expected)
    close(squares, expected.square().sum(1))
    index = torch.tensor([5, 0, 77])
    left = R.clone().to(DEVICE)
    operator.subtract_columns_at(left, index.to(DEVICE), W[:3].to(DEVICE))
    close(left, R.double() - H[:, index] @ W[:3].double())


def test_rows_with_noise_of_their_own() -> None:
    x, theta = toy(90, 5)[0].float(), Hyperparameters.from_vector(torch.tensor([NOISE, SIGNAL] + 5 * [60.0]))
    shares = torch.linspace(0.5, 3.0, 90, dtype=torch.float64)
    rows = RowNoise(shares.to(DEVICE), torch.zeros_like(shares).to(DEVICE))
    operator = FusedOperator(x.to(DEVICE), get_kernel("matern32"), theta, rows=rows)
    K = kernel_matrix("matern32", x.double(), x.double(), theta.signal_scale, theta.length_scales)
    V = balanced(90, 7)
    close(operator.matmul(V.to(DEVICE)), K @ V.double() + NOISE**2 * shares[:, None] * V.double())


@pytest.mark.parametrize("kernel", KERNELS)
def test_new_points_near_and_far(kernel: str) -> None:
    """1 − k is larger there than between training points, and must not leave float16's range."""
    operator, _ = near(kernel, 80, 3)
    V = balanced(80, 3)
    for far in (1.0, 30.0, 3e3, 1e5):
        x_new = far * toy(9, 3, seed=5)[0].float()
        K = kernel_matrix(kernel, x_new.double(), operator.x.cpu().double(), *_signal_and_lengths(operator))
        error = (operator.cross_matmul(x_new.to(DEVICE), V.to(DEVICE)).cpu().double() - K @ V.double()).abs().max()
        assert float(error) <= BOUND * SIGNAL**2


def _signal_and_lengths(operator: FusedOperator) -> tuple[Tensor, Tensor]:
    return operator.theta.signal_scale, operator.theta.length_scales


@pytest.mark.parametrize("kernel", KERNELS)
def test_points_that_are_near_each_other_are_asked_for_1_less_k(kernel: str) -> None:
    z = toy(500, 6)[0]
    assert mean_fall(0.01 * z, get_kernel(kernel)) < FALLING < mean_fall(z, get_kernel(kernel))
    far, _ = near(kernel, 30, 3, 0.5)
    close_by, _ = near(kernel, 30, 3, 200.0)
    assert not far._entries.falling
    assert close_by._entries.falling
    assert close_by.at(far.theta)._entries.falling == far._entries.falling  # decided at every θ anew


def test_little_signal_beside_the_noise_is_left_to_k() -> None:
    """1 − k takes longer, and sums that are kept longer still: both only where rounding would be seen."""
    x, lengths = toy(50, 3)[0].float().to(DEVICE), 3 * [200.0]
    for signal, falling, sums in ((1.0, False, False), (80.0, True, False), (150.0, True, True)):
        operator = FusedOperator(x, get_kernel("matern32"), Hyperparameters(0.6, signal, lengths))
        assert (operator._entries.falling, operator.sums_count) == (falling, sums)
        assert (operator.entry_size < 0.01) == falling
    assert not FusedOperator(x.double(), get_kernel("matern32"), operator.theta).sums_count


def test_a_kernel_without_this_form_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, H = near("rbf", 40, 2, falling=True)
    monkeypatch.setattr(operator, "_form", replace(operator._form, fall=None))
    assert operator._entries == Entries(operator._form.profile)
    assert operator._entries.factor(4.0) == 4.0 / 256.0
    V = columns(40, 3)
    close(operator.matmul(V.to(DEVICE)), H @ V.double())


def test_points_farther_than_float32_can_square() -> None:
    """Their distances are not finite, and what is said of them is: all of k is gone there."""
    operator, _ = near("matern32", 40, 2, falling=True)
    entries = operator._entries.within(operator.kernel, float("inf"))
    assert entries.amplify == AMPLIFIED
    one = FusedOperator(torch.zeros(1, 2, device=DEVICE), operator.kernel, operator.theta, falling=True)
    assert bool(
        torch.isfinite(one.cross_matmul(torch.full((1, 2), 1e6, device=DEVICE), torch.ones(1, 1, device=DEVICE)))
    )


@pytest.mark.parametrize("farthest", [0.0, 1e-9, 1e-3, 0.7, 1.0, 40.0, 1e6])
@pytest.mark.parametrize("kernel", KERNELS)
def test_entries_and_points_fit_into_float16(kernel: str, farthest: float) -> None:
    form = get_kernel(kernel).fused_form()
    assert form is not None
    entries = Entries.of(form, get_kernel(kernel), 0.1, farthest)
    largest = 1.0 - float(get_kernel(kernel).profile(torch.tensor([2.0 * farthest], dtype=torch.float64)))
    assert largest * entries.amplify <= AMPLIFIED
    assert entries.zoom == 1.0 or (entries.zoom * form.alpha * farthest) ** 2 <= LARGEST_SQUARE
    assert entries.factor(9.0) == -9.0 / entries.amplify
