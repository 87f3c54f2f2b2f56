"""Gradients of Triton's operators in float64 against those of dense float64: see ``test_fused.py``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fused_tools import DEVICE, SLOW, close, columns, theta_of
from gp_truth import h_matrix, kernel_matrix, toy
from warmgp import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import has_triton
from warmgp.operators.row_noise import RowNoise

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux; its operators need it", allow_module_level=True)

from warmgp.operators.triton import sums64
from warmgp.operators.triton.fused import FusedOperator


def truth(kernel: str, x: Tensor, theta: Hyperparameters, A: Tensor, B: Tensor, weights: Tensor) -> Tensor:
    """∂/∂θ Σ_c weights_c a_cᵀ H b_c, by autograd through a dense H."""
    vector = theta.vector.clone().requires_grad_()
    value = ((A * weights) * (h_matrix(kernel, x, vector) @ B)).sum()
    return torch.autograd.grad(value, vector)[0]


def data(n: int, d: int, c: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = toy(n, d)[0]
    x[11] = x[12]
    return x, columns(n, c).double(), columns(n, c, seed=3).double(), torch.linspace(-1.0, 2.0, c, dtype=torch.float64)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("n", "d", "c"),
    [(100, 1, 1), (67, 4, 17), (130, 20, 65), *(pytest.param(70, 20, c, marks=SLOW) for c in (81, 129))],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_of_every_kernel(kernel: str, n: int, d: int, c: int, same: bool) -> None:
    x, A, B, weights = data(n, d, c)
    theta = theta_of(d)
    operator = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta)
    left = A.to(DEVICE)
    found = operator.quadratic_gradient(left, left if same else B.to(DEVICE), weights)
    close(found, truth(kernel, x, theta, A, A if same else B, weights), 1e-10)


def test_more_inputs_than_one_pass_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each input has its sum from one pass, and the signal has it once."""
    x, A, _, weights = data(70, 7, 5)
    theta = theta_of(7)
    monkeypatch.setattr(sums64, "MOST_INPUTS", 3)
    operator = FusedOperator(x.to(DEVICE), get_kernel("matern32"), theta)
    left = A.to(DEVICE)
    close(operator.quadratic_gradient(left, left, weights), truth("matern32", x, theta, A, A, weights), 1e-10)
    assert operator.entries_evaluated == 3 * 70**2


@pytest.mark.parametrize("d", [17, 70, pytest.param(150, marks=SLOW)])
def test_distances_of_many_inputs_are_products(d: int) -> None:
    """Products and gradients keep float64's digits, also of coincident points, and so do far new points."""
    x, A, _, weights = data(70, d, 5)
    theta = theta_of(d)
    operator = FusedOperator(x.to(DEVICE), get_kernel("matern52"), theta)
    assert operator._points.doubles is not None
    left, H = A.to(DEVICE), h_matrix("matern52", x, theta.vector)
    close(operator.matmul(left), H @ A, 1e-12)
    index = torch.tensor([50, 0, 69, 11])
    close(operator.columns_matmul(index.to(DEVICE), left[:4]), H[:, index] @ A[:4], 1e-12)
    close(operator.quadratic_gradient(left, left, weights), truth("matern52", x, theta, A, A, weights), 1e-10)
    for new in (x[:3] + 0.1, torch.cat([x[:3], x[:2] + 1e9])):  # by products, and by differences
        cross = kernel_matrix("matern52", new, x, theta.signal_scale, theta.length_scales)
        close(operator.cross_matmul(new.to(DEVICE), left), cross @ A, 1e-12)


def test_distances_are_differences_where_products_would_round() -> None:
    """Not smooth at zero, or a signal that makes the rounding of distances as large as the noise."""
    x = toy(50, 20)[0].to(DEVICE)
    loud = torch.cat([torch.tensor([1e-6, 1e3]), torch.full((20,), 0.1)])
    for kernel, theta in (("matern12", theta_of(20)), ("matern32", Hyperparameters.from_vector(loud.double()))):
        assert FusedOperator(x, get_kernel(kernel), theta)._points.doubles is None


def test_a_signal_of_thousands_of_times_the_noise_keeps_its_digits() -> None:
    """aᵀ K a is 10⁻⁸ of Σ |a_i| |K_ij| |a_j| here: float32 would have none of its digits."""
    x = toy(120, 3)[0]
    theta = Hyperparameters.from_vector(torch.tensor([0.05, 300.0, 90.0, 120.0, 150.0], dtype=torch.float64))
    A = columns(120, 4).double()
    A -= A.mean(0)  # K is nearly constant
    weights = torch.ones(4, dtype=torch.float64)
    left = A.to(DEVICE)
    for kernel in ("matern32", "matern52"):
        found = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta).quadratic_gradient(left, left, weights)
        close(found, truth(kernel, x, theta, A, A, weights), 1e-7)


@pytest.mark.parametrize("apart", [1e-7, 1e-12])
@pytest.mark.parametrize("kernel", KERNELS)
def test_near_coincident_points(kernel: str, apart: float) -> None:
    """Pairs of points that differ by jitter, and their targets by noise; Matérn-1/2 weighs a pair by 1/r."""
    x, y = toy(80, 2)
    x[40:], y[40:] = x[:40] + apart * toy(40, 2, seed=1)[0], y[:40] + 0.01 * toy(40, 2, seed=1)[1]
    theta = Hyperparameters.from_vector(torch.tensor([0.01, 1.2, 0.1, 0.2], dtype=torch.float64))
    v, weights = torch.linalg.solve(h_matrix(kernel, x, theta.vector), y)[:, None], torch.ones(1, dtype=torch.float64)
    left = v.to(DEVICE)
    found = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta).quadratic_gradient(left, left, weights)
    expected = truth(kernel, x, theta, v, v, weights)
    assert float(((found - expected) / expected).abs().max()) < 1e-5, (found, expected)  # each by itself


def test_rows_with_noise_of_their_own() -> None:
    x, A, _, weights = data(90, 3, 5)
    theta, left = theta_of(3), A.to(DEVICE)
    shares = torch.linspace(0.5, 2.0, 90, dtype=torch.float64)
    rows = RowNoise(shares.to(DEVICE), torch.zeros(90, dtype=torch.float64, device=DEVICE))
    found = FusedOperator(x.to(DEVICE), get_kernel("rbf"), theta, rows=rows).quadratic_gradient(left, left, weights)
    expected = truth("rbf", x, theta, A, A, weights)
    expected[0] = 2 * theta.noise_scale * ((A * A) @ weights * shares).sum()
    close(found, expected, 1e-10)
