"""Ours, scikit-learn's GPR and GPyTorch on the same CPU in one run: fitting, predicting with std, and how good it is.

    python -m benchmarks.laptop pol --sizes 2000 --out benchmarks/results/laptop-pol.json

Each method fits the same model (Matérn-3/2, one length scale per input, a signal and a noise scale; standardised data)
to the first rows of the training split, in a process of its own, and predicts 1,500 test points with standard
deviations. ``warmgp`` is ``GPRegressor()`` as it comes. ``scikit-learn`` is ``GaussianProcessRegressor`` with its own
L-BFGS from ones. Its gradient needs n² · d numbers, so it is left out where they do not fit. ``gpytorch`` is 100 Adam
steps of 0.1 from ones with its own settings, which is what its tutorials do.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers import gpytorch_model, gpytorch_predict, gpytorch_train
from experiments.common import machine, scores, write_json
from warmgp.datasets import Split, uci
from warmgp.hyperparameters import Hyperparameters

METHODS = ("warmgp", "scikit-learn", "gpytorch")
Predictions = tuple[np.ndarray, np.ndarray]


def with_warmgp(data: Split, n: int) -> tuple[float, float, Predictions]:
    from warmgp import GPRegressor

    began = time.perf_counter()
    model = GPRegressor(random_state=0, device="cpu").fit(data.x_train[:n], data.y_train[:n])
    fitted = time.perf_counter()
    prediction = model.predict(data.x_test[:1500], return_std=True)
    return fitted - began, time.perf_counter() - fitted, prediction


def with_sklearn(data: Split, n: int) -> tuple[float, float, Predictions]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    d = data.x_train.shape[1]
    kernel = ConstantKernel(1.0) * Matern(np.ones(d), nu=1.5) + WhiteKernel(1.0)
    began = time.perf_counter()
    model = GaussianProcessRegressor(kernel, alpha=0.0, random_state=0).fit(data.x_train[:n], data.y_train[:n])
    fitted = time.perf_counter()
    prediction = model.predict(data.x_test[:1500], return_std=True)
    return fitted - began, time.perf_counter() - fitted, prediction


def with_gpytorch(data: Split, n: int) -> tuple[float, float, Predictions]:
    x, y, x_test = (
        torch.as_tensor(part, dtype=torch.float32) for part in (data.x_train[:n], data.y_train[:n], data.x_test[:1500])
    )
    torch.manual_seed(0)
    model, likelihood = gpytorch_model(x, y, Hyperparameters.ones(x.shape[1]))
    began = time.perf_counter()
    gpytorch_train(model, likelihood, x, y, 100)
    fitted = time.perf_counter()
    mean, variance = gpytorch_predict(model, likelihood, x_test)
    return fitted - began, time.perf_counter() - fitted, (mean.numpy(), variance.sqrt().numpy())


def measure(method: str, dataset: str, n: int, folder: str | None) -> dict[str, Any]:
    """One method in this process."""
    data = uci(dataset, 0, folder=folder)
    n = min(n, len(data.x_train))
    function = {"warmgp": with_warmgp, "scikit-learn": with_sklearn, "gpytorch": with_gpytorch}[method]
    fit_seconds, predict_seconds, (mean, std) = function(data, n)
    test = scores(torch.as_tensor(mean), torch.as_tensor(std).square(), torch.as_tensor(data.y_test[:1500]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "dataset": dataset, "n": n, "method": method, "fit_seconds": fit_seconds, "predict_seconds": predict_seconds,
        **test, "peak_gib": peak,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--sizes", type=int, nargs="*", default=[2000])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA, else a download)")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB that scikit-learn's gradient may take")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # measure one method in this process
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.dataset, args.sizes[0], args.data)))
        return
    rows = []
    print(f"{'method':<14} {'n':>7} {'fit':>10} {'predict':>10} {'LLH':>8} {'RMSE':>7} {'peak':>9}")
    d = uci(args.dataset, 0, folder=args.data).x_train.shape[1]
    for n in args.sizes:
        for method in args.methods:
            if method == "scikit-learn" and n * n * d * 8 * 3 > args.memory * 2**30:
                print(
                    f"{method:<14} {n:>7,} left out: its gradient would need {n * n * d * 8 / 2**30:.1f} GiB and copies"
                )
                rows.append(
                    {"dataset": args.dataset, "n": n, "method": method, "left_out": "n² · d numbers do not fit"}
                )
                continue
            command = [sys.executable, "-m", "benchmarks.laptop", args.dataset, "--sizes", str(n), "--one", method]
            if args.data:
                command += ["--data", args.data]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{method} failed:\n{done.stderr[-2000:]}")
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            print(
                f"{method:<14} {row['n']:>7,} {row['fit_seconds']:>8.1f} s {row['predict_seconds']:>8.2f} s "
                f"{row['llh']:>8.3f} {row['rmse']:>7.4f} {row['peak_gib']:>5.2f} GiB",
                flush=True,
            )
            if args.out:
                write_json(args.out, {"machine": machine("cpu"), "rows": rows})


if __name__ == "__main__":
    main()
