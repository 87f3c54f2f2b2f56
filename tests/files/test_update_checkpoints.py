"""Updates with steps that were cut short: they go on from a checkpoint to the model of an undisturbed one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import processes
from cli_tools import FAST, refused, run, table
from warmgp import GPRegressor, Hyperparameters
from warmgp.files.format import FileError, read
from warmgp.training import loop

HYPER = Hyperparameters(0.2, 1.0, [0.6, 0.8])
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (100, 2))
Y = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.2 * RNG.normal(size=100)
OLD, NEW = slice(0, 80), slice(80, 100)
KINDS: dict[str, dict[str, Any]] = {
    "exact": {}, "cg": {"solver": "cg", "dtype": "float64"}, "single": {"solver": "cg", "dtype": "float32"},
    "trend": {"solver": "rap", "dtype": "float64", "trend": "linear"}, "exact trend": {"trend": "linear"},
    "standard": {"solver": "ap", "gradient": "standard", "dtype": "float64"}, "cold": {"solver_warm_start": False},
    "targets": {"solver": "cg", "dtype": "float64"},
}  # fmt: skip


class CutError(Exception):
    """Ends an update where it stands, as a kill does."""


def fitted(path: Path, y: np.ndarray = Y, **settings: Any) -> GPRegressor:
    """A model of the old rows, which is also in a file."""
    usual = {"kernel": "matern32", "init": HYPER, "n_steps": 0, "n_probes": 6, "n_features": 100, "random_state": 0}
    model = GPRegressor(**{**usual, **settings}).fit(X[OLD], y[OLD])
    model.save(path)
    return model


def cut_after(steps: int) -> Callable[..., None]:
    def cut(record: Any, state: Any) -> None:
        if state.step == steps:
            raise CutError

    return cut


def cut_short(model: GPRegressor, checkpoint: Path, y: np.ndarray = Y, steps: int = 2) -> GPRegressor:
    """Five steps on new rows, of which so many are taken."""
    model.set_params(checkpoint=checkpoint, callbacks=(cut_after(steps),))
    with pytest.raises(CutError):
        model.update(X[NEW], y[NEW], n_steps=5)
    return model.set_params(checkpoint=None, callbacks=())


def assert_same(one: GPRegressor, other: GPRegressor) -> None:
    bound = {"rtol": 1e-10, "atol": 0.0} if other.posterior_.x.dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-7}
    torch.testing.assert_close(one.hyperparameters_.vector, other.hyperparameters_.vector, **bound)
    for found, there in zip(one.predict(X, return_std=True), other.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(found, there, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(one.sample_y(X[:5], 4), other.sample_y(X[:5], 4), rtol=1e-5, atol=1e-5)
    assert [record.step for record in one.history_] == list(range(5)) and one.updates_[-1].steps == 5


# -- to the same model -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_goes_on_where_the_update_was_cut(kind: str, tmp_path: Path) -> None:
    y = np.stack([Y, 2 - Y], 1) if kind == "targets" else Y
    model, checkpoint = fitted(tmp_path / "m", y, **KINDS[kind]), tmp_path / "c"
    cut_short(model, checkpoint, y)
    assert len(model.posterior_.x) == 80 and not model.updates_, "what was cut short has changed the model"
    assert read(checkpoint, "checkpoint")[1]["step"] == 2
    taken: list[int] = []
    loaded = GPRegressor.load(tmp_path / "m").set_params(checkpoint=checkpoint)
    loaded.set_params(callbacks=(lambda record, _: taken.append(record.step),)).update(X[NEW], y[NEW], n_steps=5)
    assert taken == [2, 3, 4]
    assert_same(loaded, model.update(X[NEW], y[NEW], n_steps=5))


@pytest.mark.parametrize("kind", ["exact", "trend"])
def test_one_that_was_cut_in_its_first_step_starts_from_the_same_solutions(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, plain = fitted(tmp_path / "m", **KINDS[kind]), loop.take_step

    def cut(*_: object, **__: object) -> None:
        raise CutError

    monkeypatch.setattr(loop, "take_step", cut)
    with pytest.raises(CutError):
        model.set_params(checkpoint=tmp_path / "c").update(X[NEW], Y[NEW], n_steps=5)
    monkeypatch.setattr(loop, "take_step", plain)
    assert ("solution" in read(tmp_path / "c", "checkpoint")[0]) == (kind == "trend")
    model.update(X[NEW], Y[NEW], n_steps=5)
    assert_same(model, GPRegressor.load(tmp_path / "m").update(X[NEW], Y[NEW], n_steps=5))


def test_more_steps_are_as_many_from_the_beginning(tmp_path: Path) -> None:
    model = fitted(tmp_path / "m", **KINDS["cg"]).set_params(checkpoint=tmp_path / "c", checkpoint_every=1)
    model.update(X[NEW], Y[NEW], n_steps=2)
    once, more = (GPRegressor.load(tmp_path / "m") for _ in range(2))
    assert_same(
        more.set_params(checkpoint=tmp_path / "c").update(X[NEW], Y[NEW], n_steps=5),
        once.update(X[NEW], Y[NEW], n_steps=5),
    )
    with pytest.raises(FileError, match="it has taken 5 steps already"):
        GPRegressor.load(tmp_path / "m").set_params(checkpoint=tmp_path / "c").update(X[NEW], Y[NEW], n_steps=3)


# -- what it does not belong to --------------------------------------------------------------------------------------
OTHERS: dict[str, tuple[Callable[[GPRegressor], Any], str]] = {
    "rows": (lambda m: m.update(X[NEW] + 1, Y[NEW], 5), "settings: X differs"),
    "fewer rows": (lambda m: m.update(X[90:], Y[90:], 5), "settings: X, y differ"),
    "targets": (lambda m: m.update(X[NEW], -Y[NEW], 5), "settings: y differs"),
    "weights": (lambda m: m.update(X[NEW], Y[NEW], 5, sample_weight=np.full(20, 2.0)), "sample_weight"),
    "errors": (lambda m: m.update(X[NEW], Y[NEW], 5, noise_variance=np.full(20, 0.1)), "noise_variance"),
    "settings": (lambda m: m.set_params(tol=0.5).update(X[NEW], Y[NEW], 5), "tol=0.01, and this update has tol=0.5"),
    "a model that moved on": (
        lambda m: m.forget([0]).update(X[NEW], Y[NEW], 5), "the model's rows.*has ended, its model has the new rows"),
}  # fmt: skip


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and the checkpoint of its update."""
    folder = tmp_path_factory.mktemp("cut")
    cut_short(fitted(folder / "m"), folder / "c")
    return folder


