"""A plan as a value: it cannot be changed, and a file gives back what was written, by any version."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from warmgp.files.plan_json import plan_from_json, plan_to_json, seconds_taken
from warmgp.planning.planner import make_plan, plan_read_on
from warmgp.schema import SchemaError

GIB = 2**30


def plan(n: int = 20_000, **settings: Any) -> Any:
    return make_plan(n, device="cpu", memory_budget=8 * GIB, **settings)


@pytest.mark.parametrize("n", [400, 2_000, 20_000, 60_000])
def test_a_file_gives_back_the_plan(n: int) -> None:
    made = plan(n)
    assert plan_from_json(plan_to_json(made)) == made


def test_the_starts_solver_is_kept_and_may_be_missing() -> None:
    made = plan()
    written = plan_to_json(made)
    assert made.start_solver is not None and written["start_solver"]["name"] == "cholesky"
    assert plan_from_json(written).start_solver == made.start_solver
    del written["start_solver"]
    assert plan_from_json(written) == dataclasses.replace(made, start_solver=None)
    with pytest.raises(SchemaError, match="start_solver"):
        plan_from_json({**written, "start_solver": "cg"})


def test_a_plan_of_version_0_1() -> None:
    made = plan()
    written = {**plan_to_json(made), "took_seconds": 3.5}
    written["n_neighbours"] = written.pop("neighbourhood_size")
    assert plan_from_json(written) == made and seconds_taken(written) == 3.5
    assert seconds_taken({}) is None and seconds_taken({"took_seconds": None}) is None
    with pytest.raises(SchemaError, match=r"plan\.took_seconds must be a finite number"):
        seconds_taken({"took_seconds": "long"})
    with pytest.raises(SchemaError, match=r"plan\.neighbourhood_size must be a whole number"):
        plan_from_json({**written, "n_neighbours": -1})


def test_a_plan_stays_as_it_is() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(400).n_steps = 3


def test_reading_it_on_another_device_changes_what_runs_there_alone() -> None:
    made = dataclasses.replace(plan(), operator="fused", device=torch.device("cuda"))
    there = plan_read_on(made, torch.device("cpu"))
    assert (there.operator, there.device.type) == ("chunked", "cpu")
    assert dataclasses.replace(there, operator="fused", device=made.device) == made
    assert plan_read_on(plan(), torch.device("cpu")) == plan_from_json(plan_to_json(plan()))


def test_it_reads_as_a_paragraph() -> None:
    made = dataclasses.replace(plan(), estimated_seconds=90.0, estimated_bytes=3 * GIB)
    assert str(made) == (
        "Hyperparameters from a sample of 1,000 points and groups of near ones; pathwise gradient, solver rap to "
        "tolerance 0.01, "
        "at most 6 epochs; dense operator in float32 (float64 if that is not enough) on cpu. Recombined projections on "
        "blocks of 960 near points, for 20,000 points. Hyperparameters come from the likelihood of 128 groups of 256 "
        "near points, drawn anew in 60 steps: steps on all are dear. "
        "Estimated: 90 s and 3 GiB."
    )
