"""Answers from runs under a budget: whether progress accumulates, and whether a low residual is needed."""

from __future__ import annotations

import numpy as np

from experiments.cells import BUDGETS, LARGE_BUDGET, NEAR, SETTINGS, SOLVERS
from experiments.published import Papers
from experiments.store import Record
from experiments.summary import LABELS, by_run, is_finished, score
from experiments.tables import markdown

TOLERANCE = 0.01
CLOSE = 0.02
"""Nats of log-likelihood that are called near."""

FALLEN = 0.05
"""Log-likelihood that a run may end below its best without a word."""


def accumulation(records: list[Record]) -> str:
    """Residuals over the steps of warm runs at ten epochs, and where runs from zero end."""
    rows, falls, lower, mean_lower, untold = [], [], [], [], set()
    for record in by_run(records, budget=LARGE_BUDGET, warm=True, estimator="pathwise", split=0):
        run, history = record["run"], record["history"]
        row = [run["dataset"], LABELS[run["solver"]], str(record["steps"])]
        last, same = record["steps"] - 1, {k: run[k] for k in ("dataset", "solver", "estimator", "budget", "split")}
        cold = [r["history"] for r in by_run(records, warm=False, **same) if r["steps"] >= record["steps"]]
        for name, better in (("residual_probes", lower), ("residual_mean", mean_lower)):
            row += [f"{history[name][0]:.3f} → {history[name][-1]:.3f}", f"{cold[0][name][last]:.3f}" if cold else "–"]
            better += [history[name][-1] < cold[0][name][last]] if cold else []
        falls.append(history["residual_probes"][-1] < history["residual_probes"][0])
        untold |= set() if cold else {run["dataset"]}
        rows.append(row)
    if not rows:
        return "Not run."
    lead = (
        f"With warm starts the probes' residual ends lower than from zero in {sum(lower)} of {len(lower)} cases, the "
        f"mean's in {sum(mean_lower)}. " if lower else ""
    )  # fmt: skip
    none = f" No run from zero yet: {', '.join(sorted(untold))}." if untold else ""
    head = ["set", "solver", "steps", "probes' residual, warm", "cold, there", "mean's residual, warm", "cold, there"]
    return (
        f"{lead}Over the steps the probes' residual falls in {sum(falls)} of {len(falls)} runs.{none}\n\nPathwise, ten "
        f"epochs a step, residuals after the first → the last step:\n\n{markdown(head, rows)}"
    )


def need_of_residuals(records: list[Record], papers: Papers) -> str:
    """Scores and residuals by budget on small sets, and at ten epochs on large ones."""
    parts = (_small_sets(records), _large_sets(records, papers), _solved_sets(records))
    return "\n\n".join(part for part in parts if part) or "Not run."


def _small_sets(records: list[Record]) -> str:
    rows, near, samples_near = [], [], []
    for dataset in SETTINGS:
        truths = [r for r in by_run(records, dataset=dataset, solver="exact", split=0) if is_finished(r)]
        for solver in SOLVERS:
            for warm in (False, True):
                same = {"dataset": dataset, "solver": solver, "estimator": "pathwise", "warm": warm, "split": 0}
                own = [r for budget in BUDGETS for r in by_run(records, budget=budget, **same) if is_finished(r)]
                if not truths or not own or own[0]["run"]["settings"]["large"]:
                    continue
                truth = score(truths[0], "llh")
                exact, sampled = ([score(r, "llh", samples=s) - truth for r in own] for s in (False, True))
                residuals = [r["history"]["residual_probes"][-1] for r in own]
                above = [k for k, residual in enumerate(residuals) if residual > TOLERANCE]
                near += [abs(exact[k]) <= CLOSE for k in above]
                samples_near += [abs(sampled[k]) <= CLOSE for k in above]
                rows.append([
                    dataset, f"{LABELS[solver]}, {'warm' if warm else 'cold'}",
                    *[f"{values[0]:{form}} → {values[-1]:{form}}" for values, form in
                      ((residuals, ".3f"), (exact, "+.3f"), (sampled, "+.3f"))],
                    f"{own[0]['run']['budget']:g} → {own[-1]['run']['budget']:g}",
                ])  # fmt: skip
    if not rows:
        return ""
    head = ["set", "solver, start", "probes' residual", "LLH − exact training's", "from samples", "epochs a step"]
    return (
        f"Of {len(near)} runs that end above the tolerance, {sum(near)} are within {CLOSE} nats of exact training by "
        "exact prediction at the trained hyperparameters, which is what training alone has lost; by the predictions "
        f"that a user gets, from the last solve and the samples, {sum(samples_near)} are."
        f"\n\nPathwise, split 0, from the smallest to the largest budget:\n\n{markdown(head, rows)}"
    )


