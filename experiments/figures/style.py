"""What the figures share: colours that colour-blind readers can tell apart, line styles for print, panels, names."""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.cells import SETTINGS, SOLVERS
from experiments.summary import LABELS

WAYS = {
    ("standard", False): ("standard", "#D55E00", "-"),
    ("pathwise", False): ("pathwise", "#0072B2", "-"),
    ("standard", True): ("standard, warm start", "#E69F00", "--"),
    ("pathwise", True): ("pathwise, warm start", "#009E73", "--"),
}
"""By estimator and warm start: label, colour, line."""

CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""For lines that are datasets."""

EXACT = {"color": "black", "linestyle": ":", "label": "exact (Cholesky)", "linewidth": 1.4}


def panels(rows: int, columns: int, width: float = 2.6, height: float = 2.1, **kwargs: Any) -> tuple[Figure, Any]:
    """A figure and its array of axes, with small print that stays readable on paper."""
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **kwargs
    )
    for axis in axes.flat:
        axis.tick_params(which="both", labelsize=7)
        axis.set_prop_cycle(color=CYCLE)
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def name(axis: Axes, *, title: str = "", x: str = "", y: str = "") -> None:
    if title:
        axis.set_title(title, fontsize=9)
    if x:
        axis.set_xlabel(x, fontsize=8)
    if y:
        axis.set_ylabel(y, fontsize=8)


def legend(figure: Figure, axes: Any, columns: int = 4) -> None:
    """One legend below all panels, every label once."""
    entries: dict[str, Any] = {}
    for axis in np.ravel(axes):
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        figure.legend(
            entries.values(), entries.keys(), loc="outside lower center", ncols=columns, fontsize=8, frameon=False
        )


def title(dataset: str, solver: str = "") -> str:
    return f"{dataset}, {LABELS[solver]}" if solver else dataset


def datasets_of(records: list[dict[str, Any]]) -> list[str]:
    """In the paper's order."""
    present = {record["run"]["dataset"] for record in records}
    return [dataset for dataset in SETTINGS if dataset in present]


def solvers_of(records: list[dict[str, Any]]) -> list[str]:
    present = {record["run"]["solver"] for record in records}
    return [solver for solver in SOLVERS if solver in present]
