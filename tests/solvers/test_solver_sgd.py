"""Stochastic gradient descent: the steps of the formula, random batches, a learning rate that looks after itself."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from solver_problems import (
    Problem,
    hyperparameters,
    make_problem,
    one_thread,  # noqa: F401
    solve,
)
from warmgp.solvers import SolveResult, StochasticGradientDescent, StoppingRule
from warmgp.solvers.sgd import SGDState

GRID = (5, 10, 20, 30, 50, 60, 70, 80, 90, 100)  # the paper's learning rates


def replay(
    problem: Problem, start: Tensor, batches: list[Tensor], rate: float, b: int, momentum: float
) -> tuple[Tensor, Tensor]:
    """The paper's algorithm 3 on the normalised systems, dense: the solution, and the estimate of the residual."""
    scale = problem.targets.norm(dim=0)
    target, v = problem.targets / scale, start / scale
    m, r = torch.zeros_like(v), target - problem.h @ v
    for rows in batches:
        g = torch.zeros_like(v)
        g[rows] = problem.h[rows] @ v - target[rows]
        m = momentum * m - rate / b * g
        v = v + m
        r[rows] = -g[rows]
    return v * scale, r


@pytest.mark.parametrize("steps", (1, 2, 4, 7))
@pytest.mark.parametrize("momentum", (0.0, 0.9))
@pytest.mark.parametrize("warm", (False, True), ids=("cold", "warm"))
def test_the_steps_follow_the_formula(steps: int, momentum: float, warm: bool) -> None:
    problem = make_problem()
    start = 0.5 * problem.truth if warm else torch.zeros_like(problem.targets)
    generator = torch.Generator().manual_seed(11)
    # 157 rows are batches of 40, 40, 40 and 37; an epoch takes them from the last
    batches = [rows for _ in range(2) for rows in reversed(torch.randperm(157, generator=generator).split(40))][:steps]
    solver = StochasticGradientDescent(batch_size=40, learning_rate=2.0, momentum=momentum)
    epochs = sum(len(rows) for rows in batches) / 157
    operator = problem.operator("chunked")
    result = solve(solver, operator, problem.targets, start if warm else None, tol=1e-6, max_epochs=epochs, seed=11)
    assert result.iterations == steps
    assert result.iteration_epochs == pytest.approx(epochs)
    solution, _ = replay(problem, start, batches, 2.0, 40, momentum)
    torch.testing.assert_close(result.solution, solution, rtol=1e-10, atol=1e-12)
    assert (result.residual_mean, result.residual_probes) == pytest.approx(problem.residuals(solution), rel=1e-9)
    assert result.residual_checked  # the estimate lags behind, so a stop by budget looks again


def test_an_epoch_visits_every_row_once_in_a_new_order() -> None:
    problem = make_problem()
    operator = problem.operator()
    solver = StochasticGradientDescent(batch_size=40, learning_rate=1.0)
    solve(solver, operator, problem.targets, tol=1e-6, max_epochs=3)
    assert [len(rows) for rows in operator.partial].count(40) == 9
    epochs = [torch.cat(operator.partial[k : k + 4]) for k in (0, 4, 8)]
    for rows in epochs:
        assert rows.sort().values.tolist() == list(range(157))
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


