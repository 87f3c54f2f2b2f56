"""Alternating projections: exact solves on blocks, worst block first (the paper's algorithm 2).

There are two loops of the same iteration. On a CPU the host picks the block, and its factor is made when it is first
used. On a GPU the device picks it: all blocks are inverted beforehand, in batches, and the iterations run as one
recorded graph, so that the host only looks at the residual now and then. A small iteration would otherwise cost more
to launch than to run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count, check_positive, is_number
from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import ranges
from warmgp.schema import record, whole
from warmgp.solvers.base import Packed, Solver
from warmgp.solvers.block_factors import BlockFactors
from warmgp.solvers.graphs import Recorded
from warmgp.solvers.progress import Progress, Stall
from warmgp.solvers.result import SolveResult, StoppingRule
from warmgp.solvers.survey import survey
from warmgp.solvers.triangular import solve_with_factor


@dataclass(frozen=True)
class AlternatingProjections(Solver):
    """Solves exactly on one block of rows after the other: next is the one with the largest residual over all systems.

    An iteration on a block of b rows applies n·b entries of H: b/n of an epoch. Blocks are contiguous in the order of
    the rows. The factors are returned as the state and reused at the same θ.

    Where noise is low, blocks of a fixed size need thousands of epochs. With ``grow_after`` they double whenever a
    solve has taken that many epochs with them, until one block is left, which is a direct solve; the next solve starts
    with the size that the last one ended with.

    Parameters
    ----------
    block_size : int
        Rows per block; n if larger than n.
    grow_after : float or None
        Epochs of one solve after which its blocks double; None for never, as in the paper.
    largest_block : int or None
        Rows that blocks may grow to; None for n.
    stall_epochs : float
        Without 1% of progress for that many epochs the solve gives up.
    on_device : bool or "auto"
        Whether the device picks the blocks, from inverses of all of them (n·b/2 numbers); "auto" means on a GPU.
    """

    block_size: int = 1000
    grow_after: float | None = None
    largest_block: int | None = None
    stall_epochs: float = 500.0
    on_device: bool | str = "auto"

    name = "ap"

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size)
        if self.largest_block is not None:
            check_count("largest_block", self.largest_block)
        if self.grow_after is not None and not (is_number(self.grow_after) and self.grow_after > 0):
            raise ValueError(f"grow_after must be a positive number of epochs or None, got {self.grow_after!r}")
        check_positive("stall_epochs", self.stall_epochs)
        if self.on_device not in (True, False, "auto"):
            raise ValueError(f'on_device must be True, False or "auto", got {self.on_device!r}')

    def refines_within(self, n: int) -> float:
        whole = self.grow_after is not None and (self.largest_block is None or self.largest_block >= n)
        return math.inf if whole else 0.0

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: BlockFactors | int | None = None,
    ) -> SolveResult:
        """Solves as :meth:`Solver.solve` says; ``state`` may also be the block size alone that another θ ended with."""
        progress = Progress.begin(operator, targets, start, rule)
        on_device = operator.device.type == "cuda" if self.on_device == "auto" else bool(self.on_device)
        on_device = on_device and progress.part.alone
        iterate = self._iterate_on_device if on_device else self._iterate
        factors = self._factors(operator, state)
        while True:
            b = factors.block_size
            larger = min(2 * b, operator.n, self.largest_block or operator.n)
            until = math.inf
            if self.grow_after is not None and larger > b:
                until = progress.iteration_epochs + self.grow_after
            iterate(operator, progress, factors, until)
            if progress.stop_reason:
                return progress.result(factors)
            factors = BlockFactors.of(operator, larger)

    # -- its state ---------------------------------------------------------------------------------------------------
    def carry(self, state: BlockFactors | int | None) -> int | None:
        """Returns the block size alone: the factors are of one H, and weigh n·b numbers."""
        return state.block_size if isinstance(state, BlockFactors) else state

    def in_float64(self, state: int | None) -> int | None:
        return state

    def pack(self, state: int | None) -> Packed:
        return {}, {} if state is None else {"block_size": state}

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> int | None:
        super().unpack(tensors, {}, shape)
        record({}, {"block_size": whole(1)})(content, "")
        return content.get("block_size")

    # -- iterations --------------------------------------------------------------------------------------------------
    def _factors(self, operator: KernelOperator, state: BlockFactors | int | None) -> BlockFactors:
        """Returns the factors to begin with: those of the state where they are of this H, else an empty store."""
        last = state.block_size if isinstance(state, BlockFactors) else state
        size = max(self.block_size, last or 0) if self.grow_after is not None else self.block_size
        b = min(size, operator.n)
        if isinstance(state, BlockFactors) and state.block_size == b and state.origin.same(operator.origin):
            return state
        return BlockFactors.of(operator, b)

    def _iterate(self, operator: KernelOperator, progress: Progress, state: BlockFactors, until: float) -> None:
        """Iterates until there is a reason to stop, or ``until`` epochs are spent."""
        n, b = operator.n, state.block_size
        blocks = list(ranges(n, b))
        stall = Stall(self.stall_epochs)
        while True:
            worst_block, norms = survey(progress.part, progress.r, b)
            rows = blocks[worst_block]
            cost = (rows.stop - rows.start) / n
            if progress.exploded(norms) or stall.update(max(norms), progress.iteration_epochs):
                progress.give_up("stagnated")
                return
            if progress.finished(norms, cost):
                return
            if progress.renewed():  # survey the true residual
                continue
            if progress.iteration_epochs >= until:
                return
            self._project(progress, state, worst_block, rows)
            progress.count(cost)

    def _project(self, progress: Progress, state: BlockFactors, number: int, rows: slice) -> None:
        """Solves exactly on one block: the process that has its first row does, and keeps its factor."""
        part, operator = progress.part, progress.operator
        residual = part.take(progress.r, rows)  # (b, 1 + s)

        def solved() -> Tensor:
            factor = state.get(operator, number, rows)
            return solve_with_factor(factor, residual.to(factor.dtype)).to(operator.dtype)

        step = part.from_rank(part.owner(rows.start), solved, residual)
        part.add(progress.v, rows, step)
        part.subtract_columns(progress.r, rows, step)

    def _iterate_on_device(
        self, operator: KernelOperator, progress: Progress, state: BlockFactors, until: float
    ) -> None:
        n, b = operator.n, state.block_size
        blocks = -(-n // b)
        cost = b / n  # of every block but a short last one
        check_every = max(min(8, blocks), blocks // 64)
        stall = Stall(self.stall_epochs)
        padded = progress.r.new_zeros(2, blocks * b, progress.r.shape[1])
        r, v = padded[0], padded[1]  # whole blocks; zero beyond n
        progress.live_in(v[:n], r[:n])
        squares = torch.linalg.vector_norm(r, dim=1).square_()  # by row, (blocks · b,)
        sizes = torch.full((blocks,), b, device=r.device)
        sizes[-1] = n - (blocks - 1) * b
        rows_done, worst, first = torch.zeros(3, 1, dtype=torch.int64, device=r.device)

        def fused_iteration() -> None:
            assert state.inverses is not None
            steps.pick_block(squares.view(blocks, b).sum(1), worst, first, rows_done, b, n)
            step = steps.project_block(state.inverses, worst, r, v, b)
            operator.subtract_columns(r[:n], first, step, squares[:n])

        def iteration() -> None:
            worst = squares.view(blocks, b).sum(1).argmax(0, keepdim=True)
            r_block = r.view(blocks, b, -1).index_select(0, worst)[0]
            inverse = state.inverse(worst)
            step = (inverse @ r_block.to(inverse.dtype)).to(r.dtype)  # (b, c)
            v.view(blocks, b, -1).index_add_(0, worst, step[None])
            operator.subtract_columns(r[:n], worst * b, step, squares[:n])
            rows_done.add_(sizes.index_select(0, worst))

        fused = operator.uses_triton
        if fused:
            from warmgp.solvers.triton import steps

            fused = blocks <= steps.MOST_BLOCKS and b < 2**15  # half of b² numbers have 32-bit addresses
        run = Recorded(fused_iteration if fused else iteration, operator)
        while True:
            norms = progress.norms()
            if progress.exploded(norms) or stall.update(max(norms), progress.iteration_epochs):
                progress.give_up("stagnated")
                return
            if progress.finished(norms, cost):
                return
            if progress.renewed():
                squares.copy_(torch.linalg.vector_norm(r, dim=1).square_())
            if progress.iteration_epochs >= until:
                return
            state.all_inverses(operator)
            rows_done.zero_()
            count = progress.affordable(cost, check_every)
            for _ in range(count):
                run()
            progress.count(int(rows_done) / n, count)
