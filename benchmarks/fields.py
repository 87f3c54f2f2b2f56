"""Maps at full size, ``GPRegressor()`` as it comes: how long, how well, and beside the true model where that is known.

    python -m benchmarks.fields --data ../shared --out fields-h200.json            # satellite, terrain, a drawn field
    python -m benchmarks.fields --sets field --points 50000 --device cpu --out fields-cpu.json

``satellite``: the 105,569 pixels of the spatial competition, scored below the clouds (`benchmarks.heaton` has its
table). ``terrain``: 391,216 heights, in standardised units. ``field``: points of a Matérn-3/2 process on a square,
length scale 0.02, noise 0.1, drawn by 20,000 random features; the true model is told 200 near points of each test
point, in float64.

The two numbers: a term of the near-neighbour likelihood with m neighbours takes about m³/3 + 10 m² operations, and a
sweep of the one solve n² kernel entries with 65 columns.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree

from benchmarks.heaton import crps
from experiments.common import machine, write_json
from experiments.data import terrain
from warmgp import GPRegressor

LENGTH, NOISE, FEATURES, TEST = 0.02, 0.1, 20_000, 10_000

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def field(n: int, device: str) -> Arrays:
    """Training and test points of a drawn field, (n, 2), (n,), (TEST, 2), (TEST,)."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).to(device)

    x = torch.rand(n + TEST, 2, dtype=torch.float64, generator=generator).to(device)
    student = normal(FEATURES, 3).square().sum(1) / 3  # the spectrum of Matérn-3/2 is Student's t with 3 degrees
    frequencies = normal(FEATURES, 2) / LENGTH / student.sqrt()[:, None]
    a, b, noise = normal(FEATURES), normal(FEATURES), NOISE * normal(n + TEST)
    values = [torch.cos(p) @ a + torch.sin(p) @ b for p in (part @ frequencies.T for part in x.split(10_000))]
    y = torch.cat(values) / FEATURES**0.5 + noise
    x, y = x.cpu().numpy(), y.cpu().numpy()
    return x[:n], y[:n], x[n:], y[n:]


def true_density(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> float:
    """The mean log-density of test points by the process that a field was drawn from, given 200 near points each."""
    near = cKDTree(x).query(x_test, min(200, len(x)), workers=-1)[1]
    found = []
    for rows in torch.arange(len(x_test)).split(500):
        points, new = torch.as_tensor(x[near[rows]]), torch.as_tensor(x_test[rows])[:, None]
        K, k = (_matern32(torch.cdist(points, other) / LENGTH) for other in (points, new))
        K.diagonal(dim1=1, dim2=2).add_(NOISE**2)
        L = torch.linalg.cholesky(K)
        half, told = (
            torch.linalg.solve_triangular(L, part, upper=False)
            for part in (k, torch.as_tensor(y[near[rows]])[..., None])
        )
        variance = 1.0 + NOISE**2 - half.square().sum((1, 2))
        error = torch.as_tensor(y_test[rows]) - (half * told).sum((1, 2))
        found.append(-0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi)))
    return float(torch.cat(found).mean())


def _matern32(r: torch.Tensor) -> torch.Tensor:
    return (1 + 3**0.5 * r) * torch.exp(-(3**0.5) * r)


def data_of(name: str, points: int, device: str, folder: Path) -> Arrays:
    """Training and test points of a set."""
    if name == "field":
        return field(points, device)
    if name == "terrain":
        split = terrain(0, str(folder / "uci"))
        return split.x_train, split.y_train, split.x_test, split.y_test
    data = np.load(folder / "heaton" / "satellite.npz")
    return data["x_train"], data["y_train"], data["x_test"], data["y_test"]


def fitted(name: str, arrays: Arrays, device: str) -> dict[str, Any]:
    """One fit as a user would, twice on a GPU, where the first compiles, and its test scores."""
    x, y, x_test, y_test = arrays
    took = []
    for _ in range(2 if device == "cuda" else 1):
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = GPRegressor(device=device, random_state=0).fit(x, y)
        took.append(time.perf_counter() - began)
    mean, std = model.predict(x_test, return_std=True)
    z = (y_test - mean) / std
    return {
        "set": name, "n": len(y), "seconds": took[-1], "first_seconds": took[0],
        "planned": model.plan_.estimated_seconds, "start": model.report_.start_seconds, "kernel": model.kernel_.name,
        "converged": model.converged_, "error": model.solve_error_, "theta": model.hyperparameters_.vector.tolist(),
        "rmse": float(np.sqrt(np.mean((y_test - mean) ** 2))), "crps": float(np.mean(crps(y_test, mean, std))),
        "inside_95": float(np.mean(np.abs(z) < 1.96)),
        "llh": float(np.mean(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi))),
        "llh_of_the_truth": true_density(*arrays) if name == "field" else None, "report": str(model.report_),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=["satellite", "terrain", "field"])
    parser.add_argument("--points", type=int, default=1_000_000, help="points of the drawn field")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path, default=Path("../shared"), help="folder of heaton, terrain and uci")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = json.loads(asked.out.read_text())["results"] if asked.out.exists() else []
    for name in asked.sets:
        if name not in {one["set"] for one in found}:
            found.append(fitted(name, data_of(name, asked.points, asked.device, asked.data), asked.device))
            print(json.dumps(found[-1]), flush=True)
            write_json(asked.out, {"machine": machine(asked.device), "results": found})


if __name__ == "__main__":
    main()
