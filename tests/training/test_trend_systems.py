"""The trend's systems: every solver on every operator finds the coefficients, and the gradient is the profile's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from training_problems import options, seeded
from trend_truth import kriging, monomials, profile_likelihood
from warmgp import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    Exact,
    Hyperparameters,
    RecombinedProjections,
    StochasticGradientDescent,
    StoppingRule,
)
from warmgp.kernels import get_kernel
from warmgp.operators import make_operator
from warmgp.solvers import Solver, SolveResult
from warmgp.training.loop import train_problem
from warmgp.training.precision import PrecisionLostError
from warmgp.training.problem import Problem
from warmgp.training.step import initial_state, take_step
from warmgp.training.trend import covariance, folded
from warmgp.trend import Basis, TrendColumns, TrendSolution, terms_of

THETA = Hyperparameters(*(torch.tensor(v, dtype=torch.float64) for v in (0.2, 0.9, [0.6, 1.5])))
SOLVERS: dict[str, Solver] = {
    "cg": ConjugateGradients(0),
    "factor": ConjugateGradients(0, factor_after=2),
    "neighbours": ConjugateGradients(0, neighbours=8),
    "ap": AlternatingProjections(20),
    "sgd": StochasticGradientDescent(batch_size=40),
    "rap": RecombinedProjections(30),
}


def points(n: int = 90) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of mean zero, targets with a trend, and new points inside and outside."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2))
    x -= x.mean(0)
    y = 0.5 + 2 * x[:, 0] - x[:, 1] + np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=n)
    return x, y, np.vstack([x[:5] + 0.05, [[4.0, 0.0], [-3.0, 5.0]]])


def problem(kind: str = "chunked", kernel: str = "matern32", dtype: torch.dtype = torch.float64) -> Problem:
    """The targets with nothing taken off beforehand: the solve has to find all of the coefficients."""
    x, y, _ = points()
    basis = Basis.fit(terms_of("linear", 2, None), torch.as_tensor(x))
    T = basis.at(torch.as_tensor(x))
    operator = make_operator(kind, torch.as_tensor(x).to(dtype), get_kernel(kernel), THETA)
    columns = TrendColumns(basis, T.to(dtype), torch.zeros(3, dtype=torch.float64))
    return Problem(operator, torch.as_tensor(y).to(dtype), trend=columns)


def truth(kernel: str = "matern32") -> Any:
    x, y, new = points()
    T, t = (monomials(values, "linear") for values in (x, new))
    return kriging(kernel, x, y, new, T, t, THETA.vector.numpy())


# -- every solver ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "kernel", "dtype"),
    [("dense", "matern32", torch.float64), ("chunked", "rbf", torch.float64), ("chunked", "matern32", torch.float32)],
)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_finds_the_trend(solver: str, kind: str, kernel: str, dtype: torch.dtype) -> None:
    """After one solve from zero at the usual tolerance; limits in units of what is uncertain anyway."""
    exact, new = truth(kernel), torch.as_tensor(points()[2]).to(dtype)
    given = options(SOLVERS[solver], n_steps=0, refine=True)
    result = train_problem(problem(kind, kernel, dtype), given, generator=seeded())
    trend = result.posterior.trend
    assert trend is not None and result.accuracy.suffices
    C = trend.basis.transform
    found, spread = C @ trend.coefficients[:, 0], C @ trend.covariance @ C.T
    assert (np.abs(found.numpy() - exact.coefficients) < 0.1 * exact.errors).all()
    np.testing.assert_allclose(spread.diagonal().sqrt(), exact.errors, rtol=0.05)
    mean = result.posterior.mean(new).double().numpy()
    predictive = np.sqrt(exact.std**2 + float(THETA.noise_scale) ** 2)
    assert (np.abs(mean - exact.mean) < 0.1 * predictive).all()


def test_later_steps_start_from_the_coefficients_before() -> None:
    """The trend's systems are warm, too: a step at nearly the same θ takes hardly any epochs for them."""
    given = options(ConjugateGradients(0), rule=StoppingRule(1e-6), learning_rate=1e-9)
    state = initial_state(problem().operator, given)
    generator, epochs = seeded(), []
    for _ in range(2):
        made = problem().moved_to(state.theta)
        state = take_step(made, given, state, generator)
        epochs.append(state.history[-1].epochs - state.history[-1].iteration_epochs)
    assert epochs[1] < 5 < epochs[0]  # overhead is what the trend took, and checks
    assert state.trend is not None and state.trend.solution.shape == (90, 3)


