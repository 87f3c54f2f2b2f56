"""Outliers: what a robust fit predicts where one target in twenty is replaced, beside fits of the clean rows.

    OMP_NUM_THREADS=1 WARMGP_DATA=… python -m benchmarks.robust --out benchmarks/results/robust-cpu.json

Rows are drawn from the training part of each set, and 5% of their targets replaced by values 10 to 100 standard
deviations to either side. 1,000 clean held-out rows are scored: RMSE and mean log-density, in standard deviations of
all training targets. "known" leaves the replaced rows out, as if somebody had told it which they are. Rows that the
file has already are kept.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.small import Rows, rows_of
from experiments.common import machine, write_json
from warmgp import GPRegressor

SETS = ("pol", "elevators", "bike", "protein", "keggdirected", "terrain")
SHARE = 0.05
HOW = {
    "clean": (False, False),
    "clean, robust": (False, True),
    "outliers": (True, False),
    "outliers, robust": (True, True),
    "known": (True, False),
}
"""Whether targets are replaced, and whether the fit is robust."""


def replaced(y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets of which one in twenty is an outlier, and which those are."""
    rng = np.random.default_rng(seed)
    out = rng.permutation(len(y))[: int(SHARE * len(y))]
    y = y.copy()
    y[out] = y.mean() + y.std() * rng.uniform(10, 100, len(out)) * rng.choice([-1, 1], len(out))
    return y, out


def measured(how: str, rows: Rows, seed: int) -> dict[str, Any]:
    """Scores of one fit on new rows, its seconds, and what became of the rows."""
    X, y, X_new, y_new = rows
    spoilt, robust = HOW[how]
    targets, out = replaced(y, seed) if spoilt else (y, np.zeros(0, dtype=int))
    weight = None
    if how == "known":
        weight = np.ones(len(y))
        weight[out] = 0.0
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPRegressor(robust=robust, random_state=seed).fit(X, targets, sample_weight=weight)
    seconds = time.process_time() - began
    mean, std = model.predict(X_new, return_std=True)
    z = (y_new - mean) / std
    found = {
        "rmse": float(np.sqrt(np.mean((y_new - mean) ** 2))),
        "density": float(np.mean(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi))),
        "seconds": round(seconds, 2),
    }
    if model.robust_weights_ is not None:
        kept = np.delete(model.robust_weights_, out)
        found |= {
            "outliers": len(out),
            "outliers left in": int((model.robust_weights_[out] > 0).sum()),
            "others left out": int((kept == 0).sum()),
            "others of less weight": int(((kept > 0) & (kept < 1)).sum()),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--how", nargs="+", default=list(HOW))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out.exists() else {"machine": machine("cpu"), "rows": []}
    done = {(row["set"], row["n"], row["seed"], row["how"]) for row in found["rows"]}
    for name in options.sets:
        for seed in range(options.seeds):
            for how in options.how:
                if (name, options.rows, seed, how) in done:
                    continue
                row = {"set": name, "n": options.rows, "seed": seed, "how": how}
                row |= measured(how, rows_of(name, options.rows, seed), seed)
                found["rows"].append(row)
                write_json(options.out, found)
                print(row, flush=True)


if __name__ == "__main__":
    main()
