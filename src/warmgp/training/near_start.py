"""A start of a map: hyperparameters by terms of its near-neighbour likelihood, at the density of all data.

A first climb finds the rough size of everything; where near points show a finer structure than it has come to
(:mod:`warmgp.training.fine_structure`), it begins again from there. A second one takes more terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.training.fine_structure import finer, limits_at_waves
from warmgp.training.limits import ANYWHERE, Limits
from warmgp.training.near_likelihood import Climbed, climb, near_terms
from warmgp.training.state import Callback


@dataclass(frozen=True)
class NearStart:
    """Says how hyperparameters of a map are found by terms of its near-neighbour likelihood.

    Attributes
    ----------
    terms, neighbours, evaluations : int
        The terms that are climbed, the points that each is conditioned on, and about how often they are evaluated.
    rough_terms, rough_neighbours, rough_evaluations : int
        The same for the climb before it, which finds the rough size of everything.
    """

    terms: int = 4_000
    neighbours: int = 30
    evaluations: int = 8
    rough_terms: int = 1_200
    rough_neighbours: int = 20
    rough_evaluations: int = 16


def near_start(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    how: NearStart,
    limits: Limits = ANYWHERE,
    *,
    rough: bool = True,
    generator: torch.Generator,
    noise: RowNoise | None = None,
    callbacks: Sequence[Callback] = (),
) -> Hyperparameters:
    """Returns the hyperparameters of the data x, (n, d), and y, (n,), that climbs from θ lead to.

    ``rough`` says whether the first climb is done; it is not where θ comes from one already. See :func:`climb` for the
    rest.
    """

    def climbed(at: Hyperparameters, within: Limits, count: int, neighbours: int, evaluations: int) -> Climbed:
        terms = near_terms(x, at, neighbours, count, generator)[1]
        return climb(x, y, terms, kernel, at, within, evaluations=evaluations, noise=noise, callbacks=callbacks)

    if rough:
        roughly = how.rough_terms, how.rough_neighbours, how.rough_evaluations
        found = climbed(theta, limits, *roughly)
        theta = found.theta
        if not found.ended and (fine := finer(x, y, kernel, theta, limits, generator=generator, noise=noise)):
            theta = climbed(fine, limits_at_waves(limits), *roughly).theta
    return climbed(theta, limits, how.terms, how.neighbours, how.evaluations).theta
