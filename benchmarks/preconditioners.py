"""One solve from zero: what a preconditioner of low rank, near neighbours, and both together save.

    python -m benchmarks.preconditioners --out benchmarks/results/preconditioners-cpu.json

H v = b for y and 64 pathwise probes to 0.01, at the θ of exact training (of the start, for houseelectric and terrain)
as recorded in experiments/store. Of the UCI sets the first rows; of terrain and houseelectric the nearest points around
one of them, so that they are as dense as in the whole set. Seconds include the search and the factors, and are the
better of two. One run, one machine; a solve that does not end within 300 epochs is shown as such, with its residuals.

The two numbers: a product applies n² entries of H to each column, the preconditioner 2(m + 1) of S and Sᵀ and 2k of Q
a row. At n = 10,000 with m = 30 and k = 100 that is 2.6% of a product, so iterations should be what counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.cells import SETTINGS, Start, exact
from experiments.common import machine, write_json
from experiments.data import split_of
from experiments.store import Store
from warmgp.gradient import Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32
from warmgp.operators import DenseOperator, KernelOperator
from warmgp.operators.triton.fused import FusedOperator
from warmgp.solvers import AlternatingProjections, ConjugateGradients, Solver, StoppingRule

SETS = ("pol", "elevators", "bike", "protein", "keggdirected", "terrain", "houseelectric")
SOLVERS: dict[str, Solver] = {
    "AP, blocks of 1,000": AlternatingProjections(1000),
    "CG, rank 100": ConjugateGradients(100),
    "CG, rank 1,000": ConjugateGradients(1000),
    "CG, 30 neighbours": ConjugateGradients(0, neighbours=30),
    "CG, rank 100, 30 neighbours": ConjugateGradients(100, neighbours=30),
    "CG, rank 100, 60 neighbours": ConjugateGradients(100, neighbours=60),
}


def problem(name: str, n: int, device: str, data: str | None) -> tuple[KernelOperator, Tensor]:
    """H and the targets."""
    store = Store(Path(__file__).parents[1] / "experiments" / "store")
    large = SETTINGS[name].large
    record = store.get(Start(name) if large else exact(name, 0))
    assert record is not None
    theta = Hyperparameters.from_vector(torch.tensor(record["theta"], dtype=torch.float64))
    split = split_of(name, 0, data)
    x, y = split.x_train, split.y_train
    if large:
        centre = x[np.random.default_rng(1).integers(len(x))]
        near = (((x - centre) / theta.length_scales.numpy()) ** 2).sum(1).argsort()[:n]
        x, y = x[near], y[near]
    points, targets = (torch.as_tensor(part[:n]).float().to(device) for part in (x, y))
    kind = DenseOperator if device == "cpu" else FusedOperator
    operator = kind(points, Matern32(), theta)
    estimator = Pathwise(64, 2000)
    draw = estimator.draw(operator, torch.Generator().manual_seed(0))
    return operator, estimator.targets(operator, targets - targets.mean(), draw)


def timed(solver: Solver, operator: KernelOperator, targets: Tensor) -> dict[str, Any]:
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        result = solver.solve(operator, targets, rule=StoppingRule(0.01, 300.0))
        seconds.append(time.perf_counter() - began)  # a solve ends with a look at its residual: nothing is pending
    return {
        "iterations": result.iterations, "epochs": result.epochs, "seconds": min(seconds),
        "converged": result.converged, "residual_mean": result.residual_mean,
        "residual_probes": result.residual_probes,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--only", default="", help="solvers with this in their name, such as neighbours")
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA, else a download)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not any(args.only in label for label in SOLVERS):
        parser.error(f"--only {args.only}: no solver has that in its name; there are {'; '.join(SOLVERS)}")
    rows = []
    for name in args.sets:
        operator, targets = problem(name, args.n, args.device, args.data)
        for label, solver in SOLVERS.items():
            if args.only not in label:
                continue
            row = {"set": name, "n": operator.n, "d": operator.x.shape[1], "solver": label}
            row |= timed(solver, operator, targets)
            rows.append(row)
            end = "" if row["converged"] else f"  not solved: {row['residual_mean']:.3f}, {row['residual_probes']:.3f}"
            print(f"{name:<14} {label:<28} {row['epochs']:>6.0f} epochs {row['seconds']:>7.1f} s{end}", flush=True)
            if args.out:
                write_json(args.out, {"machine": machine(args.device), "rows": rows})


if __name__ == "__main__":
    main()
