"""You have a table of numbers and want predictions with an interval: what would you pick, and what does it cost?

    python -m benchmarks.rivals --device cuda --out rivals-h200.json
    python -m benchmarks.rivals --datasets bike --rows 3000 --device cpu --limit 900 --out rivals-cpu.json
    python -m benchmarks.rivals --table --out rivals-h200.json     # the table of docs/performance.md, nothing is run

Four methods train on the same rows and predict the same test points, on one machine:

- ``ours``: ``GPRegressor()`` as it comes.
- ``svgp``: GPyTorch's SVGP. 1,024 inducing points, which start at random rows and are learnt, a whitened full Gaussian,
  Matérn-3/2 with one length scale per input, minibatches of 1,024 rows, Adam with 0.01, float32: 100 epochs up to
  100,000 rows and 20 beyond, and never fewer than 2,000 steps.
- ``gpboost``: GPBoost's Vecchia approximation, the same kernel, everything else its own defaults (20 neighbours,
  L-BFGS until it ends). It always runs on the CPU.
- ``trees``: scikit-learn's ``HistGradientBoostingRegressor``. One model for the mean, and one for each of the quantiles
  5, 50 and 95%, up to 2,000 trees each, until 20 of them have not helped on a tenth of the rows. On the CPU, too.

The data are 500,000 random training rows of houseelectric, and all of protein, keggdirected, bike and terrain (or
``--rows`` random rows of each), in standardised units. Seconds are those of training, with the data in memory (for SVGP
on the device); on a GPU ours takes one short step before and SVGP two, so that nobody is charged for compilation.
Predictions are made 16,384 rows at a time. Scores: RMSE; mean log density (trees have none); the mean pinball loss of
the quantiles 5, 50 and 95%, which for the others are those of a Gaussian; the share of test points in the central 90%
interval, and its mean width.

A method that still trains after ``--limit`` seconds ends with the model it has, and its row is marked as cut. One that
does not end by itself soon after (GPBoost cannot; trees only between two models) is ended, and its row has no scores.
What ``--out`` has is not done again, but for what was cut at a lower limit, failed, or was not installed.

The two numbers, for n points with d inputs. Ours: a product of H with 65 columns has n² kernel entries with 2·(65 + d)
operations each. It reads 4n² bytes where H is stored in float32, and 4n·(65 + d) bytes for each tile of rows where it
is not. With 30 steps of 10 products, 500,000 × 11 are 1.1·10¹⁶ operations. SVGP with m = 1,024: a step is about 16 m³ =
1.7·10¹⁰ operations (a factor, a solve and two products, and about twice that for the gradient) on a dozen matrices of
4 or 8 MiB. 20 epochs of 500,000 rows are 9,780 steps, 1.7·10¹⁴ operations. So SVGP does a sixtieth of the work there,
and the question is what the rest is good for.
"""

from __future__ import annotations

import argparse
import json
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
from benchmarks.maps import part_of
from benchmarks.peers import gpytorch_predict, gpytorch_svgp, gpytorch_svgp_train
from experiments.common import machine, write_json
from experiments.common import scores as gaussian_scores
from experiments.data import NotAtHandError, split_of
from warmgp import ConvergenceWarning, GPRegressor
from warmgp.data.datasets import Split

DATASETS = {"houseelectric": 500_000, "protein": 0, "keggdirected": 0, "bike": 0, "terrain": 0}  # rows; 0 for all
LEVELS = (0.05, 0.5, 0.95)
CHUNK = 16_384
INDUCING = BATCH = 1024
TREES = 2000

Array = np.ndarray
Predictor = Callable[[Array], dict[str, Array]]  # "mean" (m,), and "std" (m,) or "quantiles" (3, m) where there are any


# -- scores ----------------------------------------------------------------------------------------------------------
def pinball(y: Array, quantile: Array, level: float) -> float:
    """Mean of level·(y − q) above the quantile and (1 − level)·(q − y) below."""
    over = y - quantile
    return float(np.mean(np.maximum(level * over, (level - 1) * over)))