# -- its parts -------------------------------------------------------------------------------------------------------
def test_the_gradient_is_that_of_the_profile_likelihood() -> None:
    made, given = problem(kernel="rbf"), options(Cholesky(), Exact())
    targets = made.y[:, None]
    result = Cholesky().solve(made.operator, targets, rule=given.rule)
    targets, result, _ = folded(made, given, Cholesky(), targets, result, None, None, seeded())
    vector = THETA.vector.clone().requires_grad_()
    value = profile_likelihood("rbf", made.operator.x, made.y, made.trend.columns, vector)
    value.backward()
    found = Exact().gradient(made.operator, result, targets)
    np.testing.assert_allclose(found, vector.grad, rtol=1e-6)
    assert Exact().log_marginal_likelihood(made.operator, result, targets) == pytest.approx(value.item(), rel=1e-9)
    assert torch.equal(made.y, problem(kernel="rbf").y)  # which targets were a view of


def test_a_trend_that_was_not_solved_for_stays_as_it_was() -> None:
    """One iteration of SGD says nothing about A: coefficients stay, and no eigenvalue is below what H allows."""
    made = problem()
    poor = options(StochasticGradientDescent(batch_size=10, learning_rate=1e-3), rule=StoppingRule(0.01, 0.2))
    targets = made.y[:, None].clone()
    result = Cholesky().solve(made.operator, targets, rule=poor.rule)
    same, _, found = folded(made, poor, poor.solver, targets, replace(result, state=None), None, None, seeded())
    assert found is not None and not found.coefficients.any() and torch.equal(same[:, 0], made.y)
    values = torch.linalg.eigvalsh(covariance(made, torch.zeros_like(made.trend.columns), THETA))
    assert values.min() > 0 and values.max() < 1.02 * (0.9**2 + 0.2**2 / 90)


class Wrong(Cholesky):
    """A solver whose solutions are worse than it says."""

    def solve(self, operator: Any, targets: Any, start: Any = None, **others: Any) -> SolveResult:
        result = super().solve(operator, targets, start, **others)
        return replace(result, solution=result.solution * 0.5)


@pytest.mark.parametrize(("left", "of_use"), [(0.5, True), (1.0, False), (float("nan"), False)])
@pytest.mark.parametrize("system", ["residual_mean", "residual_probes"])
def test_float32_that_is_not_enough_for_the_trend_is_noticed(system: str, left: float, of_use: bool) -> None:
    """Solutions that leave as much as zero would, or nobody knows what, are no start for what float64 does then."""
    made = problem(dtype=torch.float32)
    watched = replace(made, promote=problem)
    given, targets = options(Cholesky()), made.y[:, None].clone()
    result = Cholesky().solve(made.operator, targets, rule=given.rule)
    folded(watched, given, Cholesky(), targets.clone(), result, None, None, seeded())
    result = replace(result, **{system: left})
    with pytest.raises(PrecisionLostError, match="for the trend") as lost:
        folded(watched, given, Wrong(), targets, result, None, None, seeded())
    assert (lost.value.solution is not None) == of_use


def test_corrections_in_float32_solve_the_trend_in_float64() -> None:
    given = options(ConjugateGradients(0), n_steps=0)
    double = replace(problem(), single=problem(dtype=torch.float32).operator)
    targets, start = double.y[:, None].clone(), torch.zeros(90, 3, dtype=torch.float64)
    before = TrendSolution(start, torch.zeros(3, dtype=torch.float64))
    result = Cholesky().solve(double.operator, targets, rule=given.rule)
    *_, found = folded(
        double, given, given.solver, targets, replace(result, state=None), before, None, seeded(), last=True
    )
    assert found is not None and not start.any()
    C = double.trend.basis.transform
    assert (np.abs((C @ found.coefficients).numpy() - truth().coefficients) < 0.05 * truth().errors).all()
