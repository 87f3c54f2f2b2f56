"""The estimators against the exact gradient: unbiased, with the paper's variances and distances."""

from __future__ import annotations

import pytest
import torch

from gp_truth import derivatives, h_matrix, log_marginal_likelihood, toy
from warmgp import Cholesky, ConjugateGradients, DenseOperator, Exact, Hyperparameters, Pathwise, Standard, StoppingRule
from warmgp.gradient import GradientEstimator
from warmgp.kernels import get_kernel
from warmgp.training import Problem, TrainingOptions, train_only

RULE = StoppingRule(1e-8)
THETA = Hyperparameters.from_vector(torch.tensor([0.3, 1.2, 0.8, 1.5]))
REPEATS = 3000
NAMES = ("noise", "signal", "length 1", "length 2")


def true_gradient(name: str, x: torch.Tensor, y: torch.Tensor, theta: Hyperparameters) -> torch.Tensor:
    vector = theta.vector.requires_grad_()
    return torch.autograd.grad(log_marginal_likelihood(name, x, y, vector), vector)[0]


def one_probe_gradients(estimator: GradientEstimator, seed: int) -> torch.Tensor:
    """REPEATS independent gradient estimates from one probe each, (REPEATS, 4)."""
    x, y = toy(40)
    operator = DenseOperator(x, get_kernel("matern32"), THETA)
    generator = torch.Generator().manual_seed(seed)
    found, state = [], None
    for _ in range(REPEATS):
        targets = estimator.targets(operator, y, estimator.draw(operator, generator))
        result = Cholesky().solve(operator, targets, rule=RULE, state=state)
        state = result.state
        found.append(estimator.gradient(operator, result, targets))
    return torch.stack(found)


ESTIMATORS = {"standard": Standard(1), "pathwise": Pathwise(1, prior="exact")}


@pytest.fixture(scope="module")
def estimates() -> dict[str, torch.Tensor]:
    return {name: one_probe_gradients(estimator, seed=7) for name, estimator in ESTIMATORS.items()}


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
def test_exact_gradient_and_value_are_autograds(kernel: str) -> None:
    x, y = toy(53)
    x[7] = x[8]  # a duplicated row
    operator = DenseOperator(x, get_kernel(kernel), THETA)
    exact = Exact()
    targets = exact.targets(operator, y, None)
    result = Cholesky().solve(operator, targets, rule=RULE)
    truth = true_gradient(kernel, x, y, THETA)
    assert (exact.gradient(operator, result, targets) - truth).norm() <= 1e-10 * truth.norm()
    value = float(log_marginal_likelihood(kernel, x, y, THETA.vector))
    assert exact.log_marginal_likelihood(operator, result, targets) == pytest.approx(value, rel=1e-12)


def test_exact_needs_a_factor() -> None:
    x, y = toy(20)
    operator = DenseOperator(x, get_kernel("rbf"), THETA)
    result = ConjugateGradients().solve(operator, y[:, None], rule=RULE)
    with pytest.raises(ValueError, match='solver="cholesky"'):
        Exact().gradient(operator, result, y[:, None])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_unbiased_within_four_standard_errors(name: str, estimates: dict[str, torch.Tensor]) -> None:
    x, y = toy(40)
    found = estimates[name]
    error = found.mean(0) - true_gradient("matern32", x, y, THETA)
    standard_error = found.std(0) / REPEATS**0.5
    for k, parameter in enumerate(NAMES):
        assert abs(error[k]) <= 4 * standard_error[k], parameter


@pytest.mark.parametrize("name", ESTIMATORS)
def test_variances_are_the_papers(name: str, estimates: dict[str, torch.Tensor]) -> None:
    """The variance of ½·trace term, within five standard errors of a sample variance (from the fourth moment)."""
    x, _ = toy(40)
    inverse = torch.linalg.inv(h_matrix("matern32", x, THETA.vector))
    found = estimates[name]
    for k, dH in enumerate(derivatives("matern32", x, THETA)):
        shared = torch.trace(inverse @ dH @ inverse @ dH)
        second = torch.trace(inverse @ dH @ dH @ inverse) if name == "standard" else shared
        deviation = found[:, k] - found[:, k].mean()
        variance = deviation.square().mean()
        standard_error = ((deviation**4).mean() - variance**2).clamp_min(0).sqrt() / REPEATS**0.5
        assert abs(variance - 0.25 * (shared + second)) <= 5 * standard_error, NAMES[k]


