"""How far iterative trainings stray from exact ones: trajectories, differences, and the number of features."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.style import CYCLE, EXACT, WAYS, datasets_of, legend, name, panels, title
from experiments.store import Record
from experiments.tables import by_run, plain

SHOWN_LENGTHS = 2


def parameters(record: Record) -> np.ndarray:
    """Hyperparameters over steps, (steps, 2 + d): noise, signal, lengths."""
    history = record["history"]
    return np.column_stack([history["noise_scale"], history["signal_scale"], np.asarray(history["length_scales"])])


def truths(records: list[Record]) -> dict[tuple[str, int], np.ndarray]:
    """Exact trajectories by dataset and split."""
    return {
        (record["run"]["dataset"], record["run"]["split"]): parameters(record)
        for record in by_run(records, solver="exact")
        if record["outcome"] == "finished"
    }


def trajectories(records: list[Record], solver: str) -> Figure | None:
    """Noise, signal and the two length scales that end shortest, over steps, beside exact training.

    An input that never varies leaves its length scale where it was; it is not shown.
    """
    exact = truths(records)
    cells = [r for r in by_run(records, solver=solver, split=0) if plain(r) and (r["run"]["dataset"], 0) in exact]
    if not cells:
        return None
    datasets = datasets_of(cells)
    figure, axes = panels(len(datasets), 2 + SHOWN_LENGTHS, width=2.4, height=1.8)
    for line, dataset in enumerate(datasets):
        truth = exact[dataset, 0]
        still = np.ptp(truth[:, 2:], axis=0) == 0
        shortest = 2 + np.argsort(np.where(still, np.inf, truth[-1, 2:]))[:SHOWN_LENGTHS]
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
    """Histograms of the differences of all hyperparameters at all steps from exact training, by way."""
    exact = truths(records)
    apart: dict[tuple[str, bool], list[np.ndarray]] = {way: [] for way in WAYS}
    for record in records:
        truth = exact.get((record["run"]["dataset"], record["run"]["split"]))
        if truth is not None and plain(record) and record["run"]["solver"] != "exact":
            own = parameters(record)
            steps = min(len(own), len(truth))
            apart[record["run"]["estimator"], record["run"]["warm"]].append((own[:steps] - truth[:steps]).ravel())
    if not any(apart.values()):
        return None
    figure, axes = panels(1, len(WAYS), height=2.3, sharey=True, sharex=True)
    edges = np.linspace(-0.3, 0.3, 61)
    for axis, (way, (label, colour, _)) in zip(axes[0], WAYS.items(), strict=True):
        if apart[way]:
            values = np.concatenate(apart[way])
            weights = np.full(len(values), 1 / len(values))
            axis.hist(np.clip(values, *edges[[0, -1]]), edges, weights=weights, color=colour)
            within = np.mean(np.abs(values) < 0.05)
            axis.text(0.03, 0.97, f"{within:.0%} within 0.05", transform=axis.transAxes, fontsize=7, va="top")
        axis.set_yscale("log")
        name(axis, title=label, x="difference from exact", y="share of values" if axis is axes[0, 0] else "")
    return figure


def deviating_lengths(records: list[Record]) -> Figure | None:
    """Over steps, the two length scales on which the pathwise estimator with random features ends farthest from exact
    training, with more features, and with exact prior samples."""
    exact = truths(records)
    cells = [
        record
        for record in by_run(records, solver="cg", estimator="pathwise", warm=True, n_probes=64, budget=None, split=0)
        if record["outcome"] == "finished" and (record["run"]["dataset"], 0) in exact
    ]
    datasets = datasets_of(by_run(cells, prior="exact"))
    if not datasets:
        return None
    figure, axes = panels(len(datasets), 2, width=3.2, height=2.0)
    for line, dataset in enumerate(datasets):
        truth = exact[dataset, 0]
        usual = by_run(cells, dataset=dataset, n_features=2000, prior="plain")
        shown = {"2,000 random features": usual}
        shown["2,000, more in the tail"] = by_run(cells, dataset=dataset, n_features=2000, prior="features")
        shown["16,000 random features"] = by_run(cells, dataset=dataset, n_features=16000, prior="plain")
        shown["exact prior samples"] = by_run(cells, dataset=dataset, prior="exact")
        far = np.abs(parameters((usual or shown["exact prior samples"])[0]) - truth)[-1, 2:]
        for axis, k in zip(axes[line], np.argsort(far)[::-1], strict=False):
            for label, runs in shown.items():
                for record in runs:
                    axis.plot(parameters(record)[:, 2 + k], label=label, linewidth=1.2)
            axis.plot(truth[:, 2 + k], **EXACT)
            name(axis, title=f"{dataset}, length scale {k + 1}", x="step" if line == len(datasets) - 1 else "",
                 y="length scale" if axis is axes[line, 0] else "")  # fmt: skip
    legend(figure, axes, 2)
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
    name(axes[0, 0], title="noise scale", x="random features", y="largest deviation, relative")
    name(axes[0, 1], title="length scales", x="random features", y="deviation at the end, rms")
    name(axes[0, 2], title="test log-likelihood", x="random features", y="less exact training's")
    legend(figure, axes, 4)
    return figure
