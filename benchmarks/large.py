"""Large data: does a solve get anywhere within twenty epochs, and does ``GPRegressor()`` as it comes end converged?

    python -m benchmarks.large solves --out large-solves-h200.json           # one batch of solves, 200,000 points
    python -m benchmarks.large fits --out large-fits-h200.json               # whole fits, several sets and sizes
    python -m benchmarks.large fits --sets houseelectric:100000 protein:40000 --device cpu --out large-fits-cpu.json

``solves``: 200,000 rows of houseelectric at a θ that 100 steps on them found, y and 64 probes, from zero, 20 epochs:
the paper's alternating projections with blocks of 1,000 rows, and recombined projections as they come; the same rows
sorted by an input and by the target.

``fits``: ``GPRegressor()`` as it comes on random training rows of a set (``name:rows``, all without a number), with
what the plan promised, what it took, and how well it predicts the test rows. What ``--out`` has is not done again.
On a GPU a set of up to 200,000 rows is fitted twice: ``first_seconds`` has the compilation of kernels in it, which a
machine does once for every number of inputs; ``seconds`` are those of the second fit.

The two numbers, for n points and 65 columns: an epoch is n² kernel entries, each of them 2·65 operations and, on a GPU,
about 1.5 ps; a partition into blocks of b rows costs 4 n b²/3 operations on a GPU and n b²/3 on a CPU.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.common import machine, write_json
from experiments.data import split_of
from warmgp import (
    AlternatingProjections,
    GPRegressor,
    Hyperparameters,
    Matern32,
    Pathwise,
    Solver,
    StoppingRule,
)
from warmgp.operators import make_operator
from warmgp.planning.request import Request, Settings
from warmgp.planning.solver_choice import recombined_projections

THETA = (
    0.0202, 0.2602, 0.8907, 0.9704, 3.1028, 4.9886, 11.81, 3.19, 10.271, 0.23165, 10.4415, 10.8028, 8.2808,
)  # fmt: skip
"""Noise, signal and length scales after 100 steps on the rows of ``solves``."""

SETS = (
    "pol", "elevators", "bike", "protein", "keggdirected", "houseelectric:20000", "houseelectric:40000",
    "houseelectric:49000", "houseelectric:51000", "houseelectric:60000", "houseelectric:100000",
    "houseelectric:200000", "houseelectric:500000", "houseelectric",
)  # fmt: skip

TWICE = 200_000
"""The most rows that are fitted twice on a GPU."""


# -- solves ----------------------------------------------------------------------------------------------------------
def solves(n: int, epochs: float, device: str) -> list[dict[str, Any]]:
    """The residuals and seconds of every solver and order of rows."""
    data = split_of("houseelectric", 0)
    rows = np.random.default_rng(1).permutation(len(data.y_train))[:n]
    x, y = (torch.as_tensor(part[rows]).float().to(device) for part in (data.x_train, data.y_train))
    theta = Hyperparameters.from_vector(torch.tensor(THETA, dtype=torch.float64))
    ours = recombined_projections(Request.of(len(y), x.shape[1], Settings(device=device)))
    orders = {"as drawn": torch.arange(len(y), device=x.device), "by intensity": x[:, 7].argsort(), "by y": y.argsort()}
    found = []
    for order, index in orders.items():
        for solver in (AlternatingProjections(1000), ours):
            found.append(solved(solver, x[index], y[index], theta, epochs, order))
            print(json.dumps(found[-1]), flush=True)
    return found


def solved(
    solver: Solver, x: torch.Tensor, y: torch.Tensor, theta: Hyperparameters, epochs: float, order: str
) -> dict[str, Any]:
    """One solve from zero, after a short one that compiles what it needs."""
    kind = "fused" if x.device.type == "cuda" else "chunked"
    operator, pathwise = make_operator(kind, x, Matern32(), theta), Pathwise(64, 4000)
    targets = pathwise.targets(operator, y, pathwise.draw(operator, torch.Generator().manual_seed(0)))
    solver.solve(operator, targets, rule=StoppingRule(1e-6, 0.2), generator=torch.Generator().manual_seed(0))
    began = _now(x.device)
    result = solver.solve(
        operator, targets, rule=StoppingRule(1e-6, epochs), generator=torch.Generator().manual_seed(1)
    )
    seconds = _now(x.device) - began
    b = targets / targets.norm(dim=0)
    left = (b - operator.matmul(result.solution / targets.norm(dim=0))).norm(dim=0)
    return {
        "solver": f"{solver.name} {solver.options()}", "order": order, "n": len(y), "epochs": result.iteration_epochs,
        "mean": float(left[0]), "probes": float(left[1:].mean()), "seconds": seconds,
    }  # fmt: skip


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


# -- fits ------------------------------------------------------------------------------------------------------------
def fitted(name: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One fit as a user would, and its test scores."""
    which, _, size = name.partition(":")
    data = split_of(which, 0)
    rows = np.random.default_rng(0).permutation(len(data.y_train))[: int(size or 0) or None]
    x, y = data.x_train[rows], data.y_train[rows]
    on_gpu = device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    took = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2 if on_gpu and len(y) <= TWICE else 1):
            began = time.perf_counter()
            model = GPRegressor(device=device, random_state=0, **settings).fit(x, y)
            took.append(time.perf_counter() - began)
    mean, std = model.predict(data.x_test, return_std=True)
    z = (data.y_test - mean) / std
    return {
        "set": name, "n": len(y), "d": x.shape[1], "settings": {key: str(value) for key, value in settings.items()},
        "seconds": took[-1], "first_seconds": took[0], "planned": model.plan_.estimated_seconds,
        "start": model.report_.start_seconds,
        "kernel": model.kernel_.name, "converged": model.converged_, "error": model.solve_error_,
        "llh": float(np.mean(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi))),
        "rmse": float(np.sqrt(np.mean((data.y_test - mean) ** 2))), "inside_90": float(np.mean(np.abs(z) < 1.6449)),
        "solver": f"{model.plan_.solver.name} {model.plan_.solver.options()}", "steps": model.n_steps_,
        "stop": model.stop_reason_, "report": str(model.report_), "plan": str(model.plan_),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "theta": model.hyperparameters_.vector.tolist(), "warnings": [str(one.message) for one in warned],
        "history": [[h.noise_scale, h.signal_scale, h.epochs, h.residual_mean, h.residual_probes, h.gain,
                     h.step_seconds] for h in model.history_],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("solves", "fits"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--n", type=int, default=200_000, help="rows of the solves")
    parser.add_argument("--epochs", type=float, default=20.0, help="epochs of the solves")
    parser.add_argument("--sets", nargs="*", default=SETS, help="sets of the fits, name or name:rows")
    parser.add_argument("--memory", type=float, help="GiB that a fit may use")
    parser.add_argument("--time-limit", type=float, help="seconds that a fit may take")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = json.loads(asked.out.read_text())["results"] if asked.out.exists() else []
    settings: dict[str, Any] = {"memory_budget": int(asked.memory * 2**30)} if asked.memory else {}
    if asked.time_limit:
        settings["time_limit"] = asked.time_limit
    if asked.what == "solves":
        found = solves(asked.n, asked.epochs, asked.device)
        write_json(asked.out, {"machine": machine(asked.device), "results": found})
        return
    done = {(one["set"], json.dumps(one["settings"])) for one in found}
    for name in asked.sets:
        if (name, json.dumps({key: str(value) for key, value in settings.items()})) in done:
            continue
        found.append(fitted(name, asked.device, settings))
        told = {key: value for key, value in found[-1].items() if key not in ("history", "theta", "plan")}
        print(json.dumps(told), flush=True)
        write_json(asked.out, {"machine": machine(asked.device), "results": found})


if __name__ == "__main__":
    main()
