"""Triton's operators against dense float64: on a GPU where there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fused_tools import BOUND, DEVICE, SLOW, check_products, close, columns, problem, theta_of
from gp_truth import h_matrix, toy
from warmgp import (
    AlternatingProjections,
    ChunkedOperator,
    ConjugateGradients,
    DenseOperator,
    Hyperparameters,
    Matern32,
    Pathwise,
    Solver,
    StoppingRule,
)
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import fusing, has_triton, make_operator, why_not_fused

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux; its operators need it", allow_module_level=True)

from warmgp.operators.triton import split
from warmgp.operators.triton.fused import FusedOperator
from warmgp.operators.triton.split import Tile, largest_bits, scales, splits_for
from warmgp.solvers.triton.packed import pack_symmetric
from warmgp.solvers.triton.steps import pick_block, project_block


# -- products --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("d", [1, pytest.param(4, marks=SLOW), 20])
@pytest.mark.parametrize("kernel", KERNELS)
def test_products_of_every_kernel(kernel: str, d: int) -> None:
    check_products(*problem(kernel, 100, d), c=17)


@pytest.mark.parametrize(
    ("n", "c"),
    [
        (4, 1),
        (64, 65),
        (67, 2),
        (67, 74),
        *(pytest.param(n, c, marks=SLOW) for n, c in ((257, 129), (65, 16), (130, 81), (70, 145))),
    ],
)
@pytest.mark.parametrize("d", [3, 11])
def test_products_of_odd_shapes(d: int, n: int, c: int) -> None:
    check_products(*problem("matern32", n, d), c=c)


@pytest.mark.parametrize(("d", "c"), [(1, 1), (4, 17), pytest.param(20, 66, marks=SLOW)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_float64(kernel: str, d: int, c: int) -> None:
    x = toy(100, d)[0]
    x[11] = x[12]
    theta = theta_of(d)
    operator, H = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta), h_matrix(kernel, x, theta.vector)
    V, index, W = columns(100, c).double(), torch.tensor([50, 0, 99, 33]), columns(20, c).double()
    close(operator.matmul(V.to(DEVICE)), H @ V, 1e-12)
    close(operator.rows_matmul(index.to(DEVICE), V.to(DEVICE)), H[index] @ V, 1e-12)
    close(operator.columns_matmul(index.to(DEVICE), V[:4].to(DEVICE)), H[:, index] @ V[:4], 1e-12)
    close(operator.columns_matmul(slice(20, 40), W.to(DEVICE)), H[:, 20:40] @ W, 1e-12)
    R = V.clone().to(DEVICE)
    operator.subtract_columns(R, torch.tensor([40], device=DEVICE), W.to(DEVICE))
    close(R, V - H[:, 40:60] @ W, 1e-12)
    reference = ChunkedOperator(x, get_kernel(kernel), theta)
    close(operator.cross_matmul(x[:7].to(DEVICE), V.to(DEVICE)), reference.cross_matmul(x[:7], V), 1e-12)
    gradient = operator.quadratic_gradient(V.to(DEVICE), V.to(DEVICE), torch.ones(c))
    close(gradient, reference.quadratic_gradient(V, V, torch.ones(c)), 1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kernel", "d"), [("matern12", 1), ("matern32", 6), pytest.param("rbf", 20, marks=SLOW)])
def test_kernel_products_of_some_rows_and_columns(kernel: str, d: int, dtype: torch.dtype) -> None:
    """No noise, also where rows and columns meet; indices repeat, and need not be contiguous in memory."""
    x, theta, bound = toy(100, d)[0].to(dtype), theta_of(d), BOUND if dtype == torch.float32 else 1e-12
    x[11] = x[12]
    operator = FusedOperator(x.to(DEVICE), get_kernel(kernel), theta)
    H, noise = h_matrix(kernel, x.double(), theta.vector), operator.noise_variance
    K = H - noise * torch.eye(100, dtype=torch.float64)
    every_third = torch.arange(100)[::3]
    assert not every_third.is_contiguous()
    sets = (slice(0, 100), slice(7, 80), torch.tensor([50, 0, 99, 33, 0]), every_third)
    for rows in sets:
        for its in sets:
            block = K[rows][:, its]
            V = columns(block.shape[1], 17).to(dtype)
            on_device = [i if isinstance(i, slice) else i.to(DEVICE) for i in (rows, its)]
            before = operator.entries_evaluated
            close(operator.kernel_matmul(*on_device, V.to(DEVICE)), block @ V.double(), bound)
            assert operator.entries_evaluated - before == block.numel()
    V = columns(100, 3).to(DEVICE, dtype)
    close(operator.rows_matmul(every_third.to(DEVICE), V), H[every_third] @ V.cpu().double(), bound)
    none = torch.tensor([], dtype=torch.int64, device=DEVICE)
    assert operator.kernel_matmul(none, slice(0, 100), V).shape == (0, 3)
    assert bool((operator.kernel_matmul(slice(0, 9), none, V[:0]) == 0).all())
    with pytest.raises(ValueError, match="a row for each of the 4 columns of K, got 100 rows"):
        operator.kernel_matmul(slice(0, 9), slice(0, 4), V)


@pytest.mark.parametrize("exact", [True, False])
def test_many_inputs(exact: bool) -> None:
    operator, H = problem("matern52", 90, 128, exact_distances=exact)
    V = columns(90, 3)
    close(operator.matmul(V.to(DEVICE)), H @ V.double(), 2e-4 if not exact else BOUND)  # |z|² is 100 and more


@pytest.mark.parametrize(
    "tile",
    [
        Tile(64, 32, 4, 2, 168),
        *(pytest.param(tile, marks=SLOW) for tile in (Tile(128, 64, 8, 1), Tile(32, 128, 4, 2, 128))),
    ],
)
def test_tiles_of_other_shapes(tile: Tile) -> None:
    operator, H = problem("rbf", 140, 5, tile=tile)
    V = columns(140, 33)
    close(operator.matmul(V.to(DEVICE)), H @ V.double())


def test_subtracting_columns_from_a_place_on_the_device() -> None:
    """A range that runs over the end stands for the rows there are: its W is zero beyond."""
    operator, H = problem("matern32", 130, 4)
    W = columns(36, 5)
    W[22:] = 0.0
    first = torch.tensor([108], device=DEVICE)
    for this in (operator, DenseOperator(operator.x, operator.kernel, operator.theta)):
        R = columns(130, 5, seed=4)
        left = R.clone().to(DEVICE)
        squares = torch.full((130,), 7.0, device=DEVICE)
        this.subtract_columns(left, first, W.to(DEVICE), squares)
        expected = R.double() - H[:, 108:] @ W[:22].double()
        close(left, expected)
        close(squares, expected.square().sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_residuals_are_fused(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The torch path writes every entry to memory: one residual of 500,000 points took as long as ten products."""
    single, H = problem("matern32", 70, 4)
    operator = FusedOperator(single.x.to(dtype), single.kernel, single.theta)
    monkeypatch.setattr(FusedOperator, "_kernel_tile", None)
    v = columns(70, 3).to(dtype)
    b = v.flip(0)
    close(operator.residual(b.to(DEVICE), v.to(DEVICE)), b.double() - H @ v.double())


