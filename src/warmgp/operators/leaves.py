"""Points in leaves of near ones: those near a new point are found without a look at all.

A new point is compared with the middle of every leaf, and with the points of the k leaves of L whose middles are
nearest: n/L + k L distances instead of n. Nearly all of the nearest points are found with few inputs (99 of 100 of
terrain), most of them with many (3 of 4 of houseelectric, whose 64 are 4% farther away in the mean). That is enough
where near points are a control or a start: what comes of it is right whichever they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.indices import ranges
from warmgp.operators.near_order import even_ends, near_order

LEAF, LOOKED_AT = 64, 12
"""Points of a leaf, and the leaves whose points are compared with a new one."""

DISTANCES = {True: 2**19, False: 2**26}
"""Differences of coordinates that are held at once, by whether that is on a CPU."""


@dataclass(frozen=True, eq=False)
class Leaves:
    """Finds points near new ones.

    Attributes
    ----------
    index : Tensor, (leaves, L)
        The numbers of the points of each leaf; some have one point fewer, and a number that is not used.
    points : Tensor, (leaves, L, d)
        Their coordinates, infinite where there is no point.
    middles : Tensor, (leaves, d)
    """

    index: Tensor
    points: Tensor
    middles: Tensor

    @classmethod
    def of(cls, z: Tensor) -> Leaves:
        """Divides points z, (n, d), in units of their length scales, into leaves."""
        n = len(z)
        count = max(1, n // LEAF)
        order = near_order(z, even_ends(n, count), torch.Generator().manual_seed(0))
        begin = torch.arange(count + 1, device=z.device) * n // count
        places = begin[:-1, None] + torch.arange(-(-n // count), device=z.device)  # (leaves, L)
        beyond = places >= begin[1:, None]
        index = order[places.clamp_max(n - 1)]
        points = z[index]
        middles = points.masked_fill(beyond[..., None], 0.0).sum(1) / (begin[1:] - begin[:-1])[:, None]
        return cls(index, points.masked_fill(beyond[..., None], torch.inf), middles)

    def nearest(self, new: Tensor, m: int) -> Tensor:
        """Returns m points near each new one, (b, m), in no order, for new points (b, d) in the units of the others."""
        (leaves, size), d = self.index.shape, new.shape[1]
        looked_at = min(leaves, max(LOOKED_AT, -(-2 * m // size)))
        squares = self.middles.square().sum(1)
        found = [torch.zeros(0, m, dtype=torch.int64, device=new.device)]
        for rows in ranges(len(new), max(1, DISTANCES[new.device.type == "cpu"] // (leaves + looked_at * size * d))):
            some = new[rows]
            tile = torch.addmm(squares, some, self.middles.T, alpha=-2.0)  # up to the new point's own square
            near = tile.topk(looked_at, 1, largest=False, sorted=False).indices  # (b, k)
            gaps = (self.points[near] - some[:, None, None]).square_().sum(3).flatten(1)  # (b, k L)
            places = gaps.topk(m, 1, largest=False, sorted=False).indices
            found.append(self.index[near].flatten(1).gather(1, places))
        return torch.cat(found)
