"""Waves of which the data hold many are found, and nothing else is: by near points, beside the dense truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import gp_truth
from warmgp import GPRegressor, Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators.near_points import nearest_to
from warmgp.operators.row_noise import RowNoise
from warmgp.training.exact_climb import ExactClimb, climbed_start, start_at_waves
from warmgp.training.fine_structure import (
    GLIMPSE,
    LARGEST_SIGNAL,
    LONGEST,
    LOOK,
    STEP,
    _Near,
    finer,
    likelier,
    limits_at_waves,
)
from warmgp.training.kernel_choice import choose_kernel, rough_start
from warmgp.training.limits import Limits
from warmgp.training.near_start import NearStart, near_start
from warmgp.training.outlying import Rows, outlying_weights

MATERN = get_kernel("matern32")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def waves(n: int, d: int = 1, periods: float = 60.0, noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Standardised inputs, and a sine along the last of them, with noise."""
    x = torch.rand(n, d, dtype=torch.float64, generator=seeded(seed))
    y = (2 * math.pi * periods * x[:, -1]).sin() + noise * torch.randn(
        n, dtype=torch.float64, generator=seeded(seed + 1)
    )
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def theta_of(*values: float) -> Hyperparameters:
    return Hyperparameters.from_vector(torch.tensor(values, dtype=torch.float64))


def asleep(d: int) -> Hyperparameters:
    """Where a climb ends that takes everything for noise."""
    return theta_of(1.0, 0.1, *[3.0] * d)


def r_squared(model: GPRegressor, x: Tensor, y: Tensor) -> float:
    return float(model.score(x.numpy(), y.numpy()))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_waves_in_few_inputs_are_likelier_than_noise_by_the_dense_likelihood(d: int) -> None:
    x, y = waves(900, d, periods=[60, 20, 10][d - 1])
    found = finer(x, y, MATERN, asleep(d), generator=seeded())
    assert found is not None
    assert found.length_scales[-1] <= LONGEST
    exact = [gp_truth.log_marginal_likelihood("matern32", x, y, theta.vector) for theta in (found, asleep(d))]
    assert exact[0] > exact[1] + 0.05 * len(x)


def test_of_many_inputs_the_one_with_waves_is_found() -> None:
    x, y = waves(3_000, 6, periods=30)
    y = y + x[:, 0]
    found = finer(x, y, MATERN, theta_of(0.7, 2.0, *[4.0] * 6), generator=seeded())
    assert found is not None
    assert found.length_scales[-1] <= LONGEST
    assert torch.equal(found.length_scales[:-1], torch.full((5,), 4.0, dtype=torch.float64))
    assert found.signal_scale == 2.0


@pytest.mark.parametrize("d", [4, 6])
def test_of_many_inputs_waves_of_any_length_are_found(d: int) -> None:
    # Also those of which a whole number fits into LONGEST, by which all points so far from each other agree.
    for periods in (6.0, 10.0, 13.86, 20.0, 27.71, 41.57, 55.43, 70.0):
        x, y = waves(3_000, d, periods=periods)
        found = finer(x, y, MATERN, asleep(d), generator=seeded())
        assert found is not None, periods
        assert found.length_scales[-1] <= LONGEST