@pytest.mark.parametrize("c", [1, 17, 33])
def test_subtracting_gathered_columns(c: int) -> None:
    """Rows of a random block, low ones among them: the noise belongs to the rows of the block alone."""
    operator, H = problem("matern32", 130, 4)
    index = torch.tensor([0, 129, 3, 64, 1, 77, 128])
    W, R = columns(7, c), columns(130, c, seed=4)
    for this in (operator, DenseOperator(operator.x, operator.kernel, operator.theta)):
        left = R.clone().to(DEVICE)
        this.subtract_columns_at(left, index.to(DEVICE), W.to(DEVICE))
        close(left, R.double() - H[:, index] @ W.double())


@pytest.mark.parametrize("c", [1, 17, 74, pytest.param(129, marks=SLOW)])
def test_squares_of_all_groups_of_columns(c: int) -> None:
    operator, H = problem("matern32", 67, 4)
    W, R = columns(20, c), columns(67, c, seed=4)
    left, squares = R.clone().to(DEVICE), torch.full((67,), 7.0, device=DEVICE)
    operator.subtract_columns(left, torch.tensor([40], device=DEVICE), W.to(DEVICE), squares)
    close(squares, (R.double() - H[:, 40:60] @ W.double()).square().sum(1))


@pytest.mark.parametrize("m", [0, 1, 70])
def test_cross_products(m: int) -> None:
    operator, _ = problem("matern32", 100, 6)
    x_new, V = columns(m, 6, seed=3), columns(100, 65)
    expected = ChunkedOperator(operator.x.cpu().double(), operator.kernel, operator.theta)
    close(operator.cross_matmul(x_new.to(DEVICE), V.to(DEVICE)), expected.cross_matmul(x_new.double(), V.double()))


