"""Small linear systems with a known answer, and operators that keep a record of what a solver asked of them.

The truth is dense float64: :func:`dense_h` evaluates H by broadcasting, with its own kernel formulas, and shares no
code with the library. The problems are small, but none of their sizes divides another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import ChunkedOperator, DenseOperator, Index, KernelOperator
from warmgp.solvers import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    RecombinedProjections,
    Solver,
    SolveResult,
    StochasticGradientDescent,
    StoppingRule,
)
from warmgp.solvers.rap import _Sweeps

KERNELS = ("rbf", "matern12", "matern32", "matern52")

SOLVERS: dict[str, Solver] = {
    "cholesky": Cholesky(),
    "cg": ConjugateGradients(),
    "cg0": ConjugateGradients(preconditioner_rank=0),
    "cgf": ConjugateGradients(preconditioner_rank=0, factor_after=2),
    "cgn": ConjugateGradients(preconditioner_rank=10, neighbours=7),
    "ap": AlternatingProjections(block_size=50),
    "sgd": StochasticGradientDescent(batch_size=40),
    "rap": RecombinedProjections(block_size=50),
}
"""Every solver. The block and batch sizes divide none of the problems' sizes."""

ITERATIVE = ("cg", "cg0", "cgf", "cgn", "ap", "sgd", "rap")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small are solved many times faster by one thread than by two that wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def by_inverses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets recombined projections take the form for a GPU in the place of that for a CPU."""

    def sweep(self: _Sweeps, count: int) -> int:
        self._by_inverses(count, last=False)
        return count

    monkeypatch.setattr(_Sweeps, "_by_factors", sweep)


# -- operators that keep a record ----------------------------------------------------------------------------------
class Recording:
    """Mixin: counts calls, the entries of H applied in products, and keeps the rows or columns that were asked for."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.calls: Counter[str] = Counter()
        self.entries: Counter[str] = Counter()  # of H, applied by the products of each kind
        self.partial: list[Tensor] = []  # the index of every partial product, in order
        self.pivots: list[int] = []

    @property
    def applied(self) -> int:
        """Entries of H applied in all products."""
        return sum(self.entries.values())

    def matmul(self, V: Tensor) -> Tensor:
        self._product("matmul", slice(0, self.n))
        return super().matmul(V)

    def residual(self, b: Tensor, v: Tensor) -> Tensor:
        before = self.entries["matmul"]
        left = super().residual(b, v)
        if self.entries["matmul"] == before:  # a product of its own
            self._product("matmul", slice(0, self.n))
        return left

    def rows_matmul(self, index: Index, V: Tensor) -> Tensor:
        self.partial.append(self._product("rows_matmul", index))
        return super().rows_matmul(index, V)

    def columns_matmul(self, index: Index, W: Tensor) -> Tensor:
        self.partial.append(self._product("columns_matmul", index))
        return super().columns_matmul(index, W)

    def block(self, index: Index) -> Tensor:
        self.calls["block"] += 1
        return super().block(index)

    def kernel_columns(self, index: Index) -> Tensor:
        self.calls["kernel_columns"] += 1
        self.pivots.extend(torch.arange(self.n)[index].tolist())
        return super().kernel_columns(index)

    def _product(self, kind: str, index: Index) -> Tensor:
        rows = torch.arange(self.n)[index]
        self.calls[kind] += 1
        self.entries[kind] += len(rows) * self.n
        return rows


class RecordingDense(Recording, DenseOperator):
    """A dense operator with a record."""


class RecordingChunked(Recording, ChunkedOperator):
    """A chunked operator with a record."""


OPERATORS: dict[str, type[KernelOperator]] = {"dense": RecordingDense, "chunked": RecordingChunked}


# -- problems ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Problem:
    """H v = b by dense float64: inputs and targets in the dtype under test, everything else in float64."""

    x: Tensor  # (n, d)
    targets: Tensor  # (n, 1 + s)
    theta: Hyperparameters
    kernel: str

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def h(self) -> Tensor:
        return dense_h(self.x, self.kernel, self.theta)

    @property
    def truth(self) -> Tensor:
        """H⁻¹ b in float64."""
        return torch.cholesky_solve(self.targets.double(), torch.linalg.cholesky(self.h))

    def operator(self, kind: str = "dense", theta: Hyperparameters | None = None) -> Recording:
        # 157 rows make 3 × 3 tiles of uneven size, so that the chunked operator has edges to get wrong
        tile = 6000 if kind == "chunked" else None
        return OPERATORS[kind](self.x, get_kernel(self.kernel), theta or self.theta, tile_entries=tile)

    def residuals(self, solution: Tensor) -> tuple[float, float]:
        """The true relative residuals (mean system, average over probes); a zero target counts absolutely."""
        b = self.targets.double()
        scale = b.norm(dim=0)
        relative = (b - self.h @ solution.double()).norm(dim=0) / torch.where(scale > 0, scale, torch.ones_like(scale))
        return mean_and_probes(relative)


def mean_and_probes(values: Tensor) -> tuple[float, float]:
    """(first, average of the others or 0)."""
    return float(values[0]), float(values[1:].mean()) if len(values) > 1 else 0.0


