"""Alternating projections: exact solves on blocks, worst block first (the paper's algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator, Origin, ranges
from warmgp.operators.chunked import ChunkedOperator
from warmgp.solvers.base import Progress, Solver, SolveResult, Stall, StoppingRule, check_count, factor_or_raise


@dataclass
class BlockFactors:
    """Cholesky factors of the diagonal blocks of one H, made when first used."""

    origin: Origin
    block_size: int
    factors: dict[int, Tensor] = field(default_factory=dict)

    def get(self, operator: KernelOperator, index: int, rows: slice) -> Tensor:
        """The factor of H[rows, rows]: made in float64, kept in the operator's dtype."""
        if index not in self.factors:
            if operator.dtype == torch.float64:
                block = operator.block(rows)
            else:  # a float32 block may not be positive definite: evaluate it in float64
                double = ChunkedOperator(operator.x[rows].double(), operator.kernel, operator.theta)
                block = double.block(slice(0, double.n))
                operator.entries_evaluated += double.entries_evaluated
            factor = factor_or_raise(block, f"the block of rows {rows.start} to {rows.stop} of H")
            self.factors[index] = factor.to(operator.dtype)
        return self.factors[index]


@dataclass(frozen=True)
class AlternatingProjections(Solver):
    """Block coordinate descent with exact block solves; the block with the largest residual over all systems is next.

    An iteration on a block of b rows applies n·b entries of H: b/n of an epoch. Blocks are contiguous in the order of
    the rows. The factors are returned as the state and reused at the same θ.

    Parameters
    ----------
    block_size : int
        Rows per block; n if larger than n.
    stall_epochs : float
        Without 1% of progress for that many epochs the solve gives up.
    """

    block_size: int = 1000
    stall_epochs: float = 500.0

    name = "ap"

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size)

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: BlockFactors | None = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        n, b = operator.n, min(self.block_size, operator.n)
        blocks = list(ranges(n, b))
        if state is None or state.block_size != b or not state.origin.same(operator.origin):
            state = BlockFactors(operator.origin, b)
        stall = Stall(self.stall_epochs)
        while True:
            worst_block, norms = _survey(progress.r, b)
            rows = blocks[worst_block]
            cost = (rows.stop - rows.start) / n
            if progress.exploded(norms) or stall.update(max(norms), progress.iteration_epochs):
                progress.give_up("stagnated")
                return progress.result(state)
            carried = not progress.checked
            if progress.finished(norms, cost):
                return progress.result(state)
            if carried and progress.checked:  # r was just replaced by the true residual: survey that one
                continue
            step = torch.cholesky_solve(progress.r[rows], state.get(operator, worst_block, rows))
            progress.v[rows] += step
            progress.r -= operator.columns_matmul(rows, step)
            progress.count(cost)


def _survey(r: Tensor, b: int) -> tuple[int, tuple[float, float]]:
    """The block with the largest sum of squares over all systems, and the residual norms: one pass, one transfer."""
    n, c = r.shape
    whole = n // b * b
    squares = torch.linalg.vector_norm(r[:whole].view(-1, b, c), dim=1).square()  # (blocks, c)
    if whole < n:
        squares = torch.cat([squares, torch.linalg.vector_norm(r[whole:], dim=0).square()[None]])
    systems = squares.sum(0).sqrt()
    probes = systems[1:].mean() if c > 1 else torch.zeros_like(systems[0])
    worst = squares.sum(1).argmax()
    mean, others, index = torch.stack([systems[0], probes, worst.to(systems.dtype)]).tolist()
    return int(index), (mean, others)
