"""Waves of which the data hold many are found, and nothing else is: by near points, beside the dense truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gp_truth
from warmgp.kernels import get_kernel
from warmgp.operators.near_points import nearest_to
from warmgp.operators.row_noise import RowNoise
from warmgp.training.exact_climb import ExactClimb, climbed_start
from warmgp.training.fine_structure import GLIMPSE, LARGEST_SIGNAL, LONGEST, LOOK, STEP, _Near, finer
from warmgp.training.limits import Limits
from warmgp.training.near_start import NearStart, near_start
from wave_problems import MATERN, asleep, seeded, theta_of, waves


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


def test_a_glance_asks_other_points_than_those_that_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = waves(900, 6)
    predicted, made = [], _Near.__init__

    def noted(self: _Near, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        predicted.append(set(self.rows[self.predicted].tolist()))

    monkeypatch.setattr(_Near, "__init__", noted)
    finer(x, y, MATERN, asleep(6), generator=seeded())
    judge, glance = predicted
    assert (len(judge), len(glance)) == (300, 100)
    assert not judge & glance


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
