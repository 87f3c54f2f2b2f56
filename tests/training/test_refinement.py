"""Corrections in float32 make solutions that are exact to float64, and say where they cannot."""

from __future__ import annotations

import pytest
import torch

from warmgp import (
    ConjugateGradients,
    DenseOperator,
    Hyperparameters,
    RecombinedProjections,
    Solver,
    SolveResult,
    StoppingRule,
)
from warmgp.gradient import Pathwise
from warmgp.kernels import get_kernel
from warmgp.training import last_solve, refinement
from warmgp.training.accuracy import WORST
from warmgp.training.problem import Problem
from warmgp.training.refinement import ROUNDS, refined
from warmgp.training.state import TrainingOptions


def pair(noise: float, n: int = 150) -> tuple[DenseOperator, DenseOperator, torch.Tensor]:
    """H in both precisions, and targets."""
    x = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theta = Hyperparameters(noise, 1.0, [1.0, 1.0])
    double, single = (DenseOperator(part, get_kernel("matern32"), theta) for part in (x, x.float()))
    return double, single, torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("at_once", [10**6, 30])
@pytest.mark.parametrize("solver", [ConjugateGradients(0, factor_after=2), RecombinedProjections(50)])
def test_a_residual_that_float32_cannot_reach(solver: Solver, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rows and columns are taken a few at a time."""
    for name, value in (("AT_ONCE", at_once), ("ROWS_AT_ONCE", at_once), ("FEWEST_COLUMNS", 1)):
        monkeypatch.setattr(refinement, name, value)
    double, single, b = pair(0.02)
    rule = StoppingRule(1e-9)
    start = torch.zeros_like(b)
    result = refined(double, single, b, start, rule, solver)
    assert result.solution is start  # which it is written over
    truth = torch.linalg.solve(double.H, b)
    left = ((b - double.matmul(result.solution)).norm(dim=0) / b.norm(dim=0)).tolist()
    assert result.converged and result.residual_checked and max(left) <= 2e-9
    assert torch.allclose(result.solution, truth, rtol=1e-4, atol=1e-5 * float(truth.abs().max()))
    alone = solver.solve(single, b.float(), rule=StoppingRule(1e-8, 200.0))
    assert not alone.converged  # what float32 is not enough for
    assert (result.residual_mean, result.residual_probes) == pytest.approx((left[0], sum(left[1:]) / 2), rel=0.2)


def test_the_start_counts_and_is_never_made_worse() -> None:
    double, single, b = pair(0.05)
    truth = torch.linalg.solve(double.H, b)
    done = refined(double, single, b, truth.clone(), StoppingRule(1e-6), ConjugateGradients(20))
    assert done.converged and done.iterations == 0 and done.epochs == 1.0

    class Wrong(ConjugateGradients):
        def solve(self, *args: object, **more: object) -> object:
            found = super().solve(*args, **more)
            object.__setattr__(found, "solution", -5 * found.solution)
            return found

    start = 0.9 * truth
    found = refined(double, single, b, start.clone(), StoppingRule(1e-6), Wrong(20))
    assert not found.converged and found.stop_reason == "stagnated"
    assert torch.allclose(found.solution, start) and found.residual_mean == pytest.approx(0.1, rel=1e-3)


def test_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    double, single, b = pair(0.05)
    found = refined(double, single, b, torch.zeros_like(b), StoppingRule(1e-300), ConjugateGradients(20))
    assert not found.converged and found.overhead_epochs <= 3 * (ROUNDS + 1)


def test_a_single_bad_row_is_mended_by_a_correction_of_the_mean_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After float64 took over: sweeps in float64 would take many times as long."""
    double, single, b = pair(0.1)
    solver, generator = RecombinedProjections(50), torch.Generator().manual_seed(0)
    final = solver.solve(double, b, rule=StoppingRule(1e-6), generator=generator)
    assert final.converged
    spoilt = torch.zeros_like(b)
    spoilt[7, 0] = 0.09  # of the noise 0.1: nine tenths of a standard deviation at one row
    moved = final.solution + torch.linalg.solve(double.H, spoilt)
    final = type(final)(**{**vars(final), "solution": moved})
    options = TrainingOptions(solver, Pathwise(2), rule=StoppingRule(0.01), refine=True, last_epochs=60.0)
    monkeypatch.setattr(last_solve, "last_solve", lambda *_, **__: pytest.fail("the solver went on in float64"))
    found = last_solve._evened(Problem(double, b[:, 0], single=single), options, b, final, generator)
    left = (b - double.matmul(found.solution)).abs()
    assert float(left[:, 0].max()) < 0.5 * WORST * 0.1, "what the row has left is below the promise"
    torch.testing.assert_close(found.solution[:, 1:], final.solution[:, 1:], rtol=0, atol=0)
    assert found.converged and found.stop_reason == final.stop_reason and found.iterations > final.iterations


def test_probes_that_suffice_are_left_alone() -> None:
    double, single, b = pair(0.02)
    truth = torch.linalg.solve(double.H, b)
    off = torch.tensor([0.3, 1e-3, 1e-3], dtype=torch.float64)
    start = truth + off * torch.linalg.solve(double.H, b.flip(0))
    before = start.clone()
    columns = []

    class Watched(RecombinedProjections):
        def solve(self, operator: object, targets: torch.Tensor, *args: object, **more: object) -> SolveResult:
            columns.append(targets.shape[1])
            return super().solve(operator, targets, *args, **more)

    rule = StoppingRule(1e-9, probes_tol=0.01)
    found = refined(double, single, b, start, rule, Watched(50), generator=torch.Generator().manual_seed(0))
    assert found.converged and set(columns) == {1} and len(columns) > 2
    assert torch.equal(found.solution[:, 1:], before[:, 1:])
    left = ((b - double.matmul(found.solution)).norm(dim=0) / b.norm(dim=0)).tolist()
    assert left[0] <= 2e-9
    assert (found.residual_mean, found.residual_probes) == pytest.approx((left[0], sum(left[1:]) / 2), rel=0.2)


def test_probes_are_corrected_until_they_suffice() -> None:
    double, single, b = pair(0.02)
    columns = []

    class Watched(ConjugateGradients):
        def solve(self, operator: object, targets: torch.Tensor, *args: object, **more: object) -> SolveResult:
            columns.append(targets.shape[1])
            return super().solve(operator, targets, *args, **more)

    rule = StoppingRule(1e-9, probes_tol=0.05)
    found = refined(double, single, b, torch.zeros_like(b), rule, Watched(0, factor_after=2))
    assert found.converged and columns[0] == 3 and columns[-1] == 1
    left = ((b - double.matmul(found.solution)).norm(dim=0) / b.norm(dim=0)).tolist()
    assert left[0] <= 2e-9 and sum(left[1:]) / 2 <= 0.05
