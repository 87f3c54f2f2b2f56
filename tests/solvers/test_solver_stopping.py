"""What solves count, and when every solver stops: epochs, the rule, no progress, and the books behind them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from solver_problems import (
    ITERATIVE,
    SOLVERS,
    STEADY_SGD,
    Problem,
    RecordingDense,
    assert_solved,
    hyperparameters,
    iterative,
    make_problem,
    one_thread,  # noqa: F401
    operators,
    solve,
    solvers,
)
from warmgp.kernels import Matern32
from warmgp.operators import DenseOperator
from warmgp.solvers import (
    AlternatingProjections,
    ConjugateGradients,
    Solver,
    StochasticGradientDescent,
    StoppingRule,
)
from warmgp.solvers.base import Progress, Stall
from warmgp.solvers.triangular import inverse_from_factor


# -- epochs --------------------------------------------------------------------------------------------------------
@solvers
@operators
@pytest.mark.parametrize("warm", (False, True), ids=("cold", "warm"))
@pytest.mark.parametrize("max_epochs", (None, 3.5), ids=("converged", "budget"))
def test_epochs_are_the_entries_applied(name: str, kind: str, warm: bool, max_epochs: float | None) -> None:
    problem = make_problem(kernel="matern12")
    operator = problem.operator(kind)
    start = 0.5 * problem.truth if warm else None
    tol = 0.01 if max_epochs is None else 1e-6
    result = solve(name, operator, problem.targets, start, tol=tol, max_epochs=max_epochs)
    stopped = max_epochs is not None and name != "cholesky"
    assert result.stop_reason == ("budget" if stopped else "converged")
    assert result.epochs == result.iteration_epochs + result.overhead_epochs
    assert result.epochs * problem.n**2 == pytest.approx(operator.applied, rel=1e-9)
    if name in ("ap", "sgd", "rap"):
        partial = operator.entries["rows_matmul" if name == "sgd" else "columns_matmul"]
        assert result.iteration_epochs * problem.n**2 == pytest.approx(partial, rel=1e-9)
        assert result.iterations == len(operator.partial)
    elif name == "cholesky":
        assert result.iteration_epochs == 0
    else:
        assert result.iterations == result.iteration_epochs
    if name == "cg":
        assert operator.calls["kernel_columns"] == 100  # evaluated, but no product
    if name == "ap":
        assert operator.calls["block"] == 4  # likewise
    if name != "sgd":  # whose fallbacks to the last good iterate pay for a true residual each
        assert result.overhead_epochs == warm + (not stopped)


@iterative
@pytest.mark.parametrize("max_epochs", (0.1, 0.5, 1, 2.9, 7))
def test_the_iterations_stay_within_the_budget(name: str, max_epochs: float) -> None:
    problem = make_problem()
    result = solve(name, problem.operator(), problem.targets, tol=1e-8, max_epochs=max_epochs)
    largest = {"ap": 50 / 157, "sgd": 40 / 157}.get(name, 1.0)
    assert result.iteration_epochs <= max_epochs * (1 + 1e-9)
    assert result.iteration_epochs > max_epochs - largest - 1e-9, "one more iteration would have fitted"
    if result.iterations == 0:
        assert not result.solution.any()
        assert result.residual_checked
        assert (result.residual_mean, result.residual_probes) == pytest.approx((1.0, 1.0))


@iterative
def test_a_stop_by_budget_reports_its_residuals(name: str) -> None:
    problem = make_problem()
    result = solve(name, problem.operator(), problem.targets, max_epochs=2)
    assert result.stop_reason == "budget"
    assert not result.converged
    # CG and AP carry their residual along, and in float64 it is the true one; SGD's estimate lags, so it looks again
    assert result.residual_checked == (name == "sgd")
    assert max(result.residual_mean, result.residual_probes) > 0.01
    true = problem.residuals(result.solution)
    assert (result.residual_mean, result.residual_probes) == pytest.approx(true, rel=1e-9)
    assert result.seconds > 0


@iterative
def test_a_budget_that_suffices_changes_nothing(name: str) -> None:
    problem = make_problem(kernel="matern12")
    free = solve(name, problem.operator(), problem.targets)
    budget = solve(name, problem.operator(), problem.targets, max_epochs=free.iteration_epochs)
    assert budget.converged
    assert torch.equal(budget.solution, free.solution)


# -- the rule ------------------------------------------------------------------------------------------------------
def one_sided(case: str) -> tuple[Problem, Tensor]:
    """A problem in which one side of [y, probes] is much easier than the other, and the easy side alone."""
    problem = make_problem(kernel="matern12")
    b = problem.targets
    top = torch.linalg.eigh(problem.h).eigenvectors[:, -1:]
    targets, easy = {
        "zero y": (torch.cat([0 * b[:, :1], b[:, 1:3]], 1), [0]),
        "zero probes": (torch.cat([b[:, 1:2], 0 * b[:, :1].expand(-1, 20)], 1), [1]),
        "easy y": (torch.cat([top, b[:, 1:3]], 1), [0]),
        "easy probes": (torch.cat([b[:, 1:2], top.expand(-1, 20)], 1), [1]),
    }[case]
    return Problem(problem.x, targets.contiguous(), problem.theta, problem.kernel), targets[:, easy].contiguous()


@solvers
@pytest.mark.parametrize("case", ("zero y", "zero probes", "easy y", "easy probes"))
def test_both_residuals_must_meet_the_tolerance(name: str, case: str) -> None:
    problem, easy = one_sided(case)
    solver = STEADY_SGD if name == "sgd" else SOLVERS[name]
    result = solve(solver, problem.operator(), problem.targets)
    assert_solved(problem, result, 0.01)
    alone = solve(solver, problem.operator(), easy)
    if name != "cholesky":
        assert result.iterations > alone.iterations, "the easy side alone decides: this case shows nothing"


def test_probes_count_by_their_average_not_by_the_worst_of_them() -> None:
    problem = make_problem("only y")
    hard = problem.targets
    targets = torch.cat([torch.zeros_like(hard), hard, torch.zeros_like(hard).expand(-1, 9)], 1)
    result = solve("cg0", problem.operator(), targets)
    residuals = (targets - problem.h @ result.solution).norm(dim=0) / hard.norm()
    assert result.converged
    assert 0.01 < float(residuals.max()) <= 0.1
    assert result.residual_probes == pytest.approx(float(residuals[1:].mean()))


class Drifting(RecordingDense):
    """An operator whose partial and full products disagree: the carried residual of AP is wrong, as by rounding."""

    drift = 0.0

    def columns_matmul(self, index: slice, W: Tensor) -> Tensor:
        return (1 + self.drift) * super().columns_matmul(index, W)


def test_a_carried_residual_does_not_make_a_solve_converged() -> None:
    problem = make_problem(kernel="matern12")
    operator = Drifting(problem.x, problem.operator().kernel, problem.theta)
    operator.drift = 0.02
    result = solve("ap", operator, problem.targets, max_epochs=300)
    assert operator.calls["matmul"] == result.overhead_epochs
    assert result.overhead_epochs > 1, "the first check must fail here, or this test shows nothing"
    if result.converged:
        assert_solved(problem, result, 0.01)
    else:
        assert max(problem.residuals(result.solution)) > 0.01


@pytest.mark.parametrize("tol", (0, -0.1, math.nan, math.inf, "0.01", None))
def test_tol_must_be_a_positive_number(tol: object) -> None:
    with pytest.raises(ValueError, match="tol must be a positive number"):
        StoppingRule(tol)


@pytest.mark.parametrize("max_epochs", (0, -1, -0.5, math.nan, "auto"))
def test_max_epochs_must_be_a_positive_number_or_none(max_epochs: object) -> None:
    with pytest.raises(ValueError, match="max_epochs must be a positive number or None"):
        StoppingRule(max_epochs=max_epochs)


def test_the_rule_allows_its_budget_up_to_rounding() -> None:
    rule = StoppingRule(max_epochs=0.3)
    assert rule.allows(0.1 + 0.2)  # 0.30000000000000004
    assert not rule.allows(0.301)
    assert StoppingRule(max_epochs=None).allows(1e12)


# -- no progress ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "solver",
    (
        ConjugateGradients(stall_epochs=20),
        ConjugateGradients(preconditioner_rank=0, stall_epochs=20),
        AlternatingProjections(block_size=50, stall_epochs=20),
    ),
    ids=("cg", "cg0", "ap"),
)
def test_a_tolerance_below_rounding_ends_as_stagnated(solver: Solver) -> None:
    problem = make_problem(kernel="matern12", dtype=torch.float32)
    result = solve(solver, problem.operator(), problem.targets, tol=1e-9)
    assert result.stop_reason == "stagnated"
    assert not result.converged
    assert result.residual_checked
    worst = max(result.residual_mean, result.residual_probes)
    assert 1e-9 < worst < 1e-4
    assert max(problem.residuals(result.solution)) < 1e-4  # it goes as far as float32 does
    assert result.iteration_epochs < 1000


@pytest.mark.parametrize(
    "solver",
    (
        ConjugateGradients(preconditioner_rank=0, stall_epochs=3),
        AlternatingProjections(block_size=5, stall_epochs=0.3),
        StochasticGradientDescent(batch_size=40, learning_rate=1e-4, stall_epochs=3),
    ),
    ids=("cg", "ap", "sgd"),
)
def test_no_progress_for_the_patience_ends_as_stagnated(solver: Solver) -> None:
    problem = make_problem(kernel="rbf")
    problem = Problem(problem.x, problem.targets, hyperparameters(0.01, 1.2, [2.0]), "rbf")
    result = solve(solver, problem.operator(), problem.targets, max_epochs=100)
    assert result.stop_reason == "stagnated"
    assert not result.converged
    assert result.residual_checked
    assert result.iteration_epochs > solver.stall_epochs
    true = problem.residuals(result.solution)
    assert (result.residual_mean, result.residual_probes) == pytest.approx(true, rel=1e-6)


def test_a_stall_is_less_than_one_percent_within_the_patience() -> None:
    stall = Stall(2.0)
    assert not any(stall.update(0.98**k, float(k)) for k in range(10)), "progress in every epoch"
    assert not stall.update(0.98**9 * 0.995, 11.0)  # half a percent, but only two epochs
    assert stall.update(0.98**9 * 0.995, 11.5)


# -- the books -----------------------------------------------------------------------------------------------------
def test_a_failed_check_goes_on_from_the_true_residual() -> None:
    problem = make_problem()
    progress = Progress.begin(problem.operator(), problem.targets, None, StoppingRule(0.01))
    progress.count(1.0)
    progress.r.zero_()  # claims to have converged, while v is still zero
    assert not progress.finished(progress.norms(), 1.0)
    assert progress.checked
    assert progress.overhead_epochs == 1
    torch.testing.assert_close(progress.r, problem.targets / problem.targets.norm(dim=0))


def test_five_checks_without_progress_are_the_limit() -> None:
    problem = make_problem()
    progress = Progress.begin(problem.operator(), problem.targets, None, StoppingRule(0.01))
    answers = []
    for _ in range(6):  # the first failed check is the one that the others are compared with
        progress.count(1.0)
        answers.append(progress.finished((0.0, 0.0), 1.0))
    assert answers == [False] * 5 + [True]
    assert progress.stop_reason == "stagnated"
    assert not progress.result().converged


@pytest.mark.parametrize(("n", "block"), [(1, 4), (7, 7), (50, 16), (64, 16), (53, 8), (30, None)])
def test_inverse_from_a_factor_by_blocks(n: int, block: int | None) -> None:
    A = torch.randn(n, n + 3, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    H = A @ A.T + torch.eye(n, dtype=torch.float64)
    inverse = inverse_from_factor(torch.linalg.cholesky(H), block)
    torch.testing.assert_close(inverse, torch.linalg.inv(H), rtol=1e-9, atol=1e-11)
    assert torch.equal(inverse, inverse.T) or block is None


@pytest.mark.parametrize("name", ITERATIVE)
def test_an_infinite_budget_is_none(name: str) -> None:
    problem = make_problem()
    results = [
        solve(SOLVERS[name], problem.operator(), problem.targets, tol=0.1, max_epochs=m) for m in (None, math.inf)
    ]
    assert results[0].converged and torch.equal(results[0].solution, results[1].solution)


# -- starts --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("solver", "epochs"), [(ConjugateGradients(20), 6.0), (AlternatingProjections(30), 2.0)], ids=("cg", "ap")
)
def test_progress_accumulates_while_the_residual_is_above_that_of_zero(solver: Solver, epochs: float) -> None:
    """Solvers lower the H-norm of the error, and the residual of a unit-normal probe may rise above |b| meanwhile."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, dtype=torch.float64, generator=generator)
    operator = DenseOperator(x, Matern32(), hyperparameters(0.05, 1.0, [1.0, 1.0]))
    targets = torch.randn(300, 5, dtype=torch.float64, generator=generator)
    truth, start, errors, above = torch.linalg.solve(operator.H, targets), None, [], 0
    for _ in range(12):
        start = solver.solve(operator, targets, start, rule=StoppingRule(1e-9, epochs)).solution
        away = start - truth
        errors.append(float((away * operator.matmul(away)).sum().sqrt()))
        above += bool((operator.matmul(away).norm(dim=0) > targets.norm(dim=0)).any())
    assert above > 0, "the problem is too easy to show anything"
    assert all(later <= 1.001 * earlier for earlier, later in itertools.pairwise(errors))
    assert errors[-1] < 0.8 * errors[0]


@pytest.mark.parametrize("budget", [None, 5.0])
@pytest.mark.parametrize("factor", [-1.0, 2.5, 1e200])
def test_a_start_worse_than_zero_is_not_taken(factor: float, budget: float | None) -> None:
    problem = make_problem(kernel="matern32")
    operator = problem.operator("dense")
    progress = Progress.begin(operator, problem.targets, factor * problem.truth, StoppingRule(0.01, budget))
    assert bool((progress.v == 0).all()) and torch.equal(progress.r, progress.b)
    near = Progress.begin(operator, problem.targets, 1.5 * problem.truth, StoppingRule(0.01, budget))
    assert bool((near.v != 0).any())
