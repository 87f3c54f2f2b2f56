"""Near neighbours: the search against brute force, the sparse factor against dense algebra, what it does for CG."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from solver_problems import dense_h
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import OPERATORS, ChunkedOperator, DenseOperator, KernelOperator
from warmgp.solvers import ConjugateGradients, StoppingRule
from warmgp.solvers.preconditioners import LowRank, NearNeighbours, NeighbourFactor
from warmgp.solvers.preconditioners.neighbour_factor import _csr
from warmgp.solvers.preconditioners.neighbour_search import Neighbours, nearest_earlier

NAMES = pytest.mark.parametrize("name", list(KERNELS))
THETA = Hyperparameters(0.3, 1.7, [0.8, 1.5, 2.5, 1.0])


def points(n: int, d: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make(n: int = 61, name: str = "matern32", theta: Hyperparameters = THETA, dtype=torch.float64) -> KernelOperator:
    return DenseOperator(points(n).to(dtype), get_kernel(name), theta, tile_entries=500)


def inverse(operator: KernelOperator, m: int, rank: int = 0) -> Tensor:
    """P⁻¹ as a matrix, float64."""
    return factor_of(operator, m, rank).apply(torch.eye(operator.n, dtype=operator.dtype)).double()


def factor_of(operator: KernelOperator, m: int, rank: int = 0) -> NeighbourFactor:
    return NearNeighbours(m, LowRank(rank) if rank else None).build(operator)


def by_definition(E: Tensor, near: Neighbours) -> Tensor:
    """S of the module's head, row by row from a dense E."""
    S = torch.zeros_like(E)
    for i, group in enumerate(near.groups[:, :-1]):
        N = group[group != i]
        A = torch.linalg.solve(E[N][:, N], E[N, i])
        S[i, N], S[i, i] = -A, 1.0
        S[i] /= (E[i, i] - A @ E[N, i]).sqrt()
    return S


# -- the search ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "d", "m"), [(1, 1, 0), (2, 1, 1), (37, 1, 5), (301, 3, 7), (300, 5, 299)])
@pytest.mark.parametrize("tile_entries", [1, 3000, 2**21])
def test_nearest_earlier(n: int, d: int, m: int, tile_entries: int) -> None:
    z = points(n, d)
    found = nearest_earlier(z, m, tile_entries)
    assert found.shape == (n, m)
    for i in range(n):
        expected = torch.cdist(z[i : i + 1], z[:i])[0].argsort()[:m] if i else torch.empty(0, dtype=torch.int64)
        assert set(found[i].tolist()) == set(expected.tolist()) | ({i} if i < m else set()), i


def test_more_points_than_one_turn_of_queries() -> None:
    z = points(700, 2)
    found = nearest_earlier(z, 4, 5000)
    distance = torch.cdist(z, z).masked_fill_(torch.ones(700, 700).triu().bool(), torch.inf)
    truth = distance[10:].topk(4, largest=False).values.sort().values
    assert torch.allclose(distance[10:].gather(1, found[10:]).sort().values, truth)


def test_groups_are_of_points_near_each_other() -> None:
    operator = make(200)
    near = Neighbours.seek(operator, 5)
    assert near.groups.shape == (200, 6) and torch.equal(near.groups[:, -1], torch.arange(200))
    z = operator.x / THETA.length_scales
    apart = (z[near.groups[:, :-1]] - z[:, None]).norm(dim=-1)
    assert float(apart.mean()) < 0.6 * float(torch.cdist(z, z).mean())
    assert torch.equal(Neighbours.seek(operator, 5).groups, near.groups)  # the same every time


def test_neighbours_serve_while_distances_divide_alike() -> None:
    operator = make(50)
    near = Neighbours.seek(operator, 5)
    assert near.still_serve(operator)
    assert near.still_serve(operator.at(Hyperparameters(1.0, 9.0, 7.0 * THETA.length_scales)))  # a common factor
    assert near.still_serve(operator.at(Hyperparameters(0.3, 1.7, [0.85, 1.4, 2.5, 1.1])))
    assert not near.still_serve(operator.at(Hyperparameters(0.3, 1.7, [2.5, 1.5, 0.8, 1.0])))


