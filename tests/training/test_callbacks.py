"""Validation metrics in the history, early stopping on them, and the logs."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from cli_tools import read_csv
from processes import finish
from warmgp import CSVLog, EarlyStopping, GPRegressor, JSONLines, TensorBoard

FAST = {"n_steps": 6, "n_features": 200, "n_probes": 8, "random_state": 0}


def data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 10 + 4 * np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=n)


def test_metrics_are_those_of_the_model_at_that_step() -> None:
    """The metrics of step k are the scores of a model whose training ended before it (same θ, probes and solutions)."""
    X, y = data(100, 0)
    held = data(40, 1)
    model = GPRegressor(solver="cg", tol=1e-6, **FAST).fit(X, y, validation=held)
    short = GPRegressor(solver="cg", tol=1e-6, **{**FAST, "n_steps": 5}).fit(X, y)
    short.posterior_ = replace(short.posterior_, targets=None)  # variances from the samples alone, as at a step
    error = (held[1] - short.predict(held[0])) / y.std()
    density = short.log_predictive_density(*held) + np.log(y.std())
    metrics = model.history_[5].metrics
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    assert metrics["llh"] == pytest.approx(density.mean(), rel=1e-4)
    assert model.history_[5].metrics["rmse"] < model.history_[0].metrics["rmse"]
    assert all(h.metrics == {} for h in short.history_)


def test_without_functions_or_a_factor_there_is_the_rmse_alone() -> None:
    model = GPRegressor(solver="cg", gradient="standard", **FAST).fit(*data(60, 0), validation=data(20, 1))
    assert set(model.history_[0].metrics) == {"rmse"}


@pytest.mark.parametrize("trend", [None, "linear"])
def test_metrics_of_exact_training_are_exact(trend: str | None) -> None:
    """Those of step 3 are the scores of a model whose training ended before it."""
    settings = {**FAST, "kernel": "matern32", "trend": trend, "solver": "cholesky"}
    X, y = data(60, 0)
    held = data(20, 1)
    model = GPRegressor(**settings).fit(X, y, validation=held)
    short = GPRegressor(**{**settings, "n_steps": 3}).fit(X, y)
    error = (held[1] - short.predict(held[0])) / short.scaler_.y_scale
    density = short.log_predictive_density(*held) + np.log(short.scaler_.y_scale)
    metrics = model.history_[3].metrics
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-9)
    assert metrics["llh"] == pytest.approx(density.mean(), rel=1e-9)
    stopped = GPRegressor(**settings, callbacks=[EarlyStopping("llh", patience=1, min_delta=9.0)])
    assert stopped.fit(X, y, validation=held).n_steps_ == 2


@pytest.mark.parametrize("metric", ["rmse", "llh"])
def test_early_stopping(metric: str) -> None:
    X, y = data(80, 0)
    rng = np.random.default_rng(2)
    noise = rng.normal(size=40)  # nothing can be learnt about these: the metric must stop improving
    settings = {**FAST, "n_steps": 100, "solver": "cg"}
    stopping = EarlyStopping(metric, patience=4, min_delta=1e-3)
    model = GPRegressor(callbacks=[stopping], **settings).fit(X, y, validation=(rng.uniform(-2, 2, (40, 2)), noise))
    sign = 1 if metric == "rmse" else -1
    losses = [sign * h.metrics[metric] for h in model.history_]
    assert 5 <= model.n_steps_ < 100
    assert min(losses[-4:]) >= min(losses[:-4]) - 1e-3  # four steps without an improvement, and not before
    assert model.converged_
    again = GPRegressor(callbacks=[stopping], **settings).fit(X, y, validation=data(40, 1))  # it starts afresh
    assert again.n_steps_ > 5


def test_early_stopping_without_a_validation_set_says_so() -> None:
    with pytest.raises(ValueError, match="validation="):
        GPRegressor(callbacks=[EarlyStopping()], **FAST).fit(*data(60, 0))
    with pytest.raises(ValueError, match="metric"):
        EarlyStopping("r2")
    with pytest.raises(ValueError, match="patience"):
        EarlyStopping(patience=0)


def test_early_stopping_counts_across_a_resume(tmp_path: Path) -> None:
    """A training that was cut and resumed stops at the step at which an undisturbed one does."""
    X, y = data(80, 0)
    held = data(40, 1)[0], np.random.default_rng(2).normal(size=40)
    settings = {**FAST, "n_steps": 100, "solver": "cg"}

    def stopping() -> EarlyStopping:
        return EarlyStopping("rmse", patience=4, min_delta=1e-3)

    whole = GPRegressor(callbacks=[stopping()], **settings).fit(X, y, validation=held)
    cut = whole.n_steps_ - 2  # in the middle of the four steps without an improvement
    settings["checkpoint"] = tmp_path / "c"
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(callbacks=[stopping(), crash_at(cut - 1)], **settings).fit(X, y, validation=held)
    for _ in range(2):  # once it has ended, it is not begun again
        again = GPRegressor(callbacks=[stopping()], **settings).fit(X, y, validation=held)
        assert again.n_steps_ == whole.n_steps_ and np.array_equal(again.predict(X), whole.predict(X))


# -- logs ------------------------------------------------------------------------------------------------------------
LOGS = {"jsonl": JSONLines, "csv": CSVLog}


def crash_at(step: int):  # type: ignore[no-untyped-def]
    def callback(record, state):  # type: ignore[no-untyped-def]
        if record.step == step:
            raise RuntimeError("crash")

    return callback


def logged(path: Path) -> list[dict[str, object]]:
    """The rows of a log."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return read_csv(path, keep_default_na=False, na_values={"llh": "", "rmse": ""}).to_dict("records")


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    model = GPRegressor(solver="cg", callbacks=[JSONLines(path)], **FAST).fit(*data(60, 0))
    assert logged(path) == json.loads(json.dumps([dataclasses.asdict(h) for h in model.history_]))


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_csv(solver: str, tmp_path: Path) -> None:
    """Every field of every record, to the bit; blank where there is none."""
    path = tmp_path / "log.csv"
    model = GPRegressor(solver=solver, callbacks=[CSVLog(path)], **FAST).fit(*data(60, 0), validation=data(20, 1))
    rows = logged(path)
    assert len(rows) == 6 and len(path.read_text().splitlines()) == 7
    for row, record in zip(rows, model.history_, strict=True):
        expected = dataclasses.asdict(record)
        lengths, metrics, notes = (expected.pop(name) for name in ("length_scales", "metrics", "notes"))
        expected |= {"length_scale_0": lengths[0], "length_scale_1": lengths[1], "notes": "; ".join(notes)}
        expected["log_marginal_likelihood"] = expected["log_marginal_likelihood"] or ""
        assert row == {**expected, **metrics} and set(metrics) == {"rmse", "llh"}


