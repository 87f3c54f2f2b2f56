"""Recombined projections: what a combination is, blocks of near points, the order of rows, and rounding."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from solver_problems import by_inverses, make_problem, one_thread, solve  # noqa: F401
from warmgp import AlternatingProjections, GPRegressor, RecombinedProjections, StoppingRule
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import DenseOperator
from warmgp.operators.near_order import even_ends, near_order
from warmgp.solvers import partitions, rap
from warmgp.solvers.partitions import Partition, partition_shape
from warmgp.solvers.progress import Progress
from warmgp.solvers.rap import _best_combination
from warmgp.solvers.triangular import inverse_factors


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def spread(n: int = 400, noise: float = 0.05) -> tuple[DenseOperator, torch.Tensor]:
    """H of n random points of four inputs, with more to know than a block holds, and three targets."""
    x = torch.randn(n, 4, dtype=torch.float64, generator=seeded(1))
    H = DenseOperator(x, get_kernel("matern32"), Hyperparameters(noise, 1.0, [1.0] * 4))
    return H, torch.randn(n, 3, dtype=torch.float64, generator=seeded(2))


# -- recombining -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_combination_has_the_least_energy(k: int) -> None:
    """Against a dense least-energy problem for every column, solved apart."""
    H, r = spread(60)
    D = [torch.randn(60, 3, dtype=torch.float64, generator=seeded(10 + i)) for i in range(k)]
    found = _best_combination(H.part, D, [H.matmul(d) for d in D], r)
    for column in range(3):
        basis = torch.stack([d[:, column] for d in D], 1)  # (n, k)
        truth = torch.linalg.solve(basis.T @ H.H @ basis, basis.T @ r[:, column])
        assert torch.allclose(found[:, column], truth, rtol=1e-8)


def test_dependent_and_zero_directions_do_no_harm() -> None:
    H, r = spread(60)
    d = torch.randn(60, 3, dtype=torch.float64, generator=seeded(3))
    d[:, 1] = 0.0
    D = [d, 2.0 * d]
    c = _best_combination(H.part, D, [H.matmul(part) for part in D], r)
    step = c[0] * D[0] + c[1] * D[1]
    alone = _best_combination(H.part, D[:1], [H.matmul(d)], r)[0] * d
    assert torch.isfinite(c).all() and torch.allclose(step, alone, rtol=1e-6, atol=1e-12)


def test_a_residual_that_is_lost_ends_the_solve_at_the_best() -> None:
    """Products of an H with a negative eigenvalue, as rounding in float32 may leave: each sweep adds to the residual.

    On a budget the solve ended with what it had, 85 times the targets (mean) and more.
    """
    H, b = spread()
    small = torch.linalg.eigh(H.H).eigenvectors[:, :200]
    u = small @ torch.randn(200, dtype=torch.float64, generator=seeded(5))  # no block sees much of it
    H.H.sub_(1.2 * (u @ H.H @ u) / (u @ u) ** 2 * torch.outer(u, u))
    found = RecombinedProjections(50).solve(H, b, rule=StoppingRule(1e-10, 40.0), generator=seeded())
    assert found.stop_reason == "stagnated" and found.epochs < 20.0
    assert max(found.residual_mean, found.residual_probes) <= 1.0 + 1e-9


def test_the_energy_never_rises() -> None:
    H, b = spread()
    solution = torch.linalg.solve(H.H, b)
    last = (solution * b).sum(0)
    for epochs in range(1, 8):
        found = RecombinedProjections(50).solve(H, b, rule=StoppingRule(1e-10, epochs), generator=seeded())
        error = found.solution - solution
        energy = (error * H.matmul(error)).sum(0)
        assert (energy <= last * (1 + 1e-10)).all()
        last = energy


@pytest.mark.parametrize("directions", [1, 2, 4])
def test_it_is_far_ahead_of_fixed_blocks(directions: int) -> None:
    """The same products with H leave a tenth of what fixed blocks leave, or less (seen: a fortieth)."""
    H, b = spread(1200, 0.05)
    rule = StoppingRule(1e-8, 10.0)
    fixed = AlternatingProjections(100).solve(H, b, rule=rule)
    ours = RecombinedProjections(100, directions).solve(H, b, rule=rule, generator=seeded())
    assert ours.iteration_epochs == pytest.approx(10.0, abs=0.1)
    assert max(ours.residual_mean, ours.residual_probes) < max(fixed.residual_mean, fixed.residual_probes) / 10


def test_little_noise_takes_few_epochs() -> None:
    """Dense data at noise 0.01, blocks of an eighth of the points: 12 epochs leave a tenth of the noise, or less."""
    x = torch.rand(1600, 3, dtype=torch.float64, generator=seeded(4))
    H = DenseOperator(x, get_kernel("matern32"), Hyperparameters(0.01, 1.0, [0.5] * 3))
    b = torch.linalg.cholesky(H.H) @ torch.randn(1600, 3, dtype=torch.float64, generator=seeded(5))
    found = RecombinedProjections(200).solve(H, b, rule=StoppingRule(1e-9, 12), generator=seeded())
    left = (b - H.matmul(found.solution)).square().mean(0).sqrt() / 0.01
    assert float(left.max()) < 0.1


def test_the_order_of_rows_does_not_matter() -> None:
    """Rows sorted by an input or by the target: residuals stay within 15% (asked), on average over twenty draws."""
    H, b = spread(800)
    left = {}
    for name, key in (("as they come", torch.arange(800)), ("input", H.x[:, 0].argsort()), ("y", b[:, 0].argsort())):
        operator = DenseOperator(H.x[key], H.kernel, H.theta)
        found = [
            RecombinedProjections(80).solve(operator, b[key], rule=StoppingRule(1e-8, 4), generator=seeded(seed))
            for seed in range(20)
        ]
        left[name] = sum(one.residual_probes for one in found) / 20
    assert max(left.values()) <= 1.15 * min(left.values())


# -- blocks ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "b"), [(100, 7), (100, 25), (100, 100), (100, 99), (5, 1), (1, 3), (1000, 33)])
def test_every_row_is_in_a_block(n: int, b: int) -> None:
    H = DenseOperator(torch.randn(n, 2, dtype=torch.float64), get_kernel("rbf"), Hyperparameters.ones(2))
    even = -(-n // min(n, b))
    for seed in range(3):
        index = Partition.draw(H, b, seeded(seed)).index
        assert even <= len(index) <= even + 1 and n / even <= index.shape[1] < n / even + 32
        assert tuple(index.shape) == partition_shape(n, b)
        assert sorted(set(index.flatten().tolist())) == list(range(n))
        assert all(len(set(rows.tolist())) == len(rows) for rows in index)  # no row twice in a block


@pytest.mark.parametrize("d", [1, 2])
def test_one_input_that_tells_points_apart_takes_few_epochs(d: int) -> None:
    """A time series, alone or beside an input that does not count: cuts at the same places every time took
    more than 100 epochs."""
    x = torch.rand(3000, d, generator=seeded(), dtype=torch.float64)
    theta = Hyperparameters(0.05, 1.0, [0.02] if d == 1 else [0.02, 1e4])
    H = DenseOperator(x, get_kernel("matern52"), theta)
    b = torch.randn(3000, 3, dtype=torch.float64, generator=seeded(1))
    result = RecombinedProjections(128).solve(H, b, rule=StoppingRule(1e-3), generator=seeded(2))
    assert result.converged and result.iteration_epochs < 25


def test_blocks_are_of_near_points_by_the_length_scales() -> None:
    """The spread within a block is a fraction of that of all points, in the inputs that matter."""
    x = torch.randn(2000, 3, dtype=torch.float64, generator=seeded())
    H = DenseOperator(x, get_kernel("rbf"), Hyperparameters(0.1, 1.0, [1.0, 1.0, 1e6]))
    within = torch.stack([x[rows].std(0) for rows in Partition.draw(H, 32, seeded()).index]).mean(0)
    assert float(within[:2].max()) < 0.4 and float(within[2]) > 0.8


def test_partitions_differ_and_repeat_with_the_seed() -> None:
    x = torch.randn(500, 2, generator=seeded())
    first, again, other = (near_order(x, even_ends(len(x), 10), seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("x", [torch.zeros(70, 2), torch.arange(70.0)[:, None], torch.eye(70)])
def test_any_points_have_an_order(x: torch.Tensor) -> None:
    assert near_order(x, even_ends(len(x), 9), seeded()).sort().values.tolist() == list(range(70))


@pytest.mark.parametrize("b", [1, 127, 128, 129, 300, 513])
def test_factors_of_inverses(b: int) -> None:
    A = torch.randn(3, b, b, dtype=torch.float64, generator=seeded())
    A = A @ A.mT + torch.eye(b, dtype=torch.float64)
    X, failed = inverse_factors(A)
    assert not failed and torch.allclose(X.mT @ X, torch.linalg.inv(A), rtol=1e-8, atol=1e-10)
    assert torch.equal(X, X.tril())
    A[1, -1, -1] = -1.0
    assert inverse_factors(A)[1]


@pytest.mark.parametrize("together", [1, 2, 9])
def test_blocks_by_inverses_are_those_by_factors(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form for a GPU, on a CPU: the same solve, with a last batch of fewer blocks than the others."""
    H, b = spread(130)
    solver, rule = RecombinedProjections(40, together=together), StoppingRule(1e-8, 5.4)
    by_factor = solver.solve(H, b, rule=rule, generator=seeded())
    by_inverses(monkeypatch)
    by_inverse = solver.solve(H, b, rule=rule, generator=seeded())
    assert by_inverse.iterations == by_factor.iterations
    assert torch.allclose(by_inverse.solution, by_factor.solution, rtol=1e-7)


