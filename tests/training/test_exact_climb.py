"""Climbs of the likelihood of few points: from places that know the number of inputs, to where others are predicted."""

from __future__ import annotations

import math

import pytest
import torch

from gp_truth import posterior
from warmgp import GPRegressor, Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.training.exact_climb import PLACES, ExactClimb, climbed_start, starting_places
from warmgp.training.kernel_choice import choose_kernel
from warmgp.training.limits import Limits
from warmgp.training.near_likelihood import Terms

KERNEL = get_kernel("matern32")


def data(n: int = 60, d: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = x[:, 0] + torch.sin(2 * x[:, 1]) + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
    return x, (y - y.mean()) / y.std()


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("d", [1, 4, 400])
def test_points_know_of_each_other_where_climbs_begin(d: int) -> None:
    places = starting_places(d, d)
    x, _ = data(50, max(2, d))
    r = torch.pdist(x[:, :d] / torch.stack([place.length_scales for place in places])[:, None].amax(0))
    assert float(KERNEL.profile(r).median()) > 0.01
    assert len(places) == len({tuple(place.vector.tolist()) for place in places}) >= len(PLACES) - (d == 1)


def test_the_end_is_a_top_of_the_likelihood() -> None:
    x, y = data(100, 3)
    theta = climbed_start(x, y, KERNEL, ExactClimb(), 3, generator=draws())
    terms = Terms(torch.arange(100)[None], 100)
    top = float(terms.densities(x, y, KERNEL, theta)[0])
    for j in range(5):
        for factor in (0.9, 1.1):
            vector = theta.vector.clone()
            vector[j] *= factor
            near = float(terms.densities(x, y, KERNEL, Hyperparameters.from_vector(vector))[0])
            assert near < top + 5e-4  # along the flat ridge of signal and length scales


def test_a_climb_of_many_length_scales_ends_before_its_top() -> None:
    whole, all_y = data(580, 60, seed=1)
    x, y, new, targets = whole[:80], all_y[:80], whole[80:], all_y[80:]
    theta = climbed_start(x, y, KERNEL, ExactClimb(), 60, generator=draws())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmgp.training.prior.ENOUGH", 1e-9)
        top = climbed_start(x, y, KERNEL, ExactClimb(), 60, generator=draws())
    terms = Terms(torch.arange(80)[None], 80)
    assert float(terms.densities(x, y, KERNEL, top)) > float(terms.densities(x, y, KERNEL, theta)) + 0.1
    assert _held_out(x, y, new, targets, theta) > _held_out(x, y, new, targets, top) + 0.5


def _held_out(
    x: torch.Tensor, y: torch.Tensor, new: torch.Tensor, targets: torch.Tensor, theta: Hyperparameters
) -> float:
    """Returns the mean log-density of new points, in dense float64."""
    mean, variance = posterior("matern32", x, y, new, theta)
    variance = variance.diagonal() + theta.noise_scale**2
    return float((-0.5 * (targets - mean) ** 2 / variance - 0.5 * torch.log(2 * math.pi * variance)).mean())


def test_ties_floors_and_one_length_scale_are_kept() -> None:
    x, y = data(80, 4)
    tied = climbed_start(x, y, KERNEL, ExactClimb(), 4, Limits(0.5, tied=(0, 1, 1, 2)), generator=draws())
    assert tied.length_scales[1] == tied.length_scales[2] != tied.length_scales[3]
    assert float(tied.noise_scale) >= 0.4999
    assert len(climbed_start(x, y, KERNEL, ExactClimb(), 1, generator=draws()).length_scales) == 1


def test_a_sample_is_climbed_where_points_are_many_and_the_same_seed_draws_the_same() -> None:
    x, y = data(200, 2)
    how = ExactClimb(points=50)
    first, again, other = (climbed_start(x, y, KERNEL, how, 2, generator=draws(seed)) for seed in (0, 0, 1))
    assert first.equals(again) and not first.equals(other)


def test_few_points_for_a_length_scale_choose_no_kernel() -> None:
    x, y = data(100, 30)
    choice = choose_kernel(x, y, 30, generator=draws(), is_map=False)
    assert choice.kernel == KERNEL and "100 points are too few" in choice.reason
    assert "too few" not in choose_kernel(x, y, 1, generator=draws(), is_map=False).reason


def test_a_callback_ends_climbs() -> None:
    x, y = data(60, 2)
    calls: list[int] = []

    def enough(record: object, state: object) -> bool:
        calls.append(1)
        return True

    climbed_start(x, y, KERNEL, ExactClimb(), 2, generator=draws(), callbacks=[enough])
    assert len(calls) <= 2 * len(PLACES) + 2  # without the prior and with it, and then those that go to their end


def test_a_resumed_fit_does_not_climb_again(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(60, 2)
    settings = {"kernel": "matern32", "random_state": 0, "checkpoint": f"{tmp_path}/c", "checkpoint_every": 1}

    def cut(record: object, state: object) -> None:
        if getattr(record, "step", 0) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GPRegressor(**settings, callbacks=[cut]).fit(x.numpy(), y.numpy())
    whole = GPRegressor("matern32", random_state=0).fit(x.numpy(), y.numpy())
    monkeypatch.setattr("warmgp.estimator.start.climbed_start", None)  # would fail if it were called
    resumed = GPRegressor(**settings).fit(x.numpy(), y.numpy())
    assert resumed.hyperparameters_.equals(whole.hyperparameters_) and resumed.n_steps_ == whole.n_steps_
