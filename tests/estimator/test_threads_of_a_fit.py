"""Threads and time of a fit: as its plan says, set back whatever happens; what takes long is said before it begins."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from warmgp import GPRegressor
from warmgp.estimator import fitting
from warmgp.planning import planner, threads
from warmgp.posterior import Posterior

FAST = {"n_steps": 4, "n_features": 20, "n_probes": 2, "solver": "cg", "random_state": 0}
SOURCE = Path(threads.__file__).parents[2]


def data(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


@pytest.fixture(autouse=True)
def four() -> Iterator[None]:
    """torch has four threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def planned(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Lets plans have so many threads."""
    monkeypatch.setattr(planner, "choose_threads", lambda device, entries: (number, ""))


class Seen(list[int]):
    """A callback that keeps the numbers of threads that steps are taken with, and may raise after some."""

    def __init__(self, steps: int = 99, error: BaseException | None = None) -> None:
        self.steps, self.error = steps, error

    def __call__(self, record: Any, state: Any) -> bool:
        self.append(torch.get_num_threads())
        if len(self) == self.steps and self.error is not None:
            raise self.error
        return len(self) == self.steps


# -- the threads of a fit --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("number", "used"), [(1, 1), (3, 3), (0, 4), (16, 4)])
def test_a_fit_uses_the_threads_of_its_plan_and_sets_them_back(
    number: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch, number)
    seen = Seen()
    model = GPRegressor(**FAST, callbacks=[seen]).fit(*data())
    assert seen == [used] * 4 and torch.get_num_threads() == 4 and model.plan_.threads == number


def test_the_start_and_the_last_solve_use_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch, 2)
    at: dict[str, int] = {}
    for name in ("begin", "report_of"):
        whole = getattr(fitting, name)

        def noted(*given: Any, name: str = name, whole: Any = whole, **more: Any) -> Any:
            at[name] = torch.get_num_threads()
            return whole(*given, **more)

        monkeypatch.setattr(fitting, name, noted)
    GPRegressor(**FAST).fit(*data())
    assert at == {"begin": 2, "report_of": 2}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), ZeroDivisionError()])
def test_they_are_set_back_when_a_fit_is_cut_short(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch, 1)
    seen = Seen(2, error)
    with pytest.raises(type(error)):
        GPRegressor(**FAST, callbacks=[seen]).fit(*data())
    assert seen == [1, 1] and torch.get_num_threads() == 4


def test_a_resumed_fit_uses_those_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ckpt"
    planned(monkeypatch, 3)
    with pytest.raises(ZeroDivisionError):
        GPRegressor(**FAST, checkpoint=path, callbacks=[Seen(1, ZeroDivisionError())]).fit(*data())
    planned(monkeypatch, 1)  # now the machine is busy
    seen = Seen(1, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        GPRegressor(**FAST, checkpoint=path, callbacks=[seen]).fit(*data())
    torch.set_num_threads(2)  # and now there are fewer
    fewer = Seen()
    model = GPRegressor(**FAST, checkpoint=path, callbacks=[fewer]).fit(*data())
    assert seen == [3] and fewer == [2, 2] and model.plan_.threads == 3 and torch.get_num_threads() == 2


def test_a_model_keeps_the_threads_of_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch, 3)
    GPRegressor(**FAST).fit(*data()).save(tmp_path / "model")
    assert GPRegressor.load(tmp_path / "model").plan_.threads == 3


# -- predictions -----------------------------------------------------------------------------------------------------
@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that predictions are computed with, where three are worth it."""
    seen: list[int] = []
    monkeypatch.setattr(threads, "_measured", lambda allowed, when: 3)
    for name in ("mean", "mean_and_variance", "covariance", "samples"):
        whole = getattr(Posterior, name)

        def noted(self: Posterior, x: torch.Tensor, whole: Any = whole) -> Any:
            seen.append(torch.get_num_threads())
            return whole(self, x)

        monkeypatch.setattr(Posterior, name, noted)
    return seen


@pytest.mark.cpu
def test_predictions_use_the_threads_that_are_worth_it(used: list[int]) -> None:
    X, y = data()
    model = GPRegressor(**FAST).fit(X, y)
    used.clear()
    large = np.tile(X, (threads.FEW_ENTRIES // 40**2 + 1, 1))
    model.predict(large), model.predict(large, return_std=True), model.sample_y(large)
    assert used == [3, 3, 3] and torch.get_num_threads() == 4
    model.predict(X), model.predict(X, return_std=True), model.predict(X, return_cov=True), model.sample_y(X)
    assert used[3:] == [1] * len(used[3:]) and len(used) >= 7  # few entries: one thread will do


@pytest.mark.cpu
def test_what_needs_the_whole_matrix_is_not_small(used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact std may need a factor of H, and new functions need a solve, at however few points."""
    monkeypatch.setattr(threads, "FEW_ENTRIES", 40**2 - 1)
    X, y = data()
    exact = GPRegressor(n_steps=2, n_features=20, n_probes=2, random_state=0).fit(X, y)
    used.clear()
    exact.predict(X[:2]), exact.predict(X[:2], return_std=True), exact.sample_y(X[:2]), exact.predict(X)
    assert used == [1, 3, 1, 3]
    exact.sample_y(X[:2], random_state=0)
    assert set(used[4:]) == {3}


# -- forks -----------------------------------------------------------------------------------------------------------
FORK = """
import os, sys, warnings
import numpy as np, torch
from warmgp import GPRegressor
from warmgp.estimator import fitting

torch.set_num_threads(2)
torch.rand(2000, 2000).exp().sum()  # makes the threads that a fork does not have
X = np.random.default_rng(0).normal(size=(600, 2))
if os.fork() == 0:
    model = GPRegressor(n_steps=1, random_state=0).fit(X, np.sin(X[:, 0]))
    os._exit(0 if np.isfinite(model.predict(X, return_std=True)).all() else 1)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_of_a_process_with_several_threads_does_not_wait_for_ever() -> None:
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", FORK], env=os.environ | {"PYTHONPATH": str(SOURCE)},
                             start_new_session=True)  # fmt: skip
    try:
        assert child.wait(120) == 0
    finally:
        if child.poll() is None:
            os.killpg(child.pid, 9)


# -- time ------------------------------------------------------------------------------------------------------------
def takes(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Lets plans expect so many seconds."""
    monkeypatch.setattr(planner, "training_seconds", lambda *_: seconds)
    monkeypatch.setattr(planner, "choice_seconds", lambda *_, **__: 0.0)


@pytest.mark.cpu
@pytest.mark.parametrize(("seconds", "said"), [(960.0, "about 16 min"), (61.0, "about 61 s"), (59.0, "")])
def test_a_long_fit_is_announced(
    seconds: float,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    takes(monkeypatch, seconds)
    with caplog.at_level(logging.INFO, "warmgp.estimator"):
        model = GPRegressor(**FAST, device="cpu", verbose=True).fit(*data())
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("warmgp.estimator")]
    assert lines == (
        [f"training 40 points on cpu takes {said}: {' '.join(str(model.plan_).splitlines())}"] if said else []
    )
    bar = capsys.readouterr().err
    assert (f"training, {said}:" in bar) if said else ("training:" in bar)


@pytest.mark.parametrize(
    ("seconds", "verbose", "told"), [(960.0, False, True), (960.0, True, False), (59.0, False, False)]
)
def test_a_long_fit_without_a_bar_says_it_unasked(
    seconds: float, verbose: bool, told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a warning in the log, which Python prints by itself; before the first step."""
    takes(monkeypatch, seconds)
    before: list[bool] = []
    look = lambda record, state: before.append("this fit takes about 16 min" in caplog.text)  # noqa: E731
    with caplog.at_level(logging.WARNING, "warmgp.estimator"):
        GPRegressor(**FAST, device="cpu", verbose=verbose, callbacks=[look]).fit(*data())
    assert set(before) == {told} and len(before) > 0


def test_the_bar_of_a_start_says_it_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    takes(monkeypatch, 7200.0)
    GPRegressor(**{**FAST, "n_steps": 1}, init="sample", verbose=True).fit(*data())
    assert "initialising, about 2 h:" in capsys.readouterr().err


def test_a_resumed_fit_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    takes(monkeypatch, 500.0)
    settings = {**FAST, "checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 1}
    with pytest.raises(ZeroDivisionError):
        GPRegressor(**settings, callbacks=[Seen(2, ZeroDivisionError())]).fit(*data())
    with caplog.at_level(logging.INFO, "warmgp.estimator"):
        GPRegressor(**settings).fit(*data())
    assert "takes about 5 min: " in caplog.text  # 3 of 5 solves: two steps and the last one
