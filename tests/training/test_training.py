"""The outer loop: records, warm and cold starts, stopping, interruption, and the final solve."""

from __future__ import annotations

import math
import weakref

import pytest
import torch

from gp_truth import h_matrix, log_marginal_likelihood
from training_problems import KERNEL, operator, options, seeded
from warmgp import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    DenseOperator,
    Exact,
    Hyperparameters,
    Pathwise,
    Standard,
    StochasticGradientDescent,
    StoppingRule,
    train,
)
from warmgp.gradient import GradientEstimator
from warmgp.solvers import Solver
from warmgp.solvers.block_factors import BlockFactors
from warmgp.training import Problem, train_only


def test_exact_training_follows_torch_adam_on_autograd() -> None:
    """The whole outer loop against torch.optim.Adam on the autograd marginal likelihood."""
    H, y = operator(40)
    result = train(H, y, options(Cholesky(), Exact(), n_steps=15), generator=seeded())
    nu = Hyperparameters.ones(2).unconstrained.requires_grad_()
    adam = torch.optim.Adam([nu], lr=0.1, maximize=True)
    for record in result.history:
        theta = torch.nn.functional.softplus(nu)
        assert record.noise_scale == pytest.approx(theta[0].item(), rel=1e-9)
        assert record.length_scales == pytest.approx(theta[2:].tolist(), rel=1e-9)
        value = log_marginal_likelihood("matern32", H.x, y, theta)
        assert record.log_marginal_likelihood == pytest.approx(value.item(), rel=1e-9)
        adam.zero_grad()
        value.backward()
        adam.step()
    assert torch.allclose(result.theta.vector, torch.nn.functional.softplus(nu).detach(), rtol=1e-9)
    assert result.final.converged and result.posterior.factor is not None


@pytest.mark.parametrize("solver", [ConjugateGradients(20), AlternatingProjections(17), StochasticGradientDescent(20)])
@pytest.mark.parametrize("gradient", [Pathwise(32, 2000), Standard(32)])
@pytest.mark.parametrize("warm", [True, False])
def test_every_cell_stays_near_exact_training(solver: Solver, gradient: GradientEstimator, warm: bool) -> None:
    """Every solver × estimator × start: after 20 steps θ is within 10% of exact training's (32 probes)."""
    H, y = operator(100)
    truth = train_only(Problem(H, y), options(Cholesky(), Exact(), n_steps=20), generator=seeded()).theta
    result = train(H, y, options(solver, gradient, n_steps=20, warm_start=warm), generator=seeded())
    assert all(record.converged for record in result.history) and result.final.converged
    assert ((result.theta.vector / truth.vector).log().abs() < 0.1).all()


def test_records_are_complete_and_belong_to_their_solve() -> None:
    H, y = operator()
    result = train(H, y, options(), generator=seeded())
    assert [record.step for record in result.history] == list(range(6))
    first = result.history[0]
    assert (first.noise_scale, first.signal_scale, first.length_scales) == (1.0, 1.0, (1.0, 1.0))  # θ of the solve
    assert first["noise_scale"] == first.noise_scale
    for record in result.history:
        assert record.converged and record.stop_reason == "converged"
        assert 0 <= record.residual_mean <= 0.01 and 0 <= record.residual_probes <= 0.01
        assert record.epochs >= record.iteration_epochs == record.iterations > 0
        assert 0 < record.solver_seconds <= record.step_seconds
        assert record.log_marginal_likelihood is None
    assert result.state.step == 6 and result.state.elapsed == pytest.approx(sum(r.step_seconds for r in result.history))


def test_final_solve_is_at_the_final_theta() -> None:
    H, y = operator()
    result = train(H, y, options(rule=StoppingRule(1e-6)), generator=seeded())
    assert result.theta.equals(result.state.theta)
    assert not result.theta.equals(result.state.solution_theta)
    residual = y - h_matrix("matern32", H.x, result.theta.vector) @ result.posterior.solution[:, 0]
    assert residual.norm() <= 1e-6 * y.norm()


def test_warm_starts_freeze_the_draw_and_cold_starts_renew_it() -> None:
    H, y = operator()
    draws: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for warm in draws:
        train(
            H,
            y,
            options(warm_start=warm),
            generator=seeded(),
            callbacks=[lambda record, state, warm=warm: draws[warm].append(state.draw.noise)],
        )
    assert all(noise is draws[True][0] for noise in draws[True])
    assert not any(torch.equal(a, b) for i, a in enumerate(draws[False]) for b in draws[False][:i])


def test_warm_starts_save_iterations() -> None:
    H, y = operator(150)
    total = {
        warm: sum(
            record.iterations
            for record in train(
                H, y, options(AlternatingProjections(20), warm_start=warm, n_steps=20), generator=seeded()
            ).history
        )
        for warm in (True, False)
    }
    assert total[True] < 0.5 * total[False]