def scored(y: Array, mean: Array, std: Array | None = None, quantiles: Array | None = None) -> dict[str, Any]:
    """Test scores; None for what a method does not predict."""
    found: dict[str, Any] = {"rmse": float(np.sqrt(np.mean((y - mean) ** 2)))}
    found |= dict.fromkeys(("llh", "pinball", "coverage", "width"))
    if std is not None:
        found["llh"] = gaussian_scores(*(torch.as_tensor(part) for part in (mean, std**2, y)))["llh"]
        quantiles = np.stack([mean + NormalDist().inv_cdf(level) * std for level in LEVELS])
    if quantiles is not None:
        low, _, high = quantiles
        found["pinball"] = [pinball(y, q, level) for q, level in zip(quantiles, LEVELS, strict=True)]
        found["coverage"] = float(np.mean((low <= y) & (y <= high)))
        found["width"] = float(np.mean(high - low))
    return found


# -- methods: each trains, and returns what predicts -----------------------------------------------------------------
class Clock:
    """Times a training, and says when its time is over."""

    def __init__(self, device: str, limit: float, say: Say) -> None:
        self.device, self.limit, self.say = device, limit, say
        self._wait()
        say(doing="training")
        self.began = time.perf_counter()

    def late(self) -> bool:
        return time.perf_counter() - self.began > self.limit

    def stop(self, **found: Any) -> None:
        self._wait()
        self.say(seconds=time.perf_counter() - self.began, doing="predicting", **found)

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def ours(x: Array, y: Array, device: str, limit: float, say: Say) -> Predictor:
    def after(record: Any, state: Any) -> bool:
        say(progress=f"{state.step} steps")
        return clock.late()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is in the result
        if device == "cuda":
            solver = GPRegressor(device=device).plan(x).solver
            GPRegressor(solver=solver, max_epochs=1.0, n_steps=1, init="ones", device=device, random_state=0).fit(x, y)
        clock = Clock(device, limit, say)
        model = GPRegressor(device=device, random_state=0, callbacks=[after]).fit(x, y)
    clock.stop(
        cut=model.stop_reason_ == "callback",
        progress=f"{model.n_steps_} steps",
        converged=model.converged_,
        solve_error=model.solve_error_,
        epochs=sum(record.epochs for record in model.history_),
        settings=str(model.plan_),
    )

    def predict(x_new: Array) -> dict[str, Array]:
        mean, std = model.predict(x_new, return_std=True)
        return {"mean": mean, "std": std}

    return predict


