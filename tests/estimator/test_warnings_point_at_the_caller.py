"""A warning points at the line of the caller, not into the library."""

from __future__ import annotations

import warnings

import numpy as np

from warmgp import GPRegressor


def lines_of(work: object) -> set[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        work()  # type: ignore[operator]
    assert seen
    return {one.filename for one in seen}


def test_every_warning_points_here() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(60, 2)), rng.normal(size=60)
    lost = X.copy()
    lost[:, 0] = 1e15 + np.round(50 * rng.normal(size=60))  # float64 has few numbers for it
    groups = np.repeat(np.arange(4) * 1e9, 15)[:, None] + rng.uniform(size=(60, 1))  # float32 merges them
    quick = {"n_steps": 1, "n_probes": 4, "n_features": 20, "random_state": 0}
    model = GPRegressor(**quick, solver="cg", max_epochs=1).fit
    for work in (
        lambda: GPRegressor(**quick).fit(lost, y),
        lambda: GPRegressor(**quick).fit(groups, y),
        lambda: GPRegressor(**quick).plan(groups),
        lambda: GPRegressor(**quick, standardize=False).fit(1e4 * X, y),
        lambda: model(X, np.sin(9 * X[:, 0]) + 1e-3 * y),
    ):
        assert lines_of(work) == {__file__}


def test_numbers_of_any_width_do() -> None:
    """A search over an int32 array passes such."""
    X = np.random.default_rng(0).uniform(size=(40, 2))
    small = {"n_features": 20, "random_state": 0}
    ours, theirs = (GPRegressor(n_probes=kind(8), n_steps=kind(2), **small).fit(X, X[:, 0]) for kind in (int, np.int32))
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert type(theirs.plan_.estimated_bytes) is int