@pytest.mark.parametrize("column", [torch.tensor([3000.0] + [0.0] * 399), 30.0 * torch.ones(400).cumsum(0) % 60.0])
def test_a_column_that_spreads_far_does_not_hide_the_others(column: Tensor) -> None:
    """One outlier, or two far values: neighbours agree in it, so it has no share in their distances."""
    x = torch.cat([points(400, 2), column.double()[:, None]], 1)
    operator = DenseOperator(x, get_kernel("matern32"), Hyperparameters(0.1, 1.0, [0.3, 3.0, 1.0]))
    near = Neighbours.seek(operator, 6)
    assert not near.still_serve(operator.at(Hyperparameters(0.1, 1.0, [3.0, 0.3, 1.0])))


def test_groups_by_brute_force() -> None:
    """In the known random order, by scaled distances, of float32 inputs far from zero; by other lengths if asked."""
    x = (points(150) + 1e4).float()
    operator = ChunkedOperator(x, get_kernel("matern32"), THETA, tile_entries=500)
    order = torch.randperm(150, generator=torch.Generator().manual_seed(0))
    for lengths in (None, torch.tensor([3.0, 0.2, 1.0, 1.0], dtype=torch.float64)):
        groups = Neighbours.seek(operator, 5, lengths).groups
        z = x.double() / (THETA.length_scales if lengths is None else lengths)
        for place in range(6, 150):
            i, earlier = order[place], order[:place]
            nearest = earlier[(z[earlier] - z[i]).norm(dim=1).argsort()[:5]]
            assert set(groups[i, :-1].tolist()) == set(nearest.tolist())


# -- kernels of groups -----------------------------------------------------------------------------------------------
@NAMES
@pytest.mark.parametrize("kind", list(OPERATORS))
def test_group_kernels(name: str, kind: str) -> None:
    operator = OPERATORS[kind](points(40).float(), get_kernel(name), THETA)
    groups = torch.randint(0, 40, (11, 5), generator=torch.Generator().manual_seed(0))
    H = dense_h(operator.x.double(), name, Hyperparameters(1e-12, 1.7, THETA.length_scales))
    before = operator.entries_evaluated
    found = operator.group_kernels(groups)
    assert found.dtype == torch.float64 and operator.entries_evaluated - before == 11 * 25
    for group, K in zip(groups, found, strict=True):
        assert torch.allclose(K, H[group][:, group], atol=1e-12)


@NAMES
def test_group_kernels_of_points_that_nearly_coincide_far_from_zero(name: str) -> None:
    x = (1e4 + 1e-3 * points(6, 2)).float()
    theta = Hyperparameters(1e-12, 1.0, [1.0])
    found = ChunkedOperator(x, get_kernel(name), theta).group_kernels(torch.arange(6)[None])[0]
    assert torch.allclose(found, dense_h(x.double(), name, theta), rtol=0, atol=1e-12)


# -- the factor ------------------------------------------------------------------------------------------------------
@NAMES
@pytest.mark.parametrize("rank", [0, 7])
def test_with_all_points_as_neighbours_it_is_the_inverse(name: str, rank: int) -> None:
    operator = make(name=name)
    H = dense_h(operator.x, name, THETA)
    assert (inverse(operator, 60, rank) @ H - torch.eye(61)).abs().max() <= 1e-8
    assert (inverse(operator, 1000, rank) @ H - torch.eye(61)).abs().max() <= 1e-8


@NAMES
def test_rows_condition_a_point_on_its_neighbours(name: str) -> None:
    """Row i of S is (e_i − A_i)/√D_i with A and D of the definition, by dense algebra."""
    operator, m = make(name=name), 6
    near, H = Neighbours.seek(operator, m), dense_h(operator.x, name, THETA)
    S = by_definition(H, near)
    assert torch.allclose(inverse(operator, m), S.T @ S, rtol=1e-9, atol=1e-9)


def test_the_low_rank_is_added() -> None:
    """P = L Lᵀ + V, with V's factor from what L leaves of H."""
    operator, m = make(), 6
    L = LowRank(9).build(operator).unit_factor * THETA.signal_scale
    near, E = Neighbours.seek(operator, m), dense_h(operator.x, "matern32", THETA) - L @ L.T
    S = by_definition(E, near)
    P = L @ L.T + torch.linalg.inv(S.T @ S)
    assert (inverse(operator, m, 9) @ P - torch.eye(61)).abs().max() <= 1e-8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rank", [0, 40])
