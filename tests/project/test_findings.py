"""What the results page concludes, from records made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.budget_findings import accumulation, need_of_residuals
from experiments.cells import Run, describe, exact
from experiments.findings import pathwise_finding, warm_finding
from experiments.summary import score, summaries
from experiments.trajectories import apart, truths


def record(run: Run, *, llh: float = 1.0, sampled: float | None = None, cut: bool = False, **history: Any) -> dict:
    steps = len(next(iter(history.values()))) if history else 4
    epochs = history.setdefault("epochs", [10.0] * steps)
    test = {"test": {"llh": llh if sampled is None else sampled}, "test_exact": {"llh": llh}}
    return {
        "key": run.key, "run": describe(run), "outcome": "cut" if cut else "finished", "converged": True,
        "steps": steps, "epochs": sum(epochs), "seconds": 1.0, "history": history, "machine": {"device": "here"},
        **({} if cut else test),
    }  # fmt: skip


def lengths(*ends: float, steps: int = 4) -> dict[str, Any]:
    """Noise and signal that move alike, and length scales that go from 1 to these."""
    over = np.linspace(0, 1, steps)[:, None]
    return {
        "noise_scale": np.linspace(1, 0.5, steps).tolist(),
        "signal_scale": np.linspace(1, 2, steps).tolist(),
        "length_scales": (1 + over * (np.array(ends) - 1)).tolist(),
    }


def test_scores_are_by_exact_prediction_where_there_is_one() -> None:
    own = record(Run("pol"), llh=1.0, sampled=0.7)
    assert (score(own, "llh"), score(own, "llh", samples=True)) == (1.0, 0.7)
    assert score({**own, "test_exact": None}, "llh") == 0.7


def test_whole_runs_are_counted_apart_from_cut_ones() -> None:
    runs = [
        record(Run("pol", 0, "ap", "standard", True), epochs=[30.0] * 4),
        record(Run("pol", 0, "ap", "pathwise", True), epochs=[10.0] * 4),
        record(Run("bike", 0, "ap", "standard", True), epochs=[9.0, 9.0], cut=True),
        record(Run("bike", 0, "ap", "pathwise", True), epochs=[10.0, 10.0, 1.0, 1.0]),
    ]
    said = pathwise_finding(summaries(runs), {})
    assert "with warm starts for both, over 5% fewer epochs in 1 and over 5% more in 0 of 1 whole runs" in said
    assert "over 5% fewer epochs in 0 and over 5% more in 1 of 1 more that were cut" in said
    assert "| pol | AP | – |  | 3.00 |" in said and "| bike | AP | – |  | 0.90 (in 2 steps) |" in said


def test_a_length_scale_that_exact_training_leaves_alone_does_not_count() -> None:
    truth = record(exact("pol", 0), **lengths(3.0, 1.01))
    away = apart(record(Run("pol"), **lengths(3.0, 4.0)), truths([truth]))
    assert away is not None and away.shape == (4 * 3,) and np.all(away == 0)
    off = apart(record(Run("pol"), **lengths(3.3, 4.0)), truths([truth]))
    assert off is not None and off.max() == pytest.approx(np.log(1.1))


def test_what_warm_starts_change() -> None:
    runs = [
        record(exact("pol", 0), **lengths(3.0)),
        record(Run("pol", warm=False), llh=1.0, **lengths(3.0)),
        record(Run("pol", warm=True), llh=0.98, sampled=0.5, **lengths(3.3)),
    ]
    said = warm_finding(runs)  # ln of 1.767/1.667, 2.533/2.333 and 1.1: three of twelve, and √(0.0192/12)
    assert "by at most 0.0200 in the mean of a set and estimator, by 0.020 in a single run" in said
    assert "| pol | pathwise | 1 | 100.0%; 0.000 | 75.0%; 0.040 | −0.0200 |" in said


def test_progress_under_a_budget() -> None:
    runs = [
        record(Run("pol", 0, "ap", budget=10.0), residual_probes=[0.5, 0.1], residual_mean=[0.1, 0.4]),
        record(Run("pol", 0, "ap", warm=False, budget=10.0), residual_probes=[0.5, 0.3], residual_mean=[0.1, 0.2]),
        record(Run("pol", 0, "cg", budget=10.0), residual_probes=[0.2, 0.6], residual_mean=[0.1, 0.1]),
    ]
    said = accumulation(runs)
    assert "lower than from zero in 1 of 1 cases, the mean's in 0." in said
    assert "falls in 1 of 2 runs. No run from zero yet: pol." in said
    assert "| pol | AP | 2 | 0.500 → 0.100 | 0.300 | 0.100 → 0.400 | 0.200 |" in said
    assert accumulation([]) == "Not run."


def test_whether_a_low_residual_is_needed() -> None:
    runs = [
        record(exact("pol", 0), llh=1.0),
        record(Run("pol", 0, "ap", budget=10.0), llh=0.99, sampled=0.5, residual_probes=[0.2]),
        record(Run("pol", 0, "ap", budget=50.0), llh=0.95, sampled=0.995, residual_probes=[0.05]),
        record(Run("pol", 0, "cg", budget=10.0), llh=0.0, residual_probes=[0.009]),  # to the tolerance: not counted
    ]
    said = need_of_residuals(runs, {})
    assert "Of 2 runs that end above the tolerance, 1 are within 0.02 nats" in said and "samples, 1 are" in said
    assert "| pol | AP, warm | 0.200 → 0.050 | −0.010 → −0.050 | −0.500 → −0.005 | 10 → 50 |" in said
    large = record(
        Run("terrain", 0, "ap", budget=10.0), cut=True, residual_probes=[0.3, 0.2, 0.1], test_llh=[0.1, 0.6, 0.2]
    )
    assert "| terrain | AP | 3 | 0.100 | 0.200 | 0.600, step 2 | – |" in need_of_residuals([large], {})
    near = {"residual_mean": [0.004, 0.002], "residual_probes": [0.009, 0.01], "noise_scale": [0.05, 0.09]}
    solved = [
        record(Run("terrain", 0, "near"), llh=0.8, epochs=[8.0, 8.0], test_llh=[0.9, 0.81], **near),
        record(Run("terrain", 0, "near", "standard"), llh=1.1, epochs=[10.0, 10.0], **near),
    ]
    said = need_of_residuals(solved, {})
    assert "| terrain | the paper's features | 2 | 0.004; 0.010 | 8.0 |" in said
    assert "| 0.050 → 0.090 | 0.800 | 0.900, step 1 |" in said
    assert "| terrain | the standard estimator | 2 | 0.004; 0.010 | 10.0 |" in said
    assert "| 0.050 → 0.090 | 1.100 | – |" in said
    assert need_of_residuals([], {}) == "Not run."
