"""Length scales that a climb from long ones does not find: those of waves, of which the data hold many, and of codes.

A climb goes uphill. Where y goes up and down many times over the range of an input, longer length scales than a wave
explain nothing, noise takes all of it, and the likelihood is flat from there: 900 points of a sine with 60 periods were
told to be noise. Near points show what random ones hide. Each of some points is predicted from those nearest to it, by
length scales down to the distance of neighbours; where one of these makes them clearly likelier than where a climb has
ended, the climb begins again from there.

With more than three inputs each is looked at alone, whatever the others are. Waves across several of them, as those of
sin(k(x₁ + x₂)), are not seen then. Waves along one that others turn over, as the seasons of 200 stations on both
hemispheres, cancel for points that agree in that one alone: points that are near in all inputs are asked, too, in up to
sixteen of them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.near_points import nearest_to
from warmgp.operators.row_noise import RowNoise
from warmgp.training.limits import ANYWHERE, LEAST, Limits
from warmgp.training.near_likelihood import Terms

logger = logging.getLogger(__name__)

FEW_INPUTS = 3
"""The inputs up to which near points are near in all of them, so that they tell nearly everything. Of more inputs as
many are looked at, one by one: those along which y turns fastest, and as many others."""

OTHERS, GLANCE = 16, 100
"""The most others that are glanced at, and the points that are predicted for that: others than those that judge, where
there are so many."""

ASKED, NEIGHBOURS = 300, 30
"""The points that are predicted, and from how many each."""

LOOK, GLIMPSE, FEWEST_ROWS = (50_000, 2_500_000), (10_000, 200_000), 1_000
"""The rows among which a look finds neighbours, and a glance: so many, and fewer, as long as they are enough, where
there are more numbers than that in them. Every look sorts rows into a tree: 50,000 take 20 ms where inputs are few and
0.3 s where they are 50; with 385 and long length scales it took 10 s to find their neighbours."""

FEWEST = 30
"""The points, and the values of an input for its speed, below which a wave is not to be told from chance."""

OFTEN = 10
"""How many points an input has at each of its values, on average, where those that agree in it are enough to predict
one from: it may then be a code, whose values have nothing to do with their neighbours."""

LONGEST, STEP = 0.25, 0.4
"""The longest length scale that is tried, and what each next one is of it."""

NOISES = (1.0, 0.3, 0.1)
"""The noise beside these length scales, in units of what the climb has found."""

CLEARLY, LEAST_GAIN = 3.0, 0.05
"""The standard errors, and the nats, by which a point must be likelier on average."""

ALONE = tuple(float(0.03 * 1.33**step) for step in range(25))
"""The noises, 0.03 to 30 times the size of targets, by which points of any weights are held against noise alone."""

LARGEST_SIGNAL = 3.0
"""The largest signal scale of the first climb by near points that begins at waves. Targets of unit variance hold many
of them, so that the signal is about one. Near points tell s²/ℓ^2ν and hardly s: on a map with 40 ridges climbs went
along there to a signal of 50 and length scales of 0.2 and 290, by which neighbours all lie in one line."""


def finer(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    limits: Limits = ANYWHERE,
    *,
    generator: torch.Generator,
    noise: RowNoise | None = None,
    known: Hyperparameters | None = None,
    asked: int = ASKED,
) -> Hyperparameters | None:
    """Returns hyperparameters with shorter length scales by which x, (n, d), and y are clearly likelier than by θ.

    None where there are none: as far as near points can tell, θ is on no wrong side of a hill. With points at fewer
    than ``FEWEST`` places nothing is tried, and neither is one length scale for many inputs. Where θ does not clearly
    explain anything, all its length scales are made long before those of one thing are made short; those that are
    returned may be longer than its own.

    Parameters
    ----------
    limits, noise
        See :func:`warmgp.training.near_likelihood.climb`.
    generator : torch.Generator
        Its seed alone is used: others draw from it what they would have drawn.
    known : Hyperparameters, optional
        What was found before, as by the choice of a kernel, which has looked for all others. It is the only one that is
        held against θ then, where one of its length scales is as much shorter as a next one here.
    asked : int
        The points that are predicted.
    """
    n, d = x.shape
    if n < FEWEST or (d > FEW_INPUTS and len(theta.length_scales) < d):
        return None
    if known is not None and not bool((known.length_scales <= STEP * theta.length_scales).any()):
        return None
    data = x, y, kernel, noise
    near = _Near(data, generator, LOOK, asked=asked)
    if len(near.z) < FEWEST:
        return None
    own, (alone, nothing) = near.likeliest(_noisy(theta, limits))[1], near.by_noise_alone(theta, limits)
    before = max(own, nothing, key=_mean)  # (asked,)
    if known is not None:
        tried: Iterable[list[Hyperparameters]] = [[known]]
    else:
        begun = theta if _clear(own - nothing) else _asleep(theta, alone)
        things = _things(theta, limits)
        if d > FEW_INPUTS:
            fast, others = _by_speed(things, near)
            glance = _Near(data, generator, GLIMPSE, asked=GLANCE, first=asked)
            things = [*fast, *_shown(others, glance, theta, begun, limits)]
        elif len(things) > 1:
            things = [torch.ones(len(theta.length_scales), dtype=torch.bool), *things]
        tried = (some for thing in things for some in _tried(near, thing, begun, limits))
    looks = (near.likeliest(some) for some in tried)
    clear = [one for one in looks if _clear(one[1] - before)]  # beside outliers the likeliest may not be so
    if not clear:
        return None
    found, densities = max(clear, key=lambda one: _mean(one[1]))
    logger.info(
        "points are likelier by their neighbours with other length scales, by %.2f each", _mean(densities - before)
    )
    return found


def likelier(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    other: Hyperparameters,
    theta: Hyperparameters,
    limits: Limits = ANYWHERE,
    *,
    generator: torch.Generator,
    noise: RowNoise | None = None,
) -> bool:
    """Says whether points x, (n, d), and y are likelier given near ones by other hyperparameters than by θ.

    Either has the likeliest of some noises. See :func:`finer` for the rest.
    """
    near = _Near((x, y, kernel, noise), generator, LOOK, asked=ASKED)
    of_other, of_theta = (_mean(near.likeliest(_noisy(one, limits))[1]) for one in (other, theta))
    return of_other > of_theta


def limits_at_waves(limits: Limits) -> Limits:
    """Returns where a first climb by near points may go that begins at waves: to no larger signal than these have."""
    return replace(limits, largest=min(limits.largest, LARGEST_SIGNAL))


class _Near:
    """Finds the points nearest to some of the points x, (n, d), by any length scales, among some of them.

    These are at most so many rows, with at most so many numbers in them: ``most``. Of rows with the same inputs one
    counts: neighbours that are copies of each other would all lie at one place. All are drawn by the generator's seed;
    others begin at the seed itself, and would draw the same. Predicted are ``asked`` of them from the ``first`` on, or
    the last ones where there are no more.
    """

    def __init__(
        self,
        data: tuple[Tensor, Tensor, Kernel, RowNoise | None],
        generator: torch.Generator,
        most: tuple[int, int],
        *,
        asked: int,
        first: int = 0,
    ) -> None:
        x = data[0]
        rows = min(most[0], max(FEWEST_ROWS, most[1] // x.shape[1]))
        seeded = torch.Generator().manual_seed((generator.initial_seed() + 1) % 2**63)
        drawn = torch.randperm(len(x), generator=seeded)[:rows].to(x.device)
        some = x[drawn].double()
        z = (some - some.mean(0)).cpu().numpy()
        kept = np.sort(_places(z))
        self.z, self.rows = z[kept], drawn[torch.as_tensor(kept).to(drawn.device)]  # (places, d), (places,)
        self.predicted = np.arange(len(kept))[: first + asked][-asked:]
        self._data = data

    @property
    def y(self) -> NDArray[np.float64]:
        """The targets of the points, (places, q)."""
        return self._data[1][self.rows].double().reshape(len(self.z), -1).cpu().numpy()

    def spacing(self, columns: NDArray[np.bool_]) -> float:
        """Returns the least length scale by which a point has neighbours in some of the inputs alone; ∞ where these
        are constant.

        It is the median distance to the nearest one elsewhere, or a quarter of it where points are at the same places:
        of two or three even values more than ``LONGEST``.
        """
        z = self.z[:, columns]
        z = z[_places(z)]
        if len(z) < 2:
            return math.inf
        asked = np.linspace(0, len(z) - 1, min(ASKED, len(z))).astype(np.int64)
        distance = float(np.median(np.linalg.norm(z[nearest_to(z, asked, 2)[:, 1]] - z[asked], axis=1)))
        return distance / 4 if len(self.z) >= OFTEN * len(z) else distance

    def likeliest(self, others: list[Hyperparameters]) -> tuple[Hyperparameters, Tensor]:
        """Returns the likeliest of some hyperparameters that share their length scales, and the log-density by them of
        each of the points that are asked for given those nearest to it, (asked,)."""
        z = self.z / others[0].length_scales.numpy()
        near = nearest_to(z, self.predicted, min(NEIGHBOURS + 1, len(z)))
        return self._best(near[:, ::-1].copy(), others)

    def by_noise_alone(self, theta: Hyperparameters, limits: Limits) -> tuple[Hyperparameters, Tensor]:
        """Returns the likeliest noise that explains the points that are asked for alone, and their log-density by it,
        (asked,); that of θ, where noise is not learned."""
        least = torch.tensor(LEAST, dtype=torch.float64)
        noises: Iterable[Tensor] = [theta.noise_scale]
        if limits.learned:
            size = float(np.sqrt(np.square(self.y[self.predicted]).mean()))
            noises = (size * torch.tensor(ALONE, dtype=torch.float64)).clamp_min(max(LEAST, limits.floor))
        return self._best(
            self.predicted[:, None], [replace(theta, noise_scale=one, signal_scale=least) for one in noises]
        )

    def _best(self, groups: NDArray[np.int64], others: list[Hyperparameters]) -> tuple[Hyperparameters, Tensor]:
        """Returns the likeliest of some hyperparameters, and the log-density of the last of each group by them."""
        terms = Terms(self.rows[torch.as_tensor(groups).to(self.rows.device)], 1)
        x, y, kernel, noise = self._data
        found = [(other, terms.densities(x, y, kernel, other, noise)) for other in others]
        return max(found, key=lambda one: _mean(one[1]))


def _places(z: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns the first of the rows of z, (m, d), at each place."""
    along = (z * np.random.default_rng(0).normal(size=z.shape[1])).sum(1)  # the same for copies, and for no others
    return np.unique(along, return_index=True)[1]


