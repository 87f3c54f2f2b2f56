"""The plain rule behind every "auto"."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from warmgp import RBF, AlternatingProjections, ConjugateGradients, Matern32
from warmgp.files.plan_json import plan_from_json, plan_to_json
from warmgp.kernels import KERNELS
from warmgp.operators import fusing
from warmgp.operators.rounding import resolved_ratio
from warmgp.planning import devices, planner, solver_choice
from warmgp.planning.costs import (
    TYPICAL,
    Rates,
    epochs_seconds,
    exact_seconds,
    factor_cg_seconds,
    measured_rates,
    near_cg_seconds,
)
from warmgp.planning.devices import available_memory
from warmgp.planning.memory import training_bytes
from warmgp.planning.plan import duration
from warmgp.planning.planner import make_plan, operator_for, plan_for
from warmgp.planning.request import Request, Settings
from warmgp.planning.starts import DOUBLE_SHARE
from warmgp.training.near_start import NearStart

GIB = 2**30


@pytest.mark.parametrize(
    ("n", "solver", "gradient", "steps", "rate", "epochs", "init"),
    [
        (400, "cholesky", "exact", 10, 0.001, None, "climb"),
        (4_000, "cg", "pathwise", 200, 0.1, None, "climb"),
        (9_000, "cg", "pathwise", 30, 0.1, None, "sample"),
        (60_000, "rap", "pathwise", None, 0.1, 6.0, "sample"),
    ],
)
def test_size_decides(
    n: int, solver: str, gradient: str, steps: int | None, rate: float, epochs: float | None, init: str
) -> None:
    plan = make_plan(n, device="cpu", memory_budget=8 * GIB)
    assert (plan.solver.name, plan.gradient.name) == (solver, gradient)
    assert (plan.learning_rate, plan.rule.max_epochs, plan.init) == (rate, epochs, init)
    assert plan.n_steps < 30 if steps is None else plan.n_steps == steps  # by the cores, where steps are dear
    iterative = solver != "cholesky"
    assert plan.dtype == (torch.float32 if iterative else torch.float64) and plan.promote == iterative
    assert plan.relative_steps and plan.settle
    assert f"{n:,} points" in str(plan) and solver in plan.details and " GiB, " in plan.headline


@pytest.mark.parametrize(
    ("n", "d", "budget", "expected", "epochs"),
    [
        (5_999, 2, 8 * GIB, ConjugateGradients(0, factor_after=7), None),
        (5_999, 2, GIB // 2, ConjugateGradients(100, pivot_every=20, neighbours=30), None),  # no room for a factor
        (6_000, 3, 8 * GIB, ConjugateGradients(100, pivot_every=20, neighbours=30), None),
        (6_000, 4, 8 * GIB, ConjugateGradients(0, factor_after=7), None),
        (60_000, 1, 8 * GIB, ConjugateGradients(100, pivot_every=20, neighbours=30), 100.0),
    ],
)
def test_maps_that_are_trained_in_steps_have_near_neighbours(
    n: int, d: int, budget: int, expected: ConjugateGradients, epochs: float | None
) -> None:
    plan = make_plan(n, d, device="cpu", memory_budget=budget, n_steps=30)
    assert plan.solver == expected and plan.rule.max_epochs == epochs and plan.near is None
    guide = "the near neighbours of every point" if expected.neighbours else "an exact solution of an earlier step"
    assert f"with {guide} as a guide" in str(plan)
    assert make_plan(n, d, solver="cg", device="cpu", memory_budget=budget).solver == expected
    assert make_plan(n, d, solver="ap", device="cpu", memory_budget=budget).solver.name == "ap"


def test_maps_whose_neighbours_do_not_fit() -> None:
    near = {
        budget: make_plan(10**6, 2, device="cpu", memory_budget=budget * GIB, n_steps=30).solver
        for budget in (12, 6, 4)
    }  # fmt: skip
    assert near[12] == ConjugateGradients(100, pivot_every=20, neighbours=30)
    assert near[6] == ConjugateGradients(0, pivot_every=20, neighbours=30)
    assert near[4].name == "rap"


def test_maps_with_a_smooth_kernel_keep_whole_factors() -> None:
    smooth = make_plan(8_000, 2, kernel=RBF(), device="cpu", memory_budget=8 * GIB)
    assert smooth.solver == ConjugateGradients(0, factor_after=10)
    assert make_plan(8_000, 2, kernel=RBF(), device="cpu", memory_budget=GIB).solver.neighbours == 30


def test_the_sample_of_a_map_needs_no_room_for_factors() -> None:
    plan = make_plan(49_999, 2, device="cpu", memory_budget=GIB, init="sample")
    assert plan.init == "sample" and plan.sample_size == 5_000 and plan.estimated_bytes < GIB
    plan = make_plan(20_000, 10, device="cpu", memory_budget=3 * GIB, solver="sgd", init="sample", n_probes=1)
    assert plan.operator == "chunked" and plan.estimated_bytes >= 3 * 4 * 4_000**2


def test_maps_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = {"device": "cuda", "memory_budget": 128 * GIB}
    assert make_plan(49_999, 2, n_steps=30, **settings).solver == ConjugateGradients(0, factor_after=166)
    plan = make_plan(400_000, 2, n_steps=30, **settings)
    assert plan.solver == ConjugateGradients(100, pivot_every=20, neighbours=30) and plan.rule.max_epochs == 100.0
    assert make_plan(400_000, 2, n_steps=30, max_epochs=10.0, **settings).rule.max_epochs == 10.0
    plan = make_plan(400_000, 2, **settings)
    assert plan.solver.name == "rap" and plan.near is not None and plan.near.terms == 120_000
    assert make_plan(400_000, 4, **settings).solver.name == "rap"


@pytest.mark.parametrize(
    ("n", "d", "given", "near"),
    [
        (2_500, 2, {}, False), (2_501, 2, {}, True), (30_000, 3, {}, True), (30_000, 4, {}, False),
        (30_000, 2, {"n_steps": 10}, False), (30_000, 2, {"init": "sample"}, False),
        (30_000, 2, {"kernel": RBF()}, False),
        (30_000, 2, {"gradient": "standard"}, False), (30_000, 2, {"init": "near", "n_steps": 3}, True),
        (30_000, 2, {"solver": "cg"}, True), (10**6, 1, {}, True),
    ],
)  # fmt: skip
def test_maps_are_trained_by_near_points_and_solved_once(n: int, d: int, given: dict[str, Any], near: bool) -> None:
    plan = make_plan(n, d, device="cpu", memory_budget=8 * GIB, **given)
    assert (plan.near is not None) is near and (plan.init == "near") is near
    if not near:
        return
    assert plan.n_steps == given.get("n_steps", 0) and plan.near == NearStart(terms=10_000, evaluations=12)
    assert f"from {min(n, 10_000):,} points, each predicted from its 30 near neighbours" in str(plan)
    assert "from the likelihood of points given near ones" in plan.details
    if not given:
        assert plan.solver.name == "rap" and plan.solver.block_size == 500


def test_large_data_start_on_a_sample_and_near_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = {"device": "cuda", "memory_budget": 128 * GIB}
    plans = {n: make_plan(n, 11, **settings) for n in (20_000, 49_000, 100_000, 500_000, 1_844_352)}
    assert [plan.solver.name for plan in plans.values()] == ["cg", "rap", "rap", "rap", "rap"]
    assert [plan.init for plan in plans.values()] == ["sample"] * 5
    assert [plan.local is not None for plan in plans.values()] == [False, True, True, True, True]
    assert [plan.n_steps for plan in plans.values()] == [30, 30, 0, 0, 0]  # as many as are cheap, or none
    assert "groups of 256 near points" in str(plans[500_000]) and plans[500_000].sample_size == 1_000
    assert [plan.signal_ratio < 50 for plan in plans.values()] == [False, False, False, True, True]  # float64 is dear
    seconds = [plans[n].estimated_seconds for n in (100_000, 500_000, 1_844_352)]
    assert seconds == sorted(seconds)
    whole = plans[1_844_352]
    assert whole.estimated_bytes < 12 * GIB
    tight = make_plan(1_844_352, 11, device="cuda", memory_budget=6 * GIB)
    assert tight.estimated_bytes <= 6 * GIB and tight.solver.name == "rap"
    assert tight.estimated_bytes > training_bytes(tight, 1_844_352, 11)  # the correction at the end needs more
    assert make_plan(500_000, 11, init="sample", **settings).local is None  # the sample alone was asked for
    given = make_plan(100_000, 11, n_steps=15, **settings)
    assert given.init == "subset" and given.local is None  # the paper's


def test_the_signal_stays_within_what_float64_resolves_unless_steps_are_named_or_noise_is_known() -> None:
    plan = make_plan(1_000, device="cpu", memory_budget=8 * GIB)
    assert plan.signal_ratio == pytest.approx(resolved_ratio(1_000, DOUBLE_SHARE, torch.float64))
    assert "The signal" not in "".join(plan.why)
    assert math.isinf(make_plan(1_000, n_steps=20, device="cpu", memory_budget=8 * GIB).signal_ratio)
    known = Request.of(1_000, 9, Settings(device="cpu", memory_budget=8 * GIB), known_noise=True)
    assert math.isinf(plan_for(known).signal_ratio)


def test_what_is_given_is_taken_literally() -> None:
    """Steps, rates and precisions of one's own switch off what "auto" adds to them: that is how the paper is run."""
    plan = make_plan(13_500, n_steps=100, learning_rate=0.1, dtype="float32", device="cpu", memory_budget=8 * GIB)
    assert not plan.settle and not plan.relative_steps and not plan.promote
    assert plan.init == "ones" and plan.sample_size == 0


