"""Where solves start: distances from the solution, the eigenvalue behind them, and the quadratic's section."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.style import WAYS, datasets_of, legend, name, panels
from experiments.store import Record
from experiments.summary import by_run, plain


def starting_distances(measured: list[Record], records: list[Record]) -> Figure | None:
    """Initial distances of cold and warm starts, AP's iterations, 1/λ_min and the noise precision, over steps."""
    if not measured:
        return None
    datasets = datasets_of(measured)
    figure, axes = panels(len(datasets), 4, width=2.7)
    for line, dataset in enumerate(datasets):
        own = by_run(measured, dataset=dataset)[0]
        for (estimator, warm), (label, colour, style) in WAYS.items():
            distance = own[f"{estimator}_{'warm' if warm else 'cold'}"]
            axes[line, 0].semilogy(
                own["steps"], distance, f".{style}", markersize=3, color=colour, label=label, linewidth=1.2
            )
            for record in by_run(records, dataset=dataset, solver="ap", estimator=estimator, warm=warm, split=0):
                if plain(record):
                    axes[line, 1].semilogy(
                        record["history"]["step"], record["history"]["iterations"], style, color=colour, linewidth=1.2
                    )
        axes[line, 2].semilogy(own["steps"], own["top_eigenvalue"], color="black", linewidth=1.2)
        axes[line, 3].semilogy(own["steps"], own["noise_precision"], color="black", linewidth=1.2)
        last = "step" if line == len(datasets) - 1 else ""
        name(axes[line, 0], title=f"{dataset}: initial distance", x=last, y="|u₀ − u*|, H-norm, rms")
        name(axes[line, 1], title="AP iterations", x=last, y="to tolerance 0.01")
        name(axes[line, 2], title="largest eigenvalue of H⁻¹", x=last, y="1 / least eigenvalue of H")
        name(axes[line, 3], title="noise precision", x=last, y="σ⁻²")
    legend(figure, axes)
    return figure


def sections(measured: list[Record]) -> Figure | None:
    """Contours of the quadratic in the plane of its steepest directions; cold and warm starts of all probes in it."""
    if not measured:
        return None
    datasets = datasets_of(measured)
    figure, axes = panels(len(datasets), 2, width=3.2, height=2.8)
    for line, dataset in enumerate(datasets):
        own = by_run(measured, dataset=dataset)[0]
        for axis, (estimator, starts) in zip(axes[line], own["starts"].items(), strict=True):
            cold, warm = np.asarray(starts["cold"]), np.asarray(starts["warm"])
            reach = 1.15 * np.abs(np.concatenate([cold, warm])).max(0) + 1e-12
            a, b = (np.linspace(-r, r, 101) for r in reach)
            height = 0.5 * (own["curvatures"][0] * a[None, :] ** 2 + own["curvatures"][1] * b[:, None] ** 2)
            axis.contour(a, b, np.sqrt(height), 10, colors="0.75", linewidths=0.6)
            _, cold_colour, _ = WAYS[estimator, False]
            _, warm_colour, _ = WAYS[estimator, True]
            axis.plot(*cold.T, "x", color=cold_colour, markersize=4, label=f"{estimator}: from zero")
            axis.plot(*warm.T, "o", color=warm_colour, markersize=4, mfc="none", label=f"{estimator}: warm")
            axis.plot(0, 0, "k+", markersize=8, label="solution")
            axis.ticklabel_format(scilimits=(-2, 3))
            axis.xaxis.offsetText.set_fontsize(7)
            axis.yaxis.offsetText.set_fontsize(7)
            name(axis, title=f"{dataset}, {estimator}, step {own['step']}",
                 x="steepest direction", y="second steepest")  # fmt: skip
    legend(figure, axes, 3)
    return figure
