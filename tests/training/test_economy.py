"""What spares outer steps and solves beyond the paper: settling, relative steps, the last solve's rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gp_truth import toy
from training_problems import KERNEL, operator, options, seeded
from warmgp import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    DenseOperator,
    Exact,
    Hyperparameters,
    Pathwise,
    StoppingRule,
    TrainingOptions,
    train,
)
from warmgp.kernels import get_kernel
from warmgp.operators import KernelOperator
from warmgp.solvers import Solver, SolveResult
from warmgp.training import Problem, TrainingResult, train_only
from warmgp.training.last_solve import _better
from warmgp.training.last_solve import last_solve as last_solve_of
from warmgp.training.settling import settled


# -- the outer loop's economy --------------------------------------------------------------------------------------
def test_training_settles_and_stays_settled() -> None:
    H, y = operator(80)
    exact = options(Cholesky(), Exact(), n_steps=500, settle=True)
    result = train(H, y, exact, generator=seeded())
    steps = len(result.history)
    assert 20 < steps < 500 and settled(result.history) and not settled(result.history[:-1])
    longer = train(H, y, replace(exact, settle=False), generator=seeded())
    gained = longer.history[-1].log_marginal_likelihood - result.history[-1].log_marginal_likelihood
    assert gained / 80 < 0.02  # nats per point
    again = train(H, y, exact, generator=seeded(), state=result.state)
    assert len(again.history) == steps and again.theta.equals(result.theta)


def test_gains_are_what_the_likelihood_gains() -> None:
    """For small steps the promise of a step, gradient times step, is what the likelihood does."""
    H, y = operator(60)
    result = train(H, y, options(Cholesky(), Exact(), n_steps=12, learning_rate=1e-3), generator=seeded())
    values = [record.log_marginal_likelihood for record in result.history]
    for before, after, record in zip(values, values[1:], result.history, strict=False):
        assert (after - before) / 60 == pytest.approx(record.gain, rel=0.05)


def test_settled_needs_a_window() -> None:
    H, y = operator(40)
    record = train(H, y, options(n_steps=1), generator=seeded()).history[0]
    flat = [replace(record, gain=0.0)] * 10
    assert settled(flat) and not settled(flat[1:]) and not settled([*flat[1:], replace(record, gain=1.0)])
    assert settled([replace(record, gain=1.0), *flat])


def test_relative_steps_move_what_is_large_by_a_share_of_itself() -> None:
    x, y = toy(60, 2)
    start = Hyperparameters(0.5, 1.5, [20.0, 0.8])
    plain, relative = (
        train_only(
            Problem(DenseOperator(x, KERNEL, start), y),
            options(Cholesky(), Exact(), n_steps=1, relative_steps=flag), generator=seeded(),
        )
        for flag in (False, True)
    )  # fmt: skip
    moved = [(state.nu - start.unconstrained).tolist() for state in (plain, relative)]
    assert moved[1] == pytest.approx([m * max(1.0, t) for m, t in zip(moved[0], start.vector.tolist(), strict=True)])


def test_relative_steps_get_irrelevant_inputs_out_of_the_way() -> None:
    generator = seeded()
    x = torch.randn(150, 4, dtype=torch.float64, generator=generator)
    y = torch.sin(x[:, 0]) + 0.1 * torch.randn(150, dtype=torch.float64, generator=generator)
    values = {}
    for flag in (False, True):
        H = DenseOperator(x, KERNEL, Hyperparameters.ones(4))
        choice = options(Cholesky(), Exact(), n_steps=60, relative_steps=flag)
        values[flag] = train_only(Problem(H, y), choice, generator=seeded()).history[-1]
    assert values[True].log_marginal_likelihood > values[False].log_marginal_likelihood + 5
    assert min(values[True].length_scales[1:]) > 2 * max(values[False].length_scales[1:])


def last_solve(
    solver: ConjugateGradients, noise: float = 1e-3, max_epochs: float | None = None
) -> tuple[TrainingResult, tuple[float, float]]:
    """The result of no steps at low noise, and the residuals of its last solve per point, over the noise: that of the
    mean, and the largest of the probes'."""
    x = torch.linspace(0, 10, 150, dtype=torch.float64)[:, None]
    y = torch.sin(3 * x[:, 0])
    operator = DenseOperator(x, get_kernel("matern32"), Hyperparameters(noise, 1.0, [1.0]))
    rule = StoppingRule(0.01, max_epochs)
    options = TrainingOptions(solver, Pathwise(8, 200), rule=rule, n_steps=0)
    result = train(operator, y, options, generator=torch.Generator().manual_seed(0))
    w = torch.Generator().manual_seed(0)
    targets = Pathwise(8, 200).targets(operator, y, Pathwise(8, 200).draw(operator, w))
    residual = targets - operator.matmul(result.posterior.solution)
    sizes = residual.square().mean(0).sqrt() / noise
    return result, (float(sizes[0]), float(sizes[1:].max()))


