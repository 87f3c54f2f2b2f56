"""The nearest earlier points of every point, in a random order of all: what a sparse factor of H is built on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator, ranges

MOVED = 0.2
"""Share of the distances that may pass from some inputs to others before neighbours are sought anew."""

QUERIES = {"cpu": 256, "cuda": 1024}
"""Points whose neighbours are sought at once: as many candidates at a time as a tile then holds."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Groups of points that are near each other.

    Attributes
    ----------
    groups : Tensor, (n, m + 1)
        For each point its m nearest earlier points and, last, the point itself, which also stands where there are
        fewer earlier ones.
    length_scales : Tensor
        By which distances were measured.
    """

    groups: Tensor
    length_scales: Tensor

    @classmethod
    def seek(cls, operator: KernelOperator, m: int, length_scales: Tensor | None = None) -> Neighbours:
        """By the operator's length scales, or others. All pairs of points are looked at, a tile at a time."""
        lengths = operator.theta.length_scales if length_scales is None else length_scales
        x, n = operator.x, operator.n
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(x.device)
        z = ((x - x.mean(0)) / lengths.to(x))[order]
        found = nearest_earlier(z, min(m, n - 1), operator.tile_entries)
        groups = torch.empty(n, found.shape[1] + 1, dtype=torch.int64, device=x.device)
        groups[order] = torch.cat([order[found], order[:, None]], 1)
        return cls(groups, lengths)

    def serve(self, operator: KernelOperator) -> bool:
        """Whether they are still neighbours by the operator's length scales.

        A common factor in all of them changes nothing; what counts is how the squared distances divide among inputs.
        """
        spread = operator.x.double().var(0).cpu()
        shares = [(spread / lengths**2) for lengths in (self.length_scales, operator.theta.length_scales)]
        before, now = (share / share.sum().clamp_min(torch.finfo(torch.float64).tiny) for share in shares)
        return float((before - now).abs().sum()) <= 2 * MOVED


def nearest_earlier(z: Tensor, m: int, tile_entries: int) -> Tensor:
    """Numbers of the m nearest of the points before each point, (n, m); its own number where there are fewer."""
    n = z.shape[0]
    found = torch.empty(n, m, dtype=torch.int64, device=z.device)
    if m == 0:
        return found
    squares = z.square().sum(1)
    height = QUERIES["cpu" if z.device.type == "cpu" else "cuda"]
    for rows in ranges(n, height):
        own = torch.arange(rows.start, rows.stop, device=z.device)[:, None]
        distance = z.new_full((own.shape[0], m), torch.inf)
        number = own.expand(-1, m)
        for columns in ranges(rows.stop, max(m, tile_entries // height)):
            tile = torch.addmm(squares[columns], z[rows], z[columns].T, alpha=-2.0)  # up to the row's own square
            candidates = torch.arange(columns.start, columns.stop, device=z.device).expand(own.shape[0], -1)
            if columns.stop > rows.start:
                tile.masked_fill_(candidates >= own, torch.inf)
            distance, place = torch.cat([distance, tile], 1).topk(m, 1, largest=False, sorted=False)
            number = torch.cat([number, candidates], 1).gather(1, place)
        found[rows] = torch.where(distance.isinf(), own, number)
    return found
