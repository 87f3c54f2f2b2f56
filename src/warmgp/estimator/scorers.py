"""Scores of predictions with their error bars, for scikit-learn's cross-validation and searches.

A scorer is called with (estimator, X, y) and returns a number. These take a ``GPRegressor``, a pipeline that ends in
one, or a search whose best estimator is one. They are plain functions, so that they can be pickled. Of several targets
they are averages over all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from warmgp.data.arrays import check_targets, to_numpy
from warmgp.estimator.intervals import Intervals, check_coverage, ends_of, normal_quantiles

FloatArray = NDArray[np.float64]


def log_density_scorer(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Returns the mean log predictive density of held-out rows, in nats, for ``cross_val_score(..., scoring=...)``.

    Higher is better: it rewards predictions that are near, and error bars that are as wide as they have to be. A
    difference of 0.1 counts; numbers are comparable for the same y alone.

    Parameters
    ----------
    estimator : GPRegressor, or a Pipeline or search that ends in one
    X, y : array-like
        Held-out rows, in the units of training.
    """
    model, inputs = _unwrapped(estimator, X)
    return float(np.mean(to_numpy(model.log_predictive_density(inputs, y))))


def crps_scorer(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Returns minus the mean continuous ranked probability score, in units of y: higher is better, and 0 is perfect.

    Like an absolute error, but of the whole predictive distribution. A few rows that are far off weigh less than in
    :func:`log_density_scorer`. The arguments are the same.
    """
    mean, std, targets = _predicted(estimator, X, y)
    z = (targets - mean) / std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return -float(np.mean(std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))))


def coverage_scorer(estimator: Any, X: ArrayLike, y: ArrayLike, coverage: float = 0.9) -> float:
    """Returns the share of held-out rows inside their interval of ``coverage``: it should be near that number.

    It is for a look, in ``cross_validate``, and not for a search: intervals without end hold everything. Another
    coverage is ``functools.partial(coverage_scorer, coverage=0.5)``. The other arguments are those of
    :func:`log_density_scorer`.
    """
    levels = ends_of(check_coverage(coverage))
    mean, std, targets = _predicted(estimator, X, y)
    lower, upper = np.moveaxis(normal_quantiles(mean, std, levels), -1, 0)
    return float(np.mean((lower <= targets) & (targets <= upper)))


def _predicted(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns mean and std of the rows, and the truth, (m,) each, or (m, q) of q targets."""
    model, inputs = _unwrapped(estimator, X)
    mean, std = model.predict(to_numpy(inputs), return_std=True)
    return mean, std, check_targets(y, len(mean), q=model.n_targets_, known=model.target_names_)


def _unwrapped(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Returns the model at the end of pipelines and searches, and X as it comes to there."""
    whole = estimator
    while not isinstance(estimator, Intervals):
        if hasattr(estimator, "best_estimator_"):  # of a search
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):  # of a pipeline
            X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
            estimator = estimator.steps[-1][1]
        else:
            raise TypeError(
                f"a score of error bars needs a GPRegressor, or a Pipeline or search that ends in one, got "
                f"{type(whole).__name__}" + ("" if whole is estimator else f" with {type(estimator).__name__} in it")
            )
    return estimator, X
