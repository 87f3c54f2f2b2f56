"""Maps (two inputs), ``GPRegressor()`` as it comes beside other solvers: whole trainings and their test scores.

    python -m benchmarks.maps --sizes 20000 --device cpu --grids 0 400 --limit 400 --out maps-cpu.json
    python -m benchmarks.maps --methods default --device cuda --out maps-h200.json

The data are heights by longitude and latitude (*terrain*), all 391,216 training points or a random part; every method
predicts the same test points. ``default`` plans for itself, which is conjugate gradients with near neighbours from
6,000 points; ``factor`` has whole factors instead, ``ap`` alternating projections with ten epochs a step. ``ski`` is
what GPyTorch has for maps, a kernel interpolated from a regular grid, with its own settings: 100 Adam steps of 0.1 from
ones in float32, and fast variances; ``--grids`` are points a side, 0 for what it chooses (as many as data in all).
What ``--out`` has is not done again. Seconds are those of ``fit``, from reading its arguments to the last solve, and
those of GPyTorch's training.

The two numbers for n points and 65 columns: a product with H is n² kernel entries, and for each 2·65 operations; H is
4 n² bytes where it is stored. A step needs 4 to 8 products with neighbours, and about as many with whole factors,
which cost n³/3 operations on top, once in nine steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers import gpytorch_model, gpytorch_predict, gpytorch_train
from experiments.common import machine, write_json
from experiments.data import split_of
from warmgp import ConjugateGradients, ConvergenceWarning, GPRegressor, Hyperparameters
from warmgp.data.datasets import Split

COLUMNS = 65
METHODS = ("default", "factor", "ap")
PEER = "ski"


def options(method: str, n: int) -> dict[str, Any]:
    """What is asked for beside the defaults."""
    if method == "factor":
        return {"solver": ConjugateGradients(0, factor_after=max(2, n // (12 * COLUMNS)))}
    return {"solver": "ap", "max_epochs": 10.0} if method == "ap" else {}


def part_of(data: Split, n: int) -> tuple[np.ndarray, np.ndarray]:
    """n random training points; all of them for 0."""
    rows = np.random.default_rng(0).permutation(len(data.y_train))[: n or None]
    return data.x_train[rows], data.y_train[rows]


def trained(method: str, data: Split, n: int, device: str) -> dict[str, Any]:
    """One training, with what it took and how well it predicts."""
    x, y = part_of(data, n)
    model = GPRegressor(device=device, random_state=0, **options(method, len(y)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is in the result
        began = time.perf_counter()
        model.fit(x, y)
        seconds = time.perf_counter() - began
    began = time.perf_counter()
    mean, std = model.predict(data.x_test, return_std=True)
    predicting = time.perf_counter() - began
    return {
        "n": len(y),
        "method": method,
        "seconds": seconds,
        "predict_seconds": predicting,
        **scored(data, mean, std),
        "steps": model.n_steps_,
        "epochs": sum(record.epochs for record in model.history_),
        "solver_seconds": sum(record.solver_seconds for record in model.history_),
        "converged": model.converged_,
        "theta": model.hyperparameters_.vector.tolist(),
        "plan": str(model.plan_),
    }


class _Late(Exception):  # noqa: N818
    """The time is over."""


def trained_on_a_grid(data: Split, n: int, device: str, grid: int, limit: float) -> dict[str, Any]:
    """GPyTorch's training, likewise; after ``limit`` seconds it ends with the steps that are done."""
    import gpytorch

    done = 0

    def after(step: int) -> None:
        nonlocal done
        done = step
        if time.perf_counter() - began > limit:
            raise _Late

    x, y, new = (torch.as_tensor(part).float().to(device) for part in (*part_of(data, n), data.x_test))
    steps, grid = 100, grid or gpytorch.utils.grid.choose_grid_size(x)
    began = time.perf_counter()
    model, likelihood = gpytorch_model(x, y, Hyperparameters.ones(x.shape[1]), grid=grid)
    with contextlib.suppress(_Late):
        gpytorch_train(model, likelihood, x, y, steps, after)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    with gpytorch.settings.fast_pred_var():
        mean, variance = gpytorch_predict(model, likelihood, new)
    predicting = time.perf_counter() - began
    kernel = model.covar_module
    theta = [likelihood.noise.sqrt(), kernel.outputscale.sqrt(), *kernel.base_kernel.base_kernel.lengthscale[0]]
    return {
        "n": len(y),
        "method": PEER,
        "seconds": seconds,
        "predict_seconds": predicting,
        **scored(data, mean.double().numpy(), variance.double().sqrt().numpy()),
        "steps": done,
        "cut": done < steps,
        "theta": [float(value.detach()) for value in theta],
        "plan": f"GPyTorch {gpytorch.__version__}, a grid of {grid} a side",
    }


def scored(data: Split, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    off = (data.y_test - mean) / std
    return {
        "llh": float(np.mean(-0.5 * off**2 - np.log(std) - 0.5 * np.log(2 * np.pi))),
        "rmse": float(np.sqrt(np.mean((data.y_test - mean) ** 2))),
        "within_2_std": float(np.mean(np.abs(off) < 2)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", type=int, default=[0], help="training points; 0 for all")
    parser.add_argument("--methods", nargs="*", default=(*METHODS, PEER), choices=(*METHODS, PEER))
    parser.add_argument("--grids", nargs="*", type=int, default=[0], help="of GPyTorch: points a side; 0 as it chooses")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds that GPyTorch may train")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--data", default=None, help="folder of the UCI sets, beside which terrain lies")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    data = split_of("terrain", 0, args.data)
    rows = json.loads(args.out.read_text())["rows"] if args.out and args.out.is_file() else []
    for n in args.sizes:
        for method, grid in [(m, g) for m in args.methods for g in (args.grids if m == PEER else [0])]:
            peer = method == PEER
            what = (n or len(data.y_train), method, grid)
            if any((row["n"], row["method"], row.get("asked_grid", 0)) == what for row in rows):
                continue
            if peer:
                row = trained_on_a_grid(data, n, args.device, grid, args.limit) | {"asked_grid": grid}
            else:
                row = trained(method, data, n, args.device)
            rows.append(row)
            work = "" if peer else f"  {row['epochs']:.0f} epochs{'' if row['converged'] else ', not converged'}"
            print(
                f"{row['n']:>8,} {method:8} {row['seconds']:7.1f} s and {row['predict_seconds']:.1f} s to predict  "
                f"LLH {row['llh']:.4f}  RMSE {row['rmse']:.4f}  {row['steps']} steps{work}",
                flush=True,
            )
            if args.out:
                write_json(args.out, {"machine": machine(args.device), "rows": rows})


if __name__ == "__main__":
    main()
