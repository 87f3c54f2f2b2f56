"""Rows that are there twice: what few of them do to the noise that is found, and to the rows that contradict them.

    WARMGP_DATA=… python -m benchmarks.copies --out benchmarks/results/copies-cpu.json

Random rows of *protein*, of which a few are copies of others, inputs and target; 4,000 other rows are predicted.
``GPRegressor()`` as it comes, beside the same with ``noise_floor=1e-4``, which takes the likelihood literally. Told are
the noise, the mean log density of the 4,000 rows and of those that have no copy in training, in standard deviations of
y, the largest error in predicted standard deviations, and the share in 90% intervals. What ``--out`` has is not done
again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.common import machine, write_json
from experiments.data import split_of
from warmgp import GPRegressor

CASES = ((2_000, 0), (2_000, 1), (2_000, 2), (5_000, 0), (5_000, 1))
FLOORS = ("auto", 1e-4)
NEW = 4_000


def fitted(name: str, n: int, seed: int, floor: str | float) -> dict[str, Any]:
    """One fit, and what it says of new rows."""
    split = split_of(name, 0)
    X, y = np.r_[split.x_train, split.x_test], np.r_[split.y_train, split.y_test]
    rows = np.random.default_rng(seed).permutation(len(y))
    new, some = rows[:NEW], np.sort(rows[NEW : NEW + n])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model = GPRegressor(noise_floor=floor, random_state=0).fit(X[some], y[some])
        seconds = time.perf_counter() - began
    mean, std = model.predict(X[new], return_std=True)
    z, unit = (y[new] - mean) / std, y[some].std()
    density = -0.5 * z**2 - np.log(std / unit) - 0.5 * np.log(2 * np.pi)
    apart = ~pd.MultiIndex.from_arrays(X[new].T).isin(pd.MultiIndex.from_arrays(X[some].T))
    return {
        "set": name, "n": n, "seed": seed, "noise_floor": floor, "kernel": model.kernel_.name,
        "copies": int(pd.DataFrame(np.c_[X[some], y[some]]).duplicated().sum()),
        "noise": float(model.hyperparameters_.noise_scale), "density": float(density.mean()),
        "density_apart": float(density[apart].mean()), "largest": float(np.abs(z).max()),
        "inside_90": float(np.mean(np.abs(z) < 1.6449)), "seconds": seconds,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="protein")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = json.loads(asked.out.read_text())["results"] if asked.out.exists() else []
    done = {(one["set"], one["n"], one["seed"], one["noise_floor"]) for one in found}
    for n, seed in CASES:
        for floor in FLOORS:
            if (asked.set, n, seed, floor) not in done:
                found.append(fitted(asked.set, n, seed, floor))
                print(json.dumps(found[-1]), flush=True)
                write_json(asked.out, {"machine": machine("cpu"), "results": found})


if __name__ == "__main__":
    main()
