"""How fast a GPU is beside the one that rates are tabulated for: from times that are made up, where there is no GPU."""

from __future__ import annotations

import time

import pytest
import torch

from warmgp.planning import gpu_pace as pace
from warmgp.planning.costs import H200, for_inputs, rates_for
from warmgp.planning.gpu_pace import H200_SECONDS, Pace, pace_from, pace_of
from warmgp.planning.planner import make_plan
from warmgp.planning.request import Request, Settings

HALF, SINGLE, DOUBLE = torch.float16, torch.float32, torch.float64


@pytest.mark.parametrize("noise", [0.72, 1.0, 1.4])
def test_noise_changes_nothing(noise: float) -> None:
    assert pace_from(lambda dtype: noise * H200_SECONDS[dtype]) == Pace(1.0, 1.0, 1.0)


def test_each_precision_has_its_own_pace() -> None:
    times = {HALF: 2.2, SINGLE: 0.45, DOUBLE: 37.0}
    assert pace_from(lambda dtype: times[dtype] * H200_SECONDS[dtype]) == Pace(2.0, 0.5, 32.0)


def test_rates_grow_with_the_pace_of_their_precision() -> None:
    slow = H200.at(Pace(2.0, 4.0, 8.0))
    assert (slow.product, slow.factor, slow.exact) == (2 * H200.product, 4 * H200.factor, 8 * H200.exact)
    assert slow.call == H200.call  # the CPU's
    same = {name for name in vars(H200) if getattr(slow, name) == getattr(H200, name)}
    assert same == {"call"} and H200.at(Pace()) == H200


def test_rates_of_a_gpu_are_the_tables_at_its_pace() -> None:
    slow = Pace(4.0, 2.0, 64.0)
    asked = Request(20_000, 5, Settings(), torch.device("cuda"), 2**36, slow)
    assert rates_for(asked, 0) == H200.at(slow)


def test_rates_of_a_gpu_grow_with_the_inputs() -> None:
    found = [for_inputs(H200, d, on_gpu=True).recompute / H200.recompute for d in (2, 28, 29, 61, 124, 248)]
    assert found == pytest.approx([1.0, 1.0, 1.5, 2.5, 2.5, 5.0])
    assert for_inputs(H200, 61, on_gpu=True).factor == H200.factor
    assert for_inputs(H200, 61, on_gpu=False) == H200  # measured with so many


def test_a_plan_on_a_gpu_takes_longer_with_many_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    few, many = (make_plan(300_000, d, device="cuda", memory_budget=2**37) for d in (20, 61))
    assert many.solver == few.solver and many.estimated_seconds > 1.5 * few.estimated_seconds


def test_a_plan_takes_the_pace_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = {"device": "cuda", "memory_budget": 2**37, "n_steps": 100}
    usual = make_plan(5_000, **settings)
    monkeypatch.setattr("warmgp.planning.request.pace_of", lambda device: Pace(2.0, 1.0, 16.0))
    slow = make_plan(5_000, **settings)
    assert (usual.solver.name, slow.solver.name) == ("cholesky", "cg")
    exact = make_plan(5_000, solver="cholesky", **settings)
    assert exact.estimated_seconds > 4 * usual.estimated_seconds


def test_it_is_measured_once_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    current = [0]

    class Guard:
        def __init__(self, device: torch.device) -> None:
            self.index = device.index

        def __enter__(self) -> None:
            current.append(self.index)

        def __exit__(self, *_: object) -> None:
            current.pop()

    def seconds(device: torch.device, dtype: torch.dtype, until: float = 0.0) -> float:
        assert device.index == current[-1]
        measured.append(current[-1])
        return (4.0 if current[-1] else 1.0) * H200_SECONDS[dtype]

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(pace, "_product_seconds", seconds)
    pace._measured.cache_clear()
    try:
        for _ in range(2):
            assert pace_of(torch.device("cuda")) == pace_of(torch.device("cuda:0")) == Pace()
            assert pace_of(torch.device("cuda:1")) == Pace(4.0, 4.0, 4.0)
        assert measured == [0] * 4 + [1] * 4  # a warm-up and three precisions each
    finally:
        pace._measured.cache_clear()


def test_where_it_cannot_be_measured_the_table_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> float:
        raise torch.cuda.OutOfMemoryError("no memory for two matrices")

    monkeypatch.setattr(pace, "_measured", full)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert pace_of(torch.device("cuda")) == pace_of(torch.device("cpu")) == Pace()


def test_the_least_time_of_a_product_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that say when: the first four products take 40 ms, the next 8 ms, and so on."""
    taken = iter([40.0, 8.0, 12.0, 16.0, 20.0, 4.0])
    said: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            said.append("record")

        def synchronize(self) -> None:
            said.append("wait")

        def elapsed_time(self, end: Event) -> float:
            return next(taken)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(pace, "SIZES", dict.fromkeys(H200_SECONDS, 8))
    assert pace._product_seconds(torch.device("cpu"), DOUBLE) == pytest.approx(0.008 / 4)
    assert said == ["record", "record", "wait"] * 5
    with pytest.raises(StopIteration):  # a warm-up goes on until its time has come
        pace._product_seconds(torch.device("cpu"), HALF, until=time.perf_counter() + 60)


@pytest.mark.gpu
def test_a_gpu_has_a_pace() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    found = pace_of(torch.device("cuda"))
    assert all(2.0**-6 <= value <= 2.0**12 for value in vars(found).values())
    if "H200" in torch.cuda.get_device_name():
        assert found == Pace()
