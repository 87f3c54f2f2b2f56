"""The nearest points, all others or the earlier ones of an order, by trees: for few inputs, at any number of points.

Points follow each other in an order, in stretches of which each is a quarter longer than all before it were together
a quarter of. Candidates for a point are those before its stretch began, so that one tree serves a whole stretch, and a
search takes n log n operations instead of n².
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

GROWTH = 1.25
"""How many times longer the order is at the end of a stretch than at its beginning."""


def nearest_before(z: NDArray[np.float64], places: NDArray[np.int64], m: int) -> NDArray[np.int64]:
    """Returns the places of the m nearest points before the stretch of each point, (p, m), the nearest first.

    Parameters
    ----------
    z : ndarray, (n, d)
        All points in their order, in units of their length scales.
    places : ndarray, (p,)
        The places in the order of the points that are asked for, ascending, none below ``first_stretch(m)``.
    m : int
    """
    found = np.empty((len(places), m), dtype=np.int64)
    begin = first_stretch(m)
    while begin < len(z):
        end = max(begin + 1, int(GROWTH * begin))
        low, high = np.searchsorted(places, (begin, end))
        if low < high:
            tree = cKDTree(z[:begin], balanced_tree=False)
            near = tree.query(z[places[low:high]], m, workers=torch.get_num_threads())[1]
            found[low:high] = near.reshape(-1, m)
        begin = end
    return found


def first_stretch(m: int) -> int:
    """Returns the number of points before the first stretch: enough to choose m of them."""
    return m + 1


def nearest_others(z: NDArray[np.float64], m: int) -> NDArray[np.int64]:
    """Returns the places of the m nearest other points of each of the points z, (n, d): (n, m) with m < n, in no
    order."""
    found = cKDTree(z, balanced_tree=False).query(z, m + 1, workers=torch.get_num_threads())[1]
    return without_own(found)


def nearest_to(z: NDArray[np.float64], places: NDArray[np.int64], m: int) -> NDArray[np.int64]:
    """Returns the places of the m points of z, (n, d), nearest to each of some of them: (p, m), itself among them."""
    return cKDTree(z, balanced_tree=False).query(z[places], m, workers=torch.get_num_threads())[1].reshape(-1, m)


def without_own(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the m near points (n, m) of each point that are not the point itself, of m + 1 that were found.

    Where many points coincide its own number may not be among them; the last is then left out.
    """
    n, m = len(found), found.shape[1] - 1
    own = found == np.arange(n)[:, None]
    own[:, -1] |= ~own.any(1)
    return found[~own].reshape(n, m)