@pytest.mark.parametrize("gradient", [Standard(8), Pathwise(8, prior="exact", n_features=200), Exact()])
def test_estimators_without_functions_still_make_samples(gradient: GradientEstimator) -> None:
    H, y = operator()
    solver = Cholesky() if isinstance(gradient, Exact) else ConjugateGradients(20)
    result = train(H, y, options(solver, gradient, n_samples=8), generator=seeded())
    assert result.final.converged
    assert result.posterior.samples(H.x[:5]).shape == (5, 8)
    assert (result.posterior.factor is not None) == isinstance(gradient, Exact)


def test_same_seed_same_bits() -> None:
    H, y = operator()
    sgd = StochasticGradientDescent(20)
    a, b, c = (train(H, y, options(sgd), generator=seeded(s)) for s in (1, 1, 2))
    assert torch.equal(a.theta.vector, b.theta.vector) and torch.equal(a.posterior.solution, b.posterior.solution)
    assert not torch.equal(a.theta.vector, c.theta.vector)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("solver", [ConjugateGradients(20), StochasticGradientDescent(20)])
def test_going_on_from_a_state_equals_going_through(solver: Solver, warm: bool) -> None:
    H, y = operator()
    through = train(H, y, options(solver, warm_start=warm), generator=seeded())
    generator = seeded()
    kept = []
    half = options(solver, warm_start=warm, n_steps=3)
    train(
        H, y, half, generator=generator,
        callbacks=[lambda record, state: kept.append((state, generator.get_state()))],
    )  # fmt: skip
    state, random = kept[-1]
    generator.set_state(random)
    resumed = train(H, y, options(solver, warm_start=warm), generator=generator, state=state)
    assert torch.equal(resumed.theta.vector, through.theta.vector)
    assert torch.equal(resumed.posterior.solution, through.posterior.solution)
    assert len(resumed.history) == 6


def test_callback_ends_training() -> None:
    H, y = operator()
    seen = []
    result = train(
        H, y, options(), generator=seeded(), callbacks=[lambda r, s: r.step == 2, lambda r, s: seen.append(r.step)]
    )
    assert seen == [0, 1, 2] and len(result.history) == 3 and result.stopped_early == "callback"


def interrupt_at(step: int):  # type: ignore[no-untyped-def]
    def callback(record, state):  # type: ignore[no-untyped-def]
        if record.step == step:
            raise KeyboardInterrupt

    return callback


def test_interrupt_leaves_a_model_of_the_whole_steps() -> None:
    H, y = operator()
    whole = train(H, y, options(n_steps=3), generator=seeded())
    cut = train(H, y, options(), generator=seeded(), callbacks=[interrupt_at(2)])
    assert cut.stopped_early == "interrupted" and len(cut.history) == 3
    assert torch.equal(cut.posterior.solution, whole.posterior.solution)


