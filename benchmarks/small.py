"""Small data: what a default fit predicts, beside a fit from ones (the default before) and scikit-learn with restarts.

    OMP_NUM_THREADS=1 WARMGP_DATA=… python -m benchmarks.small --out benchmarks/results/small-cpu.json

For each set, number of rows and seed, rows are drawn from the training part, and 1,000 held-out rows are predicted:
mean log-density and R², in standard deviations of all training targets, so that fits compare. scikit-learn has a
constant times Matérn-3/2 with a length scale for each input, white noise, a normalised target and three restarts.
``--many`` fits two inputs that matter among many, and a category of 150 levels, instead. Rows that the file has already
are kept. ``--floor`` asks how far such a comparison can tell two models apart: scikit-learn beside itself, with other
restarts, with other kernels, and from as many other rows of the same set. Every run ends with how many fits of each
kind are not worse than scikit-learn by more than 0.02; ``--held`` does no more than that.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from experiments.common import machine, write_json
from experiments.data import split_of
from warmgp import GPRegressor
from warmgp.data.datasets import Split

SETS = ("pol", "elevators", "bike", "protein", "keggdirected", "houseelectric", "terrain")
SIZES, NEW = (50, 100, 200), 1000
SCIKIT, RESTARTS, OTHER_ROWS = "scikit-learn", "scikit-learn, other restarts", "scikit-learn, other rows"
SMOOTHNESS = {"scikit-learn, Matérn-5/2": 2.5, "scikit-learn, RBF": np.inf}
FLOOR = (SCIKIT, RESTARTS, *SMOOTHNESS, OTHER_ROWS)
"""Fits of scikit-learn: the one that all others are compared with, and those that it is compared with itself by."""

CLOSE, LEAST = 0.02, -5.0
"""What a fit may lose to scikit-learn, and what no log-density counts below in a mean, in nats a point."""

OTHERS = 1000
"""Added to a seed, it is that of other restarts and other rows."""

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@functools.cache
def whole(name: str) -> Split:
    """The first split of a set, read once."""
    return split_of(name, 0)


def rows_of(name: str, n: int, seed: int) -> Rows:
    """X, y of n random training rows and of new ones; y in standard deviations of all training rows."""
    split = whole(name)
    rng = np.random.default_rng(1000 + seed)
    some, new = rng.permutation(len(split.x_train))[:n], rng.permutation(len(split.x_test))[:NEW]
    centre, scale = split.y_train.mean(), split.y_train.std()
    y, y_new = (split.y_train[some] - centre) / scale, (split.y_test[new] - centre) / scale
    return split.x_train[some], y, split.x_test[new], y_new


def many_of(name: str, n: int, seed: int) -> Rows:
    """Two inputs that matter among d ("normal-200"), or a category of so many levels ("levels-150")."""
    kind, d = name.split("-")
    rng, count = np.random.default_rng(seed), int(d)
    if kind == "levels":
        level, x, effect = rng.integers(count, size=n + NEW), rng.normal(size=n + NEW), rng.normal(size=count)
        X, f = np.c_[x, np.eye(count)[level]], effect[level] + np.sin(2 * x)
    else:
        X = rng.normal(size=(n + NEW, count))
        f = X[:, 0] + np.sin(2 * X[:, 1])
    y = f + 0.1 * rng.normal(size=n + NEW)
    return X[:n], y[:n], X[n:], y[n:]


def fitted(how: str, X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """A model of one of the kinds."""
    if how in FLOOR:
        kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), nu=SMOOTHNESS.get(how, 1.5)) + WhiteKernel()
        scale = np.where(X.std(0) > 0, X.std(0), 1.0)
        own = seed + OTHERS * (how == RESTARTS)
        model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=3, random_state=own)
        model.scaling = X.mean(0), scale
        return model.fit((X - X.mean(0)) / scale, y)
    return GPRegressor(init="ones" if how == "ones" else "auto", random_state=seed).fit(X, y)


def measured(how: str, rows: Rows, seed: int) -> dict[str, Any]:
    """Scores of one fit on new rows, its seconds of the process, and what it warned of."""
    X, y, X_new, y_new = rows
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fitted(how, X, y, seed)
    seconds = time.process_time() - began
    own = how not in FLOOR
    if not own:
        mean, scale = model.scaling
        centre, std = model.predict((X_new - mean) / scale, return_std=True)  # with the white noise
    else:
        centre, std = model.predict(X_new, return_std=True)
    z = (y_new - centre) / std
    return {
        "density": float(np.mean(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi))),
        "r2": float(1 - np.mean((y_new - centre) ** 2) / y_new.var()),
        "z": float(np.sqrt(np.mean(z**2))),
        "likelihood": float(model.log_marginal_likelihood_value_ or np.nan) if own else float(
            model.log_marginal_likelihood_value_
        ),
        "seconds": round(seconds, 2),
        "stop": model.stop_reason_ if own else "",
        "warnings": [str(one.message)[:100] for one in caught] if own else [],
    }  # fmt: skip


def held(rows: list[dict[str, Any]]) -> str:
    """How many fits of each kind are not worse than scikit-learn's of the same rows by more than ``CLOSE``."""
    densities = {(row["how"], row["set"], row["n"], row["seed"]): row["density"] for row in rows}
    told = []
    for how in dict.fromkeys(row["how"] for row in rows):
        pairs = [(own, densities.get((SCIKIT, *fit))) for (kind, *fit), own in densities.items() if kind == how]
        both = [(own, other) for own, other in pairs if other is not None]
        count = sum(own >= other - CLOSE for own, other in both)
        mean = np.mean([max(own, LEAST) for own, _ in pairs])
        told.append(f"{how}: {count} of {len(both)}, mean {mean:.3f} (none counted below {LEAST:g})")
    return "\n".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--how", nargs="+", default=["auto", "ones", SCIKIT])
    parser.add_argument("--floor", action="store_true", help="scikit-learn beside itself, instead of --how")
    parser.add_argument("--held", action="store_true", help="only compare what the file has")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out.exists() else {"machine": machine("cpu"), "rows": []}
    done = {(row["set"], row["n"], row["seed"], row["how"]) for row in found["rows"]}
    kinds = FLOOR if options.floor else options.how
    seeds = range(options.first, options.first + options.seeds)
    wanted = [(s, n, k, h) for n in options.sizes for s in options.sets for k in seeds for h in kinds]
    for name, n, seed, how in wanted:
        if options.held or (name, n, seed, how) in done:
            continue
        rows_like = many_of if options.many else rows_of
        rows = rows_like(name, n, seed)
        if how == OTHER_ROWS:
            rows = (*rows_like(name, n, seed + OTHERS)[:2], *rows[2:])
        found["rows"].append({"set": name, "n": n, "seed": seed, "how": how, **measured(how, rows, seed)})
        print(found["rows"][-1], flush=True)
        write_json(options.out, found)
    print(held(found["rows"]))


if __name__ == "__main__":
    main()
