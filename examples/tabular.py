"""A table with numbers, categories and hours of the day: scikit-learn's pipeline, cross-validated, with intervals.

    python examples/tabular.py                              # Friedman's function: five inputs matter, five do not
    python examples/tabular.py --set bike                   # rented bicycles an hour (UCI: WARMGP_DATA, or a download)
    python examples/tabular.py --set bike --data FOLDER     # the same from FOLDER/bike

Every prediction that is scored or drawn was made by a model that had not seen its row. The picture shows how close they
are, whether intervals hold what they promise, and from the length scales which inputs the function bends along.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from warmgp import GPRegressor
from warmgp.datasets import uci

mpl.use("Agg")
import matplotlib.pyplot as plt

CYCLES = {"hour": 24, "weekday": 7, "month": 12}  # inputs that begin again, and after how many


def friedman(n: int) -> tuple[pd.DataFrame, np.ndarray, str]:
    """Friedman's first function of x1 to x5, five more inputs without effect, a category that shifts it; noise 1."""
    X, y = make_friedman1(n, n_features=10, noise=1.0, random_state=0)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(1, 11)])
    site = np.random.default_rng(0).integers(0, 3, n)
    frame["site"] = np.array(["north", "south", "west"])[site]
    return frame, y + 2.0 * site, "target"


def bike(n: int, folder: Path | None) -> tuple[pd.DataFrame, np.ndarray, str]:
    """Root of the bicycles rented in an hour, and what was known of that hour.

    The noise of a count grows with the count; that of its root hardly does. The file holds centred columns and the log
    of the count, whose least is 1: from their minima on they are codes and logs again. Year and month are in it twice,
    and casual and registered riders add up to the answer: those are left out.
    """
    split = uci("bike", folder=folder, standardize=False)
    X, y = np.vstack([split.x_train, split.x_test]), np.concatenate([split.y_train, split.y_test])
    X, y = X - X.min(0), np.sqrt(np.exp(y - y.min()))
    rows = np.random.default_rng(0).permutation(len(y))[:n]
    X, y = X[rows], y[rows]
    names = {0: "year", 1: "month", 6: "hour", 7: "holiday", 8: "weekday", 9: "workday"}
    names |= {11: "temperature", 12: "feels-like", 13: "humidity", 14: "wind"}
    frame = pd.DataFrame({name: X[:, j] for j, name in names.items()})
    frame["weather"] = np.array(["clear", "mist", "rain", "rain"])[X[:, 10].round().astype(int)]  # three hours of storm
    return frame, y, "√(rentals in an hour)"


def on_a_circle(frame: pd.DataFrame) -> pd.DataFrame:
    """Sine and cosine of each column, so that 23 h is next to 0 h."""
    angle = 2 * np.pi * frame / pd.Series(CYCLES)[frame.columns]
    return pd.concat([np.sin(angle).add_suffix("_sin"), np.cos(angle).add_suffix("_cos")], axis=1)


def preparation(frame: pd.DataFrame) -> ColumnTransformer:
    """Circles for what begins again, indicators for text, numbers as they are: GPRegressor standardises them itself."""
    text = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    cycles = [name for name in frame if name in CYCLES]
    return ColumnTransformer(
        [
            ("cycles", FunctionTransformer(on_a_circle), cycles),
            ("text", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), text),
            ("numbers", "passthrough", [name for name in frame if name not in {*text, *cycles}]),
        ],
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")


def sensitivity(pipeline: Pipeline, inputs: list[str]) -> list[float]:
    """1 / length scale of each input, the largest where an input became several columns; per std of the column."""
    model = pipeline[-1]
    inverse = 1 / model.hyperparameters_.length_scales.numpy()
    owners = [name.split("_")[0] for name in model.feature_names_in_]
    return [max(value for owner, value in zip(owners, inverse, strict=True) if owner == name) for name in inputs]


