"""Ours, scikit-learn's GPR and GPyTorch on the same CPU in one run: fitting, predicting with std, and how good it is.

    python -m benchmarks.laptop pol elevators --sizes 2000 5000 0 --out benchmarks/results/laptop.json --plot laptop.png

Each method fits the same model (Matérn-3/2, one length scale per input, a signal and a noise scale; standardised data)
to the first rows of the training split (0: all of them), in a process of its own, and predicts 1,500 test points with
standard deviations.

- ``warmgp``: ``GPRegressor()`` as it comes. Its test LLH is looked at after every step, which is part of its time, so
  that the table can say when it had passed what the slowest method ends with.
- ``scikit-learn``: ``GaussianProcessRegressor``, its own L-BFGS from ones. Its gradient needs n² · d numbers, so it is
  left out where they do not fit.
- ``gpytorch``: 100 Adam steps of 0.1 from ones with its own settings, which is what its tutorials do.
- ``gpytorch-matched``: the same with our tolerance (0.01), probes (64), a preconditioner of rank 100, in float64.

A method that has not ended after ``--limit`` seconds is cut, and its row says how far it came. A run that was cut goes
on from its ``--out`` file, so that methods can have limits of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers import gpytorch_matched, gpytorch_model, gpytorch_predict, gpytorch_train
from experiments.common import exact_scores_at, machine, scores, write_json
from warmgp.data.datasets import Split, uci
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32
from warmgp.operators import ChunkedOperator

METHODS = ("warmgp", "gpytorch", "gpytorch-matched", "scikit-learn")
Predictions = tuple[np.ndarray, np.ndarray]


def say(**found: Any) -> None:
    """One line for the process that waits: part of this method's row."""
    print(json.dumps(found), flush=True)


def with_warmgp(data: Split, n: int) -> Predictions:
    from warmgp import GPRegressor

    held_out = data.x_test[:1500], data.y_test[:1500]
    began = time.perf_counter()
    model = GPRegressor(random_state=0, device="cpu").fit(data.x_train[:n], data.y_train[:n], validation=held_out)
    fitted = time.perf_counter()
    prediction = model.predict(data.x_test[:1500], return_std=True)
    predicted = time.perf_counter()
    spent = fitted - began - sum(record.step_seconds for record in model.history_)  # a start on part of the data
    curve = []
    for record in model.history_:
        spent += record.step_seconds
        curve.append([spent, record.metrics.get("llh")])
    say(plan=str(model.plan_), estimated_seconds=model.plan_.estimated_seconds, curve=curve)
    say(fit_seconds=fitted - began, predict_seconds=predicted - fitted)
    return prediction


def with_sklearn(data: Split, n: int) -> Predictions:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    d = data.x_train.shape[1]
    kernel = ConstantKernel(1.0) * Matern(np.ones(d), nu=1.5) + WhiteKernel(1.0)
    began = time.perf_counter()
    model = GaussianProcessRegressor(kernel, alpha=0.0, random_state=0).fit(data.x_train[:n], data.y_train[:n])
    fitted = time.perf_counter()
    prediction = model.predict(data.x_test[:1500], return_std=True)
    say(fit_seconds=fitted - began, predict_seconds=time.perf_counter() - fitted)
    return prediction


def with_gpytorch(data: Split, n: int, *, matched: bool = False) -> Predictions:
    dtype = torch.float64 if matched else torch.float32
    parts = data.x_train[:n], data.y_train[:n], data.x_test[:1500]
    x, y, x_test = (torch.as_tensor(part, dtype=dtype) for part in parts)
    torch.manual_seed(0)
    model, likelihood = gpytorch_model(x, y, Hyperparameters.ones(x.shape[1]))
    with gpytorch_matched() if matched else contextlib.nullcontext():
        began = time.perf_counter()
        gpytorch_train(model, likelihood, x, y, 100, lambda step: say(steps=step))
        fitted = time.perf_counter()
        say(fit_seconds=fitted - began)
        say(**exact_prediction(model, likelihood, data, n))
        fitted = time.perf_counter()
        mean, variance = gpytorch_predict(model, likelihood, x_test)
        say(predict_seconds=time.perf_counter() - fitted)
    return mean.numpy(), variance.sqrt().numpy()


