"""Starts on part of the data: a training on a random sample, or an average over exactly trained neighbourhoods."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from warmgp.gradient import Exact
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators import make_operator
from warmgp.operators.row_noise import RowNoise, rows_at
from warmgp.solvers import Cholesky
from warmgp.training.loop import train_only
from warmgp.training.near_likelihood import Terms
from warmgp.training.problem import Problem
from warmgp.training.state import Callback, StepRecord, TrainingOptions, TrainingState

logger = logging.getLogger(__name__)

N_CENTROIDS = 10
N_STEPS = 100

COMPARED, CLEARLY, N_AGAIN = 2_000, 0.1, 30
"""Points of a sample whose likelihood says whether another start was the better one, the nats a point that it must be
better by, and the steps that are taken from there. Data with hardly any noise need it: a climb finds a noise scale of
10⁻⁴, to which 100 steps from 1 do not come."""


class _Asked:
    """Calls callbacks, and remembers whether one of them has asked to stop."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks, self.to_stop = callbacks, False

    def __call__(self, record: StepRecord, state: TrainingState) -> bool:
        answers = [callback(record, state) for callback in self.callbacks]
        self.to_stop = any(answers)
        return self.to_stop


def _all_of(x: Tensor) -> Terms:
    """Returns all points x as one group, whose density is their likelihood."""
    return Terms(torch.arange(len(x), device=x.device)[None], len(x))


def sample_start(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    options: TrainingOptions,
    *,
    size: int,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
    promote: bool = True,
    dtype: torch.dtype | None = None,
    noise: RowNoise | None = None,
    other: Hyperparameters | None = None,
) -> TrainingState:
    """Returns the state before the first step on all points, after a training from θ on ``size`` random ones.

    Its θ and Adam's moments go on; solutions and probes belong to the sample and do not. With ``promote`` the training
    goes over to float64 where float32 is not enough. ``dtype`` is what to train in, x's own by default, and
    ``noise`` what that of each row is made of. ``other`` is where a climb on other points ended: where these ones are
    clearly likelier there than where training led, it is begun again from there.
    """
    dtype = dtype or x.dtype
    rows = torch.randperm(x.shape[0], generator=generator)[:size].to(x.device)
    x_some, y_some, noise_some = x[rows], y[rows], rows_at(noise, rows)

    def in_float64() -> Problem:
        return Problem(make_operator("dense", x_some.double(), kernel, theta, rows=noise_some), y_some.double())

    asked = _Asked(callbacks)

    def trained_from(first: Hyperparameters, n_steps: int) -> TrainingState:
        problem = Problem(
            make_operator("dense", x_some.to(dtype), kernel, first, rows=noise_some),
            y_some.to(dtype),
            original=(x_some.double(), y_some.double()),
            promote=in_float64 if promote else None,
        )
        return train_only(problem, replace(options, n_steps=n_steps), generator=generator, callbacks=[asked])

    def density(at: Hyperparameters) -> float:
        return float(_all_of(x_some[:COMPARED]).densities(x_some, y_some, kernel, at, noise_some).mean())

    trained = trained_from(theta, options.n_steps)
    if other is not None and not asked.to_stop and density(other) > density(trained.theta) + CLEARLY:
        logger.info("the training on a sample begins again where the choice of the kernel ended")
        trained = trained_from(other, min(N_AGAIN, options.n_steps))
    return TrainingState(0, trained.nu, trained.adam)


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
    learn_noise: bool = True,
    tied: tuple[int, ...] = (),
    noise: RowNoise | None = None,
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
    tied : tuple of int
        The group of each length scale, as in :class:`TrainingOptions`.
    noise : RowNoise, optional
        What the noise of each row is made of; by default it is σ² for all.
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
        Cholesky(), Exact(), n_steps=n_steps, learning_rate=learning_rate, noise_floor=noise_floor,
        learn_noise=learn_noise, tied=tied,
    )  # fmt: skip
    found = []
    for centroid in centroids:
        near = (x - x[centroid]).square().sum(1).topk(size, largest=False).indices
        theta = Hyperparameters.ones(d if ard else 1)
        operator = make_operator("chunked", x[near].double(), kernel, theta, rows=rows_at(noise, near))
        problem = Problem(operator, y[near].double())
        state = train_only(problem, options, generator=generator, callbacks=callbacks)
        found.append(state.theta.vector)
    return Hyperparameters.from_vector(torch.stack(found).mean(0))
