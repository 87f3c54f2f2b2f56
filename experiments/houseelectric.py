"""All 1,844,352 training points of houseelectric on one GPU: pathwise AP, warm starts, ten epochs a step.

    python -m experiments.houseelectric init  --out experiments/results
    python -m experiments.houseelectric steps --out experiments/results --checkpoint run.ckpt --time-limit 500

``init`` is the paper's heuristic: the mean of hyperparameters trained exactly on ten neighbourhoods of 10,000 points;
it is written to a file and not repeated. ``steps`` trains from it, 15 Adam steps of 0.03, and writes one line of JSON
per step with its seconds, residuals and test metrics (standardised units). At the time limit it ends after a whole
step with exit code 3; the same command goes on from the checkpoint. The last one adds the final solve and its scores.

The rows of this set were put in order again from the public file, and a few single rows may differ from it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from experiments.common import machine, scores, write_json
from warmgp import GPRegressor, Hyperparameters, JSONLines
from warmgp.datasets import uci
from warmgp.initialisation import subset_heuristic
from warmgp.kernels import Matern32
from warmgp.solvers import AlternatingProjections
from warmgp.training_state import StepRecord, TrainingState

UNFINISHED = 3


def initialise(args: argparse.Namespace) -> None:
    """The subset heuristic, once."""
    path = args.out / f"houseelectric-split{args.split}-init.json"
    if path.exists():
        return
    data = uci("houseelectric", args.split, folder=args.data)
    x, y = (torch.as_tensor(part).to(device=args.device, dtype=torch.float64) for part in (data.x_train, data.y_train))
    began = time.perf_counter()
    theta = subset_heuristic(
        x, y, Matern32(), generator=torch.Generator().manual_seed(args.split), n_neighbours=args.neighbours
    )
    seconds = time.perf_counter() - began
    write_json(path, {"machine": machine(args.device), "seconds": seconds, "theta": theta.vector.tolist()})
    print(f"initialised in {seconds:.1f} s: {theta}")


def train(args: argparse.Namespace) -> int:
    """Steps until the end or the time limit; the exit code."""
    start = json.loads((args.out / f"houseelectric-split{args.split}-init.json").read_text())
    data = uci("houseelectric", args.split, folder=args.data)
    began = time.perf_counter()
    stem = args.out / f"houseelectric-split{args.split}-ap-b{args.block}"

    def show(record: StepRecord, state: TrainingState) -> None:
        peak = torch.cuda.max_memory_allocated() / 2**30 if args.device == "cuda" else 0.0
        print(
            f"step {record.step}: {record.step_seconds:.1f} s, {record.epochs:.1f} epochs, residuals "
            f"{record.residual_mean:.3f} {record.residual_probes:.3f}, {record.metrics}, peak {peak:.2f} GiB",
            flush=True,
        )
        if time.perf_counter() - began > args.time_limit and state.step < args.steps:
            sys.exit(UNFINISHED)

    model = GPRegressor(
        solver=AlternatingProjections(args.block),
        gradient="pathwise",
        n_features=2000,
        max_epochs=args.epochs,
        n_steps=args.steps,
        learning_rate=args.learning_rate,
        init=Hyperparameters.from_vector(torch.tensor(start["theta"], dtype=torch.float64)),
        device=args.device,
        dtype="float32",
        checkpoint=args.checkpoint,
        checkpoint_every=1,
        callbacks=(JSONLines(stem.with_suffix(".jsonl")), show),
        random_state=args.split,
        standardize=False,  # the loader has done it, with the training split's mean and deviation
    )
    model.fit(data.x_train, data.y_train, validation=(data.x_test, data.y_test))
    mean, std = model.predict(data.x_test, return_std=True)
    test = scores(*(torch.as_tensor(part) for part in (mean, std**2, data.y_test)))
    summary: dict[str, Any] = {
        "machine": machine(args.device),
        "settings": repr(model),
        "steps": model.n_steps_,
        "training_seconds": sum(record.step_seconds for record in model.history_),
        "solver_seconds": sum(record.solver_seconds for record in model.history_),
        "epochs": sum(record.epochs for record in model.history_),
        "converged": model.converged_,
        "test": test,
        "theta": model.hyperparameters_.vector.tolist(),
    }
    write_json(stem.with_suffix(".json"), summary)
    print(f"done: {test}, {summary['training_seconds']:.0f} s of steps")
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("init", "steps"))
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    parser.add_argument("--neighbours", type=int, default=10_000)
    parser.add_argument("--block", type=int, default=1000)
    parser.add_argument("--epochs", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--learning-rate", type=float, default=0.03)
    parser.add_argument("--checkpoint", type=Path, default=Path("houseelectric.ckpt"))
    parser.add_argument("--time-limit", type=float, default=500.0, help="seconds after which to end with exit code 3")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.stage == "init":
        initialise(args)
    else:
        sys.exit(train(args))


if __name__ == "__main__":
    main()
