"""Dense and chunked H: every product against float64 differences, the counts of evaluated entries, the memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, Matern32, get_kernel
from warmgp.operators import (
    OPERATORS,
    ChunkedOperator,
    DenseOperator,
    Index,
    KernelOperator,
    dense_bytes,
    has_triton,
    make_operator,
)
from warmgp.operators.distances import distances

PROFILES = {
    "rbf": lambda r: torch.exp(-(r**2) / 2),
    "matern12": lambda r: torch.exp(-r),
    "matern32": lambda r: (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r),
    "matern52": lambda r: (1 + math.sqrt(5) * r + 5 / 3 * r**2) * torch.exp(-math.sqrt(5) * r),
}
TILE_ENTRIES = {1: 50, 7: 10, 257: 3000}  # tiles of 3 × 3 in 7 × 7, of 54 × 55 in 257 × 257: neither divides
SHAPES = [(1, 1), (1, 4), (7, 1), (7, 3), (7, 4), (257, 1), (257, 3), (257, 4), (257, 20)]

KINDS = pytest.mark.parametrize("kind", list(OPERATORS))
NAMES = pytest.mark.parametrize("name", list(KERNELS))
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
GRID = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Hundreds of tiny tiles: two threads on a busy machine would wait milliseconds for each other at every one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cache
def inputs(n: int, d: int) -> Tensor:
    """float64 that float32 holds exactly: from d = 3 on a constant and a 0/1 column (more of those in d = 20), and
    from n = 7 on the last third of the rows repeats the first."""
    x = torch.randn(n, d, generator=rng(10 * n + d)).double()
    if d >= 3:
        x[:, 1] = 4.25
        x[:, 2] = (x[:, 2] > 0).double()
    if d == 20:
        x[:, 8:14] = torch.nn.functional.one_hot(torch.arange(n) % 6, 6).double()
    if n >= 7:
        x[-(n // 3) :] = x[: n // 3]
    return x


def lengths(d: int) -> Tensor:
    """Between 0.7√d and 1.4√d, so that entries of K spread over (0, 1) in every dimension."""
    return math.sqrt(d) * torch.linspace(0.7, 1.4, d, dtype=torch.float64)


def hyperparameters(d: int, *, shared: bool = False) -> Hyperparameters:
    return Hyperparameters(0.3, 1.7, [0.9 * math.sqrt(d)] if shared else lengths(d))


def reference_kernel(xa: Tensor, xb: Tensor, name: str, theta: Hyperparameters) -> Tensor:
    """signal² k(|(a − b)/ℓ|) in float64, from an array of all differences."""
    r = ((xa[:, None].double() - xb[None].double()) / theta.length_scales).square().sum(-1).sqrt()
    return theta.signal_scale**2 * PROFILES[name](r)


@cache
def reference(n: int, d: int, name: str) -> Tensor:
    """H in float64. With repeated rows its off-diagonal entries reach signal², but σ² is on the diagonal only."""
    K = reference_kernel(inputs(n, d), inputs(n, d), name, hyperparameters(d))
    return K + 0.3**2 * torch.eye(n, dtype=torch.float64)


def operator_for(kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]) -> KernelOperator:
    n, d = shape
    x = inputs(n, d).to(dtype)
    return OPERATORS[kind](x, get_kernel(name), hyperparameters(d), tile_entries=TILE_ENTRIES[n])


def indices(n: int) -> dict[str, Index]:
    """Every kind of index the contract allows; the tensors are strided, unsorted, and with repetitions."""
    start = n // 3
    return {
        "slice": slice(start, start + max(1, n // 2)),
        "whole": slice(0, n),
        "strided": torch.arange(0, n, 2),
        "unsorted": torch.randperm(n, generator=rng(n))[: max(1, n // 2)],
        "repeated": torch.tensor([n - 1, 0, n - 1, n // 2, 0]),
    }


def assert_near(value: Tensor, truth: Tensor, dtype: torch.dtype, what: str = "", f64: float = 1e-12) -> None:
    """Relative error in the Frobenius norm: 1e-12 in float64, 1e-5 in float32."""
    assert value.dtype == dtype, f"{what}: {value.dtype}"
    assert value.shape == truth.shape, f"{what}: {tuple(value.shape)} instead of {tuple(truth.shape)}"
    error = float((value.double() - truth).norm() / truth.norm())
    assert error <= (f64 if dtype == torch.float64 else 1e-5), f"{what}: relative error {error:.2e}"


def columns(n: int, c: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers in ``dtype``; the truth is computed from the same rounded numbers."""
    return torch.randn(n, c, generator=rng(n + c), dtype=torch.float64).to(dtype)


