"""∂/∂θ Σ_c weights_c a_cᵀ H(θ) b_c against autograd through float64 differences."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from warmgp.data.datasets import uci
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import OPERATORS, ChunkedOperator, DenseOperator

DATA = Path(os.environ.get("WARMGP_DATA") or Path(__file__).resolve().parents[3] / "shared" / "uci")

PROFILES: dict[str, Callable[[Tensor], Tensor]] = {
    "rbf": lambda r: torch.exp(-(r**2) / 2),
    "matern12": lambda r: torch.exp(-r),
    "matern32": lambda r: (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r),
    "matern52": lambda r: (1 + math.sqrt(5) * r + 5 / 3 * r**2) * torch.exp(-math.sqrt(5) * r),
}

KINDS = pytest.mark.parametrize("kind", list(OPERATORS))
NAMES = pytest.mark.parametrize("name", list(KERNELS))
SHARED = pytest.mark.parametrize("shared", [False, True], ids=["ard", "shared"])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tiles: two threads on a busy machine would wait milliseconds for each other at every one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def normal(*shape: int, seed: int) -> Tensor:
    """Normal numbers that float32 holds exactly, in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


@cache
def inputs(n: int, d: int) -> Tensor:
    """From d = 3 on with a constant and a 0/1 column, from n = 7 on with the last third of the rows repeating the
    first."""
    x = normal(n, d, seed=10 * n + d)
    if d >= 3:
        x[:, 1] = 4.25
        x[:, 2] = (x[:, 2] > 0).double()
    if n >= 7:
        x[-(n // 3) :] = x[: n // 3]
    return x


def hyperparameters(d: int, shared: bool) -> Hyperparameters:
    scale = math.sqrt(d)
    return Hyperparameters(0.3, 1.7, [0.9 * scale] if shared else scale * torch.linspace(0.7, 1.4, d))


def autograd(x: Tensor, name: str, theta: Hyperparameters, G: Tensor) -> Tensor:
    """∂/∂θ Σ_ij G_ij H_ij(θ) in float64, a strip of rows at a time so that the array of differences stays small.

    The square root is safe: where two points coincide the distance is zero with zero gradient.
    """
    vector = theta.vector.requires_grad_()
    noise, signal, lengths = vector[0], vector[1], vector[2:]
    x, G = x.double(), G.double()
    for rows in torch.arange(len(x)).split(200):
        square = ((x[rows, None] - x) / lengths).square().sum(-1)
        apart = square > 0
        r = torch.where(apart, square.where(apart, torch.ones_like(square)).sqrt(), torch.zeros_like(square))
        (signal**2 * (G[rows] * PROFILES[name](r)).sum()).backward()
    (noise**2 * G.trace()).backward()
    assert vector.grad is not None
    return vector.grad


def relative_error(value: Tensor, truth: Tensor) -> float:
    assert value.dtype == torch.float64
    assert value.shape == truth.shape
    return float((value - truth).norm() / truth.norm())


@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (7, 3), (83, 1), (83, 3), (83, 4), (83, 20)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@SHARED
@NAMES
@KINDS
def test_equals_autograd(kind: str, name: str, shared: bool, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """To 1e-10 of the gradient's norm in float64, 1e-4 in float32. A ≠ B, weights of both signs."""
    n, d = shape
    x, theta = inputs(n, d), hyperparameters(d, shared)
    A, B, weights = normal(n, 5, seed=1), normal(n, 5, seed=2), normal(5, seed=3)
    operator = OPERATORS[kind](x.to(dtype), get_kernel(name), theta, tile_entries={1: 50, 7: 10, 83: 300}[n])
    gradient = operator.quadratic_gradient(A.to(dtype), B.to(dtype), weights.to(dtype))
    truth = autograd(x, name, theta, (A * weights) @ B.T)
    assert relative_error(gradient, truth) <= (1e-10 if dtype == torch.float64 else 1e-4)


@NAMES
@KINDS
def test_each_coordinate_has_all_its_digits(kind: str, name: str) -> None:
    """The norm hides small coordinates: here each of them is compared on its own."""
    x, theta = inputs(83, 4), hyperparameters(4, shared=False)
    A, B, weights = normal(83, 5, seed=1), normal(83, 5, seed=2), normal(5, seed=3)
    gradient = OPERATORS[kind](x, get_kernel(name), theta).quadratic_gradient(A, B, weights)
    truth = autograd(x, name, theta, (A * weights) @ B.T)
    torch.testing.assert_close(gradient, truth, rtol=1e-9, atol=1e-12 * float(truth.norm()))


@NAMES
def test_a_constant_column_has_no_length_gradient(name: str) -> None:
    x, theta = inputs(83, 4), hyperparameters(4, shared=False)
    A, B = normal(83, 5, seed=1), normal(83, 5, seed=2)
    gradient = ChunkedOperator(x, get_kernel(name), theta).quadratic_gradient(A, B, torch.ones(5))
    assert abs(float(gradient[2 + 1])) <= 1e-12 * float(gradient.norm())


@NAMES
@KINDS
def test_points_that_all_coincide_have_no_length_gradient(kind: str, name: str) -> None:
    """Every pair is at distance zero, where the contract says zero; noise and signal are plain sums."""
    x = normal(1, 4, seed=0).expand(9, 4).contiguous()
    A, B, weights = normal(9, 2, seed=1), normal(9, 2, seed=2), torch.tensor([1.0, -2.0], dtype=torch.float64)
    theta = Hyperparameters(0.3, 1.7, [1.0, 2.0, 3.0, 4.0])
    gradient = OPERATORS[kind](x, get_kernel(name), theta, tile_entries=10).quadratic_gradient(A, B, weights)
    G = (A * weights) @ B.T
    assert float(gradient[0]) == pytest.approx(2 * 0.3 * float(G.trace()), rel=1e-12)
    assert float(gradient[1]) == pytest.approx(2 * 1.7 * float(G.sum()), rel=1e-12)
    assert float(gradient[2:].abs().max()) <= 1e-12


@pytest.mark.parametrize("tile_entries", [1, 7, 50, 1680, 1681, 10**7])
@pytest.mark.parametrize("d", [2, 5])
@KINDS
def test_every_tiling_gives_the_same_gradient(kind: str, d: int, tile_entries: int) -> None:
    x, theta = inputs(41, d), hyperparameters(d, shared=False)
    A, B, weights = normal(41, 3, seed=1), normal(41, 3, seed=2), normal(3, seed=3)
    operator = OPERATORS[kind](x, get_kernel("matern52"), theta, tile_entries=tile_entries)
    truth = autograd(x, "matern52", theta, (A * weights) @ B.T)
    assert relative_error(operator.quadratic_gradient(A, B, weights), truth) <= 1e-10


@NAMES
@KINDS
def test_leaves_its_arguments_alone(kind: str, name: str) -> None:
    x, theta = inputs(83, 4), hyperparameters(4, shared=False)
    operator = OPERATORS[kind](x, get_kernel(name), theta)
    arguments = normal(83, 5, seed=1), normal(83, 5, seed=2), normal(5, seed=3)
    before = [value.clone() for value in arguments]
    operator.quadratic_gradient(*arguments)
    assert all(torch.equal(value, old) for value, old in zip(arguments, before, strict=True))


@SHARED
@NAMES
@KINDS
def test_gradient_from_a_full_weight_matrix(kind: str, name: str, shared: bool) -> None:
    """G as the exact gradient forms it: dense, symmetric and of full rank."""
    n, d = 61, 4
    x, theta = inputs(n, d), hyperparameters(d, shared)
    G = normal(n, n, seed=4)
    G = G + G.T
    before = G.clone()
    operator = OPERATORS[kind](x, get_kernel(name), theta, tile_entries=300)
    gradient = operator.gradient_from_weights(lambda rows, columns: G[rows, columns], float(G.trace()))
    assert relative_error(gradient, autograd(x, name, theta, G)) <= 1e-10
    assert torch.equal(G, before)


@cache
def pol() -> tuple[Tensor, Tensor, Hyperparameters]:
    """1,500 rows of pol that float32 holds exactly, and the θ of exact training on all of it."""
    if not (DATA / "pol").is_dir():
        pytest.skip(f"the pol dataset is not in {DATA}: set WARMGP_DATA to the folder that holds it")
    data = uci("pol", 0, folder=DATA)
    x, y = (torch.from_numpy(array[:1500]).float().double() for array in (data.x_train, data.y_train))
    trained = json.loads((Path(__file__).parents[2] / "experiments/store/pol-0_exact.json").read_text())
    return x, y, Hyperparameters.from_vector(torch.tensor(trained["theta"], dtype=torch.float64))


@cache
def pol_truth() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random A, B (1500, 9), weights of both signs, and the gradient; once for all cases, it takes most of the time."""
    x, _, theta = pol()
    A, B = normal(1500, 9, seed=1), normal(1500, 9, seed=2)
    weights = torch.tensor([1.0, -0.5, 0.25, -1.5, 2.0, -0.125, 0.5, 1.0, -1.0], dtype=torch.float64)
    return A, B, weights, autograd(x, "matern32", theta, (A * weights) @ B.T)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@KINDS
def test_equals_autograd_at_trained_hyperparameters_of_pol(kind: str, dtype: torch.dtype) -> None:
    """Real inputs (26, many of few values) at trained length scales (0.5 to 8): float32 keeps 1e-4 of the gradient's
    norm, float64 1e-10."""
    x, _, theta = pol()
    A, B, weights, truth = pol_truth()
    operator = OPERATORS[kind](x.to(dtype), get_kernel("matern32"), theta, tile_entries=300_000)
    gradient = operator.quadratic_gradient(A.to(dtype), B.to(dtype), weights.to(dtype))
    assert relative_error(gradient, truth) <= (1e-10 if dtype == torch.float64 else 1e-4)


def test_float32_serves_for_the_solutions_that_training_has() -> None:
    """A = B = H⁻¹[y, ξ] on pol, as the pathwise gradient has them: the terms of y and of the probes cancel, and each is
    large (H⁻¹ has up to 1/σ² = 700 on its diagonal). Rounding costs a few 1e-5 of the norm; beyond 3e-4 digits are
    lost that training would miss."""
    x, y, theta = pol()
    x, y = x[:600], y[:600]
    factor = torch.linalg.cholesky(DenseOperator(x, get_kernel("matern32"), theta).H)
    targets = torch.cat([y[:, None], factor @ normal(600, 8, seed=3)], 1)
    solutions = torch.cholesky_solve(targets, factor).float()
    weights = torch.tensor([0.5] + [-0.5 / 8] * 8, dtype=torch.float64)
    operator = ChunkedOperator(x.float(), get_kernel("matern32"), theta, tile_entries=50_000)
    gradient = operator.quadratic_gradient(solutions, solutions, weights)
    truth = autograd(x, "matern32", theta, (solutions.double() * weights) @ solutions.double().T)
    assert relative_error(gradient, truth) <= 3e-4


@pytest.mark.parametrize("gap", [1e-3, 1e-4, 1e-6])
def test_matern12_in_float32_with_close_pairs(gap: float) -> None:
    """Close pairs have weights of about 1/r, whose sum cancels: float32 sums would miss the gradient by up to 8%."""
    x = normal(100, 3, seed=0)
    x = torch.cat([x, x + gap * normal(100, 3, seed=5)]).float()
    A, B, theta = normal(200, 5, seed=1), normal(200, 5, seed=2), Hyperparameters(0.07, 1.5, [1.0, 1.0, 1.0])
    g = ChunkedOperator(x, get_kernel("matern12"), theta).quadratic_gradient(A.float(), B.float(), torch.ones(5))
    assert relative_error(g, autograd(x, "matern12", theta, A @ B.T)) <= 1e-4


def test_matern12_with_points_a_rounding_error_apart() -> None:
    """0.3, 0.1 + 0.2 and 0.3·(1 + 1e-15) are three points: their weights of 1e16 must not spoil float64."""
    x = normal(40, 1, seed=0)
    x[:3, 0] = torch.tensor([0.3, 0.1 + 0.2, 0.3 * (1 + 1e-15)], dtype=torch.float64)
    A, B, theta = normal(40, 5, seed=1), normal(40, 5, seed=2), Hyperparameters(0.1, 1.5, [1.0])
    g = ChunkedOperator(x, get_kernel("matern12"), theta).quadratic_gradient(A, B, torch.ones(5))
    assert relative_error(g, autograd(x, "matern12", theta, A @ B.T)) <= 1e-10


@pytest.mark.parametrize(("d", "length"), [(1, 0.003), (1, 0.03), (5, 0.03)])
def test_float32_with_short_length_scales(d: int, length: float) -> None:
    """Inputs of many length scales (a time series): the sum over W would cancel by a factor of |z|²."""
    x = (normal(600, 1, seed=0) + 1e-3 * normal(600, d, seed=4)).float()
    A, B, theta = normal(600, 3, seed=1), normal(600, 3, seed=2), Hyperparameters(0.1, 1.0, [length] * d)
    g = ChunkedOperator(x, get_kernel("matern32"), theta).quadratic_gradient(A.float(), B.float(), torch.ones(3))
    truth = autograd(x, "matern32", theta, A.float().double() @ B.float().double().T)
    assert relative_error(g[2:], truth[2:]) <= 2e-4
