"""Prediction: mean alone, mean and std, and posterior functions, for a model of all of a UCI set.

    python -m benchmarks.predict pol --out benchmarks/results/predict-pol-h200.json
    python -m benchmarks.predict pol --device cpu --sizes 1500 --out benchmarks/results/predict-pol-cpu.json

The solutions are those of one CG solve at the given θ (default: length scales 3, noise 0.05), which is what prediction
costs depend on. Per new point the two numbers are n kernel entries with 65 columns, and 2,000 features with 64
functions. Means and stds are checked against the same posterior in float64 by torch on 512 points: above 1% of the
noise scale the run is refused. (v grows like 1/σ² and its products cancel, so float32 predictions are off by about
10⁻⁷ Σ|k||v|: 2e-4 here, which is 0.4% of the noise.) First predictions with variances of 1,500 points, ours and
GPyTorch's (whose caches are empty), are timed at the same θ, GPyTorch's in a process of its own; what has not ended
after ``--limit`` seconds is cut, and the ratio is a lower bound.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import gpytorch_model, gpytorch_predict
from experiments.common import load, machine, write_json
from warmgp.gradient import Pathwise
from warmgp.gradient.features import FeaturePrior
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32
from warmgp.operators import make_operator
from warmgp.posterior import Posterior
from warmgp.solvers import ConjugateGradients, StoppingRule


def finish() -> None:
    """Wait for a GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(f: Callable[[], object], repeats: int = 3) -> float:
    f()
    times = []
    for _ in range(repeats):
        finish()
        began = time.perf_counter()
        f()
        finish()
        times.append(time.perf_counter() - began)
    return sorted(times)[repeats // 2]


def first_seconds(posterior: Posterior, x_new: Tensor) -> float:
    """A first prediction with variances; on a GPU the second model's, for library start-up."""
    for _ in range(2 if x_new.device.type == "cuda" else 1):
        model = replace(posterior)
        finish()
        began = time.perf_counter()
        model.mean_and_variance(x_new)
        finish()
        took = time.perf_counter() - began
    return took


def gpytorch_first(data: list[Tensor], theta: Hyperparameters, device: str, seconds: Connection) -> None:
    """Send that it begins, and the seconds of the same by GPyTorch."""
    x, y, x_new = (part.to(device) for part in data)
    for _ in range(2 if device == "cuda" else 1):
        model, likelihood = gpytorch_model(x, y, theta)
        seconds.send(0.0)
        finish()
        began = time.perf_counter()
        gpytorch_predict(model, likelihood, x_new)
        took = time.perf_counter() - began
    seconds.send(took)


def gpytorch_seconds(data: list[Tensor], theta: Hyperparameters, device: str, limit: float) -> dict[str, float]:
    """That of a process of its own; that it was cut; or nothing where it failed, of which it has told."""
    processes = multiprocessing.get_context("spawn")
    receive, send = processes.Pipe(duplex=False)
    child = processes.Process(target=gpytorch_first, args=(data, theta, device, send), daemon=True)
    child.start()
    send.close()  # the child's: if it dies, waiting ends
    try:
        while (took := receive.recv()) == 0.0:
            if not receive.poll(limit):
                return {"gpytorch_cut_after": limit}
        return {"gpytorch_first_seconds": took}
    except EOFError:
        return {}
    finally:
        child.terminate()
        child.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--data", default=None)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_500, 100_000, 1_000_000])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which GPyTorch is cut")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device, or --device cpu")
    x, y, x_test, _ = load(args.dataset, 0, args.data, args.device, torch.float32)
    n, d = x.shape
    theta = Hyperparameters.from_vector(torch.cat([torch.tensor([0.05, 1.0]), torch.full((d,), 3.0)]))
    operator = make_operator("auto", x, Matern32(), theta)
    estimator, generator = Pathwise(64, 2000), torch.Generator().manual_seed(0)
    draw = estimator.draw(operator, generator)
    result = ConjugateGradients(500).solve(operator, estimator.targets(operator, y, draw), rule=StoppingRule(0.01))
    assert isinstance(draw.prior, FeaturePrior)
    posterior = Posterior(x, Matern32(), theta, result.solution, draw.prior)
    parts = (draw.prior.frequencies, draw.prior.sin_weights, draw.prior.cos_weights)
    double = replace(
        posterior, x=x.double(), solution=result.solution.double(), prior=FeaturePrior(*(p.double() for p in parts))
    )
    first = first_seconds(posterior, x_test[:1500])
    some = x_test[:512]
    mean, variance = posterior.mean_and_variance(some)
    mean64, variance64 = double.mean_and_variance(some.double())
    worst = max(float((mean - mean64).abs().max()), float((variance.sqrt() - variance64.sqrt()).abs().max()))
    print(f"{args.dataset}: {n:,} x {d}; worst error of mean and std on 512 points {worst:.1e}")
    if not worst <= 0.01 * float(theta.noise_scale):
        sys.exit("the predictions miss their accuracy")
    rows: list[dict[str, Any]] = []
    for m in args.sizes:
        pick = torch.randint(n, (m,), generator=torch.Generator().manual_seed(1))
        x_new = x[pick.to(x.device)] + 0.01 * torch.randn(m, d, device=x.device)
        row = {
            "m": m,
            "mean_seconds": seconds(lambda x_new=x_new: posterior.mean(x_new)),
            "mean_and_std_seconds": seconds(lambda x_new=x_new: posterior.mean_and_variance(x_new)),
            "samples_seconds": seconds(lambda x_new=x_new: posterior.samples(x_new)),
        }
        if m == 1_500:
            row["first_seconds"] = first
            row |= gpytorch_seconds([part.cpu() for part in (x, y, x_new)], theta, args.device, args.limit)
            peer = row.get("gpytorch_first_seconds", row.get("gpytorch_cut_after"))
            if peer is not None:
                row["times_faster"] = peer / first  # a lower bound where it was cut
        rows.append(row)
        print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    if args.out:
        out = {"machine": machine(args.device), "dataset": args.dataset, "n": n, "d": d, "error": worst, "rows": rows}
        write_json(args.out, out)


if __name__ == "__main__":
    main()
