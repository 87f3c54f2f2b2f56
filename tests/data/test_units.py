"""Data that are used in the units they come in."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from warmgp import GPRegressor, Hyperparameters


def test_inputs_far_from_zero_keep_their_digits_without_standardisation() -> None:
    """Times in seconds since 1970 in float32 would be rounded to minutes."""
    t = np.linspace(0, 10, 300)[:, None]
    y = np.sin(t[:, 0])
    near, far = (
        GPRegressor(standardize=False, dtype="float32", n_steps=10, random_state=0).fit(t + offset, y)
        for offset in (0.0, 1.7e9)
    )
    assert np.allclose(near.predict(t), far.predict(t + 1.7e9), atol=1e-3)


@pytest.mark.parametrize("case", ["y far off", "y large", "x small"])
def test_units_that_training_cannot_start_from_are_warned_of(case: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0])
    bad = {
        "y far off": (X, y + 100, "y has mean 100"),
        "y large": (X, 1e3 * y, "y has standard deviation"),
        "x small": (X * [1.0, 1e-3], y, "column 1 of X has standard deviation"),
    }
    inputs, targets, message = bad[case]
    with pytest.warns(UserWarning, match=f"standardize=False, but {message}.*Leave standardize=True"):
        GPRegressor(standardize=False, n_steps=1, random_state=0).fit(inputs, targets)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        GPRegressor(n_steps=1, random_state=0).fit(inputs, targets)
        start = Hyperparameters(0.1, 1.0, [1.0, 1.0])
        GPRegressor("matern32", standardize=False, init=start, n_steps=1, random_state=0).fit(inputs, targets)
        GPRegressor(standardize=False, n_steps=1, random_state=0).fit(X, y)
