"""float32 watched against float64: what is found, when it is left, and that the answer is then float64's."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gp_truth import toy
from warmgp import (
    RBF,
    AlternatingProjections,
    ConjugateGradients,
    DenseOperator,
    GPRegressor,
    Hyperparameters,
    Pathwise,
    Solver,
    Standard,
    StochasticGradientDescent,
    StoppingRule,
    TrainingOptions,
    train,
)
from warmgp.kernels import get_kernel
from warmgp.training import Problem, TrainingState
from warmgp.training.loop import train_only
from warmgp.training.precision import ROWS, doubts, spot_residuals

KERNEL = get_kernel("matern32")


def problem(n: int, noise: float, dtype: torch.dtype) -> tuple[DenseOperator, torch.Tensor]:
    x, y = toy(n, 2)
    return DenseOperator(x.to(dtype), KERNEL, Hyperparameters(noise, 1.0, [1.0, 1.0])), y.to(dtype)


@pytest.mark.parametrize("n", [60, ROWS, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_estimate_is_the_residual(n: int, dtype: torch.dtype) -> None:
    """Exactly so when all rows are taken; within 30% of it from 256 of 700 rows."""
    operator, y = problem(n, 0.3, dtype)
    b = torch.stack([y, 2.0 * y.roll(3), y.roll(9)], 1)
    v = 0.5 * torch.linalg.solve(operator.H.double(), b.double()).to(dtype)
    v += 0.1 * torch.randn(v.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    double = operator.x.double()
    H = DenseOperator(double, KERNEL, operator.theta).H
    r = (b.double() - H @ v.double()).norm(dim=0) / b.double().norm(dim=0)
    truth = float(r[0]), float(r[1:].mean())
    assert spot_residuals(Problem(operator, y), b, v) == pytest.approx(truth, rel=1e-9 if n <= ROWS else 0.3)


def test_a_zero_target_counts_as_it_is() -> None:
    operator, y = problem(50, 0.3, torch.float32)
    b = torch.stack([y, torch.zeros_like(y)], 1)
    assert spot_residuals(Problem(operator, y), b, torch.zeros_like(b)) == pytest.approx((1.0, 0.0))


def test_an_honest_solve_raises_no_doubts() -> None:
    operator, y = problem(400, 0.3, torch.float32)
    b = torch.stack([y, y.flip(0)], 1)
    result = ConjugateGradients().solve(operator, b, rule=StoppingRule(0.01))
    assert result.converged and doubts(Problem(operator, y), b, result, 0.01) == ""


def test_a_wrong_report_is_found_in_either_system() -> None:
    operator, y = problem(400, 0.3, torch.float32)
    b = torch.stack([y, y.flip(0)], 1)
    result = ConjugateGradients().solve(operator, b, rule=StoppingRule(0.01))
    for column, name in ((0, "mean"), (1, "probe")):
        wrong = result.solution.clone()
        wrong[:, column] *= 1.05
        told = doubts(Problem(operator, y), b, replace(result, solution=wrong), 0.01)
        assert told.startswith(f"float32 reported a {name} residual of") and "float64 finds" in told
    halted = replace(result, stop_reason="stagnated")
    assert "stagnated" in doubts(Problem(operator, y), b, halted, 0.01)
    assert doubts(Problem(operator, y), b, halted, 0.01, stalled=0.01) == ""  # as good as one whose budget was spent
    halted = replace(halted, residual_mean=0.02)
    assert "stagnated at a residual of 0.02" in doubts(Problem(operator, y), b, halted, 0.01, stalled=0.01)


def low_noise(n: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    """Rough targets on close points: a model with next to no noise can only reach them with a huge v."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 2, dtype=torch.float64, generator=generator)
    return x, torch.randn(n, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("gradient", [Pathwise(6, 400), Standard(6)])
def test_training_goes_over_to_float64_and_on_to_its_answer(gradient: Pathwise | Standard) -> None:
    x, y = low_noise()
    theta = Hyperparameters(1e-3, 1.0, [1.0, 1.0])
    options = TrainingOptions(
        ConjugateGradients(0, factor_after=3), gradient, n_steps=3, learning_rate=1e-3, n_features=400
    )

    def double() -> Problem:
        return Problem(DenseOperator(x, KERNEL, theta), y)

    single = DenseOperator(x.float(), KERNEL, theta)
    result = train(single, y.float(), options, generator=torch.Generator().manual_seed(0), promote=double)
    truth = train(double().operator, y, options, generator=torch.Generator().manual_seed(0))
    notes = [note for record in result.history for note in record.notes]
    assert sum("float64 from here on" in note for note in notes) == 1
    [again] = [record for record in result.history if record.notes]
    assert again.epochs > again.iteration_epochs + 2  # start and check of this solve, and all of the lost one
    assert result.state.elapsed == pytest.approx(sum(record.step_seconds for record in result.history))
    assert result.posterior.x.dtype == torch.float64 and result.final.converged
    torch.testing.assert_close(result.theta.vector, truth.theta.vector, rtol=1e-3, atol=0)
    H = double().operator.at(result.theta).H
    v = result.posterior.solution[:, 0]
    assert float((y - H @ v).norm() / y.norm()) <= 0.0105  # the true residual of what was reported


@pytest.mark.parametrize(
    ("solver", "kept"),
    [
        (AlternatingProjections(20), True),
        (StochasticGradientDescent(20), True),
        (ConjugateGradients(10, pivot_every=9), False),
    ],
)
def test_a_state_goes_over_as_its_parts_say(solver: Solver, kept: bool) -> None:
    """Solutions and probes in float64; a block size and a rate as they are; no preconditioner of rounded inputs."""
    states: list[TrainingState] = []
    options = TrainingOptions(solver, Pathwise(4, 100), n_steps=1, n_features=100)
    operator, y = problem(80, 0.3, torch.float32)
    generator = torch.Generator().manual_seed(0)
    train(operator, y, options, generator=generator, callbacks=[lambda record, state: states.append(state)])
    [state] = states
    moved = state.in_float64(options)
    assert state.solution.dtype == torch.float32 and state.solver_state is not None
    assert moved.solution.dtype == torch.float64 and torch.equal(moved.solution, state.solution.double())
    assert moved.draw.noise.dtype == torch.float64 and moved.draw.prior.frequencies.dtype == torch.float64
    assert moved.solver_state == (state.solver_state if kept else None)
    assert moved.nu is state.nu and moved.history is state.history


def test_without_a_way_out_float32_stays_float32() -> None:
    x, y = low_noise()
    single = DenseOperator(x.float(), KERNEL, Hyperparameters(1e-3, 1.0, [1.0, 1.0]))
    options = TrainingOptions(ConjugateGradients(0, factor_after=3), Pathwise(6, 400), n_steps=1, n_features=400)
    result = train(single, y.float(), options, generator=torch.Generator().manual_seed(0))
    assert result.posterior.x.dtype == torch.float32


def test_the_regressor_tells_and_resumes_a_promoted_training(tmp_path: Path) -> None:
    """Bit for bit: the checkpoint's solutions are float64, and so is what goes on from them.

    Float32 leaves 0.006 to 0.01 here, as the CPU rounds: far from the tolerance.
    """
    x, y = low_noise()
    X, t = x.numpy(), y.numpy()
    settings = {
        "solver": "cg", "n_steps": 5, "learning_rate": 1e-3, "init": Hyperparameters(1e-3, 1.0, [1.0, 1.0]),
        "n_probes": 5, "n_features": 300, "random_state": 0, "noise_floor": 1e-6, "device": "cpu", "tol": 0.001,
    }  # fmt: skip
    whole = GPRegressor(**settings).fit(X, t)
    assert whole.plan_.dtype == torch.float32 and whole.plan_.promote
    assert any("float64 from here on" in note for record in whole.history_ for note in record.notes)
    path = tmp_path / "checkpoint"

    def crash(record: object, state: object) -> None:
        if record.step == 2:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(checkpoint=path, callbacks=[crash], **settings).fit(X, t)
    model = GPRegressor(checkpoint=path, **settings).fit(X, t)
    assert model.hyperparameters_.equals(whole.hyperparameters_) and model.n_steps_ == 5
    np.testing.assert_array_equal(model.predict(X, return_std=True), whole.predict(X, return_std=True))
    assert "(float64 if that is not enough)" in str(model.plan_)


def test_a_dtype_of_ones_own_is_kept() -> None:
    x, y = low_noise(120)
    settings = {"solver": "cg", "n_steps": 1, "n_features": 100, "n_probes": 3, "random_state": 0}
    for dtype in (torch.float32, torch.float64):
        model = GPRegressor(dtype=dtype, **settings).fit(x.numpy(), y.numpy())
        assert model.posterior_.x.dtype == dtype and not model.plan_.promote


class Fragile(ConjugateGradients):
    """Cannot factor anything in float32, as a solver of one's own might not."""

    def solve(self, operator, *arguments, **options):  # type: ignore[no-untyped-def]
        if operator.dtype == torch.float32:
            raise torch.linalg.LinAlgError("a block is not positive definite")
        return super().solve(operator, *arguments, **options)


def test_errors_of_float32_are_lost_precision_too() -> None:
    operator, y = problem(80, 0.3, torch.float32)
    options = TrainingOptions(Fragile(20), Pathwise(4, 100), n_steps=2, n_features=100)

    def double() -> Problem:
        return Problem(*problem(80, 0.3, torch.float64))

    generator = torch.Generator().manual_seed(0)
    result = train(operator, y, options, generator=generator, promote=double)
    assert "float32 failed: a block is not positive definite" in result.history[0].notes[0]
    assert result.posterior.x.dtype == torch.float64
    with pytest.raises(torch.linalg.LinAlgError):
        train(operator, y, options, generator=generator)


@pytest.mark.parametrize(("left", "goes_over"), [(0.03, False), (0.05, True)])
def test_a_step_on_a_budget_may_stagnate_at_what_a_budget_may_leave(
    left: float, goes_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the tolerance, as where its epochs were spent."""
    operator, y = problem(80, 0.3, torch.float32)
    solve = ConjugateGradients.solve

    def halted(self: ConjugateGradients, this: Any, *args: Any, **options: Any) -> Any:
        found = solve(self, this, *args, **options)
        return replace(found, stop_reason="stagnated", residual_mean=left) if this.dtype == torch.float32 else found

    monkeypatch.setattr(ConjugateGradients, "solve", halted)
    options = TrainingOptions(ConjugateGradients(20), Pathwise(4, 100), StoppingRule(0.01, 50.0), n_steps=1)
    state = train_only(
        Problem(operator, y, promote=lambda: Problem(*problem(80, 0.3, torch.float64))), options,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert state.solution.dtype == (torch.float64 if goes_over else torch.float32)


@pytest.mark.parametrize(
    ("left", "noise", "goes_over"),
    [(0.9, 1e-4, False), (1.0, 1e-4, True), (9.6, 1e-4, True), (9.6, 0.3, False), (math.nan, 1e-4, True)],
)
def test_a_step_that_leaves_no_less_than_zero_does_is_not_taken_where_rounding_may_be_the_reason(
    left: float, noise: float, goes_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On one H200 two such steps (2.4 of the targets left, 9.6 of the probes) led 28 steps in float64 astray.
    operator, y = problem(80, noise, torch.float32)
    solve, starts = ConjugateGradients.solve, []

    def spent(self: ConjugateGradients, this: Any, targets: Any, start: Any = None, **options: Any) -> Any:
        starts.append(start)
        found = solve(self, this, targets, start, **options)
        if this.dtype == torch.float64:
            return found
        return replace(found, stop_reason="budget", residual_mean=left, residual_probes=left)

    monkeypatch.setattr(ConjugateGradients, "solve", spent)
    options = TrainingOptions(ConjugateGradients(20), Pathwise(4, 100), StoppingRule(0.01, 50.0), n_steps=3)

    def double() -> Problem:
        return Problem(*problem(80, noise, torch.float64))

    state = train_only(Problem(operator, y, promote=double), options, generator=torch.Generator().manual_seed(0))
    assert state.solution.dtype == (torch.float64 if goes_over else torch.float32)
    if goes_over:
        assert "no less than no solve at all" in state.history[0].notes[0]
        assert starts[1] is None  # nor does the solve in float64 begin at what was found
        alone = train_only(double(), options, generator=torch.Generator().manual_seed(0))
        assert torch.allclose(state.theta.vector, alone.theta.vector, rtol=1e-4)


def late_doubts(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """float32 is trusted in every step and not in the last solve."""
    asked: list[int] = []

    def doubt(*_: object, **__: object) -> str:
        asked.append(1)
        return "late" if len(asked) > steps else ""

    monkeypatch.setattr("warmgp.training.precision.doubts", doubt)


def test_a_last_solve_that_float32_cannot_refine_is_done_in_float64() -> None:
    """Near neighbours get to the tolerance in float32 and not to 3% of the noise; it is left after 50 epochs."""
    x = torch.linspace(-2, 2, 400, dtype=torch.float64)[:, None]
    y, theta = torch.sin(5 * x[:, 0]), Hyperparameters(0.0015, 1.0, [0.3])

    def made(dtype: torch.dtype) -> Problem:
        return Problem(DenseOperator(x.to(dtype), RBF(), theta), y.to(dtype))

    single = made(torch.float32)
    options = TrainingOptions(ConjugateGradients(10, neighbours=10), Pathwise(4, 200), n_steps=1, learning_rate=1e-6)
    result = train(
        single.operator,
        single.y,
        options,
        generator=torch.Generator().manual_seed(0),
        promote=lambda: made(torch.float64),
    )
    assert single.operator.dtype == torch.float32 and result.posterior.x.dtype == torch.float64
    [note] = result.history[-1].notes
    assert note.startswith("the last solve in float64: float32 stagnated")
    assert result.final.converged and result.final.residual_mean < 0.1 * 0.0015
    alone = train(single.operator, single.y, options, generator=torch.Generator().manual_seed(0))
    assert alone.final.stop_reason == "stagnated" and alone.final.iterations <= 50
    assert alone.final.converged == (max(alone.final.residual_mean, alone.final.residual_probes) <= 0.01)


def test_a_promotion_of_the_last_solve_is_in_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    late_doubts(monkeypatch, 2)
    operator, y = problem(80, 0.3, torch.float32)
    options = TrainingOptions(ConjugateGradients(20), Pathwise(4, 100), n_steps=2, n_features=100)

    def double() -> Problem:
        return Problem(*problem(80, 0.3, torch.float64))

    result = train(operator, y, options, generator=torch.Generator().manual_seed(0), promote=double)
    assert result.history[-1].notes == ("the last solve in float64: late",)
    assert result.posterior.x.dtype == torch.float64 and result.final.converged


def test_ctrl_c_in_a_promoted_last_solve_keeps_what_belongs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    late_doubts(monkeypatch, 2)
    operator, y = problem(80, 0.3, torch.float32)
    options = TrainingOptions(ConjugateGradients(20), Pathwise(4, 100), n_steps=2, n_features=100)

    def pressed() -> Problem:
        raise KeyboardInterrupt

    result = train(operator, y, options, generator=torch.Generator().manual_seed(0), promote=pressed)
    assert result.stopped_early == "interrupted" and result.posterior.x.dtype == torch.float32
    theta = result.posterior.theta
    H = DenseOperator(operator.x.double(), KERNEL, theta).H
    v = result.posterior.solution[:, 0].double()
    assert float((y.double() - H @ v).norm() / y.norm()) <= 0.0105  # v and θ are of the same step


def test_float32_is_not_tried_where_rounding_leaves_too_much() -> None:
    """Before a step and before the last solve: a thousand epochs in float32 would end nowhere."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (300, 3))
    y = np.sin(X).sum(1) + 0.3 * rng.normal(size=300)
    far = Hyperparameters(0.1, 200.0, [20.0] * 3)
    settings = {"init": far, "solver": "cg", "n_probes": 4, "random_state": 0, "device": "cpu"}
    for steps in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of hyperparameters that do not fit
            model = GPRegressor("matern52", n_steps=steps, **settings).fit(X, y)
        assert model.posterior_.x.dtype == torch.float64 and model.converged_
        assert "float64" in str(model.report_).lower()
        assert sum(record.epochs for record in model.history_) < 400