def test_blocks_by_inverses_at_hardly_any_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal of 8,000 times the noise and long length scales: put together by halves, no block of 512 had an inverse,
    and the solve ended where it began."""
    by_inverses(monkeypatch)
    x = torch.randn(1500, 4, dtype=torch.float64, generator=seeded())
    H = DenseOperator(x, get_kernel("matern52"), Hyperparameters(0.006, 50.0, [15.0, 50.0, 20.0, 3000.0]))
    b = torch.stack([torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2], x[:, 0].cos()], 1)
    found = RecombinedProjections(512).solve(H, b, rule=StoppingRule(1e-3), generator=seeded())
    assert found.converged and found.iteration_epochs <= 20


def test_a_block_without_a_factor_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever made its factor fail, a solve does not go on with numbers that are none."""
    by_inverses(monkeypatch)
    monkeypatch.setattr(
        partitions, "inverse_factors", lambda A, **_: (torch.full_like(A, torch.nan), torch.tensor(True))
    )
    H, b = spread(200)
    with pytest.raises(torch.linalg.LinAlgError, match="a block of H"):
        RecombinedProjections(50).solve(H, b, rule=StoppingRule(0.01), generator=seeded())


def test_nothing_is_kept() -> None:
    H, b = spread(200)
    found = RecombinedProjections(50).solve(H, b, rule=StoppingRule(0.01), generator=seeded())
    assert found.converged and found.state is None


