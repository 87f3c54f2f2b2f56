"""Options that cannot be meant are refused by name before any work."""

from __future__ import annotations

import numpy as np
import pytest

from warmgp import GPRegressor, Hyperparameters

FAST = {"n_steps": 5, "n_features": 200, "n_probes": 8, "random_state": 0}

X = np.random.default_rng(0).uniform(-2, 2, (40, 2))
Y = np.sin(2 * X[:, 0])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"kernel": "cosine"}, "kernel must be one of"),
        ({"solver": "lu"}, "solver must be .auto., .cholesky."),
        ({"gradient": "finite"}, "gradient must be"),
        ({"gradient": "exact", "solver": "cg"}, "cholesky"),
        ({"n_probes": 0}, "n_probes"),
        ({"n_probes": 2.5}, "n_probes"),
        ({"n_features": 7}, "n_features"),
        ({"n_features": "many"}, "n_features"),
        ({"tol": -0.01}, "tol"),
        ({"tol": 0}, "tol"),
        ({"tol": 1.0}, "tol"),
        ({"ard": "no"}, "ard"),
        ({"init": np.ones(4)}, "init"),
        ({"init": Hyperparameters.ones(2), "ard": False}, "ard"),
        ({"callbacks": None}, "callbacks"),
        ({"learning_rate": None}, "learning_rate"),
        ({"learning_rate": True}, "learning_rate"),
        ({"memory_budget": "1GB"}, "memory_budget"),
        ({"tol": "tight"}, "tol"),
        ({"max_epochs": -1}, "max_epochs"),
        ({"max_epochs": "ten"}, "max_epochs"),
        ({"n_steps": -1}, "n_steps"),
        ({"n_steps": "some"}, "n_steps"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"init": "zeros"}, "init"),
        ({"init": "given"}, "init"),
        ({"noise_floor": -1}, 'noise_floor must be a number of at least 0 or "auto"'),
        ({"noise_floor": "low"}, "noise_floor"),
        ({"noise_floor": None}, "noise_floor"),
        ({"device": "gpu9"}, "device"),
        ({"dtype": "float16"}, "dtype"),
        ({"dtype": 16}, "dtype"),
        ({"memory_budget": 0}, "memory_budget"),
        ({"random_state": -1}, "random_state must be .*got -1"),
        ({"random_state": "seed"}, "random_state must be"),
        ({"checkpoint": 5}, "checkpoint must be a path"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"verbose": 1}, "verbose"),
    ],
)
def test_bad_options_are_refused_by_name(option: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPRegressor(**{**FAST, **option}).fit(X, Y)  # type: ignore[arg-type]


def test_exact_training_that_cannot_fit_is_refused_at_once() -> None:
    with pytest.raises(MemoryError, match='solver="cg"'):
        GPRegressor(solver="cholesky", memory_budget=10_000, **FAST).fit(X, Y)
