"""Does a float32 solve on a GPU tell the truth? True residuals of converged solves, in float64.

    python -m benchmarks.residuals --out benchmarks/results/residuals-h200.json

Three sets that are hard for float32: pol at the hyperparameters of 100 training steps; half of pol with every row there
twice; and 50,000 points of a map of heights (two inputs, neighbours close together). On each, θ comes from a training
with conjugate gradients; then every solver starts from zero and solves for y and 64 probes to 0.01 with the fused
operator. A solve that reports convergence with a true residual above 0.0105 makes the exit code 1; one that does not
converge is shown as such.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.fit import true_residuals
from experiments.common import load, machine, write_json
from experiments.data import split_of
from warmgp.gradient import Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32
from warmgp.operators.triton.fused import FusedOperator
from warmgp.solvers import AlternatingProjections, ConjugateGradients, Solver, StoppingRule
from warmgp.training.loop import train
from warmgp.training.state import TrainingOptions

SOLVERS: dict[str, Solver] = {
    "cg": ConjugateGradients(1000),
    "cg-factor": ConjugateGradients(0, factor_after=200),
    "ap": AlternatingProjections(1000),
}
BOUND = 0.0105


def sets(data: str | None) -> Iterator[tuple[str, Tensor, Tensor, int]]:
    """(name, x, y, training steps)."""
    x, y, *_ = load("pol", 0, data, "cuda", torch.float32)
    yield "pol", x, y, 100
    half = x.shape[0] // 2
    noise = 0.05 * torch.randn(half, generator=torch.Generator().manual_seed(1)).cuda()
    yield "pol, every row twice", x[:half].repeat(2, 1), torch.cat([y[:half], y[:half] + noise]), 100
    heights = split_of("terrain", 0, data)
    some = torch.randperm(len(heights.y_train), generator=torch.Generator().manual_seed(0))[:50_000]
    x, y = (torch.as_tensor(part)[some].float().cuda() for part in (heights.x_train, heights.y_train))
    yield "terrain", x, y, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device")
    rows: list[dict[str, Any]] = []
    for name, x, y, steps in sets(args.data):
        start = FusedOperator(x, Matern32(), Hyperparameters.ones(x.shape[1]))
        estimator, generator = Pathwise(64, 2000), torch.Generator().manual_seed(0)
        rule = StoppingRule(0.01, 300.0)
        options = TrainingOptions(SOLVERS["cg-factor"], estimator, rule=rule, n_steps=steps, learning_rate=0.1)
        theta = train(start, y, options, generator=generator).theta
        operator = FusedOperator(x, Matern32(), theta)
        targets = estimator.targets(operator, y, estimator.draw(operator, generator))
        for solver_name, solver in SOLVERS.items():
            began = time.perf_counter()
            result = solver.solve(operator, targets, rule=StoppingRule(0.01, 3000.0), generator=generator)
            seconds = time.perf_counter() - began
            true = true_residuals(operator, targets, result.solution)
            row = {
                "set": name, "n": operator.n, "d": x.shape[1], "solver": solver_name, "settings": repr(solver),
                "noise_scale": float(theta.noise_scale), "signal_scale": float(theta.signal_scale),
                "differenced_inputs": operator._differenced, "stop_reason": result.stop_reason,
                "converged": result.converged, "iterations": result.iterations, "epochs": result.epochs,
                "seconds": seconds, "reported": [result.residual_mean, result.residual_probes], "true": list(true),
            }  # fmt: skip
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items() if key != "settings"), flush=True)
    if args.out:
        write_json(args.out, {"machine": machine("cuda"), "bound": BOUND, "rows": rows})
    wrong = [row for row in rows if row["converged"] and max(row["true"]) > BOUND]
    for row in wrong:
        print(f"WRONG: {row['solver']} on {row['set']}: reported {row['reported']}, true {row['true']}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
