"""Tables drawn at random, many of them: ``GPRegressor()`` as it comes on columns and functions that nobody thought of.

    python -m benchmarks.drawn --seeds 0:60 --rows 3000 --out drawn.json
    python -m benchmarks.drawn --seeds 0:60 --rows 3000 --out drawn.json --against before.json

Every seed draws a table: 2 to 15 columns (even, normal, with long tails, whole numbers, time, one value for each of
some groups, a slow walk, half zeros) and a function of a few terms (smooth, a wave, a product, a step, a straight line,
a wave that another column scales or shifts), with noise of 0.02 to 1. Terms are of ranks, so that long tails are those
of the columns alone. A fifth of the rows, at most 2,000, is held out.

Told are seconds, RMSE in standard deviations of y beside that of 300 boosted trees and of the function itself, the mean
log density and the share in 90% intervals; ``--against`` adds every seed whose log density differs by more than 0.005.
Where trees are better, a start may have gone wrong, or the function is no Gaussian process: steps, and waves of ranks
in a column with long tails. What ``--out`` has is not done again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from experiments.common import machine, write_json
from warmgp import GPRegressor

Array = NDArray[np.float64]
Rng = np.random.Generator

COLUMNS = ("even", "normal", "long tail", "whole", "time", "group", "walk", "half zero")
TERMS = ("smooth", "wave", "product", "step", "line", "scaled wave", "shifted wave")


def column(kind: str, when: Array, group: NDArray[np.int64], rng: Rng) -> Array:
    """One column of a kind, (n,)."""
    n = len(when)
    if kind == "whole":
        return rng.integers(0, rng.integers(2, 40), n).astype(float)
    if kind == "time":
        return when
    if kind == "group":
        return rng.normal(size=group.max() + 1)[group]
    if kind == "walk":
        keep, steps = rng.uniform(0.9, 0.999), rng.normal(size=n)
        found = np.zeros(n)
        for i in range(1, n):
            found[i] = keep * found[i - 1] + np.sqrt(1 - keep**2) * steps[i]
        return found
    if kind == "half zero":
        return np.where(rng.random(n) < 0.5, rng.exponential(size=n), 0.0)
    if kind == "even":
        return rng.uniform(size=n)
    return rng.normal(size=n) if kind == "normal" else np.exp(rng.uniform(0.5, 1.5) * rng.normal(size=n))


def ranks(values: Array) -> Array:
    """Values as shares of the way from the least to the largest: by rank where they are many."""
    if len(np.unique(values)) > 60:
        return np.asarray(values.argsort(kind="stable").argsort() / len(values))
    return np.asarray((values - values.min()) / max(np.ptp(values), 1e-9))


def term(kind: str, u: Array, other: Array, rng: Rng) -> Array:
    """One term of a function, (n,), of two columns between 0 and 1."""
    angle = 2 * np.pi * rng.choice([1, 3, 6, 12, 25]) * u
    at = rng.uniform(0.2, 0.8)
    return {
        "smooth": np.sin(3 * u + 6 * at), "wave": np.sin(angle), "product": 2 * np.sin(4 * u) * np.cos(5 * other),
        "step": np.sign(u - at), "line": 3 * u, "scaled wave": 1.5 * np.sin(angle) * (2 * other - 1),
        "shifted wave": np.sin(angle + 7 * other),
    }[kind]  # fmt: skip


def table(n: int, seed: int) -> tuple[Array, Array, float, list[str]]:
    """A table, its targets, the noise in units of the function's spread, and what it is made of."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice([2, 3, 4, 5, 6, 8, 10, 15]))
    when, group = np.arange(n) / n, rng.integers(0, rng.choice([5, 20, 100, 400]), n)
    kinds = [str(rng.choice(COLUMNS)) for _ in range(d)]
    X = np.stack([column(kind, when, group, rng) for kind in kinds], 1)
    U = np.stack([ranks(one) for one in X.T], 1)
    f, made = np.zeros(n), list(kinds)
    for _ in range(rng.integers(1, 5)):
        (i, j), kind, weight = rng.integers(0, d, 2), str(rng.choice(TERMS)), rng.exponential()
        f += weight * term(kind, U[:, i], U[:, j], rng)
        made.append(f"{weight:.1f} × {kind} ({i}, {j})")
    noise = float(rng.choice([0.02, 0.1, 0.3, 1.0]))
    return X, f / max(f.std(), 1e-9) + noise * rng.normal(size=n), noise, made


def fitted(n: int, seed: int, device: str) -> dict[str, Any]:
    """One fit as a user would, and its scores on held-out rows."""
    X, y, noise, made = table(n, seed)
    order = np.random.default_rng(1).permutation(n)
    test, train = np.sort(order[: min(n // 5, 2000)]), np.sort(order[min(n // 5, 2000) :])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        began = time.perf_counter()
        model = GPRegressor(random_state=0, device=device).fit(X[train], y[train])
        seconds = time.perf_counter() - began
    mean, std = model.predict(X[test], return_std=True)
    z, unit = (y[test] - mean) / std, y[train].std()
    trees = HistGradientBoostingRegressor(max_iter=300, random_state=0).fit(X[train], y[train]).predict(X[test])
    return {
        "seed": seed, "n": len(train), "d": X.shape[1], "made": made, "seconds": seconds,
        "planned": model.plan_.estimated_seconds, "kernel": model.kernel_.name, "converged": model.converged_,
        "rmse": float(np.sqrt(np.mean((y[test] - mean) ** 2)) / unit),
        "trees": float(np.sqrt(np.mean((y[test] - trees) ** 2)) / unit), "least": float(noise / unit),
        "llh": float(np.mean(-0.5 * z**2 - np.log(std / unit) - 0.5 * np.log(2 * np.pi))),
        "inside_90": float(np.mean(np.abs(z) < 1.6449)), "warnings": [str(one.message) for one in warned],
    }  # fmt: skip


def changed(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """A line for every seed whose log density has changed, and one for the mean of all."""
    old = {one["seed"]: one for one in before}
    both = [(old[one["seed"]], one) for one in after if one["seed"] in old]
    gains = [new["llh"] - one["llh"] for one, new in both]
    lines = [
        f"seed {new['seed']}: LLH {one['llh']:.3f} to {new['llh']:.3f}, RMSE {one['rmse']:.3f} to {new['rmse']:.3f}"
        for (one, new), gain in zip(both, gains, strict=True)
        if abs(gain) > 0.005
    ]
    return [*lines, f"{len(both)} tables, LLH {float(np.mean(gains)):+.4f} in the mean" if both else "no table in both"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:40", help="the first one, and the one behind the last")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--against", type=Path, help="a file of another version")
    asked = parser.parse_args()
    other = json.loads(asked.against.read_text()) if asked.against else {"rows": asked.rows, "results": []}
    if other["rows"] != asked.rows:
        parser.error(f"{asked.against} has tables of {other['rows']} rows")
    kept = json.loads(asked.out.read_text()) if asked.out.exists() else {"rows": asked.rows, "results": []}
    if kept["rows"] != asked.rows:
        parser.error(f"{asked.out} has tables of {kept['rows']} rows: name another file")
    found = kept["results"]
    for seed in range(*map(int, asked.seeds.split(":"))):
        if seed in {one["seed"] for one in found}:
            continue
        found.append(fitted(asked.rows, seed, asked.device))
        print(json.dumps(found[-1]), flush=True)
        write_json(asked.out, {"machine": machine(asked.device), "rows": asked.rows, "results": found})
    if asked.against:
        print("\n".join(changed(other["results"], found)))


if __name__ == "__main__":
    main()
