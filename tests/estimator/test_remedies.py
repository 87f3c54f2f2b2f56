"""A remedy is one that is not taken already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from warmgp import ConjugateGradients, GPRegressor, Pathwise, SolveResult, StoppingRule
from warmgp.estimator.convergence import unsolved
from warmgp.planning.planner import make_plan
from warmgp.training.accuracy import Accuracy

FLOAT64 = pytest.mark.parametrize(("dtype", "told"), [("float32", True), ("float64", False)])


@FLOAT64
def test_who_solves_in_float64_is_not_told_to(dtype: str, told: bool) -> None:
    v = torch.zeros(3, 2, dtype=getattr(torch, dtype))
    final = SolveResult(v, 0.5, 0.5, True, 1, 1.0, 0.0, False, "stagnated", 0.0)
    message = unsolved(final, make_plan(100, device="cpu"), Accuracy(0.5, 1.0, 0.5))
    assert ("float64" in message) is told
    assert "a higher noise_floor" in message


@pytest.mark.parametrize(
    ("mean", "samples", "verdict"),
    [(0.2, 0.4, "less accurate than asked"), (1.5, 0.4, "Do not trust"), (0.2, 1.2, "Do not trust"),
     (float("nan"), 0.1, "Do not trust")],
)  # fmt: skip
def test_a_warning_says_what_it_means_for_predictions(mean: float, samples: float, verdict: str) -> None:
    final = SolveResult(torch.zeros(3, 2), 0.05, 0.05, True, 1, 1.0, 0.0, False, "budget", 0.0)
    plan = replace(make_plan(100, device="cpu"), rule=StoppingRule(0.01, 6.0))
    message = unsolved(final, plan, Accuracy(mean, 9.0, samples))
    assert verdict in message and "raise max_epochs (now 6)" in message
    assert f"off by about {mean:.2g} predictive standard deviations" in message and f"std by {samples:.2g}" in message
    own = unsolved(final, replace(plan, last_epochs=100.0), Accuracy(mean, 9.0, samples))
    assert "raise max_epochs (now 100)" in own  # that of the last solve


@FLOAT64
def test_who_trains_in_float64_is_not_told_to(dtype: str, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pathwise, "gradient", lambda *_: torch.full((3,), torch.nan, dtype=torch.float64))
    X = np.linspace(0, 1, 30)[:, None]
    model = GPRegressor(solver=ConjugateGradients(), gradient="pathwise", dtype=dtype, n_steps=2, device="cpu")
    with pytest.raises(FloatingPointError, match="is not finite") as error:
        model.fit(X, np.sin(X[:, 0]))
    assert ("float64" in str(error.value)) is told
    assert "another solver, or a higher noise_floor" in str(error.value)
