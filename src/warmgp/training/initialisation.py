"""Starts on part of the data: trainings on a random sample that grows, or an average over trained neighbourhoods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.gradient import Exact, functions_of
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators import make_operator
from warmgp.solvers import Cholesky
from warmgp.training.loop import train_only
from warmgp.training.problem import Problem
from warmgp.training.state import Callback, TrainingOptions, TrainingState

N_CENTROIDS = 10
N_STEPS = 100

FURTHEST = 0.5
"""The largest change of an unconstrained hyperparameter from one size to the next: a factor of 1.6 for small ones."""


@dataclass(frozen=True)
class Stage:
    """Holds a size that training goes through before it is at all points: rows, how H is multiplied with, and how."""

    size: int
    operator: str
    options: TrainingOptions


def grown_start(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    stages: Sequence[Stage],
    *,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
    promote: bool = True,
    dtype: torch.dtype | None = None,
) -> TrainingState:
    """Returns the state before the first step on all points, after trainings on more and more random ones.

    The first training begins at θ. Each one after it begins where the one before ended: with its θ, taken further as it
    changed between the two sizes before (:func:`extrapolated`), with Adam's moments, and with its probes and solutions,
    zero at the points that are new. With ``promote`` a training goes over to float64 where float32 is not enough.
    ``dtype`` is what to train in, x's own by default.
    """
    dtype = dtype or x.dtype
    n = x.shape[0]
    order = torch.randperm(n, generator=generator).to(x.device)
    state, found = None, []
    for stage in stages:
        rows = order[: stage.size]
        problem = _part(x[rows], y[rows], kernel, theta if state is None else state.theta, stage, promote, dtype)
        state = train_only(problem, stage.options, generator=generator, state=state, callbacks=callbacks)
        found.append((stage.size, state.nu))
        larger = next((after.size for after in stages if after.size > stage.size), n)
        places = order[: stage.size] if larger == n else torch.arange(stage.size, device=x.device)
        nu = extrapolated(found, larger)
        state = _carried(state, nu, stage, larger, places, generator, dtype)
    assert state is not None
    return state


def _part(
    x: Tensor, y: Tensor, kernel: Kernel, theta: Hyperparameters, stage: Stage, promote: bool, dtype: torch.dtype
) -> Problem:
    """Makes the problem of one size."""

    def in_float64() -> Problem:
        return Problem(make_operator(stage.operator, x.double(), kernel, theta), y.double())

    operator = make_operator(stage.operator, x.to(dtype), kernel, theta)
    single = dtype == torch.float32
    original = (x.double(), y.double()) if single else None
    return Problem(operator, y.to(dtype), original=original, promote=in_float64 if promote and single else None)


def _carried(
    state: TrainingState,
    nu: Tensor,
    stage: Stage,
    n: int,
    places: Tensor,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> TrainingState:
    """Returns the state before the first step on n points, of which those at ``places`` were in the stage."""
    adam = state.adam.for_more_points(n / stage.size)
    draw = state.draw.for_more_rows(n, places, generator, dtype) if functions_of(state.draw) is not None else None
    if draw is None or state.solution is None or not stage.options.starts_warm:
        return TrainingState(0, nu, adam)
    solution = torch.zeros(n, state.solution.shape[1], dtype=dtype, device=state.solution.device)
    solution[places] = state.solution.to(dtype)
    return TrainingState(0, nu, adam, draw, solution, state.solution_theta)


def extrapolated(found: Sequence[tuple[int, Tensor]], n: int) -> Tensor:
    """Returns ν at n points from those at smaller sizes: as the last two lie on a line over the logarithm of the size.

    With more points a model tells more signal from noise, and its noise and length scales fall, about in proportion to
    a power of the size. A change is at most ``FURTHEST``; after one size alone, ν stays as it is.
    """
    size, nu = found[-1]
    if len(found) < 2 or n <= size:
        return nu
    size_before, nu_before = found[-2]
    share = math.log(n / size) / math.log(size / size_before)
    return nu + (share * (nu - nu_before)).clamp(-FURTHEST, FURTHEST)


def subset_heuristic(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    *,
    generator: torch.Generator,
    ard: bool = True,
    neighbourhood_size: int = 10_000,
    n_centroids: int = N_CENTROIDS,
    n_steps: int = N_STEPS,
    learning_rate: float = 0.1,
    noise_floor: float = 0.0,
    callbacks: Sequence[Callback] = (),
) -> Hyperparameters:
    """Returns the average of the hyperparameters trained exactly on neighbourhoods of random points.

    For each of ``n_centroids`` training points drawn at random: take its ``neighbourhood_size`` nearest points (itself
    included) in Euclidean distance and maximise their exact marginal likelihood from ones. Training on all points is
    then spared the early steps, and length scales too long for a random subsample are avoided because a neighbourhood
    is as dense as the data.

    Parameters
    ----------
    x : Tensor, (n, d)
    y : Tensor, (n,)
    kernel : Kernel
    generator : torch.Generator
        Draws the centroids.
    ard : bool
        One length scale per input, or one shared.
    neighbourhood_size : int
        Points of a neighbourhood, at most n. Cost grows with their cube.
    callbacks : sequence of Callback
        Called after every step of every neighbourhood.
    """
    if neighbourhood_size < 2 or n_centroids < 1:
        raise ValueError(
            f"neighbourhood_size must be at least 2 and n_centroids at least 1, got {neighbourhood_size}, {n_centroids}"
        )
    n, d = x.shape
    size = min(neighbourhood_size, n)
    centroids = torch.randperm(n, generator=generator)[: min(n_centroids, n)].tolist()
    options = TrainingOptions(
        Cholesky(), Exact(), n_steps=n_steps, learning_rate=learning_rate, noise_floor=noise_floor
    )
    found = []
    for centroid in centroids:
        near = (x - x[centroid]).square().sum(1).topk(size, largest=False).indices
        operator = make_operator("chunked", x[near].double(), kernel, Hyperparameters.ones(d if ard else 1))
        problem = Problem(operator, y[near].double())
        state = train_only(problem, options, generator=generator, callbacks=callbacks)
        found.append(state.theta.vector)
    return Hyperparameters.from_vector(torch.stack(found).mean(0))
