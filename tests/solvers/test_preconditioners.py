"""Pivoted Cholesky: the factor against LAPACK's, the inverse against a dense one, what moves to a new θ."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from scipy.linalg.lapack import dpstrf
from sklearn.gaussian_process.kernels import Matern
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import OPERATORS, DenseOperator, KernelOperator
from warmgp.solvers import ConjugateGradients, StoppingRule
from warmgp.solvers.cg import CGState
from warmgp.solvers.preconditioners.low_rank import LowRank, Pivots, eliminate

NU = {"rbf": math.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
NAMES = pytest.mark.parametrize("name", list(KERNELS))
KINDS = pytest.mark.parametrize("kind", list(OPERATORS))
THETA = Hyperparameters(0.3, 1.7, [0.8, 1.5, 2.5, 1.0])


def points(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make(
    n: int = 60, name: str = "matern32", kind: str = "dense", theta: Hyperparameters = THETA, dtype=torch.float64
) -> KernelOperator:
    return OPERATORS[kind](points(n).to(dtype), get_kernel(name), theta, tile_entries=500)


def reference_kernel(x: Tensor, name: str, theta: Hyperparameters = THETA) -> Tensor:
    unit = Matern(length_scale=theta.length_scales.numpy(), nu=NU[name])(x.double().numpy())
    return theta.signal_scale**2 * torch.from_numpy(unit)


def dense_solve(L: Tensor, noise_variance: float, R: Tensor) -> Tensor:
    """(L Lᵀ + σ²I)⁻¹ R in float64, by a general solver."""
    P = L.double() @ L.double().T + noise_variance * torch.eye(len(L), dtype=torch.float64)
    return torch.linalg.solve(P, R.double())


def factor_of(operator: KernelOperator, rank: int, tolerance: float | None = None) -> Tensor:
    """L, (n, k)."""
    return eliminate(operator, rank, tolerance)[0]


def right_hand_sides(n: int, c: int = 5) -> Tensor:
    return torch.randn(n, c, dtype=torch.float64, generator=torch.Generator().manual_seed(9))


# -- the factor ------------------------------------------------------------------------------------------------------
@KINDS
@NAMES
def test_full_rank_reproduces_the_kernel(name: str, kind: str) -> None:
    """RBF may end early: what is left of the diagonal is then below 1e-10 of the signal variance."""
    operator = make(name=name, kind=kind)
    L = factor_of(operator, 60)
    assert float((L @ L.T - reference_kernel(operator.x, name)).abs().max()) <= 1e-9


def test_a_rank_above_n_is_n() -> None:
    assert factor_of(make(n=20, name="matern12"), 50).shape == (20, 20)


@NAMES
def test_every_column_lowers_the_error_and_never_overshoots(name: str) -> None:
    """K − L Lᵀ is a Schur complement: positive semi-definite, its trace shrinking with every column."""
    operator = make(name=name)
    K = reference_kernel(operator.x, name)
    traces = [float(K.trace())]
    for rank in (1, 2, 5, 10, 20, 40):
        L = factor_of(operator, rank)
        assert L.shape == (60, rank)
        left = K - L @ L.T
        assert float(torch.linalg.eigvalsh(left).min()) >= -1e-10
        traces.append(float(left.trace()))
    assert all(after < before for before, after in pairwise(traces))
    assert traces[-1] < 0.5 * traces[0]


@pytest.mark.parametrize("rank", [1, 7, 30])
@NAMES
def test_pivots_are_those_of_lapack(name: str, rank: int) -> None:
    """dpstrf eliminates the largest remaining diagonal entry, too; its first columns are the partial factor."""
    operator = make(name=name)
    factor, pivots, _, _ = dpstrf(reference_kernel(operator.x, name).numpy(), lower=1)
    expected = torch.zeros(60, rank, dtype=torch.float64)
    expected[torch.from_numpy(pivots).long() - 1] = torch.from_numpy(factor).tril()[:, :rank]
    torch.testing.assert_close(factor_of(operator, rank), expected, rtol=1e-7, atol=1e-8)


@NAMES
def test_it_ends_when_repeated_rows_leave_nothing(name: str) -> None:
    x = points(8).repeat(5, 1)
    operator = OPERATORS["chunked"](x, get_kernel(name), THETA, tile_entries=100)
    L = factor_of(operator, 30)
    assert L.shape == (40, 8)
    assert operator.entries_evaluated == 8 * 40
    assert float((L @ L.T - reference_kernel(x, name)).abs().max()) <= 1e-9


def test_a_loose_tolerance_ends_it_sooner_and_bounds_what_is_left() -> None:
    operator = make(name="rbf")
    L = factor_of(operator, 60, tolerance=0.05)
    left = (reference_kernel(operator.x, "rbf") - L @ L.T).diagonal()
    assert 0 < L.shape[1] < 60
    assert float(left.max()) <= 0.05 * operator.signal_variance
    shorter = factor_of(operator, L.shape[1] - 1)
    shorter_left = (reference_kernel(operator.x, "rbf") - shorter @ shorter.T).diagonal()
    assert float(shorter_left.max()) > 0.05 * operator.signal_variance


@NAMES
def test_float32_reproduces_the_kernel_and_picks_pivots_as_good(name: str) -> None:
    """Near-ties may fall to another pivot in float32, so factors are compared by what they leave of the diagonal."""
    operator = make(name=name, dtype=torch.float32)
    K = reference_kernel(operator.x, name)
    full = factor_of(operator, 60)
    assert full.dtype == torch.float32
    assert float((full.double() @ full.double().T - K).abs().max()) <= 1e-4
    left, left64 = (float(K.trace() - factor_of(op, 20).double().square().sum()) for op in (operator, make(name=name)))
    assert left == pytest.approx(left64, rel=0.05)


# -- the inverse -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rank", [1, 10, 60])
@KINDS
@NAMES
def test_solve_is_the_dense_inverse(name: str, kind: str, rank: int) -> None:
    operator = make(name=name, kind=kind)
    preconditioner, R = LowRank(rank).build(operator), right_hand_sides(60)
    before = R.clone()
    truth = dense_solve(factor_of(operator, rank), 0.3**2, R)
    torch.testing.assert_close(preconditioner.apply(R), truth, rtol=1e-9, atol=1e-9)
    assert torch.equal(R, before)


def test_at_full_rank_it_inverts_h() -> None:
    operator, R = make(), right_hand_sides(60)
    H = reference_kernel(operator.x, "matern32") + 0.3**2 * torch.eye(60, dtype=torch.float64)
    torch.testing.assert_close(LowRank(60).build(operator).apply(H @ R), R, rtol=1e-8, atol=1e-8)


def test_solve_in_float32() -> None:
    operator, R = make(dtype=torch.float32), right_hand_sides(60).float()
    preconditioner = LowRank(20).build(operator)
    solution = preconditioner.apply(R)
    assert solution.dtype == torch.float32
    truth = dense_solve(1.7 * preconditioner.unit_factor, 0.3**2, R)
    assert float((solution.double() - truth).norm() / truth.norm()) <= 1e-5


def test_it_makes_h_better_conditioned() -> None:
    """What it is for: cond(P⁻¹H) falls with the rank and is far below cond(H)."""
    operator = make(name="rbf", theta=Hyperparameters(0.05, 1.0, [3.0] * 4))
    H = operator.matmul(torch.eye(60, dtype=torch.float64))
    conditions = [float(torch.linalg.cond(H))]
    for rank in (5, 15, 30):
        eigenvalues = torch.linalg.eigvals(LowRank(rank).build(operator).apply(H)).real
        conditions.append(float(eigenvalues.max() / eigenvalues.min()))
    assert conditions == sorted(conditions, reverse=True)
    assert conditions[-1] < 0.02 * conditions[0]


# -- reuse -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("noise", "signal"), [(0.1, 1.7), (0.3, 0.6), (2.0, 5.0)])
def test_another_noise_or_signal_reuses_the_factor(noise: float, signal: float) -> None:
    operator, R = make(), right_hand_sides(60)
    preconditioner = LowRank(15).build(operator)
    at_first = preconditioner.apply(R)
    moved_operator = operator.at(Hyperparameters(noise, signal, THETA.length_scales))
    evaluated = moved_operator.entries_evaluated
    moved = preconditioner.at(moved_operator)
    assert moved is not None
    assert moved.unit_factor is preconditioner.unit_factor
    assert moved_operator.entries_evaluated == evaluated
    truth = dense_solve(signal / 1.7 * factor_of(operator, 15), noise**2, R)
    torch.testing.assert_close(moved.apply(R), truth, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(moved.apply(R), LowRank(15).build(moved_operator).apply(R), rtol=1e-9, atol=1e-9)
    assert torch.equal(preconditioner.apply(R), at_first)


def test_the_same_theta_keeps_the_very_object() -> None:
    operator = make()
    preconditioner = LowRank(15).build(operator)
    assert preconditioner.at(operator.at(Hyperparameters(0.3, 1.7, THETA.length_scales))) is preconditioner


@pytest.mark.parametrize(
    "other",
    [
        {"theta": Hyperparameters(0.3, 1.7, [0.8, 1.5, 2.5, 1.0 + 1e-12])},
        {"theta": Hyperparameters(0.3, 1.7, [1.0])},
        {"n": 59},
        {"dtype": torch.float32},
        {"name": "matern52"},
    ],
    ids=["one length", "shared length", "n", "dtype", "kernel"],
)
def test_what_does_not_fit_is_not_reused(other: dict[str, object]) -> None:
    operator = make()
    made = LowRank(15).build(operator)
    assert made.at(make(**other)) is None
    assert LowRank(15).at(make(**other), made).origin is not made.origin
    if "theta" in other:  # on the very same inputs
        assert made.at(operator.at(other["theta"])) is None


def test_another_rank_is_not_reused_but_a_factor_that_ended_early_is() -> None:
    operator = make()
    kept = LowRank(15).build(operator)
    assert LowRank(15).at(operator, kept) is kept
    assert LowRank(16).at(operator, kept).unit_factor.shape == (60, 16)
    assert LowRank(16).at(operator, kept.pivots).unit_factor.shape == (60, 16)
    operator = OPERATORS["dense"](points(8).repeat(5, 1), get_kernel("matern32"), THETA)
    preconditioner = LowRank(30).build(operator)
    assert preconditioner.unit_factor.shape == (40, 8)
    moved = LowRank(30).at(operator.at(Hyperparameters(0.1, 1.7, THETA.length_scales)), preconditioner)
    assert moved.unit_factor is preconditioner.unit_factor
    truth = dense_solve(1.7 * preconditioner.unit_factor, 0.1**2, right_hand_sides(40))
    torch.testing.assert_close(moved.apply(right_hand_sides(40)), truth, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", [1e-2, 1e-3])
def test_float32_preconditioner_stays_positive_definite_at_low_noise(noise: float) -> None:
    x = torch.randn(500, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).float()
    operator = DenseOperator(x, get_kernel("matern32"), Hyperparameters(noise, 1.0, [3.0] * 5))
    inverse = LowRank(100).build(operator).apply(torch.eye(500)).double()
    assert torch.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0


# -- pivots carried to other length scales ---------------------------------------------------------------------------
@NAMES
def test_pivots_make_the_same_factor_at_their_own_theta(name: str) -> None:
    operator = make(name=name)
    built = LowRank(20).build(operator)
    again = built.pivots.factor_at(operator)
    assert again is not None and again.pivots.age == 1
    R = right_hand_sides(60)
    torch.testing.assert_close(again.apply(R), built.apply(R), rtol=1e-6, atol=1e-6)


def test_pivots_give_the_projection_of_the_kernel_at_another_theta() -> None:
    """L Lᵀ = K[:, p] K[p, p]⁻¹ K[p, :], whatever θ the pivots come from."""
    operator = make()
    moved = operator.at(Hyperparameters(0.2, 1.1, [0.9, 1.2, 3.0, 0.8]))
    carried = LowRank(12).build(operator).pivots.factor_at(moved)
    assert carried is not None
    K, p = reference_kernel(moved.x, "matern32", moved.theta), carried.pivots.index
    expected = K[:, p] @ torch.linalg.solve(K[p][:, p], K[p])
    torch.testing.assert_close(1.1**2 * carried.unit_factor @ carried.unit_factor.T, expected, rtol=1e-6, atol=1e-6)


def test_dependent_pivots_still_make_a_preconditioner() -> None:
    """Two pivots that are one point: K[p, p] is singular but for the jitter, and P is that of one of them."""
    x = points(30)
    x[1] = x[0]
    operator, R = OPERATORS["dense"](x, get_kernel("rbf"), THETA), right_hand_sides(30)
    twice, once = (Pivots(torch.tensor(index), LowRank(3)).factor_at(operator) for index in ([0, 1, 2], [0, 2]))
    assert twice is not None and once is not None
    torch.testing.assert_close(twice.apply(R), once.apply(R), rtol=1e-5, atol=1e-5)


def test_pivots_that_have_no_factor_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmgp.solvers.preconditioners.low_rank.JITTER", -1e-3)
    operator = OPERATORS["dense"](points(8).repeat(5, 1), get_kernel("matern32"), THETA)
    assert Pivots(torch.tensor([0, 8, 1]), LowRank(3)).factor_at(operator) is None


def test_cg_seeks_new_pivots_every_so_often() -> None:
    operator, b = make(n=120), right_hand_sides(120)
    solver, state, ages = ConjugateGradients(10, pivot_every=3), None, []
    for step in range(7):
        theta = Hyperparameters(0.3, 1.7, [0.8 + 0.05 * step, 1.5, 2.5, 1.0])
        result = solver.solve(operator.at(theta), b, rule=StoppingRule(1e-6), state=state)
        state = result.state
        assert result.converged
        ages.append(state.preconditioner.pivots.age)
    assert ages == [0, 1, 2, 0, 1, 2, 0]
    index = state.preconditioner.pivots.index
    for rank, age in ((10, 2), (9, 0)):  # of another rank than was asked for they are of no use
        kept = CGState(Pivots(index, LowRank(rank, 3), 1))
        resumed = solver.solve(operator.at(theta), b, rule=StoppingRule(1e-6), state=kept)
        assert resumed.state.preconditioner.pivots.age == age
