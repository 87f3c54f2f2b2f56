"""Every solver against dense float64 Cholesky: convergence, warm starts, repeatability, scaling, and refusals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from solver_problems import (
    DTYPES,
    KERNELS,
    OPERATORS,
    SHAPES,
    SOLVERS,
    STEADY_SGD,
    Problem,
    assert_solved,
    dtypes,
    hyperparameters,
    iterative,
    make_problem,
    one_thread,  # noqa: F401
    operators,
    solve,
    solvers,
)
from warmgp.solvers import (
    ConjugateGradients,
)


def pairs(first: Iterable[str], second: Iterable[str]) -> list[Any]:
    """Each of one with each of the other, in one of the two dtypes in turn: every one of both comes in both."""
    return [
        pytest.param(a, b, DTYPES[(i + j) % 2], id=f"{a}-{b}")
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]


# -- convergence ---------------------------------------------------------------------------------------------------
@solvers
@pytest.mark.parametrize(("kernel", "kind", "dtype"), pairs(KERNELS, OPERATORS))
def test_the_true_residual_meets_the_tolerance(name: str, kernel: str, kind: str, dtype: torch.dtype) -> None:
    problem = make_problem(kernel=kernel, dtype=dtype)
    assert_solved(problem, solve(name, problem.operator(kind), problem.targets), 0.01)


@pytest.mark.parametrize(("name", "shape", "dtype"), pairs(SOLVERS, SHAPES))
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


@pytest.mark.parametrize("name", ("cholesky", "cg", "cg0", "ap", "rap"))
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
def test_only_random_batches_and_blocks_depend_on_the_seed(name: str) -> None:
    problem = make_problem()
    solver = STEADY_SGD if name == "sgd" else name
    first, second = (solve(solver, problem.operator(), problem.targets, max_epochs=2, seed=seed) for seed in (1, 2))
    assert torch.equal(first.solution, second.solution) == (name not in ("sgd", "rap"))


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