def test_rounding_ends_a_solve_that_it_leads_nowhere() -> None:
    """Float32 at noise 10⁻⁴ cannot get to 10⁻⁶: the solve says so after tens of epochs, with a true residual."""
    x = torch.rand(600, 2, generator=seeded())
    H = DenseOperator(x, get_kernel("matern32"), Hyperparameters(1e-4, 1.0, [1.0] * 2))
    b = torch.randn(600, 2, generator=seeded(1))
    found = RecombinedProjections(100).solve(H, b, rule=StoppingRule(1e-7), generator=seeded())
    assert found.stop_reason == "stagnated" and found.iteration_epochs <= 60 and found.residual_checked


@pytest.mark.parametrize(
    ("options", "name"),
    [({"block_size": 0}, "block_size"), ({"directions": 0}, "directions"),
     ({"together": 0}, "together"), ({"stall_epochs": 0.0}, "stall_epochs")],
)  # fmt: skip
def test_options_are_checked(options: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RecombinedProjections(**options)  # type: ignore[arg-type]


def test_a_budget_ends_in_the_middle_of_a_sweep() -> None:
    problem = make_problem()
    result = solve(RecombinedProjections(20), problem.operator(), problem.targets, tol=1e-9, max_epochs=1.5)
    assert result.stop_reason == "budget" and 1.0 < result.iteration_epochs <= 1.5


def test_a_time_limit_ends_in_the_middle_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 13 blocks, each of which takes 0.05 s: by whole sweeps it would end after 0.65 s, not 0.3."""
    H, b = spread()
    project = rap._project

    def slowly(*args: Any) -> None:
        time.sleep(0.05)
        project(*args)

    monkeypatch.setattr(rap, "_project", slowly)
    rule = StoppingRule(1e-9, until=time.perf_counter() + 0.3)
    found = RecombinedProjections(32).solve(H, b, rule=rule, generator=seeded())
    assert found.stop_reason == "time" and 1 <= found.iterations <= 7
    assert found.iteration_epochs == pytest.approx(32 / 400 * found.iterations)
    energy = (found.solution * (H.matmul(found.solution) - 2 * b)).sum(0)  # of v, less that of zero
    assert bool((energy < 0).all())  # what was done counts


def test_by_its_name_in_the_estimator() -> None:
    x = torch.rand(300, 3, generator=seeded()).numpy()
    model = GPRegressor(solver="rap", n_steps=5, random_state=0).fit(x, x.sum(1))
    assert model.converged_ and model.plan_.solver.name == "rap"


def test_a_solve_that_rounding_stops_ends_after_its_second_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual that is carried along to the tolerance, and is not the true one: the second such check is the last."""
    x = torch.rand(400, 2, generator=seeded())
    H = DenseOperator(x, get_kernel("matern12"), Hyperparameters(1e-3, 1.0, [1.0] * 2))
    b = torch.randn(400, 3, generator=seeded(1))
    checks = []
    refresh = Progress.refresh
    monkeypatch.setattr(Progress, "refresh", lambda self: (checks.append(self.iteration_epochs), refresh(self)))
    found = RecombinedProjections(100).solve(H, b, rule=StoppingRule(1e-7), generator=seeded())
    assert found.stop_reason == "stagnated" and found.residual_checked
    assert len(checks) == 2, "one to see that rounding rules, one to see that another attempt is no better"
