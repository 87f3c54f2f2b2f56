"""Steps along a limit on signal and noise: they climb what is left to climb, and length scales do not run away."""

from __future__ import annotations

import math

import pytest
import torch

from warmgp import Hyperparameters, Pathwise, RecombinedProjections
from warmgp.kernels import get_kernel
from warmgp.operators import make_operator
from warmgp.training import TrainingOptions
from warmgp.training.local_start import LocalStart, _densities, groups_around, local_start
from warmgp.training.ratio import along, excess, within


def test_the_nearest_within_is_nearest_by_logarithms() -> None:
    theta = Hyperparameters(0.1, 4.0, [3.0, 0.2])
    held = within(theta, 10.0)
    assert float(held.noise_scale) == pytest.approx(0.2) and float(held.signal_scale) == pytest.approx(2.0)
    assert held.length_scales.tolist() == [3.0, 0.2] and excess(held, 10.0) == pytest.approx(1.0)
    assert within(held, 10.0 * (1 + 1e-12)) is held
    known = within(theta, 10.0, learn_noise=False)
    assert float(known.noise_scale) == 0.1 and float(known.signal_scale) == pytest.approx(1.0)


def test_the_slope_along_the_limit_is_that_of_the_likelihood_on_it() -> None:
    """L(t) with noise and signal both scaled by e^t: its slope is the sum of what both are given, by logs."""

    def likelihood(noise: float, signal: float) -> float:
        return math.sin(3 * math.log(noise)) - 0.7 * math.log(noise) ** 2 + math.log(signal) * math.log(noise)

    theta, h = Hyperparameters(0.2, 2.0, [1.0]), 1e-6
    by_theta = [
        (likelihood(0.2 + h, 2.0) - likelihood(0.2 - h, 2.0)) / (2 * h),
        (likelihood(0.2, 2.0 + h) - likelihood(0.2, 2.0 - h)) / (2 * h),
        5.0,
    ]
    for sign in (1.0, -1.0):  # one of them leads beyond the limit, the other one back
        slope = sign * theta.chain_rule(torch.tensor(by_theta, dtype=torch.float64))
        given = along(slope, theta, 10.0)
        outward = sign * (by_theta[1] * 2.0 - by_theta[0] * 0.2) > 0
        assert (given is slope) != outward
        if outward:
            by_log = given[:2] / theta.chain_rule(torch.ones(3, dtype=torch.float64))[:2] * theta.vector[:2]
            together = (likelihood(0.2 * math.exp(h), 2.0 * math.exp(h)) - likelihood(0.2, 2.0)) / h
            assert by_log[0] == pytest.approx(float(by_log[1])) and given[2] == slope[2]
            assert float(by_log.sum()) == pytest.approx(sign * together, rel=1e-4)
    falling = theta.chain_rule(torch.tensor([-50.0, 0.5, 1.0], dtype=torch.float64))
    assert along(falling, theta, 10.0)[:2].max() < 0  # both fall, by the noise's slope
    assert along(falling, theta, 10.0, noise_floor=0.2)[:2].tolist() == [0.0, 0.0]  # the noise cannot
    assert along(slope, theta, 11.0) is slope and along(slope, theta, math.inf) is slope


@pytest.mark.parametrize("name", ["matern12", "matern32"])
def test_length_scales_do_not_run_away_at_the_limit(name: str) -> None:
    """Points of a field whose signal is 30 times the noise, with at most 4 times: groups of near points lose little.

    Cut after each step, with the length scales that keep the kernel at short distances, Matérn-1/2 lost 2.3 nats a
    point and its length scales were a hundredth; now both kernels lose 0.06.
    """
    g = torch.Generator().manual_seed(0)
    x = torch.rand(1500, 2, generator=g, dtype=torch.float64)
    kernel, true = get_kernel(name), Hyperparameters(0.03, 1.0, [1.0, 3.0])
    H = make_operator("dense", x, kernel, true).H
    y = torch.linalg.cholesky(H) @ torch.randn(1500, generator=g, dtype=torch.float64)
    options = TrainingOptions(RecombinedProjections(), Pathwise(4), signal_ratio=4.0)
    start = Hyperparameters.from_unconstrained(options.begun(true, kernel))
    found = local_start(
        x, y, kernel, start, LocalStart(groups=16, size=60, n_steps=80), generator=torch.Generator().manual_seed(1),
        hold=options.held, tie=options.allowed,
    )  # fmt: skip
    assert excess(found, 4.0) <= 1 + 1e-9
    groups, last = groups_around(x.float(), true, torch.arange(0, 1500, 25), 60)
    lost = _densities(x, y, groups, kernel, true, last, None) - _densities(x, y, groups, kernel, found, last, None)
    assert float(lost.mean()) < 0.1, (float(lost.mean()), found)
