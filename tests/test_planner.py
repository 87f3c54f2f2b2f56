"""The plain rule behind every "auto"."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from warmgp import ConjugateGradients, Matern32, planner
from warmgp.persistence import plan_from_json, plan_to_json
from warmgp.planner import available_memory, make_plan


@pytest.mark.parametrize(
    ("n", "solver", "gradient", "steps", "rate", "epochs", "init"),
    [
        (500, "cholesky", "exact", 100, 0.1, None, "ones"),
        (13_500, "cg", "pathwise", 100, 0.1, None, "ones"),
        (60_000, "ap", "pathwise", 30, 0.03, 10.0, "subset"),
    ],
)
def test_size_decides(
    n: int, solver: str, gradient: str, steps: int, rate: float, epochs: float | None, init: str
) -> None:
    plan = make_plan(n, device="cpu", memory_budget=8 * 2**30)
    assert (plan.solver.name, plan.gradient.name) == (solver, gradient)
    assert (plan.n_steps, plan.learning_rate, plan.rule.max_epochs, plan.init) == (steps, rate, epochs, init)
    assert plan.dtype == torch.float64 and make_plan(n, dtype="float32", device="cpu").dtype == torch.float32
    assert f"{n:,} points" in str(plan) and solver in str(plan)


def test_memory_decides_the_operator() -> None:
    assert make_plan(10_000, memory_budget=3 * 2**30, device="cpu").operator == "dense"
    assert make_plan(10_000, memory_budget=2 * 2**30, device="cpu").operator == "chunked"
    assert make_plan(1_000, memory_budget=2**20, device="cpu").solver.name == "cg"  # no room for a factor
    assert make_plan(1_000, device="cpu").operator == "chunked"  # Cholesky keeps its factor, not H


def test_a_gpu_in_float32_gets_the_fused_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(planner, "has_triton", lambda: True)
    settings = {"device": "cuda", "memory_budget": 2**36}
    plan = make_plan(20_000, dtype="float32", **settings)
    assert plan.operator == "fused"
    assert plan.solver == ConjugateGradients(1000, pivot_every=20)
    assert make_plan(2_000, solver="cg", **settings).solver == ConjugateGradients(200, pivot_every=20)
    assert make_plan(20_000, dtype="float64", **settings).operator == "dense"
    assert make_plan(2_000, dtype="float32", **settings).operator == "chunked"  # exact training multiplies nothing

    class Other(Matern32):
        name = "other"

    assert make_plan(20_000, dtype="float32", kernel=Other(), **settings).operator == "dense"
    monkeypatch.setattr(planner, "has_triton", lambda: False)
    assert make_plan(20_000, dtype="float32", **settings).operator == "dense"


def test_a_plan_of_a_gpu_runs_on_a_cpu() -> None:
    """A model or checkpoint made with the fused operator goes on in tiles where there is no CUDA device."""
    plan = replace(make_plan(100, device="cpu"), operator="fused", device=torch.device("cuda"))
    assert plan_from_json(plan_to_json(plan), device=torch.device("cpu")).operator == "chunked"
    assert plan_from_json(plan_to_json(plan)).operator == "fused"


@pytest.mark.parametrize(("n", "features"), [(100, 2000), (13_500, 6750), (1_000_001, 16_000), (9_003, 4500)])
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
    assert make_plan(60_000, device="cpu", memory_budget=8 * 2**30).solver.block_size == 1000
    plan = make_plan(1_844_352, device="cpu", memory_budget=8 * 2**30)
    assert plan.solver.block_size == 288 and 2 * 8 * 1_844_352 * 288 <= 8 * 2**30
    assert make_plan(10**8, solver="ap", device="cpu", memory_budget=2**30).solver.block_size == 64
