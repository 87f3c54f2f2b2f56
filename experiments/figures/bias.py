"""How far iterative trainings stray from exact ones: trajectories, differences, and the number of features."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.style import CYCLE, EXACT, WAYS, datasets_of, legend, name, panels, title
from experiments.store import Record
from experiments.summary import LABELS, by_run, is_finished, plain
from experiments.trajectories import apart, parameters, trained, truths

SHOWN_LENGTHS = 2
NEAR = 0.05


def trajectories(records: list[Record], solver: str) -> Figure | None:
    """Noise, signal and the two length scales that end shortest, over steps, beside exact training.

    An input that hardly varies leaves its length scale where it was; it is not shown.
    """
    exact = truths(records)
    cells = [r for r in by_run(records, solver=solver, split=0) if plain(r) and (r["run"]["dataset"], 0) in exact]
    if not cells:
        return None
    datasets = datasets_of(cells)
    figure, axes = panels(len(datasets), 2 + SHOWN_LENGTHS, width=2.4, height=1.8)
    for line, dataset in enumerate(datasets):
        truth = exact[dataset, 0]
        shortest = 2 + np.argsort(np.where(trained(truth)[2:], truth[-1, 2:], np.inf))[:SHOWN_LENGTHS]
        for column, k in enumerate([0, 1, *shortest]):
            axis = axes[line, column]
            for (estimator, warm), (label, colour, style) in WAYS.items():
                for record in by_run(cells, dataset=dataset, estimator=estimator, warm=warm):
                    axis.plot(parameters(record)[:, k], style, color=colour, label=label, linewidth=1.2)
            axis.plot(truth[:, k], **EXACT)
            what = ("noise scale", "signal scale")[k] if k < 2 else f"length scale {k - 1}"
            name(axis, title=title(dataset, solver) if column == 0 else what,
                 x="step" if line == len(datasets) - 1 else "", y=what if column == 0 else "")  # fmt: skip
    legend(figure, axes, 5)
    return figure


def differences(records: list[Record]) -> Figure | None:
    """Histograms of how far all hyperparameters at all steps are from exact training's, by way, and for exact prior
    samples where those were tried."""
    exact = truths(records)
    cells = [r for r in records if r["run"]["solver"] != "exact" and is_finished(r)]
    cells = [r for r in cells if not r["run"]["settings"]["large"]]
    tried = {(r["run"]["dataset"], r["run"]["split"], r["run"]["solver"]) for r in by_run(cells, prior="exact")}
    same = [r for r in cells if (r["run"]["dataset"], r["run"]["split"], r["run"]["solver"]) in tried and plain(r)]
    groups = {
        label: ([r for r in by_run(cells, estimator=estimator, warm=warm) if plain(r)], colour)
        for (estimator, warm), (label, colour, _) in WAYS.items()
    }
    where = ", ".join(f"{dataset}, {LABELS[solver]}" for dataset, _, solver in sorted(tried))
    groups[f"pathwise, warm start\n{where}"] = by_run(same, estimator="pathwise", warm=True), WAYS["pathwise", True][1]
    groups[f"exact prior samples\n{where}"] = by_run(cells, prior="exact"), CYCLE[3]
    values = {
        label: np.concatenate(there)
        for label, (runs, _) in groups.items()
        if (there := [gaps for record in runs if (gaps := apart(record, exact)) is not None])
    }
    if not values:
        return None
    figure, axes = panels(1, len(values), height=2.3, width=2.3, sharey=True, sharex=True)
    edges = np.linspace(-0.3, 0.3, 61)
    for axis, (label, gaps) in zip(axes[0], values.items(), strict=True):
        weights = np.full(len(gaps), 1 / len(gaps))
        axis.hist(np.clip(gaps, *edges[[0, -1]]), edges, weights=weights, color=groups[label][1])
        axis.text(
            0.03, 0.97, f"{np.mean(np.abs(gaps) < NEAR):.1%} within 5%", transform=axis.transAxes, fontsize=7, va="top"
        )
        axis.set_yscale("log")
        name(axis, title=label, x="logarithm of own / exact", y="share of values" if axis is axes[0, 0] else "")
    axes[0, 0].set_ylim(top=3.0)
    return figure


def deviating_lengths(records: list[Record]) -> Figure | None:
    """The two length scales on which the pathwise estimator with random features and warm starts ends farthest from
    exact training, less exact training's, over steps: with more features, with exact prior samples, with new draws at
    every step, and with the standard estimator."""
    exact = truths(records)
    cells = [
        record
        for record in by_run(records, solver="cg", n_probes=64, budget=None, split=0)
        if is_finished(record) and (record["run"]["dataset"], 0) in exact
    ]
    datasets = datasets_of(by_run(cells, prior="exact"))
    if not datasets:
        return None
    warm, path = {"warm": True}, {"estimator": "pathwise"}
    shown = {
        "2,000 random features": ({"prior": "plain", "n_features": 2000, **warm, **path}, "-"),
        "2,000, more in the tail": ({"prior": "features", "n_features": 2000, **warm, **path}, "--"),
        "16,000 random features": ({"prior": "plain", "n_features": 16000, **warm, **path}, "-."),
        "exact prior samples": ({"prior": "exact", **warm, **path}, ":"),
        "2,000, new draws at every step": ({"prior": "plain", "n_features": 2000, "warm": False, **path}, "-"),
        "standard, warm start": ({"prior": "plain", "n_features": 2000, "estimator": "standard", **warm}, "--"),
    }
    figure, axes = panels(len(datasets), 2, width=3.4, height=2.2)
    for line, dataset in enumerate(datasets):
        truth = exact[dataset, 0]
        runs = {label: by_run(cells, dataset=dataset, **match) for label, (match, _) in shown.items()}
        far = np.abs(parameters((runs["2,000 random features"] or runs["exact prior samples"])[0]) - truth)[-1, 2:]
        for axis, k in zip(axes[line], np.argsort(far)[::-1], strict=False):
            for colour, (label, (_, style)) in zip(CYCLE, shown.items(), strict=True):
                for record in runs[label]:
                    gap = parameters(record)[:, 2 + k] - truth[:, 2 + k]
                    axis.plot(gap, style, color=colour, label=label, linewidth=1.3)
            axis.axhline(0, color="black", linewidth=0.8)
            name(axis, title=f"{dataset}, length scale {k + 1} (exact: {truth[-1, 2 + k]:.2f})",
                 x="step" if line == len(datasets) - 1 else "",
                 y="less exact training's" if axis is axes[line, 0] else "")  # fmt: skip
    legend(figure, axes, 3)
    return figure


def feature_counts(records: list[Record]) -> Figure | None:
    """Largest deviation from exact training, and its test log-likelihood, by the number of random features."""
    exact = truths(records)
    cells = [
        record
        for record in by_run(records, solver="cg", estimator="pathwise", warm=True, n_probes=64, split=0)
        if record["outcome"] == "finished" and record["run"]["budget"] is None
        and (record["run"]["dataset"], 0) in exact
    ]  # fmt: skip
    varied = {r["run"]["dataset"] for r in cells if r["run"]["n_features"] != 2000}
    if not varied:
        return None
    figure, axes = panels(1, 3, width=3.0, height=2.5)
    markers, colours = iter("os^Dv"), iter(CYCLE)
    for axis in axes[0]:
        axis.set_xscale("log")
    for axis in axes[0, :2]:
        axis.set_yscale("log")
    for dataset in [d for d in datasets_of(cells) if d in varied]:
        truth = exact[dataset, 0]
        marker, colour = next(markers), next(colours)
        llh_of_truth = by_run(records, dataset=dataset, solver="exact", split=0)[0]["test"]["llh"]

        def deviations(record: Record, truth: np.ndarray = truth, llh: float = llh_of_truth) -> tuple[float, ...]:
            own = parameters(record)
            return (
                np.abs(own[:, 0] / truth[:, 0] - 1).max(),
                np.sqrt(np.mean((own[-1, 2:] / truth[-1, 2:] - 1) ** 2)),
                (record["test_exact"] or record["test"])["llh"] - llh,
            )

        for prior, style, label in (("plain", "-", dataset), ("features", "--", f"{dataset}, more in the tail")):
            by_count = sorted(by_run(cells, dataset=dataset, prior=prior), key=lambda r: r["run"]["n_features"])
            count = [record["run"]["n_features"] for record in by_count]
            for axis, *values in zip(axes[0], *map(deviations, by_count), strict=True):
                axis.plot(count, values, f"{marker}{style}", color=colour, label=label)
        for record in by_run(cells, dataset=dataset, prior="exact"):
            for axis, value in zip(axes[0], deviations(record), strict=True):
                axis.axhline(value, color=colour, linestyle=":", label=f"{dataset}, exact prior samples")
    name(axes[0, 0], title="noise scale", x="random features", y="largest relative deviation")
    name(axes[0, 1], title="length scales", x="random features", y="relative deviation at the end, rms")
    name(axes[0, 2], title="test log-likelihood", x="random features", y="less exact training's")
    legend(figure, axes, 4)
    return figure
