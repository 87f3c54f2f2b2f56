"""A ninth of pol's training rows through the command line: the Python API's numbers, to the bit, after a kill too.

Two cheap steps (float32, 8 probes, alternating projections with one epoch a solve): what is shown is that nothing on
the way through files and processes changes a digit, not that such a model is good.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from cli_tools import command, read_csv
from processes import begin, finish, warmgp
from warmgp import ConvergenceWarning, GPRegressor
from warmgp.data.datasets import uci
from warmgp.files.format import read

pytestmark = pytest.mark.slow

SETTINGS = {
    "solver": "ap",
    "dtype": "float32",
    "n_steps": 2,
    "n_probes": 8,
    "n_features": 200,
    "max_epochs": 1,
    "device": "cpu",
}
ROWS = slice(None, None, 9)
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # the number of threads is part of what gives the same bits


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def fitted(uci_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pol's training and test rows as CSV and the model that ``warmgp fit`` made of them."""
    folder = tmp_path_factory.mktemp("pol")
    split = uci("pol", 0, folder=uci_folder, standardize=False)
    for name, X, y in (("train", split.x_train[ROWS], split.y_train[ROWS]), ("test", split.x_test, split.y_test)):
        table = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
        table.assign(foo=y).to_csv(folder / f"{name}.csv", index=False)
    line = command(*fit_line(folder, "model"))
    done = subprocess.run(line, env=ONE_THREAD, check=True, capture_output=True, text=True)
    assert "fitted 1,500 rows of 26 columns" in done.stdout
    return folder


def fit_line(folder: Path, out: str, *more: object) -> list[object]:
    return ["fit", folder / "train.csv", "--target", "foo", "--out", folder / out, "--quiet", *OPTIONS, *more]


def test_pol_by_command_line_is_pol_by_python(fitted: Path, uci_folder: Path, one_thread: None) -> None:
    out, shown = fitted / "predictions.csv", fitted / "shown"
    predict = ["predict", fitted / "model", fitted / "test.csv", "--std", "--out", out, "--device", "cpu"]
    assert finish(warmgp, shown, *predict) == 0, shown.read_text()

    split = uci("pol", 0, folder=uci_folder, standardize=False)
    with pytest.warns(ConvergenceWarning):
        model = GPRegressor(random_state=0, **SETTINGS).fit(split.x_train[ROWS], split.y_train[ROWS])  # type: ignore[arg-type]
    loaded = GPRegressor.load(fitted / "model", device="cpu")
    assert loaded.hyperparameters_.equals(model.hyperparameters_) and loaded.posterior_.x.shape == (1_500, 26)
    mean, std = model.predict(split.x_test, return_std=True)
    found = read_csv(out)
    np.testing.assert_array_equal(found["mean"], mean)
    np.testing.assert_array_equal(found["std"], std)
    assert np.sqrt(np.mean((mean - split.y_test) ** 2)) < 0.5 * split.y_test.std()  # and they are predictions of pol


@pytest.mark.whole
def test_pol_killed_and_resumed_is_pol_undisturbed(fitted: Path) -> None:
    checkpoint = fitted / "run.ckpt"
    line = fit_line(fitted, "resumed", "--checkpoint", checkpoint, "--checkpoint-every", 1)
    process = begin(warmgp, fitted / "shown", *line)
    while process.is_alive() and not (checkpoint.exists() and read(checkpoint, "checkpoint")[1]["step"] == 1):
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it ended before it could be killed"
    assert read(checkpoint, "checkpoint")[1]["step"] == 1 and not (fitted / "resumed").exists()

    assert finish(warmgp, fitted / "shown", *line, "--resume") == 0, (fitted / "shown").read_text()
    whole, resumed = read(fitted / "model", "model"), read(fitted / "resumed", "model")
    assert torch.equal(whole[0]["theta"], resumed[0]["theta"])
    assert whole[0].keys() == resumed[0].keys()
    assert all(torch.equal(whole[0][name], resumed[0][name]) for name in whole[0])
    assert len(resumed[1]["history"]) == 2
