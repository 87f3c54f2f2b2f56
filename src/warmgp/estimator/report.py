"""The report of a training: how it started, what it took, where float64 took over, and where variances come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from warmgp.planning.plan import Plan, duration
from warmgp.training.initialisation import N_CENTROIDS
from warmgp.training.loop import TrainingResult
from warmgp.training.precision import FROM_HERE_ON, LAST_SOLVE
from warmgp.training.state import StepRecord


@dataclass(frozen=True)
class Report:
    """Holds what happened in a training. ``print(report)`` reads as a paragraph.

    Attributes
    ----------
    seconds : float or None
        The time of the whole training: its start, its steps and the last solve. None where a file does not say.
    start : str
        How training started, "on a sample of 2,000 points" say; "" where it started at given values or at ones.
    start_seconds : float
        The time of that start; ``seconds`` include it.
    steps : int
        The Adam steps that were taken.
    float64_from : int or None
        The step, counted from 0, from which on float64 was used where training began in float32; ``steps`` where only
        the last solve was in float64, None where nothing was.
    float64_why : str
        The reason why float32 was not enough.
    exact_variances : bool
        Whether variances come from a factor of H; otherwise they come from posterior samples.
    samples : int
        The posterior samples of the model.
    device : str
        The device that the model was trained on.
    rows : int
        The rows that a time limit left to train on, drawn at random; 0 where all were used.
    remarks : tuple of str
        What is to be known about the fit: what was warned of, and what was asked for by name but is worth knowing.
    loaded_on : str
        The device that it was loaded on, if that is another; "" otherwise.
    """

    seconds: float | None = None
    start: str = ""
    start_seconds: float = 0.0
    steps: int = 0
    float64_from: int | None = None
    float64_why: str = ""
    exact_variances: bool = False
    samples: int = 0
    device: str = ""
    rows: int = 0
    loaded_on: str = ""
    remarks: tuple[str, ...] = ()

    def read_on(self, device: torch.device) -> Report:
        """Returns the report as it reads where the model was loaded on that device."""
        here, there = (f"{name}:0" if name == "cuda" else name for name in (str(device), self.device))
        return replace(self, loaded_on=str(device) if self.device and here != there else "")

    def __str__(self) -> str:
        parts = []
        if self.rows:
            parts.append(f"Trained on {self.rows:,} rows, drawn at random, as the time limit allows.")
        if self.start:
            parts.append(f"Started {self.start} in {self.start_seconds:.3g} s.")
        if self.seconds is not None:
            parts.append(f"Took {duration(self.seconds)} in all.")
        if self.float64_from is not None:
            when = "for the last solve" if self.float64_from >= self.steps else f"at step {self.float64_from}"
            why = f": {self.float64_why}" if self.float64_why else ""
            parts.append(f"Float64 took over {when}{why}.")
        if self.exact_variances:
            parts.append("Variances are exact, from a factor of H.")
        else:
            parts.append(f"Variances come from {self.samples} posterior samples.")
        if self.loaded_on:
            parts.append(f"Trained on {self.device}, loaded on {self.loaded_on}.")
        parts.extend(f"{remark[:1].upper()}{remark[1:].rstrip('.')}." for remark in self.remarks)
        return " ".join(parts)


def report_of(plan: Plan, result: TrainingResult) -> Report:
    """Returns the report of a training by this plan."""
    state, posterior = result.state, result.posterior
    taken = sum(record.step_seconds for record in state.history)
    step, why = float64_takeover(state.history)
    if step is None and plan.dtype == torch.float32 and posterior.x.dtype == torch.float64:
        step, why = len(state.history), "a factor of H is made in float64" if posterior.exact else ""
    start = start_of(plan, len(posterior.x))
    return Report(
        seconds=state.elapsed + result.final.seconds,
        start=start,
        start_seconds=max(0.0, state.elapsed - taken) if start else 0.0,
        steps=len(state.history),
        float64_from=step,
        float64_why=why,
        exact_variances=posterior.exact,
        samples=posterior.n_samples,
        device=str(plan.device),
        rows=plan.rows,
    )


def start_of(plan: Plan, n: int) -> str:
    """Says how a training of n points started by this plan; "" unless that was on part of the data."""
    if plan.init == "sample":
        return f"on a sample of {plan.sample_size:,} points" + (" and groups of near ones" if plan.local else "")
    if plan.climb is not None:
        of = "of all points" if plan.climb.points >= n else f"of {plan.climb.points:,} points"
        return f"by climbs of the likelihood {of}"
    if plan.near is not None:
        return f"by points given near ones, {min(n, plan.near.terms):,} of them,"
    if plan.init == "subset":
        count = min(N_CENTROIDS, n)
        return f"from {count} neighbourhoods of {plan.neighbourhood_size:,} points, trained exactly"
    return ""


def float64_takeover(history: Sequence[StepRecord]) -> tuple[int | None, str]:
    """Returns (the step from which on float64 was used, why) by the notes of the steps, (None, "") where it was not."""
    for record in history:
        for note in record.notes:
            if note.startswith(FROM_HERE_ON):
                return record.step, note.removeprefix(FROM_HERE_ON)
            if note.startswith(LAST_SOLVE):
                return len(history), note.removeprefix(LAST_SOLVE)
    return None, ""
