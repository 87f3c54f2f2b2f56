"""Thompson sampling: find the top of an expensive function, a batch of evaluations at a time.

    python examples/thompson.py                             # Hartmann's function of six inputs, eight seeds

Every round draws as many posterior functions as the batch has places, climbs to the top of each, and evaluates there.
The functions are whole functions: ``sample_y`` returns the same ones at whatever points it is asked, so the top of each
can be searched for in stages. The next fit starts at the last one's hyperparameters.
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

INPUTS, TOP = 6, 3.32237  # of Hartmann's function on the unit cube
STARTS, TRIES = 5, 10  # of a climb
WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
SCALES = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(X: np.ndarray) -> np.ndarray:
    """Hartmann's function with its sign turned: six local maxima, the highest 3.32237."""
    return np.exp(-(SCALES * (X[:, None, :] - CENTRES) ** 2).sum(2)) @ WEIGHTS


def modelled(values: np.ndarray) -> np.ndarray:
    """What the process is told: the log, since a few high peaks stand on a plain. The top stays the top."""
    return np.log(values + 0.01)


def climb(model: GPRegressor, best: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
    """The top of each of the model's first ``batch`` posterior functions, (batch, inputs).

    First all functions at the same random points, some of them around the best point so far; then each function from
    its own ``STARTS`` best of those, closer and closer. A single start would overlook tops that lie far from the best.
    """
    near = best + 0.1 * rng.standard_normal((1000, INPUTS))
    points = np.clip(np.vstack([rng.uniform(size=(5000, INPUTS)), near]), 0, 1)
    values = model.sample_y(points, batch)  # (points, batch)
    tops = points[np.argsort(-values, 0)[:STARTS].T]  # (batch, STARTS, inputs)
    which, start = np.arange(batch)[:, None, None], np.arange(STARTS)[None, :, None]
    for radius in (0.1, 0.05, 0.02, 0.01, 0.005):
        steps = radius * rng.standard_normal((batch, STARTS, TRIES, INPUTS))
        steps[:, :, 0] = 0.0  # to stay is one of the tries
        tries = np.clip(tops[:, :, None] + steps, 0, 1)
        values = model.sample_y(tries.reshape(-1, INPUTS), batch).reshape(batch, STARTS, TRIES, batch)
        own = values[which, start, np.arange(TRIES), which]  # each function at its own tries, (batch, STARTS, TRIES)
        tops = tries[which[..., 0], start[..., 0], own.argmax(2)]
    return tops[np.arange(batch), own.max(2).argmax(1)]


def search(n: int, start: int, batch: int, steps: int, device: str, seed: int) -> tuple[np.ndarray, list, list]:
    """Values found in order, and every round's model and seconds. The first ``start`` points are random."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(start, INPUTS))
    y = hartmann(X)
    models, seconds = [], []
    init: object = "ones"
    while True:
        began = time.perf_counter()
        # another random_state a round: other functions. They are the n_probes of the model, so sampling needs no solve
        model = GPRegressor(
            "matern52",
            init=init,
            n_steps=steps if models else 5 * steps,
            n_probes=batch,
            noise_floor=1e-3,
            device=device,
            random_state=1000 * seed + len(models),
        ).fit(X, modelled(y))
        models.append(model)
        init = model.hyperparameters_
        if len(y) < n:
            new = climb(model, X[y.argmax()], min(batch, n - len(y)), rng)
        seconds.append(time.perf_counter() - began)
        if len(y) >= n:
            return y, models, seconds
        X, y = np.vstack([X, new]), np.concatenate([y, hartmann(new)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Maximise a function with batches of posterior functions.")
    parser.add_argument("--n", type=int, default=400, help="evaluations in all")
    parser.add_argument("--start", type=int, default=100, help="random evaluations to begin with")
    parser.add_argument("--batch", type=int, default=25, help="evaluations a round")
    parser.add_argument(
        "--steps", type=int, default=20, help="optimiser steps a round; five times as many in the first"
    )
    parser.add_argument("--seeds", type=int, default=8, help="repetitions")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("thompson.png"), help="where the picture goes")
    parser.add_argument("--quick", action="store_true", help="80 evaluations, two seeds: a few seconds")
    args = parser.parse_args()
    if args.quick:
        args.n, args.start, args.batch, args.steps, args.seeds = 80, 40, 20, 10, 2

    found, chance, seconds = [], [], []
    for seed in range(args.seeds):
        y, models, spent = search(args.n, args.start, args.batch, args.steps, args.device, seed)
        found.append(np.maximum.accumulate(y))
        other = np.random.default_rng(10_000 + seed).uniform(size=(args.n - args.start, INPUTS))
        chance.append(np.maximum.accumulate(np.concatenate([y[: args.start], hartmann(other)])))
        seconds.append(spent)
        print(f"seed {seed}        {found[-1][-1]:.4f} found, {chance[-1][-1]:.4f} at random, {sum(spent):.1f} s")
    found, chance = np.array(found), np.array(chance)

    X = np.random.default_rng(99).uniform(size=(2000, INPUTS))
    y, (mean, std) = modelled(hartmann(X)), models[-1].predict(X, return_std=True)
    inside, density = np.abs(y - mean) <= 1.96 * std, models[-1].log_predictive_density(X, y)
    print(f"plan          {models[-1].plan_.headline}")
    print(f"n             {args.n:,} evaluations, {args.batch} a round, {args.seeds} seeds")
    print(f"fitted in     {np.sum(seconds):.1f} s, fits and climbs of all seeds; last round {seconds[-1][-2]:.2f} s")
    print(f"best          {np.median(found[:, -1]):.4f} median, {found[:, -1].min():.4f} worst; the top is {TOP}")
    print(f"at random     {np.median(chance[:, -1]):.4f} median, {chance[:, -1].max():.4f} best")
    print(f"at the top    {np.sum(found[:, -1] > TOP - 0.01)} of {args.seeds} seeds come within 0.01")
    print("held out      2,000 uniform points, by the last model")
    print(f"RMSE          {np.sqrt(np.mean((mean - y) ** 2)):.4f} in the log (its std {y.std():.4f})")
    print(f"LLH           {density.mean():.4f} nats a point")
    print(f"95% coverage  {inside.mean():.1%}")
    print(f"converged     {'yes' if models[-1].converged_ else 'no'}")
    draw(args.out, args.start, found, chance, models)
    print(f"picture       {args.out}")


def draw(path: Path, start: int, found: np.ndarray, chance: np.ndarray, models: list) -> None:
    """What is still missing to the top over evaluations; and posterior functions along a line, first and last round."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.5, 4.4), layout="constrained")
    evaluations = np.arange(1, found.shape[1] + 1)
    for best, colour, line, name in (
        (chance, "#D55E00", "--", "random search"),
        (found, "#0072B2", "-", "Thompson sampling"),
    ):
        gap = np.maximum(TOP - best, 1e-4)
        left.fill_between(evaluations, gap.min(0), gap.max(0), color=colour, alpha=0.2, lw=0)
        left.plot(evaluations, np.median(gap, 0), line, color=colour, lw=2, label=name)
    left.axvline(start, color="0.5", lw=1, ls=":")
    left.set(yscale="log", xlabel="evaluations", ylabel="top − best found (median, range of seeds)")
    left.set(title=f"how far from the top, {len(found)} seeds")
    left.legend(loc="lower left", framealpha=0.9)

    place = np.linspace(0, 1, 201)
    line = np.tile([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573], (201, 1))  # through the top
    line[:, 0] = place
    for ax, model, title in (
        (middle, models[0], f"first round: {start} evaluations"),
        (right, models[-1], f"after the last: {found.shape[1]} evaluations"),
    ):
        functions = model.sample_y(line, min(8, model.n_probes))
        ax.plot(place, functions, color="#0072B2", lw=1, alpha=0.6)
        ax.plot(place, modelled(hartmann(line)), "--", color="black", lw=2, label="the function")
        ax.plot([], [], color="#0072B2", lw=1, label="posterior functions")
        ax.set(title=title, xlabel="$x_1$, the others as at the top", ylabel="log(value + 0.01)", ylim=(-3, 2.5))
        ax.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main()
