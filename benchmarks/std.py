"""How exact a std from samples is, alone and with near points as its control, and what a prediction costs with either.

    OMP_NUM_THREADS=1 python -m benchmarks.std --sets pol terrain satellite --out benchmarks/results/std-cpu.json
    python -m benchmarks.std --sizes 5000 20000 --device cuda --out benchmarks/results/std-h200.json

Hyperparameters are trained on 2,000 rows, exactly. At these a model of each size is solved by the default plan's
tolerance, with 64 samples, and asked for 2,000 test points. Exact variances come from a factor of H in float64, from
the inputs as they came. Errors are root mean squares of std/exact std − 1, of new observations (as ``predict`` returns
it) and latent; *said* is what ``std_error`` says. Seconds are medians over repeats of the two in turn: on a CPU those
of the process itself, because other work on a machine is no part of them, on a GPU those of the clock. With ``--add``
rows that a file has already are kept. The satellite set is looked for in ``heaton/satellite.npz`` beside the folder of
the UCI sets.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.common import machine, write_json
from experiments.data import split_of
from warmgp import ChunkedOperator, GPRegressor, Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.solvers.cholesky import factorise

NEW, REPEATS, TRAINED_ON = 2000, 7, 2000


def rows_of(name: str, folder: str | None, n: int) -> tuple[np.ndarray, ...]:
    """X, y of n random training rows, X, y of test rows, in units of the training rows."""
    if name == "satellite":
        parts = np.load(Path(folder or "data/uci").parent / "heaton" / "satellite.npz")
        x, y, x_test, y_test = (parts[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    else:
        split = split_of(name, 0, folder)
        x, y, x_test, y_test = split.x_train, split.y_train, split.x_test, split.y_test
    rng = np.random.default_rng(0)
    some, new = rng.permutation(len(x))[:n], rng.permutation(len(x_test))[:NEW]
    x, y, x_test, y_test = x[some], y[some], x_test[new], y_test[new]
    scale = np.where(x.std(0) > 1e-6, x.std(0), 1.0)
    return (
        (x - x.mean(0)) / scale,
        (y - y.mean()) / y.std(),
        (x_test - x.mean(0)) / scale,
        (y_test - y.mean()) / y.std(),
    )


def exact_variance(x: np.ndarray, x_new: np.ndarray, kernel: str, theta: Hyperparameters, device: str) -> np.ndarray:
    """The latent variance, (m,), by a factor of H in float64."""
    H = ChunkedOperator(torch.tensor(x).to(device), get_kernel(kernel), theta)
    half = torch.linalg.solve_triangular(factorise(H), H.kernel_between(torch.tensor(x_new).to(device)), upper=False)
    return (H.signal_variance - half.square().sum(0)).cpu().numpy()


def errors(variance: np.ndarray, truth: np.ndarray, noise: float) -> dict[str, float]:
    """Root mean square and mean of the relative error of the std, of observations and latent."""
    found = {}
    for name, more in (("observation", noise), ("latent", 0.0)):
        off = np.sqrt((variance + more) / (truth + more)) - 1
        found |= {f"{name}_error": float(np.sqrt(np.mean(off**2))), f"{name}_bias": float(off.mean())}
    return found


def measured(name: str, folder: str | None, n: int, kernel: str, theta: Hyperparameters, device: str) -> dict[str, Any]:
    """One row of the results."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    x, y, x_new, y_new = rows_of(name, folder, n)
    model = GPRegressor(
        kernel, solver="cg", n_steps=0, init=theta, standardize=False, random_state=0, device=device
    ).fit(x, y)
    control, noise = model.posterior_, model.posterior_.noise_variance
    kinds = {"alone": replace(control, targets=None), "control": control}
    truth = exact_variance(x, x_new, kernel, theta, device)
    row: dict[str, Any] = {"set": name, "kernel": kernel, "n": len(x), "d": x.shape[1], "samples": control.n_samples}
    row |= {"dtype": str(control.x.dtype), "converged": model.converged_, "noise_scale": float(theta.noise_scale)}
    row["noise_share"] = float(np.mean(noise / (noise + truth)))
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(1 + REPEATS):
        for kind, posterior in kinds.items():
            model.posterior_ = posterior
            began = clock()
            mean, std = model.predict(x_new, return_std=True)
            seconds[kind].append(clock() - began)
            inside = float(np.mean(np.abs(y_new - mean) <= 1.96 * std))
            row[kind] = errors(std**2 - noise, truth, noise) | {"coverage_95": inside}
    for kind in kinds:
        row[kind]["seconds"] = statistics.median(seconds[kind][1:])  # the first is the start of libraries
    exact = np.sqrt(truth + noise)
    row["exact"] = {"coverage_95": float(np.mean(np.abs(y_new - mean) <= 1.96 * exact))}
    said = {which: model.std_error(x_new, include_noise=which == "observation") for which in ("observation", "latent")}
    row["control"] |= {f"{which}_said": float(np.sqrt(np.mean(error**2))) for which, error in said.items()}
    row["times_the_time"] = statistics.median(c / a for a, c in zip(seconds["alone"], seconds["control"], strict=True))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["pol", "terrain", "satellite"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2_000, 5_000, 10_000, 20_000])
    parser.add_argument("--kernel", default="matern32")
    parser.add_argument("--data", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--add", action="store_true", help="keep the rows that the file has")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = json.loads(args.out.read_text())["rows"] if args.add and args.out and args.out.exists() else []
    for name in args.sets:
        x, y, *_ = rows_of(name, args.data, TRAINED_ON)
        theta = (
            GPRegressor(args.kernel, standardize=False, random_state=0, device=args.device).fit(x, y).hyperparameters_
        )
        for n in args.sizes:
            row = measured(name, args.data, n, args.kernel, theta, args.device)
            rows.append(row)
            alone, control = row["alone"], row["control"]
            print(f"{name} {row['n']:,} x {row['d']}: observation {alone['observation_error']:.1%} -> "
                  f"{control['observation_error']:.2%}, latent {alone['latent_error']:.1%} -> "
                  f"{control['latent_error']:.2%} (said {control['latent_said']:.2%}), "
                  f"{row['times_the_time']:.2f} times the time", flush=True)  # fmt: skip
            if args.out:
                write_json(args.out, {"machine": machine(args.device), "rows": rows})


if __name__ == "__main__":
    main()
