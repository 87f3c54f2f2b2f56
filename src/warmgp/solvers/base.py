"""What every solver of H v = b shares: the stopping rule, the result, normalised systems and honest convergence.

A batch of systems is one matrix b = [y, b_1 … b_s]: its first column is the mean system, the others are probes.
Each system is scaled to unit norm, so a residual is relative to its target. Converged means that the residual of the
mean system *and* the average residual of the probes are at most ``tol`` — in a residual computed afresh from H, not
only in the one that the iteration carries along.

Epochs count entries of H applied in products, divided by n². Iterations and overhead (the residual of a warm start,
checks of the true residual) are counted apart; ``max_epochs`` limits the iterations.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count as check_count
from warmgp.checks import is_number
from warmgp.operators.base import KernelOperator


@dataclass(frozen=True)
class StoppingRule:
    """When a solve may stop.

    Attributes
    ----------
    tol : float
        Relative residual that both the mean system and the average probe must reach.
    max_epochs : float or None
        Budget for the iterations; None means until ``tol``, or until the solver makes no more progress.
    """

    tol: float = 0.01
    max_epochs: float | None = None

    def __post_init__(self) -> None:
        if not (is_number(self.tol) and 0 < self.tol < 1):  # zero itself has a relative residual of 1
            raise ValueError(f"tol must be a positive number below 1, got {self.tol!r}")
        if self.max_epochs is not None and not (is_number(self.max_epochs) and self.max_epochs > 0):
            raise ValueError(f"max_epochs must be a positive number or None, got {self.max_epochs!r}")

    def allows(self, epochs: float) -> bool:
        """Whether the iterations may use that many epochs in all."""
        return self.max_epochs is None or epochs <= self.max_epochs * (1 + 1e-9)


@dataclass(frozen=True)
class SolveResult:
    """What a solve did, and how far it got.

    Attributes
    ----------
    solution : Tensor, (n, 1 + s)
    residual_mean, residual_probes : float
        Relative residual of the first system; average over the other systems (0 where there are none).
    residual_checked : bool
        Whether those are the true residual, computed from H, or the one that the iteration carried.
    iterations : int
    iteration_epochs, overhead_epochs : float
    converged : bool
        True only with a checked residual.
    stop_reason : str
        "converged", "budget", "stagnated" or "diverged".
    seconds : float
    state : Any
        What the next solve may reuse; pass it back as ``state``.
    notes : tuple of str
        What a user should know: a lowered learning rate, say.
    """

    solution: Tensor
    residual_mean: float
    residual_probes: float
    residual_checked: bool
    iterations: int
    iteration_epochs: float
    overhead_epochs: float
    converged: bool
    stop_reason: str
    seconds: float
    state: Any = None
    notes: tuple[str, ...] = ()

    @property
    def epochs(self) -> float:
        """All entries of H applied, divided by n²."""
        return self.iteration_epochs + self.overhead_epochs


@dataclass
class Progress:
    """The books of one running solve: normalised systems, residual, epochs, and whether to stop.

    ``v`` and ``r`` belong to the normalised systems H v = b/|b|. A solver changes them in place or replaces them, and
    calls :meth:`finished` with its current norms before every iteration.
    """

    operator: KernelOperator
    rule: StoppingRule
    b: Tensor
    v: Tensor
    r: Tensor
    scale: Tensor
    checked: bool = True  # whether r is the true residual of v
    iterations: int = 0
    iteration_epochs: float = 0.0
    overhead_epochs: float = 0.0
    stop_reason: str = ""
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    _best: Tensor | None = None  # a copy of the best v so far
    _best_worst: float = math.inf
    _best_check: float = math.inf
    _strikes: int = 0

    @classmethod
    def begin(cls, operator: KernelOperator, targets: Tensor, start: Tensor | None, rule: StoppingRule) -> Progress:
        """Check the arguments, normalise, and compute the first residual: free from zero, one epoch otherwise.

        A system whose start v is worse than zero starts at zero. By its residual, where the solve goes on until the
        tolerance. On a budget, by its distance: |v − u|²_H − |u|²_H = −vᵀ(b + r). Solvers lower that one, while the
        residual may rise far above |b| on the way to u, and progress would not accumulate from solve to solve.
        """
        if targets.ndim != 2 or targets.shape[0] != operator.n or targets.shape[1] == 0:
            raise ValueError(f"targets must have shape ({operator.n}, 1 + s), got {tuple(targets.shape)}")
        if targets.dtype != operator.dtype or targets.device != operator.device:
            raise ValueError(
                f"targets must be {operator.dtype} on {operator.device} like the operator, "
                f"got {targets.dtype} on {targets.device}"
            )
        if not bool(torch.isfinite(targets).all()):
            raise ValueError("targets must be finite, got NaN or infinity")
        b, scale = normalise(targets)
        progress = cls(operator, rule, b, torch.zeros_like(b), b.clone(), scale)
        if start is not None:
            if start.shape != targets.shape:
                raise ValueError(f"start must have the targets' shape {tuple(targets.shape)}, got {tuple(start.shape)}")
            if not bool(torch.isfinite(start).all()):
                raise ValueError("start must be finite, got NaN or infinity")
            progress.go_to(start.to(b) / scale)
            if rule.max_epochs is None:
                worse = ~(torch.linalg.vector_norm(progress.r, dim=0) <= 1.0)  # or not a number
            else:
                worse = ~((progress.v * (b + progress.r)).sum(0) >= 0)
            progress.v.masked_fill_(worse, 0.0)
            progress.r = torch.where(worse, b, progress.r)
        return progress

    def norms(self) -> tuple[float, float]:
        """(mean residual, average probe residual) of r."""
        return summarise(torch.linalg.vector_norm(self.r, dim=0))

    def go_to(self, v: Tensor) -> None:
        """Continue from v, with its true residual."""
        self.v = v
        self.refresh()

    def refresh(self) -> None:
        """Replace r by the true residual of v, for one epoch."""
        self.r = self.b - self.operator.matmul(self.v)
        self.overhead_epochs += 1.0
        self.checked = True

    def exploded(self, norms: tuple[float, float]) -> bool:
        """Whether the residual is lost: not finite, or a thousand times the best. Remembers the best v on the way."""
        worst = max(norms)
        if not all(map(math.isfinite, norms)):
            return True
        if worst < 0.5 * self._best_worst:  # a copy at every halving, not at every iteration
            self._best, self._best_worst = self.v.clone(), worst
        return worst > 1e3 * self._best_worst

    def back_to_best(self) -> None:
        """Go on from the best v seen, with its true residual."""
        self.go_to(self.v if self._best is None else self._best.clone())

    def give_up(self, reason: str) -> None:
        """End with the true residual, at the best v seen if the present one is worse."""
        self.stop_reason = reason
        self.refresh()
        worst = max(self.norms())
        if self._best is not None and not worst <= self._best_worst:
            self.go_to(self._best)

    def finished(self, norms: tuple[float, float], next_epochs: float, *, may_check: bool = True) -> bool:
        """Whether to stop before an iteration that costs ``next_epochs``; sets ``stop_reason``.

        A residual that says converged is checked against H first (``may_check=False`` puts that off). When the check
        fails the solver goes on from the true residual; after five checks that were no better than the best before
        them it gives up, because then rounding, not iterations, is the limit.
        """
        worst = max(norms)
        if not all(map(math.isfinite, norms)):
            self.stop_reason = "diverged"
            return True
        if worst <= self.rule.tol and (self.checked or may_check):
            if self.checked:
                self.stop_reason = "converged"
                return True
            self.refresh()
            worst = max(self.norms())
            if worst <= self.rule.tol:
                self.stop_reason = "converged"
                return True
            self._best, self._best_worst = self.v.clone(), worst  # what was carried along was wrong
            if worst > 0.99 * self._best_check:
                self._strikes += 1
            self._best_check = min(worst, self._best_check)
            if self._strikes >= 5:
                self.stop_reason = "stagnated"
                return True
        if not self.rule.allows(self.iteration_epochs + next_epochs):
            self.stop_reason = "budget"
            return True
        return False

    def affordable(self, next_epochs: float, most: int) -> int:
        """How many iterations of that cost the budget still allows, at least 1 and at most ``most``."""
        if self.rule.max_epochs is None:
            return most
        left = (self.rule.max_epochs * (1 + 1e-9) - self.iteration_epochs) / next_epochs
        return max(1, int(min(most, left)))

    def count(self, epochs: float, iterations: int = 1) -> None:
        """Book iterations that cost ``epochs`` together."""
        self.iterations += iterations
        self.iteration_epochs += epochs
        self.checked = False

    def result(self, state: Any = None) -> SolveResult:
        mean, probes = self.norms()
        return SolveResult(
            solution=self.v * self.scale,
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
        )


def normalise(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Targets of unit norm and their norms (1 + s,); a zero target stays zero with norm 1.

    Scaled by the largest entry first, so that no norm over- or underflows.
    """
    largest = targets.abs().amax(0)
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    b = targets / largest
    norm = torch.linalg.vector_norm(b, dim=0)
    norm = torch.where(norm > 0, norm, torch.ones_like(norm))
    return b / norm, largest * norm