def test_the_cheaper_of_exact_and_iterative_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for slow, name in (("exact", "cg"), ("product", "cholesky")):
        rates = replace(TYPICAL, **{slow: 1e-3})
        monkeypatch.setattr(planner, "rates_for", lambda *_, rates=rates: rates)
        assert make_plan(3_000, device="cpu", memory_budget=8 * GIB).solver.name == name


def test_memory_decides() -> None:
    assert make_plan(10_000, memory_budget=3 * GIB, device="cpu").operator == "dense"
    small = make_plan(10_000, memory_budget=GIB, device="cpu")
    assert small.operator == "dense" and small.solver.name == "rap"  # H fits, and no factor
    assert make_plan(10_000, memory_budget=GIB // 2, device="cpu").operator == "chunked"
    assert (small.first_epochs, small.rule.max_epochs, small.last_epochs) == (20.0, 6.0, 60.0)
    assert make_plan(10_000, memory_budget=GIB, device="cpu", solver="cg").solver == ConjugateGradients(
        1000, pivot_every=20
    )
    assert make_plan(400, memory_budget=3 * 2**20, device="cpu").solver.name == "rap"  # no room for a float64 factor
    assert make_plan(400, device="cpu").operator == "chunked"  # Cholesky keeps its factor, not H
    plan = make_plan(10_000, memory_budget=2 * GIB, device="cpu")
    assert operator_for(plan, 10_000, torch.float32) == "dense"
    assert operator_for(plan, 10_000, torch.float64) == "chunked"  # three times 0.75 GiB do not fit
    assert operator_for(replace(plan, memory_budget=3 * GIB), 10_000, torch.float64) == "dense"


@pytest.mark.parametrize("solver", ["cholesky", "cg", "ap", "sgd", "rap"])
def test_what_cannot_fit_is_refused_before_anything_is_done(solver: str) -> None:
    n = 30_000 if solver == "cholesky" else 10**8
    with pytest.raises(MemoryError, match=rf"solver='{solver}' needs about .* GiB .* raise memory_budget"):
        make_plan(n, solver=solver, device="cpu", memory_budget=GIB)


def test_estimates_grow_with_the_work_and_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "rates_for", lambda *_: TYPICAL)
    settings = {"device": "cpu", "memory_budget": 64 * GIB}
    seconds = [make_plan(n, **settings).estimated_seconds for n in (100, 1_000, 10_000, 40_000, 10**5, 10**6)]
    assert seconds[:3] == sorted(seconds[:3]) and seconds[3:] == sorted(seconds[3:])  # from 20,000 without steps
    named = settings | {"solver": "cg", "kernel": "matern32"}
    short, long = (make_plan(5_000, n_steps=s, **named).estimated_seconds for s in (10, 100))
    assert 5 < long / short < 11
    start = make_plan(8_000, init="sample", **settings), make_plan(8_000, init="ones", n_steps=30, **settings)
    assert start[0].estimated_seconds > start[1].estimated_seconds
    H = 4 * 13_500**2
    assert 3 * H < make_plan(13_500, solver="cg", **settings).estimated_bytes < 3.3 * H


