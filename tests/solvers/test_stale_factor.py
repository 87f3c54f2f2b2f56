"""A whole factor of an earlier H as the preconditioner: right at any θ, nearly free iterations, deterministic."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gp_truth import toy
from warmgp import (
    ChunkedOperator,
    ConjugateGradients,
    DenseOperator,
    Hyperparameters,
    KernelOperator,
    Pathwise,
    StoppingRule,
    TrainingOptions,
)
from warmgp.kernels import get_kernel
from warmgp.solvers.cg import FREE, CGState
from warmgp.solvers.preconditioners import Identity
from warmgp.solvers.preconditioners.whole_factor import Products, StaleFactor, Substitution
from warmgp.solvers.triangular import solve_with_factor, triangular_inverse
from warmgp.training import Problem, train_only

KERNEL = get_kernel("matern32")
LOW_NOISE = Hyperparameters(0.05, 1.2, [0.9, 1.4])


def make(
    theta: Hyperparameters = LOW_NOISE, n: int = 157, kind: type[KernelOperator] = DenseOperator,
    dtype: torch.dtype = torch.float64,
) -> KernelOperator:  # fmt: skip
    return kind(toy(n, 2)[0].to(dtype), KERNEL, theta)


def columns(n: int = 157, c: int = 5, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, c, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)


def made(operator: KernelOperator, *, double: bool = False) -> Substitution:
    """The factor in the form for a CPU, which there must be."""
    factor = StaleFactor.build(operator, double=double)
    assert isinstance(factor, Substitution)
    return factor


@pytest.mark.parametrize("kind", [DenseOperator, ChunkedOperator])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_inverse_of_its_own_h(kind: type[KernelOperator], dtype: torch.dtype) -> None:
    operator = make(kind=kind, dtype=dtype)
    R = columns(dtype=dtype)
    factor = made(operator)
    torch.testing.assert_close(operator.matmul(factor.apply(R)), R, rtol=0, atol=2e-2)  # float32 in either case
    assert factor.apply(R).dtype == dtype


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_products_instead_of_substitution(dtype: torch.dtype, scale: float) -> None:
    """As on a GPU: nearly the same P⁻¹ whatever the size of a column, positive for every direction."""
    operator = make(dtype=torch.float32)
    factor = made(operator)
    inverted = factor.inverted(dtype)
    assert isinstance(inverted, Products)
    assert float(inverted.X.abs().max()) <= 1.01 and inverted.X.dtype == dtype
    R = torch.cat([columns(dtype=torch.float32), torch.zeros(157, 1)], 1) * scale
    truth, found = factor.apply(R), inverted.apply(R)
    assert float((found - truth).norm() / truth.norm()) < (5e-3 if dtype == torch.float16 else 1e-3)
    assert bool(((R * found).sum(0)[:-1] > 0).all()) and bool((found[:, -1] == 0).all())


def test_cg_converges_with_the_float16_inverse() -> None:
    operator = make(dtype=torch.float32)
    state = CGState(made(operator).inverted(torch.float16))
    rule = StoppingRule(1e-3)
    solver = ConjugateGradients(0, factor_after=1000)
    result = solver.solve(operator, columns(dtype=torch.float32), rule=rule, state=state)
    assert result.converged and result.iterations <= 6


class Broken(Substitution):
    """No inverse of anything: the residual of its first step is not a number."""

    def apply(self, R: Tensor) -> Tensor:
        return R * float("nan")

    def successor(self, operator: KernelOperator) -> StaleFactor | None:
        return None if self.double else StaleFactor.build(operator, double=True)


@pytest.mark.parametrize("last", [False, True])
def test_a_factor_that_ruins_a_solve_makes_way_for_the_next_precision(last: bool) -> None:
    """From the best iterate before it; where there is no further precision, the solve gives up there."""
    operator, rule = make(), StoppingRule(1e-3)
    good = made(operator)
    state = CGState(Broken(good.origin, last, good.L))
    result = ConjugateGradients(0, factor_after=1000).solve(operator, columns(), rule=rule, state=state)
    assert result.converged != last and result.stop_reason == ("stagnated" if last else "converged")
    assert bool(torch.isfinite(result.solution).all())


def test_building_leaves_a_stored_h_alone() -> None:
    operator = make()
    before = operator.H.clone()
    StaleFactor.build(operator)
    assert torch.equal(operator.H, before)


def test_float64_takes_over_where_float32_is_not_positive_definite() -> None:
    """Duplicated points and hardly any noise: H is singular to float32."""
    x = toy(60, 2)[0].float().repeat(2, 1)
    operator = DenseOperator(x, KERNEL, Hyperparameters(1e-4, 1.0, [1.0, 1.0]))
    assert torch.linalg.cholesky_ex(operator.H)[1] != 0
    factor = made(operator)
    assert factor.double and factor.L.dtype == torch.float64


def test_no_factor_is_said_so_and_cg_goes_on() -> None:
    x = toy(60, 2)[0].repeat(2, 1)
    singular = DenseOperator(x, KERNEL, Hyperparameters(1e-12, 1.0, [1.0, 1.0]))
    assert StaleFactor.build(singular) is None
    rule = StoppingRule(1e-3, max_epochs=20)
    result = ConjugateGradients(0, factor_after=1).solve(singular, columns(120), rule=rule)
    assert result.iterations > 1 and isinstance(result.state.preconditioner, Identity)


@pytest.mark.parametrize("n", [1, 2, 37, 64])
@pytest.mark.parametrize("block", [1, 8, 64])
def test_triangular_solves_and_inverses(n: int, block: int) -> None:
    A = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    H = A @ A.T + torch.eye(n, dtype=torch.float64)
    L, B = torch.linalg.cholesky(H), columns(n)
    torch.testing.assert_close(triangular_inverse(L, block) @ L, torch.eye(n, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(solve_with_factor(L, B), torch.linalg.solve(H, B), rtol=1e-8, atol=1e-9)
    assert solve_with_factor(L, B).is_contiguous()


def solve(operator: KernelOperator, state: CGState | None = None, after: int | None = 5):
    return ConjugateGradients(0, factor_after=after).solve(operator, columns(), rule=StoppingRule(1e-6), state=state)


def test_the_factor_comes_in_the_middle_of_a_hard_solve() -> None:
    plain, helped = solve(make(), after=None), solve(make())
    assert plain.iterations > 50 and plain.converged
    assert helped.converged and helped.iterations <= 5 + FREE + 2  # a fresh factor solves in one or two
    assert isinstance(helped.state.preconditioner, StaleFactor) and helped.state.spent == 0
    truth = torch.linalg.solve(make().H, columns())
    torch.testing.assert_close(helped.solution, truth, rtol=1e-3, atol=1e-3 * float(truth.abs().max()))


def test_it_serves_the_steps_after_it() -> None:
    state = solve(make()).state
    factor = state.preconditioner
    moved = Hyperparameters(0.046, 1.25, [0.95, 1.3])
    operator = make().at(moved)
    kept = CGState(Substitution(operator.origin, factor.double, factor.L), 0)  # the same data, an earlier θ
    result = solve(operator, kept, after=50)
    assert result.converged and result.iterations < 12 and result.state.preconditioner is kept.preconditioner
    assert result.state.spent == max(0, result.iterations - FREE)


def test_easy_solves_never_pay_for_one() -> None:
    easy = Hyperparameters(3.0, 1.0, [1.0, 1.0])
    state = None
    for _ in range(20):
        result = ConjugateGradients(0, factor_after=5).solve(make(easy), columns(), rule=StoppingRule(0.3), state=state)
        state = result.state
    assert result.iterations <= FREE and state.spent == 0 and isinstance(state.preconditioner, Identity)


def test_a_budget_below_the_free_iterations_gets_one_too() -> None:
    """Warm-started solves of two iterations each: without a factor they would never get anywhere."""
    solver, solution, state = ConjugateGradients(0, factor_after=5), None, None
    for _ in range(5):
        result = solver.solve(make(), columns(), solution, rule=StoppingRule(1e-6, max_epochs=2), state=state)
        solution, state = result.solution, result.state
    assert isinstance(state.preconditioner, StaleFactor) and result.converged


def test_other_data_get_their_own() -> None:
    state = solve(make()).state
    result = solve(make(n=157), state)  # equal points, but another tensor: it cannot know
    assert result.converged and result.state.preconditioner is not state.preconditioner


def test_training_needs_a_handful_of_iterations_a_step() -> None:
    """The point of it all: at low noise a low-rank preconditioner takes many times as many."""
    x, y = toy(300, 2)
    taken = {}
    for after in (None, 3):
        options = TrainingOptions(ConjugateGradients(10, factor_after=after), Pathwise(8, 500), n_steps=25)
        start = DenseOperator(x, KERNEL, Hyperparameters(0.1, 1.0, [0.7, 0.7]))
        state = train_only(Problem(start, y), options, generator=torch.Generator().manual_seed(0))
        assert all(record.converged for record in state.history)
        taken[after] = sum(record.iterations for record in state.history[1:]) / 24
    assert taken[3] < 8 and taken[3] < taken[None] / 3


@pytest.mark.parametrize("bad", [0, -1, 2.5, True])
def test_factor_after_is_checked(bad: object) -> None:
    with pytest.raises(ValueError, match="factor_after must be an integer of at least 1"):
        ConjugateGradients(0, factor_after=bad)


def test_a_factor_of_this_h_is_made_once_a_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a solve takes: first in float32, then in float64, and no more."""
    made = []
    build = StaleFactor.build

    def counted(operator, **options):  # type: ignore[no-untyped-def]
        made.append(options.get("double", False))
        return build(operator, **options)

    monkeypatch.setattr(StaleFactor, "build", staticmethod(counted))
    operator = make(Hyperparameters(3e-3, 1.0, [2.0, 2.0]), dtype=torch.float32)
    ConjugateGradients(0, factor_after=1).solve(operator, columns(dtype=torch.float32), rule=StoppingRule(1e-12, 200.0))
    assert made == [False, True]


def test_the_next_factor() -> None:
    operator = make(dtype=torch.float32)
    first = made(operator)
    assert not first.double
    second = first.successor(operator)
    assert isinstance(second, Substitution) and second.double and second.L.dtype == torch.float64
    assert second.successor(operator) is None
    moved = second.successor(operator.at(Hyperparameters(0.1, 1.0, [1.0, 1.0])))
    assert moved is not None and moved.double  # what failed before is not tried again
    half = first.inverted(torch.float16)
    finer = half.successor(operator)
    assert finer is not None and not finer.double  # X in float32 on a GPU; L itself here


@pytest.mark.parametrize("double", [False, True])
def test_a_factor_is_made_again_to_the_same_bits(double: bool) -> None:
    operator = make(dtype=torch.float32)
    factor = made(operator, double=double)
    assert factor.recipe.double == double and factor.recipe.half
    again = factor.recipe.at(operator.at(Hyperparameters(0.3, 1.0, [1.0, 1.0])))
    assert isinstance(again, Substitution) and torch.equal(again.L, factor.L)
    assert not factor.inverted(torch.float32).recipe.half and factor.inverted(torch.float16).recipe.half
