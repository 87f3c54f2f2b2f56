"""Do the pathwise estimator and warm starts cut AP's work, and in the paper's order?

    python -m experiments.elevators --device cuda --out experiments/results

Trains on the first 3,000 training rows of elevators, split 0, with alternating projections (blocks of 200) to tolerance
0.01 for 100 steps, in the four cells of the paper's Table 1, and prints total iterations. The exit status is 1 if they
do not fall in the order standard cold > pathwise cold > standard warm > pathwise warm. Each cell is one JSON file, and
a cell whose file exists is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from experiments.common import describe, load, machine, sample_scores, write_json
from warmgp.gradient import GradientEstimator, Pathwise, Standard
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import DenseOperator
from warmgp.solvers import AlternatingProjections, StoppingRule
from warmgp.training import train
from warmgp.training_state import TrainingOptions

CELLS: dict[str, tuple[GradientEstimator, bool]] = {
    "standard cold": (Standard(64), False),
    "pathwise cold": (Pathwise(64, 2000), False),
    "standard warm": (Standard(64), True),
    "pathwise warm": (Pathwise(64, 2000), True),
}


def cell(name: str, args: argparse.Namespace) -> dict[str, Any]:
    x, y, x_test, y_test = load("elevators", 0, args.data, args.device, torch.float64)
    x, y = x[: args.n], y[: args.n]
    gradient, warm = CELLS[name]
    operator = DenseOperator(x, get_kernel("matern32"), Hyperparameters.ones(x.shape[1]))
    options = TrainingOptions(
        AlternatingProjections(args.block_size),
        gradient,
        rule=StoppingRule(0.01),
        n_steps=args.steps,
        learning_rate=0.1,
        warm_start=warm,
    )
    result = train(operator, y, options, generator=torch.Generator().manual_seed(0))
    return {
        "cell": name,
        "settings": {"n": args.n, "block_size": args.block_size, "steps": args.steps, "split": 0},
        "machine": machine(args.device),
        "test": sample_scores(result.posterior, x_test, y_test),
        **describe(result),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA, else a download)")
    parser.add_argument("--n", type=int, default=3000)
    parser.add_argument("--block-size", type=int, default=200)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    args = parser.parse_args()
    print("cell            iterations    epochs  LLH      RMSE    seconds")
    iterations = []
    for name in CELLS:
        path = args.out / f"elevators-n{args.n}-ap-{name.replace(' ', '-')}.json"
        if not path.exists():
            write_json(path, cell(name, args))
        record = json.loads(path.read_text())
        iterations.append(record["total_iterations"])
        print(
            f"{name:<15} {record['total_iterations']:>10,} {record['total_epochs']:>9,.0f}  "
            f"{record['test']['llh']:.4f}  {record['test']['rmse']:.4f}  {record['seconds']:>7.1f}",
            flush=True,
        )
    ordered = all(a > b for a, b in pairwise(iterations))
    print("order as in the paper" if ordered else "ORDER DIFFERS from the paper")
    return 0 if ordered else 1


if __name__ == "__main__":
    sys.exit(main())