# -- products --------------------------------------------------------------------------------------------------------
@GRID
@DTYPES
@NAMES
@KINDS
def test_matmul(kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    operator, H = operator_for(kind, name, dtype, shape), reference(*shape, name)
    for c in (1, 65):
        V = columns(shape[0], c, dtype)
        before = V.clone()
        assert_near(operator.matmul(V), H @ V.double(), dtype, f"{c} columns")
        assert torch.equal(V, before)


@GRID
@DTYPES
@NAMES
@KINDS
def test_rows_matmul(kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    operator, H = operator_for(kind, name, dtype, shape), reference(*shape, name)
    for c in (1, 65):
        V = columns(shape[0], c, dtype)
        before = V.clone()
        for label, index in indices(shape[0]).items():
            assert_near(operator.rows_matmul(index, V), H[index] @ V.double(), dtype, f"{label}, {c} columns")
        assert torch.equal(V, before)


@GRID
@DTYPES
@NAMES
@KINDS
def test_columns_matmul(kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    operator, H = operator_for(kind, name, dtype, shape), reference(*shape, name)
    for c in (1, 65):
        for label, index in indices(shape[0]).items():
            W = columns(H[:, index].shape[1], c, dtype)
            before = W.clone()
            assert_near(operator.columns_matmul(index, W), H[:, index] @ W.double(), dtype, f"{label}, {c} columns")
            assert torch.equal(W, before)


@GRID
@DTYPES
@NAMES
@KINDS
def test_block(kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    operator, H = operator_for(kind, name, dtype, shape), reference(*shape, name)
    for label, index in indices(shape[0]).items():
        assert_near(operator.block(index), H[index][:, index], dtype, label)


@GRID
@DTYPES
@NAMES
@KINDS
def test_kernel_columns_have_no_noise(kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    operator = operator_for(kind, name, dtype, shape)
    K = reference(*shape, name) - 0.3**2 * torch.eye(shape[0], dtype=torch.float64)
    for label, index in indices(shape[0]).items():
        assert_near(operator.kernel_columns(index), K[:, index], dtype, label)


@GRID
@DTYPES
@NAMES
@KINDS
def test_kernel_matmul_of_some_rows_and_columns(
    kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    """Every kind of rows with every kind of columns; the diagonal has no noise, wherever it comes to lie."""
    operator, n = operator_for(kind, name, dtype, shape), shape[0]
    K = reference(*shape, name) - 0.3**2 * torch.eye(n, dtype=torch.float64)
    for mine, rows in indices(n).items():
        for its, some in indices(n).items():
            block = K[rows][:, some]
            V = columns(block.shape[1], 3, dtype)
            before = V.clone()
            assert_near(operator.kernel_matmul(rows, some, V), block @ V.double(), dtype, f"{mine}, {its}")
            assert torch.equal(V, before)


@KINDS
def test_kernel_matmul_of_nothing_is_zero_and_a_wrong_number_of_rows_is_refused(kind: str) -> None:
    operator = operator_for(kind, "matern32", torch.float64, (7, 4))
    none, some = torch.tensor([], dtype=torch.int64), torch.tensor([3, 1])
    for empty in (none, slice(2, 2)):
        assert operator.kernel_matmul(empty, some, columns(2, 3, torch.float64)).shape == (0, 3)
        assert torch.equal(
            operator.kernel_matmul(some, empty, columns(0, 3, torch.float64)), torch.zeros(2, 3).double()
        )
    with pytest.raises(ValueError, match="a row for each of the 2 columns of K, got 7 rows"):
        operator.kernel_matmul(slice(0, 7), some, columns(7, 3, torch.float64))


@GRID
@DTYPES
@NAMES
@KINDS
def test_kernel_with_new_points(kind: str, name: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """Fewer and more new points than a tile is high; the first repeat training rows, where no noise may appear."""
    n, d = shape
    operator, theta = operator_for(kind, name, dtype, shape), hyperparameters(d)
    for m in (1, 5, 70):
        x_new = torch.randn(m, d, generator=rng(m)).double()
        x_new[: min(3, n, m)] = inputs(n, d)[: min(3, n, m)]
        K = reference_kernel(inputs(n, d), x_new, name, theta)
        assert_near(operator.kernel_between(x_new.to(dtype)), K, dtype, f"kernel_between, {m} points")
        for c in (1, 65):
            V = columns(n, c, dtype)
            product = operator.cross_matmul(x_new.to(dtype), V)
            assert_near(product, K.T @ V.double(), dtype, f"cross_matmul, {m} points, {c} columns")


@pytest.mark.parametrize("tile_entries", [1, 2, 50, 1000, 1680, 1681, 10**7])
@pytest.mark.parametrize("d", [2, 5])
@KINDS
def test_every_tiling_gives_the_same_products(kind: str, d: int, tile_entries: int) -> None:
    n, dtype = 41, torch.float64
    x, theta = inputs(n, d), hyperparameters(d)
    H = reference(n, d, "matern32")
    operator = OPERATORS[kind](x, get_kernel("matern32"), theta, tile_entries=tile_entries)
    V, index = columns(n, 3, dtype), torch.tensor([40, 3, 17])
    assert_near(operator.matmul(V), H @ V, dtype, "matmul")
    assert_near(operator.rows_matmul(index, V), H[index] @ V, dtype, "rows_matmul")
    assert_near(operator.columns_matmul(slice(5, 30), V[5:30]), H[:, 5:30] @ V[5:30], dtype, "columns_matmul")
    x_new = torch.randn(13, d, generator=rng(1)).double()
    K = reference_kernel(x_new, x, "matern32", theta)
    assert_near(operator.cross_matmul(x_new, V), K @ V, dtype, "cross_matmul")


@pytest.mark.parametrize("d", [1, 3, 4, 20])
@DTYPES
@NAMES
@KINDS
def test_one_shared_length_scale_serves_every_input(kind: str, name: str, dtype: torch.dtype, d: int) -> None:
    n, theta = 29, hyperparameters(d, shared=True)
    x = inputs(n, d)
    K = reference_kernel(x, x, name, theta)
    operator = OPERATORS[kind](x.to(dtype), get_kernel(name), theta, tile_entries=50)
    V = columns(n, 4, dtype)
    assert_near(operator.matmul(V), K @ V.double() + 0.3**2 * V.double(), dtype, "matmul")
    assert_near(operator.cross_matmul(x[:3].to(dtype), V), K[:3] @ V.double(), dtype, "cross_matmul")


@pytest.mark.parametrize("d", [3, 4])
@DTYPES
@NAMES
@KINDS
def test_inputs_far_from_the_origin_lose_no_digits(kind: str, name: str, dtype: torch.dtype, d: int) -> None:
    """At an offset of 1,000 the squares are 10⁶: without centring float32 would err by 0.1 in a squared distance."""
    n, theta = 60, hyperparameters(d)
    x = (torch.randn(n + 9, d, generator=rng(0)) + 1000.0).double()
    K = reference_kernel(x[:n], x, name, theta)
    operator = OPERATORS[kind](x[:n].to(dtype), get_kernel(name), theta, tile_entries=500)
    V = columns(n, 3, dtype)
    assert_near(operator.matmul(V), K[:, :n] @ V.double() + 0.3**2 * V.double(), dtype, "matmul")
    assert_near(operator.cross_matmul(x[n:].to(dtype), V), K[:, n:].T @ V.double(), dtype, "cross_matmul")
    assert_near(operator.kernel_between(x[n:].to(dtype)), K[:, n:], dtype, "kernel_between")


@KINDS
def test_columns_need_not_be_contiguous(kind: str) -> None:
    operator, H = operator_for(kind, "matern32", torch.float64, (257, 4)), reference(257, 4, "matern32")
    V = columns(257, 10, torch.float64).T.contiguous().T[:, ::3]
    assert not V.is_contiguous()
    assert_near(operator.matmul(V), H @ V, torch.float64, "matmul")
    assert_near(operator.rows_matmul(slice(3, 90), V), H[3:90] @ V, torch.float64, "rows_matmul")
    assert_near(operator.columns_matmul(slice(3, 90), V[3:90]), H[:, 3:90] @ V[3:90], torch.float64, "columns_matmul")


@pytest.mark.parametrize("exact", [True, False])
@DTYPES
def test_distances_are_those_of_the_differences(exact: bool, dtype: torch.dtype) -> None:
    """The product form errs by about ε(|a|² + |b|²) in the square, hence a bound on squares; the exact one puts
    coincident points at zero."""
    a, b = (torch.randn(size, 5, generator=rng(size)).to(dtype) for size in (40, 30))
    b[:4] = a[:4]
    r = distances(a, b, exact=exact)
    truth = (a[:, None].double() - b.double()).square().sum(-1)
    assert float((r.double().square() - truth).abs().max()) <= 100 * torch.finfo(dtype).eps
    if exact:
        assert r[:4].diagonal().tolist() == [0.0] * 4


# -- one θ, then another ---------------------------------------------------------------------------------------------
@NAMES
@KINDS
def test_at_another_theta_equals_a_fresh_operator(kind: str, name: str) -> None:
    x, kernel = inputs(41, 4), get_kernel(name)
    new = Hyperparameters(0.05, 0.8, [2.0, 1.0, 0.5, 3.0])
    operator = OPERATORS[kind](x, kernel, hyperparameters(4), tile_entries=200)
    V = columns(41, 3, torch.float64)
    old_product = operator.matmul(V)
    moved, fresh = operator.at(new), OPERATORS[kind](x, kernel, new, tile_entries=200)
    assert type(moved) is type(operator)
    assert moved.theta.equals(new)
    assert moved.tile_entries == 200
    assert torch.equal(moved.matmul(V), fresh.matmul(V))
    assert torch.equal(moved.quadratic_gradient(V, V, torch.ones(3)), fresh.quadratic_gradient(V, V, torch.ones(3)))
    truth = reference_kernel(x, x, name, new) @ V + 0.05**2 * V
    assert_near(moved.matmul(V), truth, torch.float64)
    assert torch.equal(operator.matmul(V), old_product)


def test_dense_hands_over_its_matrix_and_rebuilds_it() -> None:
    operator = operator_for("dense", "matern32", torch.float64, (7, 4))
    assert isinstance(operator, DenseOperator)
    H = operator.take()
    assert_near(H, reference(7, 4, "matern32"), torch.float64)
    H.zero_()
    assert_near(operator.H, reference(7, 4, "matern32"), torch.float64)
    assert operator.entries_evaluated == 2 * evaluated_by_symmetry(7, 10)


@KINDS
def test_what_comes_back_may_be_overwritten(kind: str) -> None:
    operator, V = operator_for(kind, "matern32", torch.float64, (7, 4)), torch.eye(7, dtype=torch.float64)
    for index in indices(7).values():
        operator.block(index).zero_()
        operator.kernel_columns(index).zero_()
        operator.rows_matmul(index, V).zero_()
    operator.matmul(V).zero_()
    assert_near(operator.matmul(V), reference(7, 4, "matern32"), torch.float64)


# -- counting --------------------------------------------------------------------------------------------------------
def evaluated_by_symmetry(n: int, tile_entries: int) -> int:
    """Entries in the square tiles on and above the diagonal: (n² + Σ b²)/2 over the tile sides b."""
    side = math.isqrt(tile_entries)
    sides = [side] * (n // side) + [n % side]
    return (n**2 + sum(b**2 for b in sides)) // 2


def test_chunked_counts_what_it_evaluates() -> None:
    operator = operator_for("chunked", "matern32", torch.float32, (257, 4))
    n, V = 257, columns(257, 2, torch.float32)

    def added(call: object) -> int:
        before = operator.entries_evaluated
        call()
        return operator.entries_evaluated - before

    scattered = torch.tensor([200, 3, 3, 50, 7])
    half = evaluated_by_symmetry(n, operator.tile_entries)
    assert n**2 / 2 < half < 0.61 * n**2
    assert operator.entries_evaluated == 0
    assert added(lambda: operator.matmul(V)) == half
    assert added(lambda: operator.matmul(V)) == half
    assert added(lambda: operator.rows_matmul(slice(10, 40), V)) == 30 * n
    assert added(lambda: operator.rows_matmul(scattered, V)) == 5 * n
    assert added(lambda: operator.columns_matmul(slice(10, 40), V[10:40])) == 30 * n
    assert added(lambda: operator.columns_matmul(scattered, V[:5])) == 5 * n
    assert added(lambda: operator.block(slice(10, 40))) == 30**2
    assert added(lambda: operator.kernel_columns(scattered)) == 5 * n
    assert added(lambda: operator.kernel_matmul(slice(10, 40), scattered, V[:5])) == 30 * 5
    assert added(lambda: operator.kernel_between(operator.x[:13])) == 13 * n
    assert added(lambda: operator.cross_matmul(operator.x[:13], V)) == 13 * n
    assert added(lambda: operator.quadratic_gradient(V, V, torch.ones(2))) == half


@KINDS
def test_a_single_tile_evaluates_every_entry_once(kind: str) -> None:
    operator = OPERATORS[kind](inputs(41, 4), get_kernel("matern32"), hyperparameters(4), tile_entries=41**2)
    operator.matmul(columns(41, 2, torch.float64))
    assert operator.entries_evaluated == 41**2


def test_dense_evaluates_once_however_many_products() -> None:
    operator = operator_for("dense", "matern32", torch.float32, (257, 4))
    n, V = 257, columns(257, 2, torch.float32)
    once = evaluated_by_symmetry(n, operator.tile_entries)
    assert operator.entries_evaluated == 0
    for _ in range(3):
        operator.matmul(V)
        operator.rows_matmul(slice(10, 40), V)
        operator.columns_matmul(torch.tensor([5, 1]), V[:2])
        operator.block(slice(10, 40))
        assert operator.entries_evaluated == once
    operator.cross_matmul(operator.x[:13], V)
    assert operator.entries_evaluated == once + 13 * n


@KINDS
def test_the_count_goes_on_at_another_theta(kind: str) -> None:
    operator = operator_for(kind, "matern32", torch.float64, (7, 4))
    V = columns(7, 2, torch.float64)
    operator.matmul(V)
    once = operator.entries_evaluated
    assert once == evaluated_by_symmetry(7, 10)
    moved = operator.at(Hyperparameters.ones(4))
    assert moved.entries_evaluated == once
    moved.matmul(V)
    assert moved.entries_evaluated == 2 * once
    assert operator.entries_evaluated == once


# -- what it is, and refusals ----------------------------------------------------------------------------------------
@KINDS
def test_properties_and_factory(kind: str) -> None:
    x = inputs(7, 4).float()
    operator = make_operator(kind, x, get_kernel("rbf"), hyperparameters(4))
    assert type(operator) is {"dense": DenseOperator, "chunked": ChunkedOperator}[kind]
    assert (operator.n, operator.shape, operator.dtype, operator.device) == (7, (7, 7), torch.float32, x.device)
    assert operator.noise_variance == pytest.approx(0.09, rel=1e-15)
    assert operator.signal_variance == pytest.approx(2.89, rel=1e-15)


def test_dense_bytes() -> None:
    assert dense_bytes(1000, torch.float32) == 4_000_000
    assert dense_bytes(1000, torch.float64) == 8_000_000


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="operator must be one of 'dense', 'chunked', 'fused', 'auto', got 'sparse'"):
        make_operator("sparse", inputs(7, 4), get_kernel("rbf"), hyperparameters(4))


@pytest.mark.parametrize(
    ("x", "count", "options", "message"),
    [
        (torch.zeros(5), 1, {}, r"x must be a matrix .* got shape \(5,\)"),
        (torch.zeros(0, 2), 2, {}, r"x must be a matrix .* got shape \(0, 2\)"),
        (torch.zeros(5, 0), 1, {}, r"x must be a matrix .* got shape \(5, 0\)"),
        (torch.zeros(5, 2, dtype=torch.int64), 2, {}, "x must be a floating-point tensor, got torch.int64"),
        (torch.zeros(5, 2), 3, {}, "length_scales has 3 entries but the inputs have 2 columns"),
        (torch.zeros(5, 2), 2, {"tile_entries": 0}, "tile_entries must be at least 1, got 0"),
    ],
)
@KINDS
def test_bad_arguments_are_refused(kind: str, x: Tensor, count: int, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OPERATORS[kind](x, get_kernel("rbf"), Hyperparameters.ones(count), **options)


# -- memory ----------------------------------------------------------------------------------------------------------
class LargestTile(Matern32):
    """Matérn-3/2 that notes the largest array of distances it was ever given."""

    largest = 0

    def profile(self, r: Tensor) -> Tensor:
        type(self).largest = max(type(self).largest, r.numel())
        return super().profile(r)


@pytest.mark.parametrize("tile_entries", [100, 1000, 30_000])
def test_no_tile_exceeds_its_bound(tile_entries: int) -> None:
    """Products of any n hold at most ``tile_entries`` of the kernel, and most tiles come close to that."""
    operator = ChunkedOperator(inputs(257, 4), LargestTile(), hyperparameters(4), tile_entries=tile_entries)
    V = columns(257, 2, torch.float64)
    for product in (
        lambda: operator.matmul(V),
        lambda: operator.rows_matmul(torch.arange(90), V),
        lambda: operator.columns_matmul(slice(0, 90), V[:90]),
        lambda: operator.cross_matmul(operator.x[:90], V),
        lambda: operator.kernel_matmul(torch.arange(90), slice(0, 257), V),
        lambda: operator.quadratic_gradient(V, V, torch.ones(2)),
    ):
        LargestTile.largest = 0
        product()
        assert min(tile_entries, 90 * 257) / 2 < LargestTile.largest <= tile_entries


MEMORY_SCRIPT = '''
import json, torch
from pathlib import Path
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import ChunkedOperator

torch.set_num_threads(1)


def inputs(n):
    return torch.randn(n, 10), torch.randn(n, 65)


def operator(x):
    return ChunkedOperator(x, get_kernel("matern32"), Hyperparameters.ones(10))


def mebibytes(field):
    """VmRSS is what is resident now, VmHWM its peak; unlike ru_maxrss that does not start at the parent's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024


x, V = inputs(300)
operator(x).quadratic_gradient(V, operator(x).matmul(V), torch.ones(65))  # starts threads, loads libraries
report = {}

x, V = inputs(20_000)
before = mebibytes("VmRSS")
out = operator(x).matmul(V)
report["matmul, n = 20,000"] = mebibytes("VmHWM") - before
del x, V, out

x, V = inputs(200_000)
before = mebibytes("VmRSS")
rows = operator(x).rows_matmul(torch.arange(0, 200_000, 4000), V)
new = operator(x).cross_matmul(x[:50], V)
columns = operator(x).columns_matmul(slice(100, 150), V[100:150])
report["rows, columns and cross, n = 200,000"] = mebibytes("VmHWM") - before
print(json.dumps(report))
'''


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the resident memory from /proc")
def test_chunked_products_need_little_memory_beside_their_inputs() -> None:
    """Peak resident memory of a fresh process, less what it holds once the inputs exist, in MiB.

    A float32 H of n = 20,000 would take 1,526 MiB. A chunked product takes the scaled inputs and their temporary
    (2 · 10 · 4 = 80 bytes a row), the output (65 · 4 = 260 bytes a row), together 7 MiB, and a fixed number of tiles
    whose size does not depend on n (``test_no_tile_exceeds_its_bound``), some MiB each. Under the bound of 100 MiB
    even a use that were linear in n altogether would stay below 1,000 MiB at n = 200,000; a tenth of H breaks it.

    A whole product at n = 200,000 takes minutes here. So at that n the same bookkeeping is measured with products of
    50 rows, 50 columns and 50 new points: scaled inputs, one output and tiles are about 80 MiB, and 400 is the bound.
    """
    script = [sys.executable, "-c", MEMORY_SCRIPT]
    report = json.loads(subprocess.run(script, capture_output=True, text=True, check=True).stdout)
    assert report["matmul, n = 20,000"] < 100, report
    assert report["rows, columns and cross, n = 200,000"] < 400, report


@KINDS
def test_float32_diagonal_is_exact_for_every_kind_of_index(kind: str) -> None:
    """Short length scales: a distance by products is off by ε|z|², more than the noise variance here."""
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    theta = Hyperparameters(1e-3, 1.0, [0.02] * 5)
    operator = OPERATORS[kind](x, get_kernel("matern32"), theta, tile_entries=500)
    index = torch.tensor([3, 50, 17])
    expected = torch.tensor(1.0 + 1e-6)
    for block in (operator.block(index), operator.block(slice(3, 9))):
        assert torch.allclose(block.diagonal(), expected, rtol=2e-7, atol=0)
    eye = torch.eye(60)
    assert torch.allclose(operator.rows_matmul(index, eye)[torch.arange(3), index], expected, rtol=2e-7, atol=0)
    assert torch.allclose(operator.matmul(eye).diagonal(), expected, rtol=2e-7, atol=0)
    assert torch.allclose(operator.columns_matmul(index, torch.eye(3))[index].diagonal(), expected, rtol=2e-7, atol=0)
    assert (operator.kernel_columns(index)[index].diagonal() == 1.0).all()
    own = operator.kernel_matmul(index, slice(3, 60), torch.eye(57))[torch.arange(3), index - 3]
    assert (own == 1.0).all() and (operator.kernel_matmul(index, index, torch.eye(3)).diagonal() == 1.0).all()


def test_at_leaves_an_operator_alone_and_moved_to_takes_its_memory() -> None:
    first = DenseOperator(inputs(30, 2), get_kernel("rbf"), hyperparameters(2))
    H, other = first.H, Hyperparameters.ones(2)
    before = H.clone()
    truth = first.at(other).H
    assert torch.equal(H, before) and first.H is H
    moved = first.moved_to(other)
    assert torch.equal(moved.H, truth) and moved.H.data_ptr() == H.data_ptr()
    assert torch.equal(first.H, before)  # evaluated again, elsewhere


def test_a_triton_that_is_too_old_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch 2.6 to 2.8 comes one that refuses float64: such a GPU gets the operators in plain torch."""
    triton = pytest.importorskip("triton", reason="Triton comes with torch for CUDA on Linux")
    for version, enough in (("3.4.0", False), ("3.5.0", True), ("3.10.0+git1", True)):
        monkeypatch.setattr(triton, "__version__", version)
        assert has_triton() is enough
    monkeypatch.setattr(triton, "__version__", "3.2.0")
    with pytest.raises(ValueError, match=r"Triton 3\.5"):
        make_operator("fused", inputs(7, 4), get_kernel("rbf"), hyperparameters(4))