def test_a_text_with_commas_and_lines_is_one_cell_of_one_row(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    record = GPRegressor(solver="cg", **FAST).fit(*data(60, 0)).history_[0]
    CSVLog(path)(dataclasses.replace(record, notes=('a, "b"', "c\nd")), None)  # type: ignore[arg-type]
    assert len(path.read_text().splitlines()) == 2 and logged(path)[0]["notes"] == 'a, "b"; c d'


@pytest.mark.parametrize("kind", LOGS)
def test_one_log_is_one_training(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{kind}"
    for n_steps in (5, 3):
        log = LOGS[kind](path)
        for _ in range(2):  # the same callback again, too
            GPRegressor(solver="cg", callbacks=[log], **{**FAST, "n_steps": n_steps}).fit(*data(60, 0))
            assert [row["step"] for row in logged(path)] == list(range(n_steps))


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("left", [0, 1, 8])
def test_a_log_of_which_a_kill_left_no_whole_line_is_begun_anew(kind: str, left: int, tmp_path: Path) -> None:
    path = tmp_path / f"log.{kind}"
    GPRegressor(solver="cg", callbacks=[LOGS[kind](path)], **{**FAST, "n_steps": 1}).fit(*data(60, 0))
    path.write_bytes(path.read_bytes()[:left])
    GPRegressor(solver="cg", callbacks=[LOGS[kind](path)], **{**FAST, "n_steps": 2}).fit(*data(60, 0))
    assert [row["step"] for row in logged(path)] == [0, 1]


@pytest.mark.parametrize("kind", LOGS)
def test_each_row_is_in_the_file_at_once(kind: str, tmp_path: Path) -> None:
    path, seen = tmp_path / f"log.{kind}", []
    look = lambda record, state: seen.append(logged(path)[-1]["step"])  # noqa: E731
    GPRegressor(solver="cg", callbacks=[LOGS[kind](path), look], **FAST).fit(*data(60, 0))
    assert seen == list(range(6))


@pytest.mark.parametrize("kind", LOGS)
def test_a_log_in_the_wrong_place_is_refused_and_nothing_harmed(kind: str, tmp_path: Path) -> None:
    contents = {"data.csv": "a,b\n1,2\n", "numbers.csv": "1,2\n3,4\n", "list.json": "[1, 2]\n", "line": "no line's end"}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=rf"{name} is there, and is no log.*give another path"):
            LOGS[kind](tmp_path / name)
        assert (tmp_path / name).read_text() == content
    with pytest.raises(FileNotFoundError, match="folder"):
        LOGS[kind](tmp_path / "no" / "log")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        LOGS[kind](tmp_path)


def test_a_resumed_training_does_not_go_on_in_the_log_of_another(tmp_path: Path) -> None:
    X, y = data(60, 0)
    GPRegressor(solver="cg", ard=False, callbacks=[CSVLog(tmp_path / "other.csv")], **FAST).fit(X, y)
    before = (tmp_path / "other.csv").read_bytes()
    settings = {**FAST, "solver": "cg", "checkpoint": tmp_path / "c"}
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(callbacks=[crash_at(2)], **settings).fit(X, y)
    with pytest.raises(ValueError, match=r"other\.csv is the log of another training"):
        GPRegressor(callbacks=[CSVLog(tmp_path / "other.csv")], **settings).fit(X, y)
    assert (tmp_path / "other.csv").read_bytes() == before


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a folder: {tag: [(step, value)]}."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(folder)).Reload()
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    log = TensorBoard(tmp_path / "runs")
    model = GPRegressor(solver="cg", callbacks=[log], **FAST).fit(*data(60, 0), validation=data(20, 1))
    found = scalars(tmp_path / "runs")
    for tag, name in (
        ("hyperparameters/noise_scale", lambda h: h.noise_scale),
        ("hyperparameters/length_scale_1", lambda h: h.length_scales[1]),
        ("solver/residual_probes", lambda h: h.residual_probes),
        ("held_out/llh", lambda h: h.metrics["llh"]),
    ):
        assert found[tag] == [(h.step, pytest.approx(name(h), rel=1e-6)) for h in model.history_]  # float32 in there
    assert "log_marginal_likelihood" not in found
    short = clone(model).set_params(n_steps=3, solver="cholesky")  # a copy without the open file; a new training
    pickle.dumps(model)
    short.fit(*data(60, 0))
    log.close()
    found = scalars(tmp_path / "runs")
    assert [step for step, _ in found["solver/epochs"]] == [0, 1, 2] and len(found["log_marginal_likelihood"]) == 3


def test_tensorboard_that_is_not_installed_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoard(tmp_path)


def train_and_die(folder: Path, step: int) -> None:
    """A training with every log, which ends its process at that step."""

    def die(record, state):  # type: ignore[no-untyped-def]
        if record.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    logs = [JSONLines(folder / "log.jsonl"), CSVLog(folder / "log.csv"), TensorBoard(folder / "runs")]
    settings = {**FAST, "n_steps": 9, "checkpoint": folder / "c", "checkpoint_every": 3}
    GPRegressor(solver="cg", callbacks=[*logs, die], **settings).fit(*data(60, 0))


@pytest.mark.slow
def test_a_killed_and_resumed_training_logs_every_step_once(tmp_path: Path) -> None:
    """Killed at step 4 with a checkpoint of three steps, so that steps 3 and 4 are taken twice, and a row torn."""
    pytest.importorskip("tensorboard")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    assert finish(train_and_die, whole, 99) == 0
    assert finish(train_and_die, cut, 4) == -signal.SIGKILL
    for kind in LOGS:
        path = cut / f"log.{kind}"
        assert [row["step"] for row in logged(path)] == list(range(5))  # whole rows, all steps
        with path.open("ab") as file:
            file.write(path.read_bytes().splitlines()[-1][:40])  # as a kill in the middle of a write would leave it
    assert finish(train_and_die, cut, 99) == 0
    for kind in LOGS:
        found, expected = logged(cut / f"log.{kind}"), logged(whole / f"log.{kind}")
        for row in (*found, *expected):
            del row["solver_seconds"], row["step_seconds"]
        assert str(found) == str(expected) and len(found) == 9
    noise = scalars(cut / "runs")["hyperparameters/noise_scale"]
    assert noise == scalars(whole / "runs")["hyperparameters/noise_scale"] and len(noise) == 9
