"""BoTorch on many observations: find the top of a function of six inputs that was measured 5,000 times, with noise.

    python examples/acquisition.py                          # Hartmann's function, five seeds
    python examples/acquisition.py --seeds 1 --n 20000

Every round climbs to the top of a few posterior functions by BoTorch's optimiser, with gradients, measures there, and
tells the model. ``condition_on_observations`` is an update of the model, not a new fit. At the end the answer is the
top of the mean. Random search measures as often, and answers with the place of its highest measurement. It needs
``pip install 'warmgp[botorch,plot]'``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from botorch.acquisition.analytic import PosteriorMean
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann

from warmgp import GPRegressor
from warmgp.botorch import WarmModel

mpl.use("Agg")
import matplotlib.pyplot as plt

INPUTS, TOP, NOISE = 6, 3.32237, 0.1  # Hartmann's function on the unit cube; the std of a measurement
PLACE = np.array([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573])
BOUNDS = torch.tensor([[0.0] * INPUTS, [1.0] * INPUTS], dtype=torch.float64)
HARTMANN = Hartmann(INPUTS, negate=True, dtype=torch.float64)


def hartmann(X: np.ndarray) -> np.ndarray:
    """Hartmann's function with its sign turned: six local maxima, the highest 3.32237."""
    return HARTMANN(torch.as_tensor(X)).numpy()


def top_of(function: Model, seed: int) -> torch.Tensor:
    """Where a function of a model, or its mean, is highest, (1, inputs)."""
    torch.manual_seed(seed)
    found, _ = optimize_acqf(PosteriorMean(function), BOUNDS, q=1, num_restarts=4, raw_samples=512)
    return found


def search(start: GPRegressor, rounds: int, batch: int, seed: int) -> tuple[WarmModel, list[np.ndarray], list[float]]:
    """The model after the last round, the true values at each round's places, and at the top of the mean after it."""
    rng, model = np.random.default_rng(1000 + seed), WarmModel(start)
    measured, answers = [], [hartmann(top_of(model, seed).numpy())[0]]
    for _ in range(rounds):
        functions = model.paths(start.n_probes)  # that came with the fit, and go on with every update
        drawn = rng.choice(len(functions), batch, replace=False)
        X = torch.cat([top_of(functions[int(j)], seed) for j in drawn])
        values = hartmann(X.numpy())
        y = torch.tensor(values + NOISE * rng.standard_normal(batch))
        model = model.condition_on_observations(X, y[:, None])
        measured.append(values)
        answers.append(hartmann(top_of(model, seed).numpy())[0])
    return model, measured, answers


