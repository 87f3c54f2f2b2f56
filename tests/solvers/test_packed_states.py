"""What a checkpoint holds of a solver's state: the next solve goes on to the same bits, and nonsense is refused."""

from __future__ import annotations

import json
import math
from typing import Any

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
from warmgp.solvers import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    Solver,
    SolveResult,
    StochasticGradientDescent,
)
from warmgp.solvers.block_factors import BlockFactors
from warmgp.solvers.cg import CGState
from warmgp.solvers.sgd import SGDState

KEEPERS: dict[str, tuple[Solver, set[str]]] = {
    "cg, pivots": (ConjugateGradients(10, pivot_every=5), {"pivots", "spent", "preconditioner"}),
    "cg, a whole factor": (ConjugateGradients(0, factor_after=2), {"factor_theta", "spent", "preconditioner"}),
    "cg, neighbours": (ConjugateGradients(0, neighbours=6), {"neighbour_lengths", "spent", "preconditioner"}),
    "cg, neighbours and pivots": (
        ConjugateGradients(10, pivot_every=5, neighbours=6),
        {"neighbour_lengths", "pivots", "spent", "preconditioner"},
    ),
    "cg, a whole factor after neighbours": (
        ConjugateGradients(10, 5, factor_after=2, neighbours=2),
        {"factor_theta", "spent", "preconditioner"},
    ),
    "cg, iterations spent": (ConjugateGradients(0, factor_after=40), {"spent"}),
    "ap": (AlternatingProjections(20, grow_after=1), {"block_size"}),
    "sgd": (StochasticGradientDescent(40), {"learning_rate"}),
}
"""Solvers whose next solve depends on the state of the last one, and what they keep."""

OTHERS: dict[str, Solver] = {
    "cg": ConjugateGradients(10),
    "cg, unpreconditioned": ConjugateGradients(0),
    "ap, blocks of one size": AlternatingProjections(20),
    "cholesky": Cholesky(),
}
ALL = {**{name: solver for name, (solver, _) in KEEPERS.items()}, **OTHERS}


SHAPE = (157, 4)


def theta(step: int) -> Any:
    """The θ of a training that moves a little at every step."""
    return hyperparameters(0.3 - 0.01 * step, 1.2, [0.9 + 0.06 * step, 1.4 - 0.05 * step, 2.0, 1.1 + 0.04 * step])


def step(solver: Solver, problem: Problem, operator: Any, number: int, state: Any) -> tuple[SolveResult, Any]:
    """One solve on a small budget at the θ of that step, and what is carried to the next."""
    there = operator.at(theta(number))
    result = solve(solver, there, problem.targets, tol=1e-4, max_epochs=30, seed=number, state=state)
    return result, solver.carry(result.state)


