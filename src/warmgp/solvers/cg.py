"""Preconditioned conjugate gradients on all systems at once (the paper's algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.preconditioners import PivotedCholesky
from warmgp.solvers.base import Progress, Solver, SolveResult, Stall, StoppingRule, check_count


@dataclass(frozen=True)
class ConjugateGradients(Solver):
    """CG with a pivoted-Cholesky preconditioner. An iteration is one product with H: one epoch.

    The preconditioner is returned as the state and reused while the length scales stay the same.

    Parameters
    ----------
    preconditioner_rank : int
        Columns of the pivoted Cholesky factor; 0 for none.
    stall_epochs : float
        Without 1% of progress for that many epochs the solve gives up. CG's residual may rise for long before it
        falls, so this is generous.
    """

    preconditioner_rank: int = 100
    stall_epochs: float = 1000.0

    name = "cg"

    def __post_init__(self) -> None:
        check_count("preconditioner_rank", self.preconditioner_rank, least=0)

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: PivotedCholesky | None = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        norms = progress.norms()
        if progress.finished(norms, 1.0):
            return progress.result(state)
        progress.exploded(norms)  # remembers the start
        state = self._preconditioner(operator, state)
        stall = Stall(self.stall_epochs)
        while True:
            if progress.checked:  # the start, or a residual just replaced by the true one: begin a new sequence
                p = self._precondition(state, progress.r)
                d = p.clone()
                gamma = (progress.r * p).sum(0)  # rᵀP⁻¹r, (1 + s,)
            Hd = operator.matmul(d)
            curvature = (d * Hd).sum(0)
            if bool((curvature < 0).any()):  # rounding has made H indefinite: no step along d can be trusted
                progress.iteration_epochs += 1.0
                progress.give_up("stagnated")
                return progress.result(state)
            alpha = _ratio(gamma, curvature)
            progress.v += alpha * d
            progress.r -= alpha * Hd
            progress.count(1.0)
            norms = progress.norms()
            if progress.exploded(norms) or stall.update(max(norms), progress.iteration_epochs):
                progress.give_up("stagnated")
                return progress.result(state)
            if progress.finished(norms, 1.0):
                return progress.result(state)
            if not progress.checked:
                p = self._precondition(state, progress.r)
                gamma_new = (progress.r * p).sum(0)
                d = p + _ratio(gamma_new, gamma) * d
                gamma = gamma_new

    def _preconditioner(self, operator: KernelOperator, state: PivotedCholesky | None) -> PivotedCholesky | None:
        if self.preconditioner_rank == 0:
            return None
        moved = state.moved_to(operator, self.preconditioner_rank) if state is not None else None
        return moved or PivotedCholesky.build(operator, self.preconditioner_rank)

    @staticmethod
    def _precondition(state: PivotedCholesky | None, r: Tensor) -> Tensor:
        return r.clone() if state is None else state.solve(r)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a/b per system, and 0 where a system has nothing left to do (b ≤ 0 only by rounding)."""
    return torch.where(b > 0, a / b.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(a))
