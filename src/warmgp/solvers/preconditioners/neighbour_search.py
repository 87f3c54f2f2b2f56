"""The nearest earlier points of every point, in a random order of all points: a sparse factor of H is built on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import ranges
from warmgp.operators.near_points import first_stretch, nearest_before

MOVED = 0.2
"""Share of the squared distances that may pass from some inputs to others before neighbours are sought anew."""

LOOKED_AT = 1000
"""The most points whose distances are compared for that."""

TREE_INPUTS = 3
"""The most inputs for which trees are faster than looking at all pairs."""

BY_TREES = {"cpu": 2_000, "cuda": 150_000}
"""Points from which on trees, on the CPU, are faster: a search among all pairs takes 18 ps a pair on an H200."""

AT_ONCE = {"cpu": 256, "cuda": 1024}
"""Points whose neighbours are sought at once. A tile of their distances holds as many candidates as fit."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Holds a group of near points for every point.

    Attributes
    ----------
    groups : Tensor, (n, m + 1)
        For each point its m nearest earlier points and, last, the point itself, which also stands where there are
        fewer earlier ones.
    length_scales : Tensor
        The length scales by which distances were measured.
    """

    groups: Tensor
    length_scales: Tensor

    @classmethod
    def seek(cls, operator: KernelOperator, m: int, length_scales: Tensor | None = None) -> Neighbours:
        """Finds the m nearest earlier points of every point, by the operator's length scales or by others.

        With few inputs trees find them, among those before a stretch of the order (:mod:`near_points`); on a GPU from
        ``BY_TREES`` points on. Otherwise all pairs are looked at, a tile at a time. Distances are float64: the squares
        of far points would drown the differences of near ones.
        """
        lengths = operator.theta.length_scales if length_scales is None else length_scales
        x, n = operator.x, operator.n
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(x.device)
        z = ((x.double() - x.double().mean(0)) / lengths.to(x.device))[order]
        m = min(m, n - 1)
        if x.shape[1] <= TREE_INPUTS and n >= BY_TREES["cpu" if x.device.type == "cpu" else "cuda"]:
            found = _by_trees(z, m)
        else:
            found = nearest_earlier(z, m, operator.tile_entries)
        groups = torch.empty(n, found.shape[1] + 1, dtype=torch.int64, device=x.device)
        groups[order] = torch.cat([order[found], order[:, None]], 1)
        return cls(groups, lengths)

    def still_serve(self, operator: KernelOperator) -> bool:
        """Says whether they are still neighbours by the operator's length scales.

        A common factor in all of them changes nothing; what counts is how the squared distances of a point to its
        neighbours divide among the inputs, on average over some points.
        """
        some = self.groups[:: -(-operator.n // LOOKED_AT)]
        gaps = (operator.x[some].double() - operator.x[some[:, -1:]].double()).square().sum(1)  # (p, d)
        shares = []
        for lengths in (self.length_scales, operator.theta.length_scales):
            squares = gaps / lengths.to(gaps.device).square()
            shares.append(squares / squares.sum(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny))
        before, now = shares
        return float((before - now).abs().sum(1).mean()) <= 2 * MOVED


def _by_trees(z: Tensor, m: int) -> Tensor:
    """Returns the numbers of m near earlier points of each point, (n, m); the first points have all before them, and
    their own number where there are fewer."""
    first = min(first_stretch(m), len(z))
    found = torch.arange(len(z))[:, None].expand(-1, m).clone()
    for i in range(1, first):
        found[i, : min(i, m)] = torch.arange(i)[-m:]
    later = torch.arange(first, len(z))
    found[first:] = torch.as_tensor(nearest_before(z.cpu().numpy(), later.numpy(), m))
    return found.to(z.device)


def nearest_earlier(z: Tensor, m: int, tile_entries: int) -> Tensor:
    """Returns the numbers of the m nearest points before each point, (n, m); its own number where there are fewer."""
    n = z.shape[0]
    found = torch.empty(n, m, dtype=torch.int64, device=z.device)
    if m == 0:
        return found
    squares = z.square().sum(1)
    height = AT_ONCE["cpu" if z.device.type == "cpu" else "cuda"]
    for rows in ranges(n, height):
        own = torch.arange(rows.start, rows.stop, device=z.device)[:, None]
        distance = z.new_full((own.shape[0], m), torch.inf)
        number = own.expand(-1, m)
        for columns in ranges(rows.stop, max(m, tile_entries // height)):
            tile = torch.addmm(squares[columns], z[rows], z[columns].T, alpha=-2.0)  # up to the row's own square
            if columns.stop > rows.start:
                tile.masked_fill_(torch.arange(columns.start, columns.stop, device=z.device) >= own, torch.inf)
            distance, place = torch.cat([distance, tile], 1).topk(m, 1, largest=False, sorted=False)
            number = torch.where(place < m, number.gather(1, place.clamp_max(m - 1)), place - m + columns.start)
        found[rows] = torch.where(distance.isinf(), own, number)
    return found
