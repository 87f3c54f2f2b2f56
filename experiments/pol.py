"""Iterative training against exact training on all of pol: trajectories, test scores, residuals.

    python -m experiments.pol --device cuda --out experiments/results

Trains Matérn-3/2 on one split of pol (13,500 points) from ones, 100 Adam steps of 0.1, tolerance 0.01, 64 probes:
exactly, and with CG and AP in the settings of ``RUNS``. Each run is one JSON file, and a run whose file exists is
skipped. Then a table compares the noise scale at every tenth step and the test scores with exact training's.
The target bounds are columns of the table, and the exit status is 1 if a run misses one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from experiments.common import describe, exact_scores, load, machine, sample_scores, write_json
from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import ChunkedOperator, DenseOperator
from warmgp.solvers import AlternatingProjections, Cholesky, ConjugateGradients, Solver, StoppingRule
from warmgp.training import train
from warmgp.training_state import TrainingOptions

# name: solver, estimator, largest allowed relative deviation of the noise scale from exact training
RUNS: dict[str, tuple[Solver, GradientEstimator, float]] = {
    "exact": (Cholesky(), Exact(), 0.0),
    "cg-standard": (ConjugateGradients(), Standard(64), 0.05),
    "cg-pathwise-2000": (ConjugateGradients(), Pathwise(64, 2000), 0.10),
    "cg-pathwise-16000": (ConjugateGradients(), Pathwise(64, 16000), 0.05),
    "ap-pathwise-2000": (AlternatingProjections(1000), Pathwise(64, 2000), 0.10),
    "ap-pathwise-16000": (AlternatingProjections(1000), Pathwise(64, 16000), 0.05),
}


def run(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One training with its scores, as JSON."""
    x, y, x_test, y_test = load("pol", args.split, args.data, args.device, torch.float64)
    solver, gradient, _ = RUNS[name]
    kind = ChunkedOperator if name == "exact" else DenseOperator
    operator = kind(x, get_kernel("matern32"), Hyperparameters.ones(x.shape[1]))
    options = TrainingOptions(solver, gradient, rule=StoppingRule(0.01), n_steps=args.steps, learning_rate=0.1)

    def show(record: Any, state: Any) -> None:
        if record.step % 10 == 9:
            print(f"  step {record.step}: noise {record.noise_scale:.4f}, {record.iterations} iterations, "
                  f"{record.step_seconds:.2f} s", flush=True)  # fmt: skip

    began = time.perf_counter()
    result = train(operator, y, options, generator=torch.Generator().manual_seed(args.split), callbacks=[show])
    wall = time.perf_counter() - began
    samples = sample_scores(result.posterior, x_test, y_test)
    exact = samples if name == "exact" else exact_scores(result.posterior, y, x_test, y_test)
    return {
        "run": name,
        "split": args.split,
        "settings": repr(options),
        "dtype": "float64",
        "machine": machine(args.device),
        "wall_seconds": wall,
        "test": samples,
        "test_exact_prediction": exact,
        **describe(result),
    }


def compare(record: dict[str, Any], truth: dict[str, Any], bound: float) -> tuple[str, bool]:
    """A row of the table, and whether the bounds hold."""
    pairs = list(zip(record["history"], truth["history"], strict=True))
    deviation = max(abs(a["noise_scale"] / b["noise_scale"] - 1) for a, b in [*pairs[::10], pairs[-1]])
    llh, rmse = record["test"]["llh"], record["test"]["rmse"]
    good = (
        deviation <= bound
        and llh >= truth["test"]["llh"] - 0.02
        and rmse <= truth["test"]["rmse"] + 0.002
        and all(step["converged"] for step in record["history"])
        and record["final"]["converged"]
    )
    row = (
        f"{record['run']:<18}  {deviation:>8.2%} {bound:>6.0%}  {llh:.4f}  "
        f"{record['test_exact_prediction']['llh']:.4f}   "
        f"{rmse:.4f}  {record['total_iterations']:>9,}  {record['total_epochs']:>8,.0f}  {record['seconds']:>7.1f}  "
        f"{'holds' if good else 'MISSED'}"
    )
    return row, good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA, else a download)")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--runs", nargs="*", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    args = parser.parse_args()
    records = {}
    for name in args.runs:
        path = args.out / f"pol-split{args.split}-{name}.json"
        if not path.exists():
            print(f"{name} …", flush=True)
            write_json(path, run(name, args))
        records[name] = json.loads(path.read_text())
    truth = records.get("exact")
    if truth is None:
        return 0
    print("run                 noise off  bound  LLH     (exact)  RMSE    iterations    epochs  seconds")
    rows = [compare(record, truth, RUNS[name][2]) for name, record in records.items()]
    print("\n".join(row for row, _ in rows))
    return 0 if all(good for _, good in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