@pytest.mark.parametrize("other", OTHERS)
def test_another_update_is_refused_by_what_differs(other: str, cut: Path) -> None:
    model = GPRegressor.load(cut / "m").set_params(checkpoint=cut / "c")
    before, (attempt, told) = (cut / "c").read_bytes(), OTHERS[other]
    with pytest.raises(FileError, match=told):
        attempt(model)
    assert (cut / "c").read_bytes() == before and len(model.posterior_.x) < 100


def test_another_model_is_refused(cut: Path, tmp_path: Path) -> None:
    other = fitted(tmp_path / "m", init=Hyperparameters(0.3, 1.0, [0.6, 0.8])).set_params(checkpoint=cut / "c")
    with pytest.raises(FileError, match=r"the model's hyperparameters, the model's solutions differ.*each update"):
        other.update(X[NEW], Y[NEW], 5)


def test_a_fit_and_an_update_are_told_apart(cut: Path, tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    model = fitted(tmp_path / "m", n_steps=2, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(FileError, match="is one of a fit, and this is an update: use another path"):
        model.update(X[NEW], Y[NEW], n_steps=2)
    with pytest.raises(FileError, match="is one of an update, and this is a fit: use another path"):
        GPRegressor("matern32", n_steps=2, checkpoint=cut / "c").fit(X, Y)
    model.update(X[NEW], Y[NEW])  # one solve, which keeps none
    assert path.read_bytes() == before and model.updates_[-1].steps == 0


# -- on the command line ---------------------------------------------------------------------------------------------
def killed_in_step(number: int, *arguments: object) -> None:
    """The command, whose process is killed in the middle of a step."""
    plain, calls = loop.take_step, []

    def take(*given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*given, **options)

    loop.take_step = take
    processes.warmgp(Path(str(arguments[0])), *arguments[1:])


def test_a_killed_command_goes_on_and_what_cannot_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model, new = table(), tmp_path / "model", tmp_path / "new.csv"
    data[:60].to_csv(tmp_path / "old.csv", index=False)
    data[60:].to_csv(new, index=False)
    fit = ["fit", tmp_path / "old.csv", "--target", "y", "--category", "colour", "--out", model, *FAST]
    assert run(capsys, *fit, "--checkpoint", tmp_path / "fit.ckpt")[0] == 0
    before, checkpoint = model.read_bytes(), tmp_path / "c"
    plain = ["update", model, new, "--out", model, "--device", "cpu"]
    steps = [*plain, "--n-steps", 5]
    refused(capsys, [*plain, "--checkpoint", checkpoint], ["--checkpoint", "leave it out", "--n-steps"])
    refused(capsys, [*steps, "--resume"], ["--resume needs --checkpoint"])
    refused(capsys, [*steps, "--checkpoint", model, "--resume"], ["same file"])
    refused(capsys, [*steps, "--checkpoint", checkpoint, "--checkpoint-every", 0], ["--checkpoint-every", "1 or more"])
    fits = [*steps, "--checkpoint", tmp_path / "fit.ckpt", "--resume"]
    refused(capsys, fits, ["is one of a fit, and this is an update"])

    keeping = [*steps, "--checkpoint", checkpoint]
    assert processes.finish(killed_in_step, 4, tmp_path / "shown", *keeping) == -signal.SIGKILL
    assert read(checkpoint, "checkpoint")[1]["step"] == 3 and model.read_bytes() == before
    refused(capsys, keeping, ["exists: add --resume"])
    assert run(capsys, *keeping, "--resume")[0] == 0
    resumed = GPRegressor.load(model)
    refused(capsys, [*keeping, "--resume"], ["has ended, its model has the new rows already"])  # not twice
    model.write_bytes(before)
    assert run(capsys, *steps)[0] == 0
    whole = GPRegressor.load(model)
    torch.testing.assert_close(resumed.hyperparameters_.vector, whole.hyperparameters_.vector, rtol=1e-10, atol=0.0)
    assert resumed.n_steps_ == whole.n_steps_ == 9 and resumed.get_params() == whole.get_params()
