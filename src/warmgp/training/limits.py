"""Where a climb to hyperparameters may go, and the numbers that it climbs in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters

LEAST, MOST = 1e-4, 1e4
"""The bounds of every hyperparameter on a climb, in standardised units: beyond them nothing changes any more."""

LARGEST = 50.0
"""The largest signal scale of a climb, beside targets of unit variance. A smooth function without noise wants ever more
along the ridge on which near points see the same kernel; at 250 not even a factor in float64 resolves its samples."""


@dataclass(frozen=True)
class Limits:
    """Says where a climb may go.

    The noise is √(σ² + (signal/ratio)²) with σ ≥ ``floor``, so that no step of a climb leads to more signal than
    ``ratio`` times the noise. To cut the signal afterwards, along the ridge on which near points see the same kernel,
    would leave one that explains nothing where there is hardly any noise; to raise the noise would hide everything.

    Attributes
    ----------
    floor : float
        The least noise scale.
    ratio : float
        The most times that the signal may be the noise. One to which the bounds of both do not lead is none.
    learned : bool
        Whether the noise scale is found on the climb; otherwise it stays at ``floor``.
    tied : tuple of int
        The number of the group of each length scale, whose members move together; empty where each is its own.
    largest : float
        The largest signal scale.
    """

    floor: float = LEAST
    ratio: float = math.inf
    tied: tuple[int, ...] = ()
    learned: bool = True
    largest: float = LARGEST

    @property
    def binding(self) -> float:
        """The ratio, or ∞ where the bounds of signal and noise keep it."""
        return self.ratio if self.ratio < self.largest / max(LEAST, self.floor) else math.inf

    def groups(self, lengths: int) -> tuple[int, ...]:
        """Returns the group of each of so many length scales."""
        return self.tied if len(self.tied) == lengths else tuple(range(lengths))

    def places(self, lengths: int) -> NDArray[np.int_]:
        """Returns which number of a climb each hyperparameter is, (2 + lengths,)."""
        return np.r_[0, 1, 2 + np.asarray(self.groups(lengths))].astype(int)

    def bounds(self, count: int) -> list[tuple[float, float]]:
        """Returns the least and the largest value of each of so many numbers."""
        most = [MOST if self.learned else max(LEAST, self.floor), self.largest, *[MOST] * (count - 2)]
        return [(math.log(max(LEAST, self.floor if i == 0 else 0.0)), math.log(most[i])) for i in range(count)]

    def numbers(self, theta: Hyperparameters) -> NDArray[np.float64]:
        """Returns where a climb from θ begins: its logarithms, with as much noise as is not there already."""
        vector, place = theta.vector.numpy().copy(), self.places(len(theta.length_scales))
        least = max(LEAST, self.floor)
        vector[0] = max(vector[0] ** 2 - (vector[1] / self.binding) ** 2, least**2) ** 0.5 if self.learned else least
        found = np.zeros(place.max() + 1)
        found[place] = np.log(vector)
        return found

    def theta(self, u: NDArray[np.float64], lengths: int) -> Hyperparameters:
        """Returns the hyperparameters that the numbers of a climb stand for."""
        vector = np.exp(u[self.places(lengths)])
        vector[0] = math.hypot(vector[0], vector[1] / self.binding)
        return Hyperparameters.from_vector(torch.as_tensor(vector))

    def slope(self, u: NDArray[np.float64], gradient: Tensor) -> NDArray[np.float64]:
        """Returns the slope by the numbers of a climb, from that by the hyperparameters there, (2 + lengths,)."""
        place, slope = self.places(len(gradient) - 2), gradient.numpy().copy()
        vector = np.exp(u[place])
        noise, extra = math.hypot(vector[0], vector[1] / self.binding), vector[1] / self.binding
        slope[1] += slope[0] * extra / noise / self.binding
        slope[0] *= vector[0] / noise
        return np.bincount(place, slope * vector).astype(np.float64)


ANYWHERE = Limits()
