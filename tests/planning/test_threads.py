"""The threads of the CPU: as many as are worth it now, by times that are made up, and set back whatever happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from warmgp import Matern32
from warmgp.files.plan_json import plan_from_json, plan_to_json
from warmgp.planning import costs, planner, threads
from warmgp.planning.costs import TYPICAL, measured_rates
from warmgp.planning.planner import make_plan
from warmgp.planning.threads import (
    FEW_ENTRIES,
    KEPT,
    MANY_ENTRIES,
    STRETCH,
    choose_threads,
    free_threads,
    limited_threads,
    worth_it,
)
from warmgp.schema import SchemaError

CPU, MANY = torch.device("cpu"), FEW_ENTRIES + 1


@pytest.fixture(autouse=True)
def eight() -> Iterator[None]:
    """torch has eight threads, and nothing is known of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    threads._measured.cache_clear()
    yield
    threads._measured.cache_clear()
    torch.set_num_threads(before)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Lets so many threads be worth it, and returns a list of those that are asked for."""

    def at_most(most: int) -> list[int]:
        asked: list[int] = []

        def worth(number: int, _: object) -> bool:
            asked.append(number)
            return number <= most

        monkeypatch.setattr(threads, "worth_it", worth)
        return asked

    return at_most


@pytest.mark.parametrize(("limit", "used"), [(1, 1), (3, 3), (8, 8), (20, 8), (0, 8)])
def test_threads_are_limited_and_set_back(limit: int, used: int) -> None:
    with limited_threads(limit):
        assert torch.get_num_threads() == used
    assert torch.get_num_threads() == 8


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, MemoryError])
def test_they_are_set_back_after_an_error(error: type[BaseException]) -> None:
    with pytest.raises(error), limited_threads(2):
        raise error
    assert torch.get_num_threads() == 8


@pytest.mark.parametrize(
    ("most", "found", "asked"), [(8, 8, [8]), (5, 4, [8, 4]), (2, 2, [8, 4, 2]), (0, 1, [8, 4, 2])]
)
def test_all_or_a_half_or_a_quarter_of_them(
    most: int, found: int, asked: list[int], free: Callable[[int], list[int]]
) -> None:
    seen = free(most)
    assert choose_threads(CPU, MANY)[0] == found and seen == asked
    with free_threads(CPU, MANY):
        assert torch.get_num_threads() == found


@pytest.mark.parametrize(
    ("most", "why"),
    [
        (8, ""),
        (4, "4 threads of 8, because other programs keep cores busy."),
        (0, "One thread of 8, because other programs keep cores busy."),
    ],
)
def test_it_says_why(most: int, why: str, free: Callable[[int], list[int]]) -> None:
    free(most)
    assert choose_threads(CPU, MANY)[1] == why
    plan = make_plan(513, solver="cholesky", device="cpu")
    assert plan.threads == max(1, most) and (why in str(plan) if why else "threads" not in str(plan))


def test_where_there_is_nothing_to_decide_nothing_is_measured(
    free: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = free(8)
    assert choose_threads(torch.device("cuda"), MANY) == (0, "")
    assert choose_threads(CPU, FEW_ENTRIES) == (1, "")
    assert choose_threads(CPU, MANY_ENTRIES) == (8, "")
    monkeypatch.setattr(threads, "PROCESS", -1)
    assert choose_threads(CPU, MANY) == (1, "One thread of 8, because several may wait for ever in a forked process.")
    with limited_threads(1):
        assert choose_threads(CPU, MANY) == (1, "")
    assert asked == []


def test_it_is_measured_again_after_a_while(free: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000 * KEPT]
    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: now[0]))
    free(8)
    assert choose_threads(CPU, MANY)[0] == 8
    asked = free(0)  # the machine becomes busy
    now[0] += 0.9 * KEPT
    assert choose_threads(CPU, MANY)[0] == 8 and asked == []
    now[0] += 0.2 * KEPT
    assert choose_threads(CPU, MANY)[0] == 1 and asked == [8, 4, 2]


# -- the measurement -------------------------------------------------------------------------------------------------
@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still unless it is set."""
    fake = SimpleNamespace(now=0.0)
    monkeypatch.setattr(threads, "time", SimpleNamespace(perf_counter=lambda: fake.now))
    return fake