def test_rates_are_measured_once_and_positive(whole_rates: None) -> None:
    rates = measured_rates(Matern32(), 3, 9, torch.get_num_threads())
    assert all(value > 0 for value in vars(rates).values())
    assert measured_rates(Matern32(), 3, 9, torch.get_num_threads()) is rates


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.004, "0.004 s"), (3.21, "3.2 s"), (119, "119 s"), (300, "5 min"), (3600, "60 min"), (10**5, "28 h")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_gpu_in_float32_gets_the_fused_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="the kernels' fused forms are Triton's")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(fusing, "has_triton", lambda: True)
    settings = {"device": "cuda", "memory_budget": 2**36}
    plan = make_plan(20_000, dtype="float32", **settings)
    assert plan.operator == "fused"
    assert plan.solver == ConjugateGradients(0, factor_after=66)
    tight = {**settings, "memory_budget": 2 * GIB}  # no room for whole factors
    assert make_plan(20_000, solver="cg", **tight).solver == ConjugateGradients(1000, pivot_every=20)
    assert make_plan(20_000, dtype="float64", **settings).operator == "dense"
    assert make_plan(2_000, dtype="float32", **settings).operator == "chunked"  # exact training multiplies nothing

    class Other(Matern32):
        def profile(self, r: torch.Tensor) -> torch.Tensor:
            return super().profile(2.0 * r)

    assert make_plan(20_000, dtype="float32", kernel=Other(), **settings).operator == "dense"
    monkeypatch.setattr(fusing, "has_triton", lambda: False)
    assert make_plan(20_000, dtype="float32", **settings).operator == "dense"


