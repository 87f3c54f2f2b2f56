"""A satellite saw the ground between clouds: the temperature below them, and how well it is known.

    python examples/satellite.py                                       # a made-up picture, 4,000 pixels to train on
    python examples/satellite.py --data satellite.npz                  # the real one, 10,000 of its pixels
    python examples/satellite.py --data satellite.npz --rows 0 --device cuda      # all 105,569 of them

The file holds x_train (rows, 2) longitude and latitude of what was seen, y_train in °C, and x_test and y_test below the
clouds, all on a regular grid. Training knows what was seen; the rest is for the scores and the fourth map. Without a
file, or one named satellite.npz where you are, a picture is made up.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np

from warmgp import GPRegressor, variogram

mpl.use("Agg")
import matplotlib.pyplot as plt

NAMES = ("x_train", "y_train", "x_test", "y_test")
HERE = Path("satellite.npz")


def load(path: Path) -> list[np.ndarray]:
    """x_train, y_train, x_test and y_test of a npz file."""
    with np.load(path) as arrays:
        missing = [name for name in NAMES if name not in arrays]
        if missing:
            raise ValueError(f"{path} must hold {', '.join(NAMES)}; there is no {', '.join(missing)}")
        return [arrays[name].astype(float) for name in NAMES]


def invent(width: int, seed: int = 0) -> list[np.ndarray]:
    """Rough ground of 5 by 3 degrees, warmer to the south, in so many pixels from west to east; clouds hide a third."""
    rng = np.random.default_rng(seed)
    lon, lat = np.linspace(-96, -91, width), np.linspace(34, 37, round(0.6 * width))
    X = np.stack(np.meshgrid(lon, lat), -1).reshape(-1, 2)

    def waves(low: float, high: float, power: float) -> np.ndarray:
        frequency = np.exp(rng.uniform(np.log(low), np.log(high), 200))  # radians a degree
        angle, phase = rng.uniform(0.0, 2 * np.pi, (2, 200))
        sum_ = np.sin(X @ (frequency * np.stack([np.cos(angle), np.sin(angle)])) + phase) @ frequency**-power
        return (sum_ - sum_.mean()) / sum_.std()

    y = 44.0 - 1.5 * (X[:, 1] - 35.5) + 3.0 * waves(1.0, 60.0, 0.7) + 0.4 * rng.standard_normal(len(X))
    cloud = waves(2.0, 6.0, 1.0) > 0.45
    return [X[~cloud], y[~cloud], X[cloud], y[cloud]]


def crps(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score of a Gaussian, which is an absolute error that knows of the interval."""
    z = (y - mean) / std
    inside = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in z])
    return std * (z * (2 * inside - 1) + np.sqrt(2 / np.pi) * np.exp(-0.5 * z**2) - 1 / np.sqrt(np.pi))


def main() -> None:
    parser = argparse.ArgumentParser(description="Map temperatures below clouds, with what is known of them.")
    parser.add_argument("--data", type=Path, help="npz with x_train, y_train, x_test, y_test; or its folder")
    parser.add_argument("--rows", "--n", type=int, help="random training pixels; 0 for all (default: 10,000)")
    parser.add_argument("--kernel", default="matern12", help="matern12 (rough ground), matern32, matern52 or rbf")
    parser.add_argument("--steps", type=int, help="optimiser steps, instead of the planner's")
    parser.add_argument("--grid", type=int, default=250, help="cells of the maps from west to east")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("satellite.png"), help="where the picture goes")
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds: 400 made-up pixels, 20 steps")
    args = parser.parse_args()
    path = args.data / HERE if args.data and args.data.is_dir() else args.data
    if path is None and HERE.is_file() and not args.quick:
        path = HERE
    if path is None:
        print(f"data          made up: no --data was named, and there is no {HERE} here")
        parts = invent(60 if args.quick else 120)
        rows = (400 if args.quick else 4000) if args.rows is None else args.rows
    else:
        print(f"data          {path}")
        parts = load(path)
        rows = 10_000 if args.rows is None else args.rows
    X, y, X_hidden, y_hidden = parts
    if args.quick:
        args.steps, args.grid = 20, 60
    train = np.random.default_rng(0).permutation(len(y))[: rows or None]

    model = GPRegressor(kernel=args.kernel, device=args.device, verbose=not args.quick, random_state=0)
    if args.steps is not None:
        model.set_params(n_steps=args.steps)
    began = time.perf_counter()
    model.fit(X[train], y[train])
    print(f"plan          {model.plan_.headline}")
    print(f"n             {len(train):,} of {len(y):,} pixels between the clouds")
    print(f"fitted in     {time.perf_counter() - began:.1f} s, {model.n_steps_} steps")
    print(f"variogram     {variogram(model, X, y)}")
    score(model, X_hidden, y_hidden)

    began = time.perf_counter()
    (west, south), (east, north) = np.minimum(X.min(0), X_hidden.min(0)), np.maximum(X.max(0), X_hidden.max(0))
    lon = np.linspace(west, east, args.grid)
    lat = np.linspace(south, north, round(args.grid * (north - south) / (east - west)))
    grid = np.stack(np.meshgrid(lon, lat), -1).reshape(-1, 2)
    mean, std = model.predict(grid, return_std=True, include_noise=False)
    shape = len(lat), len(lon)
    print(f"mapped in     {time.perf_counter() - began:.1f} s, {len(grid):,} cells")
    draw(args.out, parts, lon, lat, mean.reshape(shape), std.reshape(shape))
    print(f"picture       {args.out}")


