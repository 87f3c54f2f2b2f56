"""Scores on held-out points from the solutions of one step, while training runs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warmgp.gradient.features import FeaturePrior
from warmgp.posterior import Posterior, within_reach
from warmgp.training.problem import Problem
from warmgp.training.trend import posterior_trend
from warmgp.trend import TrendSolution


def validation_metrics(
    problem: Problem, found: TrendSolution | None, solution: Tensor, functions: FeaturePrior | None
) -> dict[str, float]:
    """Returns the RMSE of the mean on held-out points, and the mean log-likelihood where the probes are functions.

    Held-out points have the noise σ², of weight one. ``found`` is what the step found of the trend, if there is one.
    Nothing is returned where nothing is held out.
    """
    if problem.held_out is None:
        return {}
    operator, (x, y) = problem.operator, problem.held_out
    y, trend = y.double(), posterior_trend(problem, found, operator.theta, solution)
    if functions is None:
        near = within_reach(x, operator.x, operator.theta, operator.kernel)
        error = y - operator.cross_matmul(near, solution[:, :1])[:, 0].double()
        error -= 0.0 if trend is None else trend.mean(x)
        return {"rmse": float(error.square().mean().sqrt())}
    posterior = Posterior(
        operator.x, operator.kernel, operator.theta, solution, functions, trend=trend, noise=operator.rows
    )
    mean, latent = posterior.mean_and_variance(x)
    error, variance = y - mean.double(), latent.double() + posterior.noise_variance
    likelihood = -0.5 * (error.square() / variance + torch.log(2 * math.pi * variance))
    return {"rmse": float(error.square().mean().sqrt()), "llh": float(likelihood.mean())}
