"""What a diagnosis says in words: what was seen in left-out rows, what it means for predictions, and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warmgp.data.column_kinds import ColumnKind
from warmgp.estimator.dependence import ORDER, PREDICTION, Dependence
from warmgp.estimator.left_out import LeaveOneOut

OFF = 0.02
"""The least difference of a coverage that is worth a word, beside three times that of chance."""

TAILED = 0.95
"""The root mean square of residuals from which on too wide an interval in the middle means rows far outside."""

FAR, BEYOND = 4.0, 1.0
"""Standard deviations from which a row is called an outlier: at least ``FAR``, and ``BEYOND`` the largest of as many
normal numbers."""

LISTED = 10
"""The most outliers that are named."""

IN_TURN = 0.05
"""The least correlation of rows that follow each other that is worth a word, beside four times that of chance."""

IRRELEVANT = 0.2
"""The change of the function along an input, in units of the noise, below which it hardly counts."""

LITTLE = 0.2
"""The share of the variance of y below which a model predicts little."""


def advice(
    model: Any,
    loo: LeaveOneOut,
    coverage: Mapping[float, float],
    found: Sequence[Dependence],
    turn: float,
    effects: Mapping[str, float],
) -> tuple[str, ...]:
    """Returns the remarks on a fitted estimator, those of its fit first."""
    told = list(model.report_.remarks)
    if not model.converged_:
        told.append(
            f"the last solve did not converge (solve_error_ {model.solve_error_:.2g} noise std): what left-out rows "
            "say is off by as much. Raise max_epochs, or leave it at None"
        )
    told += _of_bars(loo, coverage)
    told += _of_outliers(loo)
    told += [text for one in found for text in _of_dependence(one)]
    drifts = any(one.mean_seen for one in found if one.name == ORDER)
    if turn > max(IN_TURN, 4.0 / math.sqrt(len(loo.rows))) and not drifts:
        told.append(
            f"residuals of rows that follow each other are alike (correlation {turn:.2f}): something that changes from "
            "row to row is not in X, so error bars of averages over neighbouring rows are too small. Add the time, or "
            "whatever the rows are ordered by, as a column"
        )
    told += _of_inputs(model, loo, effects)
    return tuple(told)


def _of_bars(loo: LeaveOneOut, coverage: Mapping[float, float]) -> list[str]:
    """Says whether error bars are too small or too wide, or errors are not normal."""
    n = len(loo.rows)

    def off(level: float) -> float:
        difference = coverage[level] - level
        return difference if abs(difference) > max(OFF, 3.0 * math.sqrt(level * (1 - level) / n)) else 0.0

    seen = f"intervals of 50% hold {coverage[0.5]:.1%} of the rows, those of 90% {coverage[0.9]:.1%}, those of 99% " + (
        f"{coverage[0.99]:.1%}"
    )
    if off(0.5) > 0 and np.mean(loo.residual**2) > TAILED**2:
        return [
            f"{seen}: most errors are smaller than their error bars, and a few are far larger. Use robust=True where "
            "those are mistakes, noise_variance= or sample_weight= where some rows are known to be worse, the "
            "logarithm of y where it is skewed"
        ]
    if off(0.5) * off(0.9) < 0:
        return [
            f"{seen}: errors are not normal, so that intervals of some levels are too small and of others too wide. "
            "What is said below may be why; a few groups of rows that X does not tell apart do this, too"
        ]
    if off(0.5) < 0 or off(0.9) < 0:
        return [
            f"{seen}: error bars are too small. Training longer (n_steps), another kernel, or a higher noise_floor may "
            "mend it; rows that repeat each other, in groups, do this, too"
        ]
    if off(0.5) > 0 or off(0.9) > 0:
        return [
            f"{seen}: error bars are too wide. Train longer (n_steps), lower noise_floor where the noise is there, or "
            "check the noise_variance that was given"
        ]
    return []


def _of_outliers(loo: LeaveOneOut) -> list[str]:
    """Names the rows that no normal error explains."""
    limit = max(FAR, math.sqrt(2.0 * math.log(len(loo.rows))) + BEYOND)
    size = np.abs(loo.residual)
    order = np.argsort(-size, kind="stable")
    far = [int(i) for i in order[:LISTED] if size[i] > limit]
    if not far:
        return []
    count = int((size > limit).sum())
    rows = ", ".join(f"{loo.rows[i]} ({loo.residual[i]:+.1f} std)" for i in far) + (", …" if count > len(far) else "")
    are = "1 row is" if count == 1 else f"{count:,} rows are"
    return [
        f"{are} more than {limit:.1f} std from what all others say: {rows}, counted from 0. Such rows pull predictions "
        "near them and widen all error bars. Correct or leave out what is a mistake, or use robust=True"
    ]


def _of_dependence(one: Dependence) -> list[str]:
    """Says that residuals depend on something, and what may take that away."""
    told = []
    if one.mean_seen:
        seen = f"residuals depend on {one.name} ({one.of_mean:.1%} of their variance): predictions are off one way at "
        seen += "some values of it and the other way at others. "
        if one.name == ORDER:
            seen += "Something has drifted that is not in X: add the time, or the number of the row, as a column"
        elif one.name == PREDICTION:
            seen += 'The target bends where the model does not: try trend="linear", or another kernel'
        else:
            seen += _remedy(one)
        told.append(seen)
    if one.size_seen and not one.mean_seen:  # which moves sizes, too
        seen = f"the size of residuals depends on {one.name} ({one.of_size:.1%} of its variance): error bars are too "
        seen += "small at some values of it and too wide at others. "
        if one.name == PREDICTION:
            seen += "Fit the logarithm of y where errors grow with it; else give noise_variance= or sample_weight="
        else:
            seen += "Give noise_variance= or sample_weight= where the noise is known to differ, or fit parts apart"
        told.append(seen)
    return told


def _remedy(one: Dependence) -> str:
    """Returns what may help where residuals depend on an input."""
    if one.kind is None:
        periodic = f'columns={{"{one.name}": ("periodic", {one.period})}} if it repeats, ' if one.period else ""
        return f'Try {periodic}trend=["{one.name}"], another kernel, or train longer (n_steps)'
    return _of_kind(one.kind)


def _of_kind(kind: ColumnKind) -> str:
    """Returns what may help where residuals depend on columns that were said to be something."""
    if kind.reads == "date":
        return 'Try a period of it, ("date", "year", "week"), another kernel, or train longer (n_steps)'
    return "Try another kernel, or train longer (n_steps)"


def _of_inputs(model: Any, loo: LeaveOneOut, effects: Mapping[str, float]) -> list[str]:
    """Names inputs that hardly count, and says where all together tell little."""
    told = []
    idle = [name for name, change in effects.items() if change < IRRELEVANT * model.noise_std_]
    if idle and len(idle) < len(effects):
        listed = ", ".join(idle[:LISTED]) + (", …" if len(idle) > LISTED else "")
        told.append(
            f"{listed}: along these the function changes by less than a fifth of the noise, so they hardly count. "
            "Leave them out for a simpler model, unless they matter outside of the data"
        )
    if 1.0 - np.mean((loo.y - loo.mean) ** 2) / np.var(loo.y) < LITTLE:
        told.append(
            "left-out rows are hardly predicted better than by the mean of y: X tells little of y, and predictions are "
            "near that mean. Look for a column that is missing, or for shuffled rows"
        )
    return told
