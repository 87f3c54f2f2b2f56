"""Draws of each kernel: is that kernel chosen, and what is lost where another one is?

    OMP_NUM_THREADS=1 python -m benchmarks.kernels --out benchmarks/results/kernels-cpu.json

2,000 points of a process with noise 0.1, 20 draws of each of the four kernels, with two inputs (uniform in [−2, 2],
length scales 0.5) and with four and eight (normal, length scales 1.06 √d). Where another kernel is chosen, both are
trained on the exact likelihood of all points, and ``lost`` is the difference of their mean log-densities of 1,000 new
points. What ``--out`` has is not done again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from experiments.common import machine, write_json
from warmgp import Hyperparameters
from warmgp.kernels import KERNELS
from warmgp.operators import make_operator
from warmgp.training.kernel_choice import KernelChoice, choose_kernel
from warmgp.training.near_likelihood import Terms, climb

N, NEW, DRAWS, NOISE = 2_000, 1_000, 20, 0.1
EVALUATIONS = 25
MAP = 3  # inputs of a map at most


def drawn(kernel: str, d: int, seed: int) -> tuple[Tensor, Tensor, Hyperparameters]:
    """N + NEW points, their targets, and the θ that they are drawn from."""
    g = torch.Generator().manual_seed(seed)
    is_map = d <= MAP
    x = (torch.rand if is_map else torch.randn)(N + NEW, d, generator=g, dtype=torch.float64)
    x = 4 * x - 2 if is_map else x
    theta = Hyperparameters(NOISE, 1.0, [0.5 if is_map else 1.06 * d**0.5] * d)
    H = make_operator("dense", x, KERNELS[kernel], theta).H
    return x, torch.linalg.cholesky(H) @ torch.randn(N + NEW, generator=g, dtype=torch.float64), theta


def density(kernel: str, theta: Hyperparameters, x: Tensor, y: Tensor) -> float:
    """The mean log-density of the new points given the others, by a factor."""
    H = make_operator("dense", x, KERNELS[kernel], theta).H
    L = torch.linalg.cholesky(H[:N, :N])
    half = torch.linalg.solve_triangular(L, H[:N, N:], upper=False)
    mean = half.T @ torch.linalg.solve_triangular(L, y[:N, None], upper=False)[:, 0]
    variance = H.diagonal()[N:] - half.square().sum(0)
    return float((-0.5 * (y[N:] - mean) ** 2 / variance - 0.5 * (2 * torch.pi * variance).log()).mean())


def lost(kernel: str, truth: Hyperparameters, choice: KernelChoice, x: Tensor, y: Tensor) -> float:
    """What the true kernel has over the chosen one, each trained on all points."""
    every = Terms(torch.arange(N)[None], N)
    ends = [
        (name, climb(x[:N], y[:N], every, KERNELS[name], theta, evaluations=EVALUATIONS).theta)
        for name, theta in ((kernel, truth), (choice.kernel.name, choice.theta))
    ]
    own, other = (density(name, theta, x, y) for name, theta in ends)
    return own - other


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS))
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = json.loads(asked.out.read_text()) if asked.out.exists() else {"machine": machine("cpu"), "rows": []}
    done = {(row["inputs"], row["kernel"]) for row in found["rows"]}
    for d, kernel in ((d, kernel) for d in asked.inputs for kernel in asked.kernels):
        if (d, kernel) in done:
            continue
        chosen: dict[str, int] = {}
        losses, seconds = [], 0.0
        for seed in range(DRAWS):
            x, y, theta = drawn(kernel, d, seed)
            began, g = time.process_time(), torch.Generator().manual_seed(seed)
            choice = choose_kernel(x[:N], y[:N], d, generator=g, is_map=d <= MAP)
            seconds += time.process_time() - began
            name = choice.kernel.name
            chosen[name] = chosen.get(name, 0) + 1
            losses += [] if name == kernel else [round(lost(kernel, theta, choice, x, y), 4)]
        row = {"inputs": d, "kernel": kernel, "chosen": chosen, "lost": sorted(losses)}
        found["rows"].append({**row, "seconds_a_choice": round(seconds / DRAWS, 2)})
        print(found["rows"][-1], flush=True)
        write_json(asked.out, found)


if __name__ == "__main__":
    main()
