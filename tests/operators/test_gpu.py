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
    RecombinedProjections,
    Solver,
    StochasticGradientDescent,
    StoppingRule,
)
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import make_operator
from warmgp.solvers.preconditioners.whole_factor import Products, StaleFactor
from warmgp.solvers.streams import beside, recording
from warmgp.training import Problem
from warmgp.training.precision import spot_residuals

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
    [
        Cholesky(),
        ConjugateGradients(),
        ConjugateGradients(0, factor_after=2),
        ConjugateGradients(10, neighbours=7),
        AlternatingProjections(50),
        StochasticGradientDescent(64),
        RecombinedProjections(60),
        RecombinedProjections(60, 1, 3),
    ],
    ids=["cholesky", "cg", "cg-factor", "cg-neighbours", "ap", "sgd", "rap", "rap-fresh"],
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


@pytest.mark.parametrize("solver", ["cholesky", "cg", "ap", "rap"])
def test_regressor_agrees_with_the_cpu(solver: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=300)
    settings = {"solver": solver, "n_steps": 10, "dtype": "float64", "n_features": 500, "random_state": 0, "tol": 1e-4}
    here, there = (GPRegressor(device=device, **settings).fit(X, y) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(here.hyperparameters_.vector, there.hyperparameters_.vector, rtol=1e-4)
    for a, b in zip(here.predict(X, return_std=True), there.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", [DenseOperator, ChunkedOperator])
def test_a_stale_factor_is_nearly_the_inverse(kind: type[KernelOperator]) -> None:
    operator, H = problem(kind, "matern32", torch.float32, 4)
    R = torch.randn(257, 5, generator=torch.Generator().manual_seed(0))
    factor = StaleFactor.build(operator)
    assert isinstance(factor, Products) and factor.X.dtype == torch.float16
    truth = torch.linalg.solve(H, R.double())
    assert (factor.apply(R.cuda()).cpu().double() - truth).norm() <= 5e-3 * truth.norm()


def test_spot_residuals_are_the_residuals() -> None:
    operator, H = problem(ChunkedOperator, "matern32", torch.float32, 4)
    b = torch.randn(257, 3, generator=torch.Generator().manual_seed(0))
    v = torch.linalg.solve(H, b.double()).float() * 0.9
    residual = (b.double() - H @ v.double()).norm(dim=0) / b.double().norm(dim=0)
    found = spot_residuals(Problem(operator, b[:, 0].cuda()), b.cuda(), v.cuda())
    assert found == pytest.approx((float(residual[0]), float(residual[1:].mean())), rel=0.02)


def test_auto_precision_trains_low_noise_data_to_the_cpus_answer() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 2))
    y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 1e-3 * rng.normal(size=600)
    settings = {"solver": "cg", "n_steps": 60, "n_features": 2000, "random_state": 0}
    here = GPRegressor(device="cuda", **settings).fit(X, y)
    there = GPRegressor(device="cpu", dtype="float64", **settings).fit(X, y)
    assert here.converged_
    np.testing.assert_allclose(here.predict(X), there.predict(X), atol=5e-3)


# -- what a converged fit promises, where float32 is fused and iterations train ---------------------------------------
@pytest.mark.parametrize("noise", [0.1, 1e-2, 1e-3])
@pytest.mark.parametrize(("kernel", "d"), [("matern32", 2), ("matern32", 6), ("rbf", 4), ("matern12", 2)])
def test_a_converged_fit_is_exact(kernel: str, d: int, noise: float) -> None:
    """At 9,000 points, above what is trained exactly: mean within 0.1 predictive std at 99.9% of 1,000 points, and the
    std of 64 functions (known to 9%) within 10% in the median."""
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(-1.7, 1.7, (9000, d)), rng.uniform(-1.7, 1.7, (1000, d))
    y = np.sin(X.sum(1)) + (X[:, 0] > 0) + noise * rng.normal(size=9000)
    model = GPRegressor(kernel, init=Hyperparameters(noise, 1.0, [1.5] * d), n_steps=0, random_state=0).fit(X, y)
    x, x_new = (torch.tensor((a - X.mean(0)) / X.std(0) / 1.5).cuda() for a in (X, X_new))
    t = torch.tensor((y - y.mean()) / y.std()).cuda()

    def k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return get_kernel(kernel).profile(torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"))

    H = k(x, x)
    H.diagonal().add_(noise**2)
    L = torch.linalg.cholesky(H)
    cross = k(x, x_new)
    exact_mean = (cross.T @ torch.cholesky_solve(t[:, None], L))[:, 0].cpu().numpy() * y.std() + y.mean()
    half = torch.linalg.solve_triangular(L, cross, upper=False)
    exact_std = (1 - half.square().sum(0) + noise**2).sqrt().cpu().numpy() * y.std()
    mean, std = model.predict(X_new, return_std=True)
    error = np.abs(mean - exact_mean) / exact_std
    assert model.converged_ and np.quantile(error, 0.999) <= 0.1
    assert abs(np.median(std / exact_std) - 1) <= 0.1


@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("kernel", KERNELS)
def test_far_points_return_to_the_prior_and_leave_near_ones_alone(kernel: str, d: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (9000, d))
    theta = Hyperparameters(0.3, 1.5, [1.0] * d)
    model = GPRegressor(kernel, init=theta, n_steps=0, random_state=0).fit(X, 3 + np.sin(X[:, 0]))
    far = np.array([[1e20] + [0.0] * (d - 1), [1e300] + [-1e300] * (d - 1), [0.0] * (d - 1) + [1e38]])
    mean, std = model.predict(np.r_[far, X[:5]], return_std=True)
    np.testing.assert_allclose(mean[:3], model.scaler_.y_mean, rtol=1e-6)
    np.testing.assert_allclose(std[:3], 1.53 * model.scaler_.y_scale, rtol=0.4)
    np.testing.assert_allclose(mean[3:], model.predict(X[:5]), rtol=1e-4)


def test_a_device_by_number_is_that_device() -> None:
    X = np.random.default_rng(0).normal(size=(600, 3))
    settings = {"solver": "ap", "n_steps": 2, "random_state": 0}
    here, there = (GPRegressor(device=device, **settings).fit(X, np.sin(X[:, 0])) for device in ("cuda", "cuda:0"))
    np.testing.assert_array_equal(here.predict(X), there.predict(X))


def test_what_is_made_ahead_and_recordings_have_streams_of_their_own() -> None:
    device = torch.device("cuda")
    first = beside(device), recording(device)
    for _ in range(40):  # the ring of streams has 32
        torch.cuda.Stream(device)
    assert (beside(device), recording(device)) == first and len({one.cuda_stream for one in first}) == 2


def test_many_solves_with_recordings_and_blocks_made_ahead() -> None:
    """Sweeps whose blocks are made ahead, recorded anew in each of more solves than there are streams in the ring."""
    x, y = toy(3000, 4)
    theta = Hyperparameters.from_vector(torch.tensor([0.1, 1.0, 1.0, 1.0, 1.0, 1.0]))
    operator = make_operator("fused", x.float().cuda(), get_kernel("matern32"), theta)
    b = y.float().cuda()[:, None].repeat(1, 65)
    solver = RecombinedProjections(256, together=4)
    for seed in range(36):
        result = solver.solve(operator, b, rule=StoppingRule(1e-3, 20.0), generator=torch.Generator().manual_seed(seed))
        assert result.converged
