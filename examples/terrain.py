"""A map of heights, and of how well they are known.

    python examples/terrain.py                              # made-up terrain, 10,000 points
    python examples/terrain.py --data heights.npz           # yours: X (rows, 2) longitude, latitude; y height in metres
    python examples/terrain.py --data heights.npz --box 5 17 43 49
    python examples/terrain.py --data heights.npz --log --n 100000 --device cuda

Some points are held out for the scores. The rest becomes a posterior, drawn over the whole map: mean, standard
deviation and one of the posterior functions. Where the model itself says that it does not know, mean and function are
left grey.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np

from warmgp import GPRegressor

mpl.use("Agg")
import matplotlib.pyplot as plt

LOWEST = 600.0  # metres added before the logarithm: no dry land lies deeper below the sea
UNKNOWN = 0.7  # grey where the latent std exceeds this share of the prior's


def load(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """X (rows, 2) in degrees and y (rows,) in metres from a npz file."""
    with np.load(path) as arrays:
        X, y = arrays["X"].astype(float), arrays["y"].astype(float)
    if X.ndim != 2 or X.shape[1] != 2 or y.shape != (len(X),):
        raise ValueError(f"{path} must hold X (rows, 2) and y (rows,); got {X.shape} and {y.shape}")
    return X, y


def invent(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An island of rough hills: waves whose height falls with their frequency, on land of 12 by 8 degrees."""
    rng = np.random.default_rng(seed)
    X = rng.uniform((-6.0, 42.0), (6.0, 50.0), (rows, 2))
    frequency = np.exp(rng.uniform(np.log(0.5), np.log(30.0), 300))  # radians a degree
    angle, phase = rng.uniform(0.0, 2 * np.pi, (2, 300))
    wave = np.sin(X @ (frequency * np.stack([np.cos(angle), np.sin(angle)])) + phase)
    relief = wave @ frequency**-1.1
    relief /= relief.std()
    height = 700.0 * np.exp(0.7 * relief) + 20.0 * rng.standard_normal(rows)
    edge = ((X - (0.0, 46.0)) / (5.5, 3.6)) ** 2
    ashore = edge.sum(1) - 0.25 * relief < 0.9
    return X[ashore], height[ashore]


def along_a_curve(X: np.ndarray, bits: int = 16) -> np.ndarray:
    """Order rows along a Z-shaped curve that fills the plane, so that near rows are near points.

    Alternating projections solve blocks of consecutive rows exactly: a block of neighbours leaves less to be done.
    """
    cells = ((X - X.min(0)) / np.ptp(X, axis=0).max() * (2**bits - 1)).astype(np.int64)
    place = np.zeros(len(X), np.int64)
    for bit in range(bits):
        for axis in (0, 1):
            place |= (cells[:, axis] >> bit & 1) << (2 * bit + axis)
    return np.argsort(place)


