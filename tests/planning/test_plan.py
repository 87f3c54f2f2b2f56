"""A plan as a value: it cannot be changed, and a file gives back what was written, by any version."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from warmgp import Hyperparameters
from warmgp.files.plan_json import plan_from_json, plan_to_json, seconds_taken
from warmgp.planning import planner
from warmgp.planning.costs import TYPICAL, choice_seconds
from warmgp.planning.decisions import TO_BE_CHOSEN
from warmgp.planning.plan import in_words, memory_in_words
from warmgp.planning.planner import make_plan, plan_read_on
from warmgp.schema import SchemaError
from warmgp.training import near_likelihood
from warmgp.training.kernel_choice import CLIMBS, choose_kernel, work_of_choice

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


# -- how it reads ----------------------------------------------------------------------------------------------------
def test_time_memory_and_error_bars_come_first_and_the_solver_last() -> None:
    made = dataclasses.replace(plan(), estimated_seconds=90.0, estimated_bytes=3 * GIB)
    assert str(made) == (
        "Iterative training, about 1.5 minutes, 3.0 GiB, error bars from 64 samples.\n"
        "- How smooth the function is (the kernel) is learned from the data first; until then the plan is for "
        "Matérn-3/2.\n"
        "- 20,000 points are too many for exact solutions: approximate ones are put together from blocks of 960 near "
        "points.\n"
        "- Length scales, signal and noise are learned from 1,000 points drawn at random, then in 60 steps on 128 "
        "groups of 256 near points each; steps on all points would take too long.\n"
        "Details: hyperparameters from a sample of 1,000 points and groups of near ones; pathwise gradient; solver rap "
        "to tolerance 0.01, at most 6 epochs; dense operator in float32 (float64 if that is not enough) on cpu."
    )


@pytest.mark.parametrize(
    ("n", "given", "first"),
    [
        (300, {}, "Exact training, {}, under 0.1 GiB, exact error bars."),
        (2_000, {}, "Iterative training, {}, 0.1 GiB, exact error bars."),
        (2_000, {"solver": "ap", "n_probes": 7}, "Iterative training, {}, 0.1 GiB, error bars from 7 samples."),
        (2_000, {"gradient": "exact"}, "Exact training, {}, 0.1 GiB, exact error bars."),
        (300, {"init": Hyperparameters.ones(10), "n_steps": 0},
         "Hyperparameters as given, no training, {}, under 0.1 GiB, exact error bars."),
        (400_000, {"time_limit": 300}, "Iterative training on {rows:,} rows, {}, 0.5 GiB, error bars from 64 samples."),
    ],
)  # fmt: skip
def test_the_first_line(n: int, given: dict[str, Any], first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "rates_for", lambda *_: TYPICAL)  # how many rows a time limit has room for
    made = plan(n, **given)
    told = first.format(in_words(made.estimated_seconds), rows=made.rows)
    assert str(made).splitlines()[0] == made.headline == told
    assert str(made).splitlines()[-1] == made.details and made.details.startswith("Details: ")


@pytest.mark.parametrize("n", [40, 300, 700, 2_000, 9_000, 20_000, 200_000, 10**6])
@pytest.mark.parametrize("d", [1, 2, 12])
def test_reasons_are_for_people(n: int, d: int) -> None:
    """One sentence a line, and no word of the solver's trade before the details."""
    trade = ("conjugate", "preconditioner", "factor", "projection", "cholesky", "pathwise", "operator", "epoch", " h ")
    for line in make_plan(n, d, device="cpu", memory_budget=8 * GIB).why:
        assert line.endswith(".") and line.count(". ") == 0
        assert not [word for word in trade if word in line.lower()], line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "less than a second"), (0.96, "about 1 second"), (2.4, "about 2 seconds"), (43.0, "about 45 seconds"),
        (55.0, "about 1 minute"), (90.0, "about 1.5 minutes"), (1_500.0, "about 25 minutes"), (3_300.0, "about 1 hour"),
        (15_000.0, "about 4 hours"), (100_000.0, "about 30 hours"), (284_000.0, "about 3.5 days"),
    ],
)  # fmt: skip
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


@pytest.mark.parametrize(
    ("gib", "text"),
    [(0.001, "under 0.1 GiB"), (0.06, "0.1 GiB"), (0.64, "0.6 GiB"), (9.96, "10.0 GiB"), (63, "63 GiB")],
)
def test_memory_as_people_say_it(gib: float, text: str) -> None:
    assert memory_in_words(gib * GIB) == text


# -- the choice of a kernel ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "d"), [(300, 5), (5_000, 5), (5_000, 2)])
def test_the_choice_of_a_kernel_is_part_of_the_estimate(n: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "rates_for", lambda *_: TYPICAL)
    chosen, named = (
        make_plan(n, d, kernel=kernel, device="cpu", memory_budget=8 * GIB) for kernel in (None, "matern32")
    )  # fmt: skip
    seconds = choice_seconds(TYPICAL, n, is_map=d <= 3, on_gpu=False)
    assert chosen.estimated_seconds - named.estimated_seconds == pytest.approx(seconds) and seconds > 0.1
    assert TO_BE_CHOSEN in chosen.why and TO_BE_CHOSEN not in named.why
    given = make_plan(n, d, init=Hyperparameters.ones(d), device="cpu", memory_budget=8 * GIB)
    assert TO_BE_CHOSEN not in given.why  # which are of one kernel


def test_what_a_choice_evaluates() -> None:
    """A sample as one group, with a climb for each kernel and one more, and five factors of all points where they are
    few; terms of 20 neighbours on a map."""
    (short, next_short), (long, next_long) = CLIMBS[True], CLIMBS[False]
    assert work_of_choice(39, is_map=False, on_gpu=False) == (1, 39, 0)
    assert work_of_choice(300, is_map=True, on_gpu=False) == (1, 300, short + 4 * next_short + 2)
    assert work_of_choice(1_200, is_map=False, on_gpu=False) == (1, 600, short + 4 * next_short + 13)
    assert work_of_choice(10**6, is_map=False, on_gpu=False) == (1, 800, long + 3 * next_long)
    assert work_of_choice(10**6, is_map=False, on_gpu=True) == (1, 4_000, long + 3 * next_long)
    assert work_of_choice(10**6, is_map=True, on_gpu=False) == (1_200, 20, short + 3 * next_short)


def test_what_a_choice_evaluates_is_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in a choice for 300 points: no more than planned, and not much less."""
    seen: list[tuple[int, ...]] = []
    whole = near_likelihood.conditionals
    monkeypatch.setattr(near_likelihood, "conditionals", lambda *a: (seen.append(tuple(a[2].shape)), whole(*a))[1])
    x = torch.randn(300, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    choose_kernel(x, x.sum(1).sin(), 5, generator=torch.Generator().manual_seed(0), is_map=False)
    groups, size, evaluations = work_of_choice(300, is_map=False, on_gpu=False)
    assert set(seen) == {(groups, size)} and 0.4 * evaluations <= len(seen) <= 1.3 * evaluations
