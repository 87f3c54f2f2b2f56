"""The books of a solve: v and r are written in place, a solver is told so once, and the way back is the right one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from solver_problems import Problem, make_problem, mean_and_probes
from warmgp.solvers import StoppingRule
from warmgp.solvers.base import Progress


@pytest.fixture
def problem() -> Problem:
    return make_problem(n=61)


def begun(problem: Problem, start: Tensor | None = None, **rule: float | None) -> Progress:
    return Progress.begin(problem.operator(), problem.targets, start, StoppingRule(**{"tol": 0.01, **rule}))


def at(progress: Progress, problem: Problem, share: float) -> Tensor:
    """An iterate of the normalised systems whose relative residuals are all 1 − share."""
    return share * problem.truth / progress.scale


def walk_to(progress: Progress, v: Tensor, r: Tensor | None = None) -> None:
    """As a solver does: v and r in place; r is what it carries along, wrong where that is given."""
    progress.v.copy_(v)
    progress.r.copy_(progress.b - progress.operator.matmul(v) if r is None else r)
    progress.count(0.5)


def true_residual(progress: Progress, problem: Problem) -> Tensor:
    return problem.targets / progress.scale - problem.h @ progress.v


def failed_check(progress: Progress, problem: Problem) -> None:
    walk_to(progress, at(progress, problem, 0.6), torch.zeros_like(progress.r))
    assert not progress.finished(progress.norms(), 0.1)


def confirmed_check(progress: Progress, problem: Problem) -> None:
    walk_to(progress, at(progress, problem, 1.0))
    assert progress.finished(progress.norms(), 0.1) and progress.stop_reason == "converged"


def back_to_the_start(progress: Progress, problem: Problem) -> None:
    progress.keep_start(1.0)
    walk_to(progress, at(progress, problem, -3.0))
    progress.keep(0.1)  # an estimate, and wrong
    progress.back_to_best()


def give_up_where_it_is_worse(progress: Progress, problem: Problem) -> None:
    walk_to(progress, at(progress, problem, 0.8))
    progress.keep(max(progress.norms()))
    walk_to(progress, at(progress, problem, 7.0))
    progress.give_up("stagnated")


def end_of_a_budget(progress: Progress, problem: Problem) -> None:
    progress.keep_start(max(progress.norms()))
    walk_to(progress, at(progress, problem, 5.0))
    assert progress.back_if_worse_than_it_began()


WRITES: dict[str, Callable[[Progress, Problem], None]] = {
    "refresh": lambda progress, _: progress.refresh(),
    "go to": lambda progress, problem: progress.go_to(at(progress, problem, 0.3)),
    "back to best": lambda progress, _: progress.back_to_best(),
    "back to the start": back_to_the_start,
    "give up": lambda progress, _: progress.give_up("stagnated"),
    "give up where it is worse": give_up_where_it_is_worse,
    "a check that fails": failed_check,
    "a check that is confirmed": confirmed_check,
    "the end of a budget": end_of_a_budget,
}


# -- in place --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("moved", [False, True], ids=["own memory", "a solver's memory"])
def test_what_a_solver_holds_stays_the_current_one(
    write: Callable[[Progress, Problem], None], moved: bool, problem: Problem
) -> None:
    progress = begun(problem)
    if moved:
        padded = torch.zeros(2, 64, progress.b.shape[1], dtype=progress.b.dtype)
        progress.live_in(padded[0, :61], padded[1, :61])
    v, r = progress.v, progress.r
    addresses = v.data_ptr(), r.data_ptr()
    assert not progress.renewed()
    write(progress, problem)
    assert progress.v is v and progress.r is r and (v.data_ptr(), r.data_ptr()) == addresses
    assert progress.checked
    torch.testing.assert_close(r, true_residual(progress, problem), rtol=1e-9, atol=1e-10)
    assert progress.renewed() and not progress.renewed()
    if moved:
        assert not padded[:, 61:].any()


@pytest.mark.parametrize("warm", [False, True])
def test_a_solve_begins_with_nothing_to_make_anew(warm: bool, problem: Problem) -> None:
    progress = begun(problem, 0.5 * problem.truth if warm else None)
    assert not progress.renewed() and progress.checked
    assert progress.overhead_epochs == (1.0 if warm else 0.0)
    torch.testing.assert_close(progress.r, true_residual(progress, problem), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("may_check", [False, True])
def test_a_look_that_checks_nothing_renews_nothing(may_check: bool, problem: Problem) -> None:
    progress = begun(problem)
    walk_to(progress, at(progress, problem, 0.5))
    assert not progress.finished(progress.norms(), 0.1)
    assert not progress.renewed() and not progress.checked
    walk_to(progress, at(progress, problem, 1.0))
    assert progress.finished(progress.norms(), 0.1, may_check=may_check) == may_check
    assert progress.renewed() == may_check and progress.overhead_epochs == float(may_check)


def test_memory_of_a_solver_is_lived_in(problem: Problem) -> None:
    """Values move over, later writes go there, and the memory before is left alone."""
    progress = begun(problem)
    walk_to(progress, at(progress, problem, 0.4))
    before, kept = (progress.v, progress.r), (progress.v.clone(), progress.r.clone())
    v, r = torch.full_like(kept[0], 9.0), torch.full_like(kept[1], 9.0)
    progress.live_in(v, r)
    assert progress.v.data_ptr() == v.data_ptr() and progress.r.data_ptr() == r.data_ptr()
    assert torch.equal(v, kept[0]) and torch.equal(r, kept[1])
    assert not progress.renewed() and not progress.checked  # nothing about them has changed
    progress.go_to(at(progress, problem, 0.9))
    assert torch.equal(v, at(progress, problem, 0.9))
    assert torch.equal(before[0], kept[0]) and torch.equal(before[1], kept[1])
    v.mul_(2.0)
    assert torch.equal(progress.result().solution, v * progress.scale)


# -- the way back ----------------------------------------------------------------------------------------------------
def test_the_best_iterate_is_a_copy(problem: Problem) -> None:
    progress = begun(problem)
    good, better = at(progress, problem, 0.5), at(progress, problem, 0.8)
    for v, worst in ((good, 0.5), (better, 0.2)):
        walk_to(progress, v)
        progress.keep(worst)
        assert progress.best_worst == worst
        progress.v.fill_(math.nan)
        progress.back_to_best()
        assert torch.equal(progress.v, v)


def test_without_a_best_iterate_it_stays_where_it_is(problem: Problem) -> None:
    progress = begun(problem)
    v = at(progress, problem, 0.7)
    walk_to(progress, v, torch.zeros_like(v))
    progress.back_to_best()
    assert torch.equal(progress.v, v) and max(progress.norms()) == pytest.approx(0.3)


@pytest.mark.parametrize(("share", "lands"), [(0.8, 0.8), (-2.0, 0.3), (math.nan, 0.3)])
def test_the_way_back_never_ends_above_the_start(share: float, lands: float, problem: Problem) -> None:
    """What was kept by an estimate may turn out to be worse than the start, which no later copy writes over."""
    progress = begun(problem)
    progress.go_to(at(progress, problem, 0.3))
    progress.keep_start(max(progress.norms()))
    for kept in (0.5, share):
        walk_to(progress, at(progress, problem, kept))
        progress.keep(0.1)
    walk_to(progress, at(progress, problem, 40.0))
    progress.back_to_best()
    torch.testing.assert_close(progress.v, at(progress, problem, lands))
    assert max(progress.norms()) == pytest.approx(1 - lands)


@pytest.mark.parametrize(
    ("share", "went_back", "lands"), [(0.9, False, 0.9), (0.3, False, 0.3), (0.2, True, 0.6), (math.nan, True, 0.6)]
)
def test_a_budget_ends_no_worse_than_it_began(share: float, went_back: bool, lands: float, problem: Problem) -> None:
    """By the true residual, whatever was carried along: above the start's it goes back to the best iterate."""
    progress = begun(problem)
    progress.go_to(at(progress, problem, 0.3))
    progress.keep_start(max(progress.norms()) + 1e-9)
    walk_to(progress, at(progress, problem, 0.6))
    progress.keep(0.4)
    walk_to(progress, at(progress, problem, share), torch.zeros_like(progress.r))
    assert progress.back_if_worse_than_it_began() == went_back
    torch.testing.assert_close(progress.v, at(progress, problem, lands))
    assert max(progress.norms()) == pytest.approx(1 - lands)