def dense_h(x: Tensor, kernel: str, theta: Hyperparameters) -> Tensor:
    """H = K(x, x) + σ²I in float64 from differences of all pairs, (n, n)."""
    z = x.double() / theta.length_scales
    r = (z[:, None, :] - z[None, :, :]).square().sum(-1).sqrt()
    profile = {
        "rbf": lambda r: torch.exp(-(r**2) / 2),
        "matern12": lambda r: torch.exp(-r),
        "matern32": lambda r: (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r),
        "matern52": lambda r: (1 + math.sqrt(5) * r + 5 * r**2 / 3) * torch.exp(-math.sqrt(5) * r),
    }[kernel]
    return theta.signal_scale**2 * profile(r) + theta.noise_scale**2 * torch.eye(len(x), dtype=torch.float64)


def hyperparameters(noise: float, signal: float, lengths: list[float]) -> Hyperparameters:
    return Hyperparameters.from_vector(torch.tensor([noise, signal, *lengths], dtype=torch.float64))


def make_problem(
    shape: str = "plain", kernel: str = "matern32", dtype: torch.dtype = torch.float64, *, n: int = 157
) -> Problem:
    """A problem of one of the shapes in :data:`SHAPES`."""
    generator = torch.Generator().manual_seed(n + len(shape))
    x = torch.randn(n, 4, dtype=torch.float64, generator=generator)
    theta = hyperparameters(0.3, 1.2, [0.9, 1.4, 2.0, 1.1])
    probes = 3
    if shape == "one input":
        x, theta = x[:, :1], hyperparameters(0.3, 0.9, [0.4])
    elif shape == "one probe":
        probes = 1
    elif shape == "only y":
        probes = 0
    elif shape == "duplicated rows":
        x[n // 2 :] = x[: n - n // 2].clone()
    elif shape == "one-hot":
        x[:, 1:] = torch.eye(3, dtype=torch.float64)[torch.randint(0, 3, (n,), generator=generator)]
    elif shape == "shared length scale":
        theta = hyperparameters(0.25, 1.0, [1.3])
    y = torch.sin(2 * x[:, 0]) + 0.2 * torch.randn(n, dtype=torch.float64, generator=generator)
    targets = torch.cat([y[:, None], torch.randn(n, probes, dtype=torch.float64, generator=generator)], 1)
    if shape == "zero probe":
        targets[:, 2] = 0
    elif shape == "zero y":
        targets[:, 0] = 0
    return Problem(x.to(dtype), targets.to(dtype), theta, kernel)


SHAPES = (
    "one input",
    "one probe",
    "only y",
    "duplicated rows",
    "one-hot",
    "shared length scale",
    "zero probe",
    "zero y",
)


def solve(
    solver: Solver | str,
    operator: KernelOperator,
    targets: Tensor,
    start: Tensor | None = None,
    *,
    tol: float = 0.01,
    max_epochs: float | None = None,
    seed: int = 0,
    state: object = None,
) -> SolveResult:
    """``Solver.solve`` with a fresh generator."""
    solver = SOLVERS[solver] if isinstance(solver, str) else solver
    rule = StoppingRule(tol, max_epochs)
    generator = torch.Generator().manual_seed(seed)
    return solver.solve(operator, targets, start, rule=rule, generator=generator, state=state)


STEADY_SGD = StochasticGradientDescent(batch_size=40, learning_rate=3.0, momentum=0.5)
"""Its iterations compare: no search for a rate comes in between."""

DTYPES = (torch.float32, torch.float64)
solvers = pytest.mark.parametrize("name", SOLVERS)
iterative = pytest.mark.parametrize("name", ITERATIVE)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=("float32", "float64"))
operators = pytest.mark.parametrize("kind", ("dense", "chunked"))


def assert_solved(problem: Problem, result: SolveResult, tol: float) -> None:
    """Converged in the residual of an independent float64 H, and as close to the truth as that residual implies."""
    assert result.converged
    assert result.stop_reason == "converged"
    assert result.residual_checked
    assert result.solution.dtype == problem.targets.dtype
    assert result.solution.shape == problem.targets.shape
    single = result.solution.dtype == torch.float32
    allowed = tol * (1.05 if single else 1.0 + 1e-9)
    true = problem.residuals(result.solution)
    assert max(true) <= allowed
    reported = (result.residual_mean, result.residual_probes)
    assert reported == pytest.approx(true, rel=1e-6, abs=1e-4 if single else 1e-12)
    # |v − v*| = |H⁻¹ r| ≤ |r| / λ_min: per system for y, on average for the probes, like the residuals
    b = problem.targets.double()
    scale = torch.where(b.norm(dim=0) > 0, b.norm(dim=0), 1.0)
    errors = (result.solution.double() - problem.truth).norm(dim=0) / scale
    bound = allowed / float(torch.linalg.eigvalsh(problem.h)[0])
    assert float(errors[0]) <= bound
    assert float(errors[1:].sum()) <= bound * max(1, len(errors) - 1)
