"""H over several processes: the same products, solutions and gradients as in one, and what goes between them."""

from __future__ import annotations

import pytest
import torch

from distributed.teams import together
from distributed.workers import N, solutions

TOLERANCE = {"torch.float32": 1e-5, "torch.float64": 1e-10}


@pytest.fixture(scope="module")
def alone() -> dict[str, torch.Tensor]:
    return solutions(None, True)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_several_processes_find_what_one_does(world: int, alone: dict[str, torch.Tensor]) -> None:
    """After a fixed number of iterations, for every solver and both estimators, also with weights; three processes for
    every kernel, operator and precision, too."""
    everything = world == 3
    every = together(world, "solutions", everything)
    for rank, found in enumerate(every):
        assert len(found) >= 20 and (found.keys() == alone.keys()) == everything
        for name, expected in ((name, alone[name]) for name in found):
            tolerance = next(value for dtype, value in TOLERANCE.items() if dtype in name)
            error = float((found[name] - expected).norm() / expected.norm())
            assert error <= tolerance, f"rank {rank} of {world}, {name}: {error:.1e}"
            assert torch.equal(found[name], every[0][name]), f"rank {rank} of {world}, {name}: other bits than rank 0"


def test_what_an_iteration_sends() -> None:
    """Projections and descent send as much for 4 times the rows; conjugate gradients one array of the rows that a
    process has, and sums."""
    sizes = (240, 960)
    for sent in together(2, "traffic", sizes):
        for name in ("ap", "sgd"):
            small, large = (sum(one.values()) for one in sent[name])
            assert 0 < small == large, f"{name}: {sent[name]}"
        for n, counts in zip(sizes, sent["cg"], strict=True):
            assert counts["gather"] == 8 * n // 2 * 4 * 4, "8 iterations, half of the rows, 4 systems, 4 bytes"
            assert counts["sum"] <= 8 * 8 * (20 * 4 + 3 * 4), "coarse products and sums over rows"
    assert N % 2 and N % 3 and N % 4