def main() -> None:
    parser = argparse.ArgumentParser(description="Maximise a noisy function, measured often, with BoTorch.")
    parser.add_argument("--n", type=int, default=5000, help="random measurements to begin with")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of further ones")
    parser.add_argument("--batch", type=int, default=8, help="measurements a round")
    parser.add_argument("--seeds", type=int, default=5, help="repetitions")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("acquisition.png"), help="where the picture goes")
    parser.add_argument("--quick", action="store_true", help="400 measurements, one seed: a few seconds")
    args = parser.parse_args()
    if args.quick:
        args.n, args.rounds, args.batch, args.seeds = 400, 1, 3, 1

    found, chance, lucky, fits, searches, first = [], [], [], [], [], None
    for seed in range(args.seeds):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(args.n, INPUTS))
        y = hartmann(X) + NOISE * rng.standard_normal(args.n)
        began = time.perf_counter()
        # later seeds have other data of the same function: they take the hyperparameters of the first
        known = (
            {"n_steps": 10 if args.quick else "auto"}
            if first is None
            else {"init": first.hyperparameters_, "n_steps": 0}
        )
        model = GPRegressor("matern52", n_probes=64, device=args.device, random_state=seed, **known).fit(X, y)
        first = first or model
        fits.append(time.perf_counter() - began)
        began = time.perf_counter()
        last, measured, answers = search(model, args.rounds, args.batch, seed)
        searches.append(time.perf_counter() - began)
        other = np.vstack([X, rng.uniform(size=(args.rounds * args.batch, INPUTS))])
        noisy = hartmann(other) + NOISE * rng.standard_normal(len(other))
        found.append(answers)
        chance.append(hartmann(other)[noisy.argmax()])
        lucky.append(hartmann(other).max())
        print(
            f"seed {seed}        {answers[-1]:.4f} found, {chance[-1]:.4f} at random, {fits[-1] + searches[-1]:.1f} s"
        )

    gap, random_gap = TOP - np.array([part[-1] for part in found]), TOP - np.array(chance)
    X = np.random.default_rng(99).uniform(size=(2000, INPUTS))
    y = hartmann(X) + NOISE * np.random.default_rng(98).standard_normal(2000)
    mean, std = last.regressor.predict(X, return_std=True)
    inside, density = np.abs(y - mean) <= 1.96 * std, last.regressor.log_predictive_density(X, y)
    print(f"plan          {first.plan_.headline}")
    print(
        f"n             {args.n:,} random measurements, then {args.rounds} rounds of {args.batch}; {args.seeds} seeds"
    )
    print(f"fitted in     {fits[0]:.1f} s, the first; searches {np.mean(searches):.1f} s a seed")
    print(f"found         {np.median(TOP - gap):.4f} median, {(TOP - gap).min():.4f} worst; the top is {TOP}")
    print(f"at random     {np.median(chance):.4f} median, {np.max(chance):.4f} best, by the highest measurement")
    print(f"nearer        {np.median(random_gap) / np.median(gap):.1f} times as near to the top as random search")
    print(f"if it knew    {np.median(lucky):.4f} median of the best true value that random search has seen")
    print("held out      2,000 uniform points with noise, by the last model")
    print(f"RMSE          {np.sqrt(np.mean((mean - y) ** 2)):.4f} (the noise {NOISE}, the std of all {y.std():.4f})")
    print(f"LLH           {density.mean():.4f} nats a point")
    print(f"95% coverage  {inside.mean():.1%}")
    print(f"converged     {'yes' if last.regressor.converged_ else 'no'}")
    draw(args.out, np.array(found), np.array(chance), args.batch, measured, last)
    print(f"picture       {args.out}")


def draw(
    path: Path, found: np.ndarray, chance: np.ndarray, batch: int, measured: list[np.ndarray], model: WarmModel
) -> None:
    """What is missing to the top after every round; posterior functions along a line; what was measured where."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.5, 4.4), layout="constrained")
    more = batch * np.arange(found.shape[1])
    left.plot(more, TOP - found.T, "o-", color="#0072B2", lw=1.5, alpha=0.7)
    left.axhline(np.median(TOP - chance), color="#D55E00", ls="--", lw=2)
    left.axhspan((TOP - chance).min(), (TOP - chance).max(), color="#D55E00", alpha=0.15, lw=0)
    left.plot([], [], "o-", color="#0072B2", label="top of the mean, each seed")
    left.plot([], [], "--", color="#D55E00", label="random search: median and range")
    left.set(yscale="log", xlabel="measurements after the random ones", ylabel="top − value there")
    left.set(title="how far from the top")
    left.legend(loc="best", framealpha=0.9)

    place = np.linspace(0, 1, 201)
    line = np.tile(PLACE, (201, 1))
    line[:, 0] = place
    with torch.no_grad():
        functions = model.paths(12)(torch.tensor(line))[..., 0].numpy()
    middle.plot(place, functions.T, color="#0072B2", lw=1, alpha=0.5)
    middle.plot(place, hartmann(line), "--", color="black", lw=2, label="the function")
    middle.plot([], [], color="#0072B2", lw=1, label="posterior functions")
    middle.set(title="after the last round", xlabel="$x_1$, the others as at the top", ylabel="value")
    middle.legend(loc="best", frameon=False)

    for number, values in enumerate(measured):
        right.plot(np.full(len(values), number + 1), values, "o", color="#0072B2", ms=7, alpha=0.6)
    right.axhline(TOP, color="black", lw=1, ls=":", label="the top")
    usual = np.quantile(hartmann(np.random.default_rng(0).uniform(size=(4000, INPUTS))), 0.99)
    right.axhspan(0, usual, color="0.85", label="99% of random points")
    right.set(title="what the last seed measured", xlabel="round", ylabel="true value there", ylim=(0, 3.5))
    right.set_xticks(np.arange(1, len(measured) + 1))
    right.legend(loc="center right", frameon=False)
    figure.savefig(path, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main()
