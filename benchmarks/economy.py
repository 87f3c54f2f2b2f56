"""What each step beyond the paper is worth, on a CPU, in one run.

    python -m benchmarks.economy --out benchmarks/results/economy-cpu.json

- A whole factor of an earlier step against a preconditioner of rank 100: conjugate gradients on the first 5,000 points
  of pol, 60 plain Adam steps of 0.1 from ones, float32, 64 probes, tolerance 0.01.
- A start on a sample against one from ones, and stopping once settled against going on to the last of 200 steps: whole
  fits of the first 8,000 points of pol, all else as the planner chooses.
- Relative against plain Adam steps: exact training on the first 2,000 points of elevators and of pol, the test LLH of
  1,500 points by exact prediction after 50, 100 and 200 steps.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from experiments.common import load, machine, sample_scores, write_json
from warmgp import GPRegressor
from warmgp.gradient import Exact, Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32
from warmgp.operators import ChunkedOperator, DenseOperator
from warmgp.solvers import Cholesky, ConjugateGradients, Solver
from warmgp.training import Problem, StepRecord, TrainingOptions, TrainingState, train_only
from warmgp.training.last_solve import finish


def iterations(solver: Solver, folder: str | None, n: int, steps: int) -> dict[str, Any]:
    x, y = (part[:n] for part in load("pol", 0, folder, "cpu", torch.float32)[:2])
    options = TrainingOptions(solver, Pathwise(64, 2000), n_steps=steps, noise_floor=1e-4)
    began = time.perf_counter()
    start = Problem(DenseOperator(x, Matern32(), Hyperparameters.ones(x.shape[1])), y)
    state = train_only(start, options, generator=torch.Generator().manual_seed(0))
    seconds = time.perf_counter() - began
    return {"solver": repr(solver), "seconds": seconds, "iterations": [r.iterations for r in state.history]}


def whole_fit(name: str, model: GPRegressor, folder: str | None, n: int) -> dict[str, Any]:
    x, y, x_test, y_test = load("pol", 0, folder, "cpu", torch.float64)
    began = time.perf_counter()
    model.fit(x[:n].numpy(), y[:n].numpy())
    seconds = time.perf_counter() - began
    mean, std = (torch.as_tensor(part) for part in model.predict(x_test.numpy(), return_std=True))
    llh = torch.distributions.Normal(mean, std).log_prob(y_test).mean()
    return {"fit": name, "n": n, "seconds": seconds, "steps": len(model.history_), "llh": float(llh)}


def likelihoods(name: str, relative: bool, folder: str | None, n: int, marks: tuple[int, ...]) -> dict[str, Any]:
    x, y, x_test, y_test = load(name, 0, folder, "cpu", torch.float64)
    x, y, found = x[:n], y[:n], {}
    options = TrainingOptions(Cholesky(), Exact(), n_steps=marks[-1], noise_floor=1e-4, relative_steps=relative)

    def look(record: StepRecord, state: TrainingState) -> None:
        if state.step in marks:
            there = Problem(ChunkedOperator(x, Matern32(), state.theta), y)
            posterior = finish(there, options, state, torch.Generator().manual_seed(0)).posterior
            found[state.step] = sample_scores(posterior, x_test[:1500], y_test[:1500])["llh"]

    start = Problem(ChunkedOperator(x, Matern32(), Hyperparameters.ones(x.shape[1])), y)
    train_only(start, options, generator=torch.Generator().manual_seed(0), callbacks=[look])
    return {"dataset": name, "relative": relative, "llh": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=None)
    parser.add_argument("--sizes", type=int, nargs=3, default=[5000, 8000, 2000])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--marks", type=int, nargs="*", default=[50, 100, 200])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for solver in (ConjugateGradients(0, factor_after=6), ConjugateGradients(100, pivot_every=20)):
        rows.append(iterations(solver, args.data, args.sizes[0], args.steps))
        its = rows[-1]["iterations"]
        print(f"{rows[-1]['seconds']:7.1f} s, {min(its[1:])} to {max(its[1:])} iterations a step: {solver}", flush=True)
    fits = {
        "default": GPRegressor(),
        "from ones": GPRegressor(init="ones"),
        "from ones, to the last step": GPRegressor(init="ones", n_steps=200),  # a number is taken to the last
    }
    for name, model in fits.items():
        rows.append(whole_fit(name, model.set_params(random_state=0, device="cpu"), args.data, args.sizes[1]))
        print("{fit}: {seconds:.0f} s, {steps} steps, test LLH {llh:.4f}".format(**rows[-1]), flush=True)
    for name in ("elevators", "pol"):
        for relative in (False, True):
            rows.append(likelihoods(name, relative, args.data, args.sizes[2], tuple(args.marks)))
            shown = ", ".join(f"{step}: {llh:.3f}" for step, llh in rows[-1]["llh"].items())
            print(f"{name}, {'relative' if relative else 'plain'} steps, test LLH after {shown}", flush=True)
    if args.out:
        write_json(args.out, {"machine": machine("cpu"), "rows": rows})


if __name__ == "__main__":
    main()
