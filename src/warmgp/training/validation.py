"""Scores on held-out points from the solutions of one step, while training runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from warmgp.gradient.features import FeaturePrior
from warmgp.operators.base import KernelOperator
from warmgp.operators.part import Part
from warmgp.posterior import Posterior, within_reach
from warmgp.training.problem import Problem
from warmgp.training.trend import posterior_trend
from warmgp.trend import TrendSolution

NO_FUNCTIONS = FeaturePrior(torch.empty(0, 0), torch.empty(0, 0), torch.empty(0, 0))
"""Stands for the prior functions of a posterior whose variances come from a factor."""


@dataclass(frozen=True)
class _Divided(Posterior):
    """Holds a posterior whose solutions are by the rows of each process: products with them are summed over all."""

    part: Part | None = None  # None where all rows are here

    def _operator(self) -> KernelOperator:
        # products are all that is asked of it where variances come from samples
        return super()._operator() if self.part is None else cast(KernelOperator, self.part)


def validation_metrics(
    problem: Problem,
    found: TrendSolution | None,
    solution: Tensor,
    functions: FeaturePrior | None,
    factor: Tensor | None = None,
) -> dict[str, float]:
    """Returns the RMSE of the mean on held-out points, and their mean log-likelihood where variances are to be had:
    from probes that are functions, or from the Cholesky factor of H in float64, (n, n).

    Held-out points have the noise σ², of weight one; over several targets both are averages. ``found`` is what the step
    found of the trend, if there is one.
    Nothing is returned where nothing is held out.
    """
    if problem.held_out is None:
        return {}
    operator, part, (x, y) = problem.operator, problem.operator.part, problem.held_out
    y, trend = y.double(), posterior_trend(problem, found, operator.theta, solution)
    if functions is None and factor is None:
        near = within_reach(x, operator.x, operator.theta, operator.kernel)
        found_mean = part.cross_matmul(near, solution[:, : problem.n_targets]).double()
        error = y - (found_mean if y.ndim > 1 else found_mean[:, 0])
        error -= 0.0 if trend is None else trend.mean(x)
        return {"rmse": float(error.square().mean().sqrt())}
    exact = functions is None
    if exact:  # with a factor of all rows
        solution = part.whole(solution)
        trend = trend and replace(trend, solution=part.whole(trend.solution))
    posterior = _Divided(
        operator.x, operator.kernel, operator.theta, solution, functions or NO_FUNCTIONS, exact=exact,
        factor=factor if exact else None, trend=trend, noise=operator.rows, n_targets=problem.n_targets,
        part=None if exact or part.alone else part,
    )  # fmt: skip
    mean, latent = posterior.mean_and_variance(x)
    error, variance = y - mean.double(), latent.double() + posterior.noise_variance
    variance = variance if y.ndim == 1 else variance[:, None]  # the same for every target
    likelihood = -0.5 * (error.square() / variance + torch.log(2 * math.pi * variance))
    return {"rmse": float(error.square().mean().sqrt()), "llh": float(likelihood.mean())}
