"""Standard deviations from samples on smooth data with little noise, where features that are too few show.

With 512 samples chance moves the std of one point by 3%, so a bias can be told from it. What the data leave open is
little, and all of it in the highest frequencies: random features that have too few of those make every std too small.
"""

from __future__ import annotations

import numpy as np

from hostile.datasets import log_uniform
from hostile.reference import Reference
from warmgp import GPRegressor, Hyperparameters

CASES = 24
SAMPLES = 512
MEDIAN, QUANTILES = 0.1, 0.2
"""Bounds on the ratio to the exact std: of its median, and of its 5% and 95% quantiles, as promised."""


def test_std_of_smooth_data(case: int, rng: np.random.Generator) -> None:
    n, d = int(rng.integers(400, 1_500)), int(rng.integers(1, 9))
    kernel = str(rng.choice(["rbf", "rbf", "matern52", "matern32", "matern12"]))
    noise, length = float(log_uniform(rng, 1e-4, 3e-3)), float(log_uniform(rng, 0.5, 2.0)) * d**0.5 / 1.5
    X = rng.uniform(-1.7, 1.7, (n, d))
    y = np.sin(X).sum(1) + noise * rng.normal(size=n)
    X_new = rng.uniform(-1.7, 1.7, (200, d))
    theta = Hyperparameters(noise, 1.0, [length] * d)
    model = GPRegressor(kernel, solver="cg", n_probes=SAMPLES, n_steps=0, init=theta, random_state=case).fit(X, y)
    exact = Reference(X, y, kernel, noise, 1.0, [length])
    std = exact.standard_std(model.predict(X_new, return_std=True)[1])
    low, median, high = np.quantile(std / np.hypot(exact.predict(X_new).latent, noise), (0.05, 0.5, 0.95))
    name = f"{kernel}, {n} x {d}, noise {noise:.2g}, length {length:.2g}: 5%, median, 95% of std/exact std are"
    found = f"{name} {low:.2f}, {median:.2f}, {high:.2f}"
    assert abs(median - 1) <= MEDIAN and low >= 1 - QUANTILES and high <= 1 + QUANTILES, found
