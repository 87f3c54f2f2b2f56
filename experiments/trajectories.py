"""Hyperparameters over the steps of recorded trainings, and how far they are from those of exact training."""

from __future__ import annotations

import numpy as np

from experiments.store import Record
from experiments.summary import by_run, is_finished

STILL = 0.05
"""Change of a logarithm over a whole training below which a hyperparameter was not trained."""

Truths = dict[tuple[str, int], np.ndarray]


def parameters(record: Record) -> np.ndarray:
    """Hyperparameters over steps, (steps, 2 + d): noise, signal, lengths."""
    history = record["history"]
    return np.column_stack([history["noise_scale"], history["signal_scale"], np.asarray(history["length_scales"])])


def truths(records: list[Record]) -> Truths:
    """Exact trajectories by dataset and split."""
    return {
        (record["run"]["dataset"], record["run"]["split"]): parameters(record)
        for record in by_run(records, solver="exact")
        if is_finished(record)
    }


def trained(truth: np.ndarray) -> np.ndarray:
    """Which hyperparameters exact training moves, (2 + d,): the length scale of an input that hardly varies stays where
    it was, and wherever noise in the gradient takes it elsewhere, that means nothing."""
    return np.ptp(np.log(truth), axis=0) > STILL


def apart(record: Record, exact: Truths) -> np.ndarray | None:
    """Logarithms of all trained hyperparameters at all steps less those of exact training; None without it."""
    truth = exact.get((record["run"]["dataset"], record["run"]["split"]))
    if truth is None:
        return None
    own = parameters(record)
    steps, moved = min(len(own), len(truth)), trained(truth)
    return np.log(own[:steps, moved] / truth[:steps, moved]).ravel()
