"""The noise that few rows vouch for, against dense float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gp_truth import posterior
from warmgp import GPRegressor, Hyperparameters, Matern12
from warmgp.gradient import Exact, Pathwise
from warmgp.operators import make_operator
from warmgp.operators.row_noise import RowNoise
from warmgp.solvers import Cholesky, ConjugateGradients, RecombinedProjections, StoppingRule
from warmgp.training import Problem, TrainingOptions, train_problem
from warmgp.training import loop as loop_module
from warmgp.training.last_solve import Finished
from warmgp.training.state import TrainingState
from warmgp.training.vouched_noise import SHARE, least_noise, own_roots


def rough(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points, and a draw of Matérn-1/2 there, without noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, d))
    r = np.linalg.norm(x[:, None] - x[None], axis=-1) / 0.7
    return x, np.linalg.cholesky(np.exp(-r) + 1e-10 * np.eye(n)) @ rng.normal(size=n)


# -- the number ------------------------------------------------------------------------------------------------------
def test_it_is_a_share_of_what_the_best_known_tenth_of_rows_are_known_to() -> None:
    stds = torch.cat([torch.full((9,), 1e-4), torch.linspace(0.5, 2.0, 91)]).double()
    roots = (1 / stds[torch.randperm(100)])[:, None]
    assert least_noise(roots, None, 0.2) == pytest.approx(0.2 * 0.5166666666)  # the tenth row, counted from 0, says it
    more = torch.cat([torch.full((12,), 1e-4), torch.linspace(0.5, 2.0, 88)]).double()
    assert least_noise(1 / more[:, None], None, 0.2) == pytest.approx(0.2e-4)
    for n in (1, 2, 9):
        assert least_noise(torch.full((n, 1), 4.0).double(), None, 0.2) == pytest.approx(0.05)
    assert least_noise(torch.zeros(5, 1).double(), None, 0.2) == 0.0  # no solve has come to any row


def test_roots_of_the_diagonal_come_from_samples() -> None:
    x, _ = rough(60, 2, 0)
    theta = Hyperparameters.from_vector(torch.tensor([0.1, 1.0, 0.7, 0.7], dtype=torch.float64))
    H = make_operator("dense", torch.tensor(x), Matern12(), theta).matmul(torch.eye(60, dtype=torch.float64))
    b = torch.linalg.cholesky(H) @ torch.randn(60, 20_000, dtype=torch.float64, generator=torch.manual_seed(0))
    found, true = own_roots(torch.linalg.solve(H, b)), torch.linalg.inv(H).diagonal().sqrt()
    assert (found[:, 0] / true - 1).abs().max() < 4 / 40_000**0.5


def test_weights_and_known_errors_of_rows() -> None:
    roots = torch.full((10, 1), 2.0, dtype=torch.float64)
    weighted = RowNoise(torch.full((10,), 0.25, dtype=torch.float64), torch.zeros(10, dtype=torch.float64))
    assert least_noise(roots, weighted, 0.2) == pytest.approx(2 * least_noise(roots, None, 0.2))
    known = RowNoise(torch.ones(10, dtype=torch.float64), torch.full((10,), 0.01, dtype=torch.float64))
    assert least_noise(roots, known, 0.2) == 0.0


# -- training --------------------------------------------------------------------------------------------------------
def trained(x: np.ndarray, y: np.ndarray, noise: float, share: float, solver: object) -> object:
    """A model at θ that was found, so to speak: no step is taken."""
    theta = Hyperparameters.from_vector(torch.tensor([noise, 1.0, *[0.7] * x.shape[1]], dtype=torch.float64))
    gradient = Exact() if isinstance(solver, Cholesky) else Pathwise(64, 2000)
    dtype = torch.float64 if isinstance(solver, Cholesky) else torch.float32
    options = TrainingOptions(
        solver, gradient, rule=StoppingRule(0.001), n_steps=0, noise_floor=1e-4, refine=True, vouched_share=share
    )  # fmt: skip

    def problem(of: torch.dtype) -> Problem:
        return Problem(make_operator("dense", torch.tensor(x, dtype=of), Matern12(), theta), torch.tensor(y, dtype=of))

    made = Problem(
        problem(dtype).operator, problem(dtype).y, original=(torch.tensor(x), torch.tensor(y)),
        promote=None if dtype == torch.float64 else lambda: problem(torch.float64),
    )  # fmt: skip
    return train_problem(made, options, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "solver", [Cholesky(), ConjugateGradients(0, factor_after=5), RecombinedProjections(100)], ids=lambda s: s.name
)
def test_a_model_has_as_much_noise_as_is_vouched_for_and_is_exact_there(solver: object) -> None:
    x, y = rough(300, 2, 1)
    x, y = np.r_[x, x[:6]], np.r_[y, y[:6]]  # six rows are there twice
    found = trained(x, y, 0.002, SHARE, solver)
    theta, noise = found.theta, float(found.theta.noise_scale)
    K = np.exp(-np.linalg.norm(x[:, None] - x[None], axis=-1) / 0.7)
    stds = np.sort(1 / np.sqrt(np.diag(np.linalg.inv(K + 0.002**2 * np.eye(306)))))
    assert found.noise_found == pytest.approx(0.002)
    assert noise == pytest.approx(SHARE * stds[30], rel=0.15)  # 64 samples know it so far
    assert found.final.converged and found.accuracy.suffices
    new = np.random.default_rng(2).uniform(-1, 1, size=(50, 2))
    mean, covariance = posterior("matern12", torch.tensor(x), torch.tensor(y), torch.tensor(new), theta)
    ours = found.posterior.mean(torch.tensor(new, dtype=found.posterior.x.dtype)).double()
    assert ((ours - mean).abs() / covariance.diagonal().sqrt()).max() < 0.1
    assert trained(x, y, 0.002, 0.0, solver).noise_found is None


def test_more_than_a_tenth_of_rows_vouch_for_no_noise() -> None:
    x, y = rough(200, 2, 3)
    x, y = np.r_[x, x[:30]], np.r_[y, y[:30]]
    found = trained(x, y, 0.002, SHARE, Cholesky())
    assert found.noise_found is None and float(found.theta.noise_scale) == pytest.approx(0.002)


def spoilt(result: tuple[TrainingState, Finished]) -> tuple[TrainingState, Finished]:
    """A last solve that says of itself that time was over."""
    state, made = result
    return state, replace(made, final=replace(made.final, converged=False, stop_reason="time"))


@pytest.mark.parametrize(
    ("second", "ended"),
    [
        (KeyboardInterrupt(), "interrupted"), (FloatingPointError("lost"), ""), (MemoryError("no memory"), ""),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), ""), (spoilt, ""),
    ],
)  # fmt: skip
def test_what_ends_the_second_solve_leaves_the_first(
    monkeypatch: pytest.MonkeyPatch, second: BaseException | Callable[..., Any], ended: str
) -> None:
    x, y = rough(150, 2, 4)
    whole, calls = loop_module._last, []

    def fails(*arguments: Any) -> tuple[TrainingState, Finished]:
        calls.append(1)
        if len(calls) == 2 and isinstance(second, BaseException):
            raise second
        return second(whole(*arguments)) if len(calls) == 2 else whole(*arguments)

    monkeypatch.setattr(loop_module, "_last", fails)
    found = trained(x, y, 0.002, SHARE, Cholesky())
    assert len(calls) == 2 and found.stopped_early == ended and found.noise_found is None
    assert float(found.theta.noise_scale) == pytest.approx(0.002) and found.final.converged
    literal = trained(x, y, 0.002, 0.0, Cholesky()).posterior
    at = torch.tensor([[0.1, 0.2]], dtype=torch.float64)
    assert torch.allclose(found.posterior.mean(at), literal.mean(at))
    assert torch.allclose(found.posterior.covariance(at), literal.covariance(at)) and found.posterior.factor is not None


def test_an_error_that_is_no_matter_of_numbers_or_memory_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = loop_module._last, []

    def fails(*arguments: Any) -> tuple[TrainingState, Finished]:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("a mistake")
        return whole(*arguments)

    monkeypatch.setattr(loop_module, "_last", fails)
    with pytest.raises(RuntimeError, match="a mistake"):
        trained(*rough(150, 2, 4), 0.002, SHARE, Cholesky())


# -- the estimator ---------------------------------------------------------------------------------------------------
def test_a_row_that_contradicts_its_copy_is_not_predicted_far_too_surely() -> None:
    x, y = rough(520, 2, 5)
    known, there = slice(0, 500), slice(500, 520)
    X, Y = np.r_[x[known], x[:12]], np.r_[y[known], y[:12]]
    model = GPRegressor("matern12", random_state=0).fit(X, Y)
    found = [remark for remark in model.report_.remarks if "few rows vouch" in remark]
    assert len(found) == 1 and model.converged_
    literal = GPRegressor("matern12", noise_floor=1e-4, random_state=0).fit(X, Y)
    assert not any("few rows vouch" in remark for remark in literal.report_.remarks)

    def density(one: GPRegressor, at: np.ndarray, of: np.ndarray) -> float:
        mean, std = one.predict(at, return_std=True)
        return float(np.mean(-0.5 * ((of - mean) / std) ** 2 - np.log(std)))

    again = x[:1], y[:1] + 0.5  # measured once more, with another result
    assert density(literal, *again) < -1e3
    assert density(model, *again) > -80.0
    assert abs(density(model, x[there], y[there]) - density(literal, x[there], y[there])) < 0.05
    assert model.noise_std_ > 20 * literal.noise_std_


def test_named_steps_and_known_noise_are_taken_literally() -> None:
    x, y = rough(120, 2, 6)
    for settings, fit in (({"n_steps": 20}, {}), ({}, {"noise_variance": np.full(120, 1e-6)})):
        model = GPRegressor("matern12", random_state=0, **settings).fit(x, y, **fit)
        assert not any("few rows vouch" in remark for remark in model.report_.remarks)
    smooth = GPRegressor("rbf", random_state=0).fit(x, np.sin(2 * x[:, 0]) + x[:, 1])  # dense in data, without noise
    assert float(smooth.hyperparameters_.noise_scale) < 1e-3


def test_a_checkpoint_of_a_number_goes_on_by_auto_and_ends_as_a_fit_by_it(tmp_path: Path) -> None:
    """Steps are the same: "auto" asks for more only of the model that is made after them."""
    x, y = rough(90, 2, 7)
    x, y = np.r_[x, x[:4]], np.r_[y, y[:4]]
    settings = {"kernel": "matern12", "solver": "cg", "init": "ones", "random_state": 0}
    told = {**settings, "checkpoint": tmp_path / "run.ckpt"}
    literal = GPRegressor(**told, noise_floor=1e-4).fit(x, y)
    resumed, whole = GPRegressor(**told).fit(x, y), GPRegressor(**settings).fit(x, y)
    assert resumed.history_ == literal.history_ and len(whole.history_) == len(resumed.history_)
    assert resumed.hyperparameters_.equals(whole.hyperparameters_)
    assert np.allclose(resumed.predict(x + 0.01), whole.predict(x + 0.01), rtol=1e-9, atol=1e-9)
    assert float(whole.hyperparameters_.noise_scale) > 3 * float(literal.hyperparameters_.noise_scale)
    whole.save(tmp_path / "model")
    again = GPRegressor.load(tmp_path / "model")
    assert again.noise_floor == "auto" and again.report_.remarks == whole.report_.remarks


def test_an_update_with_steps_keeps_the_noise_vouched_for() -> None:
    x, y = rough(160, 2, 8)
    model = GPRegressor("matern12", random_state=0).fit(np.r_[x[:120], x[:4]], np.r_[y[:120], y[:4]])
    before = model.noise_std_
    assert any("few rows vouch" in remark for remark in model.report_.remarks)
    model.update(x[120:], y[120:], n_steps=60)
    assert model.noise_std_ > 0.6 * before and any("few rows vouch" in remark for remark in model.report_.remarks)
    theta = Hyperparameters(0.001, 1.0, [1.0, 1.0])
    literal = GPRegressor("matern12", init=theta, n_steps=1, random_state=0)
    literal.fit(np.r_[x[:120], x[:4]], np.r_[y[:120], y[:4]]).update(x[120:], y[120:], n_steps=1)
    assert float(literal.hyperparameters_.noise_scale) < 0.005
