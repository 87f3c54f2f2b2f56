"""A callback that ends training early, by a score on held-out data.

A callback is anything callable with (record, state) after each step; returning True ends training after it.
"""

from __future__ import annotations

import math

from warmgp.training.state import StepRecord, TrainingState


class EarlyStopping:
    """Stops when a held-out metric has not improved for some steps. Needs ``fit(X, y, validation=(X_val, y_val))``.

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

    def __call__(self, record: StepRecord, state: TrainingState) -> bool:
        if self.metric not in record.metrics:
            raise ValueError(
                f"EarlyStopping needs the held-out {self.metric}: call fit(X, y, validation=(X_val, y_val))"
                + (' with gradient="pathwise" or "exact"' if self.metric == "llh" else "")
            )
        return self.has_stopped(state)

    def has_stopped(self, state: TrainingState) -> bool:
        """Says whether training was to end at or before this step.

        The history alone decides, so that a resumed training ends where it would have, and one that has ended does not
        go on.
        """
        sign = 1 if self.metric == "rmse" else -1
        best, since = math.inf, 0
        for metrics in (step.metrics for step in state.history):
            if self.metric in metrics:
                loss = sign * metrics[self.metric]
                best, since = (loss, 0) if loss < best - self.min_delta else (best, since + 1)
        return since >= self.patience
