"""How exact left-out rows are from probes, and the value of the likelihood: against dense float64.

    OMP_NUM_THREADS=1 python -m benchmarks.loo --out benchmarks/results/loo-cpu.json

*Left out*: 2,000 points, four kernels, high and low noise, of a map and of six inputs, and rows of data sets at
hyperparameters trained on 1,000 of them. Targets are drawn from the model itself, or are those of the set. Errors are
root mean squares in LOO std, beside what was said, and beside what 64 probes alone leave; ``log_density`` is the
difference of the averages. *Likelihood*: 20 cases from 1,000 to 10,000 points, by probes alone: no factor takes over,
as it would for an RBF kernel of six inputs with little noise, which is left out. Differences and errors are in nats a
point, ``errors`` counts the stated ones. Seconds are of one busy thread.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.common import machine, write_json
from experiments.data import split_of
from warmgp import DenseOperator, GPRegressor, Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.leave_one_out import left_out
from warmgp.likelihood import likelihood_of

KERNELS = ("matern12", "matern32", "matern52", "rbf")
NOISES = (0.5, 0.02)
LENGTHS = {2: 0.5, 6: 2.0}
"""Length scales by the number of inputs: a map of about seven of them across, and six inputs of unit spread."""


def inputs_of(n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.7, 1.7, (n, d)) if d <= 2 else rng.normal(size=(n, d))


def factor_of(x: np.ndarray, kernel: str, theta: Hyperparameters) -> torch.Tensor:
    H = DenseOperator(torch.tensor(x - x.mean(0)), get_kernel(kernel), theta).dense(torch.float64)
    return torch.linalg.cholesky(H)


def fitted(x: np.ndarray, y: np.ndarray, kernel: str, theta: Hyperparameters) -> GPRegressor:
    model = GPRegressor(kernel, solver="rap", n_steps=0, init=theta, standardize=False, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x, y)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def left_out_row(x: np.ndarray, y: np.ndarray | None, kernel: str, theta: Hyperparameters) -> dict[str, Any]:
    """One case of left-out rows; y None for a draw of the model."""
    L = factor_of(x, kernel, theta)
    if y is None:
        y = (L @ torch.tensor(np.random.default_rng(1).normal(size=len(x)))).numpy()
    began = time.perf_counter()
    model = fitted(x, y, kernel, theta)
    seconds = time.perf_counter() - began
    targets = torch.tensor(y)
    diagonal = torch.cholesky_inverse(L).diagonal().numpy()
    v, std = torch.cholesky_solve(targets[:, None], L)[:, 0].numpy(), diagonal**-0.5
    began = time.perf_counter()
    found, _ = left_out(model.posterior_, targets, exact=False)
    took = time.perf_counter() - began
    error, variance, uncertain, left = (part.numpy() for part in vars(found).values())
    alone = 1.0 / model.posterior_.solution[:, 1:].double().square().mean(1).numpy()  # 64 probes, no near points

    def density(e: np.ndarray, var: np.ndarray) -> float:
        return float(np.mean(-0.5 * e**2 / var - 0.5 * np.log(var)))

    return {
        "kernel": kernel,
        "noise": float(theta.noise_scale),
        "n": len(x),
        "d": x.shape[1],
        "converged": model.converged_,
        "mean_error": rms((error - v / diagonal) / std),
        "mean_said": rms(np.hypot(uncertain * error, left) / std),
        "mean_alone": rms((v * alone - v / diagonal) / std),
        "std_error": rms(np.sqrt(variance) / std - 1),
        "std_said": rms(0.5 * uncertain),
        "log_density": density(error, variance) - density(v / diagonal, 1 / diagonal),
        "fit_seconds": seconds,
        "seconds": took,
    }


def likelihood_row(n: int, d: int, kernel: str, noise: float, seed: int) -> dict[str, Any]:
    """One case of the likelihood, by probes alone."""
    theta = Hyperparameters(noise, 1.0, [LENGTHS[d]] * d)
    x = inputs_of(n, d, seed)
    L = factor_of(x, kernel, theta)
    y = (L @ torch.tensor(np.random.default_rng(seed + 100).normal(size=n))).numpy()
    model, targets = fitted(x, y, kernel, theta), torch.tensor(y)
    half = torch.linalg.solve_triangular(L, targets[:, None], upper=False)
    truth = -0.5 * float(half.square().sum()) - float(L.diagonal().log().sum()) - 0.5 * n * math.log(2 * math.pi)
    del L
    began = time.perf_counter()
    found = likelihood_of(model.posterior_, targets, stored=False, exact=False)
    return {
        "kernel": kernel, "noise": noise, "n": n, "d": d, "converged": model.converged_,
        "off": (found.value - truth) / n, "said": found.error / n, "errors": abs(found.value - truth) / found.error,
        "seconds": time.perf_counter() - began,
    }  # fmt: skip


def real_cases(folder: str | None) -> list[tuple[str, np.ndarray, np.ndarray, str, Hyperparameters]]:
    """2,000 rows of pol and of terrain at hyperparameters that 1,000 of them have found."""
    found = []
    for name in ("pol", "terrain"):
        split = split_of(name, 0, folder)
        some = np.random.default_rng(0).permutation(len(split.x_train))[:2000]
        x, y = split.x_train[some], split.y_train[some]
        x, y = (x - x.mean(0)) / np.maximum(x.std(0), 1e-6), (y - y.mean()) / y.std()
        trained = GPRegressor("matern32", standardize=False, random_state=0, n_probes=8).fit(x[:1000], y[:1000])
        found.append((name, x, y, "matern32", trained.hyperparameters_))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 2_500, 5_000, 10_000])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results: dict[str, Any] = {"machine": machine("cpu"), "left_out": [], "likelihood": []}
    for kernel, noise, d in itertools.product(KERNELS, NOISES, LENGTHS):
        theta = Hyperparameters(noise, 1.0, [LENGTHS[d]] * d)
        results["left_out"].append({"set": "drawn"} | left_out_row(inputs_of(2000, d, 0), None, kernel, theta))
        print(results["left_out"][-1], flush=True)
    for name, x, y, kernel, theta in real_cases(args.data):
        results["left_out"].append({"set": name} | left_out_row(x, y, kernel, theta))
        print(results["left_out"][-1], flush=True)
    few = [case for case in itertools.product(KERNELS, NOISES, LENGTHS) if case != ("rbf", 0.02, 6)]
    for number, (n, (kernel, noise, d)) in enumerate(
        (n, few[(5 * i + j) % len(few)]) for i, n in enumerate(args.sizes) for j in range(5)
    ):
        results["likelihood"].append(likelihood_row(n, d, kernel, noise, number))
        print(results["likelihood"][-1], flush=True)
    if args.out:
        write_json(args.out, results)


if __name__ == "__main__":
    main()
