"""``warmgp update``: the same model as from Python, refusals by name, and a file that stays whole whatever happens."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import processes
from cli_tools import FAST, refused, run, table
from warmgp import GPRegressor


@pytest.fixture
def fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A model of 60 rows at ``model``; 20 more are in ``new.csv``."""
    data = table()
    data[:60].to_csv(tmp_path / "old.csv", index=False)
    data[60:].to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "model"
    code, _, err = run(
        capsys, "fit", tmp_path / "old.csv", "--target", "y", "--category", "colour", "--out", out, *FAST
    )
    assert code == 0, err
    return out


def test_rows_of_a_table_are_added(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new, out = tmp_path / "new.csv", tmp_path / "more"
    code, told, err = run(capsys, "update", fitted, new, "--out", out, "--device", "cpu")
    assert code == 0, err
    assert "added 20 rows to 60" in told and "log predictive density" in told
    frame = pd.read_csv(new)
    model = GPRegressor.load(fitted).update(frame[["a", "b", "colour"]], frame["y"])
    found, inputs = GPRegressor.load(out), frame[["a", "b", "colour"]]
    np.testing.assert_allclose(found.predict(inputs), model.predict(inputs), rtol=1e-9)
    assert "1 since the fit: 20 rows added, 0 forgotten" in run(capsys, "info", out)[1]
    assert run(capsys, "update", out, new, "--out", out, "--n-steps", "2", "--device", "cpu")[0] == 0  # in its place
    twice = GPRegressor.load(out)
    assert len(twice.posterior_.x) == 100 and twice.n_steps_ == model.n_steps_ + 2


def test_weights_and_errors_come_from_columns(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.read_csv(tmp_path / "new.csv")
    frame["w"], frame["e"] = np.linspace(0, 2, 20), 0.3
    frame.rename(columns={"y": "height"}).to_csv(tmp_path / "said.csv", index=False)
    out = tmp_path / "more"
    said = ["--target", "height", "--weight-column", "w", "--noise-column", "e", "--device", "cpu"]
    assert run(capsys, "update", fitted, tmp_path / "said.csv", "--out", out, *said)[0] == 0
    model = GPRegressor.load(fitted).update(
        frame[["a", "b", "colour"]], frame["y"], sample_weight=frame["w"], noise_variance=frame["e"] ** 2
    )
    inputs = frame[["a", "b", "colour"]]
    np.testing.assert_allclose(GPRegressor.load(out).predict(inputs), model.predict(inputs), rtol=1e-9)


def test_what_is_wrong_is_named_and_the_model_stays(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, new, out = fitted.read_bytes(), tmp_path / "new.csv", tmp_path / "more"
    frame = pd.read_csv(new)
    bad = tmp_path / "bad.csv"

    def wrong(changed: pd.DataFrame, *expected: str, more: tuple[str, ...] = ()) -> None:
        changed.to_csv(bad, index=False)
        refused(capsys, ["update", fitted, bad, "--out", out, *more], [*expected])

    wrong(frame.drop(columns="y"), "the target", "no column 'y'")
    wrong(frame.drop(columns="b"), "lacks column 'b'")
    wrong(frame.assign(colour="green"), "'colour'", "row 1", "'green'")
    wrong(frame.assign(a=[np.nan] * 3 + [1.0] * 17), "'a'", "row 1", "blank")
    wrong(frame.assign(y="high"), "'y'", "row 1")
    wrong(frame.assign(w=-1.0), "'w'", "row 1", more=("--weight-column", "w"))
    wrong(frame, "--weight-column a", more=("--weight-column", "a"))
    refused(capsys, ["update", fitted, new, "--out", new], ["same file"])
    refused(capsys, ["update", tmp_path / "none", new, "--out", out], ["none"])
    refused(capsys, ["update", fitted, new, "--out", tmp_path / "no" / "folder"], ["folder"])
    assert not out.exists() and fitted.read_bytes() == before


def test_a_killed_update_leaves_the_old_file_whole(fitted: Path, tmp_path: Path) -> None:
    before, new = fitted.read_bytes(), tmp_path / "new.csv"
    arguments = ("update", fitted, new, "--out", fitted, "--device", "cpu")
    assert processes.finish(processes.warmgp, tmp_path / "shown", *arguments) == 0  # the first one has to import
    assert fitted.read_bytes() != before
    fitted.write_bytes(before)
    began = time.perf_counter()
    assert processes.finish(processes.warmgp, tmp_path / "shown", *arguments) == 0
    whole = time.perf_counter() - began
    for share in (0.2, 0.5, 0.7, 0.85, 0.95):
        fitted.write_bytes(before)
        process = processes.begin(processes.warmgp, tmp_path / "shown", *arguments)
        process.join(share * whole)
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        found = GPRegressor.load(fitted)  # which checks the sum of the whole file
        assert len(found.posterior_.x) in (60, 80)
        assert len(found.posterior_.x) == 80 or fitted.read_bytes() == before


def _killed_in_writing(*arguments: object) -> None:
    """An update that dies between the last byte of the new file and its taking the old one's place."""
    from warmgp.files import atomic

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    atomic.os.replace = die  # type: ignore[assignment]
    processes.warmgp(Path(str(arguments[0])), *arguments[1:])


def test_a_kill_right_before_the_new_file_takes_its_place(fitted: Path, tmp_path: Path) -> None:
    before = fitted.read_bytes()
    code = processes.finish(
        _killed_in_writing, tmp_path / "shown", "update", fitted, tmp_path / "new.csv", "--out", fitted
    )
    assert code == -signal.SIGKILL
    assert fitted.read_bytes() == before
