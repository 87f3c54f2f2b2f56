"""Preconditioned conjugate gradients on all systems at once (the paper's algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.checks import check_count
from warmgp.operators.base import KernelOperator
from warmgp.solvers.base import Progress, Solver, SolveResult, Stall, StoppingRule
from warmgp.solvers.graphs import Recorded
from warmgp.solvers.preconditioners.neighbour_factor import NeighbourFactor, NeighbourRecipe
from warmgp.solvers.preconditioners.pivoted import PivotedCholesky, Pivots
from warmgp.solvers.preconditioners.stale import Recipe, StaleFactor

CHECK_EVERY = 8
"""Iterations between two looks at the residual on a GPU."""

REFINED_WITHIN = 50.0
"""Epochs that a good preconditioner takes to a tolerance far below the usual one. Seen: 1 to 49."""

FREE = 3
"""Iterations of a solve that no new factor would save."""

Preconditioner = PivotedCholesky | StaleFactor | NeighbourFactor


@dataclass(frozen=True)
class CGState:
    """What the next solve may reuse.

    Attributes
    ----------
    preconditioner
        P⁻¹ of this θ or, with a whole factor, of an earlier one; or what it is rebuilt from after a resume: the pivots,
        or a recipe.
    spent : int
        Iterations beyond ``FREE`` a solve since the last whole factor.
    """

    preconditioner: Preconditioner | Pivots | Recipe | NeighbourRecipe | None = None
    spent: int = 0


@dataclass(frozen=True)
class ConjugateGradients(Solver):
    """CG with a pivoted-Cholesky preconditioner, or a better one. An iteration is one product with H: one epoch.

    The preconditioner is returned in the state and reused while the length scales stay the same. On a GPU the residual
    is looked at every ``CHECK_EVERY`` iterations only, so that the device never waits.

    With ``factor_after`` the preconditioner becomes a whole Cholesky factor of H once that many iterations have been
    spent without one (or with the last one), in the middle of a solve if need be, and serves the solves after it. Like
    renting skis until the rent has reached their price, that costs at most about twice the best choice in hindsight.

    With ``neighbours`` the preconditioner also knows how each point depends on that many near ones, which the low rank
    leaves out (:mod:`warmgp.solvers.preconditioners.neighbour_factor`). For Matérn kernels with little noise that spares
    most iterations, at any number of points; it spares fewer for RBF, and hardly any where noise rules.

    Parameters
    ----------
    preconditioner_rank : int
        Columns of the pivoted Cholesky factor; 0 for none.
    pivot_every : int
        New pivots are sought at every so many changes of the length scales; in between the old pivots make a new
        factor, which costs matrix products only.
    factor_after : int or None
        Iterations that a whole factor costs; None for none, as in the paper. It keeps n² numbers.
    stall_epochs : float
        Without 1% of progress for that many epochs the solve gives up. CG's residual may rise for long before it
        falls, so this is generous.
    neighbours : int
        Near points a point is conditioned on; 0 for none, as in the paper.
    """

    preconditioner_rank: int = 100
    pivot_every: int = 1
    factor_after: int | None = None
    stall_epochs: float = 1000.0
    neighbours: int = 0

    name = "cg"

    def __post_init__(self) -> None:
        check_count("preconditioner_rank", self.preconditioner_rank, least=0)
        check_count("pivot_every", self.pivot_every)
        check_count("neighbours", self.neighbours, least=0)
        if self.factor_after is not None:
            check_count("factor_after", self.factor_after)

    def refines_within(self, n: int) -> float:
        return REFINED_WITHIN if self.factor_after is not None or self.neighbours else 0.0

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: CGState | None = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        norms = progress.norms()
        if progress.finished(norms, 1.0):
            return progress.result(state)
        progress.exploded(norms)  # remembers the start
        preconditioner = self._preconditioner(operator, state)
        near = isinstance(preconditioner, NeighbourFactor)
        spent = state.spent if state else 0
        since = 0  # iterations of this solve before its own factor
        stall = Stall(self.stall_epochs)
        v, r = progress.v, progress.r
        d = torch.empty_like(r)
        gamma = torch.empty_like(r[0])  # rᵀP⁻¹r, (1 + s,)
        indefinite = torch.zeros_like(gamma, dtype=torch.bool)

        def begin() -> None:
            """A new sequence of directions from the present residual."""
            p = self._precondition(preconditioner, r)
            d.copy_(p)
            gamma.copy_((r * p).sum(0))

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

        run: Callable[[], None] = iteration  # a good preconditioner leaves too few iterations to be worth recording
        if not isinstance(preconditioner, StaleFactor | NeighbourFactor):
            run = Recorded(iteration, operator)
        may_factor = self.factor_after is not None
        while True:
            if may_factor and spent + max(0, progress.iterations - since - FREE) >= (self.factor_after or 0):
                if isinstance(preconditioner, StaleFactor):
                    factor = preconditioner.successor(operator)
                else:
                    factor = StaleFactor.build(operator)
                may_factor = factor is not None
                if factor is not None:
                    preconditioner, spent, since, run, near = factor, 0, progress.iterations, iteration, False
                    begin()
            if progress.checked:  # the start, or a residual just replaced by the true one
                r.copy_(progress.r)
                progress.r = r
                begin()
            count = progress.affordable(1.0, self._at_once(operator, preconditioner))
            for _ in range(count):
                run()
            progress.count(float(count), count)
            norms = progress.norms()
            exploded = progress.exploded(norms)
            if near:  # a step that is right may raise the residual a thousandfold before the next ones lower it
                exploded = not all(map(math.isfinite, norms))
            lost = bool(indefinite.any()) or exploded
            if lost and may_factor and isinstance(preconditioner, StaleFactor):
                factor = preconditioner.successor(operator)  # of more digits, or of this H
                if factor is not None:
                    preconditioner, spent, since = factor, 0, progress.iterations
                    indefinite.zero_()
                    progress.back_to_best()
                    v.copy_(progress.v)
                    progress.v = v
                    continue
            if lost or stall.update(max(norms), progress.iteration_epochs):
                progress.give_up("stagnated")
            if progress.stop_reason or progress.finished(norms, 1.0):
                free = 0 if progress.stop_reason == "budget" else FREE  # on a budget every iteration was wanted
                spent += max(0, progress.iterations - since - free)
                return progress.result(CGState(preconditioner, spent))

    @staticmethod
    def _at_once(operator: KernelOperator, preconditioner: Preconditioner | None) -> int:
        """Iterations between two looks at the residual."""
        if operator.device.type == "cpu":
            return 1
        return 2 if isinstance(preconditioner, StaleFactor | NeighbourFactor) else CHECK_EVERY

    def _preconditioner(self, operator: KernelOperator, state: CGState | None) -> Preconditioner | None:
        kept = state.preconditioner if state else None
        if isinstance(kept, Recipe):
            kept = kept.build(operator)
        if isinstance(kept, StaleFactor) and kept.origin.same_data(operator.origin):
            return kept
        near = kept if isinstance(kept, NeighbourFactor | NeighbourRecipe) else None
        low = self._low_rank(operator, kept if near is None else near.low)
        return NeighbourFactor.build(operator, self.neighbours, low, near) if self.neighbours else low

    def _low_rank(self, operator: KernelOperator, kept: object) -> PivotedCholesky | None:
        """The pivoted factor at the operator's θ; from the one before, or its pivots, while they are good."""
        rank = self.preconditioner_rank
        if rank == 0:
            return None
        moved, pivots = None, kept
        if isinstance(kept, PivotedCholesky):
            moved = kept.moved_to(operator, rank)
            pivots = kept.pivots if kept.origin.same_data(operator.origin) else None
        if moved is None and isinstance(pivots, Pivots) and pivots.rank == rank and pivots.age + 1 < self.pivot_every:
            moved = pivots.factor_at(operator)
        return moved or PivotedCholesky.build(operator, rank)

    @staticmethod
    def _precondition(state: Preconditioner | None, r: Tensor) -> Tensor:
        return r.clone() if state is None else state.solve(r)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a/b per system, and 0 where a system has nothing left to do (b ≤ 0 only by rounding)."""
    return torch.where(b > 0, a / b.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(a))
