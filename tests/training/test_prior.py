"""The prior of hyperparameters of few data: its gradient, whom it counts for, and what it saves predictions from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from warmgp import GPRegressor, Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.training.exact_climb import ExactClimb, climbed_start
from warmgp.training.prior import ENOUGH, LONG_SIDE, MISSED, NO_CHANCE, SHORT_SIDE, USUAL, Prior


def theta_of(*values: float) -> Hyperparameters:
    return Hyperparameters.from_vector(torch.tensor(values, dtype=torch.float64))


def row_noise(n: int, share: float, known: float) -> RowNoise:
    return RowNoise(torch.full((n,), share, dtype=torch.float64), torch.full((n,), known, dtype=torch.float64))


@pytest.mark.parametrize("noise", [None, row_noise(20, 0.5, 0.01)])
@pytest.mark.parametrize("values", [(0.01, 1.0, 0.3, 3.0, 3.0), (0.5, 2.0, 40.0, 900.0, 900.0)])
def test_the_gradient_is_that_of_the_value(noise: RowNoise | None, values: tuple[float, ...]) -> None:
    prior = Prior.of(20, 3, (0, 1, 1), noise)
    assert prior is not None
    slope = prior(theta_of(*values))[1]
    for j in range(5):
        up, down = (list(values) for _ in range(2))
        up[j], down[j] = values[j] * (1 + 1e-5), values[j] * (1 - 1e-5)
        by_difference = (prior(theta_of(*up))[0] - prior(theta_of(*down))[0]) / (2e-5 * values[j])
        assert float(slope[j]) == pytest.approx(by_difference, rel=1e-5, abs=1e-9)


def test_the_density_is_the_one_that_is_written_down() -> None:
    n, d, noise, length = 30, 4, 0.02, 1.7
    prior = Prior.of(n, d, (0, 1, 2, 3))
    assert prior is not None
    r, k, m2 = USUAL * math.sqrt(d) / (noise * length), n / 3, d * MISSED**2
    of_length = r**LONG_SIDE / (1 + r**2) ** ((SHORT_SIDE + LONG_SIDE) / 2)
    of_noise = (1 + (m2 / (k * noise**2)) ** 2) ** (-k / 4)
    far = 1e9 * math.sqrt(d) * USUAL  # so much noise and signal that the one is for sure, and the other as usual
    apart = prior(theta_of(noise, 1.0, *[length] * d))[0] - prior(theta_of(1e9, 1e18, *[far] * d))[0]
    usual = 2 ** (-(SHORT_SIDE + LONG_SIDE) / 2)
    weight, noise_weight = (ENOUGH * d - n) / (ENOUGH * d + 3 * n), 1 - n / (NO_CHANCE * d)
    assert apart == pytest.approx(weight * 4 * math.log(of_length / usual) + noise_weight * math.log(of_noise))


def test_along_the_ridge_of_signal_and_length_scales_nothing_is_thought() -> None:
    """A straight line tells the ratio of the two alone: inputs that do not matter would say how large the signal is."""
    prior = Prior.of(50, 3, (0, 1, 2))
    assert prior is not None
    here, there = theta_of(0.1, 1.0, 3.0, 80.0, 900.0), theta_of(0.1, 20.0, 60.0, 1600.0, 18000.0)
    assert prior(here)[0] == pytest.approx(prior(there)[0], rel=1e-12)


def test_it_counts_less_with_more_points_and_not_at_all_with_many() -> None:
    theta = theta_of(0.01, 1.0, 0.1, 0.1)
    few, more = (Prior.of(n, 2, (0, 1)) for n in (10, 40))
    assert few is not None and more is not None and few.weight > more.weight > 0
    many = Prior.of(2 * NO_CHANCE, 2, (0, 1))
    assert many is not None and many.noise_weight == 0 < more.noise_weight < few.noise_weight
    assert Prior.of(2 * ENOUGH, 2, (0, 1)) is None
    assert Prior.of(ENOUGH, 2, (0, 0)) is None  # one thing, whose two inputs have one length scale
    one, alone = Prior.of(10, 2, (0, 0)), Prior.of(10, 2, (0,))
    assert one is not None and alone is not None
    assert one(theta)[0] == pytest.approx(alone(theta_of(0.01, 1.0, 0.1))[0])


def test_known_errors_are_noise_enough() -> None:
    plain, known = Prior.of(20, 6, tuple(range(6))), Prior.of(20, 6, tuple(range(6)), row_noise(20, 1.0, 0.25))
    assert plain is not None and known is not None
    theta = theta_of(1e-3, 1.0, *[10.0] * 6)
    assert float(plain(theta)[1][0]) > 1e3 * float(known(theta)[1][0]) > 0


def copies(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns 50 rows of 10 inputs of which the last ten are copies of the first ten, targets included."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 10, generator=generator, dtype=torch.float64)
    y = x[:, 0] + 0.5 * torch.randn(40, generator=generator, dtype=torch.float64)
    y = (y - y.mean()) / y.std()
    return torch.cat([x, x[:10]]), torch.cat([y, y[:10]])


def test_copies_are_no_proof_that_there_is_no_noise() -> None:
    """Was red: σ ended at its floor of 1e-4, and error bars were 10⁵ nats off where a new row contradicts a copy."""
    x, y = copies(0)
    theta = climbed_start(x, y, get_kernel("matern32"), ExactClimb(), 10, generator=torch.Generator().manual_seed(0))
    assert float(theta.noise_scale) > 0.02


def test_noise_is_not_explained_by_two_inputs_with_25_points_each() -> None:
    """Was red: without a prior σ ended below 0.2 for three of eight seeds, with one length scale far too short."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.7, 1.7, size=(50, 2))
        y = 0.5 * np.sin(2 * X[:, 0]) + rng.normal(size=50)  # σ is 0.94 standard deviations of y
        x, y = torch.as_tensor((X - X.mean(0)) / X.std(0)), torch.as_tensor((y - y.mean()) / y.std())
        theta = climbed_start(x, y, get_kernel("matern32"), ExactClimb(), 2, generator=torch.Generator())
        assert float(theta.noise_scale) > 0.5


def test_many_length_scales_leave_error_bars_honest() -> None:
    """Was red: 50 rows of 17 inputs, of which six matter, had errors of two predicted standard deviations."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(550, 17))
    y = X[:, :6] @ np.array([1.0, -1.0, 0.5, 0.5, 0.3, 0.3]) + 0.5 * np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=550)
    model = GPRegressor("matern32", random_state=0).fit(X[:50], y[:50])
    mean, std = model.predict(X[50:], return_std=True)
    assert np.sqrt(np.mean(((y[50:] - mean) / std) ** 2)) < 1.5
    assert 1 - np.mean((y[50:] - mean) ** 2) / y[50:].var() > 0.7
