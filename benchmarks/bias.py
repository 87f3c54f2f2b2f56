"""What random features do to the gradient: estimates beside the exact one, on a dense window of a map.

    python -m benchmarks.bias --out benchmarks/results/bias-cpu.json

The window holds the n training points of *terrain* nearest to its middle, as dense as the whole set, at the
hyperparameters that its training starts from. All is dense float64, with exact solutions, so that only the probes
differ: 64 of them, from 2,000 features drawn plainly from the spectrum (the paper's) or with more in its tail (the
library's), from 16,000 of those, from exact prior samples, and standard ones. Gradients are by the logarithm of each
hyperparameter, per point, as means over ``--draws`` draws with the largest deviation of a draw beside them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from experiments.cells import Start
from experiments.common import machine, write_json
from experiments.data import split_of
from experiments.store import Store
from warmgp import Hyperparameters
from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.kernels import Matern32
from warmgp.operators import DenseOperator
from warmgp.solvers import Cholesky, StoppingRule

ESTIMATORS: dict[str, GradientEstimator] = {
    "2,000 features of the spectrum": Pathwise(64, 2000, "plain"),
    "2,000 features, more in the tail": Pathwise(64, 2000),
    "16,000 features, more in the tail": Pathwise(64, 16_000),
    "exact prior samples": Pathwise(64, 2000, "exact"),
    "standard": Standard(64),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=6000)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--data", default=None, help="folder of the UCI sets, beside which terrain lies")
    parser.add_argument("--store", type=Path, default=Path("experiments/store"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    start = Store(args.store).get(Start("terrain"))
    if start is None:
        parser.error(f"no start: python -m experiments.run large --datasets terrain --store {args.store}")
    data = split_of("terrain", 0, args.data)
    rows = np.abs(data.x_train - np.median(data.x_train, axis=0)).max(1).argsort()[: args.n]
    x, y = (torch.as_tensor(part[rows]).double() for part in (data.x_train, data.y_train))
    theta = Hyperparameters.from_vector(torch.tensor(start["theta"], dtype=torch.float64))
    operator, solver, rule, state = DenseOperator(x, Matern32(), theta), Cholesky(), StoppingRule(), None
    names = ("noise", "signal", *[f"length {k + 1}" for k in range(x.shape[1])])
    found: list[dict[str, object]] = []
    for name, estimator in {"exact": Exact(), **ESTIMATORS}.items():
        gradients = []
        for seed in range(args.draws if estimator.n_probes else 1):
            draw = estimator.draw(operator, torch.Generator().manual_seed(seed))
            targets = estimator.targets(operator, y, draw)
            result = solver.solve(operator, targets, rule=rule, state=state)
            state = result.state
            gradients.append(estimator.gradient(operator, result, targets) * theta.vector / len(y))
        mean = torch.stack(gradients).mean(0)
        spread = (torch.stack(gradients) - mean).abs().amax(0)
        found.append({"probes": name, "gradient": mean.tolist(), "deviation": spread.tolist()})
        cells = (f"{n} {m:+.3f} ± {s:.3f}" for n, m, s in zip(names, mean.tolist(), spread.tolist(), strict=True))
        print(f"{name:34} " + "  ".join(cells), flush=True)
    if args.out:
        write_json(args.out, {"machine": machine("cpu"), "n": args.n, "theta": start["theta"], "rows": found})


if __name__ == "__main__":
    main()
