"""Recombined projections: sweeps over blocks of near points, never the same twice, and recombined by least energy.

The paper's alternating projections keep their blocks, rows that follow each other, and slow down at low noise.
Two changes beyond the paper make the residual fall many times faster for the same products with H
(`benchmarks/results/README.md`):

- **Blocks are of near points**, by the length scales of H, and every sweep has new ones (:mod:`partitions`): points
  that one sweep sets apart are together in the next. A sweep is an exact solve on each block, its step applied to the
  residual. This is a method of overlapping subdomains, whose overlap comes from chance.
- **Sweeps are recombined.** With the last increments d_i of v and H d_i at hand, which the residual gives for free
  (H d = r_before − r_after), the energy ½ vᵀHv − vᵀb over v + span(d_1 … d_k) is a problem of k unknowns a column. The
  best combination becomes the increment. That is a conjugate-gradient method whose preconditioner, a sweep, changes
  from step to step: no step raises the energy, and there is no rate to choose.

What the points of a block leave unknown of one another, in units of the noise variance, sets the pace. Of random blocks
that is much, of near points little, at any number of points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count, check_positive
from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import ranges
from warmgp.operators.part import Part
from warmgp.solvers.ahead import Ahead
from warmgp.solvers.base import Solver
from warmgp.solvers.graphs import Recorded
from warmgp.solvers.partitions import (
    Attempt,
    Partition,
    check_factors,
    inverted,
    inverted_blocks,
    partition_shape,
)
from warmgp.solvers.progress import Patience, Progress, Stall
from warmgp.solvers.result import SolveResult, StoppingRule
from warmgp.solvers.sums import add_up, rounded
from warmgp.solvers.triangular import solve_with_factor

ROWS_AT_ONCE = 2**18
"""Rows of two arrays that are multiplied at once for a sum over all rows: their product takes memory."""

REFRESH_EVERY = 10
"""Sweeps in float32 after which the residual is computed afresh: rounding moves the one that is carried along, by up
to a fifth of it a sweep at little noise (500,000 points, σ = 0.0165)."""

PATIENCE = Patience(strikes=1, gain=0.7, drift=0.9)
"""A sweep more than halves a residual that rounding leaves alone, and costs as much as a check: one check without gain
says it all. Going on as long as other solvers do took half the time of a fit (Matérn-1/2, 500,000 points, σ = 0.0074:
the true residual of the probes was 0.0050 after 6 sweeps and 0.0060 after 20)."""


LOST = 20.0
"""How many times the best residual one may be before it is held to be lost: the solve ends with the best. The residual
of a sweep may rise while the energy falls, threefold in the solves that we have watched and that converged. At σ =
0.036, signal 0.86 and long length scales (200,000 points, float32) it fell to 0.018 and was 20 ten sweeps later: as if
the H of rounded products were not positive definite."""


SURE = 8.0
"""What a sweep divides a residual by at the most, as far as what is prepared for another sweep is concerned."""


@dataclass(frozen=True)
class RecombinedProjections(Solver):
    """Solves exactly on blocks of near points, one after the other, and recombines the last sweeps over all of them.

    A sweep applies n² entries of H, and those of one block more: about one epoch.

    Parameters
    ----------
    block_size : int
        The most rows per block; n if larger than n. More rows make a sweep better and its factors dearer: n b²/3
        operations a sweep on a CPU, 4 n b²/3 on a GPU.
    directions : int
        Sweeps that are recombined: 2 n (1 + s) numbers each.
    together : int
        Blocks that are inverted at once on a GPU, where one alone does not keep it busy: about 4 b² numbers of float64
        each while that is done.
    stall_epochs : float
        Without 1% of progress for that many epochs the solve gives up.
    """

    block_size: int = 1000
    directions: int = 2
    together: int = 16
    stall_epochs: float = 100.0

    name = "rap"

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size)
        check_count("directions", self.directions)
        check_count("together", self.together)
        check_positive("stall_epochs", self.stall_epochs)

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: Any = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        progress.patience = PATIENCE
        generator = generator or torch.Generator().manual_seed(0)
        sweeps = _Sweeps(progress, self, generator)
        try:
            return self._swept(progress, sweeps, rule)
        finally:
            sweeps.end()

    def rehearse(self, operator: KernelOperator, V: Tensor) -> None:
        super().rehearse(operator, V)
        rows = torch.arange(partition_shape(operator.n, self.block_size)[1], device=operator.device)
        inverted(operator, rows[None])
        operator.subtract_columns_at(V, rows, V[rows])

    def _swept(self, progress: Progress, sweeps: _Sweeps, rule: StoppingRule) -> SolveResult:
        """Sweeps until the rule or the progress says that it is enough."""
        operator, stall = progress.operator, Stall(self.stall_epochs)
        done = 0  # sweeps
        while True:
            norms = progress.norms()
            if progress.exploded(norms, LOST) or stall.update(max(norms), progress.iteration_epochs):
                progress.give_up("stagnated")
            if progress.stop_reason or progress.finished(norms, min(self.block_size, operator.n) / operator.n):
                return progress.result()
            if done and done % REFRESH_EVERY == 0 and operator.dtype == torch.float32:
                progress.refresh()
                if progress.rounding_rules(max(norms)):
                    progress.stop_reason = "stagnated"
                    return progress.result()
            sweeps.sweep(last=rule.met((norms[0] / SURE, norms[1] / SURE)))
            done += 1


class _Sweeps:
    """Takes sweeps, and recombines the last of them. Holds 2·k arrays of the size of v."""

    def __init__(self, progress: Progress, how: RecombinedProjections, generator: torch.Generator) -> None:
        self.progress, self.most = progress, how.directions
        self.directions: list[Tensor] = []  # d_i, (n, 1 + s), the newest last
        self.products: list[Tensor] = []  # H d_i
        operator = progress.operator
        self._blocks, self._rows = partition_shape(operator.n, how.block_size)
        self._draw = partial(Partition.draw, operator, how.block_size, generator)
        self._inverted = partial(inverted_blocks, operator, how.block_size, generator, how.together)
        self._ahead = Ahead(self._inverted(), operator.device)
        self._recorded: dict[int, _Projections] = {}  # by the number of blocks, on a GPU

    def end(self) -> None:
        """Ends what is made ahead."""
        self._ahead.end()

    def sweep(self, *, last: bool) -> None:
        """Projects onto every block once, as far as budget and time go, and recombines. ``last`` says whether this may
        be the last sweep, so that nothing is prepared for another."""
        progress, operator = self.progress, self.progress.operator
        d, h = self._memory()
        d.copy_(progress.v)
        h.copy_(progress.r)
        cost = self._rows / operator.n
        count = progress.affordable(cost, self._blocks)
        if not progress.part.alone:
            self._in_turn(count)
        elif operator.device.type == "cpu":
            count = self._by_factors(count)
        else:
            self._by_inverses(count, last=last)
        progress.count(count * cost, count)
        self._recombine(d, h)

    def _by_factors(self, count: int) -> int:
        """Projects onto so many blocks in turn, each by substitution with its factor; returns onto how many.

        A sweep on a CPU may take a minute, and longer than the last one where other programs want its cores: it ends
        with the block at which the time of the rule is over.
        """
        partition, done = Partition(self._draw().index[:count]), 0
        for rows, factor in partition.factors(self.progress.operator):
            if done and not self.progress.rule.in_time(0.0):
                break
            residual = self.progress.r.index_select(0, rows)  # (b, 1 + s)
            step = solve_with_factor(factor, residual.to(factor.dtype)).to(residual.dtype)
            _project(self.progress, rows, step)
            done += 1
        return done

    def _by_inverses(self, count: int, *, last: bool) -> None:
        """Projects onto so many blocks one after the other, by factors of inverses. Some of these are made together,
        while those before them are projected onto; unless this is the ``last`` sweep, the next one's first, too."""
        blocks, wrong = [], []  # their rows, and whether some have no factor
        cut = count < self._blocks
        while count:
            batch = self._ahead.take()
            index, factors = batch.index[:count], batch.factors[:count]
            if len(index) not in self._recorded:
                self._recorded[len(index)] = _Projections(self.progress, index, factors)
            self._recorded[len(index)](index, factors)
            count -= len(index)
            if count or not (last or cut):
                self._ahead.prepare()
            blocks.append(batch.index)
            wrong.append(batch.wrong)
        if cut:  # the rest of the partition is not for another sweep
            self._ahead.end()
            self._ahead = Ahead(self._inverted(), self.progress.operator.device)
        check_factors(self.progress.operator, torch.cat(blocks), torch.stack(wrong))

    def _in_turn(self, count: int) -> None:
        """Projects onto so many blocks one after the other; each process factors every ``size``-th of them, at the same
        time as the others theirs, and solves on it when its turn comes."""
        partition = Partition(self._draw().index[:count])
        part, operator = self.progress.part, self.progress.operator
        for some in ranges(len(partition.index), part.size):
            index = partition.index[some]
            mine = Attempt(partition, operator, index[part.rank]) if part.rank < len(index) else None
            for rank, rows in enumerate(index):
                residual = part.take(self.progress.r, rows)  # (b, 1 + s)
                step = part.from_rank(rank, partial(_solved, mine, residual), residual)
                _project(self.progress, rows, step)

    def _memory(self) -> tuple[Tensor, Tensor]:
        """Returns two arrays for the next increment: new ones, or those of the oldest."""
        if len(self.directions) < self.most:
            return torch.empty_like(self.progress.v), torch.empty_like(self.progress.r)
        return self.directions.pop(0), self.products.pop(0)

    def _recombine(self, before: Tensor, r_before: Tensor) -> None:
        """Replaces the sweep's increment by the best combination of it with those before it.

        ``before`` and ``r_before`` are v and r before the sweep; the increment ends in their memory. The books stay
        where they are, because what was recorded writes there.
        """
        progress, add = self.progress, partial(add_up, self.progress.operator)
        d = add(progress.v, 1.0, (-1.0, before))  # v and r hold the increment for a while
        h = torch.sub(r_before, progress.r, out=progress.r)
        c = _best_combination(progress.part, [*self.directions, d], [*self.products, h], r_before)  # (k, 1 + s)
        add(d, c[-1], *zip(c, self.directions, strict=False))
        h.mul_(c[-1])
        for weight, its_h in zip(c, self.products, strict=False):
            h.addcmul_(weight, its_h)
        _exchange(progress.v, add(before, 1.0, (1.0, d)))
        _exchange(progress.r, r_before.sub_(h))
        self.directions.append(before)
        self.products.append(r_before)


