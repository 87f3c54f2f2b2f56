"""The search for an angle: slopes that are those of the likelihood, planted angles, the same bits for a seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import gp_truth
from warmgp.gradient import Exact
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.solvers import Cholesky
from warmgp.training import rotation
from warmgp.training.rotation import AngleSearch, find_angle
from warmgp.training.state import TrainingOptions

OPTIONS = TrainingOptions(Cholesky(), Exact(), noise_floor=1e-4)
SMALL = AngleSearch(groups=18, size=48, sparsest=200)


def planted(
    n: int, angle: float, lengths: list[float], noise: float, name: str = "matern32", seed: int = 0
) -> tuple[Tensor, Tensor]:
    """A draw of a process whose first length scale is along that angle, at points of a square."""
    generator = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(n, 2, generator=generator, dtype=torch.float64) - 2
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    u = x @ torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    H = gp_truth.h_matrix(name, u, torch.tensor([noise, 1.0, *lengths], dtype=torch.float64))
    y = torch.linalg.cholesky(H) @ torch.randn(n, generator=generator, dtype=torch.float64)
    return x, (y - y.mean()) / y.std()


def off(found: float, angle: float) -> float:
    """Degrees between two directions of axes, which repeat at right angles."""
    return abs((found - angle + 45.0) % 90.0 - 45.0)


@pytest.mark.parametrize("name", ["matern12", "matern32", "rbf"])
def test_slopes_are_those_of_the_dense_likelihood(name: str) -> None:
    """By autograd through a dense float64 process on the turned points, for ν and the angle."""
    x, y = planted(24, 20.0, [1.0, 0.4], 0.3, name)
    groups = torch.arange(24).reshape(2, 12)
    theta = Hyperparameters.from_vector(torch.tensor([0.3, 0.9, 0.8, 0.5]))
    total, slope, cross = rotation._likelihood(rotation._turned(x[groups], 0.6), y[groups], get_kernel(name), theta)
    squares = theta.length_scales.square().reciprocal()
    by_angle = 2.0 * cross * (squares[0] - squares[1])
    nu, phi = theta.unconstrained.requires_grad_(), torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    vector = torch.nn.functional.softplus(nu)
    u = torch.stack([phi.cos() * x[:, 0] + phi.sin() * x[:, 1], phi.cos() * x[:, 1] - phi.sin() * x[:, 0]], 1)
    truth = sum(gp_truth.log_marginal_likelihood(name, u[some], y[some], vector) for some in groups)
    by_nu, by_phi = torch.autograd.grad(truth, [nu, phi])  # type: ignore[arg-type]
    assert total == pytest.approx(truth.item(), rel=1e-6)
    np.testing.assert_allclose(slope, by_nu, rtol=1e-5, atol=1e-5)
    assert float(by_angle) == pytest.approx(float(by_phi), rel=1e-5)


@pytest.mark.parametrize(
    ("angle", "lengths", "noise", "name"),
    [(30.0, [1.5, 0.3], 0.2, "matern32"), (75.0, [0.3, 1.5], 0.5, "matern32"), (0.0, [0.2, 1.0], 0.1, "matern12")],
)
def test_a_planted_angle_is_found(angle: float, lengths: list[float], noise: float, name: str) -> None:
    """Within six degrees, from 600 points of which 18 groups of 48 are looked at."""
    x, y = planted(600, angle, lengths, noise, name)
    found = find_angle(x, y, get_kernel(name), OPTIONS, generator=torch.Generator().manual_seed(0), how=SMALL)
    assert 0 <= found < 90 and off(found, angle) < 6.0


def test_the_same_seed_finds_the_same_angle_and_few_points_are_enough() -> None:
    x, y = planted(30, 40.0, [2.0, 0.5], 0.1)
    how = AngleSearch(groups=3, size=20)
    found = [
        find_angle(x, y, get_kernel("matern32"), OPTIONS, generator=torch.Generator().manual_seed(seed), how=how)
        for seed in (0, 0, 1)
    ]
    assert found[0] == found[1] != found[2]


def test_groups_are_of_several_densities() -> None:
    """Over a plane of 4,096 points: nearest ones of all of them, and of 200, which reach further."""
    x = torch.cartesian_prod(*[torch.arange(64, dtype=torch.float64)] * 2)
    points = x[rotation._groups(x, SMALL, torch.Generator().manual_seed(0))]
    assert points.shape == (SMALL.groups, SMALL.size, 2)
    spans = (points.amax(1) - points.amin(1)).mean(1).reshape(3, -1).mean(1)
    assert spans[0] < 0.4 * spans[1] < 0.7 * spans[2]


def test_numbers_that_fail_leave_the_inputs_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    """Coincident points without noise have no factor."""
    x = torch.zeros(40, 2, dtype=torch.float64)
    y = torch.linspace(-1, 1, 40, dtype=torch.float64)
    theta = Hyperparameters.from_vector(torch.tensor([1e-12, 1.0, 1.0, 1.0]))
    fixed = TrainingOptions(Cholesky(), Exact())
    with pytest.MonkeyPatch.context() as patch, caplog.at_level("INFO"):
        patch.setattr(rotation.Hyperparameters, "ones", lambda count: theta)
        found = find_angle(x, y, get_kernel("rbf"), fixed, generator=torch.Generator().manual_seed(0), how=SMALL)
    assert found == 0.0 and "inputs are not turned" in caplog.text
