"""What a user has to be told about a fit that ran well and is no good: worded here, warned of once, kept in the report.

Each remark says what was seen, what it means for predictions, and what to do. What costs nothing is looked at in every
fit; what costs something only where it was left to us how to train.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warmgp.checks import warn_user
from warmgp.data.outliers import FloatArray, Outliers, outliers, outliers_of
from warmgp.estimator.convergence import ConvergenceWarning
from warmgp.estimator.parameters import USUAL_FLOOR, floor_of
from warmgp.hyperparameters import Hyperparameters
from warmgp.planning.plan import Plan
from warmgp.planning.request import is_auto
from warmgp.posterior import Posterior
from warmgp.solvers.triangular import inverse_from_factor
from warmgp.training.explained import constant_likelihood, near_gain, quick_gain
from warmgp.training.loop import TrainingResult
from warmgp.training.settling import LEAST_GAIN, WINDOW, rising

NATS, LEAST_R2 = 2.0, 0.2
"""A model explains nothing that is at most so many nats likelier in all than a constant with noise, and predicts a
point from all others with an R² below this."""

NEAR_NATS = 0.002
"""The same by points given near ones, where there is no factor of H: nats a point, beside their standard error."""

OVERSURE, UNSURE = 1.5, 0.3
"""Root mean squares of errors of left-out points, in predicted standard deviations, beyond which noise at its floor is
held to be too little, or too much."""

WORTH_MORE = 5e-4
"""Nats a point that each of the last steps has to add before somebody who has left their number open is warned: 30 more
steps would add some 0.01. Less is told in the report."""

FAR_WORSE = 0.5
"""Nats a point by which given hyperparameters may be less likely than those of a quick climb."""


# -- before training -------------------------------------------------------------------------------------------------
def remark_outliers(X: FloatArray, y: FloatArray, names: Sequence[str | int], targets: Sequence[str] = ()) -> None:
    """Warns where few values rule a target, or a column of X, in the user's units; several targets have names."""
    for which, column in enumerate(y.reshape(len(y), -1).T):
        there = np.flatnonzero(~np.isnan(column))
        if (found := outliers(column[there])) is None:
            continue
        found = replace(found, rows=tuple(int(there[row]) for row in found.rows))
        warn_user(
            f"{f'the target {targets[which]!r}' if targets else 'y'} has {_values(found)}: its standard deviation is "
            f"{found.times:.2g} times that of the others, beside which they look alike, so predictions will hardly "
            "tell ordinary rows apart. Correct or leave out what is a mistake; fit the logarithm of y where such "
            "values are real"
        )
    for name, ruled in outliers_of(X, names):
        warn_user(
            f"column {name!r} of X has {_values(ruled)}: in units of its standard deviation, {ruled.times:.2g} times "
            "that of the others, they look alike, so it will hardly count in predictions of ordinary rows. Correct or "
            "leave out what is a mistake; use the logarithm, or a rank, of the column where such values are real"
        )


def _values(found: Outliers) -> str:
    """Says which values rule a column, in which rows, and where all others are."""
    listed = ", ".join(f"{value:.6g} in row {row}" for row, value in zip(found.rows, found.values, strict=True))
    return f"{listed}, counted from 0, and all others are between {found.usual[0]:.4g} and {found.usual[1]:.4g}"


