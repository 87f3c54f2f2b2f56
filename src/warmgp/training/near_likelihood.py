"""Hyperparameters by the likelihood of points given near ones, climbed with a quasi-Newton method: no solve at all.

For points in a random order, log p(y) = Σ_i log p(y_i | y_1 … y_{i−1}), and of what came before a point its m nearest
points N(i) tell nearly everything where there are few inputs (Vecchia's approximation):

    log p(y) ≈ log p(y_F) + Σ_i log p(y_i | y_N(i)),        F: the first points.

A term costs m³ operations. Each is a proper density, so that the true θ is where the mean gradient of any choice of
terms vanishes; N of them drawn at random leave θ as uncertain as N observations would, which costs about (2 + d)/2N
nats a point. So a few thousand terms do, at the density of all data, whatever their number.

The same climb serves other terms: groups of near points of which the inner half is asked for given the outer half
(:mod:`warmgp.training.local_start`), or all points as one group, whose density is the likelihood itself.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.conditionals import conditional_densities, conditionals
from warmgp.operators.near_points import first_stretch, nearest_before
from warmgp.operators.row_noise import RowNoise
from warmgp.training.adam import Adam
from warmgp.training.blas_threads import one_blas_thread
from warmgp.training.limits import ANYWHERE, Limits
from warmgp.training.prior import Prior
from warmgp.training.state import Callback, StepRecord, TrainingState, record_without_solve

logger = logging.getLogger(__name__)

FAILED = 1e6
"""Stands for −log density where a group has no factor: the climb turns back."""


@dataclass(frozen=True, eq=False)
class Terms:
    """Holds groups of points; of each the density of the last points given the others counts.

    Attributes
    ----------
    groups : Tensor, (p, g)
        The numbers of the points of each group.
    last : int
        How many of them are asked for.
    """

    groups: Tensor
    last: int

    @property
    def points(self) -> int:
        """The number of densities that are added up."""
        return len(self.groups) * self.last

    def densities(
        self, x: Tensor, y: Tensor, kernel: Kernel, theta: Hyperparameters, noise: RowNoise | None = None
    ) -> Tensor:
        """Returns the mean log-density of a point of each group, (p,), in float64; −∞ where a group has no factor."""
        try:
            return conditional_densities(x, y, self.groups, kernel, theta, self.last, noise) / self.last
        except torch.linalg.LinAlgError:
            return torch.full((len(self.groups),), -math.inf, dtype=torch.float64, device=x.device)


def near_terms(
    x: Tensor, theta: Hyperparameters, m: int, count: int, generator: torch.Generator, *, even: bool = False
) -> tuple[Terms, Terms]:
    """Returns the first points of a random order as one group, and ``count`` random points given their m nearest
    earlier ones by the length scales of θ; all points where there are no more than that.

    Together, with all points, they are the near-neighbour likelihood of the data. Most points come late in the order,
    where near ones are as dense as the data; ``even`` draws as many of every density instead.
    """
    n = len(x)
    order = torch.randperm(n, generator=generator).numpy()
    m = min(m, n - 1)
    first = min(first_stretch(m), n)
    centred = x.double() - x.double().mean(0)
    z = (centred / theta.length_scales.to(x.device)).cpu().numpy()[order]
    if even:
        share = torch.rand(count, dtype=torch.float64, generator=generator)
        places = (first * (n / first) ** share).long().clamp_max(n - 1).unique().numpy()
    else:
        places = first + torch.randperm(n - first, generator=generator)[:count].sort().values.numpy()
    near = nearest_before(z, places, m)
    groups = np.concatenate([order[near][:, ::-1], order[places][:, None]], 1)
    return (
        Terms(torch.as_tensor(order[:first].copy(), device=x.device)[None], first),
        Terms(torch.as_tensor(np.ascontiguousarray(groups), device=x.device), 1),
    )


def near_log_likelihood(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    m: int,
    generator: torch.Generator,
    noise: RowNoise | None = None,
) -> tuple[float, Tensor]:
    """Returns the near-neighbour likelihood of all points, log p(y), and its gradient by θ, (2 + lengths,).

    x is (n, d), y (n,); m is the number of neighbours, and the generator draws the order. ``noise`` is what
    that of each row is made of; by default it is σ² for all.
    """
    value, slope = 0.0, torch.zeros(theta.vector.numel(), dtype=torch.float64)
    for terms in near_terms(x, theta, m, len(x), generator):
        if len(terms.groups):
            found, gradient = conditionals(x, y, terms.groups, kernel, theta, terms.last, noise)
            value, slope = value + float(found.sum()), slope + gradient
    return value, slope


@dataclass(frozen=True)
class Climbed:
    """Holds the best θ that a climb has seen, the mean log-density of a point there, and if a callback ended it."""

    theta: Hyperparameters
    value: float
    ended: bool = False


class _EnoughError(Exception):
    """Ends a climb whose callback has asked for it."""


def climb(
    x: Tensor,
    y: Tensor,
    terms: Terms,
    kernel: Kernel,
    theta: Hyperparameters,
    limits: Limits = ANYWHERE,
    *,
    evaluations: int,
    noise: RowNoise | None = None,
    callbacks: Sequence[Callback] = (),
    least_gain: float | None = None,
    prior: Prior | None = None,
) -> Climbed:
    """Climbs the mean log-density of the terms from θ, by L-BFGS in log θ; returns the best point seen.

    Parameters
    ----------
    limits : Limits
        Where the climb may go.
    evaluations : int
        About how often densities and their gradient are evaluated.
    noise : RowNoise, optional
        What the noise of each row is made of; by default it is σ² for all.
    callbacks : sequence of Callback
        Called after every evaluation; one that returns True ends the climb.
    least_gain : float, optional
        The mean log-density that an iteration has to add for another one to follow; by default next to nothing.
    prior : Prior, optional
        What is thought of θ beforehand: its log-density is added to that of all terms before the mean is taken.
    """
    lengths = len(theta.length_scales)
    best = Climbed(theta, -math.inf)
    history: list[StepRecord] = []

    def negative(u: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal best
        began = time.perf_counter()
        here = limits.theta(u, lengths)
        try:
            found, gradient = conditionals(x, y, terms.groups, kernel, here, terms.last, noise)
        except torch.linalg.LinAlgError:
            return FAILED, np.zeros_like(u)
        more, by_prior = (0.0, 0.0) if prior is None else prior(here)
        value = (float(found.sum()) + more) / terms.points
        slope = limits.slope(u, gradient + by_prior) / terms.points
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            return FAILED, np.zeros_like(u)
        if value > best.value:
            best = Climbed(here, value)
        seconds = time.perf_counter() - began
        history.append(record_without_solve(here, len(history), value * len(x), seconds))
        state = TrainingState(len(history), here.unconstrained, Adam.zeros(len(here.vector)), history=tuple(history))
        ends = [callback(history[-1], state) for callback in callbacks]
        if any(ends):
            raise _EnoughError
        return -value, -slope

    start = limits.numbers(theta)
    try:
        bounds = limits.bounds(len(start))
        options = {"maxfun": evaluations, **({} if least_gain is None else {"ftol": least_gain})}
        with one_blas_thread():
            minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    except _EnoughError:
        logger.debug("a climb was ended by a callback after %d evaluations", len(history))
        return replace(best, ended=True)
    return best
