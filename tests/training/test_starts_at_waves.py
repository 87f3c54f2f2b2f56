"""Climbs, choices of a kernel and models begin again at waves that near points show (``test_fine_structure.py``)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from warmgp import GPRegressor
from warmgp.training.exact_climb import ExactClimb, climbed_start, start_at_waves
from warmgp.training.fine_structure import LARGEST_SIGNAL, likelier, limits_at_waves
from warmgp.training.kernel_choice import choose_kernel, rough_start
from warmgp.training.limits import Limits
from warmgp.training.near_start import NearStart, near_start
from warmgp.training.outlying import Rows, outlying_weights
from wave_problems import MATERN, seeded, theta_of, waves


def r_squared(model: GPRegressor, x: Tensor, y: Tensor) -> float:
    return float(model.score(x.numpy(), y.numpy()))


@pytest.mark.parametrize("points", [1_000, 300])
def test_a_climb_of_all_points_or_of_a_sample_finds_waves(points: int) -> None:
    x, y = waves(900, noise=0.7)
    theta = climbed_start(x, y, MATERN, ExactClimb(points), 1, generator=seeded())
    assert theta.length_scales[0] < 0.1
    assert float(theta.noise_scale) == pytest.approx(0.7 / math.hypot(0.7, 0.5**0.5), rel=0.15)


def test_a_start_of_a_map_finds_waves_in_one_input() -> None:
    x, y = waves(3_000, 2, periods=40)
    theta = near_start(x, y, MATERN, rough_start(2, 2, True), NearStart(), generator=seeded())
    assert theta.length_scales[1] < 0.2
    assert theta.noise_scale < 0.25


def test_a_start_with_many_inputs_finds_waves_by_its_sample() -> None:
    # Near points alone cannot tell noise from 45 length scales: by them it ended at 0.0001.
    x, y = waves(2_000, 45, periods=30)
    y = y + x[:, 0]
    y = y / y.std()
    theta = climbed_start(x, y, MATERN, ExactClimb(500), 45, generator=seeded())
    assert float(theta.noise_scale) == pytest.approx(0.1 / 1.225, rel=0.1)


def test_what_a_sample_is_too_thin_for_is_climbed_by_near_points() -> None:
    x, y = waves(20_000, 4, periods=500)
    sample = ExactClimb(300)
    theta = start_at_waves(x, y, MATERN, theta_of(0.3, 1.0, 5.0, 5.0, 5.0, 0.003), sample, generator=seeded())
    assert theta.length_scales[-1] < 0.01
    assert float(theta.noise_scale) == pytest.approx(0.1 / 0.714, rel=0.3)


def test_what_near_points_lead_to_is_held_against_where_a_sample_ends() -> None:
    # The sample keeps a length scale of 0.0015, at which points are less likely by a quarter of a nat.
    x, y = waves(20_000, 6, periods=400)
    y = y + 0.4 * (0.9 * x[:, 0]).sin()
    theta = start_at_waves(x, y, MATERN, theta_of(0.09, 1.0, *[4.9] * 5, 0.0026), ExactClimb(), generator=seeded())
    assert theta.length_scales[-1] > 0.0035
    assert float(theta.noise_scale) == pytest.approx(0.14, rel=0.15)


def test_many_inputs_that_do_not_matter_do_not_take_the_noise() -> None:
    # Climbs by near points that ended too soon left a noise of 0.005 to 0.01.
    x, y = waves(3_000, 25, periods=30)
    fine = theta_of(0.093, 1.0, *[10.0] * 24, 0.04)
    ends = (
        start_at_waves(x, y, MATERN, fine, ExactClimb(), generator=seeded()),
        choose_kernel(x, y, 25, generator=seeded(), is_map=False).theta,
    )
    for theta in ends:
        assert theta is not None
        assert float(theta.noise_scale) == pytest.approx(0.14, rel=0.25)


def test_a_sample_that_cannot_tell_signal_from_noise_is_too_thin() -> None:
    # With one point for each wave its climb keeps the length scale and makes half of the noise.
    x, y = waves(20_000, 4, periods=1_000)
    fine = theta_of(0.3, 1.0, 5.0, 5.0, 5.0, 0.0015)
    for seed in (0, 1):
        theta = start_at_waves(x, y, MATERN, fine, ExactClimb(700), generator=seeded(seed))
        assert float(theta.noise_scale) == pytest.approx(0.1 / 0.714, rel=0.3)
    alone = theta_of(0.057, 1.0, 5.0, 5.0, 5.0, 0.0015)
    assert likelier(x, y, MATERN, theta, alone, Limits(floor=0.057), generator=seeded())
    assert not likelier(x, y, MATERN, alone, theta, generator=seeded())
    assert not likelier(x, y, MATERN, theta, theta, generator=seeded())


def test_a_start_that_was_ended_is_not_looked_at() -> None:
    x, y = waves(900, 2, periods=20)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("looked")

    end = [lambda *_: True]
    with pytest.MonkeyPatch.context() as patch:
        for module in ("near_start", "exact_climb"):
            patch.setattr(f"warmgp.training.{module}.finer", never)
        near_start(x, y, MATERN, rough_start(2, 2, True), NearStart(), generator=seeded(), callbacks=end)
        climbed_start(x, y, MATERN, ExactClimb(), 2, generator=seeded(), callbacks=end)
        with pytest.raises(AssertionError, match="looked"):
            near_start(x, y, MATERN, rough_start(2, 2, True), NearStart(), generator=seeded())


def test_a_climb_by_near_points_that_begins_at_waves_keeps_their_signal() -> None:
    # Along the ridge of near points it went to 50, with neighbours in one line, and missed what y does along the other.
    assert limits_at_waves(Limits(floor=0.1)) == Limits(floor=0.1, largest=LARGEST_SIGNAL)
    x = torch.rand(3_000, 2, dtype=torch.float64, generator=seeded())
    y = (80 * math.pi * x[:, 0]).sin() + 0.3 * (3 * x[:, 1]).sin()
    y = y + 0.1 * torch.randn(3_000, dtype=torch.float64, generator=seeded(1))
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    theta = choose_kernel(x, y, 2, generator=seeded(), is_map=True).theta
    assert theta is not None
    assert theta.signal_scale <= LARGEST_SIGNAL
    assert theta.noise_scale < 0.17


@pytest.mark.parametrize("d", [2, 6])
def test_a_kernel_is_chosen_where_the_waves_are(d: int) -> None:
    x, y = waves(3_000, d, periods=30)
    choice = choose_kernel(x, y, d, generator=seeded(), is_map=d <= 3)
    assert choice.theta is not None
    assert choice.theta.length_scales[-1] < 0.3
    assert choice.theta.noise_scale < 0.4
    assert choice.kernel.name in ("matern52", "rbf")


def test_outlying_rows_are_told_from_waves() -> None:
    x, y = waves(3_000, 2, periods=30)
    y[::50] += 5.0
    weights, _ = outlying_weights(Rows(x, y), MATERN, 2, Limits(), seeded())
    assert (weights[::50] == 0).all()
    assert np.delete(weights, np.arange(0, 3_000, 50)).mean() > 0.99


WHOLE = pytest.mark.whole  # what takes seconds and says once more what others say


@pytest.mark.parametrize(
    ("n", "d", "kernel"),
    [(900, 3, "auto"), (3_000, 2, "auto"), pytest.param(3_000, 2, "matern52", marks=WHOLE)],
)
def test_a_model_of_one_input_with_many_waves_predicts_them(n: int, d: int, kernel: str) -> None:
    # Each of these was told to be noise: R² was 0.15.
    x, y = waves(n + 500, d, periods=30)
    y = y + x[:, 0]
    model = GPRegressor(kernel, random_state=0).fit(x[:n].numpy(), y[:n].numpy())
    assert r_squared(model, x[n:], y[n:]) > 0.95
    assert model.converged_


@pytest.mark.parametrize("kernel", ["auto", pytest.param("matern52", marks=WHOLE)])
def test_a_training_on_a_sample_finds_waves_in_one_of_many_inputs(kernel: str) -> None:
    x, y = waves(1_300, 4, periods=20)
    y = y + x[:, 0]
    model = GPRegressor(kernel, init="sample", n_steps=2, random_state=0).fit(x[:1_000].numpy(), y[:1_000].numpy())
    assert model.plan_.init == "sample"
    assert r_squared(model, x[1_000:], y[1_000:]) > 0.9


@WHOLE
def test_a_model_of_seasons_that_are_opposite_on_both_hemispheres_predicts_them() -> None:
    # With 15,000 rows R² was 0.4: ten seasons along one input, of stations on both sides of the equator.
    n, rng = 2_400, np.random.default_rng(0)
    places = rng.uniform([-60, -180], [70, 180], (200, 2))[rng.integers(0, 200, n + 500)]
    day = rng.uniform(0, 3650, n + 500)
    season = -(10 + 0.1 * np.abs(places[:, 0])) * np.cos(2 * np.pi * day / 365) * np.sign(places[:, 0])
    y = 25 - 0.4 * np.abs(places[:, 0]) + season + 2 * rng.normal(size=n + 500)
    X = np.column_stack([places, rng.exponential(400, n + 500), day])
    model = GPRegressor("matern32", random_state=0).fit(X[:n], y[:n])
    assert model.score(X[n:], y[n:]) > 0.9
