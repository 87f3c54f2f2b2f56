"""A start at the density of all data: hyperparameters by the likelihood of points given near ones.

A random sample is sparse, and hides what only dense data show: an input that matters over short distances looks
irrelevant, and what it explains looks like noise. The likelihood of n points in any order is a product over points of
p(y_i | all earlier ones), of which the m nearest earlier ones tell most (Vecchia's approximation). A few thousand
random terms of it are enough for a gradient, so a step costs nearly the same at any n: groups of m + 1 points, and now
and then a search for the nearest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import ranges
from warmgp.operators.conditionals import conditionals
from warmgp.training.adam import Adam
from warmgp.training.state import Callback, StepRecord, TrainingState

logger = logging.getLogger(__name__)

SEARCH_EVERY = 5
"""Steps between two draws of points, with a search for their neighbours by the length scales of then."""

REST = 0.3
"""The share of steps at the end whose size falls to ``LEAST_RATE`` of the first, and over which ν is averaged: every
draw of points has an optimum of its own."""

LEAST_RATE = 0.2


@dataclass(frozen=True)
class LocalStart:
    """Says how a start by near neighbours is done.

    Attributes
    ----------
    points : int
        The terms of the likelihood that a gradient is made of.
    neighbours : int
        The near earlier points of each.
    n_steps, learning_rate
        Steps of Adam, relative for hyperparameters above 1, and their size.
    """

    points: int = 4096
    neighbours: int = 64
    n_steps: int = 80
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
    callbacks: Sequence[Callback] = (),
) -> Hyperparameters:
    """Returns the hyperparameters that the likelihood of points given near ones leads to from θ.

    ``hold`` keeps ν within its limits.
    It is a start: where numbers fail on the way, those of the last good step are returned, with a line in the log.
    """
    n = x.shape[0]
    rank = torch.randperm(n, generator=generator)
    z = (x - x.mean(0)).float()  # for neighbours: near ones may change places
    state = TrainingState(0, hold(theta.unconstrained), Adam.zeros(theta.vector.numel()))
    groups, last, resting = torch.empty(0), theta, []
    for step in range(how.n_steps):
        began = time.perf_counter()
        if step % SEARCH_EVERY == 0:
            groups = _groups(z, rank, state.theta, how, generator)
        try:
            densities, gradient = conditionals(x, y, groups, kernel, state.theta)
        except torch.linalg.LinAlgError as error:
            logger.info("the start by near neighbours ends after %d of %d steps: %s", step, how.n_steps, error)
            return last
        if not bool(torch.isfinite(gradient).all()):
            logger.info("the start by near neighbours ends after %d of %d steps: no finite gradient", step, how.n_steps)
            return last
        last = state.theta
        slope = state.theta.chain_rule(gradient) / len(groups)
        rate = how.learning_rate * _rest(step, how.n_steps)
        nu, adam = state.adam.ascend(state.nu, slope, rate * state.theta.vector.clamp_min(1.0))
        nu = hold(nu)
        record = _record(state.theta, step, float(densities.mean()) * n, time.perf_counter() - began)
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


def _groups(z: Tensor, rank: Tensor, theta: Hyperparameters, how: LocalStart, generator: torch.Generator) -> Tensor:
    """Draws points, and returns each with its near earlier points before it, (points, neighbours + 1)."""
    n = z.shape[0]
    m = min(how.neighbours, n - 1)
    late = torch.randperm(n, generator=generator)
    late = late[rank[late] >= m][: how.points].to(z.device)
    near = nearest_earlier(z / theta.length_scales.to(z), rank.to(z.device), late, m)
    return torch.cat([near, late[:, None]], 1)


def nearest_earlier(z: Tensor, rank: Tensor, of: Tensor, m: int, tile_entries: int | None = None) -> Tensor:
    """Returns the m nearest of the points of lower rank for each of the points ``of``, (p, m).

    Parameters
    ----------
    z : Tensor, (n, d)
        All points, in units of their length scales.
    rank : Tensor, (n,)
        The place of each point in the order; every one of ``of`` must have at least m before it.
    of : Tensor, (p,)
    """
    n = z.shape[0]
    entries = tile_entries or (2**24 if z.device.type == "cpu" else 2**28)
    squares = z.square().sum(1)
    found = []
    for some in ranges(len(of), max(1, entries // n)):
        mine = of[some]
        distance = torch.addmm(squares, z[mine], z.T, alpha=-2.0)  # up to the point's own square
        distance.masked_fill_(rank >= rank[mine][:, None], torch.inf)
        found.append(distance.topk(m, 1, largest=False, sorted=False).indices)
    return torch.cat(found)


def _record(theta: Hyperparameters, step: int, likelihood: float, seconds: float) -> StepRecord:
    """Returns a record of a step that solves nothing."""
    return StepRecord(
        step=step,
        noise_scale=float(theta.noise_scale),
        signal_scale=float(theta.signal_scale),
        length_scales=tuple(theta.length_scales.tolist()),
        iterations=0,
        epochs=0.0,
        iteration_epochs=0.0,
        residual_mean=0.0,
        residual_probes=0.0,
        solver_seconds=0.0,
        step_seconds=seconds,
        converged=True,
        stop_reason="",
        log_marginal_likelihood=likelihood,
    )
