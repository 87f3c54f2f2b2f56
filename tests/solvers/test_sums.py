"""Sums of solutions at a signal of many noise scales: kept by every solver that says so, against dense float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gp_truth import h_matrix, toy
from warmgp import (
    Cholesky,
    ConjugateGradients,
    Hyperparameters,
    Matern32,
    Pathwise,
    RecombinedProjections,
    Solver,
    StoppingRule,
)
from warmgp.kernels import Kernel
from warmgp.operators.chunked import ChunkedOperator
from warmgp.operators.indices import Index
from warmgp.solvers.sums import add_up, rounded
from warmgp.training import TrainingOptions
from warmgp.training.problem import Problem
from warmgp.training.step import initial_state
from warmgp.training.trend import folded
from warmgp.trend import Basis, TrendColumns, terms_of


class ByFalls(ChunkedOperator):
    """Multiplies by 1 − k, kept in float32, as products do on a GPU where points are near each other."""

    def __init__(self, x: Tensor, kernel: Kernel, theta: Hyperparameters, **options: Any) -> None:
        super().__init__(x, kernel, theta, **options)
        self.keeps_sums = True
        z = self._z.double()
        self.falls = (1.0 - kernel.profile(torch.cdist(z, z))).float()

    @property
    def sums_count(self) -> bool:
        return self.keeps_sums

    def _product(self, rows: Index, columns: Index, V: Tensor) -> Tensor:
        falls = self.falls[rows][:, columns].double() @ V.double()
        return (self.signal_variance * (V.sum(0, dtype=torch.float64) - falls)).to(V.dtype)

    def matmul(self, V: Tensor) -> Tensor:
        return self._product(slice(None), slice(None), V) + self.noise_variance * V

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        return b - self.matmul(v)

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        out = self._product(slice(None), index, W)
        out[index] += self.noise_variance * W
        return out


def systems(n: int = 600) -> tuple[ByFalls, Tensor, Tensor]:
    """An operator whose signal is 2,000 times its noise, H in float64, and targets in float32: data, and draws."""
    x, y = toy(n, 3, noise=0.05)
    x = x.float()
    theta = Hyperparameters(0.05, 100.0, [80.0] * 3)
    H = h_matrix("matern32", x.double(), theta.vector)
    draws = torch.linalg.cholesky(H) @ torch.randn(
        n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    return ByFalls(x, Matern32(), theta), H, torch.cat([y[:, None], draws], 1).float()


@pytest.mark.parametrize("solver", [RecombinedProjections(150), ConjugateGradients(factor_after=20), Cholesky()])
def test_solutions_are_right_where_the_signal_is_thousands_of_noise_scales(solver: Solver) -> None:
    operator, H, b = systems()

    def left(start: Tensor | None = None) -> tuple[bool, float]:
        found = solver.solve(operator, b, start, rule=StoppingRule(1e-3, 60, 1e-5))
        worst = (b.double() - H @ found.solution.double()).square().mean(0).sqrt().max()
        return found.converged, float(worst) / 0.05

    converged, off = left()
    assert converged
    assert off < 0.05  # noise scales
    start = rounded(torch.linalg.solve(H, b.double()), torch.float32)
    assert left(start)[1] < 0.05  # what a solve starts from keeps its sums, too
    operator.keeps_sums = False
    assert left()[1] > 0.2


@pytest.mark.parametrize("counts", [True, False])
def test_a_trend_leaves_the_sums_as_they_are(counts: bool) -> None:
    """What a trend explains is taken off the solution, too: 0.5 and 2 x of the targets."""
    operator, H, _ = systems()
    operator.keeps_sums = counts
    x = operator.x.double()
    y = toy(600, 3, noise=0.05)[1] + 0.5 + 2 * x[:, 0]
    basis = Basis.fit(terms_of("linear", 3, None), x)
    columns = TrendColumns(basis, basis.at(x).float(), torch.zeros(4, dtype=torch.float64))
    problem = Problem(operator, y.float(), trend=columns)
    given = TrainingOptions(RecombinedProjections(150), Pathwise(4, 200), rule=StoppingRule(1e-4, 60))
    state = initial_state(operator, given)
    targets = torch.cat([y[:, None], torch.ones(600, 1)], 1).float()
    solver, rule = given.solver, StoppingRule(1e-4, 60, 1e-5)
    result = solver.solve(operator, targets, rule=rule)
    less, result, found = folded(problem, given, solver, targets, result, None, state.draw, None, last=True)
    assert found is not None
    off = (less[:, 0].double() - H @ result.solution[:, 0].double()).square().mean().sqrt() / 0.05
    assert float(off) < 0.05 if counts else float(off) > 0.2


def test_rounding_keeps_the_sum() -> None:
    exact = torch.randn(5000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    near = rounded(exact, torch.float32)
    assert float((near.double() - exact).abs().max()) < 1e-5  # the smallest entry takes what 5,000 lost
    assert float((near.double().sum(0) - exact.sum(0)).abs().max()) < 1e-9
    assert float((exact.float().double().sum(0) - exact.sum(0)).abs().max()) > 1e-7
    assert torch.equal(rounded(exact[:1], torch.float64), exact[:1])
    assert rounded(exact[:0], torch.float32).shape == (0, 3)  # of a process without rows


def test_adding_up_with_sums_and_without() -> None:
    operator, _, _ = systems(40)
    g = torch.Generator().manual_seed(1)
    a, b = (torch.randn(40, 5, generator=g) for _ in range(2))
    weight = torch.randn(5, generator=g)
    expected = 0.5 * a.double() + weight.double() * b.double()
    for counts in (True, False):
        operator.keeps_sums = counts
        out = a.clone()
        assert add_up(operator, out, 0.5, (weight, b)) is out
        torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)
        error = float((out.double().sum(0) - expected.sum(0)).abs().max())
        assert (error < 1e-9) == counts
    assert torch.equal(add_up(operator, a.clone(), 1.0, (-1.0, b)), a - b)