@pytest.mark.parametrize(
    ("number", "share", "worth"),
    [
        (2, 0.5, True),
        (2, 0.75, True),
        (2, 0.85, False),  # not clearly faster than one
        (2, 100.0, False),
        (8, 1 / 8, True),
        (8, 2.3 / 8, True),
        (8, 2.8 / 8, False),  # faster than one, but they wait for each other: fewer may be faster
    ],
)
def test_several_are_worth_it_where_they_are_clearly_faster(
    number: int, share: float, worth: bool, clock: SimpleNamespace
) -> None:
    def work() -> None:
        clock.now += 1e-4 if torch.get_num_threads() == 1 else 1e-4 * share

    assert worth_it(number, work) == worth
    assert torch.get_num_threads() == 8


def test_waits_count_for_several_and_not_for_one(clock: SimpleNamespace) -> None:
    """Both stand still for 12 ms now and then, as beside other programs: two threads are not faster, only luckier."""
    calls = [0]

    def work() -> None:
        calls[0] += 1
        clock.now += (1e-4 if torch.get_num_threads() == 1 else 5e-5) + (0.012 if calls[0] % 25 == 0 else 0.0)

    assert not worth_it(2, work)


def test_threads_that_begin_on_one_core_are_worth_it(clock: SimpleNamespace) -> None:
    """The first stretch of an idle machine may take a little too long; where all do the machine is busy."""
    several, slow = [0], [280]

    def work() -> None:
        together = torch.get_num_threads() > 1
        several[0] += together
        clock.now += 5e-5 if together and several[0] > slow[0] else 1e-4

    assert worth_it(2, work)
    several[0], slow[0] = 0, 10_000
    assert not worth_it(2, work)


def test_a_long_wait_ends_the_measurement(clock: SimpleNamespace) -> None:
    def work() -> None:
        clock.now += 1e-4 if torch.get_num_threads() == 1 else 0.02

    assert not worth_it(2, work) and clock.now < 10 * STRETCH


def test_the_measurement_itself_is_short_and_leaves_nothing() -> None:
    torch.set_num_threads(2)
    threads._measured(2, -1)  # makes the threads
    began = time.perf_counter()
    assert threads._measured(2, -2) in (1, 2)
    assert time.perf_counter() - began < 1.0 and torch.get_num_threads() == 2  # 0.03 s, on a busy machine up to 0.2


# -- in a plan -------------------------------------------------------------------------------------------------------
def test_a_plan_has_the_threads_that_were_chosen(free: Callable[[int], list[int]]) -> None:
    free(4)
    settings = {"device": "cpu", "solver": "cholesky"}
    assert [make_plan(n, **settings).threads for n in (2, 512, 513)] == [1, 1, 4]
    with limited_threads(1):
        assert make_plan(600, **settings).threads == 1


def test_a_gpus_plan_leaves_torchs_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert make_plan(5_000, device="cuda", memory_budget=2**36).threads == 0


def test_a_file_keeps_them_and_one_of_before_has_none() -> None:
    made = make_plan(100, device="cpu")
    written = plan_to_json(made)
    assert written["threads"] == 1 and plan_from_json(written).threads == 1
    del written["threads"]
    assert plan_from_json(written).threads == 0
    for wrong in (-1, 1.5, "all", True):
        with pytest.raises(SchemaError, match=r"plan\.threads must be a whole number"):
            plan_from_json({**written, "threads": wrong})


@pytest.mark.parametrize(("number", "clock"), [(1, time.thread_time), (2, time.perf_counter)])
def test_rates_are_measured_with_the_threads_of_the_plan_that_are_worth_it(
    number: int, clock: Callable[[], float], free: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    free(number)
    seen: list[tuple[int, object]] = []

    def rates(kernel: object, d: int, columns: int, by: object) -> costs.Rates:
        seen.append((torch.get_num_threads(), by))
        return TYPICAL

    monkeypatch.setattr(costs, "_rates", rates)
    monkeypatch.setattr(planner, "choose_threads", lambda device, entries: (2, ""))
    measured_rates.cache_clear()
    assert make_plan(3_000, 2, device="cpu").threads == 2
    assert make_plan(4_000, 2, device="cpu").threads == 2
    measured_rates.cache_clear()
    assert seen == [(number, clock)] and torch.get_num_threads() == 8


def test_what_others_take_is_no_part_of_the_rates_of_one_thread() -> None:
    def idle() -> None:
        time.sleep(0.02)

    assert costs._seconds(idle, time.thread_time) < 0.01 < 0.02 <= costs._seconds(idle, time.perf_counter)


def test_rates_of_one_thread_are_positive() -> None:
    measured_rates.cache_clear()
    assert all(value > 0 for value in vars(measured_rates(Matern32(), 2, 5, 1)).values())
