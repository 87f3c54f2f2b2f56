"""A start at the density of all data: hyperparameters by the likelihood of points given near ones.

A random sample is sparse, and hides what only dense data show: an input that matters over short distances looks
irrelevant, and what it explains looks like noise. Groups of near points are as dense as the data. The density of the
inner half of a group given its outer half, p(y_T | y_N), has a gradient that is zero in the mean at the true θ for any
group (a composite likelihood), and it asks what predictions ask: how points follow from those around them. A few dozen
random groups are enough for a gradient, so a step costs nearly the same at any n.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.conditionals import conditional_densities, conditionals
from warmgp.operators.indices import ranges
from warmgp.operators.row_noise import RowNoise
from warmgp.training.adam import Adam
from warmgp.training.state import Callback, TrainingState, record_without_solve

logger = logging.getLogger(__name__)

REST = 0.3
"""The share of steps at the end whose size falls to ``LEAST_RATE`` of the first, and over which ν is averaged: every
draw of groups has an optimum of its own."""

LEAST_RATE = 0.2

CHECKED = 64
"""Random groups whose likelihood is compared before and after, to see whether the start was worth it."""

LARGEST_SIGNAL = 3.0
"""The signal above which that of the start is cut, in standard deviations of the targets. Near points tell the kernel
at short distances, s²/ℓ^2ν, and hardly s itself: Adam carries it along that ridge to any size (93 on 70,600 rows with
41 inputs), where solves take ten times as long and need float64. Back on the ridge at 3 and 1.5 log-densities of
left-out points were within 0.0005 of those at 4.9 by 300 near points, 0.002 to 0.004 better by 5,000 random ones."""

CLEARLY = 2.0
"""Standard errors of the mean gain of a group below zero from which on the start was clearly harmful."""


@dataclass(frozen=True)
class LocalStart:
    """Says how a start by groups of near points is done.

    Attributes
    ----------
    groups : int
        The groups that a gradient is made of, drawn anew for every step.
    size : int
        The points of a group: half of them are asked for, given the others.
    n_steps, learning_rate
        Steps of Adam, relative for hyperparameters above 1, and their size.
    """

    groups: int = 32
    size: int = 256
    n_steps: int = 60
    learning_rate: float = 0.1


def local_start(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    how: LocalStart,
    *,
    generator: torch.Generator,
    hold: Callable[[Tensor], Tensor] = lambda nu: nu,
    tie: Callable[[Tensor, Hyperparameters], Tensor] = lambda slope, theta: slope,
    noise: RowNoise | None = None,
    callbacks: Sequence[Callback] = (),
) -> Hyperparameters | None:
    """Returns the hyperparameters that the likelihood of points given near ones leads to from θ.

    ``hold`` keeps ν within its limits, ``tie`` makes of a slope by ν at a θ what Adam is given, ``noise`` is what that
    of each row is made of. It is a start: where numbers fail on the way, those of the last good step count, and where
    random groups are clearly less likely then than by θ, there are none. Either leaves a line in the log. A
    signal above ``LARGEST_SIGNAL`` is cut, with length scales that leave the kernel at short distances as it is.
    """
    z = (x - x.mean(0)).float()  # for distances: near ones may change places
    theta = Hyperparameters.from_unconstrained(hold(theta.unconstrained))
    checked = torch.randint(x.shape[0], (CHECKED,), generator=generator).to(x.device)
    found = _trained(
        x, y, z, kernel, theta, how, generator=generator, hold=hold, tie=tie, noise=noise, callbacks=callbacks
    )
    spread = float(y.double().std())
    if kernel.follow and spread:  # else there is no such ridge
        found = found.with_signal_within(LARGEST_SIGNAL * spread / float(found.noise_scale), kernel.follow)
    groups, last = groups_around(z, theta, checked, how.size)  # the same for both
    before, after = (_densities(x, y, groups, kernel, of, last, noise) for of in (theta, found))
    gain = after - before
    if bool(torch.isfinite(after).all()) and not float(gain.mean()) < -CLEARLY * float(gain.std()) / CHECKED**0.5:
        return found
    logger.info("the start by near points is left: a point's log-density falls by %.3f", -float(gain.mean()))
    return None


def _densities(
    x: Tensor, y: Tensor, groups: Tensor, kernel: Kernel, theta: Hyperparameters, last: int, noise: RowNoise | None
) -> Tensor:
    """Returns the mean log-density of a point of the inner half of each group, (p,), −∞ where numbers fail."""
    try:
        return conditional_densities(x, y, groups, kernel, theta, last, noise) / last
    except torch.linalg.LinAlgError:
        return torch.full((len(groups),), -math.inf, dtype=torch.float64, device=groups.device)


def groups_around(z: Tensor, theta: Hyperparameters, centres: Tensor, size: int) -> tuple[Tensor, int]:
    """Returns the points nearest to each centre, (p, size), the inner half last, and how many these are."""
    size = min(size, len(z))
    return nearest(z / theta.length_scales.to(z), centres, size).flip(1), (size + 1) // 2


def _trained(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    how: LocalStart,
    *,
    generator: torch.Generator,
    hold: Callable[[Tensor], Tensor],
    tie: Callable[[Tensor, Hyperparameters], Tensor],
    noise: RowNoise | None,
    callbacks: Sequence[Callback],
) -> Hyperparameters:
    """Returns what the steps of :func:`local_start` lead to, or the last θ whose conditionals were numbers."""
    n = x.shape[0]
    state = TrainingState(0, theta.unconstrained, Adam.zeros(theta.vector.numel()))
    last, resting = theta, []
    for step in range(how.n_steps):
        began = time.perf_counter()
        centres = torch.randint(n, (how.groups,), generator=generator).to(x.device)
        groups, last_points = groups_around(z, state.theta, centres, how.size)
        try:
            densities, gradient = conditionals(x, y, groups, kernel, state.theta, last_points, noise)
        except torch.linalg.LinAlgError as error:
            logger.info("the start by near points ends after %d of %d steps: %s", step, how.n_steps, error)
            return last
        if not bool(torch.isfinite(gradient).all()):
            logger.info("the start by near points ends after %d of %d steps: no finite gradient", step, how.n_steps)
            return last
        last = state.theta
        slope = state.theta.chain_rule(gradient) / (how.groups * last_points)
        rate = how.learning_rate * _rest(step, how.n_steps)
        nu, adam = state.adam.ascend(state.nu, tie(slope, state.theta), rate * state.theta.vector.clamp_min(1.0))
        nu = hold(nu)
        record = record_without_solve(
            state.theta, step, float(densities.mean()) * n / last_points, time.perf_counter() - began
        )
        state = replace(state, step=step + 1, nu=nu, adam=adam, history=(*state.history, record))
        if step >= (1.0 - REST) * how.n_steps:
            resting.append(nu)
        if any(callback(record, state) for callback in callbacks):
            break
    return Hyperparameters.from_unconstrained(hold(torch.stack(resting).mean(0))) if resting else state.theta


def _rest(step: int, n_steps: int) -> float:
    """Returns the share of the rate at a step: 1 at first, and falling evenly in the last ``REST`` of the steps."""
    left = (n_steps - step) / max(1.0, REST * n_steps)
    return LEAST_RATE + (1.0 - LEAST_RATE) * min(1.0, left)


def nearest(z: Tensor, of: Tensor, m: int, tile_entries: int | None = None) -> Tensor:
    """Returns the m points nearest to each of the points ``of``, (p, m), the nearest first.

    Parameters
    ----------
    z : Tensor, (n, d)
        All points, in units of their length scales.
    of : Tensor, (p,)
    """
    n = z.shape[0]
    entries = tile_entries or (2**24 if z.device.type == "cpu" else 2**28)
    squares = z.square().sum(1)
    found = []
    for some in ranges(len(of), max(1, entries // n)):
        distance = torch.addmm(squares, z[of[some]], z.T, alpha=-2.0)  # up to the point's own square
        found.append(distance.topk(m, 1, largest=False).indices)
    return torch.cat(found)
