"""Checkpoints: a training that was cut goes on to the same bits, and what does not fit is refused."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from processes import begin, finish
from warmgp import (
    ConjugateGradients,
    DenseOperator,
    GPRegressor,
    Hyperparameters,
    Matern32,
    Pathwise,
    TrainingOptions,
    train,
)
from warmgp.files.checkpoint import write_checkpoint
from warmgp.files.format import FileError, read, write
from warmgp.planning.planner import make_plan

FAST = {"n_steps": 4, "n_features": 100, "n_probes": 6, "random_state": 0}


@dataclass(frozen=True)
class Stretched(Matern32):
    """A kernel with an option (which changes nothing here)."""

    factor: float = 1.0
    name = "stretched"


def data(n: int = 80, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, d))
    return X, 5 + 3 * np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


def crash_at(step: int):  # type: ignore[no-untyped-def]
    def callback(record, state):  # type: ignore[no-untyped-def]
        if record.step == step:
            raise RuntimeError("crash")

    return callback


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize(
    ("solver", "gradient"), [("cg", "pathwise"), ("ap", "standard"), ("sgd", "pathwise"), ("cholesky", "exact")]
)
def test_resume_ends_with_the_same_bits(solver: str, gradient: str, warm: bool, tmp_path: Path) -> None:
    X, y = data()
    settings = {**FAST, "n_steps": 7, "solver": solver, "gradient": gradient, "solver_warm_start": warm}
    whole = GPRegressor(**settings).fit(X, y)
    path = tmp_path / "checkpoint"
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(checkpoint=path, checkpoint_every=2, callbacks=[crash_at(4)], **settings).fit(X, y)
    seen: list[int] = []
    model = GPRegressor(checkpoint=path, callbacks=[lambda r, s: seen.append(r.step)], **settings).fit(X, y)
    assert seen == [5, 6] and model.n_steps_ == 7  # the crash flushed the last whole step
    assert model.hyperparameters_.equals(whole.hyperparameters_)
    np.testing.assert_array_equal(model.predict(X, return_std=True), whole.predict(X, return_std=True))
    again = GPRegressor(checkpoint=path, **settings).fit(X, y)  # nothing left but the final solve
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))


@pytest.mark.parametrize(
    ("solver", "crash", "kept"),
    [
        pytest.param(ConjugateGradients(10, pivot_every=5), 3, "pivots", id="pivots of an earlier θ"),
        pytest.param(ConjugateGradients(0, factor_after=4), 4, "factor_theta", id="the θ of a whole factor"),
        pytest.param(ConjugateGradients(0, neighbours=6), 3, "neighbour_lengths", id="lengths of neighbours"),
        pytest.param(
            ConjugateGradients(10, 5, neighbours=6), 3, "neighbour_lengths pivots", id="neighbours and pivots"
        ),
        pytest.param(
            ConjugateGradients(0, factor_after=9, neighbours=1), 1, "neighbour_lengths", id="neighbours before a factor"
        ),
        pytest.param(ConjugateGradients(0, factor_after=20), 1, None, id="iterations spent before the first factor"),
    ],
)
def test_a_resume_keeps_the_preconditioner(
    solver: ConjugateGradients, crash: int, kept: str | None, tmp_path: Path
) -> None:
    """What cg carries from step to step is in the checkpoint: another preconditioner would give other bits."""
    X, y = data()
    settings = {**FAST, "n_steps": 9, "solver": solver, "kernel": "matern32"}
    whole = GPRegressor(**settings).fit(X, y)
    path = tmp_path / "checkpoint"
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(checkpoint=path, callbacks=[crash_at(crash)], **settings).fit(X, y)
    tensors, content = read(path, "checkpoint")
    assert {name for name in tensors if "solver" in name} == {f"solver_state.{name}" for name in (kept or "").split()}
    assert kept or content["solver_state"]["spent"] > 0
    model = GPRegressor(checkpoint=path, **settings).fit(X, y)
    assert [h.iterations for h in model.history_] == [h.iterations for h in whole.history_]
    assert model.hyperparameters_.equals(whole.hyperparameters_)
    np.testing.assert_array_equal(model.predict(X, return_std=True), whole.predict(X, return_std=True))


def test_a_kernel_with_other_options_is_another_setting(tmp_path: Path) -> None:
    X, y = data()
    settings = {**FAST, "solver": "cg", "checkpoint": tmp_path / "c"}
    GPRegressor(Stretched(1.0), **settings).fit(X, y)
    with pytest.raises(FileError, match=r"other data or settings: .*delete it"):
        GPRegressor(Stretched(2.0), **settings).fit(X, y)


def test_subset_initialisation_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data()
    settings = {**FAST, "solver": "cg", "init": "subset", "checkpoint": tmp_path / "c"}
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(callbacks=[crash_at(0)], **settings).fit(X, y)
    monkeypatch.setattr("warmgp.estimator.start.subset_heuristic", lambda *a, **k: pytest.fail("done already"))
    assert GPRegressor(**settings).fit(X, y).n_steps_ == 4


def test_checkpoints_of_other_data_or_settings_are_refused(tmp_path: Path) -> None:
    X, y = data()
    path = tmp_path / "c"
    GPRegressor(solver="cg", checkpoint=path, **FAST).fit(X, y)
    changed = X.copy()
    changed[0, 0] += 1e-9
    for inputs, change in ((changed, {}), (X, {"tol": 0.02}), (X, {"kernel": "rbf"}), (X, {"random_state": 1})):
        with pytest.raises(FileError, match=r"other data or settings: .*delete it"):
            GPRegressor(**{**FAST, "solver": "cg", "checkpoint": path, **change}).fit(inputs, y)
    GPRegressor(**{**FAST, "solver": "cg", "checkpoint": path, "verbose": False, "checkpoint_every": 3}).fit(X, y)
    with pytest.raises(FileNotFoundError, match="folder"):
        GPRegressor(checkpoint=tmp_path / "no" / "c", **FAST).fit(X, y)
    with pytest.raises(FileError, match="is a warmgp checkpoint"):
        GPRegressor.load(path)


def train_sixty_steps(checkpoint: Path | None, out: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=400)
    settings = {"n_steps": 60, "n_features": 200, "n_probes": 8, "checkpoint_every": 1, "random_state": 0}
    model = GPRegressor(solver="ap", checkpoint=checkpoint, **settings).fit(X, y)
    found = [model.n_steps_, *model.hyperparameters_.vector.tolist(), *model.predict(X[:20]).tolist()]
    out.write_text(json.dumps(found))


@pytest.mark.whole
@pytest.mark.slow
def test_kill_minus_nine_at_random_times(tmp_path: Path) -> None:
    """A training killed again and again ends where an undisturbed one does, bit for bit; no file is ever torn."""
    path, truth, found = tmp_path / "checkpoint", tmp_path / "truth", tmp_path / "found"
    assert finish(train_sixty_steps, None, truth) == 0
    rng = np.random.default_rng(1)
    killed = 0
    for _ in range(6):
        before = path.stat().st_mtime_ns if path.exists() else 0
        process = begin(train_sixty_steps, path, found)
        while process.is_alive() and (not path.exists() or path.stat().st_mtime_ns == before):
            time.sleep(0.001)  # until it has made progress
        time.sleep(float(rng.uniform(0, 0.1)))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    assert killed >= 3, "too few kills to show anything"
    assert finish(train_sixty_steps, path, found) == 0
    assert json.loads(found.read_text()) == json.loads(truth.read_text())


def test_probes_that_a_checkpoint_cannot_hold_are_refused(tmp_path: Path) -> None:
    """Exact prior samples would be lost, and the resumed training would be another one."""
    x, y = torch.randn(30, 2, dtype=torch.float64), torch.randn(30, dtype=torch.float64)
    options = TrainingOptions(ConjugateGradients(), Pathwise(3, prior="exact"), n_steps=1)
    operator = DenseOperator(x, Matern32(), Hyperparameters.ones(2))
    state = train(operator, y, options, generator=torch.Generator().manual_seed(0)).state
    with pytest.raises(ValueError, match="cannot hold probes"):
        write_checkpoint(tmp_path / "c", state, torch.Generator().get_state(), make_plan(30), "mark")
    assert not (tmp_path / "c").exists()


def test_a_checkpoint_that_lacks_something_is_refused(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    path = tmp_path / "c"
    model = GPRegressor(solver="cg", n_steps=2, n_probes=4, checkpoint=path, random_state=0).fit(X, X[:, 0])
    tensors, content = read(path, "checkpoint")
    del content["adam_t"]
    write(path, "checkpoint", tensors, content)
    with pytest.raises(FileError, match="lacks 'adam_t': delete it to start anew"):
        model.fit(X, X[:, 0])
