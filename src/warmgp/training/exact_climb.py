"""A start by the likelihood itself, for few points: short climbs from several places, the best of them to its end.

At length scales of 1 points with many inputs are so far apart that K is nearly the identity, and the likelihood is
flat: a training that begins there ends there. Length scales that grow with √d keep points in touch with each other at
any number of inputs, because distances of standardised points grow so. And a likelihood may have several tops, of which
one takes for noise what another explains: climbs begin at little and at much noise, and the highest one goes on.

Its end need not be the top. Where length scales are many beside the points, inputs that do not matter come to explain
the noise one by one, and error bars end far too small. So points are left out in turn, and a climb goes no further than
where those that were left out are predicted best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.training.limits import ANYWHERE, Limits
from warmgp.training.near_likelihood import Climbed, Terms, climb
from warmgp.training.state import Callback, StepRecord, TrainingState

PLACES = ((0.3, 0.5, 1.0), (0.05, 1.0, 1.0), (0.7, 2.0, 1.0), (0.1, 0.25, 0.0))
"""Where climbs begin: the noise, the length scales in units of √d, and the least that they are."""

LEAST_GAIN = 2e-6
"""The log-likelihood per point that an iteration of the last climb has to add: far less than a step of training has to
(:mod:`warmgp.training.settling`)."""

FEW_A_LENGTH = 25
"""Points for a length scale below which points are left out to see how far a climb may go."""

FOLDS_OF_MANY = 2
"""The parts that are left out of more than ``COMPARED`` points: so many tell as much as five of few, and are dear."""

LEAST_GAIN_LEFT_OUT = 1e-4
"""The same for climbs of which points are left out, which only have to show where those are predicted worse."""

COMPARED, TAKEN = 400, 2
"""The most points whose likelihood all places are compared by: a sample of this size is climbed in a moment. Of more
points so many places go on, from their beginning: where a climb of a sample ends may be the wrong side of a hill
(1,000 rows of *protein* ended 29 nats below the top)."""

FOLDS, STOPS, MARGIN, ERRORS, VERY_FEW = 5, (8, 12, 18, 27, 40, 60, 90), 0.02, {False: 1.0, True: 0.3}, 4
"""The parts that are left out in turn; the evaluations after which they are predicted; the nats a point, or else the
standard errors, by which a later stop may be worse than the best one, by whether there are fewer points for a length
scale than the last number: then more is lost at the top than by an early stop."""


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
        return (len(PLACES) + 1) * self.short + self.evaluations


def climbed_start(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    how: ExactClimb,
    lengths: int,
    limits: Limits = ANYWHERE,
    *,
    chosen: Hyperparameters | None = None,
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
        One more place to begin at: where the choice of the kernel ended.
    generator : torch.Generator
        Draws the sample, where not all points are climbed, and what is left out.
    limits, noise, callbacks
        See :func:`warmgp.training.near_likelihood.climb`.
    """
    n = len(x)
    rows = (torch.arange(n) if how.points >= n else torch.randperm(n, generator=generator)[: how.points]).to(x.device)
    ascent = _Ascent(x, y, kernel, limits, how, noise, tuple(callbacks))
    free = len(set(limits.tied)) if len(limits.tied) == lengths else lengths
    careful = len(rows) < FEW_A_LENGTH * free
    places = [*starting_places(x.shape[1], lengths), *([] if chosen is None or careful else [chosen])]
    if len(rows) > COMPARED:
        some = rows[torch.randperm(len(rows), generator=generator)[:COMPARED].to(x.device)]
        places = sorted(places, key=lambda theta: -ascent.climbed(some, theta, how.short).value)[:TAKEN]
    ends = [(ascent.climbed(rows, theta, how.short), theta) for theta in places]
    best, place = max(ends, key=lambda one: one[0].value)
    if careful:
        stop = ascent.stop(rows, place, ERRORS[len(rows) < VERY_FEW * free], generator)
        if stop is not None:
            return ascent.climbed(rows, place, stop).theta
    return ascent.climbed(rows, best.theta, how.evaluations, LEAST_GAIN).theta


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

    def climbed(
        self,
        rows: Tensor,
        theta: Hyperparameters,
        evaluations: int,
        least_gain: float | None = None,
        watch: Sequence[Callback] = (),
    ) -> Climbed:
        """Climbs the likelihood of some rows from θ."""
        return climb(
            self.x, self.y, Terms(rows[None], len(rows)), self.kernel, theta, self.limits, evaluations=evaluations,
            noise=self.noise, callbacks=(*self.callbacks, *watch), least_gain=least_gain,
        )  # fmt: skip

    def stop(self, rows: Tensor, place: Hyperparameters, errors: float, generator: torch.Generator) -> int | None:
        """Returns after how many evaluations from a place a climb had better stop; None for not before its end.

        That is the latest place at which the rows that were left out are predicted as well as anywhere, within so many
        standard errors of the difference over the parts.
        """
        parts = rows[torch.randperm(len(rows), generator=generator).to(rows.device)].tensor_split(FOLDS)
        folds = FOLDS if len(rows) <= COMPARED else FOLDS_OF_MANY
        found = torch.zeros(folds, len(STOPS) + 1, dtype=torch.float64)
        for fold, part in enumerate(parts[:folds]):
            others = torch.cat([other for other in parts if other is not part])
            seen = _Seen()
            self.climbed(others, place, STOPS[-1], LEAST_GAIN_LEFT_OUT, watch=[seen])
            left_out = Terms(torch.cat([others, part])[None], len(part))
            for number, theta in enumerate(seen.at(STOPS, place)):
                found[fold, number] = float(left_out.densities(self.x, self.y, self.kernel, theta, self.noise))
        loss = found[:, int(found.mean(0).argmax())][:, None] - found  # (folds, stops)
        allowed = (errors * loss.std(0) / folds**0.5).clamp_min(MARGIN)
        latest = int((loss.mean(0) <= allowed).nonzero().max())
        return STOPS[latest] if latest < len(STOPS) else None


class _Seen:
    """Keeps the best θ that a climb has seen after each evaluation: a callback."""

    def __init__(self) -> None:
        self._best: list[tuple[float, Hyperparameters]] = []

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        assert record.log_marginal_likelihood is not None
        here = record.log_marginal_likelihood, state.theta
        self._best.append(max(here, self._best[-1], key=lambda one: one[0]) if self._best else here)

    def at(self, stops: Sequence[int], place: Hyperparameters) -> list[Hyperparameters]:
        """Returns the best θ after so many evaluations each, and at the end; the place itself where there was none."""
        if not self._best:
            return [place] * (len(stops) + 1)
        return [self._best[min(stop, len(self._best)) - 1][1] for stop in (*stops, len(self._best))]
