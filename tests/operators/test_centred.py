"""Distances by products from the centre of a block: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fused_tools import BOUND, DEVICE, close, columns, theta_of
from gp_truth import h_matrix, kernel_matrix, toy
from warmgp import Hyperparameters, RecombinedProjections, StoppingRule
from warmgp.kernels import get_kernel
from warmgp.operators.triton import groups
from warmgp.operators.triton.fused import FusedOperator
from warmgp.operators.triton.points import LARGEST_SQUARE, Points
from warmgp.solvers.sums import rounded


def far(n: int = 140, d: int = 5, away: float = 60.0, **options: bool) -> tuple[FusedOperator, Tensor, Tensor]:
    """An operator on two groups of points that are far apart, H in float64, and the numbers of one group."""
    x = toy(n, d)[0]
    x[: n // 2] += away
    x = x.float()
    theta = Hyperparameters.from_vector(torch.tensor([0.3, 1.2] + d * [1.5]))
    operator = FusedOperator(x.to(DEVICE), get_kernel("matern32"), theta, exact_distances=False, **options)
    return operator, h_matrix("matern32", x.double(), theta.vector), torch.arange(3, n // 2, 2)


@pytest.mark.parametrize("d", [4, 12, 40])
def test_halves_are_those_that_torch_makes(d: int) -> None:
    """From no centre they are those of all points, bit for bit."""
    z = 3.0 * toy(200, d)[0].float().to(DEVICE)
    points = Points.prepare(z, 0)
    nowhere = torch.zeros(d, device=DEVICE)
    rows = points.around(nowhere)
    assert torch.equal(rows.row_high[:200], points.row_high[:200])
    assert torch.equal(rows.row_low[:200], points.row_low[:200])
    block, centre = points.block(torch.arange(200, device=DEVICE))
    close(centre, z.double().mean(0).cpu(), 1e-5)
    moved = Points.prepare(z - centre, 0)
    assert torch.equal(block.column_high[:200], moved.column_high[:200])
    assert torch.equal(block.column_low[:200], moved.column_low[:200])


def test_a_block_far_from_the_centre_keeps_the_digits_of_its_distances() -> None:
    operator, H, index = far()
    W = columns(len(index), 5)
    expected = H[:, index] @ W.double()
    close(operator.columns_matmul(index.to(DEVICE), W.to(DEVICE)), expected, BOUND)
    first = torch.tensor([3], device=DEVICE)  # rows that follow each other have no centre of their own
    rough = operator._product(W.to(DEVICE), first=first).cpu().double() - (H[:, 3 : 3 + len(W)] @ W.double())
    assert float(rough.norm()) > 20 * BOUND * float(expected.norm())  # the noise, too, is no part of it: it is small


@pytest.mark.parametrize("differenced", [1, 2])
def test_some_inputs_may_be_differenced(differenced: int) -> None:
    x = toy(150, 8)[0].float()
    x[:, :differenced] *= 300.0
    theta = theta_of(8, 0.05)
    operator = FusedOperator(x.to(DEVICE), get_kernel("matern52"), theta)
    assert operator._differenced == differenced
    index = torch.tensor([70, 3, 149, 9])
    W, H = columns(4, 17), h_matrix("matern52", x.double(), theta.vector)
    close(operator.columns_matmul(index.to(DEVICE), W.to(DEVICE)), H[:, index] @ W.double())


def test_sums_by_groups_of_near_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals and predictions, of outlying new points, too, whose distances are differences."""
    monkeypatch.setattr(groups, "LEAST", 30)
    monkeypatch.setattr(groups, "ALLOWED", 0.005)
    operator, H, _ = far(falling=False)
    assert len(operator._near) == 4
    assert torch.equal(torch.cat(operator._near).sort().values.cpu(), torch.arange(140))
    v, b = columns(140, 5), columns(140, 5, seed=1)
    left = operator.residual(b.to(DEVICE), v.to(DEVICE))
    expected = b.double() - H @ v.double()
    close(left, expected, 5e-5)  # inputs 60 from the centre are rounded themselves
    rough = (b.to(DEVICE) - operator.matmul(v.to(DEVICE))).cpu().double() - expected
    assert float((left.cpu().double() - expected).norm()) < 0.5 * float(rough.norm())
    theta = operator.theta
    for away in (60.0, 0.0, 1e5):
        x_new = away + toy(9, 5, seed=3)[0].float()
        K = kernel_matrix(
            "matern32", x_new.double(), operator.x.cpu().double(), theta.signal_scale, theta.length_scales
        )
        found = operator.cross_matmul(x_new.to(DEVICE), v.to(DEVICE)).cpu().double()
        assert float((found - K @ v.double()).abs().max()) < 5e-5 * 1.44 * 12


