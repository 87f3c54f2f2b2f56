"""The same code on a CUDA device: products, solves and a training against dense float64 on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gp_truth import h_matrix, toy
from warmgp import (
    AlternatingProjections,
    Cholesky,
    ChunkedOperator,
    ConjugateGradients,
    DenseOperator,
    GPRegressor,
    Hyperparameters,
    KernelOperator,
    Pathwise,
    Solver,
    StochasticGradientDescent,
    StoppingRule,
)
from warmgp.kernels import KERNELS, get_kernel

pytestmark = pytest.mark.gpu

BOUND = {torch.float32: 1e-5, torch.float64: 1e-12}


def problem(kind: type[KernelOperator], kernel: str, dtype: torch.dtype, d: int) -> tuple[KernelOperator, torch.Tensor]:
    x, _ = toy(257, d)
    x[11] = x[12]
    theta = Hyperparameters.from_vector(torch.cat([torch.tensor([0.3, 1.2]), torch.linspace(0.7, 2.0, d)]))
    x = x.to(dtype)
    operator = kind(x.cuda(), get_kernel(kernel), theta, tile_entries=10_000)
    return operator, h_matrix(kernel, x.double(), theta.vector)


@pytest.mark.parametrize("d", [1, 4, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [DenseOperator, ChunkedOperator])
def test_products(kind: type[KernelOperator], kernel: str, dtype: torch.dtype, d: int) -> None:
    operator, H = problem(kind, kernel, dtype, d)
    V = torch.randn(257, 65, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)
    index = torch.tensor([5, 200, 11, 12])
    truth = {
        "matmul": H @ V.double(),
        "rows": H[index] @ V.double(),
        "columns": H[:, index] @ V[:4].double(),
        "block": H[index][:, index],
    }
    found = {
        "matmul": operator.matmul(V.cuda()),
        "rows": operator.rows_matmul(index.cuda(), V.cuda()),
        "columns": operator.columns_matmul(index.cuda(), V[:4].cuda()),
        "block": operator.block(index.cuda()),
    }
    for name, expected in truth.items():
        assert (found[name].cpu().double() - expected).norm() <= BOUND[dtype] * expected.norm(), name
    weights = torch.linspace(-1, 1, 65)
    gradient = operator.quadratic_gradient(V.cuda(), V.roll(1, 0).cuda(), weights)
    G = (V.double() * weights) @ V.roll(1, 0).double().T
    vector = operator.theta.vector.requires_grad_()
    (expected,) = torch.autograd.grad((G * h_matrix(kernel, operator.x.cpu().double(), vector)).sum(), vector)
    assert (gradient - expected).norm() <= (1e-4 if dtype == torch.float32 else 1e-10) * expected.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [DenseOperator, ChunkedOperator])
@pytest.mark.parametrize(
    "solver",
    [Cholesky(), ConjugateGradients(), AlternatingProjections(50), StochasticGradientDescent(64)],
    ids=lambda s: s.name,
)
def test_solves(solver: Solver, kind: type[KernelOperator], kernel: str, dtype: torch.dtype) -> None:
    operator, H = problem(kind, kernel, dtype, 4)
    estimator = Pathwise(9, 2000)
    y = toy(257, 4)[1].to(dtype).cuda()
    generator = torch.Generator().manual_seed(0)
    targets = estimator.targets(operator, y, estimator.draw(operator, generator))
    result = solver.solve(operator, targets, rule=StoppingRule(0.01), generator=generator)
    b, v = targets.cpu().double(), result.solution.cpu().double()
    residual = (b - H @ v).norm(dim=0) / b.norm(dim=0)
    assert result.converged and residual[0] <= 0.0101 and residual[1:].mean() <= 0.0101
    again = solver.solve(operator, targets, result.solution, rule=StoppingRule(0.01), generator=generator)
    assert again.iterations == 0 and again.converged


@pytest.mark.parametrize("solver", ["cholesky", "cg", "ap"])
def test_regressor_agrees_with_the_cpu(solver: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=300)
    settings = {"solver": solver, "n_steps": 10, "dtype": "float64", "n_features": 500, "random_state": 0, "tol": 1e-4}
    here, there = (GPRegressor(device=device, **settings).fit(X, y) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(here.hyperparameters_.vector, there.hyperparameters_.vector, rtol=1e-4)
    for a, b in zip(here.predict(X, return_std=True), there.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
