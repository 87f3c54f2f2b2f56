"""Which kernel: Matérn-1/2, 3/2, 5/2 or RBF, by the likelihood of the data.

Smoothness shows between near points. The kernels are compared by terms of a near-neighbour likelihood on maps (few
inputs), and judged by other terms than those that they climb on, and so where near points show waves
(:mod:`warmgp.training.fine_structure`); elsewhere by the likelihood of a random sample. Where points are few, the
likelihood of all of them is the judge. Each climbs (:func:`warmgp.training.near_likelihood.climb`), Matérn-3/2 first
and each other from where its neighbour ended; where one of them is better, Matérn-3/2 once more from there, so that it
does not lose by a climb that went astray. It is taken unless another one is clearly better. With so many length scales
that a sample's points agree by chance (:mod:`warmgp.training.prior`) climbs know what was thought beforehand: without,
800 rows with 90 inputs, which explain a quarter of y, ended at a noise of 0.003.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, Kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.training.fine_structure import LARGEST_SIGNAL, finer, limits_at_waves
from warmgp.training.limits import ANYWHERE, Limits
from warmgp.training.near_likelihood import Terms, climb, near_terms
from warmgp.training.near_start import AT_WAVES
from warmgp.training.prior import Prior
from warmgp.training.state import Callback

CLIMBS = {True: (20, 16), False: (40, 20)}
"""Evaluations of the climb of Matérn-3/2, and of each of the others, by whether there are few inputs or few points,
whose climbs are short. 24 and 10 were not enough for 16 inputs with hardly any noise: bike ended with Matérn-1/2."""

MARGIN, TOTAL = 0.003, 3.0
"""The least nats a point by which another kernel must be better than Matérn-3/2; and the nats in all that stand for a
standard error where one group judges: with three other kernels odds of ten to one come by chance."""

ERRORS = 1.2
"""How many standard errors a gain must have."""

TOO_FEW, FEW_A_LENGTH = 40, 4
"""Points below which no likelihood tells kernels apart, in all and for each length scale: Matérn-3/2 is taken. With as
many length scales as points any kernel can be made likely: 1,000 rows with a category of 150 levels chose RBF."""

ALONE, FEW = 400, 2_500
"""The most points of a map that are one group, of which all are asked for: the likelihood itself; and the points up to
which climbs are short, all kernels are compared, and the likelihood of all points judges them."""

SAMPLED, MOST, GPU_SAMPLED, GPU_MOST = 2, 800, 40, 4_000
"""Elsewhere the likelihood is that of a random sample: of every second point, at least ``ALONE`` and at most 800, which
takes two cores some seconds; on a GPU of one point in forty, should that be more, up to 4,000. Thinner samples hide
roughness: of 700, 1,000 and 2,500 rows of houseelectric Matérn-1/2 is 0.07, 0.06 and 0.005 nats less likely than
Matérn-3/2. Groups of near points would not, but 40 of 256 chose otherwise with every seed."""

NEIGHBOURS, MOST_TERMS = 20, 1_200
"""Neighbours of a term on a map, and the most terms that are climbed: a quarter of those that there are, the others
judge; or all, where points are few and their likelihood judges. Terms are of all densities alike. By those of the data
alone the satellite map would have Matérn-3/2, and an RMSE of 2.28 below the clouds instead of 1.40: what joins pixels
is not what bridges gaps."""

NOISE_ALONE, RAISED = -1.5, 3.0
"""A mean log-density just below that of standardised targets that nothing explains, −1.42 in the mean of samples; and
what noise is multiplied with, until a climb begins above it. A smoother kernel at the θ of a rougher one with hardly
any noise is at −10 nats, and a climb from there ends in length scales of nothing: of draws of RBF with eight inputs ten
of twelve with 900 points, and three of ten with 2,000, chose Matérn-3/2, which lost them 0.1 nats."""

USUAL, SMOOTHEST = "matern32", "rbf"
"""The kernel that is taken unless another one is clearly better, and the one whose H is hardest to solve with. The
latter is compared for few points only: by near points of more it was chosen for keggdirected, where training took twice
as long and predicted no better; on none of six sets is it the best, and Matérn-5/2 comes close."""

SPELLED = {"matern12": "Matérn-1/2", "matern32": "Matérn-3/2", "matern52": "Matérn-5/2", "rbf": "RBF"}
SMOOTH = {"matern12": "rough", "matern32": "fairly smooth", "matern52": "smooth", "rbf": "very smooth"}
"""How kernels are spelled, and what functions they are for."""


@dataclass(frozen=True)
class KernelChoice:
    """Holds the kernel that was chosen, where its climb ended, and the reason: the gain in a point's log-density.

    There is no θ where nothing was climbed, because points are too few.
    """

    kernel: Kernel
    theta: Hyperparameters | None
    reason: str


@dataclass(frozen=True)
class _Contender:
    """Holds a kernel, its θ, the mean log-density that its climb reached, and those of the judging groups, (p,)."""

    kernel: Kernel
    theta: Hyperparameters
    climbed: float
    densities: Tensor

    @property
    def mean(self) -> float:
        return float(self.densities.mean())

    @property
    def places(self) -> list[Hyperparameters]:
        """Where the climb of a smoother kernel may begin: θ, and one with less signal where it has very much.

        Both have the same kernel at short distances. By much signal and long length scales a rougher kernel explains
        what a smooth one explains by neither: 800 rows of the latter chose Matérn-3/2, 0.45 nats a point below RBF.
        """
        less = self.theta.with_signal_within(LARGEST_SIGNAL / float(self.theta.noise_scale), self.kernel.follow)
        return [self.theta] if less is self.theta else [self.theta, less]


def choose_kernel(
    x: Tensor,
    y: Tensor,
    lengths: int,
    *,
    generator: torch.Generator,
    is_map: bool,
    limits: Limits = ANYWHERE,
    noise: RowNoise | None = None,
    callbacks: Sequence[Callback] = (),
) -> KernelChoice:
    """Chooses a kernel for inputs x, (n, d), and targets y, (n,) or (n, q), in standardised units.

    Parameters
    ----------
    lengths : int
        The number of length scales: d, or 1.
    generator : torch.Generator
        Draws the terms.
    is_map : bool
        Whether there are so few inputs that near points tell nearly everything.
    limits, noise, callbacks
        See :func:`climb`.
    """
    start = rough_start(x.shape[1], lengths, is_map)
    seen = len(x) if is_map else min(len(x), _sample_size(len(x), x.device.type == "cuda"))
    if seen < max(TOO_FEW, FEW_A_LENGTH * lengths):
        why = f"{seen} points are too few to tell how smooth the function is"
        return KernelChoice(KERNELS[USUAL], None, f"The kernel is {SPELLED[USUAL]}, the usual one: {why}.")
    climbed, judged = _terms(x, start, is_map, generator)
    prior = None if is_map else Prior.of_few(climbed.points, x.shape[1], limits.groups(lengths), noise)
    first, then = CLIMBS[is_map or len(x) <= FEW]

    def contender(kernel: Kernel, places: list[Hyperparameters], evaluations: int) -> _Contender:
        if limits.learned:
            places = [_above_noise(x, y, climbed, kernel, place, noise) for place in places]
        theta = places[0]
        if len(places) > 1:
            theta = max(places, key=lambda place: float(climbed.densities(x, y, kernel, place, noise).mean()))
        found = climb(
            x, y, climbed, kernel, theta, limits, evaluations=evaluations, noise=noise, callbacks=callbacks, prior=prior
        )
        return _Contender(kernel, found.theta, found.value, judged.densities(x, y, kernel, found.theta, noise))

    usual = contender(KERNELS[USUAL], [start], first)
    if fine := finer(x, y, usual.kernel, usual.theta, limits, generator=generator, noise=noise):
        (climbed, judged), limits = _terms(x, fine, True, generator), limits_at_waves(limits)
        usual = contender(usual.kernel, [fine], AT_WAVES)
    rough = contender(KERNELS["matern12"], [usual.theta], then)
    smooth = contender(KERNELS["matern52"], usual.places, then)
    others = [rough, smooth]
    if len(x) <= FEW:  # from its neighbour: at the length scales of Matérn-3/2 its climbs go astray
        others.append(contender(KERNELS[SMOOTHEST], smooth.places, then))
    leader = max(others, key=lambda one: one.mean)
    if leader.mean > usual.mean:  # by its kernel, or by a climb of the usual one that went astray
        usual = max(usual, contender(usual.kernel, [leader.theta], then), key=lambda one: one.climbed)
    return _decided(usual, others, judged)


def _above_noise(
    x: Tensor, y: Tensor, terms: Terms, kernel: Kernel, theta: Hyperparameters, noise: RowNoise | None
) -> Hyperparameters:
    """Returns θ with its noise raised, up to 1, where the data are less likely by it than as noise alone, and as long
    as that makes them likelier."""
    alone = NOISE_ALONE * (1 if y.ndim == 1 else y.shape[1])
    here = float(terms.densities(x, y, kernel, theta, noise).mean())
    while not here > alone and theta.noise_scale < 1.0:
        raised = replace(theta, noise_scale=(RAISED * theta.noise_scale).clamp_max(1.0))
        there = float(terms.densities(x, y, kernel, raised, noise).mean())
        if there < here:
            break
        theta, here = raised, there
    return theta


def _decided(usual: _Contender, others: list[_Contender], judged: Terms) -> KernelChoice:
    """Returns the best of all where it is clearly better than the usual one, and that otherwise, with the reason."""
    better = max(others, key=lambda one: one.mean)
    best = better if _clearly(better, usual, judged) else usual
    second = max((one for one in (usual, *others) if one is not best), key=lambda one: one.mean)
    by, name, taken = best.mean - second.mean, SPELLED[second.kernel.name], best.kernel.name
    how = f"the data are likelier than with {name}, by {by:.2g} nats a point"
    if by < MARGIN:
        how = f"{name} comes closest, and is not clearly better"
    return KernelChoice(best.kernel, best.theta, f"The kernel is {SPELLED[taken]} ({SMOOTH[taken]}): {how}.")


def work_of_choice(n: int, *, is_map: bool, on_gpu: bool) -> tuple[int, int, int]:
    """Returns what a choice for n points takes: the groups of a likelihood, the points of each, and how often that is
    evaluated with its gradient. Climbs may end sooner."""
    if n < TOO_FEW:
        return 1, n, 0
    first, then = CLIMBS[is_map or n <= FEW]
    evaluations = first + then * (4 if n <= FEW else 3)  # the other kernels, and the usual one once more
    if is_map and n > ALONE:
        return min(n if n <= FEW else n // 4, MOST_TERMS), NEIGHBOURS, evaluations
    size = min(n, _sample_size(n, on_gpu))
    judging = len(KERNELS) + 1 if n <= FEW else 0  # factors of all points, each a third of an evaluation of so many
    return 1, size, evaluations + round(judging / 3 * (n / size) ** 3)


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
    """Returns the terms that are climbed, and those by which kernels are judged: all points where they are few."""
    n = len(x)
    all_points = Terms(torch.arange(n, device=x.device)[None], n)
    if is_map and n > ALONE:
        terms = near_terms(x, start, NEIGHBOURS, 4 * MOST_TERMS, generator, even=True)[1]
        mixed = terms.groups[torch.randperm(len(terms.groups), generator=generator).to(x.device)]
        if n <= FEW:
            return replace(terms, groups=mixed[:MOST_TERMS]), all_points
        count = len(mixed) // 4
        return replace(terms, groups=mixed[:count]), replace(terms, groups=mixed[count:])
    some = torch.randperm(n, generator=generator)[: _sample_size(n, x.device.type == "cuda")].to(x.device)
    sample = Terms(some[None], len(some))
    return sample, all_points if n <= FEW else sample


def _sample_size(n: int, on_gpu: bool) -> int:
    """Returns how many of n points are compared by their likelihood."""
    few = max(ALONE, min(n // SAMPLED, MOST))
    return max(few, min(n // GPU_SAMPLED, GPU_MOST)) if on_gpu else few