def test_the_last_solve_goes_on_below_the_noise_where_a_factor_makes_it_cheap() -> None:
    result, (mean, probes) = last_solve(ConjugateGradients(0, factor_after=2))
    assert mean <= 0.03 and probes <= 0.4 and result.final.converged  # 0.2 on average over the probes
    result, (mean, probes) = last_solve(ConjugateGradients(0, neighbours=5))
    assert mean <= 0.03 and probes <= 0.4 and result.final.converged
    result, (mean, probes) = last_solve(ConjugateGradients(20))  # as in the paper: the same rule as every solve
    assert mean > 0.1 and probes > 0.5 and result.final.converged


def test_a_last_solve_that_met_tol_has_converged() -> None:
    """Aiming lower is a hope: what counts is the tolerance that was asked for."""
    x, y = torch.zeros(40, 1, dtype=torch.float64), torch.ones(40, dtype=torch.float64)
    operator = DenseOperator(x, KERNEL, Hyperparameters(1e-3, 1.0, [1.0]))
    options = TrainingOptions(Short(0, factor_after=2), Pathwise(2, 20), n_steps=0)
    result = train(operator, y, options, generator=torch.Generator().manual_seed(0))
    assert result.final.converged and result.final.stop_reason == "stagnated"
    few, _ = last_solve(ConjugateGradients(0, factor_after=2), max_epochs=1)
    assert not few.final.converged and few.final.stop_reason == "budget"


class Short(ConjugateGradients):
    """Reaches 0.005, and no further."""

    def solve(self, operator: KernelOperator, targets: Tensor, *rest: object, **more: object) -> SolveResult:
        return SolveResult(torch.zeros_like(targets), 0.005, 0.005, True, 1, 1.0, 0.0, False, "stagnated", 0.0)


# -- the last solve's rule -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("solver", "refined"),
    [
        (ConjugateGradients(20), False),
        (ConjugateGradients(0, factor_after=5), True),
        (ConjugateGradients(20, neighbours=5), True),
        (AlternatingProjections(20), False),
        (AlternatingProjections(20, grow_after=5), True),
        (AlternatingProjections(20, grow_after=5, largest_block=40), False),
    ],
)
def test_the_last_solve_goes_below_the_noise_where_that_is_cheap(solver: Solver, refined: bool) -> None:
    theta, sizes = Hyperparameters(1e-3, 1.0, [1.0, 1.0]), torch.full((3,), 2.0, dtype=torch.float64)
    rule = options(solver).last_rule(theta, 60, sizes)
    assert rule.tol == pytest.approx(0.03 * 1e-3 / 2.0 if refined else 0.01)
    assert (rule.probes_tol or rule.tol) == pytest.approx(0.2 * 1e-3 / 2.0 if refined else 0.01)


class Told(ConjugateGradients):
    """Notes the rules that it is asked to solve by."""

    def solve(self, operator: KernelOperator, targets: Tensor, *rest: object, **more: object) -> SolveResult:
        self.rules.append(more["rule"])
        return super().solve(operator, targets, *rest, **more)