def score(model: GPRegressor, X: np.ndarray, y: np.ndarray) -> None:
    """What the model says of pixels below the clouds, against what is there."""
    mean, std = model.predict(X, return_std=True)
    inside = np.abs(y - mean) <= 1.96 * std
    print(f"below clouds  {len(y):,} pixels")
    print(f"MAE           {np.abs(mean - y).mean():.2f} °C")
    print(f"RMSE          {np.sqrt(np.mean((mean - y) ** 2)):.2f} °C (temperatures have a std of {y.std():.2f} °C)")
    print(f"CRPS          {crps(y, mean, std).mean():.3f} °C")
    print(f"LLH           {model.log_predictive_density(X, y).mean():.3f} nats a pixel, in °C")
    print(f"95% coverage  {inside.mean():.1%}")
    print(f"converged     {'yes' if model.converged_ else 'no'} (off by {model.solve_error_:.2g} of the noise)")


def on_pixels(X: np.ndarray, y: np.ndarray, lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """The mean of the pixels in every cell of a grid, NaN where there is none."""
    column, row = (
        np.rint((X[:, axis] - edges[0]) / (edges[1] - edges[0])).astype(int) for axis, edges in enumerate((lon, lat))
    )
    cell = row * len(lon) + column
    counts, sums = (np.bincount(cell, weights, len(lon) * len(lat)) for weights in (None, y))
    with np.errstate(invalid="ignore"):
        return (sums / counts).reshape(len(lat), len(lon))


def draw(path: Path, parts: list, lon: np.ndarray, lat: np.ndarray, mean: np.ndarray, std: np.ndarray) -> None:
    """What was seen, the mean, what the clouds hid, and the standard deviation with the outlines of the clouds."""
    seen, hidden = on_pixels(*parts[:2], lon, lat), on_pixels(*parts[2:], lon, lat)
    degrees = mpl.colors.Normalize(*np.quantile(np.concatenate([parts[1], parts[3]]), [0.005, 0.995]))
    panels = {
        "what the satellite saw": seen,
        "posterior mean": mean,
        "what the clouds hid (not for training)": hidden,
        "standard deviation of the mean map, and the clouds": std,
    }
    aspect = 1 / np.cos(np.radians(lat.mean()))  # a degree of longitude is shorter than one of latitude
    height = 2 * 4.7 * np.ptp(lat) / np.ptp(lon) * aspect + 0.9
    figure, axes = plt.subplots(2, 2, figsize=(12, height), layout="constrained", sharex=True, sharey=True)
    few = functools.partial(plt.get_cmap, lut=40)  # colours: enough for the eye, and a small file
    for ax, (title, values) in zip(axes.flat, panels.items(), strict=True):
        known = values is not std
        look = {"cmap": few("inferno"), "norm": degrees} if known else {"cmap": few("viridis"), "vmin": 0.0}
        image = ax.pcolormesh(lon, lat, values, rasterized=True, **look)
        if not known:
            clouds = np.isnan(seen) & ~np.isnan(hidden)
            ax.contour(lon, lat, clouds, levels=[0.5], colors="white", linewidths=0.5)
        ax.set(title=title, aspect=aspect, facecolor="0.8")
        bar = figure.colorbar(image, ax=ax, shrink=0.9, extend="both" if known else "neither")
        bar.set_label("temperature (°C)" if known else "standard deviation (°C)")
    for ax in axes[-1]:
        ax.set_xlabel("longitude (°)")
    for ax in axes[:, 0]:
        ax.set_ylabel("latitude (°)")
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    plt.close(figure)


if __name__ == "__main__":
    main()
