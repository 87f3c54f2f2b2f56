"""Rows added to a model of 5,000 points: how exact it is afterwards, and what that costs beside a solve from zero.

    OMP_NUM_THREADS=1 python -m benchmarks.updates --data ../shared --out benchmarks/results/updates-cpu.json

pol has 26 inputs, terrain is a map of two. Truth is dense float64, at the hyperparameters and in the units of the
model. Epochs are those of the last solve, with every check of a residual: of the update, of a fit of all rows at the
same hyperparameters (as planned for it), and of such a fit with the update's own solver. Errors are of the mean, in
predictive standard deviations. ``many`` is a hundred updates of 1% one after the other, with the memory of the process
beyond what rows take.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warmgp import GPRegressor
from warmgp.training import loop

N, SHARES, HELD, MANY = 5000, (0.01, 0.1, 0.3), 1000, 100


def rows_of(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and y of a data set in an order drawn at random."""
    if name == "pol":
        table = np.loadtxt(folder / "uci" / "pol" / "data.csv.gz", delimiter=",")
        X, y = table[:, :-1], table[:, -1]
    else:
        held = np.load(folder / "terrain" / "data.npz")
        X, y = held["X"].astype(np.float64), held["y"].astype(np.float64)
    order = np.random.default_rng(0).permutation(len(X))[: 2 * N + HELD]
    return X[order], y[order]


def truth(model: GPRegressor, X: np.ndarray, y: np.ndarray, X_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of new observations by a dense factor in float64."""
    theta, scaler = model.hyperparameters_, model.scaler_
    x, new = (torch.as_tensor(scaler.x(part)) / theta.length_scales for part in (X, X_new))
    profile, signal = model.kernel_.profile, theta.signal_scale**2

    def k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return signal * profile(torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"))

    H = k(x, x)
    H.diagonal().add_(theta.noise_scale**2)
    L, cross = torch.linalg.cholesky(H), k(x, new)
    del H
    half = torch.linalg.solve_triangular(L, cross, upper=False)
    weights = torch.linalg.solve_triangular(L, torch.as_tensor(scaler.y(y))[:, None], upper=False)
    variance = signal + theta.noise_scale**2 - half.square().sum(0)
    return scaler.y_back((half.T @ weights)[:, 0].numpy()), scaler.y_scale_back(variance.sqrt().numpy())


def errors(model: GPRegressor, X: np.ndarray, y: np.ndarray, held: np.ndarray) -> dict[str, float]:
    """How far mean and std are from exact: of the mean in predictive standard deviations, of the std as a share."""
    mean, std = truth(model, X, y, held)
    found, spread = model.predict(held, return_std=True)
    off, wide = np.abs(found - mean) / std, spread / std - 1
    return {"mean_rms": rms(off), "mean_worst": float(off.max()), "std_rms": rms(wide)}


def rms(values: np.ndarray) -> float:
    """The root mean square."""
    return float(np.sqrt(np.mean(values**2)))


def solved(call: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a call, and the epochs of its last solve."""
    epochs, finish = [], loop.finish

    def counted(*arguments: Any) -> Any:
        made = finish(*arguments)
        epochs.append((made.final.iteration_epochs, made.final.epochs))
        return made

    loop.finish = counted  # type: ignore[assignment]
    began = time.perf_counter()
    try:
        call()
    finally:
        loop.finish = finish
    return {"seconds": time.perf_counter() - began, "epochs": epochs[-1][1], "iteration_epochs": epochs[-1][0]}


def once(old: Path, X: np.ndarray, y: np.ndarray, held: np.ndarray, share: float) -> dict[str, Any]:
    """One update by a share of the rows, beside fits of all rows at the same hyperparameters."""
    n = N + round(share * N)
    model = GPRegressor.load(old, "cpu")
    cost = solved(lambda: model.update(X[N:n], y[N:n]))
    usual = {"kernel": model.kernel_, "init": model.hyperparameters_, "n_steps": 0, "random_state": 1}
    zero = solved(lambda: GPRegressor(**usual).fit(X[:n], y[:n]))
    same = solved(lambda: GPRegressor(**usual, solver=model.plan_.solver, gradient="pathwise").fit(X[:n], y[:n]))
    return {
        "share": share, "solver": model.plan_.solver.name, "converged": model.converged_,
        "dtype": str(model.posterior_.x.dtype), "update": cost, "from_zero": zero, "from_zero_same_solver": same,
        "epochs_ratio": cost["epochs"] / zero["epochs"], **errors(model, X[:n], y[:n], held),
    }  # fmt: skip


def many(old: Path, X: np.ndarray, y: np.ndarray, held: np.ndarray) -> dict[str, Any]:
    """A hundred updates of 1%: what is left of exactness, and of memory."""
    model, step = GPRegressor.load(old, "cpu"), N // 100
    memory, seconds, worst, drifted = [], [], 0.0, 0
    for i in range(MANY):
        rows = slice(N + i * step, N + (i + 1) * step)
        seconds.append(solved(lambda rows=rows: model.update(X[rows], y[rows]))["seconds"])
        worst, drifted = max(worst, model.solve_error_), drifted + model.updates_[-1].drifted
        gc.collect()
        memory.append((resident(), held_bytes(model)))
    n = N + MANY * step
    beyond = [have - kept for have, kept in memory]
    return {
        "updates": MANY, "rows": n, "converged": model.converged_, "seconds": float(np.sum(seconds)),
        "largest_solve_error": worst, "said_that_a_fit_is_due": drifted,
        "mib_beyond_the_model_after_20": beyond[19] / 2**20, "mib_beyond_the_model_at_the_end": beyond[-1] / 2**20,
        **errors(model, X[:n], y[:n], held),
    }  # fmt: skip


def resident() -> int:
    """Bytes of memory that this process has now."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def held_bytes(model: GPRegressor) -> int:
    """Bytes of a model's arrays that grow with its rows."""
    posterior = model.posterior_
    codes = posterior.targets.codes if posterior.targets is not None else posterior.x[:0]
    return sum(part.numel() * part.element_size() for part in (posterior.x, posterior.solution, codes))


def main() -> None:
    """Measures all of it and writes it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared"), help="folder of uci and terrain")
    parser.add_argument("--work", type=Path, default=Path(), help="folder for model files")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
    for name in ("pol", "terrain"):
        X, y = rows_of(arguments.data, name)
        X, y, held = X[HELD:], y[HELD:], X[:HELD]
        old = arguments.work / f"updates-{name}.safetensors"
        if not old.exists():
            GPRegressor(random_state=0).fit(X[:N], y[:N]).save(old)
        found[name] = {"once": [once(old, X, y, held, share) for share in SHARES], "many": many(old, X, y, held)}
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