def _large_sets(records: list[Record], papers: Papers) -> str:
    rows = []
    for record in by_run(records, budget=LARGE_BUDGET, warm=True, estimator="pathwise", split=0):
        run, last = record["run"], last_score(record)
        if last is None or not run["settings"]["large"]:
            continue
        their = papers.get((run["dataset"], run["solver"], "pathwise", True))
        rows.append([
            run["dataset"], LABELS[run["solver"]], str(record["steps"]),
            f"{record['history']['residual_probes'][-1]:.3f}", f"{last:.3f}", best_score(record, last),
            f"{their.llh:.3f}" if their else "–",
        ])  # fmt: skip
    if not rows:
        return ""
    head = ["set", "solver", "steps", "probes' residual", "LLH", "best LLH", "the paper's"]
    return f"Large sets, ten epochs a step, warm:\n\n{markdown(head, rows)}"


FEATURES = {"plain": "the paper's features", "features": "features with more in the tail"}


def _solved_sets(records: list[Record]) -> str:
    """Large sets solved to the tolerance by near neighbours, by what the probes are made of."""
    rows = []
    for record in by_run(records, solver=NEAR, split=0):
        run, history, last = record["run"], record["history"], last_score(record)
        if last is None:
            continue
        rows.append([
            run["dataset"], FEATURES[run["prior"]] if run["estimator"] == "pathwise" else "the standard estimator",
            f"{record['steps']}{'' if is_finished(record) else ', cut'}",
            f"{max(history['residual_mean']):.3f}; {max(history['residual_probes']):.3f}",
            f"{record['epochs'] / record['steps']:.1f}", f"{record['seconds']:.0f}",
            f"{history['noise_scale'][0]:.3f} → {history['noise_scale'][-1]:.3f}", f"{last:.3f}",
            best_score(record, last),
        ])  # fmt: skip
    if not rows:
        return ""
    head = [
        "set", "probes", "steps", "largest residual: mean; probes", "epochs a step", "seconds", "noise scale", "LLH",
        "best LLH",
    ]  # fmt: skip
    return (
        "Large sets solved to the tolerance at every step, by conjugate gradients with 30 near neighbours "
        "([beyond the paper](choosing.md#near-neighbours)), warm: what the budget costs is the difference to the table "
        "above, and what the probes are made of is that between rows here ([why](mathematics.md#random-features)).\n\n"
        f"{markdown(head, rows)}"
    )


def best_score(record: Record, last: float) -> str:
    """The best test log-likelihood of a step, where the last is clearly below it; the standard estimator has none."""
    steps = record["history"].get("test_llh")
    if steps is None:
        return "–"
    best = int(np.argmax(steps))
    return f"{steps[best]:.3f}, step {best + 1}" if steps[best] > last + FALLEN else "the last"


def last_score(record: Record) -> float | None:
    """Test log-likelihood in the end, or after the last step of a run that was cut, where steps are scored."""
    if is_finished(record):
        return score(record, "llh")
    return record["history"].get("test_llh", [None])[-1]
