"""GPyTorch as the benchmarks use it: one model for all, Matérn-3/2, one length scale per input, zero mean."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters


def gpytorch_model(x: Tensor, y: Tensor, theta: Hyperparameters, *, grid: int = 0) -> tuple[Any, Any]:
    """(model, likelihood) at θ, in the dtype and on the device of x.

    With ``grid`` points a side the kernel is interpolated from a regular grid (KISS-GP), which makes it a product of
    one-dimensional kernels.
    """
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=x.shape[1])
            if grid:
                base = gpytorch.kernels.GridInterpolationKernel(base, grid_size=grid, num_dims=x.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, inputs: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(x)
    model = Model(likelihood).to(x)
    likelihood.noise = float(theta.noise_scale) ** 2
    model.covar_module.outputscale = float(theta.signal_scale) ** 2
    base = model.covar_module.base_kernel
    (base.base_kernel if grid else base).lengthscale = theta.length_scales.to(x)
    return model, likelihood


def gpytorch_train(
    model: Any, likelihood: Any, x: Tensor, y: Tensor, steps: int, after: Callable[[int], None] = lambda step: None
) -> None:
    """Adam steps of 0.1 on the marginal likelihood; ``after`` is told how many are done."""
    import gpytorch

    model.train(), likelihood.train()
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    likelihood_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for step in range(1, steps + 1):
        adam.zero_grad()
        loss = -likelihood_of(model(x), y)
        loss.backward()
        adam.step()
        after(step)


def gpytorch_predict(model: Any, likelihood: Any, x_new: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of observations, on the CPU."""
    model.eval(), likelihood.eval()
    with torch.no_grad():
        prediction = likelihood(model(x_new))
        return prediction.mean.cpu(), prediction.variance.cpu()


def gpytorch_matched() -> contextlib.ExitStack:
    """A context with GPyTorch's settings at our tolerance, probes and preconditioner."""
    import gpytorch

    stack = contextlib.ExitStack()
    for setting in (
        gpytorch.settings.max_preconditioner_size(100),
        gpytorch.settings.cg_tolerance(0.01),
        gpytorch.settings.num_trace_samples(64),
        gpytorch.settings.max_cg_iterations(1000),
    ):
        stack.enter_context(setting)
    return stack