class _Projections:
    """Projects onto some blocks of a GPU's partition one after the other: from its second call on as a recorded graph.

    The launches of a block take longer than its work up to about 100,000 points.
    """

    def __init__(self, progress: Progress, index: Tensor, factors: Tensor) -> None:
        self.index, self.factors = index.clone(), factors.clone()  # where the graph reads
        operator = progress.operator
        run = partial(_project_onto, progress, self.index, self.factors)
        records = operator.uses_triton and operator.dtype == torch.float32  # nothing of it waits for the host
        self._run = Recorded(run, operator) if records else run

    def __call__(self, index: Tensor, factors: Tensor) -> None:
        """Projects onto as many blocks as the first ones: of rows ``index``, (k, b), with factors, (k, b, b)."""
        self.index.copy_(index)
        self.factors.copy_(factors)
        self._run()


def _project_onto(progress: Progress, index: Tensor, factors: Tensor) -> None:
    """Projects onto blocks, (k, b), one after the other, by the factors X of their inverses XᵀX, (k, b, b)."""
    for rows, X in zip(index, factors, strict=True):
        residual = progress.r.index_select(0, rows)  # (b, 1 + s)
        _project(progress, rows, (X.mT @ (X @ residual.to(X.dtype))).to(residual.dtype))


def _project(progress: Progress, rows: Tensor, step: Tensor) -> None:
    """Takes the step of a block, (b, 1 + s): adds it to v and takes its product off r."""
    part, v = progress.part, progress.v
    if progress.operator.sums_count:
        part.put(v, rows, rounded(part.take(v, rows).double() + step.double(), v.dtype))
    else:
        part.add(v, rows, step)
    part.subtract_columns(progress.r, rows, step)


