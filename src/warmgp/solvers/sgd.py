"""Stochastic gradient descent on random rows with momentum (the paper's algorithm 3).

Each iteration takes a batch of b rows i of the normalised system, g[i] = (H v − b)[i] and zero elsewhere, then

    m ← ρ m − γ/b · g,     v ← v + m        (dense in v).

The residual is not a by-product: an estimate of it is kept and overwritten on the rows of each batch. Batches run
through a fresh permutation every epoch, so that no row of the estimate is older than two epochs. When the estimate
says converged, the true residual decides.

``learning_rate="auto"`` follows the paper's rule without its grid search: it begins at the top of the grid and,
whenever the residual explodes or stalls, goes back to the last good iterate with the next smaller rate. What it finds
is the state of the next solve.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.checks import check_count, is_number
from warmgp.operators.base import KernelOperator
from warmgp.solvers.base import Progress, Solver, SolveResult, Stall, StoppingRule
from warmgp.solvers.graphs import Recorded

logger = logging.getLogger(__name__)

RATES = (100.0, 90.0, 80.0, 70.0, 60.0, 50.0, 30.0, 20.0, 10.0, 5.0)
"""The paper's grid. Below it the rate is halved."""

CHECK_EVERY = 8
"""Iterations between two looks at the residual on a GPU."""

EXPLODED = 10.0
"""Times the residual at the last good iterate: transients of the momentum stay below, divergence does not."""


@dataclass(frozen=True)
class SGDState:
    """The learning rate that the last solve ended with."""

    learning_rate: float


@dataclass(frozen=True)
class StochasticGradientDescent(Solver):
    """SGD on rows of H. An iteration on b rows is b/n of an epoch.

    Parameters
    ----------
    batch_size : int
    learning_rate : float or "auto"
        Of the normalised system, divided by the batch size. A fixed rate that diverges ends the solve at the last good
        iterate with ``stop_reason="diverged"``; "auto" lowers it and goes on, with a note.
    momentum : float
    stall_epochs : float
        Without 1% of progress for that many epochs a smaller rate is tried ("auto"), or the solve gives up.
    large_n : int
        From this size on "auto" halves the rate it found before the next solve: larger problems diverge more easily
        when θ moves (the paper's rule).
    """

    batch_size: int = 500
    learning_rate: float | str = "auto"
    momentum: float = 0.9
    stall_epochs: float = 100.0
    large_n: int = 50_000

    name = "sgd"

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        if not (is_number(self.momentum) and 0 <= self.momentum < 1):
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")
        rate = self.learning_rate
        if rate != "auto" and not (is_number(rate) and math.isfinite(rate) and rate > 0):
            raise ValueError(f'learning_rate must be a positive number or "auto", got {rate!r}')

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: SGDState | None = None,
    ) -> SolveResult:
        if generator is None:
            raise ValueError("SGD draws random batches: pass generator=torch.Generator()")
        progress = Progress.begin(operator, targets, start, rule)
        automatic = self.learning_rate == "auto"
        if not automatic:
            rate = float(self.learning_rate)
        else:
            rate = state.learning_rate if isinstance(state, SGDState) else RATES[0]
        first_search = automatic and state is None
        n, b = operator.n, min(self.batch_size, operator.n)
        at_once = 1 if operator.device.type == "cpu" else CHECK_EVERY  # a GPU would wait for every look at the residual
        batches: list[Tensor] = []
        v, r = progress.v, progress.r  # iterations work on these in place
        momentum = torch.zeros_like(v)
        scale = v.new_zeros(())  # −γ/b
        batch = torch.empty(b, dtype=torch.int64, device=operator.device)

        def iteration(rows: Tensor) -> None:
            g = operator.rows_matmul(rows, v) - progress.b[rows]
            momentum.mul_(self.momentum).index_add_(0, rows, scale * g)
            v.add_(momentum)
            r.index_copy_(0, rows, g.neg_())

        whole_batch = Recorded(lambda: iteration(batch), operator)
        begin = good = progress.v.clone()
        begin_worst = good_worst = max(progress.norms())
        stall = Stall(self.stall_epochs)
        next_check = 0.0  # iteration epochs before which a failed check is not repeated
        next_snapshot = 1.0

        while True:
            norms = progress.norms()
            worst = max(norms)
            exploded = not all(map(math.isfinite, norms)) or worst > EXPLODED * good_worst
            stalled = stall.update(worst, progress.iteration_epochs)
            if exploded or stalled:
                progress.go_to(good.clone())
                if max(progress.norms()) > begin_worst:  # chosen by an estimate, and it was too hopeful
                    progress.go_to(begin.clone())
                if not automatic or rate < 1e-6:
                    progress.stop_reason = "diverged" if exploded else "stagnated"
                    break
                rate = _lower(rate, "diverged" if exploded else "stalled", progress)
                momentum.zero_()
                batches.clear()
                stall = Stall(self.stall_epochs)
                stall.since = progress.iteration_epochs
                norms = progress.norms()
                good, good_worst = progress.v.clone(), max(norms)
            if not batches:
                batches = list(torch.randperm(n, generator=generator).to(operator.device).split(b))
            cost = batches[-1].numel() / n
            if progress.finished(norms, cost, may_check=progress.iteration_epochs >= next_check):
                break
            if progress.checked and progress.iterations:  # a check failed, or a fallback
                next_check = progress.iteration_epochs + 1.0
                if max(progress.norms()) < good_worst:
                    good, good_worst = progress.v.clone(), max(progress.norms())
            elif progress.iteration_epochs >= next_snapshot and worst < good_worst:
                good, good_worst = progress.v.clone(), worst
                next_snapshot = progress.iteration_epochs + 1.0
            if progress.v is not v or progress.r is not r:  # replaced by a good iterate, or by the true residual
                progress.v, progress.r = v.copy_(progress.v), r.copy_(progress.r)
            scale.fill_(-rate / b)
            for _ in range(min(len(batches), progress.affordable(b / n, at_once))):
                rows = batches.pop()
                if rows.numel() == b:
                    batch.copy_(rows)
                    whole_batch()
                else:  # the last of an epoch
                    iteration(rows)
                progress.count(rows.numel() / n)
        if progress.stop_reason == "budget" and progress.iterations and not progress.checked:
            progress.refresh()  # the estimate is older than the iterate: only the true residual tells
            if not max(progress.norms()) <= begin_worst:
                progress.go_to(good.clone())
                if not max(progress.norms()) <= begin_worst:
                    progress.go_to(begin.clone())
                if automatic:
                    rate = _lower(rate, "diverged", progress)
        if first_search and operator.n >= self.large_n:
            rate /= 2
        return progress.result(SGDState(rate))


def _lower(rate: float, why: str, progress: Progress) -> float:
    """The next smaller rate, with a note of what happened."""
    smaller = _next_rate(rate)
    progress.notes.append(
        f"SGD {why} at learning rate {rate:g} after {progress.iteration_epochs:.1f} epochs; "
        f"went back to the last good iterate with {smaller:g}"
    )
    logger.info(progress.notes[-1])
    return smaller


def _next_rate(rate: float) -> float:
    """The next smaller rate of the grid; below the grid, half."""
    return next((r for r in RATES if r < rate * (1 - 1e-9)), rate / 2)