def main() -> None:
    parser = argparse.ArgumentParser(description="Cross-validate a Gaussian process on a table and draw how it did.")
    parser.add_argument("--set", choices=["friedman", "bike"], default="friedman", help="which table")
    parser.add_argument("--data", type=Path, help="folder that holds bike/; else WARMGP_DATA, else a download")
    parser.add_argument("--n", type=int, default=2000, help="rows, training and held out together")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="optimiser steps of each fit")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("tabular.png"), help="where the picture goes")
    parser.add_argument("--quick", action="store_true", help="300 rows, 2 folds, 40 steps: a few seconds")
    args = parser.parse_args()
    if args.quick:
        args.n, args.folds, args.steps = 300, 2, 40

    frame, y, target = friedman(args.n) if args.set == "friedman" else bike(args.n, args.data)
    process = make_pipeline(preparation(frame), GPRegressor(n_steps=args.steps, device=args.device, random_state=0))
    trees = make_pipeline(preparation(frame), HistGradientBoostingRegressor(random_state=0))
    mean, std, boosted = np.empty((3, len(y)))
    inverse, converged, seconds = [], 0, 0.0
    for train, test in KFold(args.folds, shuffle=True, random_state=0).split(frame):
        began = time.perf_counter()
        fitted = clone(process).fit(frame.iloc[train], y[train])
        seconds += time.perf_counter() - began
        mean[test], std[test] = fitted.predict(frame.iloc[test], return_std=True)  # goes through to GPRegressor
        inverse.append(sensitivity(fitted, list(frame)))
        converged += fitted[-1].converged_
        boosted[test] = clone(trees).fit(frame.iloc[train], y[train]).predict(frame.iloc[test])

    inside = np.abs(y - mean) <= 1.96 * std
    print(f"plan          {fitted[-1].plan_.headline}")
    print(f"n             {len(y):,} rows, {args.folds} folds, {fitted[-1].n_features_in_} columns")
    print(f"fitted in     {seconds:.1f} s, all folds")
    print(f"RMSE          {rmse(y, mean):.4f} (std of the target {y.std():.4f}; boosted trees {rmse(y, boosted):.4f})")
    print(f"LLH           {norm.logpdf(y, mean, std).mean():.4f} nats a row")
    half = (np.abs(y - mean) <= norm.ppf(0.75) * std).mean()
    print(f"95% coverage  {inside.mean():.1%}, intervals {3.92 * std.mean():.3f} wide on average; 50%: {half:.1%}")
    print(f"converged     {'yes' if converged == args.folds else 'no'} ({converged} of {args.folds} folds)")
    draw(args.out, target, y, mean, std, pd.DataFrame(inverse, columns=frame.columns))
    print(f"picture       {args.out}")


def rmse(y: np.ndarray, prediction: np.ndarray) -> float:
    return float(np.sqrt(np.mean((y - prediction) ** 2)))


def draw(path: Path, target: str, y: np.ndarray, mean: np.ndarray, std: np.ndarray, inverse: pd.DataFrame) -> None:
    """Predictions against truth, coverage against promise, and 1 / length scale of every input."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.5, 4.4), layout="constrained")
    ends = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    left.plot(ends, ends, color="0.3", lw=1)
    left.scatter(mean, y, s=6, lw=0, alpha=min(1.0, 0.1 + 500 / len(y)), color="#0072B2", rasterized=True)
    left.set(title="held-out rows", xlabel=f"predicted {target}", ylabel=f"observed {target}", aspect="equal")

    promised = np.linspace(0.02, 0.98, 49)
    held = (np.abs(y - mean)[:, None] <= std[:, None] * norm.ppf((1 + promised) / 2)).mean(0)
    chance = 2 * np.sqrt(promised * (1 - promised) / len(y))
    middle.fill_between(promised, promised - chance, promised + chance, color="0.85", label="chance alone (±2 se)")
    middle.plot(promised, promised, color="0.3", lw=1, label="perfect")
    middle.plot(promised, held, color="#D55E00", lw=2, label="held-out rows")
    middle.set(title="calibration", xlabel="promised coverage", ylabel="rows inside the interval", aspect="equal")
    middle.legend(loc="upper left", frameon=False)

    inverse = inverse[inverse.mean().sort_values().index]
    right.barh(inverse.columns, inverse.mean(), color="#56B4E9")
    for fold in inverse.to_numpy():
        right.plot(fold, inverse.columns, ".", color="black", ms=4, label="_")
    right.plot([], [], ".", color="black", ms=4, label="one fold")
    right.legend(loc="lower right", frameon=False)
    right.set(title="which inputs bend the function", xlabel="1 / length scale (per std of the input)")
    figure.savefig(path, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main()
