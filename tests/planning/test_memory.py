"""Prediction in bounded memory: a table of any length, from a model of 2,000 points with 64 posterior functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from warmgp import ConvergenceWarning, GPRegressor
from warmgp.cli.tables import CHUNK_ROWS

#: The command line, and then the most memory that this process ever had (not that of the one it was started from).
PREDICT = """
import re, sys
from pathlib import Path
from warmgp.cli.commands import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


#: Without the second, glibc keeps freed blocks to itself, more of them the longer it runs: up to 70 MB at 80,000 rows.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"}


@pytest.mark.whole
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_memory_does_not_grow_with_the_rows_to_predict(tmp_path: Path) -> None:
    """Peak memory below 2 GB, and at most 25 MB more for 80,000 rows than for 20,000 (0.4 KB a row; found: 6 MB).

    Both are several chunks of rows, each of which is read, predicted and written before the next, so that what holds
    here holds for any number. Run by hand, 1,000,000 rows took a peak of 0.65 GB and 6 minutes of one core with a
    model of 13,500 points in float64, of 6,750 features (0.52 GB for 20,000 rows). The test spares itself that, and
    takes float32, 1,000 points and 300 features: all of 80,000 rows would be 320 MB of kernel and 96 MB of features.
    """
    n, d = 1_000, 8
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a tenth of an epoch: how good it is changes no memory
        cheap = {"n_steps": 0, "max_epochs": 0.1, "n_features": 300, "dtype": "float32", "memory_budget": 2**30}
        model = GPRegressor(solver="ap", device="cpu", random_state=0, **cheap)
        model.fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)).save(tmp_path / "model")
    assert model.posterior_.n_samples == 64 and model.posterior_.x.shape == (n, d)

    peak = {}
    for rows in (20_000, 80_000):
        assert rows > CHUNK_ROWS
        data, out = tmp_path / f"{rows}.csv", tmp_path / f"{rows}-predicted.csv"
        table = pd.DataFrame(rng.normal(size=(rows, d)).round(4), columns=[f"x{j}" for j in range(d)])
        table.to_csv(data, index=False)
        arguments = ["predict", tmp_path / "model", data, "--std", "--out", out, "--device", "cpu", "--quiet"]
        line = [sys.executable, "-c", PREDICT, *map(str, arguments)]
        done = subprocess.run(line, env=ENVIRONMENT, check=True, capture_output=True, text=True)
        peak[rows] = 1024 * int(re.fullmatch(r"(\d+)\n", done.stdout)[1]) / 1e9  # type: ignore[index]
        predicted = pd.read_csv(out)
        assert predicted.shape == (rows, 2) and np.isfinite(predicted).to_numpy().all()
    assert max(peak.values()) < 2.0, peak
    assert peak[80_000] < peak[20_000] + 0.025, peak
