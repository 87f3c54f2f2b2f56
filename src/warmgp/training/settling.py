"""When a training has settled: what its last steps were expected to add to the likelihood."""

from __future__ import annotations

from collections.abc import Sequence

from warmgp.training.state import StepRecord

WINDOW = 10
"""Steps that are looked at."""

LEAST_GAIN = 5e-5
"""Log-likelihood per point that a step has to add, or lose, to matter."""


def rising(history: Sequence[StepRecord]) -> float:
    """Returns what the last ``WINDOW`` steps should have added to the log-likelihood per point, on average, up and down
    set off against each other; 0 where there were fewer."""
    last = [record.gain for record in history[-WINDOW:]]
    return sum(last) / WINDOW if len(last) == WINDOW else 0.0


def settled(history: Sequence[StepRecord]) -> bool:
    """Says whether the last ``WINDOW`` steps have mattered little: by less than ``LEAST_GAIN`` on average, up or down.

    What a step should gain, in log-likelihood per point, is the gradient times the step. Unlike the steps themselves it
    does not wait for length scales that may grow for ever because nothing depends on them. Steps that go to and fro do
    not count as settled.
    """
    last = [abs(record.gain) for record in history[-WINDOW:]]
    return len(last) == WINDOW and sum(last) < WINDOW * LEAST_GAIN