def through_json(packed: tuple[dict[str, Tensor], dict[str, Any]]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """As a file does it."""
    tensors, content = packed
    return {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(content))


def same(one: SolveResult, other: SolveResult) -> bool:
    return torch.equal(one.solution, other.solution) and one.iterations == other.iterations


# -- there and back ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL)
def test_the_next_solves_have_the_same_bits(name: str, dtype: torch.dtype) -> None:
    """Of the state itself, and of one that was packed after two steps, and packed again after each one."""
    solver, problem = ALL[name], make_problem(dtype=dtype)
    operator = problem.operator()
    state = None
    for number in range(2):
        _, state = step(solver, problem, operator, number, state)
    kept = state
    for number in range(2, 6):
        kept = solver.unpack(*through_json(solver.pack(kept)), SHAPE)
        through, state = step(solver, problem, operator, number, state)
        resumed, kept = step(solver, problem, operator, number, kept)
        assert same(resumed, through) and resumed.notes == through.notes, number


@pytest.mark.parametrize("name", KEEPERS)
def test_what_is_packed_is_all_that_matters(name: str) -> None:
    """It is there by name, it survives a resume that ends before its first step, and without it the bits differ."""
    (solver, names), problem = KEEPERS[name], make_problem()
    operator = problem.operator()
    state = first = step(solver, problem, operator, 0, None)[1]
    differ = []
    for number in range(1, 4):
        without, _ = step(solver, problem, operator, number, None)
        result, state = step(solver, problem, operator, number, state)
        differ.append(not same(result, without))
    assert any(differ)
    tensors, content = solver.pack(first)
    assert {*tensors, *content} == names
    again, anew = solver.pack(solver.unpack(*through_json((tensors, content)), SHAPE))
    assert anew == content and again.keys() == tensors.keys()
    assert all(torch.equal(again[key], tensor) for key, tensor in tensors.items())


@pytest.mark.parametrize("name", ALL)
def test_no_state_is_no_state(name: str) -> None:
    assert ALL[name].pack(None) == ({}, {})
    assert ALL[name].unpack({}, {}, SHAPE) is None
    assert ALL[name].carry(None) is None and ALL[name].in_float64(None) is None


# -- nonsense ----------------------------------------------------------------------------------------------------------
LOW, FACTOR, NEAR = ConjugateGradients(10), ConjugateGradients(0, factor_after=2), ConjugateGradients(0, neighbours=6)
BOTH, AP, SGD = ConjugateGradients(10, neighbours=6), AlternatingProjections(20), StochasticGradientDescent(40)
ROWS = torch.tensor([3, 1, 156])
LENGTHS = torch.tensor([0.9, 1.4, 2.0, 1.1], dtype=torch.float64)
THETA = torch.cat([torch.tensor([0.3, 1.2], dtype=torch.float64), LENGTHS])
PIVOTS, DIGITS = {"pivots": [10, 0], "spent": 0}, {"factor": [False, True], "spent": 0}

GOOD: dict[str, tuple[Solver, dict[str, Tensor], dict[str, Any]]] = {
    "pivots": (LOW, {"pivots": ROWS}, PIVOTS),
    "a factor": (FACTOR, {"factor_theta": THETA}, DIGITS),
    "a factor of the first version": (FACTOR, {"factor_theta": THETA}, {}),
    "neighbours": (NEAR, {"neighbour_lengths": LENGTHS}, {"spent": 0}),
    "neighbours and pivots": (BOTH, {"neighbour_lengths": LENGTHS, "pivots": ROWS}, PIVOTS),
    "one length": (NEAR, {"neighbour_lengths": LENGTHS[:1]}, {"spent": 0}),
    "spent": (FACTOR, {}, {"spent": 3}),
    "blocks": (AP, {}, {"block_size": 40}),
    "a rate": (SGD, {}, {"learning_rate": 50.0}),
}
BAD: dict[str, tuple[Solver, dict[str, Tensor], dict[str, Any]]] = {
    "a tensor of another name": (LOW, {"pivots": ROWS, "evil": ROWS}, PIVOTS),
    "a value of another name": (LOW, {"pivots": ROWS}, {**PIVOTS, "evil": 1}),
    "pivots without rows": (LOW, {}, PIVOTS),
    "rows without pivots": (LOW, {"pivots": ROWS}, {"spent": 0}),
    "rows as a matrix": (LOW, {"pivots": ROWS[None]}, PIVOTS),
    "no rows": (LOW, {"pivots": ROWS[:0]}, PIVOTS),
    "rows that are no numbers of rows": (LOW, {"pivots": ROWS.double()}, PIVOTS),
    "a row below the first": (LOW, {"pivots": ROWS - 2}, PIVOTS),
    "a row beyond the last": (LOW, {"pivots": ROWS + 1}, PIVOTS),
    "three numbers": (LOW, {"pivots": ROWS}, {"pivots": [10, 0, 0]}),
    "a negative age": (LOW, {"pivots": ROWS}, {"pivots": [10, -1]}),
    "a negative rank": (LOW, {"pivots": ROWS}, {"pivots": [-10, 0]}),
    "no rank": (LOW, {"pivots": ROWS}, {"pivots": [0, 0]}),
    "a rank in words": (LOW, {"pivots": ROWS}, {"pivots": ["ten", 0]}),
    "spent less than nothing": (LOW, {"pivots": ROWS}, {**PIVOTS, "spent": -1}),
    "spent in words": (LOW, {"pivots": ROWS}, {**PIVOTS, "spent": "0"}),
    "spent by halves": (LOW, {"pivots": ROWS}, {**PIVOTS, "spent": 0.5}),
    "a factor without factor_after": (LOW, {"factor_theta": THETA}, DIGITS),
    "neighbours without any": (LOW, {"neighbour_lengths": LENGTHS}, {"spent": 0}),
    "pivots without a low rank": (FACTOR, {"pivots": ROWS}, PIVOTS),
    "digits of no factor": (FACTOR, {}, DIGITS),
    "one digit": (FACTOR, {"factor_theta": THETA}, {"factor": [True]}),
    "digits that are numbers": (FACTOR, {"factor_theta": THETA}, {"factor": [0, 1]}),
    "a factor and pivots": (FACTOR, {"factor_theta": THETA, "pivots": ROWS}, {**DIGITS, **PIVOTS}),
    "a negative θ": (FACTOR, {"factor_theta": -THETA}, DIGITS),
    "a θ of zeros": (FACTOR, {"factor_theta": 0 * THETA}, DIGITS),
    "a θ that is no number": (FACTOR, {"factor_theta": THETA * math.nan}, DIGITS),
    "a θ in float32": (FACTOR, {"factor_theta": THETA.float()}, DIGITS),
    "a θ as a matrix": (FACTOR, {"factor_theta": THETA[None]}, DIGITS),
    "a θ without lengths": (FACTOR, {"factor_theta": THETA[:2]}, DIGITS),
    "a θ of one number": (FACTOR, {"factor_theta": THETA[:1]}, DIGITS),
    "a θ of other inputs": (FACTOR, {"factor_theta": THETA[:-1]}, DIGITS),
    "lengths of other inputs": (NEAR, {"neighbour_lengths": LENGTHS[:-1]}, {}),
    "neighbours without lengths": (NEAR, {}, {"evil": 1}),
    "lengths as a matrix": (NEAR, {"neighbour_lengths": LENGTHS[None]}, {}),
    "infinite lengths": (NEAR, {"neighbour_lengths": LENGTHS / 0}, {}),
    "negative lengths": (NEAR, {"neighbour_lengths": -LENGTHS}, {}),
    "neighbours with pivots of no low rank": (NEAR, {"neighbour_lengths": LENGTHS, "pivots": ROWS}, PIVOTS),
    "neighbours with half of pivots": (BOTH, {"neighbour_lengths": LENGTHS, "pivots": ROWS}, {"spent": 0}),
    "anything unpreconditioned": (ConjugateGradients(0), {"pivots": ROWS}, PIVOTS),
    "no block": (AP, {}, {"block_size": 0}),
    "a negative block": (AP, {}, {"block_size": -5}),
    "half a block": (AP, {}, {"block_size": 20.5}),
    "true as a block": (AP, {}, {"block_size": True}),
    "another name for a block": (AP, {}, {"block": 20}),
    "a tensor of blocks": (AP, {"block_size": ROWS}, {}),
    "no rate": (SGD, {}, {"learning_rate": 0}),
    "a negative rate": (SGD, {}, {"learning_rate": -1.0}),
    "an infinite rate": (SGD, {}, {"learning_rate": math.inf}),
    "a rate that is no number": (SGD, {}, {"learning_rate": math.nan}),
    "a rate in words": (SGD, {}, {"learning_rate": "auto"}),
    "another name for a rate": (SGD, {}, {"rate": 1.0}),
    "a tensor of rates": (SGD, {"learning_rate": LENGTHS}, {}),
    "anything exact": (Cholesky(), {}, {"spent": 0}),
    "any tensor of what is exact": (Cholesky(), {"factor": THETA}, {}),
}


@pytest.mark.parametrize(("solver", "tensors", "content"), GOOD.values(), ids=GOOD)
def test_what_can_be_is_taken(solver: Solver, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
    """And solved with: else nothing below would be refused for what its name says."""
    problem = make_problem()
    state = solver.unpack(tensors, content, SHAPE)
    assert state is not None
    assert solve(solver, problem.operator(), problem.targets, state=state).converged


@pytest.mark.parametrize(("solver", "tensors", "content"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_refused(solver: Solver, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"has|lacks|must"):
        solver.unpack(tensors, content, SHAPE)


# -- what the next θ may keep ------------------------------------------------------------------------------------------
def test_factors_of_one_h_are_let_go_of() -> None:
    problem = make_problem()
    ap = AlternatingProjections(20, grow_after=1)
    result = solve(ap, problem.operator(), problem.targets, tol=1e-6, max_epochs=30)
    assert isinstance(result.state, BlockFactors) and result.state.block_size > 20
    assert ap.carry(result.state) == result.state.block_size
    assert ap.carry(40) == 40
    exact = solve("cholesky", problem.operator(), problem.targets)
    assert exact.state.factor.shape == (157, 157) and Cholesky().carry(exact.state) is None
    for solver in (LOW, FACTOR, NEAR, SGD):  # theirs is good for another θ
        state = solve(solver, problem.operator(), problem.targets).state
        assert solver.carry(state) is state


def test_what_a_state_is_worth_in_float64() -> None:
    """What was made from float32 inputs is not; a size and a rate are."""
    problem = make_problem(dtype=torch.float32)
    for solver in (LOW, FACTOR, NEAR):
        state = solve(solver, problem.operator(), problem.targets).state
        assert isinstance(state, CGState) and solver.in_float64(state) is None
    assert AlternatingProjections(20).in_float64(40) == 40
    assert SGD.in_float64(SGDState(5.0)) == SGDState(5.0)
    assert Cholesky().in_float64(None) is None