def test_cross_products_far_away_are_zero_not_nan() -> None:
    operator, _ = problem("matern32", 100, 6)
    assert not operator._exact
    x_new = torch.cat([columns(3, 6, seed=3), torch.full((1, 6), 1e4), torch.full((1, 6), -1e6)])
    V = columns(100, 5)
    expected = ChunkedOperator(operator.x.cpu().double(), operator.kernel, operator.theta)
    found = operator.cross_matmul(x_new.to(DEVICE), V.to(DEVICE)).cpu()
    close(found, expected.cross_matmul(x_new.double(), V.double()))
    assert bool((found[3:] == 0).all())


def test_long_sums_make_up_for_their_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over many points that passes through large values and ends at small ones, as at low noise."""
    monkeypatch.setattr(split, "splits_for", lambda *_: 1)
    n = 6_000
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(0), device="cpu").to(DEVICE)
    operator = FusedOperator(x, get_kernel("matern12"), Hyperparameters(0.1, 1.0, [30.0] * 2))
    V = torch.ones(n, 17, device=DEVICE)
    V[n // 2 :] = -1.0  # half of the sum is 3,000, all of it nearly 0
    rows = torch.arange(40, device=DEVICE)
    truth = ChunkedOperator(x.double(), operator.kernel, operator.theta).rows_matmul(rows, V.double())
    errors = []
    for long in (10**9, 64):
        monkeypatch.setattr(split, "LONG", long)
        errors.append(float((operator.rows_matmul(rows, V).double() - truth).square().mean().sqrt()))
    assert errors[1] < 0.3 * errors[0], f"rounding left {errors[1]:.1e}, and {errors[0]:.1e} without its compensation"


def test_columns_of_very_different_size_keep_their_digits() -> None:
    """Every column is scaled by its own largest entry before it is split."""
    operator, H = problem("matern32", 100, 4)
    V = columns(100, 6) * torch.tensor([1e-20, 1e-6, 1.0, 1e6, 1e20, 0.0])
    found, expected = operator.matmul(V.to(DEVICE)).cpu().double(), H @ V.double()
    for c in range(5):
        close(found[:, c], expected[:, c])
    assert bool((found[:, 5] == 0).all())
    scaled = V * scales(largest_bits(V.to(DEVICE))).cpu()
    assert float(scaled[:, :5].abs().amax(0).min()) >= 512 and float(scaled.abs().max()) <= 1024


def test_a_result_repeats_bit_for_bit() -> None:
    operator, _ = problem("matern32", 130, 11)
    V, index = columns(130, 65).to(DEVICE), torch.arange(0, 130, 3, device=DEVICE)
    weights = torch.linspace(-1, 1, 65)
    for product in (
        lambda: operator.matmul(V),
        lambda: operator.rows_matmul(index, V),
        lambda: operator.quadratic_gradient(V, V, weights),
    ):
        assert torch.equal(product(), product())


# -- what it refuses, what it counts -----------------------------------------------------------------------------------
def test_what_cannot_be_fused_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    x = columns(20, 2).to(DEVICE)

    class Other(Matern32):
        def profile(self, r: Tensor) -> Tensor:
            return super().profile(2.0 * r)

    with pytest.raises(ValueError, match=r"float32 or float64, and x is torch\.float16"):
        FusedOperator(x.half(), Matern32(), Hyperparameters.ones(2))
    with pytest.raises(ValueError, match="no fused form"):
        FusedOperator(x, Other(), Hyperparameters.ones(2))
    with pytest.raises(ValueError, match=r"V must be torch\.float32"):
        FusedOperator(x, Matern32(), Hyperparameters.ones(2)).matmul(x.double())
    cuda = torch.device("cuda")
    assert why_not_fused(Matern32(), cuda, torch.float32, 2**24, 200).endswith("32-bit addresses")
    assert why_not_fused(Matern32(), cuda, torch.float64, 2**23, 200) == ""
    monkeypatch.setattr(fusing, "has_triton", lambda: False)
    assert why_not_fused(Matern32(), cuda, torch.float32, 100, 2).startswith("it needs Triton 3.5")


def test_on_a_cpu_only_the_interpreter_can_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "_is_interpreted", lambda: False)
    found = why_not_fused(Matern32(), torch.device("cpu"), torch.float32, 100, 2)
    assert found == "it needs a CUDA device, and x is on cpu"


def test_evaluated_entries() -> None:
    x, V = columns(50, 4).to(DEVICE), columns(50, 3).to(DEVICE)
    fused = make_operator("fused", x, Matern32(), Hyperparameters.ones(4))
    assert isinstance(fused, FusedOperator)
    fused.matmul(V)
    fused.rows_matmul(slice(0, 10), V)
    assert fused.entries_evaluated == 50 * 50 + 10 * 50
    assert fused.at(Hyperparameters.ones(4)).entries_evaluated == 3000
    options = FusedOperator(x, Matern32(), Hyperparameters.ones(4), exact_distances=True, tile=Tile(32, 32, 4, 1))
    assert options.at(theta_of(4)).exact_distances and options.at(theta_of(4)).tile == options.tile


def test_grids_fill_a_gpu_with_as_many_programs_as_its_registers_hold() -> None:
    """1,000 rows of 100,000 columns on 132 multiprocessors: three programs on each where a tile is bounded so."""
    tiles = {Tile(64, 64, 4, 3): 2, Tile(64, 64, 4, 3, 168): 3, Tile(64, 64, 4, 3, 128): 4, Tile(128, 64, 8, 2): 1}
    assert {tile: tile.programs for tile in tiles} == tiles
    assert [16 * splits_for(16, 1563, programs) for programs in (2, 3)] == [256, 384]
    assert splits_for(211, 211, 3) == 5 and splits_for(28_818, 28_818, 3) == 1 and splits_for(16, 7, 3) == 7


# -- solvers on it ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "solver",
    [ConjugateGradients(30), AlternatingProjections(30), AlternatingProjections(32, on_device=True)],
    ids=["cg", "ap", "ap on device"],
)
@SLOW
def test_solvers(solver: Solver) -> None:
    operator, H = problem("matern32", 100, 4)
    estimator, generator = Pathwise(5, 500), torch.Generator().manual_seed(0)
    targets = estimator.targets(operator, toy(100, 4)[1].float().to(DEVICE), estimator.draw(operator, generator))
    result = solver.solve(operator, targets, rule=StoppingRule(0.01))
    b = targets.cpu().double()
    residual = (b - H @ result.solution.cpu().double()).norm(dim=0) / b.norm(dim=0)
    assert result.converged and float(residual[0]) <= 0.0105 and float(residual[1:].mean()) <= 0.0105


@pytest.mark.parametrize(("b", "c"), [(70, 3), (16, 1), (7, 65), pytest.param(100, 17, marks=SLOW)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_step_of_a_projection(dtype: torch.dtype, b: int, c: int) -> None:
    """The worst block is found, and its packed inverse applied; the last block is a short one."""
    n, blocks = 3 * b - 2, 3
    A = torch.randn(blocks, b, b, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A = A + A.mT
    packed = pack_symmetric(A).to(DEVICE, dtype)
    r = torch.zeros(blocks * b, c)
    r[:n] = columns(n, c)
    v = columns(blocks * b, c, seed=1)
    for most in range(blocks):
        sums = torch.ones(blocks)
        sums[most] = 2.0
        worst, first, done = (torch.full((1,), 5, device=DEVICE) for _ in range(3))
        pick_block(sums.to(DEVICE), worst, first, done, b, n)
        assert (int(worst), int(first), int(done)) == (most, most * b, 5 + min(b, n - most * b))
        new = v.clone().to(DEVICE)
        step = project_block(packed, worst, r.to(DEVICE), new, b)
        rows = slice(most * b, (most + 1) * b)
        expected = A[most] @ r[rows].double()
        close(step, expected)
        moved = v.double()
        moved[rows] += expected
        close(new, moved)


def test_alternating_projections_that_pick_their_block_on_the_device() -> None:
    """The same method as with the host picking; here in the interpreter, so one epoch only."""
    operator, H = problem("matern32", 100, 4)
    b = columns(100, 3).to(DEVICE)
    rule = StoppingRule(0.01, max_epochs=1.3)
    here, there = (AlternatingProjections(32, on_device=w).solve(operator, b, rule=rule) for w in (False, True))
    assert here.iterations == there.iterations == 4 and here.iteration_epochs == there.iteration_epochs
    close(there.solution, here.solution.cpu().double(), 1e-4)
    residual = (b.cpu().double() - H @ there.solution.cpu().double()).norm(dim=0) / b.cpu().double().norm(dim=0)
    assert abs(float(residual[0]) - there.residual_mean) <= 1e-4
