"""Several targets in one fit: what cannot be had with them, and what is kept of those known in rows of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from warmgp.estimator.drift import inverse_diagonal
from warmgp.posterior import Posterior

FloatArray = NDArray[np.float64]

MOST_PATTERNS = 8
"""The most patterns of missing values: each has a matrix H and solves of its own."""

FAR_APART, TOO_NARROW = 2.0, 1.3
"""How many times the errors of one target, in predicted standard deviations, may be those of another, and what they may
be at all: beyond both they are said to be unlike."""

APART = "fit the targets apart, one model for each"
"""The remedy for what several targets cannot have."""


@dataclass(frozen=True)
class Pattern:
    """Holds targets that are known in rows of their own, and their posterior.

    Attributes
    ----------
    which : tuple of int
        The numbers of the targets.
    posterior : Posterior
        The model's kernel, hyperparameters and inputs, given these rows.
    rows : ndarray of int, (n,)
        The numbers of the rows in the user's X.
    y : ndarray, (n,), or (n, k) for k targets
        Their values, in the user's units.
    """

    which: tuple[int, ...]
    posterior: Posterior
    rows: NDArray[np.int64]
    y: FloatArray

    def to(self, device: torch.device | str) -> Pattern:
        """Returns the same on ``device``."""
        return replace(self, posterior=self.posterior.to(device))


def check_several(model: Any, names: Sequence[str], y: FloatArray, noise_variance: ArrayLike | None) -> None:
    """Raises where several targets are given with what only one can have, or with values missing here and there."""
    if not names:
        return
    for j, name in enumerate(names):
        if name in names[:j]:
            raise ValueError(f"y has two columns {name!r}: give each target a name of its own")
    told = f"y has {len(names)} targets, and"
    if model.robust:
        raise ValueError(f"{told} robust=True weighs the rows of one: {APART}, or use robust=False")
    if noise_variance is not None:
        raise ValueError(
            f"{told} noise_variance is in the units of one: each would have a kernel matrix of its own: {APART}"
        )
    lack = np.isnan(y)
    if not lack.any():
        return
    count = len(np.unique(lack, axis=1).T)
    if count > MOST_PATTERNS:
        raise ValueError(
            f"{told} their values are missing in {count} different sets of rows, each of which needs solves of its own "
            f"(at most {MOST_PATTERNS}): fill in values, leave out rows where some are missing, or {APART}"
        )
    if model.trend is not None:
        raise ValueError(f"{told} some values are missing, which trend={model.trend!r} does not allow: {APART}")


def unlike(names: Sequence[str], posteriors: Sequence[tuple[tuple[int, ...], Posterior]]) -> str:
    """Says that targets do not have the same share of noise; "" where they about do, or there is one.

    ``posteriors`` are those of the patterns, each with the numbers of its targets.

    The mean of v_i²/(H⁻¹)_ii is that of squared errors of left-out rows in predicted variances: it should be 1
    for every target.
    """
    if len(names) < 2:
        return ""
    errors: dict[int, float] = {}
    for which, posterior in posteriors:
        own, inverse = posterior.solution[:, : posterior.n_targets].double(), inverse_diagonal(posterior)[0].sum()
        errors |= dict(zip(which, (own.square().sum(0) / inverse).sqrt().tolist(), strict=True))
    low, high = min(errors, key=errors.__getitem__), max(errors, key=errors.__getitem__)
    if errors[high] <= TOO_NARROW or errors[high] <= FAR_APART * errors[low]:
        return ""
    return (
        f"the targets do not share one kernel well: rows that are left out are {errors[high]:.2g} predicted standard "
        f"deviations off in {names[high]!r}, whose error bars are too narrow, and {errors[low]:.2g} in {names[low]!r}, "
        f"whose are too wide. {APART[0].upper()}{APART[1:]}, or those together that have the same share of noise"
    )


def any_value(y: FloatArray, sample_weight: ArrayLike | None) -> Any:
    """Returns weights of rows that leave out those in which no target has a value; the given ones where there are
    none such."""
    if y.ndim == 1 or not (nothing := np.isnan(y).all(1)).any():
        return sample_weight
    if nothing.sum() > len(y) - 2:
        raise ValueError(
            f"y: {int((~nothing).sum())} of {len(y)} rows have the value of any target, and at least two are needed to "
            "learn from: check that the right columns were passed"
        )
    if sample_weight is None:
        return (~nothing).astype(np.float64)
    weights = np.array(sample_weight, dtype=np.float64)
    return np.where(nothing, 0.0, weights) if weights.shape == nothing.shape else weights


def gathered(parts: Sequence[tuple[tuple[int, ...], FloatArray]]) -> FloatArray:
    """Returns what patterns say of their targets, (m,) for one or (m, k, …) each, for all in order, (m, q, …)."""
    q = sum(len(which) for which, _ in parts)
    values = [part if len(which) > 1 else part[:, None] for which, part in parts]
    made = np.empty((len(values[0]), q, *values[0].shape[2:]))
    for (which, _), part in zip(parts, values, strict=True):
        made[:, list(which)] = part
    return made
