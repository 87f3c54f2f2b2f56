"""What an operator keeps: another θ, counts, refusals, memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from operator_problems import (
    KINDS,
    NAMES,
    assert_near,
    columns,
    hyperparameters,
    indices,
    inputs,
    operator_for,
    reference,
    reference_kernel,
)
from operator_problems import one_thread as one_thread
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32, get_kernel
from warmgp.operators import (
    OPERATORS,
    ChunkedOperator,
    DenseOperator,
    dense_bytes,
    has_triton,
    make_operator,
)


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