def test_a_plan_of_a_gpu_runs_on_a_cpu() -> None:
    """A model or checkpoint made with the fused operator goes on in tiles where there is no CUDA device."""
    plan = replace(make_plan(100, device="cpu"), operator="fused", device=torch.device("cuda"))
    assert plan_from_json(plan_to_json(plan), device=torch.device("cpu")).operator == "chunked"
    assert plan_from_json(plan_to_json(plan)).operator == "fused"


@pytest.mark.parametrize(("n", "features"), [(100, 2000), (13_500, 3374), (1_000_001, 16_000), (9_003, 2250)])
def test_features_are_even_and_bounded(n: int, features: int) -> None:
    assert make_plan(n, device="cpu").n_features == features


def test_given_values_win() -> None:
    plan = make_plan(
        60_000, solver=ConjugateGradients(7), gradient="standard", n_probes=3, max_epochs=None, n_steps=2,
        learning_rate=0.5, init="ones", dtype=torch.float64, n_features=10, device=torch.device("cpu"),
    )  # fmt: skip
    assert plan.solver == ConjugateGradients(7) and plan.gradient.n_probes == 3
    assert (plan.rule.max_epochs, plan.n_steps, plan.learning_rate, plan.init) == (None, 2, 0.5, "ones")
    assert plan.dtype == torch.float64 and plan.n_features == 10
    assert make_plan(3_000, gradient="exact", device="cpu").solver.name == "cholesky"


def test_no_cuda_is_said_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ValueError, match="no CUDA device"):
        make_plan(100, device="cuda")
    assert available_memory(torch.device("cpu")) > 2**20


def test_blocks_shrink_where_their_factors_would_not_fit() -> None:
    assert make_plan(60_000, solver="ap", device="cpu", memory_budget=8 * GIB).solver.block_size == 1000
    assert make_plan(5_000, solver="ap", device="cpu", memory_budget=8 * GIB).solver.block_size == 2120
    plan = make_plan(1_844_352, solver="ap", device="cpu", memory_budget=8 * 2**30)
    assert plan.solver.block_size == 192 and 3 * 8 * 1_844_352 * 192 <= 8 * 2**30
    assert make_plan(10**6, solver="ap", device="cpu", memory_budget=3 * GIB).solver.block_size == 128
    plan = make_plan(10**6, solver=AlternatingProjections(1000), device="cpu", memory_budget=3 * GIB)
    assert plan.solver == AlternatingProjections(128) and "Blocks of 128 rows instead of 1,000" in str(plan)


def test_blocks_by_name_may_grow_and_given_ones_do_not() -> None:
    plan = make_plan(5_000, solver="ap", device="cpu", memory_budget=8 * GIB)
    assert plan.solver == AlternatingProjections(2120, grow_after=20.0, largest_block=5_000)
    assert make_plan(10**5, solver="ap", device="cpu", memory_budget=8 * GIB).solver.largest_block == 3_576
    plan = make_plan(10**5, solver=AlternatingProjections(1000, grow_after=5), device="cpu", memory_budget=8 * GIB)
    assert plan.solver == AlternatingProjections(1000, grow_after=5, largest_block=3_576)
    assert make_plan(10**5, solver=plan.solver, device="cpu", max_epochs=6.0).estimated_bytes > 8 * 10**5 * 3_576
    fixed = make_plan(10**5, solver=plan.solver, device="cpu", max_epochs=5.0)  # ends before blocks would grow
    assert fixed.estimated_bytes < 3 * 10**9
    assert make_plan(5_000, solver=AlternatingProjections(500), device="cpu").solver == AlternatingProjections(500)


