"""Conjugate gradients: optimal in its Krylov space, preconditioned by a pivoted Cholesky factor that is reused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from solver_problems import (
    Problem,
    RecordingDense,
    dense_h,
    hyperparameters,
    make_problem,
    one_thread,  # noqa: F401
    solve,
)
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.solvers import ConjugateGradients
from warmgp.solvers.preconditioners import Identity

UNPRECONDITIONED = ConjugateGradients(preconditioner_rank=0)


def krylov_optimum(problem: Problem, k: int, start: Tensor | None, inverse: Tensor | None = None) -> Tensor:
    """argmin |v − v*|_H over start + span{p, (P⁻¹H)p, …} with k vectors and p = P⁻¹r, by an orthonormal basis."""
    h, b = problem.h, problem.targets
    inverse = torch.eye(problem.n, dtype=torch.float64) if inverse is None else inverse
    v0 = torch.zeros_like(b) if start is None else start
    columns = []
    for v, r in zip(v0.T, (b - h @ v0).T, strict=True):
        basis = torch.empty(problem.n, 0, dtype=torch.float64)
        vector = inverse @ r
        for _ in range(k):
            for _ in range(2):  # twice is enough
                vector = vector - basis @ (basis.T @ vector)
            basis = torch.cat([basis, (vector / vector.norm())[:, None]], 1)
            vector = inverse @ (h @ basis[:, -1])
        columns.append(v + basis @ torch.linalg.solve(basis.T @ h @ basis, basis.T @ r))
    return torch.stack(columns, 1)


@pytest.mark.parametrize("k", (1, 2, 5))
@pytest.mark.parametrize("warm", (False, True), ids=("cold", "warm"))
@pytest.mark.parametrize("rank", (0, 8))
def test_every_iterate_is_the_best_of_its_krylov_space(k: int, warm: bool, rank: int) -> None:
    problem = make_problem()
    start = 0.5 * problem.truth if warm else None
    solver = ConjugateGradients(preconditioner_rank=rank)
    result = solve(solver, problem.operator(), problem.targets, start, tol=1e-12, max_epochs=k)
    inverse = result.state.preconditioner.apply(torch.eye(problem.n, dtype=torch.float64)) if rank else None
    assert result.iterations == k
    torch.testing.assert_close(result.solution, krylov_optimum(problem, k, start, inverse), rtol=1e-8, atol=1e-10)


def test_the_exact_solution_takes_at_most_n_iterations() -> None:
    problem = make_problem(n=23)
    problem = Problem(problem.x, problem.targets, hyperparameters(1.0, 1.0, [1.0]), "matern32")
    result = solve(UNPRECONDITIONED, problem.operator(), problem.targets, tol=1e-11)
    assert result.converged
    assert result.iterations <= 23
    torch.testing.assert_close(result.solution, problem.truth, rtol=1e-9, atol=1e-10)


class Lying(RecordingDense):
    """An operator whose first product is 5V: CG then believes that b/5 is the solution."""

    def matmul(self, V: Tensor) -> Tensor:
        HV = super().matmul(V)
        return 5 * V if self.calls["matmul"] == 1 else HV


def test_a_failed_check_begins_a_new_sequence_from_the_true_residual() -> None:
    problem = make_problem()
    operator = Lying(problem.x, get_kernel(problem.kernel), problem.theta)
    result = solve(UNPRECONDITIONED, operator, problem.targets, max_epochs=5)
    assert result.stop_reason == "budget"
    assert result.overhead_epochs == 1  # the check that failed
    expected = krylov_optimum(problem, 4, problem.targets / 5)
    torch.testing.assert_close(result.solution, expected, rtol=1e-8, atol=1e-10)


def three_places() -> Problem:
    """31 rows at 3 places: K has rank 3, and H four eigenvalues that differ."""
    problem = make_problem("one input", n=31)
    x = torch.tensor([-1.0, 0.2, 1.5], dtype=torch.float64)[torch.arange(31) % 3, None]
    return Problem(x, problem.targets, problem.theta, problem.kernel)


def test_as_many_iterations_as_there_are_eigenvalues() -> None:
    problem = three_places()
    result = solve(UNPRECONDITIONED, problem.operator(), problem.targets, tol=1e-10)
    assert result.converged
    assert result.iterations <= 4


def test_a_factor_that_is_complete_ends_early_and_solves_at_once() -> None:
    problem = three_places()
    operator = problem.operator()
    result = solve(ConjugateGradients(preconditioner_rank=20), operator, problem.targets, tol=1e-10)
    assert operator.calls["kernel_columns"] == 3
    assert sorted(pivot % 3 for pivot in operator.pivots) == [0, 1, 2]
    assert result.iterations == 1
    torch.testing.assert_close(result.solution, problem.truth, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", ("rbf", "matern12"))
def test_a_preconditioner_of_full_rank_is_the_inverse(kernel: str) -> None:
    problem = make_problem(kernel=kernel, n=61)
    operator = problem.operator()
    result = solve(ConjugateGradients(preconditioner_rank=1000), operator, problem.targets, tol=1e-6)
    assert result.converged
    assert result.iterations <= 2
    assert operator.calls["kernel_columns"] <= 61
    torch.testing.assert_close(result.state.preconditioner.apply(problem.targets), problem.truth, rtol=1e-5, atol=1e-6)


def test_preconditioning_saves_iterations_on_an_ill_conditioned_problem() -> None:
    problem = make_problem(kernel="rbf")
    problem = Problem(problem.x, problem.targets, hyperparameters(0.05, 1.2, [2.0]), "rbf")
    results = [
        solve(ConjugateGradients(preconditioner_rank=rank), problem.operator(), problem.targets)
        for rank in (0, 15, 60, 157)
    ]
    assert all(result.converged for result in results)
    none, some, many, full = (result.iterations for result in results)
    assert none > 1.5 * some
    assert some > 2 * many
    assert many > 2 * full


# -- the preconditioner as the state -------------------------------------------------------------------------------
def nystrom(problem: Problem, pivots: list[int], theta: Hyperparameters) -> Tensor:
    """P = K[:, p] K[p, p]⁻¹ K[p, :] + σ²I: what a factor with these pivots must amount to."""
    noise = theta.noise_scale**2 * torch.eye(problem.n, dtype=torch.float64)
    k = dense_h(problem.x, problem.kernel, theta) - noise
    return k[:, pivots] @ torch.linalg.solve(k[pivots][:, pivots], k[pivots]) + noise


def test_the_pivots_are_the_largest_remaining_diagonal_entries() -> None:
    problem = make_problem()
    operator = problem.operator()
    solve(ConjugateGradients(preconditioner_rank=12), operator, problem.targets, max_epochs=1)
    assert len(set(operator.pivots)) == 12
    k = problem.h - problem.theta.noise_scale**2 * torch.eye(problem.n, dtype=torch.float64)
    for step in range(1, 12):
        known = operator.pivots[:step]
        remaining = (k - k[:, known] @ torch.linalg.solve(k[known][:, known], k[known])).diagonal()
        assert float(remaining[operator.pivots[step]]) == pytest.approx(float(remaining.max()), rel=1e-9)


@pytest.mark.parametrize(
    "theta",
    (
        hyperparameters(0.3, 1.2, [0.9, 1.4, 2.0, 1.1]),
        hyperparameters(0.2, 1.2, [0.9, 1.4, 2.0, 1.1]),
        hyperparameters(0.3, 1.7, [0.9, 1.4, 2.0, 1.1]),
        hyperparameters(0.4, 0.8, [0.9, 1.4, 2.0, 1.1]),
    ),
    ids=("same", "noise", "signal", "both"),
)
def test_the_factor_is_reused_while_the_length_scales_stay(theta: Hyperparameters) -> None:
    problem = make_problem()
    solver = ConjugateGradients(preconditioner_rank=20)
    first_operator, operator = problem.operator(), problem.operator(theta=theta)
    first = solve(solver, first_operator, problem.targets)
    assert first_operator.calls["kernel_columns"] == 20
    result = solve(solver, operator, problem.targets, state=first.state)
    assert operator.calls["kernel_columns"] == 0
    assert result.converged
    assert result.iterations == solve(solver, problem.operator(theta=theta), problem.targets).iterations
    P = nystrom(problem, first_operator.pivots, theta)
    torch.testing.assert_close(
        P @ result.state.preconditioner.apply(problem.targets), problem.targets, rtol=1e-8, atol=1e-8
    )


def test_a_state_is_left_as_it_was() -> None:
    problem = make_problem()
    solver = ConjugateGradients(preconditioner_rank=20)
    state = solve(solver, problem.operator(), problem.targets).state
    before = state.preconditioner.apply(problem.targets)
    moved = problem.operator(theta=hyperparameters(0.6, 2.0, [0.9, 1.4, 2.0, 1.1]))
    solve(solver, moved, problem.targets, state=state)
    assert torch.equal(state.preconditioner.apply(problem.targets), before)


@pytest.mark.parametrize(
    ("rank", "change"),
    (
        (20, {"theta": hyperparameters(0.3, 1.2, [0.9, 1.4, 2.0, 1.1 + 1e-12])}),
        (20, {"theta": hyperparameters(0.3, 1.2, [0.9])}),
        (20, {"kernel": "rbf"}),
        (20, {"rows": 156}),
        (20, {"dtype": torch.float32}),
        (25, {}),
    ),
    ids=("one length scale", "shared length scale", "kernel", "rows", "dtype", "rank"),
)
def test_the_factor_is_rebuilt_where_it_does_not_fit(rank: int, change: dict) -> None:
    problem = make_problem()
    state = solve(ConjugateGradients(preconditioner_rank=20), problem.operator(), problem.targets).state
    rows, dtype = change.get("rows", 157), change.get("dtype", torch.float64)
    other = Problem(
        problem.x[:rows].to(dtype),
        problem.targets[:rows].to(dtype),
        change.get("theta", problem.theta),
        change.get("kernel", problem.kernel),
    )
    operator = other.operator()
    result = solve(ConjugateGradients(preconditioner_rank=rank), operator, other.targets, state=state)
    assert operator.calls["kernel_columns"] == rank
    assert result.converged
    assert max(other.residuals(result.solution)) < 0.0105


def test_nothing_is_built_for_a_solve_that_needs_no_iteration() -> None:
    problem = make_problem()
    operator = problem.operator()
    result = solve("cg", operator, problem.targets, problem.truth)
    assert result.iterations == 0
    assert operator.calls["kernel_columns"] == 0


def test_without_a_preconditioner_there_is_no_state() -> None:
    """Nothing but what has been spent, and that there is none."""
    problem = make_problem()
    operator = problem.operator()
    result = solve(UNPRECONDITIONED, operator, problem.targets)
    assert isinstance(result.state.preconditioner, Identity)
    assert UNPRECONDITIONED.pack(result.state) == ({}, {"spent": result.state.spent})
    assert operator.calls["kernel_columns"] == 0


def test_a_system_that_is_done_does_not_disturb_the_others() -> None:
    problem = make_problem()
    top = torch.linalg.eigh(problem.h).eigenvectors[:, -1:]
    targets = torch.cat([problem.targets[:, :1], top, torch.zeros_like(top)], 1)
    both = solve(UNPRECONDITIONED, problem.operator(), targets, tol=1e-7, max_epochs=8)
    alone = solve(UNPRECONDITIONED, problem.operator(), targets[:, :1], tol=1e-7, max_epochs=8)
    assert both.iterations == alone.iterations == 8
    torch.testing.assert_close(both.solution[:, :1], alone.solution, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(both.solution[:, 1], problem_solution(problem, top)[:, 0], rtol=1e-9, atol=1e-11)
    assert not both.solution[:, 2].any()


def problem_solution(problem: Problem, targets: Tensor) -> Tensor:
    return torch.linalg.solve(problem.h, targets)


def test_the_rank_must_not_be_negative() -> None:
    with pytest.raises(ValueError, match="preconditioner_rank must be an integer of at least 0, got -1"):
        ConjugateGradients(preconditioner_rank=-1)
