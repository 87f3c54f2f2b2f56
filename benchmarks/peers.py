"""GPyTorch as the benchmarks use it: Matérn-3/2 and one length scale per input, exactly or with inducing points."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters


def gpytorch_model(x: Tensor, y: Tensor, theta: Hyperparameters, *, grid: int = 0) -> tuple[Any, Any]:
    """(model, likelihood) of zero mean at θ, in the dtype and on the device of x.

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


def gpytorch_svgp(inducing: Tensor) -> tuple[Any, Any]:
    """(model, likelihood) of SVGP from these inducing points, in their dtype and on their device.

    They are learnt, too. The approximate posterior is a full Gaussian and whitened; the mean is a constant. All else
    starts where GPyTorch starts it.
    """
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            posterior = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            strategy = gpytorch.variational.VariationalStrategy(
                self, inducing, posterior, learn_inducing_locations=True
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean()
            base = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=inducing.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, inputs: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    return Model().to(inducing), gpytorch.likelihoods.GaussianLikelihood().to(inducing)


def gpytorch_svgp_train(
    model: Any, likelihood: Any, x: Tensor, y: Tensor, steps: int, batch: int, stop: Callable[[int], bool]
) -> int:
    """Adam steps of 0.01 on the bound, each on rows of a permutation that is drawn anew every epoch.

    ``stop`` is told how many are done, and may end them. Returns that number.
    """
    import gpytorch

    model.train(), likelihood.train()
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    done = 0
    while True:
        for rows in torch.randperm(len(y), device=x.device).split(batch):
            adam.zero_grad()
            loss = -bound(model(x[rows]), y[rows])
            loss.backward()
            adam.step()
            done += 1
            if done == steps or stop(done):
                return done
