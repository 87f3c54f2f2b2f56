"""A start by terms of the near-neighbour likelihood, at the density of all data: of a map, or of any table with waves.

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
from warmgp.training.prior import Prior
from warmgp.training.state import Callback

AT_WAVES = 80
"""Evaluations of a first climb that begins at waves. With many inputs 16 or 40 end on the way, where those that do not
matter still explain noise: 20,000 rows with 40 inputs had a noise of 0.003 instead of 0.14, and have 0.12 after 80."""


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
    climbs = _Climbs(x, y, kernel, generator, noise, callbacks)
    if rough:
        found = climbs.roughly(theta, limits, how, how.rough_evaluations)
        theta = found.theta
        if not found.ended and (fine := finer(x, y, kernel, theta, limits, generator=generator, noise=noise)):
            theta = climbs.roughly(fine, limits_at_waves(limits), how, AT_WAVES).theta
    return climbs.fully(theta, limits, how)


def near_start_at_waves(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    fine: Hyperparameters,
    how: NearStart,
    limits: Limits = ANYWHERE,
    *,
    generator: torch.Generator,
    noise: RowNoise | None = None,
    callbacks: Sequence[Callback] = (),
) -> Hyperparameters:
    """Returns the hyperparameters of the data x, (n, d), and y, (n,), that climbs from those of waves lead to."""
    climbs = _Climbs(x, y, kernel, generator, noise, callbacks)
    return climbs.fully(climbs.roughly(fine, limits_at_waves(limits), how, AT_WAVES).theta, limits, how)


@dataclass(frozen=True)
class _Climbs:
    """Holds what is climbed by near terms; with few of them for a length scale by what was thought beforehand, too."""

    x: Tensor
    y: Tensor
    kernel: Kernel
    generator: torch.Generator
    noise: RowNoise | None
    callbacks: Sequence[Callback]

    def roughly(self, theta: Hyperparameters, limits: Limits, how: NearStart, evaluations: int) -> Climbed:
        """Returns the end of a first climb, from θ."""
        return self._climbed(theta, limits, how.rough_terms, how.rough_neighbours, evaluations)

    def fully(self, theta: Hyperparameters, limits: Limits, how: NearStart) -> Hyperparameters:
        """Returns where a second climb ends, from θ."""
        return self._climbed(theta, limits, how.terms, how.neighbours, how.evaluations).theta

    def _climbed(
        self, theta: Hyperparameters, limits: Limits, count: int, neighbours: int, evaluations: int
    ) -> Climbed:
        terms = near_terms(self.x, theta, neighbours, count, self.generator)[1]
        groups = limits.groups(len(theta.length_scales))
        prior = Prior.of(max(1, terms.points), self.x.shape[1], groups, self.noise)
        return climb(
            self.x, self.y, terms, self.kernel, theta, limits, evaluations=evaluations, noise=self.noise,
            callbacks=self.callbacks, prior=prior,
        )  # fmt: skip
