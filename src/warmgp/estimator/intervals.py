"""Answers in the form people use: intervals and quantiles of a prediction, from its mean and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from warmgp.checks import is_number
from warmgp.data.arrays import like, to_numpy
from warmgp.data.named_grids import is_named

FloatArray = NDArray[np.float64]


def check_coverage(coverage: Any, name: str = "coverage") -> float:
    """Returns the share of observations that an interval is to hold; raises unless it is between 0 and 1."""
    if not (is_number(coverage) and 0 < coverage < 1):
        raise ValueError(f"{name} must be a number between 0 and 1, such as 0.9 for 90%, got {coverage!r}")
    return float(coverage)


def check_levels(q: Any, name: str = "q") -> FloatArray:
    """Returns the levels of quantiles, (k,); raises unless each is between 0 and 1."""
    levels = np.atleast_1d(np.asarray(q))
    numbers = levels.ndim == 1 and levels.size > 0 and levels.dtype.kind in "fiu"
    if not numbers or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"{name} must be numbers between 0 and 1, such as [0.05, 0.5, 0.95], got {q!r}")
    return levels.astype(np.float64)


def ends_of(coverage: float) -> tuple[float, float]:
    """Returns the levels of the two quantiles between which an interval of that coverage lies, as much on each side."""
    return (1 - coverage) / 2, (1 + coverage) / 2


def normal_quantiles(mean: FloatArray, std: FloatArray, levels: Sequence[float] | FloatArray) -> FloatArray:
    """Returns the quantiles of normal distributions, (m, k), by their means and standard deviations, (m,) each."""
    return np.asarray(mean)[..., None] + np.asarray(std)[..., None] * ndtri(np.asarray(levels, dtype=np.float64))


class Intervals:
    """Answers with intervals and quantiles for an estimator that predicts a mean and a standard deviation."""

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> Any:
        """Returns the predictive mean at X, and what else is asked for."""
        raise NotImplementedError

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9, include_noise: bool = True) -> Any:
        """Returns the lower and the upper end of an interval for each row of X, (rows of X, 2).

        It is to hold ``coverage`` of new observations there, and leaves out as many below as above; with
        ``include_noise=False`` it is for the function without noise. The interval is that of the normal predictive
        distribution at the trained hyperparameters, mean ± z·std with z = 1.645 for 90%.

        Of q targets it is (rows of X, q, 2). For a grid of xarray (:meth:`predict`) a Dataset with "lower" and "upper"
        comes back.
        """
        return self._quantiles(X, ("lower", "upper"), ends_of(check_coverage(coverage)), include_noise)

    def predict_quantiles(self, X: ArrayLike, q: ArrayLike, include_noise: bool = True) -> Any:
        """Returns quantiles of the predictive distribution for each row of X, (rows of X, len(q)), in the order of q.

        A new observation is below the quantile of level 0.05 in one case of twenty; that of 0.5 is the mean. With
        ``include_noise=False`` they are those of the function without noise. Of several targets they are (rows of X,
        targets, len(q)). For a grid of xarray a Dataset with "q0.05" and so on comes back.
        """
        levels = check_levels(q).tolist()
        return self._quantiles(X, [f"q{level:g}" for level in levels], levels, include_noise)

    def _quantiles(self, X: Any, names: Sequence[str], levels: Sequence[float], include_noise: bool) -> Any:
        """Returns the quantiles of these levels, (rows of X, k); by their names in a Dataset for a named grid."""
        if not is_named(X):
            mean, std = self.predict(to_numpy(X), return_std=True, include_noise=include_noise)
            return like(X, normal_quantiles(mean, std, levels))
        found = self.predict(X, return_std=True, include_noise=include_noise)
        made = {}
        for mean in [one for one in found.data_vars if one.startswith("mean")]:
            of = mean.removeprefix("mean")  # of several targets the name of one
            for name, level in zip(names, levels, strict=True):
                values = found[mean] + float(ndtri(level)) * found[f"std{of}"]
                made[f"{name}{of}"] = values.assign_attrs(long_name=f"quantile {level:g}")
        return found.drop_vars(list(found.data_vars)).assign(made)
