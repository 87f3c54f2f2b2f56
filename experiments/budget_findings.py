"""Answers from runs under a budget: whether progress accumulates, and whether a low residual is needed."""

from __future__ import annotations

import numpy as np

from experiments.cells import BUDGETS, DEEPER_BUDGET, LARGE_BUDGET, SETTINGS, SOLVERS
from experiments.published import Papers
from experiments.store import Record
from experiments.summary import LABELS, by_run, is_finished

FALLEN = 0.05
"""Log-likelihood that a run may end below its best without a word."""


def accumulation(records: list[Record]) -> str:
    """Residual of the probes over the steps of warm runs at ten epochs, and where runs from zero end."""
    said, lower = [], []
    for record in by_run(records, budget=LARGE_BUDGET, warm=True, estimator="pathwise", split=0):
        run, residuals = record["run"], record["history"]["residual_probes"]
        text = f"{run['dataset']} {LABELS[run['solver']]} {residuals[0]:.3f} → {residuals[-1]:.3f}"
        same = {name: run[name] for name in ("dataset", "solver", "estimator", "budget", "split")}
        for cold in by_run(records, warm=False, **same):
            if cold["steps"] >= record["steps"]:
                from_zero = cold["history"]["residual_probes"][record["steps"] - 1]
                text += f" (from zero {from_zero:.3f})"
                lower.append(residuals[-1] < from_zero)
        said.append(text)
    if not said:
        return "Not run."
    lead = f"Warm runs end below those from zero in {sum(lower)} of {len(lower)} cases. " if lower else ""
    return (
        f"{lead}Residual of the probes after the first → the last step at ten epochs a step, pathwise with warm "
        f"starts, and at the last step of runs that start each solve from zero: {'; '.join(said)}."
    )


def by_budget(records: list[Record]) -> str:
    """Log-likelihoods less exact training's, and the residuals they were had with, at the least and the most epochs."""
    said = []
    for dataset in SETTINGS:
        truths = [r for r in by_run(records, dataset=dataset, solver="exact", split=0) if is_finished(r)]
        for solver in SOLVERS:
            same = {"dataset": dataset, "solver": solver, "estimator": "pathwise", "warm": True, "split": 0}
            own = [r for budget in BUDGETS for r in by_run(records, budget=budget, **same) if is_finished(r)]
            if truths and len(own) > 1 and not own[0]["run"]["settings"]["large"]:
                ends = [
                    f"{r['test']['llh'] - truths[0]['test']['llh']:+.3f} (residual "
                    f"{r['history']['residual_probes'][-1]:.3f})"
                    for r in (own[0], own[-1])
                ]
                said.append(f"{dataset} {LABELS[solver]} {' → '.join(ends)}")
    if not said:
        return ""
    return (
        "Test log-likelihood less exact training's and residual of the probes, pathwise with warm starts, from the "
        f"least to the most epochs a step that were tried: {'; '.join(said)}. "
    )


def need_of_residuals(records: list[Record], papers: Papers) -> str:
    """The score at the least budget beside the score at the tolerance, at a larger budget, or the paper's."""
    said = []
    for record in by_run(records, budget=LARGE_BUDGET, warm=True, estimator="pathwise", split=0):
        run = record["run"]
        score = last_score(record)
        if score is None:
            continue
        same = {"warm": True, "estimator": "pathwise", "split": 0, "dataset": run["dataset"], "solver": run["solver"],
                "n_probes": 64, "n_features": 2000, "prior": "plain"}  # fmt: skip
        beside = [] if is_finished(record) else [f"after {record['steps']} steps"]
        over_steps = record["history"].get("test_llh", [score])
        if max(over_steps) > score + FALLEN:
            best = int(np.argmax(over_steps))
            beside.append(f"at its best {over_steps[best]:.3f}, after {best + 1} steps")
        beside += [f"to the tolerance {r['test']['llh']:.3f}" for r in by_run(records, **same) if _solved(r)]
        beside += [
            f"with {DEEPER_BUDGET:g} epochs {deeper:.3f}"
            for r in by_run(records, budget=DEEPER_BUDGET, **same)
            if r["run"]["settings"]["large"] and (deeper := last_score(r)) is not None
        ]
        their = papers.get((run["dataset"], run["solver"], "pathwise", True))
        if their and run["settings"]["large"]:
            beside.append(f"the paper {their.llh:.3f}")
        said.append(
            f"{run['dataset']} {LABELS[run['solver']]}: residual {record['history']['residual_probes'][-1]:.3f}, "
            f"LLH {score:.3f}" + (f" ({', '.join(beside)})" if beside else "")
        )
    if not said:
        return "Not run."
    return f"{by_budget(records)}At ten epochs a step: {'; '.join(said)}."


def _solved(record: Record) -> bool:
    return is_finished(record) and record["run"]["budget"] is None


def last_score(record: Record) -> float | None:
    """Test log-likelihood in the end, or after the last step of a run that was cut, where steps are scored."""
    if is_finished(record):
        return record["test"]["llh"]
    return record["history"].get("test_llh", [None])[-1]
