"""The books of a running solve: normalised systems, the residual, epochs, the best iterate, and whether to stop.

A batch of systems is one matrix b = [y_1 … y_q, b_1 … b_s]: its first columns, mostly one, are those of targets (the
mean systems), the others are probes; the rule says how many (``StoppingRule.n_targets``). Each system is scaled to unit
norm, so a residual is relative to its target. Converged means that the residual of the worst mean system *and* the
average residual of the probes are at most ``tol``, in a residual computed afresh from H, not only in the one that the
iteration carries along.

Epochs count entries of H applied in products, divided by n². Iterations and overhead (the residual of a warm start,
checks of the true residual) are counted apart; ``max_epochs`` limits the iterations.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import index_size, ranges
from warmgp.operators.part import Part
from warmgp.solvers.result import SolveResult, StoppingRule
from warmgp.solvers.sums import ROWS_AT_ONCE, add_up, rounded


@dataclass(frozen=True)
class Patience:
    """Says when rounding, not iterations, is held to limit the true residual: after ``strikes`` checks against H.

    A check is a strike where the true residual is above ``gain`` times the best one before it, and the residual that
    was carried along below ``drift`` times the true one.
    """

    strikes: int = 5
    gain: float = 0.99
    drift: float = math.inf


@dataclass
class Progress:
    """Keeps the books of one solve.

    ``v`` and ``r`` belong to the normalised systems H v = b/|b|. Both are written in place, by the solver and by the
    books: a tensor that a solver holds stays the current one. The solver calls :meth:`finished` with its current norms
    before every iteration, and :meth:`renewed` to learn whether the books have written over v or r since it last asked.
    """

    operator: KernelOperator
    part: Part  # the rows of this process, which b, v and r have
    rule: StoppingRule
    b: Tensor
    v: Tensor
    r: Tensor
    scale: Tensor
    estimated: bool = False  # whether r lags behind v between checks, so that even a kept iterate's residual is a guess
    checked: bool = True  # whether r is the true residual of v
    patience: Patience = Patience()
    iterations: int = 0
    iteration_epochs: float = 0.0
    overhead_epochs: float = 0.0
    stop_reason: str = ""
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    best_worst: float = math.inf  # the larger norm of the residual at the best iterate
    _best: Tensor | None = None
    _start: Tensor | None = None
    _start_worst: float = math.inf
    _best_check: float = math.inf
    _strikes: int = 0
    _renewed: bool = False
    _asked: float = field(default_factory=time.perf_counter)  # when it was last asked whether to stop

    @classmethod
    def begin(cls, operator: KernelOperator, targets: Tensor, start: Tensor | None, rule: StoppingRule) -> Progress:
        """Checks the arguments, normalises, and computes the first residual: free from zero, one epoch otherwise.

        A system whose start v is worse than zero starts at zero. Where the solve goes on until the tolerance, the
        residual decides that; on a budget, the distance to the solution u: |v − u|²_H − |u|²_H = −vᵀ(b + r). Solvers
        lower that distance, while the residual may rise far above |b| on the way to u: by the residual, progress would
        not accumulate from solve to solve.
        """
        part = operator.part
        _check(part, targets, start)
        b, scale = normalise(part, targets)
        progress = cls(operator, part, rule, b, torch.zeros_like(b), b.clone(), scale)
        if start is not None:
            if operator.sums_count:
                for rows in ranges(len(b), ROWS_AT_ONCE):
                    progress.v[rows] = rounded(start[rows].to(b.device, torch.float64) / scale.double(), b.dtype)
                progress.refresh()
            else:
                progress.go_to(start.to(b) / scale)
            if rule.max_epochs is None:
                worse = ~(part.norms(progress.r) <= 1.0)  # or not a number
            else:
                worse = ~(part.sum((progress.v * (b + progress.r)).sum(0)) >= 0)
            progress.v.masked_fill_(worse, 0.0)
            progress.r.copy_(torch.where(worse, b, progress.r))
        progress._renewed = False
        return progress

    # -- where it is -----------------------------------------------------------------------------------------------
    def norms(self) -> tuple[float, float]:
        """Returns (mean residual, average probe residual) of r."""
        return summarise(self.part.norms(self.r), self.rule.n_targets)

    def live_in(self, v: Tensor, r: Tensor) -> None:
        """Moves v and r into other memory, where they are written in place from now on."""
        self.v, self.r = v.copy_(self.v), r.copy_(self.r)

    def go_to(self, v: Tensor) -> None:
        """Goes on from v, with its true residual."""
        self.v.copy_(v)
        self.refresh()

    def refresh(self) -> None:
        """Writes the true residual of v into r, for one epoch."""
        self.r.copy_(self.part.residual(self.b, self.v))
        self.overhead_epochs += 1.0
        self.checked = self._renewed = True

    def renewed(self) -> bool:
        """Says whether v or r were written over since the last call: what a solver derived from them is then stale."""
        renewed, self._renewed = self._renewed, False
        return renewed

    # -- the way back ----------------------------------------------------------------------------------------------
    def keep(self, worst: float) -> None:
        """Keeps a copy of v as the best iterate, with the larger norm of its residual."""
        if self._best is None or self._best is self._start:
            self._best = self.v.clone()
        else:
            self._best.copy_(self.v)
        self.best_worst = worst

    def keep_start(self, worst: float) -> None:
        """Keeps v as the best iterate and as the start, above whose residual :meth:`back_to_best` never ends."""
        self.keep(worst)
        self._start, self._start_worst = self._best, worst

    def exploded(self, norms: tuple[float, float], times: float = 1e3) -> bool:
        """Says whether the residual is lost: not finite, or so many times the best. Keeps the best iterate, too."""
        worst = max(norms)
        if not all(map(math.isfinite, norms)):
            return True
        if worst < 0.5 * self.best_worst:  # a copy at every halving, not at every iteration
            self.keep(worst)
        return worst > times * self.best_worst

    def back_to_best(self) -> None:
        """Goes on from the best iterate with its true residual; from the start where that turns out to be better."""
        self.go_to(self.v if self._best is None else self._best)
        if self._start is not None and not max(self.norms()) <= self._start_worst:
            self.go_to(self._start)

    def give_up(self, reason: str) -> None:
        """Ends the solve with the true residual, at the best iterate if the present one is worse."""
        self.stop_reason = reason
        self.refresh()
        if self._best is not None and not max(self.norms()) <= self.best_worst:
            self.go_to(self._best)

    def back_if_worse_than_it_began(self) -> bool:
        """Checks the true residual when a budget ends; goes back, and returns True, where it is above the start's."""
        self.refresh()
        if max(self.norms()) <= self._start_worst:
            return False
        self.back_to_best()
        return True

    # -- whether to stop -------------------------------------------------------------------------------------------
    def finished(self, norms: tuple[float, float], next_epochs: float, *, may_check: bool = True) -> bool:
        """Says whether to stop before an iteration that costs ``next_epochs``; sets ``stop_reason``.

        A residual that says converged is checked against H first (``may_check=False`` puts that off). When the check
        fails the solver goes on from the true residual, as long as its ``patience`` lasts: then rounding, not
        iterations, is the limit.
        """
        if not all(map(math.isfinite, norms)):
            self.stop_reason = "diverged"
            return True
        if self.rule.met(norms) and (self.checked or may_check):
            if self.checked:
                self.stop_reason = "converged"
                return True
            carried = max(norms)
            self.refresh()
            norms = self.norms()
            if self.rule.met(norms):
                self.stop_reason = "converged"
                return True
            worst = max(norms)
            if not self.estimated or worst < self.best_worst:
                self.keep(worst)  # the carried residual was wrong, and so is what was kept by it
            if self.rounding_rules(carried):
                self.stop_reason = "stagnated"
                return True
        if not self.rule.allows(self.iteration_epochs + next_epochs):
            self.stop_reason = "budget"
            return True
        took, self._asked = time.perf_counter() - self._asked, time.perf_counter()
        if self.iterations and self.rule.until is not None and not self.part.agreed(self.rule.in_time(took)):
            self.stop_reason = "time"
            return True
        return False

    def rounding_rules(self, carried: float) -> bool:
        """Says, after a check, whether the ``patience`` is at its end; ``carried`` is the residual before the check."""
        worst = max(self.norms())
        self._strikes += worst > self.patience.gain * self._best_check and carried < self.patience.drift * worst
        self._best_check = min(worst, self._best_check)
        return self._strikes >= self.patience.strikes

    def affordable(self, next_epochs: float, most: int) -> int:
        """Returns how many iterations of that cost the budget still allows, at least 1 and at most ``most``."""
        if self.rule.max_epochs is None:
            return most
        left = (self.rule.max_epochs * (1 + 1e-9) - self.iteration_epochs) / next_epochs
        return max(1, int(min(most, left)))

    def count(self, epochs: float, iterations: int = 1) -> None:
        """Books iterations that cost ``epochs`` together."""
        self.iterations += iterations
        self.iteration_epochs += epochs
        self.checked = False

    def result(self, state: Any = None, factor: Tensor | None = None) -> SolveResult:
        """Closes the books: returns the solution in the units of the targets, and what it cost."""
        mean, probes = self.norms()
        return SolveResult(
            solution=add_up(self.operator, self.v.clone(), self.scale),
            residual_mean=mean,
            residual_probes=probes,
            residual_checked=self.checked,
            iterations=self.iterations,
            iteration_epochs=self.iteration_epochs,
            overhead_epochs=self.overhead_epochs,
            converged=self.stop_reason == "converged",
            stop_reason=self.stop_reason,
            seconds=time.perf_counter() - self.started,
            state=state,
            notes=tuple(self.notes),
            factor=factor,
        )


