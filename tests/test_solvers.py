"""Every solver against dense float64 Cholesky: convergence, epochs, warm starts, stopping, and refusals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from solver_problems import (
    ITERATIVE,
    KERNELS,
    SHAPES,
    SOLVERS,
    Problem,
    RecordingDense,
    hyperparameters,
    make_problem,
    one_thread,  # noqa: F401
    solve,
)
from warmgp.solvers import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    Solver,
    SolveResult,
    StochasticGradientDescent,
    StoppingRule,
    get_solver,
)
from warmgp.solvers.base import Progress, Stall, factor_or_raise
from warmgp.triangular import inverse_from_factor

STEADY_SGD = StochasticGradientDescent(batch_size=40, learning_rate=3.0, momentum=0.5)
"""Its iterations compare: no search for a rate comes in between."""

DTYPES = (torch.float32, torch.float64)
solvers = pytest.mark.parametrize("name", SOLVERS)
iterative = pytest.mark.parametrize("name", ITERATIVE)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=("float32", "float64"))
operators = pytest.mark.parametrize("kind", ("dense", "chunked"))


def assert_solved(problem: Problem, result: SolveResult, tol: float) -> None:
    """Converged in the residual of an independent float64 H, and as close to the truth as that residual implies."""
    assert result.converged
    assert result.stop_reason == "converged"
    assert result.residual_checked
    assert result.solution.dtype == problem.targets.dtype
    assert result.solution.shape == problem.targets.shape
    single = result.solution.dtype == torch.float32
    allowed = tol * (1.05 if single else 1.0 + 1e-9)
    true = problem.residuals(result.solution)
    assert max(true) <= allowed
    reported = (result.residual_mean, result.residual_probes)
    assert reported == pytest.approx(true, rel=1e-6, abs=1e-4 if single else 1e-12)
    # |v − v*| = |H⁻¹ r| ≤ |r| / λ_min: per system for y, on average for the probes, like the residuals
    b = problem.targets.double()
    scale = torch.where(b.norm(dim=0) > 0, b.norm(dim=0), 1.0)
    errors = (result.solution.double() - problem.truth).norm(dim=0) / scale
    bound = allowed / float(torch.linalg.eigvalsh(problem.h)[0])
    assert float(errors[0]) <= bound
    assert float(errors[1:].sum()) <= bound * max(1, len(errors) - 1)


# -- convergence ---------------------------------------------------------------------------------------------------
@solvers
@pytest.mark.parametrize("kernel", KERNELS)
@operators
@dtypes
def test_the_true_residual_meets_the_tolerance(name: str, kernel: str, kind: str, dtype: torch.dtype) -> None:
    problem = make_problem(kernel=kernel, dtype=dtype)
    assert_solved(problem, solve(name, problem.operator(kind), problem.targets), 0.01)


@solvers
@pytest.mark.parametrize("shape", SHAPES)
@dtypes
def test_problems_of_every_shape(name: str, shape: str, dtype: torch.dtype) -> None:
    problem = make_problem(shape, dtype=dtype)
    kind = "dense" if dtype == torch.float64 else "chunked"
    result = solve(name, problem.operator(kind), problem.targets)
    assert_solved(problem, result, 0.01)
    for column in range(problem.targets.shape[1]):
        if not problem.targets[:, column].any():
            assert not result.solution[:, column].any(), "a zero target has the zero solution"


@solvers
def test_one_row(name: str) -> None:
    problem = make_problem(n=1)
    result = solve(name, problem.operator(), problem.targets, tol=1e-6)
    assert_solved(problem, result, 1e-6)


@pytest.mark.parametrize("name", ("cholesky", "cg", "cg0", "ap"))
@operators
def test_a_tight_tolerance_is_met_in_float64(name: str, kind: str) -> None:
    problem = make_problem(kernel="matern12")
    assert_solved(problem, solve(name, problem.operator(kind), problem.targets, tol=1e-6), 1e-6)


@dtypes
def test_cholesky_is_exact_to_rounding(dtype: torch.dtype) -> None:
    problem = make_problem(dtype=dtype)
    result = solve("cholesky", problem.operator("chunked"), problem.targets)
    error = (result.solution.double() - problem.truth).norm() / problem.truth.norm()
    assert float(error) < (1e-7 if dtype == torch.float32 else 1e-12)  # factored in float64, rounded once
    assert result.iterations == 1


# -- starts --------------------------------------------------------------------------------------------------------
@solvers
@dtypes
def test_a_start_at_the_solution_takes_no_iteration(name: str, dtype: torch.dtype) -> None:
    problem = make_problem(dtype=dtype)
    operator = problem.operator()
    start = problem.truth.to(dtype)
    result = solve(name, operator, problem.targets, start)
    assert result.converged
    assert result.residual_checked
    assert result.iterations == 0
    assert result.iteration_epochs == 0
    assert result.overhead_epochs == 1
    assert operator.applied == problem.n**2
    torch.testing.assert_close(result.solution, start)
    assert (result.residual_mean, result.residual_probes) == pytest.approx(problem.residuals(start), abs=1e-4)


@iterative
def test_a_start_at_a_nearby_solution_takes_fewer_iterations(name: str) -> None:
    solver = {
        "cg": ConjugateGradients(preconditioner_rank=10),
        "cgf": ConjugateGradients(preconditioner_rank=0, factor_after=50),  # a factor ends a cold start as fast
        "sgd": STEADY_SGD,
    }.get(name, SOLVERS[name])
    problem = make_problem()
    moved = hyperparameters(0.306, 1.21, [0.91, 1.42, 1.98, 1.09])
    nearby = solve(solver, problem.operator(theta=moved), problem.targets)
    cold = solve(solver, problem.operator(), problem.targets)
    warm = solve(solver, problem.operator(), problem.targets, nearby.solution)
    assert_solved(problem, cold, 0.01)
    assert_solved(problem, warm, 0.01)
    assert warm.iterations < 0.8 * cold.iterations


@solvers
def test_a_start_far_away_is_left(name: str) -> None:
    problem = make_problem(kernel="matern12")
    assert_solved(problem, solve(name, problem.operator(), problem.targets, problem.targets * 7), 0.01)


@solvers
def test_start_and_targets_are_not_written_into(name: str) -> None:
    problem = make_problem()
    start = problem.targets * 0.1
    before = problem.targets.clone(), start.clone()
    solve(name, problem.operator(), problem.targets, start, max_epochs=3)
    solve(name, problem.operator(), problem.targets, max_epochs=3)
    assert torch.equal(problem.targets, before[0])
    assert torch.equal(start, before[1])


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
    if name in ("ap", "sgd"):
        partial = operator.entries["columns_matmul" if name == "ap" else "rows_matmul"]
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


# -- repeatability -------------------------------------------------------------------------------------------------
@solvers
@dtypes
def test_the_same_generator_state_gives_the_same_bits(name: str, dtype: torch.dtype) -> None:
    problem = make_problem(kernel="matern12", dtype=dtype)
    first, second = (solve(name, problem.operator(), problem.targets, seed=5) for _ in range(2))
    assert torch.equal(first.solution, second.solution)
    assert first.iterations == second.iterations
    assert first.epochs == second.epochs
    assert (first.residual_mean, first.residual_probes) == (second.residual_mean, second.residual_probes)


@solvers
def test_only_sgd_depends_on_the_seed(name: str) -> None:
    problem = make_problem()
    solver = STEADY_SGD if name == "sgd" else name
    first, second = (solve(solver, problem.operator(), problem.targets, max_epochs=2, seed=seed) for seed in (1, 2))
    assert torch.equal(first.solution, second.solution) == (name != "sgd")


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


# -- scaling -------------------------------------------------------------------------------------------------------
@solvers
@dtypes
def test_the_scale_of_a_target_does_not_matter(name: str, dtype: torch.dtype) -> None:
    problem = make_problem(kernel="matern12", dtype=dtype)
    factors = torch.tensor([2.0**20, 2.0**-20, 1.0, -(2.0**10)], dtype=dtype)  # powers of two: no rounding
    plain = solve(name, problem.operator(), problem.targets)
    scaled = solve(name, problem.operator(), problem.targets * factors)
    assert torch.equal(scaled.solution, plain.solution * factors)
    assert scaled.iterations == plain.iterations
    assert (scaled.residual_mean, scaled.residual_probes) == (plain.residual_mean, plain.residual_probes)


@solvers
def test_a_start_is_scaled_like_its_target(name: str) -> None:
    problem = make_problem(kernel="matern12")
    factors = torch.tensor([2.0**20, 2.0**-20, 1.0, 2.0**10], dtype=torch.float64)
    start = 0.9 * problem.truth
    plain = solve(name, problem.operator(), problem.targets, start)
    scaled = solve(name, problem.operator(), problem.targets * factors, start * factors)
    assert torch.equal(scaled.solution, plain.solution * factors)
    assert scaled.iterations == plain.iterations > 0


@solvers
def test_targets_of_very_different_size_are_all_solved(name: str) -> None:
    problem = make_problem(kernel="matern12")
    factors = torch.tensor([1e6, 1e-6, 1.0, 1e3], dtype=torch.float64)
    scaled = Problem(problem.x, problem.targets * factors, problem.theta, problem.kernel)
    assert_solved(scaled, solve(name, scaled.operator(), scaled.targets), 0.01)


# -- refusals ------------------------------------------------------------------------------------------------------
@solvers
@pytest.mark.parametrize(
    ("change", "message"),
    (
        (lambda b: b[:, 0], r"targets must have shape \(157, 1 \+ s\), got \(157,\)"),
        (lambda b: b[1:], r"targets must have shape \(157, 1 \+ s\), got \(156, 4\)"),
        (lambda b: b[:, :0], r"targets must have shape \(157, 1 \+ s\), got \(157, 0\)"),
        (lambda b: b.float(), "targets must be torch.float64 on cpu like the operator, got torch.float32"),
        (lambda b: b.index_fill(0, torch.tensor(3), math.nan), "targets must be finite"),
        (lambda b: b.index_fill(0, torch.tensor(3), -math.inf), "targets must be finite"),
    ),
    ids=("vector", "rows", "no column", "dtype", "nan", "infinity"),
)
def test_bad_targets_are_refused(name: str, change: object, message: str) -> None:
    problem = make_problem()
    with pytest.raises(ValueError, match=message):
        solve(name, problem.operator(), change(problem.targets))


@solvers
@pytest.mark.parametrize("columns", (1, 5))
def test_a_start_of_another_shape_is_refused(name: str, columns: int) -> None:
    problem = make_problem()
    start = torch.zeros(157, columns, dtype=torch.float64)
    with pytest.raises(ValueError, match=rf"start must have the targets' shape \(157, 4\), got \(157, {columns}\)"):
        solve(name, problem.operator(), problem.targets, start)


@solvers
def test_a_start_that_is_not_finite_never_counts_as_converged(name: str) -> None:
    problem = make_problem()
    start = problem.truth.clone()
    start[:, 1] = math.nan
    try:
        result = solve(name, problem.operator(), problem.targets, start, max_epochs=5)
    except ValueError:
        return
    assert not result.converged or bool(torch.isfinite(result.solution).all())


@pytest.mark.parametrize("factor", (1e25, 1e-25))
def test_huge_and_tiny_float32_targets_are_solved_or_refused(factor: float) -> None:
    problem = make_problem(dtype=torch.float32)
    scaled = Problem(problem.x, problem.targets * factor, problem.theta, problem.kernel)
    try:
        result = solve("cg", scaled.operator(), scaled.targets)
    except ValueError:
        return
    if result.converged:
        assert max(scaled.residuals(result.solution)) < 0.0105


# -- states --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "change"),
    (
        ("cg", "kernel"),
        ("cg", "dtype"),
        ("cg", "rows"),
        ("ap", "kernel"),
        ("ap", "dtype"),
        ("ap", "rows"),
        ("cholesky", "kernel"),
        ("cholesky", "dtype"),
        ("cholesky", "rows"),
    ),
)
def test_a_state_of_another_operator_is_not_used(name: str, change: str) -> None:
    problem = make_problem(
        kernel="matern12" if change == "kernel" else "rbf",
        dtype=torch.float32 if change == "dtype" else torch.float64,
        n=151 if change == "rows" else 157,
    )
    other = make_problem(kernel="rbf")
    state = solve(name, other.operator(), other.targets).state
    result = solve(name, problem.operator(), problem.targets, state=state, max_epochs=300)
    assert_solved(problem, result, 0.01)


def test_cholesky_returns_no_factor_of_another_theta() -> None:
    problem = make_problem()
    first = solve("cholesky", problem.operator(), problem.targets)
    moved = hyperparameters(0.3003, 1.2, [0.9, 1.4, 2.0, 1.1])
    result = solve("cholesky", problem.operator(theta=moved), problem.targets, first.solution, state=first.state)
    assert result.iterations == 0
    assert result.state is None or result.state.origin.theta.equals(moved)


@pytest.mark.parametrize(
    ("name", "kind"),
    (
        ("cholesky", Cholesky),
        ("cg", ConjugateGradients),
        ("ap", AlternatingProjections),
        ("sgd", StochasticGradientDescent),
    ),
)
def test_get_solver_by_name_has_the_default_options(name: str, kind: type[Solver]) -> None:
    assert get_solver(name) == kind()
    assert get_solver(name).name == name


def test_get_solver_keeps_a_solver() -> None:
    solver = AlternatingProjections(block_size=7)
    assert get_solver(solver) is solver


@pytest.mark.parametrize("wrong", ("lu", "CG", "", None, ConjugateGradients))
def test_get_solver_names_what_it_accepts(wrong: object) -> None:
    with pytest.raises(ValueError, match="solver must be one of 'cholesky', 'cg', 'ap', 'sgd' or a Solver object"):
        get_solver(wrong)


# -- Cholesky ------------------------------------------------------------------------------------------------------
def test_cholesky_reuses_its_factor_at_the_same_theta_only() -> None:
    problem = make_problem()
    first = solve("cholesky", problem.operator(), problem.targets)

    def evaluated(theta: object, state: object) -> tuple[int, SolveResult]:
        operator = problem.operator(theta=theta)
        operator.matmul(problem.targets)  # H is stored from here on
        before = operator.entries_evaluated
        result = solve("cholesky", operator, problem.targets, state=state)
        return operator.entries_evaluated - before, result

    same, again = evaluated(problem.theta, first.state)
    assert same == 0
    assert again.state is first.state
    assert torch.equal(again.solution, first.solution)
    moved = hyperparameters(0.31, 1.2, [0.9, 1.4, 2.0, 1.1])
    other, result = evaluated(moved, first.state)
    assert other > 0
    assert result.state.origin.theta.equals(moved)
    assert_solved(Problem(problem.x, problem.targets, moved, problem.kernel), result, 1e-9)


def test_a_matrix_that_is_not_positive_definite_raises_with_the_remedy() -> None:
    matrix = torch.diag(torch.tensor([1.0, 2.0, -1.0, 1.0]))
    with pytest.raises(torch.linalg.LinAlgError) as error:
        factor_or_raise(matrix, "the block of rows 4 to 8 of H")
    message = str(error.value)
    assert message.startswith("the block of rows 4 to 8 of H is not positive definite")
    assert "row 3 of 4" in message
    for remedy in ("float64", "noise_floor", "near-duplicate rows"):
        assert remedy in message


def test_a_factor_is_float64_and_lower() -> None:
    matrix = make_problem(n=20).h
    factor = factor_or_raise(matrix.float(), "H")
    assert factor.dtype == torch.float64
    assert torch.equal(factor, factor.tril())
    torch.testing.assert_close(factor @ factor.T, matrix, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("solver", (Cholesky(), AlternatingProjections(block_size=10)), ids=("cholesky", "ap"))
def test_duplicated_rows_without_noise_raise_with_the_remedy(solver: Solver) -> None:
    problem = make_problem(n=31)
    x = problem.x.clone()
    x[1] = x[0]
    theta = hyperparameters(1e-9, 1.0, [1.0])  # 1 + 1e-18 is 1: rows 0 and 1 of H are the same
    targets = problem.targets.clone()
    targets[10:] = 0  # AP begins with the first block
    singular = Problem(x, targets, theta, "rbf")
    with pytest.raises(torch.linalg.LinAlgError, match=r"not positive definite.*noise_floor"):
        solve(solver, singular.operator(), singular.targets)


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
