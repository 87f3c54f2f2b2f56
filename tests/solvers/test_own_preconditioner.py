"""A preconditioner of one's own: it solves, goes on from θ to θ, and survives checkpoints and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from own_parts import Blocks, FirstBlocks
from solver_problems import (
    SHAPES,
    Problem,
    assert_solved,
    dtypes,
    hyperparameters,
    make_problem,
    one_thread,  # noqa: F401
    operators,
    solve,
)
from warmgp import ConjugateGradients, GPRegressor, KernelOperator
from warmgp.files.format import FileError, read
from warmgp.solvers.preconditioners import LowRank, NearNeighbours, StaleFactor, WholeFactor

OWN = ConjugateGradients(preconditioner=FirstBlocks(20))


# -- in a solve ------------------------------------------------------------------------------------------------------
@operators
@dtypes
@pytest.mark.parametrize("shape", ("plain", *SHAPES))
def test_it_solves(shape: str, dtype: torch.dtype, kind: str) -> None:
    problem = make_problem(shape, dtype=dtype)
    result = solve(OWN, problem.operator(kind), problem.targets)
    assert_solved(problem, result, 0.01)
    assert isinstance(result.state.preconditioner, Blocks)


def test_where_it_is_the_inverse_one_iteration_is_enough() -> None:
    problem = make_problem()
    result = solve(ConjugateGradients(preconditioner=FirstBlocks(1000)), problem.operator(), problem.targets, tol=1e-8)
    assert result.iterations == 1
    torch.testing.assert_close(result.solution, problem.truth, rtol=1e-8, atol=1e-10)


def test_it_stands_in_the_place_of_low_rank_and_neighbours() -> None:
    problem = make_problem()
    operator = problem.operator()
    solve(OWN, operator, problem.targets)
    assert operator.calls["kernel_columns"] == 0
    for beside in ({"preconditioner_rank": 50}, {"neighbours": 9}, {"pivot_every": 3}):
        with pytest.raises(ValueError, match="takes the place of preconditioner_rank, pivot_every and neighbours"):
            ConjugateGradients(**beside, preconditioner=FirstBlocks(20))
    ours, given = (
        solve(solver, problem.operator(), problem.targets)
        for solver in (ConjugateGradients(12), ConjugateGradients(preconditioner=LowRank(12)))
    )
    assert torch.equal(ours.solution, given.solution)


def test_it_goes_on_from_the_one_before() -> None:
    """With the same options and the same data; otherwise it is made anew."""
    problem = make_problem()
    operator = problem.operator()
    state = solve(OWN, operator, problem.targets).state
    moved = operator.at(hyperparameters(0.25, 1.3, [1.0, 1.2, 2.0, 1.1]))
    assert solve(OWN, moved, problem.targets, state=state).state.preconditioner is state.preconditioner
    smaller = ConjugateGradients(preconditioner=FirstBlocks(10))
    assert solve(smaller, moved, problem.targets, state=state).state.preconditioner.made_by == FirstBlocks(10)
    other = make_problem()  # equal points, but other tensors
    elsewhere = solve(OWN, other.operator(), other.targets, state=state).state.preconditioner
    assert elsewhere is not state.preconditioner and isinstance(elsewhere, Blocks)


def test_a_whole_factor_takes_its_place() -> None:
    problem = make_problem()
    hard = Problem(problem.x, problem.targets, hyperparameters(0.02, 1.2, [0.9, 1.4, 2.0, 1.1]), problem.kernel)
    solver = ConjugateGradients(factor_after=5, preconditioner=FirstBlocks(20))
    result = solve(solver, hard.operator(), hard.targets, tol=1e-6)
    assert_solved(hard, result, 1e-6)
    assert isinstance(result.state.preconditioner, StaleFactor)


@pytest.mark.parametrize("wrong", ("jacobi", FirstBlocks, 5, np.eye(3)))
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="preconditioner must be a Preconditioning or None, got"):
        ConjugateGradients(preconditioner=wrong)  # type: ignore[arg-type]


# -- in a fit --------------------------------------------------------------------------------------------------------
SETTINGS: dict[str, Any] = {"n_steps": 9, "n_probes": 4, "n_features": 40, "random_state": 0, "device": "cpu"}


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)


def crashed(path: Path, solver: ConjugateGradients, step: int = 3) -> dict[str, Tensor]:
    """The tensors of the checkpoint of a fit that was cut."""

    def crash(record: Any, state: Any) -> None:
        if record.step == step:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(solver=solver, checkpoint=path, callbacks=[crash], **SETTINGS).fit(*data())
    return read(path, "checkpoint")[0]


def agree(one: GPRegressor, other: GPRegressor) -> bool:
    X, _ = data()
    return np.array_equal(one.predict(X, return_std=True), other.predict(X, return_std=True))


class Renewed(FirstBlocks):
    """The same blocks, of every θ: what a resume that has lost the first ones would make."""

    def build(self, operator: KernelOperator) -> Blocks:
        made = super().build(operator)
        made.at = lambda operator: None  # type: ignore[method-assign]
        return made


@pytest.mark.parametrize(
    ("solver", "kept"),
    [
        (OWN, "theta"),
        (ConjugateGradients(factor_after=1000, preconditioner=FirstBlocks(20)), "theta"),
        (ConjugateGradients(factor_after=2, preconditioner=FirstBlocks(20)), "factor_theta"),
    ],
    ids=["own", "before a whole factor", "a whole factor"],
)
def test_a_resume_goes_on_with_it(solver: ConjugateGradients, kept: str, tmp_path: Path) -> None:
    tensors = crashed(tmp_path / "c", solver)
    assert {name for name in tensors if "solver" in name} == {f"solver_state.{kept}"}
    resumed = GPRegressor(solver=solver, checkpoint=tmp_path / "c", **SETTINGS).fit(*data())
    whole = GPRegressor(solver=solver, **SETTINGS).fit(*data())
    assert resumed.hyperparameters_.equals(whole.hyperparameters_) and agree(resumed, whole)
    assert [step.iterations for step in resumed.history_] == [step.iterations for step in whole.history_]


def test_blocks_of_another_step_give_other_bits() -> None:
    """So the test above is one of what was kept."""
    models = [
        GPRegressor(solver=ConjugateGradients(preconditioner=way), **SETTINGS).fit(*data())
        for way in (FirstBlocks(20), Renewed(20))
    ]
    assert not agree(*models)


@pytest.mark.parametrize(
    "other",
    [
        ConjugateGradients(preconditioner=FirstBlocks(10)),
        ConjugateGradients(stall_epochs=500.0, preconditioner=FirstBlocks(20)),
        ConjugateGradients(preconditioner=LowRank(20)),
        ConjugateGradients(),
    ],
    ids=["its options", "options of the solver", "another one", "none"],
)
def test_a_checkpoint_of_another_one_is_refused(other: ConjugateGradients, tmp_path: Path) -> None:
    crashed(tmp_path / "c", OWN)
    with pytest.raises(FileError, match=r"belongs to other data or settings: .*solver.*delete it"):
        GPRegressor(solver=other, checkpoint=tmp_path / "c", **SETTINGS).fit(*data())


def test_a_model_with_it_is_saved_and_asks_for_it(tmp_path: Path) -> None:
    model = GPRegressor(solver=OWN, **SETTINGS).fit(*data())
    assert OWN.saved_name == "cg with first blocks" and ConjugateGradients().saved_name == "cg"
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m", solver=OWN)
    assert agree(loaded, model) and loaded.plan_.solver == OWN
    X, y = data()
    np.testing.assert_array_equal(loaded.sample_y(X, 9, random_state=1), model.sample_y(X, 9, random_state=1))
    for wrong in (None, ConjugateGradients(), ConjugateGradients(preconditioner=LowRank(20))):
        with pytest.raises(FileError, match=r"made with solver 'cg with first blocks', .* pass it as solver="):
            GPRegressor.load(tmp_path / "m", solver=wrong)
    assert agree(loaded.set_params(solver=OWN).fit(X, y), model)


# -- what is refused --------------------------------------------------------------------------------------------------
def test_a_whole_factor_is_for_factor_after() -> None:
    """As a preconditioner of its own it would never be renewed."""
    with pytest.raises(ValueError, match=r"use factor_after=… instead"):
        ConjugateGradients(preconditioner=WholeFactor())
    problem = make_problem()
    state = solve(ConjugateGradients(10, factor_after=1), problem.operator(), problem.targets).state
    assert state.preconditioner.made_by == WholeFactor()
    after = solve(ConjugateGradients(10), problem.operator(), problem.targets, state=state).state
    assert after.preconditioner.made_by == LowRank(10)


def test_a_preconditioner_says_what_made_it() -> None:
    class Nameless(FirstBlocks):
        def build(self, operator: KernelOperator) -> Blocks:
            made = super().build(operator)
            del made.made_by
            return made

    problem = make_problem()
    with pytest.raises(TypeError, match="Blocks must have made_by, the Nameless that built it"):
        solve(ConjugateGradients(preconditioner=Nameless(20)), problem.operator(), problem.targets)


def test_its_way_tells_how_far_the_last_solve_goes() -> None:
    near = NearNeighbours(30, LowRank(100))
    same = ConjugateGradients(100, neighbours=30), ConjugateGradients(preconditioner=near)
    assert len({solver.refines_within(1000) for solver in same}) == 1 and same[0].refines_within(1000) > 0
    assert OWN.refines_within(1000) == 0


def test_a_checkpoint_names_the_way_it_was_made() -> None:
    """No name in it can be taken for another one's, and that of another way is refused."""
    problem = make_problem()
    state = solve(OWN, problem.operator(), problem.targets).state
    tensors, content = OWN.pack(state)
    assert content["preconditioner"]["made_by"] == "first blocks"
    for made_by in ("low rank", "whole factor", "", None, 3):
        wrong = {**content, "preconditioner": {**content["preconditioner"], "made_by": made_by}}
        with pytest.raises(ValueError, match="made_by"):
            OWN.unpack(tensors, wrong, (len(problem.targets), 3))