def test_variances_agree_for_the_noise(estimates: dict[str, torch.Tensor]) -> None:
    """∂H/∂σ commutes with H⁻¹, so both estimators share its variance (a ratio of two sample variances: within 20%)."""
    ratio = estimates["standard"][:, 0].var() / estimates["pathwise"][:, 0].var()
    assert 0.8 <= ratio <= 1.25


@pytest.mark.parametrize("name", ESTIMATORS)
def test_initial_distances_are_the_papers(name: str) -> None:
    """E|u|²_H is tr(H⁻¹) for standard and n for pathwise, within four standard errors of 4,000 probes."""
    x, y = toy(40)
    operator = DenseOperator(x, get_kernel("matern32"), THETA)
    estimator = Standard(4000) if name == "standard" else Pathwise(4000, prior="exact")
    targets = estimator.targets(operator, y, estimator.draw(operator, torch.Generator().manual_seed(3)))[:, 1:]
    inverse = torch.linalg.inv(h_matrix("matern32", x, THETA.vector))
    distances = (targets * (inverse @ targets)).sum(0)
    expected = torch.trace(inverse) if name == "standard" else torch.tensor(40.0)
    assert abs(distances.mean() - expected) <= 4 * distances.std() / 4000**0.5
    assert torch.trace(inverse) > 2 * 40  # otherwise the two claims could not be told apart


def test_random_features_approach_the_exact_prior() -> None:
    """Pathwise with 4,000 features: the exact gradient within four standard errors, plus 2% for the features."""
    x, y = toy(40)
    operator = DenseOperator(x, get_kernel("matern32"), THETA)
    generator = torch.Generator().manual_seed(5)
    estimator = Pathwise(64, 4000)
    state, found = None, []
    for _ in range(60):
        targets = estimator.targets(operator, y, estimator.draw(operator, generator))
        result = Cholesky().solve(operator, targets, rule=RULE, state=state)
        state = result.state
        found.append(estimator.gradient(operator, result, targets))
    gradients = torch.stack(found)
    truth = true_gradient("matern32", x, y, THETA)
    assert ((gradients.mean(0) - truth).abs() <= 4 * gradients.std(0) / 60**0.5 + 0.02 * truth.norm()).all()


def test_frozen_probes_approach_the_exact_optimum() -> None:
    """With probes frozen, the optimum's marginal likelihood and θ come closer to exact training's as s grows."""
    x, y = toy(40, 1)
    kernel = get_kernel("matern32")

    def optimum(gradient: GradientEstimator, start: Hyperparameters, steps: int, seed: int) -> Hyperparameters:
        options = TrainingOptions(Cholesky(), gradient, rule=RULE, n_steps=steps, learning_rate=0.05, noise_floor=0.01)
        generator = torch.Generator().manual_seed(seed)
        return train_only(Problem(DenseOperator(x, kernel, start), y), options, generator=generator).theta

    best = optimum(Exact(), Hyperparameters.ones(1), 300, 0)
    top = float(log_marginal_likelihood("matern32", x, y, best.vector))
    gaps, distances = [], []
    for s in (4, 16, 64, 256):
        found = [optimum(Pathwise(s, prior="exact"), best, 100, seed) for seed in range(4)]
        gaps.append(sum(top - float(log_marginal_likelihood("matern32", x, y, f.vector)) for f in found) / 4)
        distances.append(sum(float((f.vector / best.vector).log().norm()) for f in found) / 4)
    assert all(gap > -1e-3 for gap in gaps)  # nothing beats the exact optimum
    assert gaps[3] < gaps[2] < gaps[1] < gaps[0] and gaps[3] < 0.05 * gaps[0]
    assert distances[3] < distances[2] < distances[1] < distances[0] and distances[3] < 0.25 * distances[0]


@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_number_of_probes_is_checked(bad: object) -> None:
    for make in (Standard, Pathwise):
        with pytest.raises(ValueError, match="n_probes"):
            make(bad)  # type: ignore[arg-type]


def test_pathwise_options_are_checked() -> None:
    with pytest.raises(ValueError, match="prior"):
        Pathwise(prior="sparse")
    with pytest.raises(ValueError, match="n_features"):
        Pathwise(n_features=7)
