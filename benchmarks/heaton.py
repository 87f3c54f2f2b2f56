"""A map with real clouds over it: the satellite data of the 2019 case study, with its published scores and ours.

    python -m benchmarks.heaton --device cuda --out heaton-h200.json
    python -m benchmarks.heaton --rows 5000 --threads 2 --device cpu --limit 600 --out heaton-cpu.json
    python -m benchmarks.heaton --table --out heaton-h200.json        # the table in Markdown, nothing is run

105,569 land-surface temperatures by longitude and latitude to train on, and 42,740 under the mask of a real cloud to
predict: whole regions are missing. The data are those of Heaton et al., *A Case Study Competition Among Methods for
Analyzing Large Spatial Data* (JABES 24, 2019), as ``satellite.npz`` with x_train, y_train, x_test, y_test in a folder
``heaton`` beside that of ``WARMGP_DATA``, or in the one that ``--data`` names. Published rows are scores of the study,
each method run by its own authors on all rows: see ``PUBLISHED``.

- ``ours``: ``GPRegressor()`` as it comes. ``matern12``: the same with ``kernel="matern12"``.
- ``gpboost``: GPBoost's Vecchia approximation, exponential kernel with a range for each input, a constant mean, and
  everything else its own defaults. It runs on the CPU.
- ``pykrige``: PyKrige's ``OrdinaryKriging`` with an exponential variogram and a moving window of 100 points, everything
  else its own defaults. It holds all pairs of points in memory, so that it gets the first 8,000 rows at most.

Everyone has the same rows in the same order, ``--rows`` random ones or all, in degrees and °C, and predicts new
observations. Scores: mean absolute error, RMSE, mean CRPS, mean interval score at 95%, all in °C and the less the
better; the share of test points in the central 95% interval; mean log density in units of the training targets'
standard deviation. CRPS and density are those of a Gaussian. Seconds are of training with the data in memory, and of
predicting all test points. On a GPU ours takes one short step before, so that nobody is charged for compilation.

A method that still trains after ``--limit`` seconds ends with the model it has, or is ended soon after where it cannot
(GPBoost and PyKrige). What ``--out`` has is not done again, but for what was cut at a lower limit, failed, or was not
installed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from benchmarks.limits import Say, Worker
from benchmarks.rivals import Clock, is_done, shown, took
from experiments.common import machine, write_json
from experiments.data import NotAtHandError
from warmgp import ConvergenceWarning, GPRegressor

Array = np.ndarray
Predictor = Callable[[Array], tuple[Array, Array]]  # mean and std of new observations, (m,) each

CHUNK = 16_384
KRIGED = 8_000  # rows for PyKrige, which holds every pair
WINDOW = 100

PUBLISHED = {  # MAE, RMSE, CRPS and coverage
    "SPDE": (1.10, 1.53, 0.83, 0.97),
    "NNGP, conjugate": (1.21, 1.64, 0.85, 0.95),
    "LatticeKrig": (1.22, 1.68, 0.87, 0.96),
    "NNGP, response": (1.24, 1.68, 0.87, 0.94),
    "periodic embedding": (1.29, 1.79, 0.91, 0.93),
    "partition": (1.41, 1.80, 1.02, 0.86),
    "MRA": (1.33, 1.85, 0.94, 0.92),
    "gapfill": (1.33, 1.86, 1.17, 0.36),
    "LAGP": (1.65, 2.08, 1.17, 0.83),
    "tapering": (1.87, 2.45, 1.32, 0.93),
    "metakriging": (2.08, 2.50, 1.44, 0.89),
}
"""Scores of the study: RMSEs that two sources agree on; the rest is from one of them, the code of a later paper on
fixed-rank kriging, which also agrees with the other on the CRPS of the best two. Two methods are left out: sources
differ on the predictive process (RMSE 2.52 or 2.64), and of fixed-rank kriging we have one source alone (2.44)."""


# -- scores ----------------------------------------------------------------------------------------------------------
def crps(y: Array, mean: Array, std: Array) -> Array:
    """∫ (Φ((t − mean)/std) − 1[t ≥ y])² dt = std (z (2Φ(z) − 1) + 2φ(z) − 1/√π) with z = (y − mean)/std, (m,)."""
    z = (y - mean) / std
    inside = torch.special.ndtr(torch.as_tensor(z)).numpy()
    return std * (z * (2 * inside - 1) + 2 * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) - 1 / math.sqrt(math.pi))


def interval_score(y: Array, low: Array, high: Array, level: float = 0.95) -> Array:
    """The width of a central interval, and 2/(1 − level) times how far y lies outside of it, (m,)."""
    return high - low + 2 / (1 - level) * (np.maximum(low - y, 0) + np.maximum(y - high, 0))


def scored(y: Array, mean: Array, std: Array, unit: float) -> dict[str, float]:
    """Mean scores; the log density with y in multiples of ``unit``."""
    reach = NormalDist().inv_cdf(0.975) * std
    z = (y - mean) / std
    return {
        "mae": float(np.mean(np.abs(y - mean))),
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "crps": float(np.mean(crps(y, mean, std))),
        "interval": float(np.mean(interval_score(y, mean - reach, mean + reach))),
        "coverage": float(np.mean(np.abs(y - mean) <= reach)),
        "llh": float(np.mean(-0.5 * z**2 - np.log(std / unit) - 0.5 * math.log(2 * math.pi))),
    }


# -- methods: each trains, and returns what predicts -----------------------------------------------------------------
def ours(x: Array, y: Array, device: str, limit: float, say: Say, **settings: Any) -> Predictor:
    def after(record: Any, state: Any) -> bool:
        say(progress=f"{state.step} steps")
        return clock.late()

    settings = {"device": device, "random_state": 0, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is in the result
        if device == "cuda":
            solver = GPRegressor(**settings).plan(x).solver
            GPRegressor(solver=solver, max_epochs=1.0, n_steps=1, **settings | {"init": "ones"}).fit(x, y)
        clock = Clock(device, limit, say)
        model = GPRegressor(**settings, callbacks=[after]).fit(x, y)
    clock.stop(
        cut=model.stop_reason_ == "callback",
        progress=f"{model.n_steps_} steps",
        converged=model.converged_,
        solve_error=model.solve_error_,
        theta=model.hyperparameters_.vector.tolist(),
        kernel=model.posterior_.kernel.name,
        settings=str(model.plan_),
    )
    return lambda x_new: model.predict(x_new, return_std=True)


def gpboost(x: Array, y: Array, device: str, limit: float, say: Say) -> Predictor:
    from gpboost import GPModel

    clock = Clock("cpu", limit, say)
    kernel = {"cov_function": "matern_ard", "cov_fct_shape": 0.5}
    model = GPModel(gp_coords=x, gp_approx="vecchia", likelihood="gaussian", **kernel)
    model.fit(y=y, X=np.ones((len(y), 1)))
    theta = [float(value) for value in np.ravel(model.get_cov_pars())]
    clock.stop(cut=False, theta=theta, settings="Vecchia approximation, exponential kernel, its own defaults")

    def predict(x_new: Array) -> tuple[Array, Array]:
        constant = np.ones((len(x_new), 1))
        found = model.predict(gp_coords_pred=x_new, X_pred=constant, predict_var=True, predict_response=True)
        return found["mu"], np.sqrt(found["var"])

    return predict


def pykrige(x: Array, y: Array, device: str, limit: float, say: Say) -> Predictor:
    from pykrige.ok import OrdinaryKriging

    x, y = x[:KRIGED], y[:KRIGED]
    clock = Clock("cpu", limit, say)
    model = OrdinaryKriging(x[:, 0], x[:, 1], y, variogram_model="exponential")
    theta = [float(value) for value in model.variogram_model_parameters]
    window = min(WINDOW, len(y))
    clock.stop(cut=False, n_used=len(y), theta=theta, settings=f"exponential variogram, window of {window} points")

    def predict(x_new: Array) -> tuple[Array, Array]:
        mean, variance = model.execute("points", x_new[:, 0], x_new[:, 1], backend="C", n_closest_points=window)
        return np.asarray(mean), np.sqrt(np.maximum(np.asarray(variance), 1e-12))

    return predict


METHODS: dict[str, Callable[..., Predictor]] = {
    "ours": ours,
    "matern12": partial(ours, kernel="matern12"),
    "gpboost": gpboost,
    "pykrige": pykrige,
}
NAMES = {
    "ours": "`GPRegressor()`",
    "matern12": '`GPRegressor(kernel="matern12")`',
    "gpboost": "GPBoost",
    "pykrige": "PyKrige",
}
PACKAGES = {"gpboost": "gpboost", "pykrige": "pykrige"}
ON_A_GPU = ("ours", "matern12")


# -- one method ------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def satellite(folder: str | None) -> dict[str, Array]:
    """The arrays x_train (n, 2), y_train (n,), x_test (m, 2) and y_test (m,), in degrees and °C."""
    uci = os.environ.get("WARMGP_DATA")
    root = Path(folder) if folder else Path(uci).parent / "heaton" if uci else None
    if root is None:
        raise NotAtHandError("the satellite data are not downloaded: name their folder with --data")
    path = root / "satellite.npz"
    if not path.is_file():
        raise NotAtHandError(f"the satellite data are not at hand: there is no {path}")
    with np.load(path) as file:
        return {name: file[name].astype(np.float64) for name in ("x_train", "y_train", "x_test", "y_test")}


def measure(method: str, rows: int, device: str, limit: float, folder: str | None, say: Say) -> None:
    """Train, predict and score; everything that is found is said."""
    try:
        data = satellite(folder)
    except NotAtHandError as absent:
        say(left_out=str(absent))
        return
    if device == "cuda":
        torch.cuda.empty_cache()  # of the method before
    chosen = np.random.default_rng(0).permutation(len(data["y_train"]))[: rows or None]
    x, y, x_test, y_test = data["x_train"][chosen], data["y_train"][chosen], data["x_test"], data["y_test"]
    say(n=len(y), n_test=len(y_test))
    predict = METHODS[method](x, y, device, limit, say)
    began = time.perf_counter()
    parts = [predict(x_test[first : first + CHUNK]) for first in range(0, len(y_test), CHUNK)]
    say(predict_seconds=time.perf_counter() - began)
    mean, std = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        say(failed="it predicts what is not finite, or a std of zero")
        return
    say(**scored(y_test, mean, std, float(data["y_train"].std())))


def where(device: str, threads: int | None) -> dict[str, Any]:
    """The machine, and the versions of everyone."""
    found: dict[str, Any] = {**machine(device), "cores": os.cpu_count(), "threads": threads or "as they come"}
    for package in PACKAGES.values():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


# -- what people see -------------------------------------------------------------------------------------------------
def cells(row: dict[str, Any]) -> list[str]:
    """The columns of the table."""
    rows = f"{row['n_used']:,} of {row['n']:,}" if row.get("n_used", row.get("n")) != row.get("n") else None
    seconds, coverage = row.get("predict_seconds"), row.get("coverage")
    return [
        NAMES[row["method"]] + (", not converged" if row.get("converged") is False else ""),
        rows or (f"{row['n']:,}" if "n" in row else ""),
        *(shown(row.get(name), ".2f") for name in ("mae", "rmse")),
        shown(row.get("crps"), ".3f"),
        shown(row.get("interval"), ".2f"),
        shown(coverage, ".3f"),
        shown(row.get("llh"), ".3f"),
        took(row),
        ("cut" if row.get("doing") == "predicting" else "") if seconds is None else f"{seconds:,.1f} s",
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results in Markdown with the published ones among them, by RMSE, and below it where ours come from."""
    heads = "method | rows | MAE | RMSE | CRPS | interval score | coverage | LLH | training | predicting"
    lines: list[tuple[float, list[str]]] = [(row.get("rmse", math.inf), cells(row)) for row in rows]
    for name, (mae, rmse, score, covered) in PUBLISHED.items():
        own = [f"{mae:.2f}", f"{rmse:.2f}", f"{score:.2f}", "", f"{covered:.2f}"]
        lines.append((rmse, [f"{name} (published)", "105,569", *own, "", "", ""]))
    places: dict[str, dict[str, None]] = {}
    for row in rows:
        if "left_out" not in row:
            text = ", ".join(f"{key} {value}" for key, value in row["machine"].items() if key != "device")
            places.setdefault(f"{row['machine']['device']} ({text})", {})[NAMES[row["method"]]] = None
    body = [f"| {' | '.join(parts)} |" for _, parts in sorted(lines, key=lambda line: line[0])]
    below = [f"- {', '.join(methods)}: {place}" for place, methods in places.items()]
    return "\n".join([f"| {heads} |", "|---" * (heads.count("|") + 1) + "|", *body, "", *below])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--rows", type=int, default=0, help="random training rows; 0 for all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=None, help="threads of the CPU for everyone")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds that one method may train")
    parser.add_argument("--data", default=None, help="folder of satellite.npz")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="print the table of what --out has, and run nothing")
    args = parser.parse_args(arguments)
    rows = json.loads(args.out.read_text())["rows"] if args.out and args.out.is_file() else []
    if args.table:
        print(table(rows))
        return
    if args.threads:  # the process of the work reads them when it starts
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(args.threads))
    with Worker() as worker:
        for method in args.methods:
            device = args.device if method in ON_A_GPU else "cpu"
            key = {"rows": args.rows, "method": method, "device": device}
            old = next((row for row in rows if key.items() <= row.items()), None)
            if old and is_done(old, args.limit):
                continue
            row = {**key, "limit": args.limit, "machine": where(device, args.threads)}
            package = PACKAGES.get(method)
            if package and find_spec(package) is None:
                row["left_out"] = "not installed"
            else:
                work = partial(measure, method, args.rows, device, args.limit, args.data)
                row |= worker.do(work, 1.5 * args.limit + 30)  # to end its step and make a model of what there is
            rows = [row if other is old else other for other in rows] + ([] if old else [row])
            print(" | ".join(cells(row)), flush=True)
            if args.out:
                write_json(args.out, {"rows": rows})


if __name__ == "__main__":
    main()
