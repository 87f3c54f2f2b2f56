"""The command line under torchrun: one model, one voice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distributed.workers import table
from warmgp import GPRegressor


def test_two_processes_fit_a_table_and_write_one_model(tmp_path: Path) -> None:
    X, y, _ = table(150)
    data, out = tmp_path / "data.csv", tmp_path / "model.warmgp"
    np.savetxt(data, np.column_stack([X, y]), delimiter=",", header="a,b,c,y", comments="")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "warmgp", "fit"]
    settings = ["--kernel", "matern32", "--n-steps", "2", "--solver", "cg", "--gradient", "pathwise", "--n-probes", "8"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    new, predicted = tmp_path / "new.csv", tmp_path / "predicted.csv"
    np.savetxt(new, X[:31], delimiter=",", header="a,b,c", comments="")
    told = subprocess.run(
        [*run, str(data), "--target", "y", "--out", str(out), "--quiet", *settings,
         "--predict", str(new), "--predictions", str(predicted), "--interval", "0.9"],
        capture_output=True, text=True, timeout=200, env=environment, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("fitted 150 rows") == 1, told.stdout
    model = GPRegressor.load(out, device="cpu")
    alone = GPRegressor("matern32", n_steps=2, solver="cg", gradient="pathwise", n_probes=8, random_state=0).fit(X, y)
    assert model.hyperparameters_.vector.numpy() == pytest.approx(alone.hyperparameters_.vector.numpy(), rel=1e-3)
    mean, std, low, high = np.loadtxt(predicted, delimiter=",", skiprows=1).T
    expected = model.predict(X[:31], return_std=True)
    assert mean == pytest.approx(expected[0], rel=1e-4, abs=1e-5) and std == pytest.approx(expected[1], rel=1e-4)
    assert np.all(low < mean) and np.all(mean < high)
