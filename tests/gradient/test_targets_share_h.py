"""Several targets that share H: likelihood, gradients and solves are the sums and columns of those of each alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gp_truth import h_matrix, log_marginal_likelihood, toy
from training_problems import options, seeded
from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.gradient.base import quadratic_weights
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import make_operator
from warmgp.operators.conditionals import conditionals
from warmgp.solvers import Cholesky, ConjugateGradients, StoppingRule
from warmgp.solvers.progress import summarise
from warmgp.training import Problem, train

KERNEL = get_kernel("matern32")
THETA = Hyperparameters(0.3, 1.2, [0.8, 1.5])


def targets(n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = toy(n)
    return x, torch.stack([y, torch.cos(3 * x[:, 0]), x[:, 1] ** 2 - 1], 1)


def sum_of_likelihoods(x: torch.Tensor, Y: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return torch.stack([log_marginal_likelihood("matern32", x, y, vector) for y in Y.T]).sum()


def test_the_exact_gradient_and_value_are_those_of_the_sum() -> None:
    x, Y = targets()
    H = make_operator("dense", x, KERNEL, THETA)
    solved = Cholesky().solve(H, Y, rule=StoppingRule(n_targets=3))
    vector = THETA.vector.clone().requires_grad_()
    truth = sum_of_likelihoods(x, Y, vector)
    (slope,) = torch.autograd.grad(truth, vector)
    torch.testing.assert_close(Exact().gradient(H, solved, Y), slope, rtol=1e-8, atol=1e-8)
    assert Exact().log_marginal_likelihood(H, solved, Y) == pytest.approx(float(truth.detach()), abs=1e-8)


@pytest.mark.parametrize("estimator", [Pathwise(8, 200), Standard(8)], ids=("pathwise", "standard"))
def test_probes_count_as_often_as_there_are_targets(estimator: GradientEstimator) -> None:
    """By the same probes the gradient of three targets is the sum of those of each: Σ ½ v∂Hv − (q/2s) Σ ẑ∂Hẑ."""
    x, Y = targets()
    H = make_operator("dense", x, KERNEL, THETA)
    draw = estimator.draw(H, seeded())

    def slope(y: torch.Tensor) -> torch.Tensor:
        b = estimator.targets(H, y, draw)
        return estimator.gradient(H, Cholesky().solve(H, b, rule=StoppingRule()), b)

    torch.testing.assert_close(slope(Y), sum(slope(y) for y in Y.T), rtol=1e-9, atol=1e-9)
    weights = quadratic_weights(8, 3)
    assert weights.tolist() == [0.5] * 3 + [-0.5 * 3 / 8] * 8


@pytest.mark.parametrize("last", [1, 3, 12], ids=("last", "some", "all"))
def test_points_given_near_ones_add_up_over_targets(last: int) -> None:
    x, Y = targets()
    groups = torch.arange(36).reshape(3, 12)
    densities, gradient = conditionals(x, Y, groups, KERNEL, THETA, last)
    each = [conditionals(x, y, groups, KERNEL, THETA, last) for y in Y.T]
    torch.testing.assert_close(densities, sum(one for one, _ in each))
    torch.testing.assert_close(gradient, sum(one for _, one in each))


def test_the_worst_target_decides() -> None:
    norms = torch.tensor([0.1, 0.7, 0.2, 0.3, 0.5])
    assert summarise(norms, 3) == pytest.approx((0.7, 0.4))
    assert summarise(norms) == pytest.approx((0.1, 0.425))
    x, Y = targets()
    H = make_operator("dense", x, KERNEL, THETA)
    rule = StoppingRule(1e-6, n_targets=3)
    found = ConjugateGradients(5).solve(H, torch.cat([Y, torch.randn(40, 4, generator=seeded()).to(Y)], 1), rule=rule)
    left = torch.linalg.vector_norm(Y - h_matrix("matern32", x, THETA.vector) @ found.solution[:, :3], dim=0)
    worst = float((left / torch.linalg.vector_norm(Y, dim=0)).max())
    assert found.converged and found.residual_mean == pytest.approx(worst, rel=1e-3) and worst <= 1e-6


def test_training_climbs_the_sum() -> None:
    """Steps on three targets end where the sum of their likelihoods is higher; the gain of a step is per target."""
    x, Y = targets()
    H = make_operator("dense", x, KERNEL, Hyperparameters.ones(2))
    found = train(H, Y, options(Cholesky(), Exact(), n_steps=60), generator=seeded())
    first, last = (sum_of_likelihoods(x, Y, theta.vector) for theta in (Hyperparameters.ones(2), found.theta))
    assert float(last - first) > 20
    assert found.history[0].log_marginal_likelihood == pytest.approx(float(first), abs=1e-6)
    one = train(H, Y[:, 0], options(Cholesky(), Exact(), n_steps=1), generator=seeded())
    same = train(H, Y[:, :1].expand(-1, 3).contiguous(), options(Cholesky(), Exact(), n_steps=1), generator=seeded())
    assert same.history[0].gain == pytest.approx(one.history[0].gain, rel=1e-6)
    assert same.posterior.n_targets == 3 and same.posterior.n_samples == one.posterior.n_samples


def test_one_target_as_a_column_is_refused_below_the_estimator() -> None:
    x, Y = targets()
    problem = Problem(make_operator("dense", x, KERNEL, THETA), Y[:, :1])
    with pytest.raises(ValueError, match=r"y must have shape \(40,\).*\(40, q\) for several targets, got \(40, 1\)"):
        problem.check()
    assert replace(problem, y=Y).n_targets == 3
