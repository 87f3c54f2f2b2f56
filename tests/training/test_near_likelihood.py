"""The near-neighbour likelihood of a map, against dense float64; the climb on it, and what it leads to."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gp_truth import h_matrix
from warmgp import GPRegressor, Hyperparameters
from warmgp.data.synthetic import gp_sample
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators.near_points import first_stretch, nearest_before
from warmgp.training import last_solve
from warmgp.training.limits import Limits
from warmgp.training.near_likelihood import Terms, climb, near_log_likelihood, near_terms
from warmgp.training.near_start import NearStart, near_start


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def field(n: int, d: int = 2, noise: float = 0.1, kernel: str = "matern32", seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Points of a unit square or cube, and a draw of a process with length scale 0.3."""
    x, y = gp_sample(n, d, kernel=kernel, noise=noise, length_scale=[0.3] * d, seed=seed)
    return torch.as_tensor(x), torch.as_tensor(y)


def theta_of(d: int = 2) -> Hyperparameters:
    return Hyperparameters(0.2, 1.3, torch.linspace(0.3, 0.5, d))


def dense_log_density(H: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    L = torch.linalg.cholesky(H)
    half = torch.linalg.solve_triangular(L, y[:, None], upper=False)
    return -0.5 * half.square().sum() - L.diagonal().log().sum() - 0.5 * len(y) * math.log(2 * math.pi)


# -- neighbours ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "d", "m"), [(400, 2, 7), (60, 1, 3), (90, 3, 20), (25, 2, 24), (30, 2, 1)])
def test_trees_find_the_nearest_before_a_stretch(n: int, d: int, m: int) -> None:
    """By all distances: none of the candidates is nearer, all come earlier, and each point has m different ones."""
    z = np.random.default_rng(0).normal(size=(n, d))
    places = np.arange(first_stretch(m), n)
    found = nearest_before(z, places, m)
    begin = first_stretch(m)
    while begin < n:
        end = max(begin + 1, int(1.25 * begin))
        for place in range(begin, min(end, n)):
            distance = np.linalg.norm(z[:begin] - z[place], axis=1)
            near = found[place - first_stretch(m)]
            np.testing.assert_allclose(np.sort(distance[near]), np.sort(distance)[:m], rtol=1e-12)
            assert len(set(near)) == m
        begin = end


# -- the likelihood --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_likelihood_and_gradient_are_those_of_the_same_approximation(kernel: str, d: int) -> None:
    """A dense float64 reference adds up the same conditionals, and autograd differentiates it: to 1e-8."""
    x, y = field(150, d)
    m, theta = 9, theta_of(d)
    value, gradient = near_log_likelihood(x, y, get_kernel(kernel), theta, m, seeded())
    first, rest = near_terms(x, theta, m, len(x), seeded())
    vector = theta.vector.requires_grad_()
    H = h_matrix(kernel, x, vector)
    truth = dense_log_density(H[first.groups[0]][:, first.groups[0]], y[first.groups[0]])
    for group in rest.groups:
        both = [dense_log_density(H[some][:, some], y[some]) for some in (group, group[:-1])]
        truth = truth + both[0] - both[1]
    (expected,) = torch.autograd.grad(truth, vector)
    assert value == pytest.approx(truth.item(), rel=1e-8)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-8 * float(expected.abs().max()))


def test_every_point_counts_once() -> None:
    x, _ = field(200)
    first, rest = near_terms(x, theta_of(), 12, 200, seeded())
    counted = torch.cat([first.groups[0], rest.groups[:, -1]])
    assert counted.sort().values.tolist() == list(range(200)) and first.last == len(first.groups[0]) == 13


@pytest.mark.parametrize("n", [2, 5, 31, 32, 33])
def test_with_all_points_as_neighbours_it_is_the_likelihood(n: int) -> None:
    x, y = field(n)
    value, _ = near_log_likelihood(x, y, get_kernel("matern32"), theta_of(), n, seeded())
    assert value == pytest.approx(float(dense_log_density(h_matrix("matern32", x, theta_of().vector), y)), rel=1e-9)