@pytest.mark.parametrize(("share", "lands"), [(0.9, 0.9), (0.5, 0.6), (math.nan, 0.6)])
def test_giving_up_ends_at_the_best(share: float, lands: float, problem: Problem) -> None:
    progress = begun(problem)
    walk_to(progress, at(progress, problem, 0.6))
    progress.keep(max(progress.norms()))
    walk_to(progress, at(progress, problem, share))
    progress.give_up("stagnated")
    assert progress.stop_reason == "stagnated" and not progress.result().converged
    torch.testing.assert_close(progress.v, at(progress, problem, lands))


def test_a_residual_is_lost_where_it_is_a_thousand_times_the_best(problem: Problem) -> None:
    progress = begun(problem)
    assert not progress.exploded((1.0, 0.5)) and progress.best_worst == 1.0
    walk_to(progress, at(progress, problem, 0.4))
    assert not progress.exploded((0.6, 0.2)) and progress.best_worst == 1.0  # a copy at every halving only
    assert not progress.exploded((0.1, 0.4)) and progress.best_worst == 0.4
    assert not progress.exploded((399.0, 0.1)) and progress.exploded((0.1, 401.0))
    for bad in ((math.nan, 0.1), (0.1, math.inf)):
        assert progress.exploded(bad)
    assert progress.best_worst == 0.4
    progress.back_to_best()
    assert torch.equal(progress.v, at(progress, problem, 0.4))


