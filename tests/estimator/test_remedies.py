"""A remedy is one that is not taken already."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from warmgp import ConjugateGradients, GPRegressor, Pathwise, SolveResult, StoppingRule
from warmgp.estimator.convergence import unsolved

FLOAT64 = pytest.mark.parametrize(("dtype", "told"), [("float32", True), ("float64", False)])


@FLOAT64
def test_who_solves_in_float64_is_not_told_to(dtype: str, told: bool) -> None:
    v = torch.zeros(3, 2, dtype=getattr(torch, dtype))
    final = SolveResult(v, 0.5, 0.5, True, 1, 1.0, 0.0, False, "stagnated", 0.0)
    message = unsolved(final, StoppingRule(tol=0.01))
    assert ("float64" in message) is told
    assert "a higher noise_floor" in message


@FLOAT64
def test_who_trains_in_float64_is_not_told_to(dtype: str, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pathwise, "gradient", lambda *_: torch.full((3,), torch.nan, dtype=torch.float64))
    X = np.linspace(0, 1, 30)[:, None]
    model = GPRegressor(solver=ConjugateGradients(), gradient="pathwise", dtype=dtype, n_steps=2, device="cpu")
    with pytest.raises(FloatingPointError, match="is not finite") as error:
        model.fit(X, np.sin(X[:, 0]))
    assert ("float64" in str(error.value)) is told
    assert "another solver, or a higher noise_floor" in str(error.value)
