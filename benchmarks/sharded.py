"""Several processes against one: what dividing costs when there is nothing to divide, and whether answers agree.

    python -m benchmarks.sharded overhead --out benchmarks/results/sharded-overhead-cpu.json
    python -m benchmarks.sharded step --out one.json
    torchrun --nproc-per-node=2 -m benchmarks.sharded step --out two.json
    python -m benchmarks.sharded compare one.json two.json --out benchmarks/results/sharded-h200.json

``overhead`` fits pol in turn as ever and as a team of one process, with five steps each, and compares the medians: the
bound is 3%. ``step`` takes one step from given hyperparameters on random rows of houseelectric, alone or as one of
several processes; on a machine of one GPU they share it, over gloo. ``compare`` says how far two such steps are apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from experiments.common import machine, write_json
from experiments.data import split_of
from warmgp import GPRegressor, Hyperparameters
from warmgp.processes import current_team, leave_team

THETA = (0.0202, 0.2602, (0.8907, 0.9704, 3.1028, 4.9886, 11.81, 3.19, 10.271, 0.23165, 10.4415, 10.8028, 8.2808))
"""The noise, signal and lengths of the step on houseelectric: what 100 steps on 200,000 rows end at."""


def overhead(rows: int, repeats: int, device: str) -> dict[str, Any]:
    """Fits in turn without and with a team of one; returns the seconds of both, and their ratio."""
    data = split_of("pol", 0)
    x, y = data.x_train[: rows or None], data.y_train[: rows or None]
    took: dict[str, list[float]] = {"plain": [], "team of one": []}
    thetas = {}
    for repeat in range(repeats + 1):
        for name in took:
            with tempfile.TemporaryDirectory() as folder:
                if name != "plain":
                    backend = "nccl" if device == "cuda" else "gloo"
                    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=0, world_size=1)
                began = time.perf_counter()
                model = GPRegressor("matern32", init="ones", n_steps=5, random_state=0, device=device).fit(x, y)
                if repeat:
                    took[name].append(time.perf_counter() - began)
                leave_team()
            thetas[name] = model.hyperparameters_.vector
    medians = {name: statistics.median(seconds) for name, seconds in took.items()}
    return {
        "n": len(y), "plan": str(model.plan_), "seconds": took, "medians": medians,
        "ratio": medians["team of one"] / medians["plain"],
        "same bits": bool(torch.equal(thetas["plain"], thetas["team of one"])),
    }  # fmt: skip


def step(rows: int, device: str) -> dict[str, Any]:
    """Takes one step on random rows of houseelectric, and predicts."""
    data = split_of("houseelectric", 0)
    some = np.random.default_rng(0).permutation(len(data.y_train))[:rows]
    start = Hyperparameters(THETA[0], THETA[1], list(THETA[2]))
    began = time.perf_counter()
    model = GPRegressor(
        "matern32", init=start, n_steps=1, learning_rate=0.1, solver="rap", gradient="pathwise", random_state=0,
        device=device,
    ).fit(data.x_train[some], data.y_train[some])  # fmt: skip
    seconds = time.perf_counter() - began
    mean, std = model.predict(data.x_test[:2000], return_std=True)
    team = current_team()
    return {
        "processes": team.size if team else 1, "n": rows, "seconds": seconds,
        "theta": model.hyperparameters_.vector.tolist(), "mean": mean.tolist(), "std": std.tolist(),
        "residuals": [model.history_[0].residual_mean, model.history_[0].residual_probes],
        "converged": model.converged_,
    }  # fmt: skip


def compare(one: Path, two: Path) -> dict[str, Any]:
    """Says how far two steps are apart: hyperparameters relative, means in std."""
    a, b = (json.loads(path.read_text())["result"] for path in (one, two))
    mean, other, std = np.array(a["mean"]), np.array(b["mean"]), np.array(a["std"])
    return {
        "processes": [a["processes"], b["processes"]], "seconds": [a["seconds"], b["seconds"]],
        "theta": float(np.max(np.abs(np.array(b["theta"]) / np.array(a["theta"]) - 1))),
        "mean in std": float(np.sqrt(np.mean(((mean - other) / std) ** 2))),
        "std": float(np.max(np.abs(np.array(b["std"]) / std - 1))), "residuals": [a["residuals"], b["residuals"]],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "step", "compare"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.what == "overhead":
        result = overhead(asked.rows or 0, asked.repeats, asked.device)
    elif asked.what == "step":
        result = step(asked.rows or 200_000, asked.device)
    else:
        result = compare(*asked.files)
    team = current_team()
    if team is None or team.first:
        write_json(asked.out, {"machine": machine(asked.device), "result": result})
        shown = {key: value for key, value in result.items() if key not in ("mean", "std", "plan")}
        print(json.dumps(shown), flush=True)
    leave_team()


if __name__ == "__main__":
    main()