class InterruptedSolver(ConjugateGradients):
    """Raises KeyboardInterrupt from a given solve on."""

    calls = 0
    first = 10**9

    def solve(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        type(self).calls += 1
        if self.calls >= self.first:
            raise KeyboardInterrupt
        return super().solve(*args, **kwargs)


def test_second_interrupt_uses_the_solutions_at_hand() -> None:
    H, y = operator()
    InterruptedSolver.calls, InterruptedSolver.first = 0, 4
    result = train(H, y, options(InterruptedSolver(20)), generator=seeded())
    assert len(result.history) == 3 and result.stopped_early == "interrupted"
    assert result.theta.equals(result.state.solution_theta)
    assert result.posterior.solution is result.state.solution
    residual = y - h_matrix("matern32", H.x, result.theta.vector) @ result.posterior.solution[:, 0]
    assert residual.norm() <= 0.0101 * y.norm()


def test_interrupt_before_anything_is_solved_propagates() -> None:
    H, y = operator()
    InterruptedSolver.calls, InterruptedSolver.first = 0, 1
    with pytest.raises(KeyboardInterrupt):
        train(H, y, options(InterruptedSolver(20)), generator=seeded())


class FailingCholesky(Cholesky):
    """Cannot factorise at one of its solves."""

    calls = 0
    failing = 0
    error: type[BaseException] = torch.linalg.LinAlgError

    def solve(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        type(self).calls += 1
        if self.calls == self.failing:
            raise self.error("H is not positive definite")
        return super().solve(*args, **kwargs)


@pytest.mark.parametrize("gradient", [Exact(), Standard(8)])
def test_a_step_that_fails_keeps_the_model_of_those_before(gradient) -> None:  # type: ignore[no-untyped-def]
    """Where no functions are at hand, they are solved for at the last θ that worked."""
    H, y = operator()
    FailingCholesky.calls, FailingCholesky.failing = 0, 4
    result = train(H, y, options(FailingCholesky(), gradient), generator=seeded())
    assert len(result.history) == 3 and result.stopped_early == "failed: H is not positive definite"
    assert float(result.theta.noise_scale) == result.history[-1].noise_scale
    residual = y - h_matrix("matern32", H.x, result.theta.vector) @ result.posterior.solution[:, 0]
    assert residual.norm() <= 1e-8 * y.norm()
    FailingCholesky.calls, FailingCholesky.failing = 0, 1
    with pytest.raises(torch.linalg.LinAlgError):
        train(H, y, options(FailingCholesky(), gradient), generator=seeded())


@pytest.mark.parametrize("gradient", [Exact(), Standard(8), Pathwise(8, 200)])
@pytest.mark.parametrize("error", [torch.linalg.LinAlgError, KeyboardInterrupt])
def test_a_last_solve_that_does_not_end_keeps_the_model_of_the_steps(gradient, error) -> None:  # type: ignore[no-untyped-def]
    H, y = operator()
    FailingCholesky.calls, FailingCholesky.failing, FailingCholesky.error = 0, 7, error
    try:
        result = train(H, y, options(FailingCholesky(), gradient), generator=seeded())
    finally:
        FailingCholesky.error = torch.linalg.LinAlgError
    assert len(result.history) == 6 and result.stopped_early == (
        "interrupted" if error is KeyboardInterrupt else "failed: H is not positive definite"
    )
    assert float(result.theta.noise_scale) == result.history[-1].noise_scale
    residual = y - h_matrix("matern32", H.x, result.theta.vector) @ result.posterior.solution[:, 0]
    assert residual.norm() <= 1e-8 * y.norm()


def test_noise_floor_holds() -> None:
    x = torch.linspace(0, 3, 40, dtype=torch.float64)[:, None]
    y = torch.sin(x[:, 0])
    H = DenseOperator(x, KERNEL, Hyperparameters.ones(1))
    free = train(H, y, options(Cholesky(), Exact(), n_steps=60), generator=seeded())
    floored = train(H, y, options(Cholesky(), Exact(), n_steps=60, noise_floor=0.3), generator=seeded())
    assert float(free.theta.noise_scale) < 0.2
    assert min(record.noise_scale for record in floored.history) >= 0.3
    assert float(floored.theta.noise_scale) == pytest.approx(0.3, rel=1e-12)


def test_no_steps_is_a_solve_at_the_start() -> None:
    H, y = operator()
    result = train(H, y, options(n_steps=0), generator=seeded())
    assert result.history == () and result.theta.equals(Hyperparameters.ones(2)) and result.final.converged


def test_budget_is_respected_and_reported() -> None:
    H, y = operator(150)
    rule = StoppingRule(1e-4, 2.0)
    result = train(H, y, options(AlternatingProjections(20), rule=rule), generator=seeded())
    for record in result.history:
        assert record.iteration_epochs <= 2.0 + 1e-6
        assert not record.converged and record.stop_reason == "budget" and record.residual_probes > 1e-4
    assert not result.final.converged


def test_float32_ends_where_float64_does() -> None:
    results = [
        train(*operator(100, dtype=t), options(n_steps=15), generator=seeded()) for t in (torch.float32, torch.float64)
    ]
    assert torch.allclose(results[0].theta.vector, results[1].theta.vector, rtol=2e-3)
    assert results[0].posterior.solution.dtype == torch.float32 and results[0].theta.vector.dtype == torch.float64


@pytest.mark.parametrize("on_device", [False, True])
def test_factors_of_blocks_are_gone_when_the_gradient_is_made(on_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They weigh n·b/2, and the gradient has copies of its own to make. Their size alone goes on to the next step."""
    made: list[weakref.ref[BlockFactors]] = []
    seen, carried = [], []
    of = BlockFactors.of

    def watched(*arguments: object) -> BlockFactors:
        factors = of(*arguments)  # type: ignore[arg-type]
        made.append(weakref.ref(factors))
        return factors

    class Looking(Pathwise):
        def gradient(self, operator, result, targets):  # type: ignore[no-untyped-def]
            seen.append((result.state, [factors() for factors in made]))
            return super().gradient(operator, result, targets)

    monkeypatch.setattr(BlockFactors, "of", watched)
    H, y = operator()
    train(
        H, y, options(AlternatingProjections(20, on_device=on_device), Looking(8, 200), n_steps=2), generator=seeded(),
        callbacks=[lambda record, state: carried.append(state.solver_state)],
    )  # fmt: skip
    assert seen == [(None, [None]), (None, [None, None])]
    assert carried == [20, 20]


def test_gradient_that_is_not_finite_is_refused() -> None:
    class Broken(Pathwise):
        def gradient(self, operator, result, targets):  # type: ignore[no-untyped-def]
            return torch.full((4,), math.nan, dtype=torch.float64)

    H, y = operator()
    with pytest.raises(FloatingPointError, match="step 0"):
        train(H, y, options(gradient=Broken(8, 200)), generator=seeded())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_steps": -1}, "n_steps"),
        ({"n_steps": 1.5}, "n_steps"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"noise_floor": -0.1}, "noise_floor"),
        ({"gradient": Exact()}, "cholesky"),
    ],
)
def test_options_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(**change)  # type: ignore[arg-type]


def test_targets_are_checked() -> None:
    H, y = operator()
    for bad, message in (
        (y[:-1], "shape"),
        (y.float(), "float32"),
        (torch.full_like(y, math.nan), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            train(H, bad, options(), generator=seeded())
    x = H.x.clone()
    x[3, 0] = math.inf
    with pytest.raises(ValueError, match="x must be finite"):
        train(DenseOperator(x, KERNEL, Hyperparameters.ones(2)), y, options(), generator=seeded())