def exact_prediction(model: Any, likelihood: Any, data: Split, n: int) -> dict[str, float]:
    """Scores of exact float64 prediction with what GPyTorch has learnt, should its own take too long to wait for."""
    kernel = model.covar_module
    scales = likelihood.noise.item() ** 0.5, kernel.outputscale.item() ** 0.5
    theta = Hyperparameters(*scales, kernel.base_kernel.lengthscale.detach()[0].tolist())
    parts = data.x_train[:n], data.y_train[:n], data.x_test[:1500], data.y_test[:1500]
    x, y, x_test, y_test = (torch.as_tensor(part) for part in parts)
    found = exact_scores_at(ChunkedOperator(x, Matern32(), theta), y, x_test, y_test)
    return {"llh_exact_prediction": found["llh"], "rmse_exact_prediction": found["rmse"]}


FUNCTIONS = {
    "warmgp": with_warmgp,
    "scikit-learn": with_sklearn,
    "gpytorch": with_gpytorch,
    "gpytorch-matched": partial(with_gpytorch, matched=True),
}


def measure(method: str, dataset: str, n: int, folder: str | None) -> None:
    """One method in this process."""
    data = uci(dataset, 0, folder=folder)
    mean, std = FUNCTIONS[method](data, n)
    test = scores(torch.as_tensor(mean), torch.as_tensor(std).square(), torch.as_tensor(data.y_test[:1500]))
    say(**test, peak_gib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def left_out(method: str, n: int, d: int, memory: float) -> str:
    """Why a method is not run at this size; empty where it is."""
    need = n * n * d * 8 * 3 / 2**30
    if method == "scikit-learn" and need > memory:
        return f"its gradient and copies would take {need:.0f} GiB"
    return ""


def compare(rows: list[dict[str, Any]]) -> None:
    """Add to our rows when they had passed the least of the test LLHs that the methods end with at that size."""
    for row in rows:
        if "curve" in row:
            same = [r["llh"] for r in rows if "llh" in r and (r["dataset"], r["n"]) == (row["dataset"], row["n"])]
            curve = [*row["curve"], [row["fit_seconds"], row["llh"]]]  # the last solve goes further than those before
            passed = [seconds for seconds, llh in curve if llh is not None and llh >= min(same)]
            row["seconds_to_least_llh"] = passed[0] if passed else None


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Fitting and predicting, one panel each, seconds by size; a fit that was cut is an open marker, as a bound."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, NullFormatter

    done = [row for row in rows if "left_out" not in row]
    datasets = list(dict.fromkeys(row["dataset"] for row in done))
    figure, axes = plt.subplots(2, len(datasets), figsize=(4.8 * len(datasets), 6.6), squeeze=False)
    markers = dict(zip(METHODS, "osD^", strict=True))
    colours = dict(zip(METHODS, ("#0072B2", "#D55E00", "#CC79A7", "#009E73"), strict=True))  # colour-blind safe
    for column, dataset in enumerate(datasets):
        for line, (what, title) in enumerate(
            (("fit_seconds", "fitting"), ("predict_seconds", "predicting 1,500 points with std"))
        ):
            axis = axes[line, column]
            for method in METHODS:
                style = {"marker": markers[method], "color": colours[method]}
                own = [r for r in done if (r["dataset"], r["method"]) == (dataset, method)]
                mine = sorted((r["n"], r[what]) for r in own if what in r)
                cut = [(r["n"], r["cut_after_seconds"]) for r in own if what not in r and what == "fit_seconds"]
                axis.plot(*zip(*mine, strict=True), **style) if mine else None
                axis.plot(*zip(*cut, strict=True), **style, fillstyle="none", linestyle="") if cut else None
            sizes = sorted({r["n"] for r in done if r["dataset"] == dataset})
            axis.set(xscale="log", yscale="log", ylabel="seconds", xticks=sizes, xticklabels=[f"{n:,}" for n in sizes])
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.yaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t:g}"))
            axis.yaxis.set_minor_formatter(NullFormatter())
            axis.set_ylim(*(3, 3000) if line == 0 else (0.01, 1000))
            axis.set_title(f"{dataset}: {title}", fontsize=10)
            axis.grid(alpha=0.3)
        axes[1, column].set_xlabel("training points")
    names = {"color": "grey", "linestyle": ""}
    handles = [Line2D([], [], marker=markers[m], color=colours[m], label=m) for m in METHODS]
    handles.append(Line2D([], [], marker="o", fillstyle="none", label="cut: at least this", **names))
    figure.legend(handles=handles, fontsize=8, ncols=len(handles), loc="lower center", frameon=False)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--sizes", type=int, nargs="*", default=[2000, 5000, 0], help="0: all points")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA, else a download)")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB that scikit-learn's gradient may take")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one method at one size")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # measure one method in this process
    args = parser.parse_args()
    if args.one:
        measure(args.one, args.datasets[0], args.sizes[0], args.data)
        return
    rows = json.loads(args.out.read_text())["rows"] if args.out and args.out.exists() else []
    print(f"{'':<10} {'method':<17} {'n':>7} {'fit':>10} {'predict':>10} {'LLH':>8} {'RMSE':>7} {'peak':>9}")
    for dataset in args.datasets:
        whole, d = uci(dataset, 0, folder=args.data).x_train.shape
        for size in args.sizes:
            n = min(size or whole, whole)
            for method in args.methods:
                row = next((r for r in rows if (r["dataset"], r["n"], r["method"]) == (dataset, n, method)), None)
                if row is None:
                    row = {"dataset": dataset, "n": n, "method": method}
                    reason = left_out(method, n, d, args.memory)
                    row |= {"left_out": reason} if reason else run_one(method, dataset, n, args.data, args.limit)
                    rows.append(row)
                show(row)
                if args.out:
                    compare(rows)
                    write_json(args.out, {"machine": machine("cpu"), "rows": rows})
    if args.plot:
        draw(rows, args.plot)