def turned(kind: str, n: int, periods: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Standardised inputs, and a wave along the last that others turn over, so that it cancels in that one alone."""
    x = torch.rand(n, 6, dtype=torch.float64, generator=seeded(seed))
    angle = 2 * math.pi * periods * x[:, -1]
    if kind == "phase":
        y = (angle + 2 * math.pi * x[:, 0]).sin()
    elif kind == "sign":
        y = angle.sin() * (x[:, 0] - 0.5).sign()
    else:  # of each of 50 stations, of which three inputs say where they are
        station = torch.randint(50, (n,), generator=seeded(seed + 1))
        x = torch.cat([torch.randn(50, 3, dtype=torch.float64, generator=seeded(seed + 2))[station], x[:, -1:]], 1)
        y = (angle + 2 * math.pi * torch.rand(50, dtype=torch.float64, generator=seeded(seed + 3))[station]).sin()
    y = y + 0.2 * torch.randn(n, dtype=torch.float64, generator=seeded(seed + 4))
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


@pytest.mark.parametrize(
    ("kind", "n", "periods"),
    [("phase", 3_000, 10), ("sign", 3_000, 10), ("phase", 15_000, 25), ("sign", 15_000, 25), ("stations", 15_000, 25)],
)
def test_waves_that_other_inputs_turn_over_are_found(kind: str, n: int, periods: float) -> None:
    x, y = turned(kind, n, periods)
    found = finer(x, y, MATERN, asleep(x.shape[1]), generator=seeded())
    assert found is not None
    assert int(found.length_scales.argmin()) == x.shape[1] - 1
    assert found.length_scales[-1] <= LONGEST


@pytest.mark.parametrize("d", [2, 6])
def test_codes_whose_values_have_nothing_to_do_with_their_neighbours_are_found(d: int) -> None:
    x = torch.randn(2_000, d, dtype=torch.float64, generator=seeded())
    code = torch.randint(12, (2_000,), generator=seeded(1))
    effect = torch.tensor([1.0, -1.0] * 6, dtype=torch.float64)[code]
    y = effect + 0.3 * torch.randn(2_000, dtype=torch.float64, generator=seeded(2))
    x[:, -1] = (code - code.double().mean()) / code.double().std()
    found = finer(x, y / y.std(), MATERN, asleep(d), generator=seeded())
    assert found is not None
    assert found.length_scales[-1] <= LONGEST < found.length_scales[:-1].min()


@pytest.mark.parametrize("where", [0, 11])
def test_of_twelve_inputs_waves_that_another_turns_over_are_found_in_any(where: int) -> None:
    x, y = turned("phase", 15_000, 6)
    x = torch.cat([torch.rand(15_000, 11, dtype=torch.float64, generator=seeded(9)) - 0.5, x[:, -1:]], 1)
    x[:, 5] = turned("phase", 15_000, 6)[0][:, 0]
    x[:, [where, 11]] = x[:, [11, where]]
    found = finer(x, y, MATERN, asleep(12), generator=seeded())
    assert found is not None
    assert int(found.length_scales.argmin()) == where


@pytest.mark.parametrize(("scale", "weight"), [(1.0, 1.0), (0.5, 1.0), (1.0, 20.0), (1.0, 0.1)])
def test_length_scales_that_explain_nothing_hide_no_waves(scale: float, weight: float) -> None:
    # A climb of 800 points with ten inputs ended so, and nothing was found beside its short length scales.
    x, y = waves(800, 10, periods=25)
    lengths = 0.86, 3.5, 4.8, 0.68, 1.1, 0.73, 0.35, 2.1, 0.41, 0.63
    theta = theta_of(0.66 * scale * weight**0.5, 0.75 * scale, *lengths)
    rows = RowNoise(torch.full((800,), 1 / weight).double(), torch.zeros(800).double())
    found = finer(x, scale * y, MATERN, theta, generator=seeded(), noise=rows)
    assert found is not None
    assert found.length_scales[-1] <= LONGEST
    assert found.length_scales[:-1].min() >= 3.0


@pytest.mark.parametrize("d", [2, 6])
def test_much_signal_that_explains_nothing_is_not_that_of_waves(d: int) -> None:
    x, y = waves(3_000, d, periods=15)
    found = finer(x, y, MATERN, theta_of(1.0, 40.0, *[1e4] * d), generator=seeded())
    assert found is not None
    assert found.signal_scale <= LARGEST_SIGNAL


def test_where_all_length_scales_are_short_the_signal_is_that_of_targets() -> None:
    x, y = waves(900, 1)
    found = finer(x, y, MATERN, theta_of(0.9, 2.5, 3.0), generator=seeded())
    assert found is not None
    assert found.signal_scale == 1.0


def test_a_glance_asks_other_points_than_those_that_judge() -> None:
    x, y = waves(900, 6)
    judge, glance = (_Near((x, y, MATERN, None), seeded(), LOOK, asked=100, first=first) for first in (0, 100))
    assert not set(judge.predicted) & set(glance.predicted)
    assert len(set(judge.predicted) | set(glance.predicted)) == 200


def test_looks_at_many_inputs_take_fewer_rows() -> None:
    x, y = waves(5_000, 300)
    assert len(_Near((x, y, MATERN, None), seeded(), GLIMPSE, asked=10).z) == 1_000
    assert len(_Near((x[:, :100], y, MATERN, None), seeded(), GLIMPSE, asked=10).z) == 2_000
    assert len(_Near((x, y, MATERN, None), seeded(), LOOK, asked=10).z) == 5_000


def test_length_scales_of_nothing_are_woken() -> None:
    x, y = waves(900, 2, periods=2, noise=0.3)
    found = finer(x, y, MATERN, theta_of(0.3, 1.0, 0.005, 0.005), generator=seeded())
    assert found is not None
    assert found.length_scales.min() > 0.05


@pytest.mark.parametrize("d", [2, 6])
def test_what_has_no_factor_is_no_reason_to_see_waves_in_noise(d: int) -> None:
    x, y = waves(200, d, noise=1e6)
    assert finer(x, y, get_kernel("rbf"), theta_of(1e-4, 50.0, *[1e4] * d), generator=seeded()) is None


def test_waves_on_a_grid_are_found() -> None:
    x, _ = waves(3_000, 6)
    place = torch.randint(60, (3_000,), generator=seeded(7)).double()
    y = (2 * math.pi * place / 5).sin() + 0.1 * torch.randn(3_000, dtype=torch.float64, generator=seeded(8))
    x[:, -1] = (place - place.mean()) / place.std()
    found = finer(x, y / y.std(), MATERN, asleep(6), generator=seeded())
    assert found is not None
    assert found.length_scales[-1] <= LONGEST


def test_less_noise_alone_is_no_finer_structure() -> None:
    x, _ = waves(900)
    y = x[:, 0]
    assert finer(x, torch.zeros(900, dtype=torch.float64), MATERN, asleep(1), generator=seeded()) is None
    assert finer(x, y, MATERN, theta_of(1.0, 3.0, 3.0), generator=seeded()) is None


def test_longer_length_scales_are_no_finer_structure() -> None:
    x, y = waves(900, 2, periods=2, noise=0.3)
    assert finer(x, y, MATERN, theta_of(0.3, 1.0, 0.2, 0.2), generator=seeded()) is None


@pytest.mark.parametrize("d", [1, 2, 8])
def test_noise_alone_is_no_wave(d: int) -> None:
    # A gain of three standard errors over some 15 candidates comes by chance less than once in 50 draws.
    for seed in range(20):
        x, y = waves(400, d, noise=1e6, seed=seed)
        assert finer(x, y, MATERN, asleep(d), generator=seeded(seed)) is None


@pytest.mark.parametrize("name", ["matern12", "matern32", "rbf"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_nothing_is_finer_than_the_truth(name: str, d: int) -> None:
    truth = theta_of(0.3, 1.0, *[0.8] * d)
    for seed in range(5):
        x = torch.randn(400, d, dtype=torch.float64, generator=seeded(seed))
        draws = torch.randn(400, dtype=torch.float64, generator=seeded(100 + seed))
        y = torch.linalg.cholesky(gp_truth.h_matrix(name, x, truth.vector)) @ draws
        assert finer(x, y, get_kernel(name), truth, generator=seeded(seed)) is None


def test_the_generator_is_left_as_it_is() -> None:
    x, y = waves(900)
    generator = seeded(3)
    torch.rand(5, generator=generator)
    state = generator.get_state()
    first = finer(x, y, MATERN, asleep(1), generator=generator)
    assert torch.equal(generator.get_state(), state)
    torch.rand(5, generator=generator)
    again = finer(x, y, MATERN, asleep(1), generator=generator)
    assert first is not None
    assert again is not None
    assert torch.equal(first.vector, again.vector)


def test_tied_length_scales_get_short_together() -> None:
    x, y = waves(3_000, 3, periods=10)
    y = y + waves(3_000, 2, periods=10)[1].roll(1)
    x = x[:, [2, 1, 0, 1, 0]]  # the first and the fourth input are of one thing
    found = finer(x, y, MATERN, asleep(5), Limits(tied=(0, 1, 2, 0, 3)), generator=seeded())
    assert found is not None
    assert found.length_scales[0] == found.length_scales[3] <= LONGEST
    assert float(found.length_scales[1]) == pytest.approx(2 * 5**0.5)  # θ explains nothing: so long at least


@pytest.mark.parametrize(("limits", "noise"), [(Limits(floor=0.5), 0.5), (Limits(floor=1.0, learned=False), 1.0)])
def test_noise_stays_within_its_limits(limits: Limits, noise: float) -> None:
    x, y = waves(900)
    found = finer(x, y, MATERN, asleep(1), limits, generator=seeded())
    assert found is not None
    assert found.noise_scale == noise


def test_one_length_scale_serves_few_inputs_and_is_left_for_many() -> None:
    x, y = waves(3_000, 2, periods=6)
    found = finer(x, y, MATERN, asleep(1), generator=seeded())
    assert found is not None
    assert len(found.length_scales) == 1
    assert finer(x.repeat(1, 2), y, MATERN, asleep(1), generator=seeded()) is None


def test_several_targets_have_their_waves_found_together() -> None:
    x, y = waves(900)
    Y = torch.stack([torch.randn(900, dtype=torch.float64, generator=seeded(9)), y], 1)
    for d in (1, 5):
        found = finer(
            torch.cat([torch.rand(900, d - 1, generator=seeded(5)), x], 1), Y, MATERN, asleep(d), generator=seeded()
        )
        assert found is not None
        assert found.length_scales[-1] <= LONGEST


@pytest.mark.parametrize("times", [1, 40])
def test_copies_of_inputs_hide_no_waves(times: int) -> None:
    x, y = waves(900)
    x = x.repeat(times, 1)
    y = y.repeat(times) + 0.1 * torch.randn(len(x), dtype=torch.float64, generator=seeded(4))
    found = finer(x, y, MATERN, asleep(1), generator=seeded())
    assert found is not None
    theta = near_start(x, y, MATERN, found, NearStart(), rough=False, generator=seeded())
    assert theta.length_scales[0] < 0.1
    assert theta.noise_scale < 0.4
    few = x[:20].repeat(50, 1)  # of as few places as that nothing is told
    assert finer(few, y[:20].repeat(50), MATERN, asleep(1), generator=seeded()) is None


def test_what_is_known_already_is_all_that_is_compared() -> None:
    x, y = waves(900)
    found = finer(x, y, MATERN, asleep(1), generator=seeded())
    assert found is not None
    assert finer(x, y, MATERN, asleep(1), generator=seeded(), known=found) is found
    assert finer(x, y, MATERN, asleep(1), generator=seeded(), known=theta_of(0.1, 1.0, 1.1 * STEP * 3.0)) is None
    assert finer(x, y, MATERN, found, generator=seeded(), known=found) is None
    assert finer(x, y, MATERN, asleep(1), generator=seeded(), known=theta_of(0.1, 3.0, 1e-4)) is None
    # A place to begin at is not known to be the best: others are looked for.
    theta = climbed_start(x, y, MATERN, ExactClimb(), 1, chosen=asleep(1), generator=seeded())
    assert theta.length_scales[0] < 0.1


def test_nearest_points_are_those_of_all_distances() -> None:
    z = np.random.default_rng(0).normal(size=(200, 3))
    places = np.array([5, 17, 199])
    apart = np.linalg.norm(z[places, None] - z[None], axis=2)
    assert (nearest_to(z, places, 7) == np.argsort(apart, axis=1)[:, :7]).all()
    assert nearest_to(z, places, 1).shape == (3, 1)


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
