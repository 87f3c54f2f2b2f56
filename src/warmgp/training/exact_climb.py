"""A start by the likelihood itself, for few points: short climbs from several places, the best of them to its end.

At length scales of 1 points with many inputs are so far apart that K is nearly the identity, and the likelihood is
flat: a training that begins there ends there. Length scales that grow with √d keep points in touch with each other at
any number of inputs, because distances of standardised points grow so. And a likelihood may have several tops, of which
one takes for noise what another explains: climbs begin at little and at much noise, and the highest one goes on.

With few points for a length scale the top is not the place to end: what was thought of length scales and noise before
the data came counts then, too (:mod:`warmgp.training.prior`). Its tails are heavy, so that there is a top for every
choice of inputs. The likelihood alone finds those that matter sooner: it is climbed first, and the prior comes in from
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.row_noise import RowNoise, rows_at
from warmgp.training.fine_structure import finer, likelier
from warmgp.training.limits import ANYWHERE, Limits
from warmgp.training.near_likelihood import Climbed, Terms, climb
from warmgp.training.near_start import NearStart, near_start_at_waves
from warmgp.training.prior import Prior
from warmgp.training.state import Callback

PLACES = ((0.3, 0.5, 1.0), (0.05, 1.0, 1.0), (0.7, 2.0, 1.0), (0.1, 0.25, 0.0))
"""Where climbs begin: the noise, the length scales in units of √d, and the least that they are."""

LEAST_GAIN = 2e-6
"""The log-likelihood per point that an iteration of the last climb has to add: far less than a step of training has to
(:mod:`warmgp.training.settling`)."""

COMPARED, TAKEN = 400, 2
"""The most points whose likelihood all places are compared by: a sample of this size is climbed in a moment. Of more
points so many places go on, from their beginning: where a climb of a sample ends may be the wrong side of a hill
(1,000 rows of *protein* ended 29 nats below the top)."""

FINDING, FINALISTS = 30, 2
"""Evaluations of a climb of the likelihood alone before the prior comes in, and how many climbs go to their end from
there; one, where more than ``COMPARED`` points make them dear. With the prior from the beginning and one climb to its
end, a top that was at least three nats higher was missed for 3 of 114 small tables, so for none of them."""

INSTEAD_OF_GROUPS = 2_000
"""The points that are climbed where groups of near ones were of no use. Of a smooth function of eight inputs with noise
of 0.007 a sample of 1,000 found half of the noise (a tenth, at the top of their likelihood), and predicted others from
5,000 at 2.99 nats each; from there a climb on 2,000 has 3.27, and 0.02 more on 4,000, which take seven times longer."""


@dataclass(frozen=True)
class ExactClimb:
    """Says how hyperparameters are found by the likelihood of all points, or of a random sample of them.

    Attributes
    ----------
    points : int
        The points whose likelihood is climbed.
    short, evaluations : int
        About how often it is evaluated in each of the short climbs, and in the one that goes on.
    """

    points: int = 1_000
    short: int = 12
    evaluations: int = 150

    @property
    def most(self) -> int:
        """About how many evaluations on all points there are, at most."""
        return (len(PLACES) + 1) * (self.short + FINDING) + FINALISTS * self.evaluations


def climbed_start(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    how: ExactClimb,
    lengths: int,
    limits: Limits = ANYWHERE,
    *,
    chosen: Hyperparameters | None = None,
    known: Hyperparameters | None = None,
    generator: torch.Generator,
    noise: RowNoise | None = None,
    callbacks: Sequence[Callback] = (),
) -> Hyperparameters:
    """Returns the likeliest hyperparameters of x, (n, d), and y, (n,), in standardised units, that climbs have found.

    Parameters
    ----------
    lengths : int
        The number of length scales: d, or 1.
    chosen : Hyperparameters, optional
        One more place to begin at, such as where the choice of the kernel ended. Few points with a prior need no more
        places.
    known : Hyperparameters, optional
        See :func:`warmgp.training.fine_structure.finer`.
    generator : torch.Generator
        Draws the sample, where not all points are climbed or compared.
    limits, noise, callbacks
        See :func:`warmgp.training.near_likelihood.climb`.
    """
    rows = _drawn(x, how, generator)
    ascent = _Ascent(x, y, kernel, limits, how, noise, tuple(callbacks))
    prior = ascent.prior(rows, lengths)
    places = starting_places(x.shape[1], lengths)
    if chosen is not None and (prior is None or len(rows) > COMPARED):
        places.append(chosen)
    if len(rows) > COMPARED:
        some = rows[torch.randperm(len(rows), generator=generator)[:COMPARED].to(x.device)]
        places = sorted(places, key=lambda theta: -ascent.climbed(some, theta, how.short).value)[:TAKEN]
    top = ascent.highest(rows, places, prior)
    if top.ended:
        return top.theta
    fine = finer(x, y, kernel, top.theta, limits, generator=generator, noise=noise, known=known)
    return top.theta if fine is None else ascent.from_waves(rows, fine, prior, generator, top)


def start_at_waves(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    fine: Hyperparameters,
    how: ExactClimb,
    limits: Limits = ANYWHERE,
    *,
    generator: torch.Generator,
    noise: RowNoise | None = None,
    callbacks: Sequence[Callback] = (),
) -> Hyperparameters:
    """Returns the likeliest hyperparameters that a climb finds from those of waves, ``fine``.

    See :func:`climbed_start` for the rest.
    """
    rows = _drawn(x, how, generator)
    ascent = _Ascent(x, y, kernel, limits, how, noise, tuple(callbacks))
    return ascent.from_waves(rows, fine, ascent.prior(rows, len(fine.length_scales)), generator)


def climbed_on(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    how: ExactClimb,
    limits: Limits = ANYWHERE,
    *,
    generator: torch.Generator,
    noise: RowNoise | None = None,
    callbacks: Sequence[Callback] = (),
) -> Hyperparameters:
    """Returns where a short climb from θ ends that begins near the top, of more points than those θ comes from.

    See :func:`climbed_start` for the rest.
    """
    rows = _drawn(x, how, generator)
    ascent = _Ascent(x, y, kernel, limits, how, noise, tuple(callbacks))
    return ascent.climbed(rows, theta, how.short, prior=ascent.prior(rows, len(theta.length_scales))).theta


def _drawn(x: Tensor, how: ExactClimb, generator: torch.Generator) -> Tensor:
    """Returns the numbers of the points that are climbed."""
    n = len(x)
    return (torch.arange(n) if how.points >= n else torch.randperm(n, generator=generator)[: how.points]).to(x.device)


def starting_places(d: int, lengths: int) -> list[Hyperparameters]:
    """Returns where climbs begin with d inputs, all of them different."""
    vectors = {(noise, 1.0, *[max(least, times * d**0.5)] * lengths) for noise, times, least in PLACES}
    return [Hyperparameters.from_vector(torch.tensor(one, dtype=torch.float64)) for one in sorted(vectors)]


@dataclass(frozen=True)
class _Ascent:
    """Holds what is climbed, and how."""

    x: Tensor
    y: Tensor
    kernel: Kernel
    limits: Limits
    how: ExactClimb
    noise: RowNoise | None
    callbacks: tuple[Callback, ...]

    def prior(self, rows: Tensor, lengths: int) -> Prior | None:
        """Returns what is thought of so many length scales before some rows are seen; None where rows are many."""
        return Prior.of(len(rows), self.x.shape[1], self.limits.groups(lengths), rows_at(self.noise, rows))

    def highest(self, rows: Tensor, places: list[Hyperparameters], prior: Prior | None) -> Climbed:
        """Returns the highest top of some rows' likelihood, times the prior if there is one, from these places."""
        how = self.how
        if prior is None:
            best = max((self.climbed(rows, theta, how.short) for theta in places), key=lambda end: end.value)
            return self.climbed(rows, best.theta, how.evaluations, LEAST_GAIN)
        found = [self.climbed(rows, theta, FINDING).theta for theta in places]
        ends = (self.climbed(rows, theta, how.short, prior=prior) for theta in found)
        finalists = sorted(ends, key=lambda end: -end.value)[: FINALISTS if len(rows) <= COMPARED else 1]
        tops = [self.climbed(rows, end.theta, how.evaluations, LEAST_GAIN, prior) for end in finalists]
        return replace(max(tops, key=lambda top: top.value), ended=any(top.ended for top in tops))

    def from_waves(
        self,
        rows: Tensor,
        fine: Hyperparameters,
        prior: Prior | None,
        generator: torch.Generator,
        top: Climbed | None = None,
    ) -> Hyperparameters:
        """Returns where climbs end that begin at waves, or another top of some rows' likelihood where that is higher.

        Some rows may be too far from each other to show waves. So where they are not all, terms of near points are
        climbed, too, and points given near ones say which end is likelier: 3,000 rows of six kinds ended 0.03 to 0.4
        nats a new point higher by these, and of two kinds of 1,500 rows 0.02 and 0.04 lower.
        """
        end = self.climbed(rows, fine, self.how.evaluations, LEAST_GAIN, prior)
        best = end if top is None else max(top, end, key=lambda one: one.value)
        x, y, kernel, limits, noise = self.x, self.y, self.kernel, self.limits, self.noise
        if len(rows) == len(x) or end.ended:
            return best.theta
        near = near_start_at_waves(
            x, y, kernel, fine, NearStart(), limits, generator=generator, noise=noise, callbacks=self.callbacks
        )
        is_better = likelier(x, y, kernel, near, best.theta, limits, generator=generator, noise=noise)
        return near if is_better else best.theta

    def climbed(
        self,
        rows: Tensor,
        theta: Hyperparameters,
        evaluations: int,
        least_gain: float | None = None,
        prior: Prior | None = None,
    ) -> Climbed:
        """Climbs the likelihood of some rows from θ, times the prior if there is one."""
        return climb(
            self.x, self.y, Terms(rows[None], len(rows)), self.kernel, theta, self.limits, evaluations=evaluations,
            noise=self.noise, callbacks=self.callbacks, least_gain=least_gain, prior=prior,
        )  # fmt: skip
