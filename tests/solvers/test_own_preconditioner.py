"""A preconditioner of one's own: it solves, goes on from θ to θ, and survives checkpoints and files."""

from __future__ import annotations

from dataclasses import dataclass
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
from warmgp.solvers.base import Packed
from warmgp.solvers.preconditioners import LowRank, Preconditioner, Preconditioning, Recipe, StaleFactor

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
    both = ConjugateGradients(50, neighbours=9, preconditioner=FirstBlocks(20))
    assert torch.equal(
        solve(both, operator, problem.targets).solution, solve(OWN, problem.operator(), problem.targets).solution
    )
    assert operator.calls["kernel_columns"] == 0
    ours, given = (
        solve(solver, problem.operator(), problem.targets)
        for solver in (ConjugateGradients(12), ConjugateGradients(0, preconditioner=LowRank(12)))
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
        ConjugateGradients(50, preconditioner=FirstBlocks(20)),
        ConjugateGradients(preconditioner=LowRank(20)),
        ConjugateGradients(),
    ],
    ids=["its options", "options of the solver", "another one", "none"],
)
def test_a_checkpoint_of_another_one_is_refused(other: ConjugateGradients, tmp_path: Path) -> None:
    crashed(tmp_path / "c", OWN)
    with pytest.raises(FileError, match=r"belongs to other data or settings: delete it .*What differs: solver"):
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


# -- names that conjugate gradients keep for themselves ----------------------------------------------------------------
@dataclass(frozen=True)
class Named(FirstBlocks):
    """Packs something under any name."""

    packed: str = "theta"
    tensor: bool = False

    def build(self, operator: KernelOperator) -> Blocks:
        made = super().build(operator)
        made.__class__ = _NamedBlocks
        return made


class _NamedBlocks(Blocks):
    @property
    def recipe(self) -> Recipe:
        return _NamedRecipe(self.made_by)


class _NamedRecipe(Recipe):
    def __init__(self, made_by: Preconditioning) -> None:
        self.made_by = made_by

    def at(self, operator: KernelOperator) -> Preconditioner:
        return self.made_by.build(operator)

    def pack(self) -> Packed:
        assert isinstance(self.made_by, Named)
        return ({self.made_by.packed: torch.ones(3)}, {}) if self.made_by.tensor else ({}, {self.made_by.packed: 2.0})


@pytest.mark.parametrize(("name", "tensor"), [("spent", False), ("factor", False), ("factor_theta", True)])
def test_names_of_the_solver_itself_are_refused_at_the_first_step(name: str, tensor: bool, tmp_path: Path) -> None:
    """They would be read as something else."""
    solver = ConjugateGradients(preconditioner=Named(20, name, tensor))
    with pytest.raises(ValueError, match=rf"preconditioner 'first blocks' packs '{name}', .*: choose another name"):
        GPRegressor(solver=solver, checkpoint=tmp_path / "c", **SETTINGS).fit(*data())
    assert read(tmp_path / "c", "checkpoint")[1]["step"] == 0
