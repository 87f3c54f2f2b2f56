"""Every solver and preconditioner where rows have noise of their own, against dense float64."""

from __future__ import annotations

import pytest
import torch

from row_noise_truth import THETA, dense_h, problem
from solver_problems import SOLVERS
from solver_problems import one_thread as one_thread
from warmgp import ConjugateGradients, StoppingRule
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import has_triton, make_operator
from warmgp.solvers.block_factors import block_dtype
from warmgp.solvers.preconditioners.low_rank import LowRank
from warmgp.solvers.preconditioners.neighbour_factor import NearNeighbours
from warmgp.solvers.preconditioners.whole_factor import StaleFactor, Substitution

N = 67
RULE = StoppingRule(tol=1e-4)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kind", ["dense", "chunked"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_solutions(solver: str, kind: str, name: str) -> None:
    """To the tolerance by the residual of dense float64, so that the solution is that of this H and of no other."""
    x, y, w, e, rows = problem(N)
    operator = make_operator(kind, x, get_kernel(name), THETA, rows=rows)
    targets = torch.stack([y, x[:, 0]], 1)
    result = SOLVERS[solver].solve(operator, targets, rule=RULE, generator=torch.Generator().manual_seed(0))
    left = targets - dense_h(name, x, THETA.vector, w, e) @ result.solution
    assert result.converged
    assert bool((left.norm(dim=0) <= 1.01e-4 * targets.norm(dim=0)).all())
    plain = targets - dense_h(name, x, THETA.vector, w, 0 * e) @ result.solution
    assert bool((plain.norm(dim=0) > 1e-2 * targets.norm(dim=0)).all())  # e is more than the tolerance


@pytest.mark.skipif(not has_triton(), reason="Triton is not here")
@pytest.mark.parametrize("solver", ["cg", "rap", pytest.param("ap", marks=pytest.mark.gpu)])
def test_solutions_with_the_fused_operator(solver: str) -> None:
    x, y, w, e, rows = problem(N)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    operator = make_operator("fused", x.float().to(device), get_kernel("matern32"), THETA, rows=rows.to(device))
    targets = y[:, None].float().to(device)
    result = SOLVERS[solver].solve(
        operator, targets, rule=StoppingRule(tol=1e-3), generator=torch.Generator().manual_seed(0)
    )
    H = dense_h("matern32", x.float().double(), THETA.vector, w, e)
    left = targets.cpu().double() - H @ result.solution.cpu().double()
    assert result.converged and float(left.norm()) <= 1.1e-3 * float(targets.norm())


# -- preconditioners -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_low_rank(dtype: torch.dtype) -> None:
    """P = L Lᵀ + D, whose inverse is applied: with all columns it is H."""
    x, _, w, e, rows = problem(N)
    operator = make_operator("dense", x.to(dtype), get_kernel("matern32"), THETA, rows=rows)
    D = torch.diag(THETA.noise_scale**2 / w + e)
    for rank in (5, N):
        made = LowRank(rank).build(operator)
        L = made.unit_factor * THETA.signal_scale
        R = torch.eye(N, dtype=dtype)
        expected = torch.linalg.inv(L @ L.T + D)
        assert torch.allclose(made.apply(R).double(), expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))
    H = dense_h("matern32", x.to(dtype).double(), THETA.vector, w, e)
    assert float((L @ L.T + D - H).norm()) < 1e-5 * float(H.norm())


def test_low_rank_helps() -> None:
    """It takes fewer iterations than none, though the noise of rows differs by a factor of thousands."""
    x, y, _, _, rows = problem(N)
    operator = make_operator("dense", x, get_kernel("rbf"), THETA, rows=rows)
    counts = [
        ConjugateGradients(preconditioner_rank=rank).solve(operator, y[:, None], rule=RULE).iterations
        for rank in (0, 40)
    ]
    assert counts[1] < 0.5 * counts[0]


def test_near_neighbours() -> None:
    """Given all points before it, a point has its exact conditional: P⁻¹ is H⁻¹."""
    x, _, w, e, rows = problem(N)
    operator = make_operator("dense", x, get_kernel("matern32"), THETA, rows=rows)
    expected = torch.linalg.inv(dense_h("matern32", x, THETA.vector, w, e))
    for low in (None, LowRank(5)):
        made = NearNeighbours(N - 1, low).build(operator)
        found = made.apply(torch.eye(N, dtype=torch.float64))
        assert torch.allclose(found, expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max()))


def test_whole_factor() -> None:
    x, _, w, e, rows = problem(N)
    operator = make_operator("chunked", x, get_kernel("matern32"), THETA, rows=rows)
    made = StaleFactor.build(operator, double=True)
    assert isinstance(made, Substitution)
    expected = torch.linalg.inv(dense_h("matern32", x, THETA.vector, w, e))
    R = torch.eye(N, dtype=torch.float64)
    for one in (made, made.inverted(torch.float64)):  # the form of a GPU, too
        assert torch.allclose(one.apply(R), expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max()))
    X = made.inverted(torch.float64).X
    assert float(X.abs().max()) <= 1.0  # so that float16 holds it


def test_blocks_are_float64_where_one_row_has_hardly_any_noise() -> None:
    x, _, w, e, rows = problem(N)
    operators = [
        make_operator("dense", x.float(), get_kernel("rbf"), THETA, rows=noise)
        for noise in (rows, type(rows)(1 / w, torch.where(e > 0, e, 1.0)), type(rows)(1e-6 / w, 1e-6 * e))
    ]
    assert [block_dtype(operator, 50) for operator in operators] == [torch.float32, torch.float32, torch.float64]
