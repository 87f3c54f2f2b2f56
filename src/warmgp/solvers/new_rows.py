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

from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import index_size, ranges
from warmgp.operators.near_order import even_ends, near_order
from warmgp.operators.new_points import NearPoints

NEAR = 256
"""The most near rows by which a new one is known."""

ROUNDS = 32
"""The most rounds in which rows are taken: those of a round do not know of each other, and are far apart."""

AT_ONCE = {True: 2**22, False: 2**26}
"""Entries of blocks that are held at once, in float64, by whether that is on a CPU."""


def grown(operator: KernelOperator, residual: Tensor, generator: torch.Generator, here: slice | None = None) -> Tensor:
    """Returns what new rows add to old solutions, (n, c) in float64: U S⁻¹ r by near points.

    Parameters
    ----------
    operator : KernelOperator
        H of all rows, the new ones last.
    residual : Tensor, (m, c)
        r, what the old solutions do not predict of the targets of the m new rows.
    generator : torch.Generator
        Draws the order of the rows.
    here : slice, optional
        The rows that are returned; by default all.
    """
    old, here = operator.n - len(residual), slice(0, operator.n) if here is None else here
    none = torch.zeros(1, residual.shape[1], dtype=torch.float64, device=operator.device)
    right = torch.cat([none, residual.double()])  # an old row has nothing left
    out = none.new_zeros(index_size(here), residual.shape[1])
    for groups in _groups(operator, old, generator):
        L, failed = torch.linalg.cholesky_ex(operator.blocks(groups))  # (k, b, b)
        half = torch.linalg.solve_triangular(L, right[(groups - old + 1).clamp_min(0)], upper=False)
        half[:, :-1] = 0.0
        added = torch.linalg.solve_triangular(L.mT, half, upper=True)
        added[failed != 0] = 0.0  # rows that coincide beside next to no noise: the solver has to do it
        _add(out, groups - here.start, added, len(out))
    return out


def shrunk(
    operator: KernelOperator, solution: Tensor, rest: int, generator: torch.Generator, here: slice | None = None
) -> Tensor:
    """Returns solutions of the first ``rest`` rows alone, (rest, c) in float64, by near points.

    Parameters
    ----------
    operator : KernelOperator
        H of all rows, those that go last.
    solution : Tensor, (n, c)
        The solutions for all of them; with ``here`` for those rows, and those that go after them.
    rest : int
        How many rows stay.
    generator : torch.Generator
        Draws the order of the rows.
    here : slice, optional
        Those of the rows that stay that are returned; by default all.
    """
    here = slice(0, rest) if here is None else here
    out, own = solution.double().clone(), index_size(here)
    for groups in reversed(list(_groups(operator, rest, generator))):
        L, failed = torch.linalg.cholesky_ex(operator.blocks(groups))
        places = torch.where(groups < rest, groups - here.start, groups - rest + own)
        places = torch.where((groups < rest) & (places >= own), -1, places)  # of other processes
        near, gone = places[:, :-1], places[:, -1:]
        weighted = torch.linalg.solve_triangular(
            L[:, :-1, :-1].mT, L[:, -1:, :-1].mT @ out[gone], upper=True
        )  # W v of those that go, (k, near, c)
        weighted[failed != 0] = 0.0
        _add(out, near, weighted, len(out))
    return out[:own]


def _add(out: Tensor, places: Tensor, values: Tensor, count: int) -> None:
    """Adds values (k, b, c) to the rows of ``out`` at ``places`` (k, b), where these are from 0 to ``count`` − 1."""
    index, values = places.flatten(), values.flatten(0, 1)
    inside = (index >= 0) & (index < count)
    out.index_add_(0, index[inside], values[inside])


def _groups(operator: KernelOperator, old: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yields groups of rows, (k, near + 1): a new one at the end of each, those before it old or of earlier rounds."""
    n, device = operator.n, operator.device
    z = operator.x[old:] / operator.theta.length_scales.to(operator.x)
    order = old + near_order(z, even_ends(n - old, n - old), generator)  # neighbours follow each other
    before = torch.arange(old, device=device)
    for first in torch.randperm(min(ROUNDS, n - old), generator=generator).tolist():
        new, near = order[first::ROUNDS], min(NEAR, len(before))
        points = NearPoints(operator.x[before], operator.kernel, operator.theta, near)
        for rows in ranges(len(new), max(1, AT_ONCE[device.type == "cpu"] // (near + 1) ** 2)):
            found = before[points.nearest(operator.x[new[rows]])]
            yield torch.cat([found, new[rows, None]], 1)
        before = torch.cat([before, new])
