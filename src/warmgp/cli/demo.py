"""The demonstration on made-up data: it fits 5,000 noisy points of a surface, says how it went, and draws it.

python -m warmgp.demo --out demo.png
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgp.data.datasets import surface
from warmgp.estimator.regressor import GPRegressor
from warmgp.files.atomic import whole_file
from warmgp.files.paths import check_writable

FloatArray = NDArray[np.float64]


def main(arguments: list[str] | None = None) -> int:
    """Fits, reports and draws, by the arguments of the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Fit a noisy surface and draw mean, uncertainty and convergence.")
    parser.add_argument("--n", type=int, default=5000, help="training points")
    parser.add_argument("--steps", type=int, default=50, help="optimiser steps")
    parser.add_argument("--noise", type=float, default=0.1, help="standard deviation of the noise")
    parser.add_argument("--out", type=Path, default=Path("demo.png"), help="where the picture goes")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args(arguments)

    check_writable(args.out)
    X, y, f = surface(args.n, args.noise, seed=0)
    seen = ~in_hole(X)  # a hole is left out, to see the uncertainty grow where nothing was observed
    X, y = X[seen], y[seen]
    print(f"Fitting {len(y):,} noisy observations of a surface (a square hole is left out) …", flush=True)
    began = time.perf_counter()
    model = GPRegressor(solver="cg", n_steps=args.steps, verbose=not args.quiet, random_state=0).fit(X, y)
    fitted = time.perf_counter() - began

    axis = np.linspace(-1, 1, 101)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    truth = f(grid)
    mean, std = model.predict(grid, return_std=True, include_noise=False)
    report(model, fitted, args.noise, grid, truth, mean, std)
    draw(args.out, model, X, truth, mean, std)
    print(f"picture          {args.out}")
    return 0


def in_hole(X: FloatArray) -> NDArray[np.bool_]:
    """Says which points X, (m, 2), lie in the square around (0.35, 0.35) that is left out, (m,)."""
    return np.asarray((np.abs(X - 0.35) <= 0.22).all(1))


def report(
    model: GPRegressor,
    seconds: float,
    noise: float,
    grid: FloatArray,
    truth: FloatArray,
    mean: FloatArray,
    std: FloatArray,
) -> None:
    """Prints the results in a few lines."""
    hole = in_hole(grid)
    found = float(model.hyperparameters_.noise_scale) * model.scaler_.y_scale
    error, covered = np.abs(mean - truth), np.abs(mean - truth) <= 1.96 * std
    print(
        f"fitted in        {seconds:.1f} s, {model.n_steps_} steps, {sum(h.epochs for h in model.history_):.0f} epochs"
    )
    print(f"plan             {model.plan_}")
    print(f"report           {model.report_}")
    print(f"noise            {found:.4f} found, {noise:g} true")
    print(f"error (RMSE)     {np.sqrt(np.mean(error[~hole] ** 2)):.4f} where there is data, "
          f"{np.sqrt(np.mean(error[hole] ** 2)):.4f} in the hole")  # fmt: skip
    print(f"std (mean)       {std[~hole].mean():.4f} where there is data, {std[hole].mean():.4f} in the hole")
    print(f"95% intervals    cover {covered[~hole].mean():.1%} of the surface, {covered[hole].mean():.1%} in the hole")
    print(f"solved           {'to tolerance' if model.converged_ else 'NOT to tolerance'} "
          f"(last step: {model.history_[-1].residual_mean:.2g}, {model.history_[-1].residual_probes:.2g})")  # fmt: skip


def draw(path: Path, model: GPRegressor, X: FloatArray, truth: FloatArray, mean: FloatArray, std: FloatArray) -> None:
    """Draws six panels: truth, mean, std; residuals, hyperparameters and work over the steps."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    side = int(np.sqrt(len(truth)))
    figure, axes = plt.subplots(2, 3, figsize=(13.5, 8), layout="constrained")
    low, high = float(truth.min()), float(truth.max())
    for ax, values, title, options in (
        (axes[0, 0], truth, "true surface", {"vmin": low, "vmax": high, "cmap": "viridis"}),
        (axes[0, 1], mean, "posterior mean", {"vmin": low, "vmax": high, "cmap": "viridis"}),
        (axes[0, 2], std, "posterior std (without noise)", {"cmap": "magma"}),
    ):
        image = ax.imshow(values.reshape(side, side), origin="lower", extent=(-1, 1, -1, 1), **options)
        figure.colorbar(image, ax=ax, shrink=0.85)
        ax.set(title=title, xlabel="$x_1$", ylabel="$x_2$")
    axes[0, 2].plot(X[::10, 0], X[::10, 1], ".", color="white", markersize=1.2, alpha=0.6)

    history: list[Any] = model.history_
    steps = [h.step for h in history]
    residuals = axes[1, 0]
    residuals.semilogy(steps, [h.residual_mean for h in history], color="#0072B2", label="mean system")
    residuals.semilogy(steps, [h.residual_probes for h in history], "--", color="#D55E00", label="probes (average)")
    residuals.axhline(model.plan_.rule.tol, color="0.4", linewidth=1, label="tolerance")
    residuals.set(title="residual after each solve", xlabel="step", ylabel="relative residual")
    residuals.legend()

    trajectory = axes[1, 1]
    trajectory.plot(steps, [h.noise_scale for h in history], color="#0072B2", label="noise σ")
    trajectory.plot(steps, [h.signal_scale for h in history], "--", color="#D55E00", label="signal")
    for j, style in enumerate(("-.", ":")):
        lengths = [h.length_scales[j] for h in history]
        trajectory.plot(steps, lengths, style, color="#009E73", label=f"length scale {j + 1}")
    trajectory.set(title="hyperparameters (standardised units)", xlabel="step")
    trajectory.legend()

    work = axes[1, 2]
    work.bar(steps, [h.epochs for h in history], color="#56B4E9")
    work.set(title="work per step, warm-started", xlabel="step", ylabel="solver epochs")
    with whole_file(path) as file:
        figure.savefig(file, dpi=110, format=path.suffix[1:] or "png")
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
