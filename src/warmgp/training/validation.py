"""Scores on held-out points from the solutions of one step, while training runs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warmgp.gradient.features import FeaturePrior
from warmgp.operators.base import KernelOperator
from warmgp.posterior import Posterior, within_reach


def validation_metrics(
    operator: KernelOperator, solution: Tensor, functions: FeaturePrior | None, x: Tensor, y: Tensor
) -> dict[str, float]:
    """Returns the RMSE of the mean on held-out points, and the mean log-likelihood where the probes are functions."""
    y = y.double()
    if functions is None:
        near = within_reach(x, operator.x, operator.theta, operator.kernel)
        error = y - operator.cross_matmul(near, solution[:, :1])[:, 0].double()
        return {"rmse": float(error.square().mean().sqrt())}
    posterior = Posterior(operator.x, operator.kernel, operator.theta, solution, functions)
    mean, latent = posterior.mean_and_variance(x)
    error, variance = y - mean.double(), latent.double() + posterior.noise_variance
    likelihood = -0.5 * (error.square() / variance + torch.log(2 * math.pi * variance))
    return {"rmse": float(error.square().mean().sqrt()), "llh": float(likelihood.mean())}