def _solved(mine: Attempt | None, residual: Tensor) -> Tensor:
    assert mine is not None  # it is this process's turn
    return mine(residual)


def _exchange(a: Tensor, b: Tensor) -> None:
    """Exchanges what two arrays hold, some rows at a time."""
    for rows in ranges(len(a), ROWS_AT_ONCE):
        kept = a[rows].clone()
        a[rows] = b[rows]
        b[rows] = kept


def _best_combination(part: Part, D: list[Tensor], HD: list[Tensor], r: Tensor) -> Tensor:
    """Returns the weights c, (k, 1 + s), that minimise the energy of v + Σ c_i d_i, where r is the residual of v.

    For every column: Σ_j (d_iᵀ H d_j) c_j = d_iᵀ r. Increments that rounding has made dependent are left out by the
    eigenvalues of the scaled matrix.
    """
    k, columns = len(D), r.shape[1]
    sums = torch.zeros(k, k + 1, columns, dtype=torch.float64, device=r.device)
    for some in ranges(len(r), ROWS_AT_ONCE):
        for i, d in enumerate(D):
            for j, h in enumerate((*HD, r)):
                sums[i, j] += (d[some] * h[some]).sum(0, dtype=torch.float64)
    sums = part.sum(sums)
    A, g = sums[:, :k].permute(2, 0, 1).cpu(), sums[:, k].T.cpu()  # (1 + s, k, k), (1 + s, k)
    A = (A + A.mT) / 2
    scale = A.diagonal(dim1=1, dim2=2).clamp_min(torch.finfo(torch.float64).tiny).rsqrt()
    values, vectors = torch.linalg.eigh(A * scale[:, :, None] * scale[:, None, :])
    least = k * 10 * torch.finfo(r.dtype).eps * values[:, -1:]
    inverse = torch.where(values > least, 1 / values.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    rotated = vectors.mT @ (scale * g)[..., None]  # (1 + s, k, 1)
    c = scale * (vectors @ (inverse[..., None] * rotated))[..., 0]
    return c.T.to(r)