def svgp_steps(n: int) -> int:
    return max(2000, (100 if n <= 100_000 else 20) * -(-n // BATCH))


def svgp(x: Array, y: Array, device: str, limit: float, say: Say) -> Predictor:
    inputs, targets = (torch.as_tensor(part).float().to(device) for part in (x, y))
    steps = svgp_steps(len(y))

    def stop(done: int) -> bool:
        if done % 100 == 0:
            say(progress=f"{done:,} of {steps:,} steps")
        return clock.late()

    torch.manual_seed(0)
    start = inputs[:INDUCING].clone()  # the rows are in random order
    if device == "cuda":
        gpytorch_svgp_train(*gpytorch_svgp(start), inputs, targets, 2, BATCH, lambda done: False)
    clock = Clock(device, limit, say)
    model, likelihood = gpytorch_svgp(start)
    done = gpytorch_svgp_train(model, likelihood, inputs, targets, steps, BATCH, stop)
    clock.stop(
        cut=done < steps,
        progress=f"{done:,} of {steps:,} steps",
        noise=float(likelihood.noise.detach()) ** 0.5,
        settings=f"{len(start):,} inducing points, {steps:,} Adam steps of 0.01 on {BATCH:,} rows each",
    )

    def predict(x_new: Array) -> dict[str, Array]:
        mean, variance = gpytorch_predict(model, likelihood, torch.as_tensor(x_new).float().to(device))
        return {"mean": mean.double().numpy(), "std": variance.double().sqrt().numpy()}

    return predict


def gpboost(x: Array, y: Array, device: str, limit: float, say: Say) -> Predictor:
    from gpboost import GPModel

    clock = Clock("cpu", limit, say)
    kernel = {"cov_function": "matern_ard", "cov_fct_shape": 1.5}
    model = GPModel(gp_coords=x, gp_approx="vecchia", likelihood="gaussian", **kernel)
    model.fit(y=y)
    noise = float(np.ravel(model.get_cov_pars())[0]) ** 0.5
    clock.stop(cut=False, noise=noise, settings="Vecchia approximation, Matérn-3/2, its own defaults")

    def predict(x_new: Array) -> dict[str, Array]:
        found = model.predict(gp_coords_pred=x_new, predict_var=True, predict_response=True)
        return {"mean": found["mu"], "std": np.sqrt(found["var"])}

    return predict


def trees(x: Array, y: Array, device: str, limit: float, say: Say) -> Predictor:
    from sklearn.ensemble import HistGradientBoostingRegressor

    losses = [{"loss": "squared_error"}, *({"loss": "quantile", "quantile": level} for level in LEVELS)]
    models: list[Any] = []
    clock = Clock("cpu", limit, say)
    for loss in losses:
        if models and clock.late():
            break
        model = HistGradientBoostingRegressor(
            **loss, max_iter=TREES, early_stopping=True, n_iter_no_change=20, random_state=0
        )
        models.append(model.fit(x, y))
        say(progress=f"{len(models)} of {len(losses)} models")
    clock.stop(
        cut=len(models) < len(losses),
        trees=[model.n_iter_ for model in models],
        settings=f"at most {TREES:,} trees a model, early stopping, its own defaults",
    )

    def predict(x_new: Array) -> dict[str, Array]:
        mean, *quantiles = (model.predict(x_new) for model in models)
        return {"mean": mean} | ({"quantiles": np.stack(quantiles)} if len(quantiles) == len(LEVELS) else {})

    return predict


METHODS = {"ours": ours, "svgp": svgp, "gpboost": gpboost, "trees": trees}
NAMES = {"ours": "`GPRegressor()`", "svgp": "GPyTorch's SVGP", "gpboost": "GPBoost", "trees": "boosted trees"}
PACKAGES = {"svgp": "gpytorch", "gpboost": "gpboost"}
ON_A_GPU = ("ours", "svgp")


# -- one method on one set -------------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def data_of(dataset: str, folder: str | None) -> Split:
    return split_of(dataset, 0, folder)


def measure(method: str, dataset: str, rows: int, device: str, limit: float, folder: str | None, say: Say) -> None:
    """Train, predict and score; everything that is found is said."""
    try:
        data = data_of(dataset, folder)
    except NotAtHandError as absent:
        say(left_out=str(absent))
        return
    if device == "cuda":
        torch.cuda.empty_cache()  # of the method before
    x, y = part_of(data, rows)
    say(n=len(y), d=x.shape[1], n_test=len(data.y_test))
    predict = METHODS[method](x, y, device, limit, say)
    began = time.perf_counter()
    parts = [predict(data.x_test[first : first + CHUNK]) for first in range(0, len(data.y_test), CHUNK)]
    say(predict_seconds=time.perf_counter() - began)
    prediction = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    if not all(np.isfinite(values).all() for values in prediction.values()) or np.any(prediction.get("std", 1.0) <= 0):
        say(failed="it predicts what is not finite, or a std of zero")
        return
    say(**scored(data.y_test, **prediction))


def where(device: str) -> dict[str, Any]:
    """The machine, and the versions of everyone."""
    found: dict[str, Any] = {**machine(device), "cores": os.cpu_count()}
    for package in ("scikit-learn", "gpytorch", "gpboost"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def is_done(row: dict[str, Any], limit: float) -> bool:
    """Whether it would be the same again: not where it could not be done, or was cut at a lower limit."""
    return not ("left_out" in row or "failed" in row or (row.get("cut") and row["limit"] < limit))


# -- what people see -------------------------------------------------------------------------------------------------
def shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form).replace("-", "−")


def took(row: dict[str, Any]) -> str:
    """How long training took, or why there is nothing to say."""
    if "left_out" in row or "failed" in row:
        return row.get("left_out") or f"failed: {row['failed'].replace('|', '/')}"
    far = f", {row['progress']}" if "progress" in row else ""
    cut = row["cut"] and row.get("doing") != "predicting"
    return f"cut at {row['limit']:,.0f} s{far}" if cut else f"{row['seconds']:,.1f} s"


def cells(row: dict[str, Any]) -> list[str]:
    """The columns of the table from the method on."""
    name = NAMES[row["method"]] + (", not converged" if row.get("converged") is False else "")
    losses, coverage, seconds = row.get("pinball"), row.get("coverage"), row.get("predict_seconds")
    predicting = "cut" if row.get("doing") == "predicting" else ""  # its process was ended there
    return [
        name,
        took(row),
        predicting if seconds is None else f"{seconds:,.2f} s",
        shown(row.get("rmse"), ".4f"),
        shown(row.get("llh"), ".3f"),
        shown(None if losses is None else float(np.mean(losses)), ".4f"),
        "" if coverage is None else f"{100 * coverage:.1f}%",
        shown(row.get("width"), ".3f"),
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results in Markdown, and below it where they come from."""
    heads = "points | method | training | predicting | RMSE | LLH | pinball loss | in the 90% interval | its width"
    lines = [f"| {heads} |", "|---" * (heads.count("|") + 1) + "|"]
    sets = list(dict.fromkeys((row["dataset"], row["rows"]) for row in rows))
    for dataset, asked in sets:
        same = [row for row in rows if (row["dataset"], row["rows"]) == (dataset, asked)]
        sizes = {(row["n"], row["d"]) for row in same if "n" in row}
        what = "".join(f"{n:,} of *{dataset}* ({d} inputs)" for n, d in sizes) or f"*{dataset}*"
        for row in sorted(same, key=lambda row: list(METHODS).index(row["method"])):
            lines.append(f"| {' | '.join([what, *cells(row)])} |")
            what = ""
    places: dict[str, dict[str, None]] = {}
    for row in rows:
        if "left_out" not in row:
            text = ", ".join(f"{key} {value}" for key, value in row["machine"].items() if key != "device")
            places.setdefault(f"{row['machine']['device']} ({text})", {})[NAMES[row["method"]]] = None
    return "\n".join([*lines, "", *(f"- {', '.join(methods)}: {place}" for place, methods in places.items())])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--rows", type=int, default=None, help="random training rows of each set; 0 for all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that one method may train on one set")
    parser.add_argument("--data", default=None, help="folder of the UCI sets, beside which terrain lies")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="print the table of what --out has, and run nothing")
    args = parser.parse_args(arguments)
    rows = json.loads(args.out.read_text())["rows"] if args.out and args.out.is_file() else []
    if args.table:
        print(table(rows))
        return
    with Worker() as worker:
        for dataset in args.datasets:
            for method in args.methods:
                device = args.device if method in ON_A_GPU else "cpu"
                asked = DATASETS.get(dataset, 0) if args.rows is None else args.rows
                key = {"dataset": dataset, "rows": asked, "method": method, "device": device}
                old = next((row for row in rows if key.items() <= row.items()), None)
                if old and is_done(old, args.limit):
                    continue
                row = {**key, "limit": args.limit, "machine": where(device)}
                package = PACKAGES.get(method)
                if package and find_spec(package) is None:
                    row["left_out"] = "not installed"
                else:
                    work = partial(measure, method, dataset, asked, device, args.limit, args.data)
                    row |= worker.do(work, 1.5 * args.limit + 30)  # to end its step and make a model of what there is
                rows = [row if other is old else other for other in rows] + ([] if old else [row])
                print(f"{dataset}: {' | '.join(cells(row))}", flush=True)
                if args.out:
                    write_json(args.out, {"rows": rows})


if __name__ == "__main__":
    main()
