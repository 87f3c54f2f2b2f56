"""What trainings cost: relative runtimes, iterations over steps, and the number of probes."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.cells import SETTINGS
from experiments.figures.style import EXACT, WAYS, datasets_of, legend, name, panels, solvers_of, title
from experiments.store import Record
from experiments.summary import LABELS, by_run, is_bound, is_finished, paired, plain, score, summaries

MARKERS = "osD^"  # by way


def runtimes(records: list[Record]) -> Figure | None:
    """Seconds of each way relative to the standard estimator without warm start; the solver's share hatched.

    A run that was cut has no bar, and where the standard one was cut the others' bars are upper bounds ("<").
    """
    found = summaries([r for r in records if not r["run"]["settings"]["large"]])
    cells = [record for record in records if record["run"]["solver"] != "exact" and plain(record)]
    cells = [record for record in cells if not record["run"]["settings"]["large"]]
    if not cells:
        return None
    solvers, datasets = solvers_of(cells), datasets_of(cells)
    figure, axes = panels(1, len(solvers), width=3.4, height=2.6, sharey=True)
    for axis, solver in zip(axes[0], solvers, strict=True):
        for place, dataset in enumerate(datasets):
            base = found.get((dataset, solver, "standard", False))
            for k, ((estimator, warm), (label, colour, _)) in enumerate(WAYS.items()):
                own = found.get((dataset, solver, estimator, warm))
                pairs = paired(base, own, "seconds") if base and own else []
                x = place + (k - 1.5) * 0.2
                if base is None or own is None or not pairs:
                    why = "not run" if own is None else "base not run" if base is None else "other device"
                    axis.annotate(why, (x, 0.02), ha="center", va="bottom", fontsize=6, rotation=90, color="0.5")
                    continue
                all_of_it = sum(a["seconds"] for a, _ in pairs)
                whole = sum(b["seconds"] for _, b in pairs) / all_of_it
                share = sum(b["solver_seconds"] for _, b in pairs) / all_of_it
                if any(is_bound(b) for _, b in pairs):
                    axis.bar(x, 1.0 if own is base else 0.0, 0.18, color="none", edgecolor=colour, linestyle=":")
                    axis.annotate("cut", (x, 0.02), ha="center", va="bottom", fontsize=6, rotation=90, color=colour)
                    continue
                if any(is_bound(a) for a, _ in pairs):
                    axis.bar(x, whole, 0.18, color="none", edgecolor=colour, linewidth=1.2)
                    axis.annotate("<", (x, whole), ha="center", va="bottom", fontsize=8)
                    continue
                axis.bar(
                    x, whole, 0.18, color=colour, label=label, edgecolor="black" if warm else "none", linewidth=0.8
                )
                axis.bar(x, share, 0.18, color="none", edgecolor="white", hatch="////", linewidth=0)
        axis.set_xticks(range(len(datasets)), datasets, fontsize=7)
        axis.set_xlim(-0.6, len(datasets) - 0.4)
        name(axis, title=LABELS[solver], y="time relative to standard" if axis is axes[0, 0] else "")
    handles = [
        Patch(facecolor=colour, edgecolor="black" if warm else "none", label=label)
        for (_, warm), (label, colour, _) in WAYS.items()
    ]
    handles.append(Patch(facecolor="grey", edgecolor="white", hatch="////", label="of that, the solver"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return figure


def iterations(records: list[Record]) -> Figure | None:
    """Iterations until the tolerance at every step, with the final test log-likelihoods."""
    cells = [r for r in records if plain(r) and r["run"]["solver"] != "exact" and not r["run"]["settings"]["large"]]
    if not cells:
        return None
    datasets, solvers = datasets_of(cells), solvers_of(cells)
    figure, axes = panels(len(solvers), len(datasets) + 1, sharex=False)
    for line, solver in enumerate(solvers):
        for column, dataset in enumerate(datasets):
            axis = axes[line, column]
            for (estimator, warm), (label, colour, style) in WAYS.items():
                for record in by_run(cells, dataset=dataset, solver=solver, estimator=estimator, warm=warm, split=0):
                    history = record["history"]
                    axis.plot(history["step"], history["iterations"], style, color=colour, label=label, linewidth=1.2)
                    if is_bound(record):
                        axis.plot(history["step"][-1], history["iterations"][-1], "x", color=colour, markersize=5)
            axis.set_yscale("log")
            axis.set_xlim(0, SETTINGS[dataset].n_steps)
            name(axis, title=title(dataset, solver), x="step" if line == len(solvers) - 1 else "",
                 y="iterations" if column == 0 else "")  # fmt: skip
        axis = axes[line, -1]
        for k, ((estimator, warm), (label, colour, _)) in enumerate(WAYS.items()):
            for place, dataset in enumerate(datasets):
                truth = by_run(records, dataset=dataset, solver="exact", split=0)
                own = by_run(cells, dataset=dataset, solver=solver, estimator=estimator, warm=warm, split=0)
                if truth and own and truth[0]["outcome"] == own[0]["outcome"] == "finished":
                    away = score(own[0], "llh") - score(truth[0], "llh")
                    axis.plot(place + (k - 1.5) * 0.15, away, MARKERS[k], color=colour, markersize=4, label=label)
        axis.axhline(0, **EXACT)
        axis.set_xticks(range(len(datasets)), datasets, fontsize=6, rotation=20)
        axis.set_xlim(-0.5, len(datasets) - 0.5)
        name(axis, title="test log-likelihood", y="less exact training's")
    legend(figure, axes, 5)
    return figure


def probe_counts(records: list[Record]) -> Figure | None:
    """Test log-likelihood and seconds of training by the number of probe vectors."""
    cells = [
        r
        for r in by_run(records, solver="ap", estimator="pathwise", warm=True, n_features=2000, prior="plain")
        if r["outcome"] == "finished" and r["run"]["budget"] is None and not r["run"]["settings"]["large"]
    ]
    varied = {r["run"]["dataset"] for r in cells if r["run"]["n_probes"] != 64}
    cells = sorted((r for r in cells if r["run"]["dataset"] in varied), key=lambda r: r["run"]["n_probes"])
    if not cells:
        return None
    figure, axes = panels(1, 2, width=3.2, height=2.5)
    for dataset in datasets_of(cells):
        own = by_run(cells, dataset=dataset, split=0)
        count = [record["run"]["n_probes"] for record in own]
        axes[0, 0].plot(count, [record["test"]["llh"] for record in own], "o-", label=f"{dataset}, from the samples")
        if all(record["test_exact"] for record in own):
            exact = [record["test_exact"]["llh"] for record in own]
            axes[0, 0].plot(count, exact, "s:", label=f"{dataset}, exact prediction at the trained θ")
        for truth in by_run(records, dataset=dataset, solver="exact", split=0):
            if is_finished(truth):
                axes[0, 0].axhline(truth["test"]["llh"], **{**EXACT, "label": f"{dataset}, exact training"})
        axes[0, 1].plot(count, [record["seconds"] for record in own], "o-", label=f"{dataset}, training")
        axes[0, 1].plot(count, [record["solver_seconds"] for record in own], "^--", label=f"{dataset}, the solver")
    for axis in axes[0]:
        axis.set_xscale("log", base=2)
        axis.set_xticks(count, [str(k) for k in count])
    name(axes[0, 0], title="test log-likelihood", x="probe vectors", y="nats a point")
    name(axes[0, 1], title="training", x="probe vectors", y="seconds")
    axes[0, 1].set_ylim(bottom=0)
    legend(figure, axes, 2)
    return figure
