"""Large sets solved to the tolerance: conjugate gradients with near neighbours, beside the paper's ten epochs of AP.

    python -m benchmarks.large terrain --limit 300 --out benchmarks/results/large-terrain-h200.json

Trains from the recorded start (experiments/store) with Adam steps of 0.03 as the paper does, but solves until 0.01. At
every step: iterations, residuals, seconds, test scores. After ``--limit`` seconds of training no further step is
taken, and the file says so. The records of AP under its budget are in experiments/store.

The two numbers for terrain (391,387 × 2): a product applies 1.5·10¹¹ entries, 0.19 s at 1.23 ps; 4 iterations from zero
at 10,000 of its points (`benchmarks.preconditioners`). So a solve from zero should take about a second, the search
for neighbours another, and a step with warm starts under a second.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from experiments.cells import SETTINGS, Start
from experiments.common import machine, write_json
from experiments.data import split_of
from experiments.store import Store
from warmgp import ConjugateGradients, GPRegressor, Hyperparameters
from warmgp.gradient import Pathwise
from warmgp.training_state import StepRecord, TrainingState


class Log:
    """Every step into the file; ends the training when the time is over."""

    def __init__(self, out: Path | None, head: dict[str, Any], limit: float) -> None:
        self.out, self.content, self.limit = out, {**head, "steps": []}, limit

    def __call__(self, record: StepRecord, state: TrainingState) -> bool:
        names = ("step", "noise_scale", "iterations", "epochs", "residual_mean", "residual_probes", "converged")
        row = {name: getattr(record, name) for name in names} | dict(record.metrics)
        row |= {"solver_seconds": record.solver_seconds, "step_seconds": record.step_seconds, "notes": record.notes}
        self.content["steps"].append(row)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
        self.write()
        return state.elapsed + record.step_seconds > self.limit

    def write(self, **more: Any) -> None:
        self.content |= more
        if self.out:
            write_json(self.out, self.content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=[name for name, own in SETTINGS.items() if own.large])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--data", default=None, help="folder of the UCI sets (default: WARMGP_DATA)")
    parser.add_argument("--store", type=Path, default=Path("experiments/store"))
    parser.add_argument("--rank", type=int, default=100)
    parser.add_argument("--neighbours", type=int, default=30)
    parser.add_argument("--limit", type=float, default=500.0, help="seconds of training")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    own, data = SETTINGS[args.dataset], split_of(args.dataset, 0, args.data)
    start = Store(args.store).get(Start(args.dataset))
    if start is None:
        parser.error(f"no start: python -m experiments.run large --datasets {args.dataset} --store {args.store}")
    solver = ConjugateGradients(args.rank, pivot_every=20, neighbours=args.neighbours)
    head = {"dataset": args.dataset, "n": len(data.y_train), "solver": repr(solver), "machine": machine(args.device)}
    log = Log(args.out, head, args.limit)
    model = GPRegressor(
        solver=solver,
        gradient=Pathwise(64, 2000, "plain"),
        tol=0.01,
        max_epochs=None,
        n_steps=own.n_steps,
        learning_rate=own.learning_rate,
        init=Hyperparameters.from_vector(torch.tensor(start["theta"], dtype=torch.float64)),
        standardize=False,
        device=args.device,
        callbacks=(log,),
        random_state=0,
    )
    began = time.perf_counter()
    model.fit(data.x_train, data.y_train, (data.x_test, data.y_test))
    log.write(seconds=time.perf_counter() - began, whole=model.n_steps_ == own.n_steps, plan=str(model.plan_))


if __name__ == "__main__":
    main()