@pytest.mark.parametrize(("kernel", "noise", "bound"), [("matern12", 0.1, 0.03), ("matern32", 0.1, 0.04),
                                                        ("matern32", 0.5, 0.02), ("matern52", 0.1, 0.06)])  # fmt: skip
def test_it_is_near_the_exact_likelihood(kernel: str, noise: float, bound: float) -> None:
    """30 neighbours among 800 points: within so many nats a point (seen: 0.018, 0.024, 0.007 and 0.04)."""
    x, y = field(800, kernel=kernel, noise=noise)
    theta = Hyperparameters(noise, 1.0, [0.3, 0.3])
    value, _ = near_log_likelihood(x, y, get_kernel(kernel), theta, 30, seeded())
    exact = float(dense_log_density(h_matrix(kernel, x, theta.vector), y))
    assert abs(value - exact) / 800 < bound


# -- the climb -------------------------------------------------------------------------------------------------------
def test_a_climb_ends_where_the_slope_is_zero() -> None:
    x, y = field(300)
    terms = near_terms(x, theta_of(), 10, 300, seeded())[1]
    start = Hyperparameters(0.5, 1.0, [1.0, 1.0])
    found = climb(x, y, terms, get_kernel("matern32"), start, evaluations=60)
    before = float(terms.densities(x, y, get_kernel("matern32"), start).mean())
    assert found.value > before + 0.1
    for i in range(4):  # no direction leads up
        for factor in (0.97, 1.03):
            vector = found.theta.vector.clone()
            vector[i] *= factor
            there = terms.densities(x, y, get_kernel("matern32"), Hyperparameters.from_vector(vector))
            assert float(there.mean()) < found.value


def test_ties_floors_and_callbacks_are_kept() -> None:
    x, y = field(200, noise=1e-3)
    terms, seen = near_terms(x, theta_of(), 8, 200, seeded())[1], []
    found = climb(
        x, y, terms, get_kernel("matern12"), theta_of(), Limits(0.05, tied=(0, 0)), evaluations=40,
        callbacks=[lambda record, state: seen.append((record, state))],
    )  # fmt: skip
    assert found.theta.length_scales[0] == found.theta.length_scales[1]
    assert float(found.theta.noise_scale) == pytest.approx(0.05, rel=1e-6)
    assert [record.step for record, _ in seen] == list(range(len(seen))) and len(seen) > 5
    stopped: list[int] = []
    climb(x, y, terms, get_kernel("matern12"), theta_of(), evaluations=40,
          callbacks=[lambda record, state: stopped.append(1) or len(stopped) == 3])  # fmt: skip
    assert len(stopped) == 3


def test_a_climb_survives_groups_without_a_factor() -> None:
    """Coincident points and no noise to speak of: the best that could be evaluated is returned."""
    x, y = field(100)
    x[1:50] = x[0]
    terms = Terms(torch.arange(100)[None], 100)
    start = Hyperparameters(0.3, 1.0, [0.3, 0.3])
    found = climb(x, y, terms, get_kernel("rbf"), start, evaluations=10)
    assert math.isfinite(found.value)


@pytest.mark.parametrize("kernel", ["matern12", "matern32"])
def test_it_leads_to_the_likelihood_of_exact_training(kernel: str) -> None:
    """The exact likelihood at its hyperparameters is within 0.003 nats a point of the best there is."""
    x, y = field(500, kernel=kernel)
    found = near_start(x, y, get_kernel(kernel), theta_of(), NearStart(), generator=seeded())
    whole = Terms(torch.arange(500)[None], 500)
    best = climb(x, y, whole, get_kernel(kernel), found, evaluations=15)
    assert best.value - float(whole.densities(x, y, get_kernel(kernel), found)) < 0.003


