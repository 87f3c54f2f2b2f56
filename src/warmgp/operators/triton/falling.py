"""Products by what entries lack of one: K V = s² (1 1ᵀV − D V) with D = 1 − k, where all points are near each other.

Nearly linear functions end with length scales that are long beside the data, and a large signal: every entry of K is s²
less a little, and that little is all there is to learn from. In float32 such an entry is off by 6·10⁻⁸ s², and by the
same wherever whole numbers or categories make the same distance. D is known to 6·10⁻⁸ of itself, and V is summed in
float64.

4,000 to 8,000 rows of births, diamonds and flights (`benchmarks/everyday.py`) have an s² of 500 to 46,000 and a mean D
of 0.0003 to 0.02. Entries in float32 made K v of births wrong by 5 noise scales as k, and by 0.006 as 1 − k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from warmgp.kernels import Kernel
from warmgp.kernels.base import FusedForm
from warmgp.operators.triton.points import LARGEST_SQUARE

FALLING = 0.25
"""The mean of 1 − k over pairs of points up to which products may be by 1 − k: it is off by a quarter of what k is,
and such a product takes 1.1 to 1.4 times as long."""

WORTH, SUMS_WORTH = 0.005, 0.02
"""What rounding of k, by :mod:`warmgp.operators.rounding`, has to leave at least, in noise scales, before products are
by 1 − k, and before sums of solutions are kept, which lose a third as much. Neither is free: 43,945 rows of
keggdirected (0.015) took 7.8 s with both and 4.9 s with neither; with 1 − k alone they were not timed."""

PAIRS = 4096
"""The random pairs of points that this mean is taken over."""

AMPLIFIED = 2.0**13
"""What the largest 1 − k may be once it is amplified: float16 holds eight times as much, and small ones keep digits."""


SMALLEST = 1e-5
"""The least distance from the centre that points are zoomed for: squares of far ones stay within float32."""

ROOM = 4.0
"""How many times as far from the centre as training points new ones may be, before their distances are differences."""


@dataclass(frozen=True)
class Entries:
    """Says what a product is made of: ``profile`` of squared distances, which is 256 k, or 1 − k.

    Attributes
    ----------
    amplify : float
        What 1 − k is multiplied by, so that it fills float16's range.
    zoom : float
        What points are multiplied by before they are split into float16 halves, whose digits end at 6·10⁻⁸: a power
        of two.
    size : float
        The mean of k or 1 − k, or what is known to be above it.
    """

    profile: Any
    falling: bool = False
    amplify: float = 256.0
    zoom: float = 1.0
    size: float = 1.0

    @classmethod
    def of(cls, form: FusedForm, kernel: Kernel, size: float, farthest: float) -> Entries:
        """Returns those of 1 − k, in the mean ``size``, for points up to ``farthest`` length scales from the centre."""
        zoom = math.floor(math.log2(max(1.0, LARGEST_SQUARE**0.5 / ROOM / max(form.alpha * farthest, SMALLEST))))
        return cls(form.fall, True, zoom=2.0**zoom, size=size).within(kernel, 2.0 * farthest)

    def within(self, kernel: Kernel, distance: float) -> Entries:
        """Returns the same for points that are at most ``distance`` length scales apart."""
        if not self.falling:
            return self
        largest = 1.0 - float(kernel.profile(torch.tensor([1.01 * distance], dtype=torch.float64)))
        largest = largest if math.isfinite(largest) else 1.0
        return replace(self, amplify=AMPLIFIED / 2.0 ** math.ceil(math.log2(max(largest, 2.0**-40))))

    def factor(self, signal_variance: float) -> float:
        """Returns what a sum over these entries is multiplied by, so that it is one over entries of K, less s² ΣV where
        they are ``falling``."""
        return (-1.0 if self.falling else 1.0) * signal_variance / self.amplify


def mean_fall(z: Tensor, kernel: Kernel) -> float:
    """Returns the mean of 1 − k over random pairs of points at z = x/ℓ, (n, d)."""
    pairs = torch.randint(len(z), (2, PAIRS), generator=torch.Generator().manual_seed(0)).to(z.device)
    r = (z[pairs[0]] - z[pairs[1]]).double().square().sum(1).sqrt()
    return float((1.0 - kernel.profile(r)).mean())
