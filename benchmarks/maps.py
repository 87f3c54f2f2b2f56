"""Maps (two inputs), ``GPRegressor()`` as it comes beside other solvers: whole trainings and their test scores.

    python -m benchmarks.maps --sizes 5000 20000 --device cpu --out benchmarks/results/maps-cpu.json
    python -m benchmarks.maps --methods default --device cuda --out benchmarks/results/maps-h200.json

The data are heights by longitude and latitude (*terrain*), all 391,216 training points or a random part; every method
predicts the same test points. ``default`` plans for itself, which is conjugate gradients with near neighbours from
6,000 points; ``factor`` has whole factors instead, ``ap`` alternating projections with ten epochs a step. Seconds are
those of ``fit``, from reading its arguments to the last solve.

The two numbers for n points and 65 columns: a product with H is n² kernel entries, and for each 2·65 operations; H is
4 n² bytes where it is stored. A step needs about 8 products with neighbours, and as many with whole factors, which
cost n³/3 operations on top, once in nine steps.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.common import machine, write_json
from experiments.data import split_of
from warmgp import ConjugateGradients, ConvergenceWarning, GPRegressor
from warmgp.datasets import Split

COLUMNS = 65
METHODS = ("default", "factor", "ap")


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
    off = (data.y_test - mean) / std
    return {
        "n": len(y),
        "method": method,
        "seconds": seconds,
        "predict_seconds": predicting,
        "llh": float(np.mean(-0.5 * off**2 - np.log(std) - 0.5 * np.log(2 * np.pi))),
        "rmse": float(np.sqrt(np.mean((data.y_test - mean) ** 2))),
        "within_2_std": float(np.mean(np.abs(off) < 2)),
        "steps": model.n_steps_,
        "epochs": sum(record.epochs for record in model.history_),
        "solver_seconds": sum(record.solver_seconds for record in model.history_),
        "converged": model.converged_,
        "theta": model.hyperparameters_.vector.tolist(),
        "plan": str(model.plan_),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", type=int, default=[0], help="training points; 0 for all")
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--data", default=None, help="folder of the UCI sets, beside which terrain lies")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    data = split_of("terrain", 0, args.data)
    rows = []
    for n in args.sizes:
        for method in args.methods:
            row = trained(method, data, n, args.device)
            rows.append(row)
            print(
                f"{row['n']:>8,} {method:8} {row['seconds']:7.1f} s {row['epochs']:5.0f} epochs in {row['steps']} steps"
                f"  LLH {row['llh']:.4f}  RMSE {row['rmse']:.4f}  {'' if row['converged'] else 'not converged'}",
                flush=True,
            )
            if args.out:
                write_json(args.out, {"machine": machine(args.device), "rows": rows})


if __name__ == "__main__":
    main()