def run_one(method: str, dataset: str, n: int, folder: str | None, limit: float) -> dict[str, Any]:
    """What one method says in a process of its own, until it ends or is cut."""
    command = [sys.executable, "-m", "benchmarks.laptop", dataset, "--sizes", str(n), "--one", method]
    command += ["--data", folder] if folder else []
    cut: dict[str, Any] = {}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(command, stdout=output, stderr=errors, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            cut = {"cut_after_seconds": limit}
        else:
            if done.returncode:
                errors.seek(0)
                sys.exit(f"{method} failed:\n{errors.read()[-2000:]}")
        output.seek(0)
        found: dict[str, Any] = {}
        for line in output.read().splitlines():
            found |= json.loads(line)
    return found | cut


def show(row: dict[str, Any]) -> None:
    head = f"{row['dataset']:<10} {row['method']:<17} {row['n']:>7,}"
    if "left_out" in row:
        print(f"{head} left out: {row['left_out']}", flush=True)
    elif "cut_after_seconds" in row:
        far = f"fitted in {row['fit_seconds']:.0f} s" if "fit_seconds" in row else f"{row.get('steps', 0)} of 100 steps"
        print(f"{head} cut after {row['cut_after_seconds']:.0f} s: {far}", flush=True)
    else:
        print(
            f"{head} {row['fit_seconds']:>8.1f} s {row['predict_seconds']:>8.2f} s "
            f"{row['llh']:>8.3f} {row['rmse']:>7.4f} {row['peak_gib']:>5.2f} GiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
