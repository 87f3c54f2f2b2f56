"""The plan: what was decided before training, and how it reads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from warmgp.gradient import GradientEstimator
from warmgp.solvers import Solver, StoppingRule
from warmgp.training.exact_climb import ExactClimb
from warmgp.training.local_start import LocalStart
from warmgp.training.near_start import NearStart

INITS = ("ones", "climb", "sample", "near", "subset", "given")
"""The ways in which a planned training may start."""


@dataclass(frozen=True)
class Plan:
    """Holds everything that "auto" decided, and why. ``print(plan)`` has a line with time, memory and error bars first,
    then the reasons, a line each, and what the solver is told last.

    A plan is made once and stays as it is: what came of it is in the model's ``report_``. A model that is read on
    another device has the plan as it comes to there (``plan_read_on``).

    Attributes
    ----------
    device, dtype : torch.device, torch.dtype
        Where training runs, and in which precision it starts.
    operator : str
        How H is multiplied with: "dense" (stored), "chunked" (recomputed in tiles) or "fused" (on a GPU, recomputed
        inside the products).
    solver, gradient, rule : Solver, GradientEstimator, StoppingRule
        What every step solves with, what it estimates the gradient by, and when a solve may stop.
    n_steps, learning_rate : int, float
        The most Adam steps that are taken, and their size.
    init : str
        Where training starts: "ones", "climb", "sample", "near", "subset" or "given".
    neighbourhood_size : int
        The points of each neighbourhood that training starts on, where ``init`` is "subset".
    n_features : int
        The random features of the prior functions.
    memory_budget : int
        The bytes that training may use.
    why : tuple of str
        The reasons for what was decided, a sentence each.
    promote : bool
        Whether float32 is watched and left for float64 when it is not enough.
    relative_steps, settle : bool
        See :class:`warmgp.training.state.TrainingOptions`.
    exact_posterior : bool
        Whether the last solve is by a factor of H, from which variances are then exact.
    factor_last : bool
        Whether a factor of H takes the place of iterations in float64 in the last solve, should these be needed.
    sample_size : int
        The points of the sample that training starts on, where ``init`` is "sample".
    start_solver : Solver or None
        What that sample is solved with.
    local : LocalStart or None
        How groups of near points correct what the sample found, at the density of all points.
    near : NearStart or None
        How the near-neighbour likelihood of a map is climbed, where ``init`` is "near".
    climb : ExactClimb or None
        How the likelihood itself is climbed, where ``init`` is "climb".
    kernel : str
        The kernel that was chosen by the data; "" where it was given, or is still to be chosen.
    first_epochs, last_epochs : float or None
        The budgets of the first and the last solve on all points in epochs, where they have others than the steps.
    signal_ratio : float
        The most times that the signal may be the noise (:mod:`warmgp.planning.starts`).
    threads : int
        The threads of the CPU that training uses, unless torch has fewer by then; 0 for as many as torch has.
    rows : int
        The rows that are trained on, drawn at random, where a time limit allows no more; 0 for all of them.
    trend_terms : int
        The terms of the trend, p; 0 for none.
    estimated_seconds, estimated_bytes : float, int
        What the whole training should take, on this machine.
    """

    device: torch.device
    dtype: torch.dtype
    operator: str
    solver: Solver
    gradient: GradientEstimator
    rule: StoppingRule
    n_steps: int
    learning_rate: float
    init: str
    neighbourhood_size: int
    n_features: int
    memory_budget: int
    why: tuple[str, ...] = ()
    promote: bool = False
    relative_steps: bool = False
    settle: bool = False
    exact_posterior: bool = False
    factor_last: bool = False
    sample_size: int = 0
    start_solver: Solver | None = None
    local: LocalStart | None = None
    near: NearStart | None = None
    climb: ExactClimb | None = None
    kernel: str = ""
    first_epochs: float | None = None
    last_epochs: float | None = None
    signal_ratio: float = math.inf
    threads: int = 0
    rows: int = 0
    trend_terms: int = 0
    estimated_seconds: float = 0.0
    estimated_bytes: int = 0

    @property
    def columns(self) -> int:
        """The systems of a solve: one for each target and one for each probe, q + s."""
        return self.rule.n_targets + self.gradient.n_probes

    def __str__(self) -> str:
        return "\n".join((self.headline, *(f"- {reason}" for reason in self.why), self.details))

    @property
    def headline(self) -> str:
        """What most people want to know, in one sentence: the kind of training, its time and memory, and error bars."""
        kind = "Exact training" if self.solver.name == "cholesky" else "Iterative training"
        if self.init == "given" and not self.n_steps:
            kind = "Hyperparameters as given, no training"
        some = f" on {self.rows:,} rows" if self.rows else ""
        exact = self.exact_posterior or self.gradient.needs_factor
        bars = "exact error bars" if exact else f"error bars from {self.gradient.n_probes} samples"
        return f"{kind}{some}, {in_words(self.estimated_seconds)}, {memory_in_words(self.estimated_bytes)}, {bars}."

    @property
    def details(self) -> str:
        """What the solver is told, for those who know it: steps, gradient, solver, operator and precision."""
        budget = "" if self.rule.max_epochs is None else f", at most {self.rule.max_epochs:g} epochs"
        solving = f"solver {self.solver.name} to tolerance {self.rule.tol:g}{budget}"
        dtype = str(self.dtype).removeprefix("torch.") + (" (float64 if that is not enough)" if self.promote else "")
        return (
            f"Details: {self._steps()}; {self.gradient.name} gradient; "
            f"{'solver cholesky' if self.solver.name == 'cholesky' else solving}; "
            f"{self.operator} operator in {dtype} on {self.device}."
        )

    def _steps(self) -> str:
        """Returns how many steps are taken, and from where."""
        start = {
            "ones": "hyperparameters of 1",
            "climb": f"climbs of the likelihood of {self.climb.points if self.climb else 0:,} points",
            "given": "given hyperparameters",
            "sample": f"a sample of {self.sample_size:,} points" + (" and groups of near ones" if self.local else ""),
            "near": "the likelihood of points given near ones",
            "subset": f"neighbourhoods of {self.neighbourhood_size:,} points",
        }[self.init]
        if not self.n_steps:
            return f"hyperparameters from {start}" if self.init != "given" else start
        return f"{'at most ' if self.settle else ''}{self.n_steps} Adam steps of {self.learning_rate:g} from {start}"


def duration(seconds: float) -> str:
    """Returns seconds as text, in the unit that people would say them in."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (float("inf"), "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.2g} {unit}" if seconds / size < 10 else f"{seconds / size:.0f} {unit}"
    raise AssertionError(seconds)


def in_words(seconds: float) -> str:
    """Returns an estimate of seconds as people say it: "about 1 minute"."""
    if seconds < 0.95:
        return "less than a second"
    for limit, unit, size in ((50, "second", 1), (3000, "minute", 60), (150_000, "hour", 3600)):
        if seconds < limit:
            return f"about {_count(seconds / size, unit)}"
    return f"about {_count(seconds / 86_400, 'day')}"


def _count(number: float, unit: str) -> str:
    """Returns a rounded number with its unit: "1 minute", "1.5 hours", "40 seconds"."""
    to = 0.5 if unit != "second" and number < 4 else 1 if number < 20 else 5
    rounded = max(to, to * round(number / to))
    return f"{rounded:g} {unit}" + ("" if rounded == 1 else "s")


def memory_in_words(bytes_: float) -> str:
    """Returns an estimate of bytes in GiB, to a tenth."""
    gib = bytes_ / 2**30
    if gib < 0.05:
        return "under 0.1 GiB"
    return f"{gib:.1f} GiB" if gib < 10 else f"{gib:,.0f} GiB"
