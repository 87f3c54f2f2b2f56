"""The words of warnings: where a solve fell short of its tolerance, or predictions of what is promised."""

from __future__ import annotations

import math

import sklearn.exceptions
import torch

from warmgp.checks import warn_user
from warmgp.planning.plan import Plan
from warmgp.solvers import SolveResult
from warmgp.training.accuracy import MEAN, WORST, Accuracy
from warmgp.training.loop import TrainingResult


class ConvergenceWarning(sklearn.exceptions.ConvergenceWarning):
    """Warns that the final solve did not reach the tolerance, or that predictions are less exact than promised."""


def warn_of_failure(result: TrainingResult) -> None:
    """Warns where training ended by an error, and the model of the steps before it was kept."""
    if result.stopped_early.startswith("failed"):
        kept = f"The model of the {len(result.history)} steps before is kept"
        warn_user(f"training {result.stopped_early}. {kept}", ConvergenceWarning)


def warn_of_solve(plan: Plan, result: TrainingResult) -> None:
    """Warns where the last solve fell short of its tolerance, or predictions of what is promised."""
    if not result.final.converged:
        warn_user(unsolved(result.final, plan, result.accuracy), ConvergenceWarning)
    elif not result.accuracy.suffices:
        told = inexact(result.accuracy, plan, result.posterior.x.dtype, result.final.stop_reason)
        warn_user(told, ConvergenceWarning)


def inexact(found: Accuracy, plan: Plan, dtype: torch.dtype, stop_reason: str = "") -> str:
    """Says how far predictions may be from exact where a solve met its tolerance, why, and what would help;
    ``stop_reason`` is why that solve went no further."""
    single, epochs = dtype == torch.float32, _budget(plan)
    if stop_reason == "time":
        why, remedy = "the time limit ended the last solve", "raise time_limit"
    elif single and not plan.promote:
        why, remedy = "float32 rounds too much at so little noise", 'use dtype="auto" or "float64"'
    elif epochs is not None:
        why = f"{epochs:g} epochs leave too much at so little noise"
        remedy = "raise max_epochs" + (', or use dtype="float64"' if single else "")
    else:
        why, remedy = f"tol={plan.rule.tol:g} is coarse beside so little noise", "use a smaller tol, or another solver"
    what = f"the samples by about {found.samples:.2g}"
    if found.mean > MEAN or found.worst > WORST:
        what = f"the mean by about {found.mean:.2g} (at single points {found.worst:.2g})"
    verdict = "Do not trust them" if max(found.mean, found.samples) > 1 else "They are less accurate than promised"
    return (
        f"predictions differ from exact ones at the same hyperparameters, {what} predictive standard deviations: "
        f"{why}. {verdict}: {remedy}, or raise noise_floor."
    )


def unsolved(final: SolveResult, plan: Plan, found: Accuracy, what: tuple[str, str] = ("mean", "samples")) -> str:
    """Says how far the solve got, what that means for predictions, and what would help.

    ``what`` names the first system and the others.
    """
    precise = "" if final.solution.dtype == torch.float64 else 'dtype="float64" or '
    epochs = _budget(plan)
    remedy = {
        "budget": f"raise max_epochs (now {epochs:g}) or n_steps" if epochs else "",
        "time": "raise time_limit",
        "stagnated": f"use {precise}a higher noise_floor",
        "diverged": 'use solver="ap" or a smaller learning rate of the solver',
    }.get(final.stop_reason, "")
    wrong = max(found.mean, found.samples) > 1 or not all(map(math.isfinite, (found.mean, found.samples)))
    return (
        f"the final solve stopped ({final.stop_reason}) at relative residuals {final.residual_mean:.3g} ({what[0]}) "
        f"and {final.residual_probes:.3g} ({what[1]}), above tol={plan.rule.tol:g}: the mean may be off by about "
        f"{found.mean:.2g} predictive standard deviations, and the samples behind std by {found.samples:.2g}. "
        f"{'Do not trust the predictions' if wrong else 'Predictions are less accurate than asked'}: {remedy}."
    )


def _budget(plan: Plan) -> float | None:
    """Returns the budget of the last solve in epochs; None where it has none."""
    return plan.rule.max_epochs if plan.last_epochs is None else plan.last_epochs
