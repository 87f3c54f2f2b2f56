"""Residuals and scores under a budget of epochs: small sets by budget, large sets over steps."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.cells import BUDGETS, LARGE_BUDGET, NEAR
from experiments.figures.style import EXACT, WAYS, datasets_of, legend, name, panels, solvers_of, title
from experiments.store import Record
from experiments.summary import LABELS, by_run, is_finished, score

SOLVED = {
    ("pathwise", "plain"): ("pathwise, the paper's features", "#0072B2", "-"),
    ("pathwise", "features"): ("pathwise, more in the tail", "#009E73", "--"),
    ("standard", "plain"): ("standard", "#D55E00", "-."),
}
OVER_STEPS = {
    "residual_mean": "residual of the mean", "residual_probes": "residual of the probes",
    "test_rmse": "test RMSE", "test_llh": "test log-likelihood",
}  # fmt: skip
SYSTEMS = {"residual_probes": ("probes", "llh", "test log-likelihood"), "residual_mean": ("mean", "rmse", "test RMSE")}


def under_budgets(records: list[Record], dataset: str, residual: str = "residual_probes") -> Figure | None:
    """Relative residuals at every step for budgets of 10 to 50 epochs, and the final score by budget."""
    cells = [r for r in by_run(records, dataset=dataset, split=0) if r["run"]["budget"] in BUDGETS]
    cells = [r for r in cells if not r["run"]["settings"]["large"]]
    if not cells:
        return None
    systems, name_of_score, score_name = SYSTEMS[residual]

    def of(record: Record) -> float:
        """The log-likelihood that training has found; the RMSE of the mean as it was solved for."""
        return score(record, name_of_score, samples=residual == "residual_mean")

    solvers, shades = solvers_of(cells), plt.get_cmap("viridis")
    figure, axes = panels(len(solvers), len(WAYS) + 1, width=2.3, height=1.9)
    for line, solver in enumerate(solvers):
        for column, ((estimator, warm), (label, colour, style)) in enumerate(WAYS.items()):
            axis, marks = axes[line, column], []
            for k, budget in enumerate(BUDGETS):
                own = by_run(cells, solver=solver, estimator=estimator, warm=warm, budget=budget)
                for record in own:
                    shade = shades(0.9 * k / (len(BUDGETS) - 1))
                    history = record["history"]
                    axis.semilogy(history["step"], history[residual], color=shade, linewidth=1,
                                  label=f"{budget:g} epochs a step")  # fmt: skip
                    if record["outcome"] == "finished":
                        marks.append((budget, of(record)))
            axis.axhline(0.01, color="black", linestyle=":", linewidth=1)
            name(axis, title=label if line == 0 else "", x="step" if line == len(solvers) - 1 else "",
                 y=f"{LABELS[solver]}: residual of the {systems}" if column == 0 else "")  # fmt: skip
            if marks:
                axes[line, -1].plot(*zip(*marks, strict=True), f"o{style}", color=colour, markersize=3, label=label)
        for truth in by_run(records, dataset=dataset, solver="exact", split=0):
            if is_finished(truth):
                axes[line, -1].axhline(of(truth), **EXACT)
        low = min(axis.get_ylim()[0] for axis in axes[line, :-1])
        high = max(axis.get_ylim()[1] for axis in axes[line, :-1])
        for axis in axes[line, :-1]:
            axis.set_ylim(low, high)
        last = "epochs a step" if line == len(solvers) - 1 else ""
        name(axes[line, -1], title=score_name if line == 0 else "", x=last)
    figure.suptitle(dataset, fontsize=10)
    legend(figure, axes, 5)
    return figure


def large_sets(records: list[Record], solver: str) -> Figure | None:
    """Residuals, RMSE and log-likelihood over the steps of large sets of ten epochs each, cold and warm."""
    cells = [r for r in by_run(records, solver=solver, budget=LARGE_BUDGET, split=0) if r["run"]["settings"]["large"]]
    lines = [(record, WAYS["pathwise", record["run"]["warm"]]) for record in cells]
    return _over_steps(lines, solver, OVER_STEPS)


def solved_sets(records: list[Record]) -> Figure | None:
    """Residuals, noise and scores over the steps of large sets that were solved to the tolerance."""
    cells = by_run(records, solver=NEAR, split=0)
    lines = [(record, SOLVED[record["run"]["estimator"], record["run"]["prior"]]) for record in cells]
    return _over_steps(lines, NEAR, {**OVER_STEPS, "noise_scale": "noise scale"})


def _over_steps(lines: list[tuple[Record, tuple[str, str, str]]], solver: str, shown: dict[str, str]) -> Figure | None:
    """A row of panels for each dataset; records with their label, colour and style."""
    if not lines:
        return None
    datasets = datasets_of([record for record, _ in lines])
    figure, axes = panels(len(datasets), len(shown), width=2.8)
    for line, dataset in enumerate(datasets):
        for axis, (column, label) in zip(axes[line], shown.items(), strict=True):
            for record, (text, colour, style) in lines:
                history = record["history"]
                if record["run"]["dataset"] == dataset and column in history:
                    axis.plot(history["step"], history[column], style, color=colour, label=text, linewidth=1.2)
            if column.startswith("residual"):
                axis.set_yscale("log")
                axis.axhline(0.01, color="black", linestyle=":", linewidth=1)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            name(axis, title=title(dataset, solver) if axis is axes[line, 0] else "", y=label,
                 x="step" if line == len(datasets) - 1 else "")  # fmt: skip
    legend(figure, axes)
    return figure
