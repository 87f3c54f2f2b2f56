"""H over several processes: the same products, solutions and gradients as in one, and what goes between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist

from distributed.teams import together
from distributed.workers import N, fused, solutions
from warmgp.operators import has_triton
from warmgp.processes import Team

TOLERANCE = {"torch.float32": 1e-5, "torch.float64": 1e-10}
SIZES = (240, 960)
TABLE = pd.DataFrame({"a": np.arange(70.0), "name": [f"row {i}" for i in range(70)]})


@pytest.fixture(scope="module")
def alone() -> dict[str, torch.Tensor]:
    return solutions(None, False)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes do for all of these tests."""
    path = tmp_path_factory.mktemp("tables")
    TABLE[:50].to_parquet(path / "1.parquet", row_group_size=10)
    TABLE[50:].to_parquet(path / "2.parquet", row_group_size=10)
    jobs = {
        "solutions": (False, 300),
        "traffic": (SIZES,),
        "other_data": (),
        "parquet": (str(path),),
        "answers": (),
        "fused": (),
        "watched": ("rap", "cg"),
        "failed": (),
    }
    return together(2, "several", jobs)


def check(every: list[dict[str, torch.Tensor]], alone: dict[str, torch.Tensor]) -> None:
    for rank, found in enumerate(every):
        assert found.keys() == alone.keys()
        for name, expected in alone.items():
            tolerance = next(value for dtype, value in TOLERANCE.items() if dtype in name)
            error = float((found[name] - expected).norm() / expected.norm())
            assert error <= tolerance, f"rank {rank} of {len(every)}, {name}: {error:.1e}"
            assert torch.equal(found[name], every[0][name]), f"rank {rank}, {name}: other bits than rank 0"


@pytest.mark.whole
def test_three_processes_find_what_one_does() -> None:
    """After a fixed number of iterations, for every solver, estimator, kernel, operator and precision, also with
    weights; arrays are gathered in panels."""
    check(together(3, "solutions", True, 300), solutions(None, True))


@pytest.mark.whole
def test_four_processes_find_what_one_does(alone: dict[str, torch.Tensor]) -> None:
    check(together(4, "solutions", False), alone)


def test_two_processes_find_what_one_does(two: list[dict[str, Any]], alone: dict[str, torch.Tensor]) -> None:
    check([found["solutions"] for found in two], alone)


@pytest.mark.skipif(not has_triton(), reason="Triton comes with torch for CUDA on Linux")
def test_the_same_by_tritons_kernels(two: list[dict[str, Any]]) -> None:
    check([found["fused"] for found in two], fused(None))


def test_a_team_of_one_finds_the_same_bits(alone: dict[str, torch.Tensor], tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        found = solutions(Team(), False)
    finally:
        dist.destroy_process_group()
    assert all(torch.equal(value, alone[name]) for name, value in found.items()) and len(found) >= 20


def test_neither_of_two_has_all_rows_while_it_trains(two: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(two):
        for name, (steps, seen, _) in found["watched"].items():
            assert steps == 2 and not seen, f"rank {rank}, {name}: {seen}"


def test_what_an_iteration_sends(two: list[dict[str, Any]]) -> None:
    """Projections and descent send as much for 4 times the rows; conjugate gradients one array of the rows that a
    process has, and sums."""
    for sent in (found["traffic"] for found in two):
        for name in ("ap", "sgd"):
            small, large = (sum(one.values()) for one in sent[name])
            assert 0 < small == large, f"{name}: {sent[name]}"
        for n, counts in zip(SIZES, sent["cg"], strict=True):
            assert counts["gather"] == 8 * n // 2 * 4 * 4, "8 iterations, half of the rows, 4 systems, 4 bytes"
            assert counts["sum"] <= 8 * 8 * (20 * 4 + 3 * 4), "coarse products and sums over rows"
    assert N % 2 and N % 3 and N % 4


def test_a_process_with_other_data_is_refused_by_name(two: list[dict[str, Any]]) -> None:
    for found in two:
        assert "rank 1 of 2 has other y than rank 0" in found["other_data"]


def test_a_block_that_one_process_cannot_factor_is_told_to_all(two: list[dict[str, Any]]) -> None:
    """Else the others would wait for its step for ever."""
    here, there = (found["failed"] for found in two)
    assert here == ["rank 1 could not solve on its block of H"] * 2
    assert there == ["the block is not positive definite"] * 2


def test_each_process_answers_for_its_rows_and_all_have_the_whole(two: list[dict[str, Any]]) -> None:
    expected = [0.0, 2.0, 4.0, 6.0, 8.0], [0.0], "row 3 has no answer"
    assert [found["answers"] for found in two] == [expected, expected]


def test_each_process_reads_its_own_row_groups(two: list[dict[str, Any]]) -> None:
    tables, counts = zip(*(found["parquet"] for found in two), strict=True)
    for found in tables:
        pd.testing.assert_frame_equal(found, TABLE)
    assert counts == (4, 3)
