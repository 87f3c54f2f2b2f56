"""States that a solve hands to the next one, and the Cholesky solver, whose state is a factor."""

from __future__ import annotations

import pytest
import torch

from solver_problems import (
    Problem,
    assert_solved,
    hyperparameters,
    make_problem,
    one_thread,  # noqa: F401
    solve,
)
from warmgp.operators import KernelOperator
from warmgp.solvers import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    Solver,
    StochasticGradientDescent,
    get_solver,
)
from warmgp.solvers.base import factor_or_raise
from warmgp.solvers.cholesky import factorise


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
    with pytest.raises(ValueError, match="solver must be 'auto', 'cholesky', 'cg', 'ap', 'sgd', 'rap' or an object"):
        get_solver(wrong)


# -- Cholesky ------------------------------------------------------------------------------------------------------
def test_cholesky_reuses_its_factor_at_the_same_theta_only(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem()
    first = solve("cholesky", problem.operator(), problem.targets)
    factored: list[KernelOperator] = []
    monkeypatch.setattr(
        "warmgp.solvers.cholesky.factorise", lambda operator: factored.append(operator) or factorise(operator)
    )
    again = solve("cholesky", problem.operator(), problem.targets, state=first.state)
    assert not factored
    assert again.state is first.state and again.factor is first.factor
    assert torch.equal(again.solution, first.solution)
    moved = hyperparameters(0.31, 1.2, [0.9, 1.4, 2.0, 1.1])
    result = solve("cholesky", problem.operator(theta=moved), problem.targets, state=first.state)
    assert len(factored) == 1
    assert result.state.origin.theta.equals(moved) and result.factor is result.state.factor
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
    with pytest.raises(torch.linalg.LinAlgError, match=r"row 3 of 4\): raise noise_floor"):
        factor_or_raise(matrix.double(), "H")


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
