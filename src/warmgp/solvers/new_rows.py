"""Solutions carried over to more rows, or to fewer, by near points alone: the start of a solve, without a product.

With the new rows N last, H v = b on all rows is solved by

    v = [v_old; 0] + U S⁻¹ (b_N − K_No v_old),     U = [−W; I],   W = H_oo⁻¹ K_oN,   S = H_NN − K_No W,

where b_N − K_No v_old is what the old solutions do not predict of the new targets, and S what they leave unknown of
them. New rows are taken one after the other, each given the old and earlier ones nearest to it: its column of W and its
number S then cost the cube of its near rows, whatever n is. On a map that is nearly exact, because points further away
tell no more; with many inputs it leaves a few sweeps to a solver.

The same weights undo it. Where rows go, v_rest = v − (U v_N) on the rest = v + W v_N.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator, ranges
from warmgp.operators.near_order import near_order
from warmgp.operators.new_points import NearPoints

NEAR = 256
"""The most near rows by which a new one is known."""

ROUNDS = 32
"""The most rounds in which rows are taken: those of a round do not know of each other, and are far apart."""

AT_ONCE = {True: 2**22, False: 2**26}
"""Entries of blocks that are held at once, in float64, by whether that is on a CPU."""


def grown(operator: KernelOperator, residual: Tensor, generator: torch.Generator) -> Tensor:
    """Returns what new rows add to old solutions, (n, c) in float64: U S⁻¹ r by near points.

    Parameters
    ----------
    operator : KernelOperator
        H of all rows, the new ones last.
    residual : Tensor, (m, c)
        r, what the old solutions do not predict of the targets of the m new rows.
    generator : torch.Generator
        Draws the order of the rows.
    """
    old = operator.n - len(residual)
    right = torch.zeros(operator.n, residual.shape[1], dtype=torch.float64, device=operator.device)
    right[old:] = residual
    out = torch.zeros_like(right)
    for groups in _groups(operator, old, generator):
        L, failed = torch.linalg.cholesky_ex(operator.blocks(groups))  # (k, b, b)
        half = torch.linalg.solve_triangular(L, right[groups], upper=False)
        half[:, :-1] = 0.0
        added = torch.linalg.solve_triangular(L.mT, half, upper=True)
        added[failed != 0] = 0.0  # rows that coincide beside next to no noise: the solver has to do it
        out.index_add_(0, groups.flatten(), added.flatten(0, 1))
    return out


def shrunk(operator: KernelOperator, solution: Tensor, rest: int, generator: torch.Generator) -> Tensor:
    """Returns solutions of the first ``rest`` rows alone, (rest, c) in float64, by near points.

    Parameters
    ----------
    operator : KernelOperator
        H of all rows, those that go last.
    solution : Tensor, (n, c)
        The solutions for all of them.
    rest : int
        How many rows stay.
    generator : torch.Generator
        Draws the order of the rows.
    """
    out = solution.double().clone()
    for groups in reversed(list(_groups(operator, rest, generator))):
        L, failed = torch.linalg.cholesky_ex(operator.blocks(groups))
        near, gone = groups[:, :-1], groups[:, -1:]
        weighted = torch.linalg.solve_triangular(
            L[:, :-1, :-1].mT, L[:, -1:, :-1].mT @ out[gone], upper=True
        )  # W v of those that go, (k, near, c)
        weighted[failed != 0] = 0.0
        out.index_add_(0, near.flatten(), weighted.flatten(0, 1))
    return out[:rest]


def _groups(operator: KernelOperator, old: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yields groups of rows, (k, near + 1): a new one at the end of each, those before it old or of earlier rounds."""
    n, device = operator.n, operator.device
    z = operator.x[old:] / operator.theta.length_scales.to(operator.x)
    order = old + near_order(z, n - old, generator)  # neighbours follow each other
    before = torch.arange(old, device=device)
    for first in torch.randperm(min(ROUNDS, n - old), generator=generator).tolist():
        new, near = order[first::ROUNDS], min(NEAR, len(before))
        points = NearPoints(operator.x[before], operator.kernel, operator.theta, near)
        for rows in ranges(len(new), max(1, AT_ONCE[device.type == "cpu"] // (near + 1) ** 2)):
            found = before[points.nearest(operator.x[new[rows]])]
            yield torch.cat([found, new[rows, None]], 1)
        before = torch.cat([before, new])