# -- after training --------------------------------------------------------------------------------------------------
def judged(
    model: Any, plan: Plan, points: tuple[FloatArray, FloatArray], result: TrainingResult
) -> tuple[str, tuple[str, ...]]:
    """Returns why the steps of a fit ended, and what has to be said of it; warns of what is to be acted on.

    ``model`` is the estimator, of which parameters and the likelihood are asked for; ``points`` are x, (n, d), and y,
    (n,) or (n, q), in standardised units.
    """
    y = torch.as_tensor(points[1])
    left_open, remarks = is_auto(model.n_steps), []
    reason = result.stopped_early or ("settled" if len(result.history) < plan.n_steps else "steps")
    if plan.climb is not None and plan.climb.points >= len(y) and reason == "steps" and left_open:
        reason = "settled"  # in the climb: the steps after it are for the records
    known = model.likelihood_
    nothing = _explains_nothing(None if known is None else known.value, y, result, left_open)
    if nothing:
        reason = "flat" if reason == "settled" else reason
        remarks.append(nothing)
        if left_open or (len(result.history) >= WINDOW and rising(result.history) <= LEAST_GAIN):
            warn_user(nothing, ConvergenceWarning)  # who names few steps has not asked for all that there is to find
    elif reason == "steps" and (gain := rising(result.history)) > LEAST_GAIN:
        told = _unfinished(len(result.history), gain, left_open)
        remarks.append(told)
        if left_open and gain > WORTH_MORE:
            warn_user(told, ConvergenceWarning)
    if (told := _misfit(model, plan, points, result)) and not nothing:
        remarks.append(told)
        warn_user(told)
    if floored := _at_floor(result, y, floor_of(model.noise_floor)):
        remarks.append(floored[0])
        if floored[1]:
            warn_user(floored[0])
    if result.noise_found is not None:
        remarks.append(raised(result.noise_found, float(result.theta.noise_scale)))
    return reason, tuple(remarks)


def _explains_nothing(likelihood: float | None, y: Tensor, result: TrainingResult, left_open: bool) -> str:
    """Says that a model is no better than a constant; "" where it is.

    By the likelihood and by points that are left out, where there is a factor of H; else by points given near ones, and
    left out, unless the steps were named, by whoever wants no more than these. Near ones alone do not tell: of a smooth
    function of eight inputs with hardly any noise 36,000 points know all, and the nearest 30 hardly anything.
    """
    posterior = result.posterior
    if likelihood is not None:
        constant = constant_likelihood(y)
        if likelihood - constant > NATS or _left_out(result.posterior, y).r2 > LEAST_R2:
            return ""
        seen = f"log marginal likelihood {likelihood:.1f}, {constant:.1f} by a constant with noise"
    elif left_open:
        gain, error = near_gain(
            posterior.x, y.to(posterior.x.device), posterior.kernel, result.theta, torch.Generator().manual_seed(0),
            posterior.noise,
        )  # fmt: skip
        if gain > NEAR_NATS + error or _left_out(result.posterior, y).r2 > LEAST_R2:
            return ""
        seen = f"a point is {gain:.2g} nats likelier given near ones than by a constant with noise"
    else:
        return ""
    return (
        f"the model explains nothing of y ({seen}): predictions are about the mean everywhere. Either X does not tell "
        "y (look for shuffled rows, a wrong column, an outlier), or training began where points do not know of each "
        'other: leave init and n_steps at "auto", or give init=Hyperparameters(...) with longer length scales'
    )


def _unfinished(steps: int, gain: float, left_open: bool) -> str:
    """Says that training took all its steps, and that more would have helped."""
    more = f"n_steps={max(2 * steps, 100)}"
    return (
        f"all {steps} steps were taken and the likelihood was still rising, by {gain:.2g} nats a point with each of "
        f"the last ones: predictions may improve. Use {more}, or go on with kernel=model.kernel_, "
        f"init=model.hyperparameters_" + ("" if left_open else ', or leave n_steps at "auto"')
    )


