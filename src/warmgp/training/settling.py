"""When a training has settled: what its last steps were expected to add to the likelihood."""

from __future__ import annotations

from collections.abc import Sequence

from warmgp.training.state import StepRecord

WINDOW = 10
"""Steps that are looked at."""

LEAST_GAIN = 5e-5
"""Log-likelihood per point that a step has to add, or lose, to matter."""


def settled(history: Sequence[StepRecord]) -> bool:
    """Says whether the last ``WINDOW`` steps have mattered little: by less than ``LEAST_GAIN`` on average, up or down.

    What a step should gain, in log-likelihood per point, is the gradient times the step. Unlike the steps themselves it
    does not wait for length scales that may grow for ever because nothing depends on them. Steps that go to and fro do
    not count as settled.
    """
    last = [abs(record.gain) for record in history[-WINDOW:]]
    return len(last) == WINDOW and sum(last) < WINDOW * LEAST_GAIN
