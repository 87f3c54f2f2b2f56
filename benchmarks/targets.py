"""What ten targets cost beside one: whole fits with 64 probes, both in one run, one after the other and again.

    OMP_NUM_THREADS=1 python -m benchmarks.targets --out benchmarks/results/targets-cpu.json
    python -m benchmarks.targets --device cuda --out benchmarks/results/targets-h200.json

Targets are draws of a prior with noise over the same inputs, of other length scales than training begins with. Every
case is fitted with one target and with ten in turn, ``REPEATS`` times, after a plan of each has measured its rates. The
least CPU seconds of each count, since others may use the machine; on a GPU the least seconds. One thread. ``off`` is
the largest difference of a mean of the ten from a fit of that target alone at the same hyperparameters, in predictive
standard deviations.
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
from warmgp import GPRegressor, Hyperparameters
from warmgp.gradient.features import FeaturePrior
from warmgp.kernels import get_kernel

TARGETS, REPEATS = 10, 3
CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "exact, 1,000 points": (1_000, 4, {"n_steps": 20, "solver": "cholesky", "init": "ones"}),
    "default, 2,000 points": (2_000, 8, {}),
    "cg with a whole factor, 3,000 points": (3_000, 8, {"n_steps": 10, "solver": "cg", "init": "ones"}),
    "recombined projections, 5,000 points": (5_000, 8, {"n_steps": 3, "solver": "rap", "init": "ones"}),
    "default, a map of 5,000 points": (5_000, 2, {}),
}
GPU_CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "default, 20,000 points": (20_000, 8, {}),
    "recombined projections, 100,000 points": (100_000, 8, {"n_steps": 3, "solver": "rap", "init": "ones"}),
    "default, a map of 100,000 points": (100_000, 2, {}),
}
"""Points, inputs and settings by the names of cases."""


def drawn(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs, (n, d), and ten targets, (n, 10)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, d, generator=generator, dtype=torch.float64)
    theta = Hyperparameters(0.2, 1.0, [0.2 if d <= 2 else 0.8] * d)
    f = FeaturePrior.draw(get_kernel("matern32"), d, 2000, TARGETS, generator=generator, dtype=torch.float64)
    y = f.evaluate(x, theta) + 0.2 * torch.randn(n, TARGETS, generator=generator, dtype=torch.float64)
    return x.numpy(), y.numpy()


def measured(name: str, device: str) -> dict[str, Any]:
    """Returns what a case costs with one target and with ten."""
    n, d, settings = (CASES | GPU_CASES)[name]
    X, Y = drawn(n, d)
    settings = {"kernel": "matern32", "random_state": 0, "n_probes": 64, "device": device, **settings}
    clock = time.process_time if device == "cpu" else time.perf_counter
    for q in (1, TARGETS):
        GPRegressor(**settings).plan(X, q)
    cpu: dict[int, list[float]] = {1: [], TARGETS: []}
    steps = {}
    for _ in range(REPEATS):
        for q, seconds in cpu.items():
            began = clock()
            model = GPRegressor(**settings).fit(X, Y[:, 0] if q == 1 else Y)
            seconds.append(clock() - began)
            steps[q] = model.n_steps_
    one, ten = min(cpu[1]), min(cpu[TARGETS])
    own = model.of_target(TARGETS - 1)
    kept = settings | {"init": own.hyperparameters_, "n_steps": 0}
    alone = GPRegressor(**kept).fit(X, Y[:, -1])
    new = X[:200] + 0.01
    mean, std = alone.predict(new, return_std=True)
    off = float(np.abs(model.predict(new)[:, -1] - mean).max() / std.min())
    return {
        "case": name, "n": n, "d": d, "solver": model.plan_.solver.name, "steps": [steps[1], steps[TARGETS]],
        "one_seconds": round(one, 2), "ten_seconds": round(ten, 2), "ratio": round(ten / one, 3), "off": round(off, 4),
        "converged": bool(model.converged_),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, help="JSON to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in CASES if arguments.device == "cpu" else GPU_CASES:
            rows.append(measured(name, arguments.device))
            print(rows[-1], flush=True)
    if arguments.out:
        write_json(arguments.out, {"machine": machine(arguments.device), "probes": 64, "rows": rows})


if __name__ == "__main__":
    main()
