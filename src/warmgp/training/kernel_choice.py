"""Which kernel: Matérn-1/2, 3/2, 5/2 or RBF, by the likelihood of the data at their own density.

Smoothness shows between near points, so a random sample of many points hides it. The kernels are compared by terms of a
near-neighbour likelihood on maps (few inputs), by groups of near points, of which the inner half is asked for given the
outer half, elsewhere, and by the likelihood itself where there are few points. Each kernel climbs on some terms
(:func:`warmgp.training.near_likelihood.climb`), Matérn-3/2 first and the others from where it ended, and is judged by
others. Matérn-3/2 is taken unless another one is clearly better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, Kernel
from warmgp.training.limits import ANYWHERE, Limits
from warmgp.training.local_start import groups_around
from warmgp.training.near_likelihood import Terms, climb, near_terms
from warmgp.training.state import Callback

CLIMBS = {True: (16, 8), False: (30, 15)}
"""Evaluations of the climb of Matérn-3/2, and of each of the others, by whether there are few inputs or few points,
whose climbs are short. 14 and 7 were not enough for 16 inputs with hardly any noise: bike ended with Matérn-1/2."""

MARGIN, TOTAL = 0.003, 2.0
"""The least nats a point by which another kernel must be better than Matérn-3/2; and the nats in all that stand for a
standard error where one group judges."""

ERRORS = 1.2
"""How many standard errors a gain must have."""

TOO_FEW = 40
"""Points below which no likelihood tells kernels apart: Matérn-3/2 is taken."""

ALONE, FEW, SAMPLED = 400, 2_500, 4
"""The most points that are one group, of which all are asked for: the likelihood itself, or that of a random sample, of
one point in ``SAMPLED`` where that is more; and the most points of data, with more than a few inputs, for which that is
done. One near group of 256 took Matérn-1/2 for 1,000 points of pol."""

GROUP, POINTS_PER_GROUP, MOST_GROUPS, JUDGES = 256, 600, 8, 4
"""Points of a group; points of the data for each group that is climbed; the most of these; and how many times as many
judge. With 8 judges protein's gain of 0.017 nats by Matérn-1/2 (0.03 on test rows) had an error of 0.02."""

NEIGHBOURS, MOST_TERMS = 20, 1_200
"""Neighbours of a term on a map, and the most terms that are climbed: a quarter of those that there are, which are of
all densities alike. By those of the data alone the satellite map would have Matérn-3/2, and an RMSE of 2.28 below the
clouds instead of 1.40: what joins pixels is not what bridges gaps."""

USUAL, SMOOTHEST = "matern32", "rbf"
"""The kernel that is taken unless another one is clearly better, and the one whose H is hardest to solve with. The
latter is compared for few points only: by near points of more it was chosen for keggdirected, where training took twice
as long and predicted no better; on none of six sets is it the best, and Matérn-5/2 comes close."""

SPELLED = {"matern12": "Matérn-1/2", "matern32": "Matérn-3/2", "matern52": "Matérn-5/2", "rbf": "RBF"}


@dataclass(frozen=True)
class KernelChoice:
    """Holds the kernel that was chosen, where its climb ended, and the reason: the gain in a point's log-density."""

    kernel: Kernel
    theta: Hyperparameters
    reason: str


@dataclass(frozen=True)
class _Contender:
    """Holds a kernel, its θ, and the log-densities of the judging groups there, (p,)."""

    kernel: Kernel
    theta: Hyperparameters
    densities: Tensor

    @property
    def mean(self) -> float:
        return float(self.densities.mean())


