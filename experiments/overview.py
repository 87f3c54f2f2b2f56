"""The results in short, for the head of the page: predictions beside exact training's, and the work."""

from __future__ import annotations

from experiments.cells import SETTINGS
from experiments.published import Cell
from experiments.store import Record
from experiments.summary import LABELS, WAYS, Found, Summary, by_run, is_bound, is_finished
from experiments.tables import gap, markdown, ours, shown, way

BESIDE: list[tuple[str, str]] = [("cg", "standard"), ("cg", "pathwise"), ("ap", "standard"), ("ap", "pathwise")]
WORK = ("elevators", "toy-noisy")
"""Sets of the second table: the paper's largest speed-up, and the small version's."""


def scores_in_short(records: list[Record], found: Found) -> str:
    """Exact training's test log-likelihood on each set, and what iterative training with warm starts adds to it."""
    head = ["set", "splits", "exact training", *[f"{LABELS[solver]}, {estimator}" for solver, estimator in BESIDE]]
    rows = []
    for dataset in SETTINGS:
        truths = tuple(r for r in by_run(records, dataset=dataset, solver="exact") if is_finished(r))
        if truths:
            truth = Summary(truths)
            cells = [found.get((dataset, solver, estimator, True)) for solver, estimator in BESIDE]
            gaps = [gap(own, truth, "llh", 3, samples=True) for own in cells]
            rows.append([f"*{dataset}*", str(len(truths)), ours(truth, "llh"), *gaps])
    return markdown(head, rows) if rows else ""


def work_in_short(found: Found) -> str:
    """Epochs and iterations of AP on the first split of one set, in the paper's four ways."""
    rows = []
    for dataset in WORK:
        cells: list[Cell] = [(dataset, "ap", estimator, warm) for estimator, warm in WAYS]
        for cell in cells:
            own = [record for record in found[cell].records if record["run"]["split"] == 0] if cell in found else []
            for record in own:
                llh = f"{record['test']['llh']:.3f}" if is_finished(record) else f"cut at step {record['steps']}"
                counts = [shown(record[name], 0, is_bound(record)) for name in ("iterations", "epochs")]
                rows.append([f"*{dataset}*", way(*cell[2:]), *counts, llh])
    return markdown(["set", "estimator, start", "AP iterations", "epochs", "test LLH"], rows) if rows else ""


def in_short(records: list[Record], found: Found) -> str:
    """Both, with what they show."""
    scores, work = scores_in_short(records, found), work_in_short(found)
    parts = []
    if scores:
        parts.append(
            "Mean test log-likelihood of exact training, and what training with iterative solvers (warm starts, "
            "tolerance 0.01, predictions from the last solve and 64 samples) adds to it on the same splits (how many, "
            f"where fewer):\n\n{scores}"
        )
    if work:
        parts.append(f"The work of alternating projections in the paper's four ways, split 0:\n\n{work}")
    return "\n\n".join(parts)
