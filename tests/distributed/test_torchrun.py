"""The command line under torchrun: one model, one voice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from distributed.workers import table
from warmgp import GPRegressor
from warmgp.cli.commands import main


def torchrun(*arguments: str) -> str:
    """Runs a command of warmgp on two processes; returns what they print."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "warmgp"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    told = subprocess.run(
        [*run, *arguments], capture_output=True, text=True, timeout=200, env=environment, check=False
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_two_processes_fit_a_table_and_write_one_model(tmp_path: Path) -> None:
    X, y, _ = table(150)
    data, out = tmp_path / "data.csv", tmp_path / "model.warmgp"
    np.savetxt(data, np.column_stack([X, y]), delimiter=",", header="a,b,c,y", comments="")
    settings = ["--kernel", "matern32", "--n-steps", "2", "--solver", "cg", "--gradient", "pathwise", "--n-probes", "8"]
    new, predicted = tmp_path / "new.csv", tmp_path / "predicted.csv"
    np.savetxt(new, X[:31], delimiter=",", header="a,b,c", comments="")
    told = torchrun(
        "fit", str(data), "--target", "y", "--out", str(out), "--quiet", *settings,
        "--predict", str(new), "--predictions", str(predicted), "--interval", "0.9",
    )  # fmt: skip
    assert told.count("fitted 150 rows") == 1, told
    model = GPRegressor.load(out, device="cpu")
    alone = GPRegressor("matern32", n_steps=2, solver="cg", gradient="pathwise", n_probes=8, random_state=0).fit(X, y)
    assert model.hyperparameters_.vector.numpy() == pytest.approx(alone.hyperparameters_.vector.numpy(), rel=1e-3)
    mean, std, low, high = np.loadtxt(predicted, delimiter=",", skiprows=1).T
    expected = model.predict(X[:31], return_std=True)
    assert mean == pytest.approx(expected[0], rel=1e-4, abs=1e-5) and std == pytest.approx(expected[1], rel=1e-4)
    assert np.all(low < mean) and np.all(mean < high)


def test_two_processes_add_rows_and_predict_a_grid(tmp_path: Path) -> None:
    """An update, and the cells of a grid, by the command that one process has, to what it answers."""
    X, y, _ = table(150)
    first, more = tmp_path / "first.warmgp", tmp_path / "more.csv"
    names = ["a", "b", "c"]
    frame = pd.DataFrame(X, columns=names)
    settings = {"n_steps": 2, "solver": "cg", "gradient": "pathwise", "n_probes": 8, "random_state": 0}
    GPRegressor("matern32", **settings).fit(frame[:120], y[:120]).save(first)
    frame[120:].assign(y=y[120:]).to_csv(more, index=False)
    grid = "a=0:0.9:0.15,b=0:1:0.5,c=0.5"
    for folder, run in ((tmp_path / "one", main), (tmp_path / "two", torchrun)):
        folder.mkdir()
        update = ("update", str(first), str(more), "--target", "y", "--out", str(folder / "m.warmgp"))
        predict = ("predict", str(folder / "m.warmgp"), "--grid", grid, "--out", str(folder / "map.csv"), "--quiet")
        for command in (update, predict):
            run(list(command)) if run is main else run(*command)
    one, two = (pd.read_csv(tmp_path / name / "map.csv") for name in ("one", "two"))
    assert len(two) == 21 and list(two) == list(one)
    for name in one:
        assert two[name].to_numpy() == pytest.approx(one[name].to_numpy(), rel=2e-3, abs=1e-5), name