def test_groups_leave_the_sum_over_all_rows_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of 1 − k by groups: s² Σv of a group is many times that of all, and must not be rounded."""
    monkeypatch.setattr(groups, "LEAST", 30)
    monkeypatch.setattr(groups, "ALLOWED", 0.0)
    x, theta = toy(150, 4)[0].float(), Hyperparameters(0.05, 100.0, 4 * [80.0])
    H = h_matrix("matern32", x.double(), theta.vector)
    b = torch.linalg.cholesky(H) @ columns(150, 5).double()
    v = rounded(torch.linalg.solve(H, b), torch.float32)
    operator = FusedOperator(x.to(DEVICE), get_kernel("matern32"), theta, exact_distances=False)
    assert len(operator._near) == 5 and operator._entries.falling
    expected = b.float().double() - H @ v.double()
    left = operator.residual(b.float().to(DEVICE), v.to(DEVICE)).cpu().double()
    assert float((left - expected).abs().max()) < 0.1 * 0.05  # a tenth of the noise
    apart = b.float().to(DEVICE)
    for index in operator._near:
        operator.subtract_columns_at(apart, index, v.to(DEVICE)[index])  # with s² Σv of each group
    assert float((apart.cpu().double() - expected).abs().max()) > 0.3 * 0.05
    K = kernel_matrix("matern32", x[:9].double(), x.double(), theta.signal_scale, theta.length_scales)
    found = operator.cross_matmul(x[:9].to(DEVICE), v.to(DEVICE)).cpu().double()
    assert float((found - K @ v.double()).abs().max()) < 0.1 * 0.05


def test_targets_may_lie_in_memory_column_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LEAST", 30)
    monkeypatch.setattr(groups, "ALLOWED", 0.005)
    operator, H, _ = far(falling=False)
    b, v = columns(5, 140).T, columns(140, 5, seed=1)
    close(operator.residual(b.to(DEVICE), v.to(DEVICE)), b.double() - H @ v.double(), 5e-5)
    found = RecombinedProjections(70).solve(operator, b.to(DEVICE), rule=StoppingRule(1e-3, 40))
    close(found.solution, torch.linalg.solve(H, b.double()), 5e-3)


def test_groups_are_for_large_data_with_little_noise() -> None:
    z = toy(20_000, 3)[0]
    assert len(groups.near_groups(z, z, 1e4)) == 4
    assert groups.near_groups(z, z, 1.0) == ()
    assert groups.near_groups(z[:5000], z[:5000], 1e4) == ()
    assert groups.near_groups(z, z[:, :0], 1e4) == ()  # nothing is multiplied
    assert len(groups.near_groups(z.repeat(20, 1), z.repeat(20, 1), 1e4)) == groups.MOST


def test_the_centre_of_a_block_leaves_points_within_float16() -> None:
    """Any point may be twice as far from a block as from the centre of all."""
    edge = LARGEST_SQUARE**0.5
    z = torch.zeros(60, 3)
    z[:30, 0], z[30:, 0] = edge, -edge
    points = Points.prepare(z.to(DEVICE), 0)
    block, centre = points.block(torch.arange(30, device=DEVICE))
    assert bool(torch.isfinite(block.column_high).all())
    assert bool(torch.isfinite(points.around(centre).row_high).all())
