"""Callbacks that people ask for: stop early on held-out data, log every step to a file.

A callback is anything callable with (record, state) after each step; returning True ends training after it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path

from warmgp.training import StepRecord, TrainingState


class EarlyStopping:
    """Stop when a held-out metric has not improved for some steps. Needs ``fit(X, y, validation=(X_val, y_val))``.

    Training ends where it is, not at the best step: the solutions at hand are the last ones.

    Parameters
    ----------
    metric : {"rmse", "llh"}
    patience : int
        Steps without an improvement of more than ``min_delta``.
    min_delta : float
    """

    def __init__(self, metric: str = "rmse", patience: int = 10, min_delta: float = 0.0) -> None:
        if metric not in ("rmse", "llh"):
            raise ValueError(f'metric must be "rmse" or "llh", got {metric!r}')
        if patience < 1 or min_delta < 0:
            raise ValueError(f"patience must be at least 1 and min_delta at least 0, got {patience} and {min_delta}")
        self.metric, self.patience, self.min_delta = metric, patience, min_delta
        self._best, self._since = math.inf, 0

    def __call__(self, record: StepRecord, state: TrainingState) -> bool:
        if self.metric not in record.metrics:
            raise ValueError(
                f"EarlyStopping needs the held-out {self.metric}: call fit(X, y, validation=(X_val, y_val))"
                + (' with gradient="pathwise"' if self.metric == "llh" else "")
            )
        if record.step == 0:  # a new training
            self._best, self._since = math.inf, 0
        loss = record.metrics[self.metric] * (1 if self.metric == "rmse" else -1)
        if loss < self._best - self.min_delta:
            self._best, self._since = loss, 0
        else:
            self._since += 1
        return self._since >= self.patience


class JSONLines:
    """Append every step's record to a file, one JSON object a line, at once: ``tail -f`` shows training."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"cannot log to {self.path}: the folder {self.path.parent} does not exist")

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(record)) + "\n")