@pytest.mark.parametrize("noise", [1e-4, 0.3])
def test_it_is_positive_definite(noise: float, rank: int, dtype: torch.dtype) -> None:
    """Also with every point twice, hardly any noise, and a large signal, in float32."""
    x = points(60).repeat(2, 1).to(dtype)
    operator = ChunkedOperator(x, get_kernel("rbf"), Hyperparameters(noise, 20.0, [3.0]))
    found = factor_of(operator, 8, rank).apply(torch.eye(120, dtype=torch.float64))
    assert torch.isfinite(found).all() and (found - found.T).norm() <= 1e-12 * found.norm()
    assert float(torch.linalg.eigvalsh(0.5 * (found + found.T)).min()) > 0


@pytest.mark.parametrize(("name", "d"), [("matern12", 2), ("matern32", 6)])
def test_with_hardly_any_noise_in_float32_nobody_is_left_alone(name: str, d: int) -> None:
    """What the low rank leaves is known to a fraction of the noise: a row of S is never longer than 1/σ."""
    theta = Hyperparameters(1e-4, 1.0, [1.0])
    operator = DenseOperator(points(400, d).float(), get_kernel(name), theta)
    values = factor_of(operator, 12, 30)._S._values
    alone = (values[:, :-1] == 0).all(1)
    assert int(alone.sum()) == 1  # the first of all
    assert float(values[:, -1].max()) <= 1e4 * (1 + 1e-6)
    rule, b = StoppingRule(0.01), torch.randn(400, 3, generator=torch.Generator().manual_seed(1))
    low, none = (ConjugateGradients(rank, neighbours=12).solve(operator, b, rule=rule) for rank in (30, 0))
    assert low.iterations <= none.iterations + 2


def test_a_low_rank_that_rounding_would_spoil_is_left_out() -> None:
    x = points(300, 2)
    operator = DenseOperator(x, get_kernel("matern12"), Hyperparameters(1e-8, 1.0, [1.0]))
    factor = factor_of(operator, 12, 40)
    assert factor._Qt is None
    found = factor.apply(torch.eye(300, dtype=torch.float64))
    assert torch.equal(found, factor_of(operator, 12).apply(torch.eye(300, dtype=torch.float64)))


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = DenseOperator(points(500), get_kernel("matern32"), THETA, tile_entries=4000)
    sizes: list[int] = []
    plain = operator.group_kernels
    monkeypatch.setattr(operator, "group_kernels", lambda g: sizes.append(len(g)) or plain(g))
    factor_of(operator, 7, 12)
    assert max(sizes) == 4000 // (8 * 20) and sum(sizes) == 500
    with pytest.raises(ValueError, match=r"neighbours: .* too many; take fewer"):
        _csr(torch.zeros(2), torch.zeros(1), torch.empty(1).expand(2**31), 1)


def test_the_residual_is_not_rounded() -> None:
    operator = make()
    R = points(61, 3, seed=5)
    expected = inverse(operator, 6, 9) @ R
    found = factor_of(operator, 6, 9).apply(R)
    assert (found - expected).norm() <= 1e-12 * expected.norm()


def test_points_that_lose_their_neighbours_to_rounding_stand_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = make()
    wrong = torch.full((61, 7, 7), 2.0, dtype=torch.float64)  # no covariances: not positive definite
    wrong.diagonal(dim1=1, dim2=2).fill_(1.0)
    monkeypatch.setattr(operator, "group_kernels", lambda groups: wrong[: len(groups)].clone())
    found = inverse(operator, 6)
    assert torch.equal(found, found.diag().diag()) and torch.isfinite(found).all()
    assert torch.allclose(found.diag(), torch.full((61,), 1 / 1.09, dtype=torch.float64))


# -- in conjugate gradients ------------------------------------------------------------------------------------------
def surface(n: int, noise: float, d: int = 2) -> tuple[DenseOperator, Tensor]:
    x = points(n, d, seed=3)
    operator = DenseOperator(x, get_kernel("matern32"), Hyperparameters(noise, 1.0, [0.5]))
    return operator, torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_they_spare_most_iterations_of_a_surface_with_little_noise(noise: float) -> None:
    operator, b = surface(1500, noise)
    rule = StoppingRule(0.01)
    low, near = (ConjugateGradients(50, neighbours=m).solve(operator, b, rule=rule) for m in (0, 20))
    assert near.converged and 4 * near.iterations <= low.iterations
    truth = torch.linalg.solve(operator.H, b)
    tight = ConjugateGradients(50, neighbours=20).solve(operator, b, rule=StoppingRule(1e-9))
    assert (tight.solution - truth).norm() <= 1e-6 * truth.norm()


