"""Alternating projections: which block is next, exact solves on blocks, block factors kept for one θ."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from solver_problems import (
    Problem,
    RecordingDense,
    hyperparameters,
    make_problem,
    one_thread,  # noqa: F401
    solve,
)
from warmgp import ChunkedOperator, Matern32
from warmgp.solvers import AlternatingProjections
from warmgp.solvers.triton.packed import pack_symmetric, packed_size, unpack_symmetric


def changed_rows(solution: Tensor) -> list[int]:
    """Rows in which a solution that began at zero has moved."""
    return solution.any(1).nonzero()[:, 0].tolist()


SIZES = (8, 8, 8, 7)  # blocks of 31 rows


def with_squares(squares: list[list[float]]) -> Tensor:
    """Targets (31, systems) of which system c has |squares[c][k]| of its square on block k, with that sign."""
    systems = []
    for blocks in squares:
        parts = zip(blocks, SIZES, strict=True)
        systems.append(torch.cat([torch.full((size,), math.copysign((abs(s) / size) ** 0.5, s)) for s, size in parts]))
    return torch.stack(systems, 1).double()


@pytest.mark.parametrize(
    ("squares", "best", "another_rule", "its_choice"),
    (
        ([[0.8, 0.2, 0.0, 0.0], [-0.8, 0.2, 0.0, 0.0]], 0, lambda norms: norms.sum(1).abs(), 1),
        ([[0.0, 0.4, 0.6, 0.0], *[[0.0, 0.8, 0.0, 0.2]] * 2], 1, lambda norms: norms[:, 0].abs(), 2),
        ([[0.0, 0.9, 0.1, 0.0], [0.6, 0.4, 0.0, 0.0]], 1, lambda norms: norms[:, 1:].abs().sum(1), 0),
        ([[0.05, 0, 0, 0.95], *[[0.44, 0.28, 0.28, 0]] * 2], 3, lambda norms: norms.abs().sum(1), 0),
        ([[0.05, 0, 0, 0.95], *[[0.5, 0.25, 0.25, 0]] * 2], 0, lambda norms: norms.abs().amax(1), 3),
    ),
    ids=("norm of the sum", "y alone", "probes alone", "sum of norms", "largest norm"),
)
def test_the_block_with_the_largest_sum_of_squares_is_next(
    squares: list[list[float]], best: int, another_rule: Callable[[Tensor], Tensor], its_choice: int
) -> None:
    signed = torch.tensor(squares, dtype=torch.float64).T  # (blocks, systems)
    assert int(signed.abs().sum(1).argmax()) == best
    choice = int(another_rule(signed.sign() * signed.abs().sqrt()).argmax())
    assert choice == its_choice != best, "this case does not tell the rules apart"
    operator = make_problem(n=31).operator()
    result = solve(AlternatingProjections(8), operator, with_squares(squares), max_epochs=SIZES[best] / 31)
    assert result.iterations == 1
    assert result.iteration_epochs == pytest.approx(SIZES[best] / 31)
    assert changed_rows(result.solution) == list(range(8 * best, 8 * best + SIZES[best]))


def test_every_iteration_takes_the_worst_block() -> None:
    problem = make_problem()
    operator = problem.operator()
    result = solve("ap", operator, problem.targets, max_epochs=5)
    b = problem.targets / problem.targets.norm(dim=0)
    v, visited = torch.zeros_like(b), []
    for rows in operator.partial:
        r = b - problem.h @ v
        squares = [float(part.square().sum()) for part in r.split(50)]
        assert rows[0] == 50 * squares.index(max(squares))
        v[rows] += torch.linalg.solve(problem.h[rows][:, rows], r[rows])
        visited.append(int(rows[0]))
    torch.testing.assert_close(result.solution, v * problem.targets.norm(dim=0), rtol=1e-9, atol=1e-11)
    assert set(visited) == {0, 50, 100, 150}


@pytest.mark.parametrize("warm", (False, True), ids=("cold", "warm"))
@pytest.mark.parametrize("kind", ("dense", "chunked"))
def test_an_iteration_solves_its_block_exactly(warm: bool, kind: str) -> None:
    problem = make_problem()
    start = 0.5 * problem.truth if warm else torch.zeros_like(problem.targets)
    result = solve("ap", problem.operator(kind), problem.targets, start if warm else None, max_epochs=50 / 157)
    rows = changed_rows((result.solution - start).abs() > 1e-9)
    assert result.iterations == 1
    assert rows in (list(range(0, 50)), list(range(50, 100)), list(range(100, 150)))
    residual = (problem.targets - problem.h @ result.solution).abs()
    assert float(residual[rows].max()) < 1e-11
    others = sorted(set(range(157)) - set(rows))
    assert float(residual[others].max()) > 0.1


def test_the_last_block_may_be_smaller() -> None:
    problem = make_problem()
    targets = problem.targets.clone()
    targets[:150] *= 1e-3
    operator = problem.operator()
    result = solve("ap", operator, targets, max_epochs=7 / 157)
    assert result.iterations == 1
    assert result.iteration_epochs == pytest.approx(7 / 157)
    assert changed_rows(result.solution) == list(range(150, 157))
    assert operator.applied == 7 * 157
    residual = (targets - problem.h @ result.solution)[150:]
    assert float(residual.abs().max()) < 1e-11


@pytest.mark.parametrize("block_size", (157, 158, 1000))
def test_a_block_of_all_rows_is_a_direct_solve(block_size: int) -> None:
    problem = make_problem()
    result = solve(AlternatingProjections(block_size), problem.operator(), problem.targets, tol=1e-10)
    assert result.converged
    assert result.iterations == 1
    assert result.iteration_epochs == 1
    torch.testing.assert_close(result.solution, problem.truth, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("block_size", (1, 7, 156))
def test_blocks_of_any_size_converge(block_size: int) -> None:
    problem = make_problem(kernel="matern12")
    problem = Problem(problem.x, problem.targets, hyperparameters(0.8, 1.0, [0.7]), "matern12")
    result = solve(AlternatingProjections(block_size), problem.operator(), problem.targets)
    assert result.converged
    assert max(problem.residuals(result.solution)) <= 0.01


def test_the_error_falls_in_the_norm_of_h() -> None:
    problem = make_problem()
    errors = []
    for k in range(1, 8):
        v = solve("ap", problem.operator(), problem.targets, tol=1e-9, max_epochs=k).solution - problem.truth
        errors.append(float((v * (problem.h @ v)).sum()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.7 * errors[0]


# -- blocks that grow ----------------------------------------------------------------------------------------------
def low_noise() -> Problem:
    problem = make_problem()
    return Problem(problem.x, problem.targets, hyperparameters(3e-3, 1.0, [1.5] * 4), "matern32")


@pytest.mark.parametrize("on_device", (False, True))
def test_blocks_that_grow_end_in_a_direct_solve(on_device: bool) -> None:
    """At low noise blocks of 20 make no headway in 60 epochs; grown to 160, all rows, one iteration is enough."""
    problem = low_noise()
    fixed = AlternatingProjections(20, on_device=on_device)
    growing = AlternatingProjections(20, grow_after=5, on_device=on_device)
    slow = solve(fixed, problem.operator(), problem.targets, tol=1e-6, max_epochs=60)
    result = solve(growing, problem.operator(), problem.targets, tol=1e-6, max_epochs=60)
    assert not slow.converged and result.converged
    assert 15 <= result.iteration_epochs <= 24  # 5 with 20, 40 and 80 rows, checked every 8 iterations; 1 with 157
    assert result.state.block_size == 157
    assert max(problem.residuals(result.solution)) <= 1e-6


@pytest.mark.parametrize("on_device", (False, True))
@pytest.mark.parametrize("block_size", (50, 800))
def test_large_blocks_are_safe_in_float32(block_size: int, on_device: bool) -> None:
    """Their factors are float64. A float32 inverse of 800 rows, which a device takes, would diverge here."""
    x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(800, 3, generator=torch.Generator().manual_seed(1))
    targets = torch.stack([x[:, 0].sin(), x[:, 1].cos(), x.prod(1)], 1) + 0.1 * noise
    operator = ChunkedOperator(x, Matern32(), hyperparameters(0.01, 1.0, [3.0, 3.0]))
    solver = AlternatingProjections(block_size, grow_after=5, on_device=on_device)
    result = solve(solver, operator, targets, tol=0.005, max_epochs=60)
    assert result.converged and result.state.block_size == 800 and result.state.dtype == torch.float64
    again = solve(solver, operator, targets, tol=0.005, state=800)
    assert again.converged and again.iterations == 1
    easy = ChunkedOperator(x, Matern32(), hyperparameters(0.3, 1.0, [3.0, 3.0]))
    assert solve(solver, easy, targets).state.dtype == torch.float32


def test_the_next_solve_starts_with_the_grown_blocks() -> None:
    problem = low_noise()
    solver = AlternatingProjections(20, grow_after=5)
    first = solve(solver, problem.operator(), problem.targets, tol=1e-6)
    for state in (first.state, first.state.block_size):
        again = solve(solver, problem.operator(), problem.targets, tol=1e-6, state=state)
        assert again.iterations == 1 and again.converged
    assert solve(AlternatingProjections(20), problem.operator(), problem.targets, state=40).state.block_size == 20


def test_blocks_grow_no_larger_than_they_may() -> None:
    problem = low_noise()
    solver = AlternatingProjections(20, grow_after=2, largest_block=50)
    result = solve(solver, problem.operator(), problem.targets, tol=1e-9, max_epochs=12)
    assert result.state.block_size == 50 and result.stop_reason == "budget"
    assert solver.refines_within(157) == 0 and solver.refines_within(50) == float("inf")
    assert AlternatingProjections(20).refines_within(20) == 0


@pytest.mark.parametrize("options", ({"grow_after": 0}, {"grow_after": "soon"}, {"largest_block": 0}))
def test_options_of_growth_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        AlternatingProjections(20, **options)  # type: ignore[arg-type]


# -- block factors as the state ------------------------------------------------------------------------------------
def test_a_block_is_factored_once() -> None:
    problem = make_problem(kernel="matern12")
    operator = problem.operator()
    result = solve("ap", operator, problem.targets)
    assert result.iterations > 20
    assert operator.calls["block"] == 4


def test_blocks_that_are_never_worst_are_not_factored() -> None:
    problem = make_problem()
    operator = problem.operator()
    solve("ap", operator, problem.targets, max_epochs=50 / 157)
    assert operator.calls["block"] == 1


def test_the_factors_are_reused_at_the_same_theta() -> None:
    problem = make_problem(kernel="matern12")
    first = solve("ap", problem.operator(), problem.targets)
    operator = problem.operator()
    again = solve("ap", operator, problem.targets, state=first.state)
    assert operator.calls["block"] == 0
    assert torch.equal(again.solution, first.solution)
    assert again.iterations == first.iterations


@pytest.mark.parametrize(
    "theta",
    (
        hyperparameters(0.3 + 1e-12, 1.2, [0.9, 1.4, 2.0, 1.1]),
        hyperparameters(0.3, 1.3, [0.9, 1.4, 2.0, 1.1]),
        hyperparameters(0.3, 1.2, [0.9, 1.4, 2.0, 1.2]),
    ),
    ids=("noise", "signal", "length scale"),
)
def test_the_factors_are_rebuilt_at_another_theta(theta: object) -> None:
    problem = make_problem(kernel="matern12")
    state = solve("ap", problem.operator(), problem.targets).state
    kept = dict(state.factors)
    operator = problem.operator(theta=theta)
    result = solve("ap", operator, problem.targets, state=state)
    assert operator.calls["block"] == 4
    assert max(Problem(problem.x, problem.targets, theta, problem.kernel).residuals(result.solution)) <= 0.01
    assert state.factors.keys() == kept.keys()
    assert all(state.factors[k] is kept[k] for k in kept), "the caller's state is left alone"


def test_the_factors_are_rebuilt_for_another_block_size() -> None:
    problem = make_problem(kernel="matern12")
    state = solve("ap", problem.operator(), problem.targets).state
    operator = problem.operator()
    result = solve(AlternatingProjections(block_size=60), operator, problem.targets, state=state)
    assert operator.calls["block"] == 3
    assert max(problem.residuals(result.solution)) <= 0.01


@pytest.mark.parametrize("b", [1, 31, 32, 33, 100])
def test_inverses_are_packed_and_found_again(b: int) -> None:
    A = torch.randn(3, b, b, dtype=torch.float64, generator=torch.Generator().manual_seed(b))
    A = A + A.mT
    packed = pack_symmetric(A)
    assert packed.shape == (3, packed_size(b)) and packed_size(b) <= (b + 32) * (b + 64) / 2
    for matrix, numbers in zip(A, packed, strict=True):
        assert torch.equal(unpack_symmetric(numbers, b), matrix)


# -- checks and refusals -------------------------------------------------------------------------------------------
class Lying(RecordingDense):
    """An operator whose first partial product leaves almost no residual behind, and so provokes a check that fails."""

    lie: Tensor | None = None

    def columns_matmul(self, index: slice, W: Tensor) -> Tensor:
        out = super().columns_matmul(index, W)
        if self.lie is not None:
            out, self.lie = self.lie, None
        return out


@pytest.mark.parametrize(
    "max_epochs",
    (
        None,
        0.6,
    ),
)
def test_after_a_failed_check_the_worst_block_is_chosen_anew(max_epochs: float | None) -> None:
    problem = make_problem("only y", n=10)
    targets = torch.zeros(10, 1, dtype=torch.float64)
    targets[7:] = 3**-0.5  # the first iteration is on the last block, of three rows
    operator = Lying(problem.x, problem.operator().kernel, problem.theta)
    operator.lie = targets.clone()
    operator.lie[7:] -= 1e-9  # which then still looks worst
    result = solve(AlternatingProjections(block_size=7), operator, targets, max_epochs=max_epochs)
    if max_epochs is None:
        assert [rows[0] for rows in operator.partial[:2]] == [7, 0]
        assert result.converged
    else:
        assert result.iteration_epochs <= max_epochs * (1 + 1e-9)
    assert operator.calls["matmul"] == result.overhead_epochs


@pytest.mark.parametrize("block_size", (0, -5))
def test_the_block_size_must_be_positive(block_size: int) -> None:
    with pytest.raises(ValueError, match=f"block_size must be an integer of at least 1, got {block_size}"):
        AlternatingProjections(block_size)


def test_a_singular_block_is_named_in_the_error() -> None:
    problem = make_problem(n=31)
    x = problem.x.clone()
    x[21] = x[20]
    targets = problem.targets.clone()
    targets[:20] = 0
    targets[30:] = 0
    operator = Problem(x, targets, hyperparameters(1e-9, 1.0, [1.0]), "matern12").operator()  # 1 + 1e-18 is 1
    with pytest.raises(torch.linalg.LinAlgError, match=r"rows 20 to 30 of H is not positive definite.*noise_floor"):
        solve(AlternatingProjections(block_size=10), operator, targets)