def test_a_ratio_of_signal_and_noise_is_kept_on_the_way() -> None:
    """A smooth function without noise wants all the signal there is; held, it is still explained, by less of both."""
    x, _ = field(400)
    y = torch.sin(3 * x[:, 0]) + x[:, 1]
    y = (y - y.mean()) / y.std()
    free, held = (
        near_start(x, y, get_kernel("matern32"), theta_of(), NearStart(), Limits(1e-4, ratio), generator=seeded())
        for ratio in (math.inf, 20.0)
    )
    assert float(free.signal_scale) > 400 * float(free.noise_scale)
    assert float(held.signal_scale) <= 20.001 * float(held.noise_scale)
    assert float(held.noise_scale) < 0.05


def test_slopes_by_the_numbers_of_a_climb() -> None:
    """Against differences, with the noise held above a share of the signal and two length scales as one."""
    limits, weights = Limits(1e-4, 5.0, (0, 0, 1)), torch.tensor([0.3, -0.7, 0.2, 0.5, -0.4], dtype=torch.float64)
    u = np.log([0.05, 0.8, 0.6, 2.0])

    def value(at: np.ndarray) -> float:
        return float((weights * limits.theta(at, 3).vector.square()).sum())

    slope = limits.slope(u, 2 * weights * limits.theta(u, 3).vector)
    for i in range(4):
        up, down = u.copy(), u.copy()
        up[i], down[i] = up[i] + 1e-5, down[i] - 1e-5
        assert slope[i] == pytest.approx((value(up) - value(down)) / 2e-5, rel=1e-6)
    np.testing.assert_allclose(limits.numbers(limits.theta(u, 3)), u, rtol=1e-10)


# -- whole fits ------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def big() -> tuple[np.ndarray, np.ndarray]:
    x, y = field(3_000)
    return x.numpy(), y.numpy()


def test_a_map_is_solved_once(big: tuple[np.ndarray, np.ndarray]) -> None:
    """And predicts as well as the process that it was drawn from, within 0.01 nats a point."""
    X, y = big
    model = GPRegressor("matern32", random_state=0, device="cpu", n_probes=16).fit(X[:2_600], y[:2_600])
    assert model.plan_.near is not None and model.n_steps_ == 0 and model.converged_
    truth = GPRegressor(
        "matern32", init=Hyperparameters(0.1, 1.0, [0.3, 0.3]), n_steps=0, standardize=False, device="cpu"
    ).fit(X[:2_600], y[:2_600])
    found, best = (one.log_predictive_density(X[2_600:], y[2_600:]).mean() for one in (model, truth))
    assert found > best - 0.01


def test_near_points_can_be_asked_for_and_steps_follow(big: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = big
    model = GPRegressor("matern32", init="near", n_steps=2, random_state=0, device="cpu").fit(X[:600], y[:600])
    assert model.plan_.init == "near" and model.n_steps_ == 2
    assert "Started by points given near ones" in str(model.report_)


def test_a_smooth_map_without_noise_converges_by_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations in float64 did not get there: mean 5 predictive std off, with a warning."""
    made = []
    whole = last_solve._solved_by_factor
    monkeypatch.setattr(last_solve, "_solved_by_factor", lambda *a: made.append(1) or whole(*a))
    X = np.random.default_rng(0).uniform(size=(2600, 2))
    y = np.sin(6 * X[:, 0]) + X[:, 1]
    model = GPRegressor(random_state=0, n_probes=4, n_features=500, device="cpu").fit(X, y)
    assert model.plan_.factor_last and made and model.converged_
    np.testing.assert_allclose(model.predict(X[:200]), y[:200], atol=1e-3)


def test_with_a_time_limit_no_factor_takes_over() -> None:
    """A factor cannot be ended when the time is over."""
    model = GPRegressor(time_limit=60.0, device="cpu")
    plan = model.plan(np.random.default_rng(0).uniform(size=(3000, 2)))
    assert plan.factor_last and model._options(plan).factor_last
    assert not model._options(plan, until=1e9).factor_last
