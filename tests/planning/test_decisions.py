"""Each decision of a plan by itself: its value, and its reason where it gives one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from warmgp import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    Exact,
    Hyperparameters,
    Matern12,
    Pathwise,
    RecombinedProjections,
    Standard,
    StoppingRule,
)
from warmgp.planner import make_plan
from warmgp.planning import decisions, planner
from warmgp.planning.costs import H200, TYPICAL
from warmgp.planning.gpu_pace import Pace
from warmgp.planning.memory import H_fits, exact_fits
from warmgp.planning.planner import plan_for
from warmgp.planning.request import Request, Settings
from warmgp.planning.solver_choice import choose_solver, exact_up_to, max_epochs
from warmgp.training.local_start import LocalStart

GIB = 2**30
CG, AP = ConjugateGradients(), AlternatingProjections(1000)


def request(
    n: int = 4_000,
    d: int = 5,
    *,
    device: str = "cpu",
    memory: float = 8,
    fine: str = "",
    pace: Pace | None = None,
    **given: Any,
) -> Request:
    """A request of a machine that need not be this one; ``memory`` in GiB."""
    return Request(n, d, Settings(**given), torch.device(device), int(memory * GIB), pace or Pace(), fine)


@pytest.mark.parametrize(
    ("n", "d", "given", "expected"),
    [
        (100, 5, {}, 2_000),
        (13_500, 5, {}, 3_374),
        (10**6, 5, {}, 16_000),
        (100, 1, {"kernel": "matern12"}, 8_000),
        (100, 1, {"kernel": Matern12()}, 8_000),
        (100, 2, {"kernel": "matern12"}, 2_000),
        (100, 5, {"n_features": 30}, 30),
        (100, 5, {"gradient": Pathwise(4, 50), "n_features": 30}, 50),  # the estimator's own
    ],
)
def test_features(n: int, d: int, given: dict[str, Any], expected: int) -> None:
    assert decisions.choose_features(request(n, d, **given)) == (expected, "")


@pytest.mark.parametrize(
    ("given", "solver", "expected"),
    [
        ({}, Cholesky(), Exact()),
        ({}, CG, Pathwise(64, 200)),
        ({"n_probes": 7}, CG, Pathwise(7, 200)),
        ({"gradient": "standard", "n_probes": 7}, CG, Standard(7)),
        ({"gradient": "exact"}, Cholesky(), Exact()),
        ({"gradient": Standard(3)}, CG, Standard(3)),
    ],
)
def test_gradient(given: dict[str, Any], solver: Any, expected: Any) -> None:
    assert decisions.choose_gradient(request(**given), solver, 200) == (expected, "")


@pytest.mark.parametrize(
    ("n", "given", "solver", "gradient", "expected"),
    [
        (5_999, {}, CG, Pathwise(), "climb"),
        (5_999, {"n_steps": 10}, CG, Pathwise(), "ones"),
        (5_999, {"learning_rate": 0.1}, CG, Pathwise(), "ones"),
        (9, {}, Cholesky(), Exact(), "ones"),  # too few to learn more from,
        (6_000, {}, CG, Pathwise(), "sample"),
        (49_999, {}, CG, Pathwise(), "sample"),
        (50_000, {}, CG, Pathwise(), "subset"),
        (50_000, {}, ConjugateGradients(0, factor_after=9), Pathwise(), "sample"),
        (50_000, {}, RecombinedProjections(), Pathwise(), "sample"),
        (50_000, {"n_steps": 15}, RecombinedProjections(), Pathwise(), "subset"),  # the paper's, by its steps
        (6_000, {"n_steps": 10}, CG, Pathwise(), "ones"),  # so many steps are to be taken from ones
        (6_000, {}, CG, Standard(), "climb"),
        (6_000, {}, Cholesky(), Exact(), "climb"),
        (100, {"init": "subset"}, CG, Pathwise(), "subset"),
        (60_000, {"init": Hyperparameters.ones(5)}, CG, Pathwise(), "given"),
    ],
)
def test_start(n: int, given: dict[str, Any], solver: Any, gradient: Any, expected: str) -> None:
    assert decisions.choose_start(request(n, **given), solver, gradient) == (expected, "")


def test_a_sample_has_a_size_and_a_solver_and_neighbourhoods_have_a_size() -> None:
    sizes = [decisions.choose_sample_size(request(n), "sample", None)[0] for n in (500, 6_000, 20_000, 49_999, 10**5)]
    assert sizes == [500, 2_000, 4_000, 5_000, 5_000]
    assert decisions.choose_sample_size(request(10**5, device="cuda"), "sample", None)[0] == 10_000
    assert [decisions.choose_sample_size(request(n), "sample", LocalStart())[0] for n in (500, 10**5)] == [500, 1_000]
    assert decisions.choose_sample_size(request(20_000), "ones", None) == (0, "")
    assert decisions.choose_start_solver(request(20_000), 0, None) == (None, "")
    assert decisions.choose_start_solver(request(20_000), 4_000, None)[0] == ConjugateGradients(0, factor_after=5)
    assert decisions.choose_start_solver(request(20_000), 1_000, LocalStart())[0] == Cholesky()
    sizes = [
        decisions.choose_neighbourhood_size(request(n, device=at))[0] for n in (300, 10**5) for at in ("cpu", "cuda")
    ]
    assert sizes == [300, 300, 1_000, 10_000]


@pytest.mark.parametrize(
    ("n", "given", "solver", "expected"),
    [
        (4_000, {}, CG, None),
        (50_000, {}, CG, 10.0),
        (50_000, {}, ConjugateGradients(100, neighbours=30), 100.0),
        (50_000, {}, ConjugateGradients(0, factor_after=9), None),
        (4_000, {}, RecombinedProjections(), 6.0),  # which "auto" has chosen
        (60_000, {"solver": "rap"}, RecombinedProjections(), None),
        (4_000, {"solver": "ap"}, AP, None),
        (50_000, {"solver": "ap"}, AP, 10.0),
        (50_000, {}, Cholesky(), None),
        (50_000, {"max_epochs": None}, AP, None),
        (4_000, {"max_epochs": 3}, CG, 3),
    ],
)
def test_budget(n: int, given: dict[str, Any], solver: Any, expected: float | None) -> None:
    asked = request(n, tol=0.02, **given)
    assert max_epochs(asked, solver) == expected
    assert decisions.choose_rule(asked, solver) == (StoppingRule(0.02, expected), "")


def test_steps_their_size_and_what_auto_adds_to_them() -> None:
    steps = decisions.choose_steps
    assert steps(request(4_000), CG, "ones", None)[0] == steps(request(60_000), Cholesky(), "subset", None)[0] == 200
    assert steps(request(20_000), CG, "sample", None)[0] == steps(request(60_000), CG, "subset", None)[0] == 30
    assert steps(request(20_000, n_steps=7), CG, "sample", None) == (7, "")
    after = [steps(request(n), RecombinedProjections(), "sample", LocalStart())[0] for n in (1_000, 100_000)]
    assert after == [30, 0]
    assert steps(request(1_000, time_limit=900.0), RecombinedProjections(), "sample", LocalStart())[0] == 0
    rate = decisions.choose_learning_rate
    assert [rate(request(n), "ones")[0] for n in (49_999, 50_000)] == [0.1, 0.03]
    assert rate(request(60_000), "sample")[0] == 0.1
    assert rate(request(60_000, learning_rate=0.5), "sample") == (0.5, "")
    for choose, name in ((decisions.choose_relative_steps, "learning_rate"), (decisions.choose_settling, "n_steps")):
        assert choose(request()) == (True, "") and choose(request(**{name: 1})) == (False, "")


FINE = "column 0 has groups"


@pytest.mark.parametrize(
    ("given", "solver", "fine", "dtype", "promote", "why"),
    [
        ({}, CG, "", torch.float32, True, ""),
        ({}, Cholesky(), "", torch.float64, False, ""),
        ({}, CG, FINE, torch.float64, False, "In float64: column 0 has groups."),
        ({"dtype": "float32"}, CG, FINE, torch.float32, False, ""),
        ({"dtype": torch.float64}, CG, FINE, torch.float64, False, "In float64: column 0 has groups."),
        ({"dtype": "float32"}, Cholesky(), "", torch.float32, False, ""),
    ],
)
def test_precision(given: dict[str, Any], solver: Any, fine: str, dtype: torch.dtype, promote: bool, why: str) -> None:
    asked = request(fine=fine, **given)
    assert decisions.choose_dtype(asked, solver) == (dtype, why)
    assert decisions.choose_promotion(asked, dtype) == (promote, "")


def test_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    single, double = torch.float32, torch.float64
    choose = decisions.choose_operator
    assert choose(request(10_000, memory=3), Cholesky(), double) == ("chunked", "")
    assert choose(request(10_000, memory=3), CG, single) == ("dense", "")
    assert choose(request(10_000, memory=1), CG, single) == ("chunked", "")
    assert choose(request(10_000, memory=2), CG, double) == ("chunked", "")

    monkeypatch.setattr(decisions, "why_not_fused", lambda *_: "")
    assert choose(request(10_000, device="cuda"), CG, single) == ("fused", "")
    assert choose(request(10_000, device="cuda"), CG, double) == ("dense", "")
    assert choose(request(10_000, device="cpu"), CG, single) == ("dense", "")
    monkeypatch.setattr(decisions, "why_not_fused", lambda *_: "the kernel has no fused form")
    assert choose(request(10_000, device="cuda"), CG, single) == ("dense", "")


def test_exact_variances() -> None:
    choose = decisions.choose_exact_posterior
    told = "The last solution is exact, and with it the error bars: there are few enough points."
    assert choose(request(2_500), CG) == (True, told)
    for other in (request(2_501), request(2_500, solver="cg"), request(2_500, gradient="pathwise")):
        assert choose(other, CG) == (False, "")
    assert choose(request(2_500), Cholesky()) == (False, "")
    assert choose(request(2_500, memory=0.13), CG) == (False, "") and choose(request(2_500, memory=0.15), CG)[0]


# -- the solver ------------------------------------------------------------------------------------------------------
def test_every_way_to_a_solver_says_why() -> None:
    steps, earlier = "approximate steps are faster than exact ones: each solves for all points,", "an exact solution"
    guide = f"{steps} with {earlier} of an earlier step as a guide."
    blocks = "points are too many for exact solutions: approximate ones are put together from blocks of"
    for asked, name, why in (
        (request(400), "cholesky", "400 points are few enough to train exactly, without approximation."),
        (request(400, gradient="exact"), "cholesky", ""),
        (request(400, gradient="pathwise"), "cg", f"For 400 points {guide}"),
        (request(8_000, 2), "rap",
         "8,000 points of 2 inputs are a map, where near points tell nearly everything: one approximate solution for "
         "all of them, at the end, is enough."),
        (request(8_000, 2, n_steps=9), "cg",
         f"For 8,000 points {steps} with the near neighbours of every point as a guide."),
        (request(40_000, device="cuda", memory=20), "rap", f"40,000 {blocks} 1,536 near points."),
        (request(10**6, memory=6), "rap", f"1,000,000 {blocks} 2,048 near points."),
        (request(30_000, 3, device="cuda", memory=90, n_steps=9), "cg", f"For 30,000 points {guide}"),
        (request(400, solver="sgd"), "sgd", ""),
    ):  # fmt: skip
        solver, told = choose_solver(asked, 2_000, TYPICAL)
        assert (solver.name, told) == (name, why)


@pytest.mark.parametrize("given", [None, 25.0, "auto"])
def test_the_budget_that_is_told_is_the_one_that_is_used(given: Any) -> None:
    plan = plan_for(request(60_000, max_epochs=given))
    budget = 6.0 if given == "auto" else given
    assert plan.rule.max_epochs == budget and plan.last_epochs == (60.0 if given == "auto" else None)
    assert ("at most" in str(plan).split("operator")[0].split("tolerance")[1]) is (budget is not None)


def test_reasons_come_in_the_order_of_the_decisions() -> None:
    plan = plan_for(request(10**6, solver=AlternatingProjections(1000), fine=FINE, memory=3, n_probes=8))
    blocks, precision = plan.why
    assert blocks.startswith("Blocks of 128 rows instead of 1,000") and precision == "In float64: column 0 has groups."
    assert f"- {blocks}\n- {precision}" in str(plan)


@pytest.mark.parametrize(
    ("pace", "most"),
    [
        (Pace(), 8_000),
        (Pace(4.0, 4.0, 4.0), 8_000),  # a slower card of the same kind
        (Pace(2.0, 1.0, 16.0), 4_000),
        (Pace(1.0, 1.0, 64.0), 2_000),
        (Pace(2.0, 1.0, 1.0), 8_000),  # what was not measured is not promised
    ],
)
def test_slow_float64_leaves_fewer_points_to_exact_training(pace: Pace, most: int) -> None:
    assert exact_up_to(pace) == most
    solvers = [choose_solver(request(n, device="cuda", pace=pace), 2_000, H200)[0].name for n in (most, most + 1)]
    assert solvers == ["cholesky", "cg"]


# -- memory ----------------------------------------------------------------------------------------------------------
def test_one_meaning_of_H_fits() -> None:
    """H and two more of its size, in whatever precision; beside the vectors where training is exact."""
    for dtype in (torch.float32, torch.float64):
        needs = 3 * 1_000**2 * dtype.itemsize
        assert H_fits(1_000, dtype, needs) and not H_fits(1_000, dtype, needs - 1)
    vectors = 8 * 1_000 * 65 * 8 + 4 * 1_000 * 5 * 8
    needs = 3 * 8 * 1_000**2 + vectors
    assert exact_fits(1_000, 5, 64, needs) and not exact_fits(1_000, 5, 64, needs - 1)


def test_a_whole_factor_the_stored_matrix_and_exact_variances_ask_the_same_question() -> None:
    """With float64 given, what fits fits for all of them: one budget more or less decides."""
    needs = 3 * 8 * 2_000**2 / GIB
    for memory, fits in ((needs, True), (needs - 1e-6, False)):
        asked = request(2_000, dtype="float64", memory=memory)
        cg = choose_solver(request(2_000, solver="cg", memory=memory), 2_000, TYPICAL)[0]
        assert (cg.factor_after is not None) is fits
        assert decisions.choose_operator(asked, CG, torch.float64)[0] == ("dense" if fits else "chunked")
        assert decisions.choose_exact_posterior(asked, CG)[0] is fits


def test_the_start_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(request(20_000, memory=8))
    assert plan.init == "sample" and plan.start_solver == Cholesky()
    assert plan_for(request(400)).start_solver is None
    own = ConjugateGradients(3)
    monkeypatch.setattr(planner.decisions, "choose_start_solver", lambda *_: (own, "Because."))
    plan = plan_for(request(20_000, memory=8))
    assert plan.start_solver == own and "Because." in plan.why


@pytest.mark.parametrize(
    ("n", "settings", "may"),
    [(5_000, {}, True), (200_000, {}, False), (5_000, {"dtype": "float32"}, False),
     (5_000, {"solver": "ap"}, False), (5_000, {"memory_budget": 10**8}, False),
     (25_000, {"memory_budget": 24 * 2**30}, True), (40_000, {"memory_budget": 100 * 2**30}, False),
     (10_000, {"memory_budget": 27 * 10**8}, False), (10_000, {"memory_budget": 29 * 10**8}, True)],
)  # fmt: skip
def test_a_factor_may_take_over_where_it_fits_and_is_cheap(n: int, settings: dict[str, Any], may: bool) -> None:
    assert make_plan(n, 2, device="cpu", **{"memory_budget": 8 * 2**30, **settings}).factor_last is may
