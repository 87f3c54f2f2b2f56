"""Training where rows have noise of their own: likelihood, gradient, probes, starts and checks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from row_noise_truth import THETA, dense_h, log_likelihood, posterior, problem, slope
from training_problems import options, seeded
from warmgp import AlternatingProjections, Cholesky, ConjugateGradients, Exact, Hyperparameters, Pathwise, StoppingRule
from warmgp.gradient import Standard
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import make_operator
from warmgp.operators.row_noise import RowNoise
from warmgp.training.accuracy import accuracy
from warmgp.training.initialisation import sample_start, subset_heuristic
from warmgp.training.kernel_choice import choose_kernel
from warmgp.training.last_solve import finish
from warmgp.training.limits import Limits
from warmgp.training.local_start import LocalStart, local_start
from warmgp.training.loop import train_problem
from warmgp.training.near_likelihood import Terms, climb, near_log_likelihood
from warmgp.training.near_start import NearStart, near_start
from warmgp.training.problem import Problem
from warmgp.training.rotation import AngleSearch, find_angle
from warmgp.training.step import initial_state, take_step

N = 67
TIGHT = StoppingRule(tol=1e-8)


def problem_of(name: str = "matern32", kind: str = "dense", dtype: torch.dtype = torch.float64) -> Problem:
    x, y, _, _, rows = problem(N)
    return Problem(make_operator(kind, x.to(dtype), get_kernel(name), THETA, rows=rows), y.to(dtype))


# -- likelihood and gradient -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["dense", "chunked"])
@pytest.mark.parametrize("name", KERNELS)
def test_exact_likelihood_and_gradient(name: str, kind: str) -> None:
    x, y, w, e, _ = problem(N)
    made, gradient = problem_of(name, kind), Exact()
    result = Cholesky().solve(made.operator, y[:, None], rule=TIGHT)
    found = gradient.gradient(made.operator, result, y[:, None])
    assert torch.allclose(found, slope(name, x, y, THETA.vector, w, e), rtol=1e-7, atol=1e-8)
    likelihood = gradient.log_marginal_likelihood(made.operator, result, y[:, None])
    assert likelihood == pytest.approx(float(log_likelihood(name, x, y, THETA.vector, w, e)), rel=1e-10)


@pytest.mark.parametrize("estimator", [Pathwise(3, 400, prior="exact"), Standard(3)], ids=["pathwise", "standard"])
def test_estimated_gradient(estimator: Pathwise | Standard) -> None:
    """With n independent probes of unit covariance L z, in the place of random ones, the trace is exact."""
    x, y, w, e, _ = problem(N)
    made = problem_of()
    H = dense_h("matern32", x, THETA.vector, w, e)
    L = torch.linalg.cholesky(H) if estimator.name == "pathwise" else torch.eye(N, dtype=torch.float64)
    targets = torch.cat([y[:, None], N**0.5 * L], 1)
    result = Cholesky().solve(made.operator, targets, rule=TIGHT)
    found = replace(estimator, n_probes=N).gradient(made.operator, result, targets)
    assert torch.allclose(found, slope("matern32", x, y, THETA.vector, w, e), rtol=1e-6, atol=1e-7)


def test_probes_have_the_noise_of_their_rows() -> None:
    made = problem_of()
    _, y, w, e, _ = problem(N)
    pathwise = Pathwise(5, 100)
    draw = pathwise.draw(made.operator, seeded())
    targets = pathwise.targets(made.operator, y, draw)
    noise = targets[:, 1:] - draw.prior.evaluate(made.operator.x, THETA)  # type: ignore[call-arg,arg-type]
    assert torch.allclose(noise, (THETA.noise_scale**2 / w + e).sqrt()[:, None] * draw.noise)


# -- the posterior ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", [ConjugateGradients(10), AlternatingProjections(20)], ids=["cg", "ap"])
def test_the_posterior_and_how_exact_it_is(solver: ConjugateGradients) -> None:
    x, y, w, e, _ = problem(N)
    made = problem_of()
    asked = options(solver, Pathwise(64, 2000), rule=StoppingRule(tol=1e-6))
    done = finish(made, asked, initial_state(made.operator, asked), seeded())
    new = torch.tensor([[0.1, 0.2], [-1.0, 0.5], [3.0, 3.0]], dtype=torch.float64)
    mean, variance = posterior("matern32", x, y, new, THETA.vector, w, e)
    found, spread = done.posterior.mean_and_variance(new)
    assert torch.allclose(found, mean, atol=1e-4)
    assert torch.allclose(spread, variance, rtol=0.5) and done.accuracy.mean < 1e-3
    assert done.posterior.targets is not None  # which the control of the std takes
    assert torch.equal(done.posterior.noise.known, e)  # type: ignore[union-attr]


def test_accuracy_is_in_units_of_the_noise_of_each_row() -> None:
    """A residual of 0.1 in one row counts by the noise of that row, not by σ."""
    made = problem_of()
    x, y, w, e, _ = problem(N)
    asked = options(Cholesky(), Pathwise(4, 100))
    draw = asked.gradient.draw(made.operator, seeded())
    H, d = dense_h("matern32", x, THETA.vector, w, e), THETA.noise_scale**2 / w + e
    state = replace(initial_state(made.operator, asked), draw=draw, solution=torch.zeros(N, 5, dtype=torch.float64))
    done = finish(made, asked, state, seeded())
    assert done.accuracy.worst < 1e-8
    for row in (int(d.argmin()), int(d.argmax())):
        residual = torch.zeros(N, dtype=torch.float64)
        residual[row] = 0.1
        solution = done.posterior.solution.clone()
        solution[:, 0] = torch.linalg.solve(H, y - residual)
        found = accuracy(replace(done.posterior, solution=solution), made, draw)
        assert found.worst == pytest.approx(0.1 / float(d[row]) ** 0.5, rel=1e-6)


def test_float32_is_watched_and_left() -> None:
    """With hardly any noise in half of the rows float32 does not do, and the same rows go on in float64."""
    x, y, _, _, rows = problem(N)
    quiet = RowNoise(rows.shares * 1e-9, torch.where(torch.arange(N) % 2 > 0, rows.known, 0.0) * 1e-3)
    theta = Hyperparameters.from_vector(torch.tensor([0.3, 1.2, 2.0, 3.0], dtype=torch.float64))
    twin = Problem(make_operator("dense", x, get_kernel("rbf"), theta, rows=quiet), y)
    single = make_operator("dense", x.float(), get_kernel("rbf"), theta, rows=quiet)
    watched = Problem(single, y.float(), original=(x, y), promote=lambda: twin)
    asked = options(ConjugateGradients(0), n_steps=1, noise_floor=1e-4)
    result = train_problem(watched, asked, generator=seeded())
    assert result.posterior.x.dtype == torch.float64 and result.posterior.noise is quiet


# -- starts ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", KERNELS)
def test_near_likelihood_of_all_points_is_the_likelihood(name: str) -> None:
    x, y, w, e, rows = problem(N)
    value, gradient = near_log_likelihood(x, y, get_kernel(name), THETA, N - 1, seeded(), rows)
    assert value == pytest.approx(float(log_likelihood(name, x, y, THETA.vector, w, e)), rel=1e-9)
    assert torch.allclose(gradient, slope(name, x, y, THETA.vector, w, e), rtol=1e-6, atol=1e-7)


def noisy_half(n: int = 240, seed: int = 0) -> tuple[Tensor, Tensor, RowNoise]:
    """A smooth function on a plane, with noise of 0.05 in all rows and of 1.5 beside it in half of them."""
    generator = seeded(seed)
    x = torch.randn(n, 2, dtype=torch.float64, generator=generator)
    known = torch.where(torch.arange(n) % 2 > 0, 1.5**2, 0.0).double()
    noise = (0.05**2 + known).sqrt() * torch.randn(n, dtype=torch.float64, generator=generator)
    return x, torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + noise, RowNoise(torch.ones_like(known), known)


def ways(x: Tensor, y: Tensor, rows: RowNoise | None) -> dict[str, float]:
    """σ by every start, with what is known of the rows, or without."""
    kernel, start = get_kernel("matern52"), Hyperparameters.ones(2)
    exact = options(Cholesky(), Exact(), n_steps=40, noise_floor=1e-3)
    whole = Terms(torch.arange(len(x))[None], len(x))
    found = {
        "sample": sample_start(x, y, kernel, start, exact, size=120, generator=seeded(), noise=rows).theta,
        "subset": subset_heuristic(
            x, y, kernel, generator=seeded(), neighbourhood_size=80, n_centroids=2, n_steps=40, noise=rows
        ),
        "climb": climb(x, y, whole, kernel, start, evaluations=20, noise=rows).theta,
        "near": near_start(x, y, kernel, start, NearStart(200, 20, 10, 100, 10, 10), generator=seeded(), noise=rows),
        "local": local_start(x, y, kernel, start, LocalStart(4, 60, 40), generator=seeded(), noise=rows),
        "kernel": choose_kernel(x, y, 2, generator=seeded(), is_map=True, noise=rows).theta,
    }
    return {name: float(theta.noise_scale) for name, theta in found.items()}


def test_every_start_knows_the_noise_of_rows() -> None:
    """σ is what is left beside the known noise; without it each of them takes that for σ."""
    x, y, rows = noisy_half()
    for name, sigma in ways(x, y, rows).items():
        assert sigma < 0.4, name
    for name, sigma in ways(x, y, None).items():
        assert sigma > 0.7, name


def test_an_angle_by_rows_that_are_worth_something() -> None:
    """Rows of noise 100 beside a wave at 30 degrees: with what is known of them the angle is found."""
    x = torch.rand(300, 2, dtype=torch.float64, generator=seeded()) * 6
    along = x[:, 0] * 0.866 + x[:, 1] * 0.5
    bad = torch.arange(300) % 3 == 0
    y = torch.sin(2 * along) + 100.0 * bad * torch.randn(300, dtype=torch.float64, generator=seeded(1))
    rows = RowNoise(torch.ones_like(y), torch.where(bad, 1e4, 0.0).double())
    asked, how = options(noise_floor=0.05), AngleSearch(groups=6, size=60)
    known, ignored = (
        find_angle(x, y, get_kernel("matern52"), asked, generator=seeded(), how=how, noise=noise)
        for noise in (rows, None)
    )
    assert abs(known - 30.0) < 0.5 < 3.0 < abs(ignored - 30.0)


# -- noise that is not learned ---------------------------------------------------------------------------------------
def test_noise_that_is_not_learned_stays_at_the_floor() -> None:
    x, y, rows = noisy_half(60)
    operator = make_operator("dense", x, get_kernel("matern32"), Hyperparameters.ones(2), rows=rows)
    asked = options(Cholesky(), Exact(), n_steps=3, noise_floor=0.02, learn_noise=False)
    state = initial_state(operator, asked)
    for _ in range(3):
        state = take_step(Problem(operator.at(state.theta), y), asked, state, seeded())
    assert [record.noise_scale for record in state.history] == pytest.approx([0.02] * 3, rel=1e-12)
    assert state.history[-1].signal_scale != state.history[0].signal_scale
    limits = Limits(0.02, learned=False)
    terms = Terms(torch.arange(60)[None], 60)
    found = climb(x, y, terms, operator.kernel, Hyperparameters.ones(2), limits, evaluations=5, noise=rows)
    assert float(found.theta.noise_scale) == pytest.approx(0.02, rel=1e-12)
    none = options(Cholesky(), Exact(), learn_noise=False)
    assert float(initial_state(operator, none).theta.noise_scale) == pytest.approx(1e-4)
