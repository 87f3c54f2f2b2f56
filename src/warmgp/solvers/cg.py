"""Preconditioned conjugate gradients on all systems at once (the paper's algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.graphs import Recorded
from warmgp.operators.base import KernelOperator
from warmgp.preconditioners import PivotedCholesky, Pivots
from warmgp.solvers.base import Progress, Solver, SolveResult, Stall, StoppingRule, check_count

CHECK_EVERY = 8
"""Iterations between two looks at the residual on a GPU."""


@dataclass(frozen=True)
class ConjugateGradients(Solver):
    """CG with a pivoted-Cholesky preconditioner. An iteration is one product with H: one epoch.

    The preconditioner is returned as the state and reused while the length scales stay the same. On a GPU the residual
    is looked at every ``CHECK_EVERY`` iterations only, so that the device never waits.

    Parameters
    ----------
    preconditioner_rank : int
        Columns of the pivoted Cholesky factor; 0 for none.
    pivot_every : int
        New pivots are sought at every so many changes of the length scales; in between the old pivots make a new
        factor, which costs matrix products only.
    stall_epochs : float
        Without 1% of progress for that many epochs the solve gives up. CG's residual may rise for long before it
        falls, so this is generous.
    """

    preconditioner_rank: int = 100
    pivot_every: int = 1
    stall_epochs: float = 1000.0

    name = "cg"

    def __post_init__(self) -> None:
        check_count("preconditioner_rank", self.preconditioner_rank, least=0)
        check_count("pivot_every", self.pivot_every)

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: PivotedCholesky | Pivots | None = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        norms = progress.norms()
        if progress.finished(norms, 1.0):
            return progress.result(state)
        progress.exploded(norms)  # remembers the start
        preconditioner = self._preconditioner(operator, state)
        stall = Stall(self.stall_epochs)
        at_once = 1 if operator.device.type == "cpu" else CHECK_EVERY
        v, r = progress.v, progress.r
        d = torch.empty_like(r)
        gamma = torch.empty_like(r[0])  # rᵀP⁻¹r, (1 + s,)
        indefinite = torch.zeros_like(gamma, dtype=torch.bool)

        def iteration() -> None:
            Hd = operator.matmul(d)
            curvature = (d * Hd).sum(0)
            indefinite.logical_or_(curvature < 0)  # rounding has made H indefinite: no step along d can be trusted
            alpha = _ratio(gamma, curvature)
            v.addcmul_(alpha, d)
            r.addcmul_(alpha, Hd, value=-1.0)
            p = self._precondition(preconditioner, r)
            gamma_new = (r * p).sum(0)
            torch.addcmul(p, _ratio(gamma_new, gamma), d, out=d)
            gamma.copy_(gamma_new)

        run = Recorded(iteration, operator)
        while True:
            if progress.checked:  # the start, or a residual just replaced by the true one: begin a new sequence
                r.copy_(progress.r)
                progress.r = r
                p = self._precondition(preconditioner, r)
                d.copy_(p)
                gamma.copy_((r * p).sum(0))
            count = progress.affordable(1.0, at_once)
            for _ in range(count):
                run()
            progress.count(float(count), count)
            norms = progress.norms()
            if (
                bool(indefinite.any())
                or progress.exploded(norms)
                or stall.update(max(norms), progress.iteration_epochs)
            ):
                progress.give_up("stagnated")
                return progress.result(preconditioner)
            if progress.finished(norms, 1.0):
                return progress.result(preconditioner)

    def _preconditioner(
        self, operator: KernelOperator, state: PivotedCholesky | Pivots | None
    ) -> PivotedCholesky | None:
        if self.preconditioner_rank == 0:
            return None
        rank = self.preconditioner_rank
        moved, pivots = None, state
        if isinstance(state, PivotedCholesky):
            moved = state.moved_to(operator, rank)
            pivots = state.pivots if state.origin.same_data(operator.origin) else None
        if moved is None and isinstance(pivots, Pivots) and pivots.rank == rank and pivots.age + 1 < self.pivot_every:
            moved = pivots.factor_at(operator)
        return moved or PivotedCholesky.build(operator, rank)

    @staticmethod
    def _precondition(state: PivotedCholesky | None, r: Tensor) -> Tensor:
        return r.clone() if state is None else state.solve(r)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a/b per system, and 0 where a system has nothing left to do (b ≤ 0 only by rounding)."""
    return torch.where(b > 0, a / b.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(a))
