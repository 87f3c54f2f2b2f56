"""A checkpoint is of one fit, a log has each of its steps, and what a file or a pickle says binds nobody later."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone

from cli_tools import read_csv
from warmgp import CSVLog, EarlyStopping, GPRegressor, JSONLines, TensorBoard
from warmgp.files.format import FileError, read, write

FAST = {"n_steps": 6, "n_features": 40, "n_probes": 4, "random_state": 0, "solver": "cg"}


def data(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 5 + 3 * np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


# -- one fit ---------------------------------------------------------------------------------------------------------
def test_two_fits_at_once_do_not_share_a_checkpoint(tmp_path: Path) -> None:
    """The second is refused at once, whether or not it is another one, and the first goes on undisturbed."""
    X, y = data()
    whole = GPRegressor(**FAST).fit(X, y)
    refused = []

    def another(record, state) -> None:  # type: ignore[no-untyped-def]
        for seed in (0, 1):
            with pytest.raises(OSError, match=r"c is in use by another fit.*use another path"):
                GPRegressor(**{**FAST, "random_state": seed}, checkpoint=tmp_path / "c").fit(X, y)
            refused.append(record.step)

    model = GPRegressor(checkpoint=tmp_path / "c", checkpoint_every=2, callbacks=[another], **FAST).fit(X, y)
    assert len(refused) == 12 and np.array_equal(model.predict(X), whole.predict(X))
    assert np.array_equal(GPRegressor(checkpoint=tmp_path / "c", **FAST).fit(X, y).predict(X), whole.predict(X))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_checkpoint_that_was_replaced_meanwhile_is_not_written_over(seed: int, tmp_path: Path) -> None:
    """As where it was removed, and another fit begun."""
    X, y = data()

    def replaced(record, state) -> None:  # type: ignore[no-untyped-def]
        if record.step == 2:
            (tmp_path / "c").unlink()
            GPRegressor(checkpoint=tmp_path / "c", **{**FAST, "random_state": seed}).fit(X, y)

    with pytest.raises(OSError, match=r"c is in use by another fit, or was replaced by one"):
        GPRegressor(checkpoint=tmp_path / "c", checkpoint_every=1, callbacks=[replaced], **FAST).fit(X, y)
    assert read(tmp_path / "c", "checkpoint")[1]["step"] == 6


def test_a_checkpoint_that_was_removed_is_written_again(tmp_path: Path) -> None:
    X, y = data()
    remove = lambda record, state: (tmp_path / "c").unlink() if record.step == 2 else None  # noqa: E731
    GPRegressor(checkpoint=tmp_path / "c", checkpoint_every=1, callbacks=[remove], **FAST).fit(X, y)
    assert read(tmp_path / "c", "checkpoint")[1]["step"] == 6


def test_what_differs_is_told(tmp_path: Path) -> None:
    X, y = data()
    path = tmp_path / "c"
    GPRegressor(checkpoint=path, **{"kernel": "matern32", **FAST}).fit(X, y)
    for change, inputs, told in (
        ({"random_state": 1}, X, r"settings: it was made with random_state=0, and this fit has random_state=1\. Give"),
        ({"tol": 0.02, "kernel": "rbf"}, X,
         r"made with kernel='matern32', tol=0.01, and this fit has kernel='rbf', tol=0.02\. Give what it was"),
        ({"trend": "linear"}, X, r"it was made with the default trend, and this fit has trend='linear'\."),
        ({"tol": 0.02}, X + 1, r"it was made with tol=0.01, and this fit has tol=0.02; X differs\. Give"),
        ({}, X + 1, r"settings: X differs\. Give what it was made with to go on from it, delete it to start anew"),
    ):  # fmt: skip
        with pytest.raises(FileError, match=told):
            GPRegressor(checkpoint=path, **{"kernel": "matern32", **FAST, **change}).fit(inputs, y)


def test_generators_and_held_out_rows_are_part_of_what_a_checkpoint_is_of(tmp_path: Path) -> None:
    X, y = data()
    settings = {**FAST, "random_state": np.random.RandomState(0), "checkpoint": tmp_path / "c"}
    model = GPRegressor(**settings).fit(X, y, validation=data(20, 1))
    held = GPRegressor(**{**settings, "random_state": np.random.RandomState(0)}).fit(X, y, validation=data(20, 1))
    assert np.array_equal(held.predict(X), model.predict(X)) and held.history_ == model.history_
    for seed, validation, told in (
        (1, data(20, 1), "random_state"),
        (0, data(20, 2), "validation X"),
        (0, None, "vali"),
    ):
        other = GPRegressor(**{**settings, "random_state": np.random.RandomState(seed)})
        with pytest.raises(FileError, match=rf"other data or settings.*{told}"):
            other.fit(X, y, validation=validation)


def test_early_stopping_does_not_go_on_from_other_held_out_rows(tmp_path: Path) -> None:
    X, y = data()
    settings = {**FAST, "checkpoint": tmp_path / "c", "callbacks": [EarlyStopping(patience=1)]}
    GPRegressor(**settings).fit(X, y, validation=data(20, 1))
    with pytest.raises(FileError, match="validation y"):
        GPRegressor(**settings).fit(X, y, validation=data(20, 3))


def test_a_file_does_not_say_where_to_write(tmp_path: Path) -> None:
    """A model that was fitted with a checkpoint, or a file that says so, writes none when it is fitted again."""
    X, y = data()
    model = GPRegressor(checkpoint=tmp_path / "c", **FAST).fit(X, y)
    model.save(tmp_path / "m")
    (tmp_path / "c").unlink()
    loaded = GPRegressor.load(tmp_path / "m")
    assert loaded.checkpoint is None and "c" not in json.dumps(read(tmp_path / "m", "model")[1]["settings"]).split('"')
    tensors, content = read(tmp_path / "m", "model")
    content["settings"]["checkpoint"] = str(tmp_path / "c")  # as files of the first format do
    write(tmp_path / "m", "model", tensors, content)
    loaded = GPRegressor.load(tmp_path / "m").fit(X, y)
    assert loaded.checkpoint is None and not (tmp_path / "c").exists()
    assert np.array_equal(loaded.predict(X), model.predict(X))


# -- every step ------------------------------------------------------------------------------------------------------
class KilledError(BaseException):
    """In the place of a kill: nothing after it runs."""


@pytest.mark.parametrize("at", [0, 3, 5])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_kill_between_checkpoint_and_log_loses_no_step(
    kind: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the last step, after which no other comes."""
    X, y = data()
    log = {"csv": CSVLog, "jsonl": JSONLines}[kind]
    settings = {**FAST, "checkpoint": tmp_path / "c", "checkpoint_every": 1}

    def kill(record, state) -> None:  # type: ignore[no-untyped-def]
        if record.step == at:
            raise KilledError

    with pytest.raises(KilledError):  # the checkpoint is written first, the log not at all
        GPRegressor(callbacks=[kill, log(tmp_path / f"log.{kind}")], **settings).fit(X, y)
    assert read(tmp_path / "c", "checkpoint")[1]["step"] == at + 1
    model = GPRegressor(callbacks=[log(tmp_path / f"log.{kind}")], **settings).fit(X, y)
    if kind == "csv":
        rows = read_csv(tmp_path / "log.csv")
        noise = rows["noise_scale"].tolist()
    else:
        noise = [json.loads(line)["noise_scale"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert noise == [record.noise_scale for record in model.history_] and len(noise) == 6


def test_a_kill_between_checkpoint_and_tensorboard_loses_no_step(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    X, y = data()
    settings = {**FAST, "checkpoint": tmp_path / "c", "checkpoint_every": 1}

    def kill(record, state) -> None:  # type: ignore[no-untyped-def]
        if record.step == 3:
            raise KilledError

    with pytest.raises(KilledError):
        GPRegressor(callbacks=[kill, TensorBoard(tmp_path / "runs")], **settings).fit(X, y)
    GPRegressor(callbacks=[TensorBoard(tmp_path / "runs")], **settings).fit(X, y)
    found = events.EventAccumulator(str(tmp_path / "runs")).Reload()
    assert [event.step for event in found.Scalars("hyperparameters/noise_scale")] == list(range(6))


# -- pickles ---------------------------------------------------------------------------------------------------------
def test_a_pickle_of_a_gpu_loads_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here: the plan says that there was, and the posterior says where it was moved to."""
    X, y = data()
    model = GPRegressor(**FAST).fit(X, y)
    expected = model.predict(X, return_std=True)
    model.plan_ = replace(model.plan_, device=torch.device("cuda:7"), operator="fused")
    moved: list[str] = []
    whole = type(model.posterior_).to
    monkeypatch.setattr(type(model.posterior_), "to", lambda self, to: (moved.append(str(to)), whole(self, to))[1])
    pickled = pickle.dumps(model)
    assert moved == ["cpu"]
    loaded = pickle.loads(pickled)
    assert loaded.plan_.device.type == "cpu" and loaded.plan_.operator == "chunked"
    np.testing.assert_array_equal(loaded.predict(X, return_std=True), expected)
    assert loaded.sample_y(X, 3, random_state=1).shape == (60, 3)
    assert str(model.plan_.device) == "cuda:7"  # the model itself stays as it is
    assert pickle.loads(pickle.dumps(clone(model))).get_params() == model.get_params()
