"""The accuracy of a model: how far its predictions may be from exact ones at the same θ, in predictive std.

A solution v̂ of H v = y that leaves the residual r = y − H v̂ moves the mean at a point * by w*ᵀr with w* = H⁻¹k*, and

    σ²|w*|² ≤ Var(f* | y)          (the noise that reaches a prediction is part of its variance)

so that |w*ᵀr| is at most |r|/σ standard deviations, and of the order of rms(r)/σ of them where r does not conspire with
w*. Where rows have noise of their own, Σ d_i w*_i² ≤ Var(f* | y), and what counts is r_i/√d_i. What
rounding does to the product k*ᵀv̂ of a prediction comes on top. Both are measured on up to ``ROWS`` training rows in
float64, from the inputs before any rounding, whatever the solver said of itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.gradient import PathwiseDraw
from warmgp.gradient.base import columns
from warmgp.operators.part import Part
from warmgp.posterior import Posterior
from warmgp.training.precision import some_rows
from warmgp.training.problem import Problem

MEAN, WORST, SAMPLES = 0.05, 0.3, 0.3
"""Errors, in units of σ, that a model which has converged may have: of the mean, so that it is within 0.1 standard
deviations of exact at 999 points of 1,000; of the mean at any single row; of the posterior functions, which adds at
most 9% to a variance, 5% to a standard deviation."""

ROWS = 1024
"""The most training rows that are looked at: more than at every step, because it is done once a fit."""


@dataclass(frozen=True)
class Accuracy:
    """Holds the errors that the last solve and rounding have left, measured on training rows, in units of the noise σ.

    A predictive standard deviation is at least σ.

    Attributes
    ----------
    mean : float
        Root mean square error of the predictive mean; of several targets that of the worst.
    worst : float
        Largest error of the predictive mean: errors may sit in a few rows.
    samples : float
        Root mean square error of the posterior functions, behind a standard deviation that is not exact, or of the
        trend's, if that is larger.
    """

    mean: float
    worst: float
    samples: float

    @property
    def suffices(self) -> bool:
        """Whether predictions are as exact as a model that has converged promises."""
        return self.mean <= MEAN and self.worst <= WORST and self.samples <= SAMPLES


def accuracy(posterior: Posterior, problem: Problem, draw: PathwiseDraw) -> Accuracy:
    """Judges a posterior, which has all rows, by float64 rows of H at its θ. ``draw`` holds the probes that it was
    solved for, by the rows of this process."""
    rows = some_rows(len(posterior.x), posterior.x.device, ROWS)
    part = problem.operator.at(posterior.theta).part
    double = part.in_float64(problem.x_exact)
    found = double.rows_matmul(rows, double.own(posterior.solution).double())  # (rows, q + s)
    f = posterior.prior.evaluate(posterior.x[rows], posterior.theta).double()
    noise = double.operator.noise
    scale = noise.scale_at(rows)  # σ, or √d of those rows, (rows, 1)
    first = columns(_first(posterior, problem, rows))
    targets = torch.cat([first, f + scale * double.take(draw.noise, rows).double()], 1)
    rounded = posterior.products(posterior.x[rows]).double() + noise.times(posterior.solution[rows].double(), rows)
    squares = ((targets - found).square() + (rounded - found).square()) / scale**2
    mean, samples = squares.tensor_split((posterior.n_targets,), 1)
    spread = max(float(samples.mean().sqrt()), _of_trend(posterior, problem, double, rows))
    return Accuracy(float(mean.mean(0).max().sqrt()), float(mean.max().sqrt()), spread)


def _first(posterior: Posterior, problem: Problem, rows: Tensor) -> Tensor:
    """Returns what the targets' systems were solved for at some rows: y, or what the trend leaves of it."""
    y = problem.y_exact[rows]
    if problem.trend is None or posterior.trend is None:
        return y
    beside = posterior.trend.estimates - problem.trend.offset
    return y - posterior.trend.basis.at(problem.x_exact[rows]) @ beside


def _of_trend(posterior: Posterior, problem: Problem, double: Part, rows: Tensor) -> float:
    """Returns the error of the trend in units of σ: the residual of its systems for a β drawn from N(0, A⁻¹)."""
    if problem.trend is None or posterior.trend is None:
        return 0.0
    trend, noise = posterior.trend, double.operator.noise
    residual = trend.basis.at(problem.x_exact[rows])
    residual = residual - double.rows_matmul(rows, double.own(trend.solution).double())
    variance = ((residual @ trend.covariance) * residual).sum(1)
    if double.operator.rows is None:
        return float(variance.mean().sqrt()) / noise.scale
    return float((variance / noise.at(rows)).mean().sqrt())
