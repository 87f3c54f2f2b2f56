"""An order of points in which those that follow each other are near each other."""

from __future__ import annotations

import torch
from torch import Tensor

SEEN = 64
"""Points of a part that its spread is measured on."""


def even_ends(n: int, stretches: int) -> Tensor:
    """Returns where each of so many equal stretches of n points ends, (stretches,)."""
    return torch.arange(1, stretches + 1) * n // stretches


def near_order(z: Tensor, ends: Tensor, generator: torch.Generator) -> Tensor:
    """Returns an order of the points z, (n, d), in which each stretch holds points near each other; ``ends``, (k,), are
    their ends, the last of them n.

    A tree cuts the points in two, each part in two again, until a part is one stretch: each time into equally many
    stretches, along a random direction in which wide inputs weigh more.
    """
    n = z.shape[0]

    def on_device(values: Tensor) -> Tensor:
        return values.to(z.device, non_blocking=True)  # the host does not wait

    order = on_device(torch.randperm(n, generator=generator))
    counts = [len(ends)]  # stretches in each part
    while max(counts) > 1:
        last = ends[torch.tensor(counts).cumsum(0) - 1]  # of each part
        sizes = torch.diff(last, prepend=torch.zeros(1, dtype=torch.int64))
        part = torch.repeat_interleave(on_device(sizes), output_size=n)  # of each place, (n,)
        seen = (last - sizes)[:, None] + sizes[:, None] * torch.arange(SEEN) // SEEN  # (parts, SEEN)
        spread = z[order[on_device(seen)]].std(1)  # (parts, d)
        random = on_device(torch.randn(len(counts), z.shape[1], generator=generator))
        along = torch.linalg.vecdot(z[order], (spread * random.to(z.dtype))[part]).double()
        along *= 0.4 / along.abs().amax().clamp_min(torch.finfo(torch.float64).tiny)
        order = order[(along + part).argsort(stable=True)]  # by part, and within it along the direction
        counts = [half for count in counts for half in ((count // 2, count - count // 2) if count > 1 else (count,))]
    return order