def test_they_are_not_worse_than_the_low_rank_where_noise_rules() -> None:
    operator, b = surface(800, 1.0, d=6)
    low, near = (ConjugateGradients(50, neighbours=m).solve(operator, b, rule=StoppingRule(0.01)) for m in (0, 20))
    assert near.converged and near.iterations <= low.iterations + 1


@pytest.mark.parametrize(("d", "noise", "length"), [(1, 1e-6, 1.0), (2, 1e-4, 3.0)])
def test_a_first_step_that_raises_the_residual_is_not_the_end(d: int, noise: float, length: float) -> None:
    x = points(400, d, seed=3)
    operator = DenseOperator(x, get_kernel("matern52"), Hyperparameters(noise, 1.0, [length]))
    b = torch.randn(400, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert ConjugateGradients(0, neighbours=20).solve(operator, b, rule=StoppingRule(0.01, 200.0)).converged


def test_what_the_next_solve_reuses() -> None:
    operator, b = surface(300, 0.1)
    solver, rule = ConjugateGradients(10, neighbours=8), StoppingRule(0.01)
    solver_state = solver.solve(operator, b, rule=rule).state
    first = solver_state.preconditioner
    assert isinstance(first, NeighbourFactor)

    def then(theta: Hyperparameters, solver: ConjugateGradients = solver) -> NeighbourFactor:
        kept = solver.solve(operator.at(theta), b, rule=rule, state=solver_state).state.preconditioner
        assert isinstance(kept, NeighbourFactor)
        return kept

    assert then(operator.theta) is first  # the same H
    moved = then(Hyperparameters(0.11, 1.1, [0.55]))
    assert moved is not first and moved.neighbours is first.neighbours
    assert then(operator.theta, ConjugateGradients(10, neighbours=5)).neighbours is not first.neighbours
    assert then(operator.theta, ConjugateGradients(5, neighbours=8)) is not first  # another rank
    swapped = DenseOperator(operator.x, operator.kernel, Hyperparameters(0.1, 1.0, [0.2, 5.0]))
    again = solver.solve(swapped, b, rule=rule, state=solver_state).state.preconditioner
    assert again.neighbours is not first.neighbours  # other distances
    all_of_them = ConjugateGradients(0, neighbours=1000)
    kept = all_of_them.solve(operator, b, rule=rule).state
    moved = all_of_them.solve(operator.at(Hyperparameters(0.11, 1.1, [0.55])), b, rule=rule, state=kept).state
    assert moved.preconditioner.neighbours is kept.preconditioner.neighbours
    other, _ = surface(300, 0.1)
    elsewhere = solver.solve(other, b, rule=rule, state=solver_state).state.preconditioner
    assert elsewhere.neighbours is not first.neighbours


def test_a_recipe_gives_the_neighbours_that_were() -> None:
    """By the length scales at which they were sought, while those serve, not by the ones of now."""
    then, now = make(200), make(200, theta=Hyperparameters(0.3, 1.7, [0.9, 1.4, 2.2, 1.1]))
    there = [Neighbours.seek(operator, 6).groups for operator in (then, now)]
    assert not torch.equal(*there)
    recipe = factor_of(then, 6, 5).recipe
    assert recipe.low is not None and recipe.low.made_by.rank == 5
    assert torch.equal(recipe.at(now).neighbours.groups, there[0])


def test_nothing_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor by versions of torch that warn of what other versions do not."""
    operator, b = surface(100, 0.1)
    make = torch.sparse_csr_tensor

    def warning(*args: object, **more: object) -> Tensor:
        warnings.warn("Sparse CSR tensor support is in beta state", UserWarning, stacklevel=2)
        warnings.warn("Sparse invariant checks are implicitly disabled.", UserWarning, stacklevel=2)
        return make(*args, **more)

    monkeypatch.setattr(torch, "sparse_csr_tensor", warning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConjugateGradients(10, neighbours=8).solve(operator, b, rule=StoppingRule(0.01))


@pytest.mark.parametrize("bad", [-1, 2.5, True])
def test_neighbours_are_checked(bad: object) -> None:
    with pytest.raises(ValueError, match="neighbours must be an integer of at least 0"):
        ConjugateGradients(neighbours=bad)
