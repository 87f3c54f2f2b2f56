"""Dense and chunked H: every product against float64 differences, the counts of evaluated entries, the memory."""

from __future__ import annotations

import pytest
import torch

from gp_truth import h_matrix
from operator_problems import (
    DTYPES,
    GRID,
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
    rng,
)
from operator_problems import one_thread as one_thread
from warmgp import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import (
    OPERATORS,
    dense,
    huge_pages,
    make_operator,
)
from warmgp.operators.distances import distances


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
def test_scattered_rows_of_a_stored_matrix_in_pieces(
    dtype: torch.dtype, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "AT_ONCE", 50)
    monkeypatch.setattr(huge_pages, "HUGE_FROM", 0)
    operator, H, n = operator_for("dense", "matern32", dtype, shape), reference(*shape, "matern32"), shape[0]
    for label, index in indices(n).items():
        V, W = columns(n, 65, dtype), columns(H[:, index].shape[1], 65, dtype)
        assert_near(operator.rows_matmul(index, V), H[index] @ V.double(), dtype, f"rows, {label}")
        assert_near(operator.columns_matmul(index, W), H[:, index] @ W.double(), dtype, f"columns, {label}")


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


@pytest.mark.parametrize("name", ["dense", "chunked"])
def test_float64_tells_the_truth_of_categories_beside_a_huge_signal(name: str) -> None:
    """A column of 0 and 1 with a length scale of 0.005 puts points far from the centre; at a signal of 15,000 noise
    scales products for distances moved a row of H v by a twentieth of the noise here, and by 0.6 of it in a fit."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1_200, 8, generator=g, dtype=torch.float64)
    x[:, 0] = (torch.rand(1_200, generator=g) < 0.2).double()
    theta = Hyperparameters(0.05, 750.0, [0.005, *[500.0] * 7])
    H = h_matrix("matern52", x, theta.vector)
    v = torch.linalg.solve(H, torch.tanh(x[:, 1:2]) + 0.05 * torch.randn(1_200, 1, generator=g, dtype=torch.float64))
    operator = make_operator(name, x, get_kernel("matern52"), theta)
    rows = torch.arange(0, 1_200, 7)
    assert (operator.rows_matmul(rows, v) - (H @ v)[rows]).abs().max() < 1e-3 * 0.05