def _check(part: Part, targets: Tensor, start: Tensor | None) -> None:
    """Raises unless targets and start are finite and fit the rows of this process."""
    operator, rows = part.operator, index_size(part.here)
    if targets.ndim != 2 or targets.shape[0] != rows or targets.shape[1] == 0:
        of = "" if part.alone else f" for the rows of process {part.rank}"
        raise ValueError(f"targets must have shape ({rows}, 1 + s){of}, got {tuple(targets.shape)}")
    if targets.dtype != operator.dtype or targets.device != operator.device:
        raise ValueError(
            f"targets must be {operator.dtype} on {operator.device} like the operator, "
            f"got {targets.dtype} on {targets.device}"
        )
    if not part.all_finite(targets):
        raise ValueError("targets must be finite, got NaN or infinity")
    if start is not None:
        if start.shape != targets.shape:
            raise ValueError(f"start must have the targets' shape {tuple(targets.shape)}, got {tuple(start.shape)}")
        if not part.all_finite(start):
            raise ValueError("start must be finite, got NaN or infinity")


def normalise(part: Part, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns targets of unit norm, (n, 1 + s), and their norms, (1 + s,); a zero target stays zero with norm 1.

    They are scaled by the largest entry first, so that no norm over- or underflows.
    """
    largest = part.largest(targets)
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    b = targets / largest
    norm = part.norms(b)
    norm = torch.where(norm > 0, norm, torch.ones_like(norm))
    return (b / norm).contiguous(), largest * norm


def summarise(norms: Tensor, n_targets: int = 1) -> tuple[float, float]:
    """Returns the largest norm of the first q systems, of (q + s,), and the mean of the others: one transfer from the
    device."""
    values = norms.tolist()
    first, others = values[:n_targets], values[n_targets:]
    worst = first[0] if len(first) == 1 else max(first, key=lambda norm: math.inf if math.isnan(norm) else norm)
    return worst, (sum(others) / len(others) if others else 0.0)


class Stall:
    """Notices when the best residual has not fallen by 1% within ``patience`` epochs."""

    def __init__(self, patience: float, since: float = 0.0) -> None:
        self.patience = patience
        self.best = math.inf
        self.since = since

    def update(self, worst: float, epochs: float) -> bool:
        """Takes the larger residual after ``epochs``; returns whether the solve has stalled."""
        if worst < 0.99 * self.best:
            self.best, self.since = worst, epochs
        return epochs - self.since > self.patience