def _misfit(model: Any, plan: Plan, points: tuple[FloatArray, FloatArray], result: TrainingResult) -> str:
    """Says that hyperparameters that were given do not fit the data; "" where they do, or steps were named."""
    kept = is_auto(model.n_steps) or plan.n_steps == 0
    if not isinstance(model.init, Hyperparameters) or not kept or len(points[0]) < 10:
        return ""
    x, y = (torch.as_tensor(values).to(plan.device) for values in points)
    posterior = result.posterior
    gain, best = quick_gain(x, y, posterior.kernel, result.theta, torch.Generator().manual_seed(0), posterior.noise)
    if gain >= FAR_WORSE:  # by near points; all others may say more
        gain = min(gain, best - _left_out(posterior, y).gain)
    if gain < FAR_WORSE:
        return ""
    remedy = "Other data have others: train on from them, with n_steps above 0, or anew"
    if model.init.units is None:
        remedy = (
            "They are in standardised units, of data with another spread, say: pass model.hyperparameters_ as they "
            "are, which know their units, or train anew"
        )
    return (
        f"the hyperparameters that init gives do not fit these data: a quick search finds some under which a point is "
        f"{gain:.2g} nats likelier, so predictions and error bars may be far off. {remedy} "
        '(init="auto", n_steps="auto")'
    )


def raised(found: float, noise: float) -> str:
    """Says that the model has more noise than training found, and how to have that."""
    return (
        f"the noise is {noise:.2g} standard deviations of y, where training found {found:.2g}: few rows vouch for so "
        "little, such as rows that are there twice, and a new row that contradicts one of them would be predicted far "
        f"too surely. Error bars of other rows hardly change. Give noise_floor={USUAL_FLOOR:g} where there is no noise"
    )


def _at_floor(result: TrainingResult, y: Tensor, floor: float) -> tuple[str, bool] | None:
    """Says that the noise is at its floor, and whether points that are left out are predicted badly for that."""
    noise = float(result.theta.noise_scale)
    if not floor or noise > 1.001 * floor:
        return None
    told = f"the noise is at its floor, {floor:g} standard deviations of y"
    if result.posterior.factor is None:
        return told, False
    errors = _left_out(result.posterior, y).errors
    if errors > OVERSURE:
        return (
            f"{told}, and points that are left out are {errors:.2g} predicted standard deviations off: error bars are "
            "too small. Raise noise_floor to the error of your measurements over the standard deviation of y"
        ), True
    if errors < UNSURE and floor > USUAL_FLOOR:
        return (
            f"{told}, and points that are left out are {errors:.2g} predicted standard deviations off: error bars are "
            "too wide. Lower noise_floor"
        ), True
    return told, False


@dataclass(frozen=True)
class _LeftOut:
    """Holds what training points, each predicted from all others, say of a model; by default nothing.

    Attributes
    ----------
    r2 : float
        The share of the variance of y that is predicted.
    errors : float
        The root mean square error in predicted standard deviations.
    gain : float
        How many nats likelier a point is than by a constant with noise.
    """

    r2: float = -math.inf
    errors: float = math.nan
    gain: float = -math.inf


def _left_out(posterior: Posterior, y: Tensor) -> _LeftOut:
    """Returns what is said by errors v_i/(H⁻¹)_ii of variance 1/(H⁻¹)_ii, with v = H⁻¹y.

    The diagonal is that of the factor, or the mean square of the solutions of samples, which is right within √(2/s):
    enough for a remark, where :mod:`warmgp.leave_one_out` makes more of it.
    """
    q = posterior.n_targets
    if posterior.factor is not None:
        inverse = inverse_from_factor(posterior.factor.double()).diagonal()
    elif posterior.n_samples:
        inverse = posterior.solution[:, q:].double().square().mean(1)
    else:
        return _LeftOut()
    if not bool((inverse > 0).all()):  # rows that no solve has come to
        return _LeftOut()
    v, inverse = posterior.solution[:, :q].double(), inverse[:, None]
    variance = y.double().reshape(len(y), q).square().mean(0).to(v.device)  # of each target, (q,)
    squares = v.square() / inverse  # of errors in standard deviations, (n, q)
    r2 = 1.0 - float((v / inverse).square().mean(0).sum() / variance.sum())
    gain = float((inverse.log() - squares + variance.log() + 1.0).mean()) / 2
    return _LeftOut(r2, float(squares.mean().sqrt()), gain)
