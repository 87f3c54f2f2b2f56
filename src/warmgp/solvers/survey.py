"""Which block of rows has the largest residual: for alternating projections, of all processes together."""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.operators.part import Part

LOST = 1e300
"""What stands for a sum of squares that is not a number any more."""


def survey(part: Part, r: Tensor, b: int) -> tuple[int, tuple[float, float]]:
    """Returns the block of b rows with the largest sum of squares over all systems, and the residual's norms (mean
    system, average probe). r has the rows of this process, (m, c)."""
    squares, first = _by_block(r, part.here.start, b)  # (blocks, c)
    if not part.alone and not len(squares):  # fewer rows than processes
        squares = squares.new_zeros(1, r.shape[1])
    if part.alone:
        systems, worst = squares.sum(0).sqrt(), squares.sum(1).argmax()
    else:
        systems, worst = _of_all(part, squares.double(), first)
    probes = systems[1:].mean() if len(systems) > 1 else torch.zeros_like(systems[0])
    mean, others, index = torch.stack([systems[0], probes, worst.to(systems.dtype)]).tolist()
    return int(index), (mean, others)


def _by_block(r: Tensor, start: int, b: int) -> tuple[Tensor, int]:
    """Returns the sums of squares of the rows that lie in each block, (blocks, c), and the number of the first block.

    The rows of r begin at row ``start`` of all: the first and the last block may reach beyond them.
    """
    c, head = r.shape[1], min(len(r), -start % b)
    body = (len(r) - head) // b * b
    parts = [torch.linalg.vector_norm(r[:head], dim=0).square()[None]] if head else []
    parts.append(torch.linalg.vector_norm(r[head : head + body].view(-1, b, c), dim=1).square())
    if head + body < len(r):
        parts.append(torch.linalg.vector_norm(r[head + body :], dim=0).square()[None])
    return torch.cat(parts) if len(parts) > 1 else parts[0], start // b


def _of_all(part: Part, squares: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Returns the norms of all systems, (c,), and the number of the worst block of all processes, in float64.

    A process tells what it has of its first and of its last block, which may be those of its neighbours, too, and the
    worst of the blocks between: as many numbers however many rows there are.
    """
    c, last = squares.shape[1], first + len(squares) - 1
    between = squares[1:-1].sum(1)
    best = between.argmax() if len(between) else None
    told = torch.cat(
        [
            squares.sum(0),
            squares.new_tensor([first]), squares[0].sum()[None],
            squares.new_tensor([last if last > first else -1]), squares[-1].sum()[None],
            squares.new_tensor([-1.0, 0.0]) if best is None else torch.stack([first + 1.0 + best, between[best]]),
        ]
    )  # fmt: skip
    every = part.every(told)  # (processes, c + 6)
    numbers, sums = every[:, c::2].reshape(-1), every[:, c + 1 :: 2].reshape(-1)
    sums = sums.nan_to_num(nan=LOST, posinf=LOST)  # the norms say it, and the books end the solve
    same = (numbers[:, None] == numbers) & (numbers >= 0)
    totals = same.to(sums.dtype) @ sums
    worst = totals.max()
    return every[:, :c].sum(0).sqrt(), numbers[(totals == worst) & (numbers >= 0)].min()