def choose_kernel(
    x: Tensor,
    y: Tensor,
    lengths: int,
    *,
    generator: torch.Generator,
    is_map: bool,
    limits: Limits = ANYWHERE,
    callbacks: Sequence[Callback] = (),
) -> KernelChoice:
    """Chooses a kernel for inputs x, (n, d), and targets y, (n,), in standardised units.

    Parameters
    ----------
    lengths : int
        The number of length scales: d, or 1.
    generator : torch.Generator
        Draws the terms.
    is_map : bool
        Whether there are so few inputs that near points tell nearly everything.
    limits, callbacks
        See :func:`climb`.
    """
    start = rough_start(x.shape[1], lengths, is_map)
    if len(x) < TOO_FEW:
        return KernelChoice(KERNELS[USUAL], start, f"Kernel {SPELLED[USUAL]}: {len(x)} points are too few to tell.")
    climbed, judged = _terms(x, start, is_map, generator)
    first, then = CLIMBS[is_map or len(x) <= FEW]

    def contender(kernel: Kernel, theta: Hyperparameters, evaluations: int) -> _Contender:
        found = climb(x, y, climbed, kernel, theta, limits, evaluations=evaluations, callbacks=callbacks).theta
        return _Contender(kernel, found, judged.densities(x, y, kernel, found))

    usual = contender(KERNELS[USUAL], start, first)
    left_out = {USUAL, SMOOTHEST} if len(x) > FEW else {USUAL}
    others = [contender(kernel, usual.theta, then) for name, kernel in KERNELS.items() if name not in left_out]
    return _decided(usual, others, judged)


def _decided(usual: _Contender, others: list[_Contender], judged: Terms) -> KernelChoice:
    """Returns the best of all where it is clearly better than the usual one, and that otherwise, with the reason."""
    better = max(others, key=lambda one: one.mean)
    if better.kernel.name == SMOOTHEST:  # which costs most: only where it is clearly better than the next
        rest = max((one for one in others if one is not better), key=lambda one: one.mean)
        better = better if _clearly(better, rest, judged) else rest
    best = better if _clearly(better, usual, judged) else usual
    second = max((one for one in (usual, *others) if one is not best), key=lambda one: one.mean)
    by, name = best.mean - second.mean, SPELLED[second.kernel.name]
    how = f"by {by:.2g} nats a point over {name}" if by >= MARGIN else f"which {name} is not clearly better than"
    return KernelChoice(best.kernel, best.theta, f"Kernel {SPELLED[best.kernel.name]}, {how}.")


def _clearly(best: _Contender, usual: _Contender, judged: Terms) -> bool:
    """Says whether the best kernel is so by more than chance: its mean gain is above a margin and its own error."""
    gain = best.densities - usual.densities
    error = float(gain.std()) / len(gain) ** 0.5 if len(gain) > 1 else TOTAL / judged.points
    return float(gain.mean()) > max(MARGIN, ERRORS * error)


def rough_start(d: int, lengths: int, is_map: bool) -> Hyperparameters:
    """Returns where climbs begin: with many inputs at longer length scales, where points still know of each other."""
    ell = 0.5 if is_map else max(1.0, d**0.5 / 2)
    return Hyperparameters.from_vector(torch.tensor([0.3, 1.0, *[ell] * lengths], dtype=torch.float64))


def _terms(x: Tensor, start: Hyperparameters, is_map: bool, generator: torch.Generator) -> tuple[Terms, Terms]:
    """Returns the terms that are climbed, and those by which kernels are judged."""
    n = len(x)
    if n <= (ALONE if is_map else FEW):
        some = torch.randperm(n, generator=generator)[: max(ALONE, n // SAMPLED)].to(x.device)
        whole = Terms(some[None], len(some))
        return whole, whole
    if is_map:
        terms = near_terms(x, start, NEIGHBOURS, 4 * MOST_TERMS, generator, even=True)[1]
        mixed = terms.groups[torch.randperm(len(terms.groups), generator=generator).to(x.device)]
        count = len(mixed) // 4
        return replace(terms, groups=mixed[:count]), replace(terms, groups=mixed[count:])
    count = min(MOST_GROUPS, n // POINTS_PER_GROUP)
    centres = torch.randperm(n, generator=generator)[: (1 + JUDGES) * count].to(x.device)
    groups, last = groups_around((x - x.mean(0)).float(), start, centres, GROUP)
    return Terms(groups[:count], last), Terms(groups[count:], last)
