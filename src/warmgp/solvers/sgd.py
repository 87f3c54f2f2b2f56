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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count, check_learning_rate, check_positive, is_number
from warmgp.operators.base import KernelOperator
from warmgp.schema import number, record
from warmgp.solvers.base import Packed, Solver
from warmgp.solvers.graphs import Recorded
from warmgp.solvers.progress import Progress, Stall
from warmgp.solvers.result import SolveResult, StoppingRule

logger = logging.getLogger(__name__)

RATES = (100.0, 90.0, 80.0, 70.0, 60.0, 50.0, 30.0, 20.0, 10.0, 5.0)
"""The paper's grid of learning rates. Below it the rate is halved."""

CHECK_EVERY = 8
"""Iterations between two looks at the residual on a GPU."""

EXPLODED = 10.0
"""Multiple of the last good iterate's residual that means divergence; transients of the momentum stay below it."""


@dataclass(frozen=True)
class SGDState:
    """Holds the learning rate that the next solve begins with."""

    learning_rate: float


@dataclass(frozen=True)
class StochasticGradientDescent(Solver):
    """Solves by stochastic gradient descent on random rows of H. An iteration on b rows is b/n of an epoch.

    Parameters
    ----------
    batch_size : int
    learning_rate : float or "auto"
        The rate γ of the normalised system, which is divided by the batch size. A fixed rate that diverges ends the
        solve at the last good iterate with ``stop_reason="diverged"``; "auto" lowers it and goes on, with a note.
    momentum : float
    stall_epochs : float
        Without 1% of progress for that many epochs a smaller rate is tried ("auto"), or the solve gives up.
    large_n : int
        From this size on "auto" halves the rate that its first solve found: larger problems diverge more easily when θ
        moves (the paper's rule).
    """

    batch_size: int = 500
    learning_rate: float | str = "auto"
    momentum: float = 0.9
    stall_epochs: float = 100.0
    large_n: int = 50_000

    name = "sgd"

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("large_n", self.large_n)
        check_positive("stall_epochs", self.stall_epochs)
        if not (is_number(self.momentum) and 0 <= self.momentum < 1):
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")
        if self.learning_rate != "auto":
            check_learning_rate(self.learning_rate, otherwise=' or "auto"')

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
        progress.estimated = True
        progress.keep_start(max(progress.norms()))
        automatic = self.learning_rate == "auto"
        rate = self._first_rate(state)
        descent = _Descent(progress, min(self.batch_size, operator.n), self.momentum, generator)
        whole_batch = Recorded(lambda: descent.step(descent.batch), operator)
        stall = Stall(self.stall_epochs)
        next_check = 0.0  # iteration epochs before which a failed check is not repeated
        next_copy = 1.0
        while True:
            norms = progress.norms()
            worst = max(norms)
            exploded = not all(map(math.isfinite, norms)) or worst > EXPLODED * progress.best_worst
            stalled = stall.update(worst, progress.iteration_epochs)
            if exploded or stalled:
                progress.back_to_best()
                if not automatic or rate < 1e-6:
                    progress.stop_reason = "diverged" if exploded else "stagnated"
                    break
                rate = _lower(rate, "diverged" if exploded else "stalled", progress)
                descent.restart()
                stall = Stall(self.stall_epochs, since=progress.iteration_epochs)
                norms = progress.norms()
                progress.keep(max(norms))
            cost = descent.next_batch() / operator.n
            if progress.finished(norms, cost, may_check=progress.iteration_epochs >= next_check):
                break
            if progress.renewed():  # a check has failed, or the solve went back
                next_check = progress.iteration_epochs + 1.0
            elif progress.iteration_epochs >= next_copy and worst < progress.best_worst:
                progress.keep(worst)
                next_copy = progress.iteration_epochs + 1.0
            descent.run(rate, whole_batch)
        unsure = progress.stop_reason == "budget" and progress.iterations > 0 and not progress.checked
        if unsure and progress.back_if_worse_than_it_began() and automatic:
            rate = _lower(rate, "diverged", progress)
        if automatic and state is None and operator.n >= self.large_n:
            rate /= 2
        return progress.result(SGDState(rate))

    def _first_rate(self, state: SGDState | None) -> float:
        if self.learning_rate != "auto":
            return float(self.learning_rate)
        return state.learning_rate if isinstance(state, SGDState) else RATES[0]

    # -- its state ---------------------------------------------------------------------------------------------------
    def in_float64(self, state: SGDState | None) -> SGDState | None:
        return state

    def pack(self, state: SGDState | None) -> Packed:
        return {}, {} if state is None else {"learning_rate": state.learning_rate}

    def unpack(
        self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]
    ) -> SGDState | None:
        super().unpack(tensors, {}, shape)
        record({}, {"learning_rate": number(5e-324)})(content, "")
        return SGDState(content["learning_rate"]) if content else None


class _Descent:
    """Takes steps of SGD: holds the momentum, and the batches that are left of an epoch."""

    def __init__(self, progress: Progress, b: int, momentum: float, generator: torch.Generator) -> None:
        self.progress = progress
        self.operator = progress.operator
        self.b, self.share, self.generator = b, momentum, generator
        self.momentum = torch.zeros_like(progress.v)
        self.scale = progress.v.new_zeros(())  # −γ/b
        self.batches: list[Tensor] = []
        self.batch = torch.empty(b, dtype=torch.int64, device=self.operator.device)
        # a GPU would wait for every look at the residual
        self.at_once = 1 if self.operator.device.type == "cpu" else CHECK_EVERY

    def restart(self) -> None:
        """Forgets the momentum and the batches that are left of the epoch."""
        self.momentum.zero_()
        self.batches.clear()

    def next_batch(self) -> int:
        """Returns the rows of the next batch; draws a new permutation where an epoch is over."""
        if not self.batches:
            order = torch.randperm(self.operator.n, generator=self.generator)
            self.batches = list(order.to(self.operator.device).split(self.b))
        return self.batches[-1].numel()

    def step(self, rows: Tensor) -> None:
        """Takes one step on a batch of rows, (b,)."""
        progress = self.progress
        part = progress.part
        g = part.rows_matmul(rows, progress.v) - part.take(progress.b, rows)
        part.add(self.momentum.mul_(self.share), rows, self.scale * g)
        progress.v.add_(self.momentum)
        part.put(progress.r, rows, g.neg_())

    def run(self, rate: float, whole_batch: Recorded) -> None:
        """Takes as many steps as go between two looks at the residual; ``whole_batch`` is one on ``batch``."""
        n = self.operator.n
        self.scale.fill_(-rate / self.b)
        for _ in range(min(len(self.batches), self.progress.affordable(self.b / n, self.at_once))):
            rows = self.batches.pop()
            if rows.numel() == self.b:
                self.batch.copy_(rows)
                whole_batch()
            else:  # the last of an epoch
                self.step(rows)
            self.progress.count(rows.numel() / n)


def _lower(rate: float, why: str, progress: Progress) -> float:
    """Returns the next smaller rate, and notes what happened."""
    smaller = _next_rate(rate)
    progress.notes.append(
        f"SGD {why} at learning rate {rate:g} after {progress.iteration_epochs:.1f} epochs; "
        f"went back to the last good iterate with {smaller:g}"
    )
    logger.info(progress.notes[-1])
    return smaller


def _next_rate(rate: float) -> float:
    """Returns the next smaller rate of the grid; below the grid, half the rate."""
    return next((r for r in RATES if r < rate * (1 - 1e-9)), rate / 2)