def summarise(norms: Tensor) -> tuple[float, float]:
    """(first, mean of the others) of per-system norms (1 + s,), with one transfer from the device."""
    values = norms.tolist()
    return values[0], (sum(values[1:]) / (len(values) - 1) if len(values) > 1 else 0.0)


def factor_or_raise(matrix: Tensor, what: str) -> Tensor:
    """Lower Cholesky factor in float64, with the remedy in the error where there is none."""
    factor, info = torch.linalg.cholesky_ex(matrix.double())
    if int(info) != 0:
        precise = "use dtype=float64, " if matrix.dtype == torch.float32 else ""
        raise torch.linalg.LinAlgError(
            f"{what} is not positive definite (Cholesky failed at row {int(info)} of {matrix.shape[0]}): "
            f"{precise}raise noise_floor, or remove near-duplicate rows"
        )
    return factor


class Stall:
    """Notices that the best residual has not fallen by 1% within a number of epochs."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.best = math.inf
        self.since = 0.0

    def update(self, worst: float, epochs: float) -> bool:
        if worst < 0.99 * self.best:
            self.best, self.since = worst, epochs
        return epochs - self.since > self.patience


class Solver(ABC):
    """A method for H v = b. Implementations are frozen dataclasses of their options."""

    name: str

    def refines_within(self, n: int) -> float:
        """Epochs in which it should get from a usual tolerance to one far below; 0 where that costs much.

        It costs little where a solver comes to a whole factor of H if iterations take long, or few are enough.
        """
        return 0.0

    @abstractmethod
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
        """Solve H v = b for all columns of ``targets`` (n, 1 + s), from ``start`` or zero."""