@pytest.mark.parametrize(
    ("dtype", "budget", "tols", "budgets"),
    [
        (torch.float64, None, (6e-5,), (None,)),
        (torch.float32, None, (0.01, 6e-5), (None, 50.0)),
        (torch.float64, 30.0, (0.01, 6e-5), (30.0, 29.0)),  # a budget is for both
        (torch.float32, 80.0, (0.01, 6e-5), (80.0, 50.0)),
    ],
)
def test_the_last_solve_goes_on_within_limits(
    dtype: torch.dtype, budget: float | None, tols: tuple[float, ...], budgets: tuple[float | None, ...]
) -> None:
    x = torch.linspace(0, 10, 60, dtype=dtype)[:, None]
    operator = DenseOperator(x, get_kernel("matern32"), Hyperparameters(2e-3, 1.0, [1.0]))
    targets = torch.stack([torch.sin(x[:, 0]), torch.cos(x[:, 0])], 1)
    targets /= targets.square().mean(0).sqrt()
    solver = Told(0, neighbours=59)  # exact: one iteration a solve
    object.__setattr__(solver, "rules", [])
    result = last_solve_of(operator, targets, None, options(solver, rule=StoppingRule(0.01, budget)), None)
    assert tuple(round(rule.tol, 6) for rule in solver.rules) == tols
    assert tuple(rule.max_epochs for rule in solver.rules) == budgets
    assert result.converged and result.residual_checked and result.iterations >= 1
    true = (targets - operator.matmul(result.solution)).norm(dim=0) / targets.norm(dim=0)
    assert true.tolist() == pytest.approx([result.residual_mean, result.residual_probes], rel=0.1, abs=1e-6)
    assert max(true) <= 0.01


class Stuck(ConjugateGradients):
    """Solves to 0.01, and gets no further than 0.004."""

    def solve(self, operator: KernelOperator, targets: Tensor, *rest: object, **more: object) -> SolveResult:
        if more["rule"].tol == 0.01:
            return SolveResult(targets, 0.005, 0.005, True, 3, 3.0, 0.0, True, "converged", 1.0)
        return SolveResult(2 * targets, 0.004, 0.004, True, 9, 9.0, 0.0, False, "stagnated", 1.0)


@pytest.mark.parametrize(("budget", "reason"), [(None, "stagnated"), (60.0, "converged")])
def test_what_is_said_of_a_last_solve_that_cannot_go_on(budget: float | None, reason: str) -> None:
    """Without a budget float64 is to take over; on one the tolerance was met, and that is that."""
    operator, targets = DenseOperator(torch.zeros(4, 1), KERNEL, Hyperparameters(1e-3, 1.0, [1.0])), torch.ones(4, 2)
    asked = options(Stuck(0, neighbours=2), rule=StoppingRule(0.01, budget))
    result = last_solve_of(operator, targets, None, asked, None)
    assert result.converged and result.stop_reason == reason and result.iterations == 12
    assert result.residual_mean == 0.004 and torch.equal(result.solution, 2 * targets)


def test_a_last_solve_that_got_worse_is_not_taken() -> None:
    operator, targets = DenseOperator(torch.zeros(4, 1), KERNEL, Hyperparameters(1.0, 1.0, [1.0])), torch.ones(4, 2)
    good = SolveResult(torch.zeros(4, 2), 0.005, 0.005, True, 3, 3.0, 1.0, True, "converged", 1.0)
    bad = SolveResult(targets * 9, 1e-5, 1e-5, False, 5, 5.0, 1.0, False, "budget", 1.0)
    found = _better(operator, targets, good, bad, "stagnated")
    assert torch.equal(found.solution, good.solution) and found.residual_mean == 0.005
    assert found.stop_reason == "stagnated" and not found.converged
    assert (found.iterations, found.iteration_epochs, found.overhead_epochs, found.seconds) == (8, 8.0, 3.0, 2.0)
