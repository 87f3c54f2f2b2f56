"""What to say where a solve fell short of its tolerance."""

from __future__ import annotations

import sklearn.exceptions
import torch

from warmgp.solvers import SolveResult, StoppingRule


class ConvergenceWarning(sklearn.exceptions.ConvergenceWarning):
    """The final solve did not reach the tolerance."""


def unsolved(final: SolveResult, rule: StoppingRule) -> str:
    """How far the solve got, what that means for predictions, and what would help."""
    precise = "" if final.solution.dtype == torch.float64 else 'dtype="float64" or '
    remedy = {
        "budget": f"raise max_epochs (now {rule.max_epochs:g}) or n_steps" if rule.max_epochs else "",
        "stagnated": f"use {precise}a higher noise_floor",
        "diverged": 'use solver="ap" or a smaller learning rate of the solver',
    }.get(final.stop_reason, "")
    worst = max(final.residual_mean, final.residual_probes)
    return (
        f"the final solve stopped ({final.stop_reason}) at relative residuals {final.residual_mean:.3g} (mean) "
        f"and {final.residual_probes:.3g} (samples), above tol={rule.tol:g}. "
        f"{'Do not trust the predictions' if worst > 0.1 else 'Predictions are less accurate than asked'}: {remedy}."
    )