@pytest.mark.parametrize(("estimated", "lands"), [(False, 0.6), (True, 0.8)])
def test_a_failed_check_says_what_the_best_iterate_is_worth(estimated: bool, lands: float, problem: Problem) -> None:
    """Where a solver carries its residual along, a check that fails shows that what was kept by it is wrong, too. Where
    r is an estimate that lags behind, the check says nothing about an iterate kept before."""
    progress = begun(problem)
    progress.estimated = estimated
    walk_to(progress, at(progress, problem, 0.8))
    progress.keep(0.2)
    failed_check(progress, problem)
    assert progress.best_worst == pytest.approx(1 - lands)
    progress.back_to_best()
    torch.testing.assert_close(progress.v, at(progress, problem, lands))


def test_an_estimate_that_a_check_betters_is_replaced(problem: Problem) -> None:
    progress = begun(problem)
    progress.estimated = True
    progress.keep(1.0)
    failed_check(progress, problem)
    assert progress.best_worst == pytest.approx(0.4)


def test_what_comes_out_is_in_the_units_of_the_targets(problem: Problem) -> None:
    progress = begun(problem)
    walk_to(progress, at(progress, problem, 0.75))
    progress.refresh()
    progress.stop_reason = "budget"
    state, factor = object(), torch.eye(61)
    result = progress.result(state, factor)
    torch.testing.assert_close(result.solution, 0.75 * problem.truth)
    residual = (problem.targets - problem.h @ result.solution).norm(dim=0) / problem.targets.norm(dim=0)
    assert (result.residual_mean, result.residual_probes) == pytest.approx(mean_and_probes(residual))
    assert (result.iterations, result.iteration_epochs, result.overhead_epochs) == (1, 0.5, 1.0)
    assert result.state is state and result.factor is factor and result.residual_checked
    assert result.stop_reason == "budget" and not result.converged
