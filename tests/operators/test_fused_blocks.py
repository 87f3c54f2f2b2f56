"""Dense blocks by Triton, and the inverse factors of many of them, against dense float64: see ``test_fused.py``."""

from __future__ import annotations

import pytest
import torch

from fused_tools import DEVICE, SLOW, close, theta_of
from gp_truth import h_matrix, kernel_matrix, toy
from solver_problems import by_inverses
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import has_triton
from warmgp.operators.row_noise import RowNoise
from warmgp.solvers import RecombinedProjections, StoppingRule
from warmgp.solvers.triangular import inverse_factors
from warmgp.training.refinement import refined

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux; its operators need it", allow_module_level=True)

from warmgp.operators.triton import entries
from warmgp.operators.triton.fused import FusedOperator


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("d", [1, 5, 17, pytest.param(70, marks=SLOW)])  # up to 16 inputs are differenced
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_are_those_of_h(kernel: str, dtype: torch.dtype, d: int) -> None:
    """Also far from zero, of coincident points, and of sizes that are no whole tiles: to the digits of float64."""
    x = toy(120, d)[0].to(dtype) + 100.0
    x[7] = x[8]
    theta = theta_of(d, noise=0.01)
    operator = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta)
    H = h_matrix(kernel, x.double() - x.double().mean(0), theta.vector)
    index = torch.stack([torch.arange(67), torch.arange(119, 52, -1), torch.randperm(120, generator=seeded())[:67]])
    before = operator.entries_evaluated
    found = operator.blocks(index.to(DEVICE)).cpu()
    assert found.dtype == torch.float64 and operator.entries_evaluated - before == 3 * 67**2
    truth = torch.stack([H[rows][:, rows] for rows in index])
    assert float((found - truth).abs().max()) < 1e-12


def test_rows_have_their_own_noise() -> None:
    x = toy(40, 2)[0]
    rows = RowNoise(torch.linspace(1.0, 3.0, 40).double().to(DEVICE), torch.linspace(0.0, 0.2, 40).double().to(DEVICE))
    theta = theta_of(2)
    operator = FusedOperator(x.to(DEVICE), get_kernel("rbf"), theta, rows=rows)
    index = torch.tensor([[3, 1, 30], [5, 39, 0]])
    H = h_matrix("rbf", x, theta.vector)
    H.diagonal().add_(rows.variances(theta).cpu() - float(theta.noise_scale) ** 2)
    close(operator.blocks(index.to(DEVICE)), torch.stack([H[one][:, one] for one in index]), 1e-12)


@pytest.mark.parametrize("b", [1, 63, 64, 65, 160, pytest.param(513, marks=SLOW)])
def test_factors_of_inverses(b: int) -> None:
    A = torch.randn(3, b, b, dtype=torch.float64, generator=seeded()).to(DEVICE)
    A = A @ A.mT + torch.eye(b, dtype=torch.float64, device=DEVICE)
    X, failed = inverse_factors(A, by_triton=True)
    assert not failed and torch.allclose(X, inverse_factors(A)[0], rtol=1e-9, atol=1e-11)
    assert torch.equal(X, X.tril())
    assert torch.equal(inverse_factors(A.mT.contiguous().mT, by_triton=True)[0], X)  # stored by columns


@pytest.mark.parametrize("kernel", KERNELS)
def test_groups_of_points_that_nearly_coincide_far_from_zero(kernel: str) -> None:
    """Distances are differences, however many inputs there are."""
    x = 1000.0 + 1e-6 * torch.randn(6, 20, dtype=torch.float64, generator=seeded())
    theta = theta_of(20)
    found = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta).group_kernels(torch.arange(6)[None].to(DEVICE))
    truth = kernel_matrix(kernel, x - x[5], x - x[5], theta.signal_scale, theta.length_scales)
    assert float((found[0].cpu() - truth).abs().max()) < 1e-13


def test_more_groups_than_addresses_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    x, theta = toy(40, 3)[0], theta_of(3)
    operator, index = FusedOperator(x.to(DEVICE), get_kernel("rbf"), theta), torch.randperm(40).view(5, 8).to(DEVICE)
    whole = operator.blocks(index)
    monkeypatch.setattr(entries, "ADDRESSES", 2 * 8 * 128)
    assert torch.equal(operator.blocks(index), whole)


@pytest.mark.parametrize("value", [-1.0, 0.0, torch.nan])
@pytest.mark.parametrize(("b", "row"), [(5, 0), (5, 4), (70, 3), (70, 69)])
def test_a_matrix_without_a_factor_is_told(b: int, row: int, value: float) -> None:
    """Whichever of its rows shows it, in one of several."""
    A = torch.eye(b, dtype=torch.float64, device=DEVICE).repeat(2, 1, 1)
    A[1, row, row] = value
    assert inverse_factors(A, by_triton=True)[1]


def test_a_solve_by_them_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    by_inverses(monkeypatch)
    x = toy(150, 3)[0].float()
    theta = Hyperparameters(0.1, 1.0, [0.8, 1.0, 2.0])
    operator = FusedOperator(x.to(DEVICE), get_kernel("matern32"), theta)
    b = torch.randn(150, 3, generator=seeded())
    found = RecombinedProjections(40, together=2).solve(
        operator, b.to(DEVICE), rule=StoppingRule(1e-4), generator=seeded()
    )
    assert found.converged
    close(found.solution, torch.linalg.solve(h_matrix("matern32", x.double(), theta.vector), b.double()), 1e-3)


def test_targets_alone_are_corrected_to_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """By residuals and sweeps of one column, once the other two have what they need."""
    by_inverses(monkeypatch)
    x = toy(90, 3)[0]
    theta, kernel = Hyperparameters(0.05, 1.0, [0.8, 1.0, 2.0]), get_kernel("matern32")
    double, single = (FusedOperator(x.to(dtype).to(DEVICE), kernel, theta) for dtype in (torch.float64, torch.float32))
    b = torch.randn(90, 3, dtype=torch.float64, generator=seeded()).to(DEVICE)
    rule, solver = StoppingRule(1e-7, probes_tol=0.1), RecombinedProjections(45, together=2)
    found = refined(double, single, b, torch.zeros_like(b), rule, solver, generator=seeded())
    assert found.converged and found.residual_probes > 1e-6
    truth = torch.linalg.solve(h_matrix("matern32", x, theta.vector), b.cpu())
    close(found.solution[:, :1], truth[:, :1], 1e-5)
