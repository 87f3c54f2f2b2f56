"""A solver of one's own in a fit with a checkpoint: its state is kept, or the fit is refused at its first step."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from own_parts import KeptTurns, LostTurns, Turns
from processes import finish
from warmgp import GPRegressor, Pathwise
from warmgp.files.format import FileError, read, write

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # budgets of less than an epoch

SETTINGS: dict[str, Any] = {
    "n_steps": 14, "n_probes": 4, "n_features": 40, "max_epochs": 0.5, "random_state": 0, "device": "cpu",
}  # fmt: skip


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)


def outcome(model: GPRegressor) -> tuple[list[float], ...]:
    X, _ = data()
    return (model.hyperparameters_.vector.tolist(), *(part.tolist() for part in model.predict(X, return_std=True)))


def crash_at(step: int):  # type: ignore[no-untyped-def]
    def callback(record, state):  # type: ignore[no-untyped-def]
        if record.step == step:
            raise RuntimeError("crash")

    return callback


# -- a state that nobody packs ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("every", [1, 10])
def test_a_state_without_pack_is_refused_at_the_first_step(every: int, tmp_path: Path) -> None:
    """Not when it is time to write, and not by leaving it out."""
    X, y = data()
    seen: list[int] = []
    settings = {**SETTINGS, "callbacks": [lambda record, state: seen.append(record.step)]}
    with pytest.raises(ValueError, match=r"solver 'turns' keeps .*int.* between solves") as error:
        GPRegressor(solver=Turns(), checkpoint=tmp_path / "c", checkpoint_every=every, **settings).fit(X, y)
    for remedy in ("give Turns the methods pack and unpack", "fit without checkpoint"):
        assert remedy in str(error.value)
    assert seen == []  # its first step was never whole
    assert read(tmp_path / "c", "checkpoint")[1]["step"] == 0
    GPRegressor(solver=Turns(), **settings).fit(X, y)
    assert seen == list(range(14))


def test_probes_that_nobody_packs_are_refused_at_the_first_step(tmp_path: Path) -> None:
    X, y = data()
    seen: list[int] = []
    model = GPRegressor(
        solver="cg", gradient=Pathwise(4, 40, prior="exact"), n_steps=14, random_state=0, checkpoint=tmp_path / "c",
        callbacks=[lambda record, state: seen.append(record.step)],
    )  # fmt: skip
    with pytest.raises(ValueError, match="cannot hold probes of kind ExactPrior: fit without checkpoint"):
        model.fit(X, y)
    assert seen == []
    model.set_params(checkpoint=None).fit(X, y)
    assert seen == list(range(14))


# -- a state that is packed ------------------------------------------------------------------------------------------
def fit_and_die(checkpoint: Path | None, how: str, step: int, out: Path) -> None:
    """A fit that ends its process at that step; the outcome of one that does not goes to a file."""

    def die(record, state):  # type: ignore[no-untyped-def]
        if record.step == step:
            os._exit(77) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)

    warnings.simplefilter("ignore")
    model = GPRegressor(solver=KeptTurns(7), checkpoint=checkpoint, checkpoint_every=1, callbacks=[die], **SETTINGS)
    out.write_text(json.dumps(outcome(model.fit(*data()))))


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("exit", 77), ("kill", -signal.SIGKILL)])
def test_a_fit_that_was_killed_goes_on_to_the_same_bits(how: str, code: int, tmp_path: Path) -> None:
    """Twice: after its fifth step, and after the tenth of the fit that went on from there."""
    path, whole, resumed = tmp_path / "c", tmp_path / "whole", tmp_path / "resumed"
    for step in (4, 9):
        assert finish(fit_and_die, path, how, step, resumed) == code
        _, content = read(path, "checkpoint")
        assert content["step"] == step + 1 and content["solver_state"]["turn"] > 0
    assert finish(fit_and_die, None, how, -1, whole) == finish(fit_and_die, path, how, -1, resumed) == 0
    assert whole.read_text() == resumed.read_text() and len(whole.read_text()) > 1000


@pytest.mark.parametrize("kept", [True, False])
def test_the_state_is_what_makes_the_bits(kept: bool, tmp_path: Path) -> None:
    """A solver that forgets it ends elsewhere, so the test above is one of the state."""
    X, y = data()
    solver = KeptTurns(7) if kept else LostTurns(7)
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(solver=solver, checkpoint=tmp_path / "c", callbacks=[crash_at(4)], **SETTINGS).fit(X, y)
    resumed = GPRegressor(solver=solver, checkpoint=tmp_path / "c", **SETTINGS).fit(X, y)
    whole = GPRegressor(solver=solver, **SETTINGS).fit(X, y)
    assert len(resumed.history_) == 14
    assert (outcome(resumed) == outcome(whole)) == kept


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["solver_state"].update(turn=-1),
        lambda content: content["solver_state"].update(turn="next"),
        lambda content: content["solver_state"].update(evil=0),
    ],
)
def test_a_state_that_its_solver_refuses_is_a_file_to_delete(change: Any, tmp_path: Path) -> None:
    X, y = data()
    model = GPRegressor(solver=KeptTurns(7), checkpoint=tmp_path / "c", **SETTINGS).fit(X, y)
    tensors, content = read(tmp_path / "c", "checkpoint")
    change(content)
    write(tmp_path / "c", "checkpoint", tensors, content)
    with pytest.raises(FileError, match=r"the checkpoint .*c .*: delete it to start anew"):
        model.fit(X, y)
