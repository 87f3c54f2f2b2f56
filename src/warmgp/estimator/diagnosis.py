"""What is to be known about a fitted model, from its own training rows: ``model.diagnose()``."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import kstest

from warmgp.estimator.advice import advice
from warmgp.estimator.dependence import Dependence, dependences, in_turn
from warmgp.estimator.left_out import LeaveOneOut

FloatArray = NDArray[np.float64]

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""The intervals whose coverage is counted."""

WORST, SHOWN = 10, 5
"""The rows that are named as worst, and those that are printed."""

WIDTH = 100
"""Letters in a line of what is printed."""


@dataclass(frozen=True)
class WorstRow:
    """Names a row that its model did not expect: its number, counted from 0, and what all others say of it."""

    row: int
    y: float
    mean: float
    std: float
    residual: float


@dataclass(frozen=True)
class Diagnosis:
    """Holds how well a model predicts its own rows, each from all others, and what follows. ``print`` it.

    Attributes
    ----------
    rows : int
        Training rows.
    exact : bool
        Whether the predictions of left-out rows are exact.
    rmse, r2 : float
        Root mean square error in units of y, and the share of the variance of y that is predicted.
    log_density : float
        The mean log predictive density, in nats: the larger, the better, for the same y.
    error : float
        How far left-out means are from the exact ones, in predictive std: a root mean square; 0 where exact.
    residual_std : float
        The root mean square of (y − mean)/std: 1 where error bars are right, above where they are too small.
    coverage : dict of float to float
        The share of rows inside the interval of each level.
    pit : ndarray, (10,)
        The share of rows in each tenth of their predictive distribution: 0.1 each where the model is right.
    pit_distance, pit_probability : float
        The largest difference of their distribution to the uniform one, and the probability of so much by chance (of
        independent rows, which left-out rows are nearly).
    worst : tuple of WorstRow
        The rows with the largest residuals.
    dependences : tuple of Dependence
        How much residuals depend on each input, on the order of rows, and on the prediction.
    in_turn : float
        The correlation of residuals of rows that follow each other.
    relevance : dict of str to float
        The length scale of each input in units of its spread in the data, shortest first: below 1 the function goes up
        and down along it, above 10 it is nearly straight.
    effects : dict of str to float
        How much the function changes between two random rows that differ in one input alone, by the model: a standard
        deviation, in units of y. Below the noise an input hardly counts.
    remarks : tuple of str
        What was seen, what it means and what to do about it.
    """

    rows: int
    exact: bool
    rmse: float
    r2: float
    log_density: float
    error: float
    residual_std: float
    coverage: Mapping[float, float]
    pit: FloatArray
    pit_distance: float
    pit_probability: float
    worst: tuple[WorstRow, ...]
    dependences: tuple[Dependence, ...]
    in_turn: float
    relevance: Mapping[str, float]
    effects: Mapping[str, float]
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = "exactly" if self.exact else f"to {self.error:.2g} of their std"
        inside = ", ".join(f"{level:.0%}: {share:.1%}" for level, share in self.coverage.items())
        lines = [
            f"{self.rows:,} rows, each predicted from all others ({how})",
            f"  RMSE {self.rmse:.4g}, R² {self.r2:.3f}, mean log density {self.log_density:.4g}",
            f"  rows inside intervals: {inside}",
            f"  residuals in std: {self.residual_std:.3f} (1 is right); distance to the uniform distribution "
            f"{self.pit_distance:.3f}",
            "  length scales in spreads of the data: "
            + ", ".join(f"{name} {length:.2g}" for name, length in self.relevance.items()),
            "  change along inputs, in units of y: "
            + ", ".join(f"{name} {effect:.2g}" for name, effect in self.effects.items()),
            "  worst rows: "
            + "; ".join(f"{w.row}: {w.y:.4g}, predicted {w.mean:.4g} ± {w.std:.2g}" for w in self.worst[:SHOWN]),
            "remarks" if self.remarks else "nothing to remark: residuals show no pattern",
            *(f"- {remark}" for remark in self.remarks),
        ]
        return "\n".join(_wrapped(line) for line in lines)


def _wrapped(line: str) -> str:
    """Returns a line cut to the width, its later parts set in."""
    return textwrap.fill(line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def diagnosed(model: Any, loo: LeaveOneOut) -> Diagnosis:
    """Returns the diagnosis of a fitted estimator from its left-out predictions."""
    z, squares = loo.residual, (loo.y - loo.mean) ** 2
    pit = ndtr(z)
    test = kstest(pit, "uniform")
    found, turn, relevance = dependences(model, loo), in_turn(loo), relevance_of(model)
    effects = effects_of(model, relevance)
    coverage = {level: float(np.mean(np.abs(z) <= ndtri(0.5 + level / 2))) for level in LEVELS}
    return Diagnosis(
        rows=len(z),
        exact=loo.exact,
        rmse=loo.rmse,
        r2=1.0 - float(squares.sum() / np.sum((loo.y - loo.y.mean()) ** 2)),
        log_density=float(loo.log_density.mean()),
        error=loo.error_in_std,
        residual_std=float(np.sqrt(np.mean(z**2))),
        coverage=coverage,
        pit=np.histogram(pit, bins=10, range=(0.0, 1.0))[0] / len(z),
        pit_distance=float(test.statistic),
        pit_probability=float(test.pvalue),
        worst=_worst(loo),
        dependences=found,
        in_turn=turn,
        relevance=relevance,
        effects=effects,
        remarks=advice(model, loo, coverage, found, turn, effects),
    )


def _worst(loo: LeaveOneOut) -> tuple[WorstRow, ...]:
    """Returns the rows with the largest residuals, the worst first."""
    order = np.argsort(-np.abs(loo.residual), kind="stable")[:WORST]
    parts = (loo.rows, loo.y, loo.mean, loo.std, loo.residual)
    return tuple(WorstRow(int(row), *map(float, rest)) for row, *rest in zip(*(p[order] for p in parts), strict=True))


def relevance_of(model: Any) -> dict[str, float]:
    """Returns the length scale of each thing in units of its spread over the training rows, the shortest first.

    Turned inputs are told as "along" and "across". What was constant is left out.
    """
    scaler, x = model.scaler_, model.posterior_.x.double().cpu().numpy()
    spread = scaler.columns.shared(x.std(0))
    lengths = model.hyperparameters_.length_scales.expand(x.shape[1]).numpy()
    if scaler.angle:
        order = np.argsort(-lengths / spread)  # the longest is along
        found = dict(zip(("along", "across"), (lengths / spread)[order].tolist(), strict=True))
    else:
        groups = zip(scaler.columns.things, scaler.columns.groups, strict=True)
        found = {
            name: float(lengths[inputs[0]] / spread[inputs[0]])
            for name, (_, inputs, _) in groups
            if spread[inputs[0]] > 0
        }
    return dict(sorted(found.items(), key=lambda item: item[1]))


def effects_of(model: Any, relevance: Mapping[str, float]) -> dict[str, float]:
    """Returns how much the function changes between two random rows that differ in one thing alone, in units of y.

    Two rows are √2 spreads apart, and by the prior √(2s²(1 − k(√2/ℓ))) is the standard deviation of their difference.
    A long length scale is no sign that an input does not count: a line along it has one, and a large signal s.
    """
    r = 2.0**0.5 / torch.tensor(list(relevance.values()), dtype=torch.float64)
    changes = (2.0 * (1.0 - model.kernel_.profile(r))).clamp_min(0.0).sqrt() * model.signal_std_
    return dict(zip(relevance, changes.tolist(), strict=True))
