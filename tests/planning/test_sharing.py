"""Plans for several processes: what is divided takes less time and memory, and what is not does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from warmgp.planning.costs import H200
from warmgp.planning.plan import Plan
from warmgp.planning.planner import plan_for
from warmgp.planning.request import Request, Settings
from warmgp.planning.sharing import EXCHANGE, choose_blocks, shared_rates
from warmgp.processes import team_size
from warmgp.solvers import AlternatingProjections, Cholesky, ConjugateGradients, RecombinedProjections

GIB = 2**30


def plan(processes: int, n: int = 1_844_352, d: int = 11, memory: float = 139, **settings: Any) -> Plan:
    given = Settings(kernel=settings.pop("kernel", "matern32"), **settings)
    return plan_for(Request(n, d, given, torch.device("cuda"), int(memory * GIB), processes=processes))


def test_a_process_alone_is_planned_for_as_one() -> None:
    assert team_size() == 1 and Request.of(100, 3, Settings(device="cpu")).processes == 1
    solver = RecombinedProjections()
    assert choose_blocks(Request(100, 3, Settings(), torch.device("cpu"), GIB), solver) == (solver, "")
    assert not any("processes" in reason for reason in plan(1).why)


def test_several_take_less_time_and_memory() -> None:
    """Nearly in proportion on large data; one line says it."""
    one, two, eight = (plan(size) for size in (1, 2, 8))
    assert one.estimated_seconds / 8 < eight.estimated_seconds < one.estimated_seconds / 4
    assert eight.estimated_seconds < two.estimated_seconds < one.estimated_seconds / 1.5
    assert eight.estimated_bytes < two.estimated_bytes < one.estimated_bytes
    told = [reason for reason in eight.why if reason.startswith("8 processes share")]
    assert len(told) == 1 and f"Blocks have {eight.solver.block_size:,} rows" in told[0]  # type: ignore[attr-defined]
    assert eight.solver.block_size == 2 * one.solver.block_size  # type: ignore[attr-defined]


def test_the_start_is_not_divided() -> None:
    """That of a sample of a map by near points, of which rank 0 does all."""
    one, many = (plan(size, 100_000, 2) for size in (1, 1000))
    assert one.near is not None and many.estimated_seconds > 0.1 * one.estimated_seconds


def test_what_every_process_does_takes_as_long() -> None:
    assert shared_rates(H200, Cholesky(), 5000, 65, 8, itemsize=8, on_gpu=True) == H200
    shared = shared_rates(H200, ConjugateGradients(0, factor_after=9), 20_000, 65, 8, itemsize=4, on_gpu=True)
    assert (shared.factor, shared.substitute, shared.build) == (H200.factor, H200.substitute, H200.build)
    assert shared.gradient == H200.gradient / 8 and shared.recompute > H200.recompute / 8


def test_exchanges_are_counted_by_blocks() -> None:
    """A sweep of small blocks costs what its exchanges do, however many processes there are."""
    n = 10_000
    few, many = (
        shared_rates(H200, AlternatingProjections(b), n, 65, 10**6, itemsize=4, on_gpu=True).product * n**2
        for b in (1000, 10)
    )
    assert many - few == pytest.approx(3 * (n / 10 - n / 1000) * EXCHANGE[True], rel=1e-6)


def test_blocks_of_a_user_stay() -> None:
    assert plan(8, solver=RecombinedProjections(512)).solver == RecombinedProjections(512)
    grown = plan(8, 200_000, solver="ap").solver
    assert isinstance(grown, AlternatingProjections) and grown.block_size == 8000


def test_a_time_limit_leaves_more_rows() -> None:
    one, eight = (plan(size, 10_000_000, time_limit=300.0) for size in (1, 8))
    assert 0 < one.rows < 0.7 * eight.rows


def test_what_does_not_fit_one_fits_many() -> None:
    with pytest.raises(MemoryError):
        plan(1, 60_000_000)
    assert plan(64, 60_000_000).estimated_bytes < 139 * GIB