def test_variances_are_exact_for_few_points_where_nothing_else_is_asked_for() -> None:
    plan = make_plan(2_500, device="cpu", memory_budget=8 * GIB)
    assert plan.solver.name == "cg" and plan.exact_posterior and "exact error bars" in plan.headline
    assert not make_plan(2_501, device="cpu", memory_budget=8 * GIB).exact_posterior
    assert not make_plan(2_500, device="cpu", memory_budget=60 * 10**6).exact_posterior  # no room for the factor
    assert not make_plan(2_000, solver="cg", device="cpu").exact_posterior
    assert not make_plan(2_000, gradient="pathwise", device="cpu").exact_posterior
    assert not make_plan(100, device="cpu").exact_posterior  # trained exactly


def test_the_cost_of_a_training_by_hand() -> None:
    """Only factors cost, then only products: 1 + 27/9 factors; 28 solves of 5 products, 7 before the first factor."""
    nothing = dict.fromkeys(vars(TYPICAL), 0.0)
    assert factor_cg_seconds(Rates(**{**nothing, "factor": 1.0}), 10, 27, 100, 7) == 4 * 10**3
    assert factor_cg_seconds(Rates(**{**nothing, "product": 1.0}), 10, 27, 100, 7) == (28 * 5 + 7) * 10**2
    assert epochs_seconds(Rates(**{**nothing, "recompute": 1.0}), 10, 1, 100, 10.0, stored=False) == 2 * 12 * 10**2
    assert exact_seconds(Rates(**{**nothing, "exact": 1.0}), 10, 4) == 5 * 10**3
    for name, cost in (("search", 3 * 10**2), ("sparse", 31 * 10), ("apply", 31 * 4 * 10), ("product", 31 * 6 * 10**2)):
        rates = Rates(**{**nothing, name: 1.0})
        assert near_cg_seconds(rates, 10, 30, 100, 4.0, stored=True) == cost, name


def test_neighbours_of_many_inputs_are_expected_to_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "rates_for", lambda *_: TYPICAL)
    solver = ConjugateGradients(100, neighbours=30)
    few, many = (make_plan(60_000, d, solver=solver, init="ones", device="cpu") for d in (3, 4))
    assert 2 < many.estimated_seconds / few.estimated_seconds < 4


@pytest.mark.parametrize(("share", "solver"), [(0.8, "cg"), (1.3, "cg"), (0.3, "cholesky")])
def test_rates_that_vary_do_not_change_the_solver(share: float, solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above 500 points exact training has to be clearly cheaper than what is chosen without it."""
    monkeypatch.setattr(solver_choice, "factor_cg_seconds", lambda *_: 1.0)
    monkeypatch.setattr(solver_choice, "exact_seconds", lambda *_: share)
    assert make_plan(700, 2, device="cpu").solver.name == solver


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.max": "8589934592", "memory.current": "6442450944"}, 2 * 2**30),
        ({"memory.max": "8589934592", "memory.current": "6442450944", "memory.stat": "a 1\ninactive_file 1073741824\n"},
         3 * 2**30),
        ({"memory.limit_in_bytes": "8589934592", "memory.usage_in_bytes": "8589934592"}, 0),
        ({"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "1"}, None),
        ({"memory.max": "max", "memory.current": "1"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_containers_memory_is_its_limit_less_its_use(
    files: dict[str, str], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(devices, "CONTROL_GROUPS", (str(tmp_path / "none"), str(tmp_path)))
    found = devices.available_memory(torch.device("cpu"))
    assert found == expected if expected is not None else found > 2**20


def test_a_low_rank_preconditioner_is_counted_with_its_copies() -> None:
    low, high = (make_plan(100_000, 5, solver=ConjugateGradients(rank)) for rank in (100, 300))
    assert high.estimated_bytes - low.estimated_bytes == 6 * 8 * 100_000 * 200


def test_neighbours_take_memory() -> None:
    """Their numbers and two sparse factors are held: at least 8 + 2·12 bytes for each point and neighbour."""
    plain, near = (
        make_plan(100_000, 3, solver=ConjugateGradients(100, neighbours=m), device="cpu") for m in (0, 30)
    )  # fmt: skip
    more = training_bytes(near, 100_000, 3) - training_bytes(plain, 100_000, 3)
    assert more >= 32 * 31 * 100_000


def test_a_rough_kernel_of_one_input_has_more_features() -> None:
    rough, smooth = KERNELS["matern12"], KERNELS["matern32"]
    assert make_plan(3000, 1, kernel=rough).n_features == 8_000
    assert [make_plan(3000, d, kernel=kernel).n_features for d, kernel in ((2, rough), (1, smooth))] == [2_000, 2_000]
