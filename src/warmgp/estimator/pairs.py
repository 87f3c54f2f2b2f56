"""Pairs of points at every distance, drawn without looking at the targets, and their averages over bins of distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KDTree

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ALL = 1_000
"""The most points of which every pair is taken: half a million."""

CENTRES, NEIGHBOURS, THINNING = 2_000, 16, 4
"""Random points at each density, the neighbours that each is paired with, and the ratio of two densities."""

SEARCHED = {True: 10**6, False: 20_000}
"""The most points among which neighbours are searched: a tree helps with up to three inputs, and hardly with more."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Holds pairs of rows of points z: first and second, (p,) each, and the distances of their points, (p,)."""

    first: IntArray
    second: IntArray
    distance: FloatArray

    @classmethod
    def of(cls, z: FloatArray, first: IntArray, second: IntArray) -> Pairs:
        """Returns these pairs of rows of z, (n, d), with their distances."""
        return cls(first, second, np.sqrt(((z[first] - z[second]) ** 2).sum(1)))

    def along(self, z: FloatArray, direction: FloatArray, cosine: float) -> Pairs:
        """Returns the pairs whose cosine with a direction, (d,), of unit length is at least so much, up to sign."""
        near = np.abs((z[self.first] - z[self.second]) @ direction) >= cosine * self.distance
        return Pairs(self.first[near], self.second[near], self.distance[near])


def draw_pairs(z: FloatArray, most: int, rng: np.random.Generator) -> Pairs:
    """Returns pairs of points z, (n, d), at all distances, with at most about ``most`` points in them.

    Random points are paired with their nearest neighbours among all points, among a random quarter of them, a sixteenth
    and so on, whose distances double from one to the next (with two inputs); of the last ``ALL`` every pair is taken.
    """
    order = rng.permutation(len(z))[: SEARCHED[z.shape[1] <= 3]]
    sizes = [len(order)]
    while sizes[-1] > ALL:
        sizes.append(sizes[-1] // THINNING)
    last = order[: max(2, min(sizes.pop(), most // 2))]
    found = [last[np.stack(np.triu_indices(len(last), 1), 1)]]
    centres = max(1, min(CENTRES, most // (2 * len(sizes) * (NEIGHBOURS + 1)))) if sizes else 0
    for size in sizes:
        some = order[:size]
        chosen = some[rng.permutation(size)[:centres]]
        near = KDTree(z[some]).query(z[chosen], NEIGHBOURS + 1, return_distance=False)
        found.append(np.stack([np.repeat(chosen, near.shape[1]), some[near.ravel()]], 1))
    pairs = np.unique(np.sort(np.concatenate(found), 1), axis=0)
    return Pairs.of(z, *pairs[pairs[:, 0] < pairs[:, 1]].T)


def binned(
    distance: FloatArray, values: FloatArray, widest: float, bins: int
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Returns the mean distance, the mean value and the number of pairs of each bin with pairs, (m,) each.

    Bins have equal width from zero to ``widest``; pairs further apart are left out.
    """
    inside = distance <= widest
    which = np.minimum((distance[inside] * (bins / widest)).astype(np.int64), bins - 1)
    counts = np.bincount(which, minlength=bins)
    some = counts > 0
    means = (np.bincount(which, part[inside], minlength=bins)[some] / counts[some] for part in (distance, values))
    lag, value = means
    return lag, value, counts[some]
