"""The paper's figures, drawn from the store alone. Each function returns a figure, or None where nothing was run."""

from experiments.figures.bias import deviating_lengths, differences, feature_counts, trajectories
from experiments.figures.costs import iterations, probe_counts, runtimes
from experiments.figures.geometry import sections, starting_distances
from experiments.figures.residuals import large_sets, solved_sets, under_budgets

__all__ = [
    "deviating_lengths",
    "differences",
    "feature_counts",
    "iterations",
    "large_sets",
    "probe_counts",
    "runtimes",
    "sections",
    "solved_sets",
    "starting_distances",
    "trajectories",
    "under_budgets",
]