def test_a_batch_larger_than_the_data_is_all_rows() -> None:
    problem = make_problem()
    operator = problem.operator()
    solver = StochasticGradientDescent(batch_size=1000, learning_rate=4.0)
    result = solve(solver, operator, problem.targets, tol=1e-6, max_epochs=3)
    assert result.iterations == result.iteration_epochs == 3
    expected, _ = replay(problem, torch.zeros_like(problem.targets), [torch.arange(157)] * 3, 4.0, 157, 0.9)
    torch.testing.assert_close(result.solution, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("max_epochs", (0.2, 1, 2.5, 10))
def test_the_budget_is_honoured(max_epochs: float) -> None:
    problem = make_problem()
    operator = problem.operator()
    solver = StochasticGradientDescent(batch_size=40, learning_rate=2.0)
    result = solve(solver, operator, problem.targets, tol=1e-6, max_epochs=max_epochs)
    assert result.stop_reason == "budget"
    assert max_epochs - 40 / 157 - 1e-9 < result.iteration_epochs <= max_epochs * (1 + 1e-9)
    assert operator.entries["rows_matmul"] == pytest.approx(result.iteration_epochs * 157**2)


def test_convergence_is_decided_by_the_true_residual() -> None:
    problem = make_problem()
    operator = problem.operator()
    result = solve("sgd", operator, problem.targets)
    assert result.converged
    assert operator.calls["matmul"] == result.overhead_epochs >= 1
    true = problem.residuals(result.solution)
    assert (result.residual_mean, result.residual_probes) == pytest.approx(true, rel=1e-9)
    assert max(true) <= 0.01


def test_consecutive_solves_draw_different_batches_from_one_generator() -> None:
    problem = make_problem()
    generator = torch.Generator().manual_seed(0)
    solver = StochasticGradientDescent(batch_size=40, learning_rate=2.0)
    rule = StoppingRule(1e-6, 1.0)
    first, second = (solver.solve(problem.operator(), problem.targets, rule=rule, generator=generator) for _ in "ab")
    assert not torch.equal(first.solution, second.solution)


# -- the learning rate ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rate", (100.0, 1e4, 1e300))
@pytest.mark.parametrize("warm", (False, True), ids=("cold", "warm"))
def test_a_fixed_rate_that_diverges_ends_no_worse_than_it_began(rate: float, warm: bool) -> None:
    problem = make_problem()
    start = 0.9 * problem.truth if warm else None
    solver = StochasticGradientDescent(batch_size=40, learning_rate=rate)
    result = solve(solver, problem.operator(), problem.targets, start)
    assert result.stop_reason == "diverged"
    assert not result.converged
    assert bool(torch.isfinite(result.solution).all())
    assert result.residual_checked
    true = problem.residuals(result.solution)
    assert (result.residual_mean, result.residual_probes) == pytest.approx(true, rel=1e-9)
    assert max(true) <= (0.1 if warm else 1.0) * (1 + 1e-9)


@pytest.mark.parametrize(("n", "rate", "batch_size"), ((97, 6.0, 40), (157, 15.0, 157)))
def test_a_fixed_rate_that_diverges_slowly_ends_no_worse_than_it_began(n: int, rate: float, batch_size: int) -> None:
    problem = make_problem(kernel="rbf", n=n)
    solver = StochasticGradientDescent(batch_size=batch_size, learning_rate=rate)
    result = solve(solver, problem.operator(), problem.targets)
    assert result.stop_reason == "diverged"
    assert max(problem.residuals(result.solution)) <= 1.0 + 1e-9


def rates_tried(result: SolveResult) -> list[tuple[float, float]]:
    """(rate that failed, rate that followed) of every note."""
    pattern = re.compile(r"SGD (?:diverged|stalled) at learning rate (\S+) after \S+ epochs; .* with (\S+)$")
    return [(float(match[1]), float(match[2])) for match in map(pattern.match, result.notes)]


def test_auto_finds_a_rate_where_the_largest_diverges_and_says_so() -> None:
    problem = make_problem()
    fixed = solve(StochasticGradientDescent(batch_size=40, learning_rate=100.0), problem.operator(), problem.targets)
    assert fixed.stop_reason == "diverged"
    assert not fixed.notes
    result = solve("sgd", problem.operator(), problem.targets)
    assert result.converged
    tried = rates_tried(result)
    assert tried[0] == (100, 90)
    for (_, to), (then, _) in pairwise(tried):
        assert to == then
    for failed, to in tried:
        assert to == max((rate for rate in GRID if rate < failed), default=failed / 2)
    assert result.state == SGDState(tried[-1][1])
    assert all("diverged" in note for note in result.notes)


def test_auto_starts_with_the_rate_of_the_state() -> None:
    problem = make_problem()
    operator = problem.operator()
    result = solve("sgd", operator, problem.targets, tol=1e-6, max_epochs=37 / 157, state=SGDState(learning_rate=7.5))
    expected, _ = replay(problem, torch.zeros_like(problem.targets), operator.partial, 7.5, 40, 0.9)
    assert result.iterations == 1
    torch.testing.assert_close(result.solution, expected, rtol=1e-12, atol=1e-15)
    assert result.state == SGDState(7.5)


def test_the_next_solve_reuses_the_rate_that_was_found() -> None:
    problem = make_problem()
    first = solve("sgd", problem.operator(), problem.targets)
    assert first.notes
    second = solve("sgd", problem.operator(), problem.targets, state=first.state)
    assert second.converged
    assert not second.notes
    assert second.state == first.state


def test_a_fixed_rate_ignores_the_state() -> None:
    problem = make_problem()
    solver = StochasticGradientDescent(batch_size=40, learning_rate=2.0)
    plain = solve(solver, problem.operator(), problem.targets, max_epochs=2)
    other = solve(solver, problem.operator(), problem.targets, max_epochs=2, state=SGDState(0.1))
    assert torch.equal(plain.solution, other.solution)
    assert other.state == SGDState(2.0)


def test_large_data_halve_the_rate_once() -> None:
    problem = make_problem()
    small = solve(StochasticGradientDescent(batch_size=40, large_n=158), problem.operator(), problem.targets)
    solver = StochasticGradientDescent(batch_size=40, large_n=157)
    large = solve(solver, problem.operator(), problem.targets)
    assert torch.equal(small.solution, large.solution)
    assert large.state == SGDState(small.state.learning_rate / 2)
    second = solve(solver, problem.operator(), problem.targets, state=large.state)
    assert second.state == large.state


def test_auto_tries_a_smaller_rate_when_it_stalls() -> None:
    problem = make_problem()
    solver = StochasticGradientDescent(batch_size=40, stall_epochs=3)
    state = SGDState(1e-4)
    result = solve(solver, problem.operator(), problem.targets, max_epochs=6, state=state)
    assert result.stop_reason == "budget"
    assert rates_tried(result) == [(1e-4, 5e-5)]
    assert "stalled" in result.notes[0]


def test_auto_gives_up_on_vanishing_rates() -> None:
    problem = make_problem()
    solver = StochasticGradientDescent(batch_size=40, stall_epochs=2)
    result = solve(solver, problem.operator(), problem.targets, max_epochs=100, state=SGDState(3e-6))
    assert result.stop_reason == "stagnated"
    assert len(result.notes) == 2  # 3e-6, 1.5e-6, and 7.5e-7 is too small to go on
    assert max(problem.residuals(result.solution)) <= 1.0


def test_a_harder_problem_lowers_the_rate_of_the_state() -> None:
    problem = make_problem()
    first = solve("sgd", problem.operator(), problem.targets)
    louder = hyperparameters(0.5, 4.0, [0.9, 1.4, 2.0, 1.1])  # eigenvalues eleven times as large
    result = solve("sgd", problem.operator(theta=louder), problem.targets, state=first.state, max_epochs=30)
    assert result.notes
    assert rates_tried(result)[0][0] == first.state.learning_rate
    assert result.state.learning_rate < first.state.learning_rate
    assert bool(torch.isfinite(result.solution).all())


# -- refusals ------------------------------------------------------------------------------------------------------
def test_a_generator_is_required() -> None:
    problem = make_problem()
    with pytest.raises(ValueError, match=r"pass generator=torch\.Generator\(\)"):
        StochasticGradientDescent().solve(problem.operator(), problem.targets, rule=StoppingRule())


@pytest.mark.parametrize(
    ("options", "message"),
    (
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"momentum": -0.1}, r"momentum must be in \[0, 1\), got -0.1"),
        ({"momentum": math.nan}, r"momentum must be in \[0, 1\), got nan"),
        ({"learning_rate": 0}, 'learning_rate must be a positive number or "auto", got 0'),
        ({"learning_rate": -3.0}, 'learning_rate must be a positive number or "auto", got -3.0'),
        ({"learning_rate": math.nan}, 'learning_rate must be a positive number or "auto", got nan'),
        ({"learning_rate": math.inf}, 'learning_rate must be a positive number or "auto", got inf'),
        ({"learning_rate": "fast"}, "learning_rate must be a positive number or \"auto\", got 'fast'"),
        ({"learning_rate": None}, 'learning_rate must be a positive number or "auto", got None'),
    ),
)
def test_options_are_checked(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StochasticGradientDescent(**options)


@pytest.mark.parametrize("max_epochs", (1.0, 2.0, 5.0, 10.0))
def test_a_budget_never_ends_worse_than_it_began(max_epochs: float) -> None:
    """A chain of warm-started solves under a budget from the top of the grid: the true residual never grows, what is
    reported is true, and the rate comes down."""
    problem = make_problem(n=157)
    operator, solution, state, before = problem.operator(), None, None, 1.0
    generator = torch.Generator().manual_seed(0)
    H = operator.matmul(torch.eye(157, dtype=torch.float64))
    for _ in range(6):
        result = StochasticGradientDescent(batch_size=40).solve(
            operator, problem.targets, solution, rule=StoppingRule(1e-4, max_epochs), generator=generator, state=state
        )
        solution, state = result.solution, result.state
        residual = (problem.targets - H @ solution).norm(dim=0) / problem.targets.norm(dim=0)
        worst = max(float(residual[0]), float(residual[1:].mean()))
        assert worst <= before * (1 + 1e-9)
        assert result.residual_checked and max(result.residual_mean, result.residual_probes) == pytest.approx(worst)
        before = worst
    assert state.learning_rate < 100
    assert before <= 1 if max_epochs == 1 else before < 0.9
