"""The rule by which a solve stops, and the result that it returns."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from warmgp.checks import is_number


@dataclass(frozen=True)
class StoppingRule:
    """Says when a solve may stop.

    Attributes
    ----------
    tol : float
        Relative residual that every system of a target and the average probe must reach.
    max_epochs : float or None
        Budget for the iterations; None means until ``tol``, or until the solver makes no more progress.
    probes_tol : float or None
        Another relative residual for the average probe; None for ``tol``.
    until : float or None
        The moment, by ``time.perf_counter()``, that iterations should not last beyond; None for no such moment.
    n_targets : int
        How many of the systems, the first ones, are those of targets: the worst of them counts. The others are probes,
        of which the average counts.
    """

    tol: float = 0.01
    max_epochs: float | None = None
    probes_tol: float | None = None
    until: float | None = None
    n_targets: int = 1

    def __post_init__(self) -> None:
        for name in ("tol", "probes_tol"):
            tol = getattr(self, name)
            if not (is_number(tol) and 0 < tol < 1) and not (tol is None and name == "probes_tol"):
                # v = 0 has a relative residual of 1
                raise ValueError(f"{name} must be a positive number below 1, got {tol!r}")
        if self.max_epochs is not None and not (is_number(self.max_epochs) and self.max_epochs > 0):
            raise ValueError(f"max_epochs must be a positive number or None, got {self.max_epochs!r}")

    @property
    def probes(self) -> float:
        """The tolerance of the probes: that of the targets, unless they have their own."""
        return self.probes_tol or self.tol

    def met(self, norms: tuple[float, float]) -> bool:
        """Says whether these relative residuals (worst target, average probe) are at most the tolerances."""
        return norms[0] <= self.tol and norms[1] <= self.probes

    def in_time(self, seconds: float) -> bool:
        """Says whether what takes so many seconds would be done in time."""
        return self.until is None or time.perf_counter() + seconds <= self.until

    def allows(self, epochs: float) -> bool:
        """Says whether the iterations may use ``epochs`` in all."""
        return self.max_epochs is None or epochs <= self.max_epochs * (1 + 1e-9)


@dataclass(frozen=True)
class SolveResult:
    """Holds what a solve found, how far it got, and what it cost.

    Attributes
    ----------
    solution : Tensor, (n, q + s)
        Of q targets, mostly one, and s probes.
    residual_mean, residual_probes : float
        Relative residual of the worst of the targets' systems; average over the probes (0 where there are none).
    residual_checked : bool
        Whether those are of the true residual, computed from H, not of the one that the iteration carried.
    iterations : int
    iteration_epochs, overhead_epochs : float
    converged : bool
        True only with a checked residual.
    stop_reason : str
        "converged", "budget", "stagnated", "diverged" or "time".
    seconds : float
    state : Any
        What the next solve may reuse; pass it back as ``state``. Only the solver knows what it is.
    notes : tuple of str
        What a user should know: a lowered learning rate, say.
    factor : Tensor or None, (n, n)
        The lower Cholesky factor of H in float64, where the solver made one.
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
    factor: Tensor | None = None

    @property
    def epochs(self) -> float:
        """All entries of H applied, divided by n²."""
        return self.iteration_epochs + self.overhead_epochs

    def after(self, other: SolveResult) -> SolveResult:
        """Returns the result with what another solve has cost added."""
        return replace(
            self,
            iterations=self.iterations + other.iterations,
            iteration_epochs=self.iteration_epochs + other.iteration_epochs,
            overhead_epochs=self.overhead_epochs + other.overhead_epochs,
            seconds=self.seconds + other.seconds,
        )