def _mean(densities: Tensor) -> float:
    """Returns the mean log-density of a point."""
    return float(densities.mean())


def _clear(gain: Tensor) -> bool:
    """Says whether points are likelier by a gain, (asked,), that is seen and no chance."""
    return _mean(gain) > max(LEAST_GAIN, CLEARLY * float(gain.std()) / len(gain) ** 0.5)


def _asleep(theta: Hyperparameters, alone: Hyperparameters) -> Hyperparameters:
    """Returns what a θ that explains nothing might as well be: noise alone, and length scales by which points know of
    each other in all inputs. Beside short ones that mean nothing no waves are seen."""
    lengths = theta.length_scales
    return Hyperparameters(
        alone.noise_scale, theta.signal_scale.clamp_max(LARGEST_SIGNAL), lengths.clamp_min(2 * len(lengths) ** 0.5)
    )


def _things(theta: Hyperparameters, limits: Limits) -> list[Tensor]:
    """Returns the length scales of each thing, which are tied together: its places in θ's length scales, (lengths,)."""
    groups = torch.tensor(limits.groups(len(theta.length_scales)))
    return [groups == group for group in groups.unique()]


def _by_speed(things: list[Tensor], near: _Near) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the things along which y turns fastest, and others: the next ones, those with the most values first."""
    of_each = _speed(near.z, near.y)
    speed = [float(of_each[thing.numpy()].max()) for thing in things]
    values = [len(_places(near.z[:, thing.numpy()])) for thing in things]
    order = sorted(range(len(things)), key=lambda place: (-speed[place], -values[place]))
    fast = [place for place in order[:FEW_INPUTS] if speed[place] > 0]
    others = [place for place in order if place not in fast and values[place] > 1][:OTHERS]
    return [things[place] for place in fast], [things[place] for place in others]


def _shown(
    things: list[Tensor], near: _Near, theta: Hyperparameters, begun: Hyperparameters, limits: Limits
) -> list[Tensor]:
    """Returns those things, at most ``FEW_INPUTS``, in which near points are likelier by shorter length scales than
    those of ``begun``, with all others as there, than by θ."""
    before = _mean(near.likeliest(_noisy(theta, limits))[1])
    found = []
    for place, thing in enumerate(things):
        tried = (near.likeliest(some)[1] for some in _tried(near, thing, begun, limits))
        gain = max((_mean(densities) for densities in tried), default=-math.inf) - before
        if gain > LEAST_GAIN:
            found.append((-gain, place))
    return [things[place] for _, place in sorted(found)[:FEW_INPUTS]]


def _speed(z: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns how much y, (m, q), turns along each of the inputs z, (m, d), within a length of ``LONGEST``.

    That is how much more the mean square of y_i − y_j is for points that are a random part of that length from each
    other in one input (waves of any length are seen then) than for neighbours in it, whatever the others are; 0 where
    it is not clearly more, or an input has few values.
    """
    found = np.zeros(z.shape[1])
    within = LONGEST * np.random.default_rng(0).uniform(size=len(z))
    for column, values in enumerate(z.T):
        order = np.argsort(values, kind="stable")
        along, targets = values[order], y[order]
        far = np.searchsorted(along, along + within)
        here = np.flatnonzero(far < len(along))
        if len(here) < FEWEST or np.count_nonzero(np.diff(along)) < FEWEST - 1:
            continue
        more = np.square(targets[far[here]] - targets[here]) - np.square(targets[here + 1] - targets[here])  # (·, q)
        more = more.mean(1)
        if more.mean() > CLEARLY * more.std() / len(more) ** 0.5:
            found[column] = more.mean()
    return found


def _tried(near: _Near, thing: Tensor, theta: Hyperparameters, limits: Limits) -> Iterator[list[Hyperparameters]]:
    """Yields hyperparameters, with several noises, whose length scales are short in a thing: down to the distance of
    neighbours in it, and shorter than they are."""
    lengths = theta.length_scales
    columns = thing.expand(near.z.shape[1])  # one length scale may serve all inputs
    short, least = LONGEST, max(LEAST, near.spacing(columns.numpy()))
    while short > least:
        if bool((short < lengths[thing]).any()):
            vector = torch.cat([theta.vector[:2], torch.where(thing, short, lengths.clamp_min(short))])
            vector[1] = 1.0 if bool((vector[2:] <= LONGEST).all()) else vector[1].clamp_min(1.0)
            yield _noisy(Hyperparameters.from_vector(vector), limits)
        short *= STEP


def _noisy(theta: Hyperparameters, limits: Limits) -> list[Hyperparameters]:
    """Returns θ with multiples of its noise, where that is learned, and within its limits."""
    times = NOISES if limits.learned else NOISES[:1]
    return [replace(theta, noise_scale=(one * theta.noise_scale).clamp_min(limits.floor)) for one in times]