def main() -> None:
    parser = argparse.ArgumentParser(description="Map heights with mean, uncertainty and a posterior function.")
    parser.add_argument("--data", type=Path, help="npz with X (longitude, latitude) and y (metres); made up if missing")
    parser.add_argument("--n", type=int, default=10_000, help="training points")
    parser.add_argument("--box", type=float, nargs=4, metavar=("W", "E", "S", "N"), help="only between these degrees")
    parser.add_argument("--steps", type=int, help="optimiser steps, instead of the planner's")
    parser.add_argument("--log", action="store_true", help=f"model log(height + {LOWEST:g} m)")
    parser.add_argument("--grid", type=int, default=300, help="cells of the map from west to east")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--dtype", default="auto", help="auto, float32 or float64; float32 is much faster on a GPU")
    parser.add_argument("--out", type=Path, default=Path("terrain.png"), help="where the picture goes")
    parser.add_argument(
        "--quick", action="store_true", help="a run of a few seconds: 600 points, 25 steps, a coarse map"
    )
    args = parser.parse_args()
    if args.quick:
        args.n, args.steps, args.grid = 600, 25, 60

    X, y = load(args.data) if args.data else invent(2 * args.n + 4000)
    if args.box:
        lowest, highest = np.reshape(args.box, (2, 2)).T
        inside = ((lowest <= X) & (highest >= X)).all(1)
        X, y = X[inside], y[inside]
    shuffled = np.random.default_rng(0).permutation(len(y))
    held_out, train = np.split(shuffled, [min(5000, len(y) // 10)])
    train = train[: args.n]
    train = train[along_a_curve(X[train])]

    forward, back = (lambda h: np.log(h + LOWEST), lambda t: np.exp(t) - LOWEST) if args.log else (np.array, np.array)
    model = GPRegressor(device=args.device, dtype=args.dtype, verbose=not args.quick, random_state=0)
    if args.steps is not None:
        model.set_params(n_steps=args.steps)
    began = time.perf_counter()
    model.fit(X[train], forward(y[train]))
    fitted = time.perf_counter() - began
    print(f"plan          {model.plan_.headline}")
    print(f"n             {len(train):,}")
    print(f"fitted in     {fitted:.1f} s, {model.n_steps_} steps, {sum(h.epochs for h in model.history_):.0f} epochs")
    score(model, X[held_out], y[held_out], forward, back, log=args.log)

    began = time.perf_counter()
    (west, south), (east, north) = X.min(0), X.max(0)
    lon = np.linspace(west, east, args.grid)
    lat = np.linspace(south, north, round(args.grid * (north - south) / (east - west)))
    grid = np.stack(np.meshgrid(lon, lat), -1).reshape(-1, 2)
    mean, std = model.predict(grid, return_std=True, include_noise=False)
    function = model.sample_y(grid)[:, 0]
    unknown = std > UNKNOWN * float(model.hyperparameters_.signal_scale) * np.std(forward(y[train]))
    maps = {
        "posterior mean": np.where(unknown, np.nan, back(mean)),
        "one posterior function": np.where(unknown, np.nan, back(function)),
        "standard deviation, without noise": (back(mean + std) - back(mean - std)) / 2,
    }
    print(f"mapped in     {time.perf_counter() - began:.1f} s, {len(grid):,} cells")
    draw(args.out, X[train], y[train], lon, lat, maps)
    print(f"picture       {args.out}")


def score(model: GPRegressor, X: np.ndarray, y: np.ndarray, forward, back, *, log: bool) -> None:
    """Held-out error, density and coverage, in metres whatever was modelled; coverage also for plains and mountains."""
    mean, std = model.predict(X, return_std=True)
    density = model.log_predictive_density(X, forward(y)) - (np.log(y + LOWEST) if log else 0.0)  # d log(h + c) / dh
    inside = np.abs(forward(y) - mean) <= 1.96 * std
    parts = {"of all": y > -np.inf, "below 500 m": y < 500.0, "above 1,500 m": y > 1500.0}
    covered = [f"{inside[rows].mean():.1%} {name}" for name, rows in parts.items() if rows.any()]
    print(f"held out      {len(y):,}")
    print(f"RMSE          {np.sqrt(np.mean((back(mean) - y) ** 2)):.1f} m (heights have a std of {y.std():.1f} m)")
    print(f"LLH           {density.mean():.3f} nats a point, heights in metres")
    print(f"95% coverage  {', '.join(covered)}")
    print(f"converged     {'yes' if model.converged_ else 'no'} (off by {model.solve_error_:.2g} of the noise)")


def draw(path: Path, X: np.ndarray, y: np.ndarray, lon: np.ndarray, lat: np.ndarray, maps: dict) -> None:
    """Data, mean, one function and standard deviation on one page."""
    width = np.ptp(lon) * np.cos(np.radians(lat.mean()))  # a degree of longitude shrinks towards the poles
    figure, axes = plt.subplots(2, 2, figsize=(12, 1.4 + 8.6 * np.ptp(lat) / width), layout="constrained")
    heights = mpl.colors.PowerNorm(0.5, *np.quantile(y, [0.001, 0.999]))  # most land is low: spend the colours there
    data = axes[0, 0].scatter(*X.T, c=y, s=min(12.0, 30_000 / len(y)), lw=0, norm=heights, cmap="viridis")
    images = {f"data: {len(y):,} points": data}
    for ax, (title, values) in zip(axes.flat[1:], maps.items(), strict=True):
        look = {"cmap": "magma", "norm": "log"} if "deviation" in title else {"cmap": "viridis", "norm": heights}
        images[title] = ax.pcolormesh(lon, lat, values.reshape(len(lat), len(lon)), rasterized=True, **look)
    for ax, (title, image) in zip(axes.flat, images.items(), strict=True):
        ax.set(title=title, xlabel="longitude (°)", ylabel="latitude (°)", facecolor="0.85")
        ax.set(xlim=lon[[0, -1]], ylim=lat[[0, -1]], aspect=1 / np.cos(np.radians(lat.mean())))
        bar = figure.colorbar(image, ax=ax, shrink=0.85, extend="both" if image.norm is heights else "neither")
        if image.norm is not heights:
            bar.set_ticks(mpl.ticker.LogLocator(subs=(1, 2, 5)), minor=False)
            bar.set_ticks([], minor=True)
        bar.ax.yaxis.set_major_formatter("{x:g}")
        bar.set_label("height (m)" if image.norm is heights else "standard deviation (m)")
    figure.savefig(path, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main()
