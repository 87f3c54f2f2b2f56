"""One training step of pol at the same θ, tolerance and probes: ours against GPyTorch, on a CPU, in one run.

    python -m benchmarks.steps --out benchmarks/results/steps-cpu.json

θ comes from the recorded exact training of pol (experiments/store). Ours are conjugate
gradients as the planner configures them, in float32, warm from the step before, 64 probes, tolerance 0.01. A step that
is just after a new factor is cheaper than one just before, so ours is the mean over the last ``WINDOW`` steps up to the
named one, factors included; the true residual of the last solve is computed in float64, and a miss is refused. GPyTorch
(matched: rank 100, tolerance 0.01, 64 probes, float64) has no warm start: one step at the named θ.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import gpytorch_matched, gpytorch_model
from experiments.common import load, machine, write_json
from warmgp.gradient import Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32
from warmgp.operators import ChunkedOperator, DenseOperator
from warmgp.planning.planner import make_plan
from warmgp.solvers import StoppingRule

AT = (1, 20, 50, 100)
WINDOW = 10


def trajectory() -> list[Hyperparameters]:
    history = json.loads((Path(__file__).parents[1] / "experiments/store/pol-0_exact.json").read_text())["history"]
    steps = zip(history["noise_scale"], history["signal_scale"], history["length_scales"], strict=True)
    return [Hyperparameters(*values) for values in steps]


def ours(x: Tensor, y: Tensor, thetas: list[Hyperparameters], at: int) -> dict[str, Any]:
    n, rule = len(x), StoppingRule(0.01)
    plan = make_plan(n, x.shape[1], solver="cg", device="cpu")
    gradient = Pathwise(64, plan.n_features)
    first = max(0, at - 1 - WINDOW)
    operator = DenseOperator(x, Matern32(), thetas[first])
    draw = gradient.draw(operator, torch.Generator().manual_seed(0))
    solution = state = None
    times, iterations = [], []
    for k in range(first, at):
        operator = operator.at(thetas[k])
        began = time.perf_counter()
        targets = gradient.targets(operator, y, draw)
        result = plan.solver.solve(operator, targets, solution, rule=rule, state=state)
        gradient.gradient(operator, result, targets)
        times.append(time.perf_counter() - began)
        iterations.append(result.iterations)
        solution, state = result.solution, result.state
    double = ChunkedOperator(x.double(), Matern32(), thetas[at - 1])
    residual = (targets.double() - double.matmul(solution.double())).norm(dim=0) / targets.double().norm(dim=0)
    true = float(residual[0]), float(residual[1:].mean())
    if max(true) > 0.0105:
        sys.exit(f"step {at}: the true residuals {true} miss the tolerance")
    warm = times[1:] or times
    return {
        "step": at, "seconds": sum(warm) / len(warm), "seconds_each": times, "iterations": iterations,
        "true_residuals": true,
    }  # fmt: skip


def gpytorchs(x: Tensor, y: Tensor, theta: Hyperparameters) -> float:
    import gpytorch

    torch.manual_seed(0)
    model, likelihood = gpytorch_model(x.double(), y.double(), theta)
    model.train(), likelihood.train()
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    likelihood_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    with gpytorch_matched():
        began = time.perf_counter()
        loss = -likelihood_of(model(x.double()), y.double())
        loss.backward()
        adam.step()
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    x, y, *_ = load("pol", 0, args.data, "cpu", torch.float32)
    thetas, rows = trajectory(), []
    print(f"pol, {len(x):,} points, {torch.get_num_threads()} threads: seconds a step")
    for at in AT:
        row = ours(x, y, thetas, at)
        row["gpytorch_matched_seconds"] = gpytorchs(x, y, thetas[at - 1])
        rows.append(row)
        print(
            f"step {at:>3}: ours {row['seconds']:7.2f} ({row['iterations']} iterations), "
            f"GPyTorch matched {row['gpytorch_matched_seconds']:7.1f}",
            flush=True,
        )
        mean = [sum(r[name] for r in rows) / len(rows) for name in ("seconds", "gpytorch_matched_seconds")]
        if args.out:
            write_json(args.out, {"machine": machine("cpu"), "rows": rows, "mean_seconds": mean,
                                  "ratio": mean[1] / mean[0]})  # fmt: skip
    print(f"mean: ours {mean[0]:.2f}, GPyTorch matched {mean[1]:.1f}: {mean[1] / mean[0]:.1f} times")


if __name__ == "__main__":
    main()
