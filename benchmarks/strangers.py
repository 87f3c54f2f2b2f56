"""Tables that nobody has named: ``GPRegressor()`` as it comes on made-up data of many kinds, beside trees.

    python -m benchmarks.strangers --out strangers-h200.json
    python -m benchmarks.strangers --scale 0.02 --device cpu --out strangers-cpu.json   # a fiftieth of the rows each
    python -m benchmarks.strangers --sets "time series" linear --out strangers-h200.json

Each kind is drawn from a known function with noise: sensors in the order of time, inputs with long tails, integers with
many copies, 60 inputs of which five matter, space and time, a time series, noise of uneven size with long tails, a
skewed target, steps, categories as columns of 0 and 1, a simulator without noise, noise alone, a constant beside a
copied and an outlying column, many easy rows, a linear function, a smooth one with hardly any noise, 90 inputs that
explain a quarter, pictures of 385 columns, all combinations of a few values, heights along roads, a load by the hour,
waves along one input of two and of six, temperatures of stations on both hemispheres, and sales of shops that are told
by their numbers. A tenth of the rows, at most 5,000, is held out.

Told are seconds (the first fit of a kind on a GPU compiles what it needs), the plan's estimate, RMSE in standard
deviations of y beside that of scikit-learn's ``HistGradientBoostingRegressor`` with 300 trees, the mean log density,
the share in 90% intervals, and all warnings. What ``--out`` has is not done again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from experiments.common import machine, write_json
from warmgp import GPRegressor

Array = NDArray[np.float64]
Rng = np.random.Generator


def sensors(n: int, rng: Rng) -> tuple[Array, Array]:
    steps = rng.normal(size=(n, 12))
    x = np.empty_like(steps)
    x[0] = steps[0]
    for i in range(1, n):
        x[i] = 0.98 * x[i - 1] + 0.2 * steps[i]
    x[:, 0] = np.arange(n) % 1440 / 1440.0
    f = np.sin(2 * np.pi * x[:, 0]) * x[:, 1] + np.tanh(2 * x[:, 2]) * x[:, 3] + 0.5 * np.abs(x[:, 4])
    return x, f + 0.05 * rng.normal(size=n)


def long_tails(n: int, rng: Rng) -> tuple[Array, Array]:
    z = rng.normal(size=(n, 27)) * rng.uniform(0.3, 1.5, 27)
    return np.exp(z), np.tanh(z[:, :6]).sum(1) + 0.3 * z[:, 6] * z[:, 7] + 0.1 * rng.normal(size=n)


def copies(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.integers(0, 12, size=(n, 6)).astype(float)
    return x, np.sin(x[:, 0] / 2) + 0.1 * x[:, 1] * (x[:, 2] > 5) + 0.3 * rng.normal(size=n)


def many_inputs(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.normal(size=(n, 60))
    f = x[:, 0] + np.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + np.abs(x[:, 4])
    return x, f + 0.2 * rng.normal(size=n)


def space_and_time(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.uniform(size=(n, 3)) * np.array([10.0, 10.0, 365.0])
    f = np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.5 * np.sin(2 * np.pi * x[:, 2] / 30)
    return x, f + 0.3 * np.sin(3 * x[:, 0] + x[:, 2] / 10) + 0.1 * rng.normal(size=n)


def time_series(n: int, rng: Rng) -> tuple[Array, Array]:
    x = np.sort(rng.uniform(0, n / 150, n))
    walk = 0.2 * np.cumsum(rng.normal(size=n)) / math.sqrt(n / 100)
    return x[:, None], np.sin(x) + 0.5 * np.sin(7.3 * x) + walk + 0.1 * rng.normal(size=n)


def uneven_noise(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.normal(size=(n, 5))
    noise = 0.2 * np.exp(0.5 * x[:, 2]) * rng.standard_t(3, size=n)
    return x, np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] ** 2 + noise


def skewed_target(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.uniform(-1, 1, size=(n, 10))
    return x, np.exp(1.5 * (np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3]) + 0.3 * rng.normal(size=n))


def steps(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.uniform(size=(n, 4))
    return x, 1.0 * (x[:, 0] > 0.5) + 2.0 * (x[:, 1] > 0.3) * (x[:, 2] > 0.6) + 0.05 * rng.normal(size=n)


def categories(n: int, rng: Rng) -> tuple[Array, Array]:
    first, second, x = rng.integers(0, 9, n), rng.integers(0, 7, n), rng.normal(size=(n, 2))
    f = rng.normal(size=9)[first] * x[:, 1] + rng.normal(size=7)[second] + np.sin(2 * x[:, 0])
    return np.c_[np.eye(9)[first], np.eye(7)[second], x], f + 0.1 * rng.normal(size=n)


def borehole(n: int, rng: Rng) -> tuple[Array, Array]:
    """A simulator of water that flows through a borehole, without noise."""
    u = rng.uniform(size=(n, 8))
    low = np.array([0.05, 100, 63_070, 990, 63.1, 700, 1_120, 9_855])
    high = np.array([0.15, 50_000, 115_600, 1_110, 116.2, 820, 1_680, 12_045])
    rw, r, tu, hu, tl, hl, length, kw = (low + u * (high - low)).T
    log = np.log(r / rw)
    return u, 2 * np.pi * tu * (hu - hl) / (log * (1 + 2 * length * tu / (log * rw**2 * kw) + tu / tl))


def nothing(n: int, rng: Rng) -> tuple[Array, Array]:
    return rng.normal(size=(n, 8)), rng.normal(size=n)


def odd_columns(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.normal(size=(n, 15))
    x[:, 3], x[:, 4] = 0.0, x[:, 5]
    x[rng.random(n) < 0.01, 6] = 1000.0
    return x, x[:, 0] + np.sin(x[:, 5]) + 0.1 * rng.normal(size=n)


def easy(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.normal(size=(n, 5))
    return x, np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=n)


def linear(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.normal(size=(n, 9))
    return x, x @ rng.normal(size=9) + 0.01 * rng.normal(size=n)


def smooth(n: int, rng: Rng) -> tuple[Array, Array]:
    x = rng.normal(size=(n, 8))
    f = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + np.cos(x[:, 3] + x[:, 4])
    return x, f + 0.007 * f.std() * rng.normal(size=n)


def weak_inputs(n: int, rng: Rng) -> tuple[Array, Array]:
    """90 inputs with tails that explain a quarter of a skewed target of whole numbers, some of them together."""
    x = rng.standard_t(5, size=(n, 90)) @ (rng.normal(size=(90, 90)) * np.exp(-np.arange(90) / 30)[:, None])
    s, many = x[:, :4] / x[:, :4].std(0), x[:, 40:50].sum(1)
    f = np.tanh(s[:, 0]) + 0.5 * np.tanh(s[:, 1] * s[:, 2]) + 0.4 * s[:, 3] + 0.2 * many / many.std()
    g = 0.62 * f / f.std() + rng.normal(size=n)
    return x, np.round(1998 + 9 * (g - 0.15 * g**2))


def profiles(n: int, rng: Rng) -> tuple[Array, Array]:
    """385 columns of a picture, many of them empty, of three things that follow from a height."""
    z, of = rng.uniform(size=n), rng.integers(0, 97, n)
    latent = np.c_[np.sin(3 * z), np.cos(5 * z), z**2] + 0.3 * rng.normal(size=(97, 3))[of]
    x = np.tanh((latent + 0.05 * rng.normal(size=(n, 3))) @ (0.7 * rng.normal(size=(3, 385))) + rng.normal(size=385))
    x += 0.05 * rng.normal(size=x.shape)
    rare = rng.permutation(385)[:120]
    x[:, rare] *= rng.random((n, 120)) < 0.1
    x[:, rare[:3]] = -0.25
    return np.maximum(x, -0.25), 100 * z + 0.3 * rng.normal(size=n)


def combinations(n: int, rng: Rng) -> tuple[Array, Array]:
    """A table of all combinations of five values in five columns, most of them there several times, without noise."""
    x = rng.integers(0, 5, (n, 5)).astype(float)
    return x, np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 4


def roads(n: int, rng: Rng) -> tuple[Array, Array]:
    """Heights along winding roads: near each other along them, with nothing between."""
    count = n // 120 + 1
    turns = rng.uniform(0, 2 * np.pi, (count, 1)) + np.cumsum(rng.normal(scale=0.25, size=(count, 120)), 1)
    lengths = rng.exponential(0.0015, (count, 120))
    x = rng.uniform(size=(count, 1, 2)) * [1.8, 1.2]
    x = x + np.cumsum(lengths[..., None] * np.stack([np.cos(turns), np.sin(turns)], -1), 1)
    x, f = x.reshape(-1, 2)[:n], np.zeros(n)
    for s in np.linspace(0.3, 12, 60):
        f += rng.exponential(1 / (1 + s)) * np.sin(x @ (3 * s * rng.normal(size=2)) + rng.uniform(0, 6))
    return x + np.array([9.0, 56.5]), 30 + 8 * f + 0.5 * rng.normal(size=n)


def hours(n: int, rng: Rng) -> tuple[Array, Array]:
    """A load by the hour: days, weeks and seasons."""
    x = np.arange(n).astype(float)
    day, week, year = (2 * np.pi * x / period for period in (24, 168, 8766))
    f = np.sin(day) + 0.4 * np.sin(2 * day) + 0.5 * (np.sin(week) > 0.6) + np.cos(year)
    return x[:, None], 100 + 20 * f + 4 * rng.normal(size=n)


def wave_on_map(n: int, rng: Rng) -> tuple[Array, Array]:
    """Forty ridges on a map."""
    x = rng.uniform(size=(n, 2))
    return x, np.sin(80 * np.pi * x[:, 0]) + 0.3 * np.sin(3 * x[:, 1]) + 0.1 * rng.normal(size=n)


def wave_in_table(n: int, rng: Rng) -> tuple[Array, Array]:
    """Thirty periods along one of six inputs."""
    x = rng.uniform(size=(n, 6))
    return x, np.sin(60 * np.pi * x[:, 2]) + 0.5 * x[:, 0] + 0.1 * rng.normal(size=n)


def stations(n: int, rng: Rng) -> tuple[Array, Array]:
    """Ten years of temperatures of 200 stations on both hemispheres: latitude, longitude, height, day."""
    places = np.column_stack([rng.uniform(-60, 70, 200), rng.uniform(-180, 180, 200), rng.exponential(400, 200)])
    of, day, own = rng.integers(0, 200, n), rng.uniform(0, 3650, n), 2 * rng.normal(size=200)
    latitude, _, height = places[of].T
    season = (10 + 0.1 * np.abs(latitude)) * np.cos(2 * np.pi * day / 365.25) * np.sign(latitude)
    y = 25 - 0.4 * np.abs(latitude) - 0.006 * height - season + own[of] + 2 * rng.normal(size=n)
    return np.column_stack([places[of], day]), y


def shops(n: int, rng: Rng) -> tuple[Array, Array]:
    """Sales of 40 shops by their numbers, which mean nothing, with weekday, price and whether there is an offer."""
    shop, weekday, offer = rng.integers(0, 40, n), rng.integers(0, 7, n), rng.integers(0, 2, n)
    price, own, week = rng.uniform(1, 4, n), rng.normal(size=40), rng.normal(size=(3, 7))
    y = own[shop] + week[shop % 3, weekday] - 0.5 * price + 0.7 * offer * (price > 2) + 0.3 * rng.normal(size=n)
    return np.column_stack([shop, weekday, price, offer]).astype(float), y


KINDS: dict[str, tuple[int, Callable[[int, Rng], tuple[Array, Array]]]] = {
    "sensors": (300_000, sensors), "long tails": (57_000, long_tails), "copies": (120_000, copies),
    "many inputs": (20_000, many_inputs), "space and time": (80_000, space_and_time),
    "time series": (150_000, time_series), "uneven noise": (50_000, uneven_noise),
    "skewed target": (200_000, skewed_target), "steps": (30_000, steps), "categories": (100_000, categories),
    "borehole": (10_000, borehole), "nothing": (60_000, nothing), "odd columns": (45_000, odd_columns),
    "easy": (400_000, easy), "linear": (25_000, linear), "smooth": (40_000, smooth),
    "weak inputs": (400_000, weak_inputs), "profiles": (50_000, profiles), "combinations": (30_000, combinations),
    "roads": (400_000, roads), "hours": (100_000, hours), "wave on a map": (60_000, wave_on_map),
    "wave in a table": (60_000, wave_in_table), "stations": (300_000, stations), "shops": (60_000, shops),
}  # fmt: skip
"""The rows of each kind at full size, a tenth of them held out, and what draws them."""


def fitted(name: str, scale: float, device: str) -> dict[str, Any]:
    """One fit as a user would, and its scores on held-out rows."""
    size, draw = KINDS[name]
    x, y = draw(max(400, int(size * scale)), np.random.default_rng(0))
    order = np.random.default_rng(1).permutation(len(y))
    train, test = np.sort(order[len(y) // 10 :]), np.sort(order[: min(len(y) // 10, 5000)])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        began = time.perf_counter()
        model = GPRegressor(random_state=0, device=device).fit(x[train], y[train])
        seconds = time.perf_counter() - began
    mean, std = model.predict(x[test], return_std=True)
    z, unit = (y[test] - mean) / std, y[train].std()
    trees = HistGradientBoostingRegressor(max_iter=300, random_state=0).fit(x[train], y[train]).predict(x[test])
    return {
        "set": name, "n": len(train), "d": x.shape[1], "seconds": seconds, "planned": model.plan_.estimated_seconds,
        "kernel": model.kernel_.name, "solver": model.plan_.solver.name, "converged": model.converged_,
        "error": model.solve_error_, "noise": float(model.hyperparameters_.noise_scale),
        "rmse": float(np.sqrt(np.mean((y[test] - mean) ** 2)) / unit),
        "trees": float(np.sqrt(np.mean((y[test] - trees) ** 2)) / unit),
        "llh": float(np.mean(-0.5 * z**2 - np.log(std / unit) - 0.5 * np.log(2 * np.pi))),
        "inside_90": float(np.mean(np.abs(z) < 1.6449)), "report": str(model.report_),
        "warnings": [str(one.message) for one in warned],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(KINDS), choices=list(KINDS), metavar="SET")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the rows of each kind")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    how = {"scale": asked.scale, "on": asked.device}
    kept = json.loads(asked.out.read_text()) if asked.out.exists() else {**how, "results": []}
    found = kept["results"]
    if any(kept[key] != value for key, value in how.items()):
        parser.error(f"{asked.out} has fits of --scale {kept['scale']:g} --device {kept['on']}: name another file")
    for name in asked.sets:
        if name in {one["set"] for one in found}:
            continue
        found.append(fitted(name, asked.scale, asked.device))
        print(json.dumps(found[-1]), flush=True)
        write_json(asked.out, {"machine": machine(asked.device), **how, "results": found})


if __name__ == "__main__":
    main()
