"""Every training row predicted from all others, in the user's units: what a fitted model says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from warmgp.estimator.several import Pattern
from warmgp.leave_one_out import left_out, targets_of
from warmgp.posterior import Posterior

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class LeaveOneOut:
    """Holds the prediction of each training row from all others, at the hyperparameters of all, in units of y.

    Attributes
    ----------
    rows : ndarray of int, (n,)
        The numbers of the rows in the X of the fit, counted from 0: rows without weight, or that a time limit left
        out, are not among them.
    y : ndarray, (n,)
        Their targets.
    mean, std : ndarray, (n,)
        What all others say of the target, and its standard deviation, with the noise of the row.
    residual : ndarray, (n,)
        (y − mean)/std, standard normal where the model is right.
    log_density : ndarray, (n,)
        log p(y_i | all others), in nats.
    mean_error, log_density_error : ndarray, (n,)
        Standard errors of ``mean``, in units of y, and of ``log_density``; zero where they are exact.
    std_error : ndarray, (n,)
        That of ``std``, relative: 0.02 is 2%.
    exact : bool
        Whether all of it comes from a factor of the kernel matrix, without error by chance.
    """

    rows: NDArray[np.int64]
    y: FloatArray
    mean: FloatArray
    std: FloatArray
    residual: FloatArray
    log_density: FloatArray
    mean_error: FloatArray
    std_error: FloatArray
    log_density_error: FloatArray
    exact: bool

    @property
    def rmse(self) -> float:
        """The root mean square error, in units of y."""
        return float(np.sqrt(np.mean((self.y - self.mean) ** 2)))

    @property
    def error_in_std(self) -> float:
        """How far ``mean`` is from the exact one, in ``std``: a root mean square over the rows."""
        return float(np.sqrt(np.mean((self.mean_error / self.std) ** 2)))

    def __str__(self) -> str:
        how = "exact" if self.exact else f"within {self.error_in_std:.2g} std of exact"
        return (
            f"{len(self.rows):,} rows, each predicted from all others ({how}): RMSE {self.rmse:.4g}, mean log density "
            f"{self.log_density.mean():.4g}"
        )

    __repr__ = __str__


def leave_one_out_of(model: Any) -> LeaveOneOut:
    """Returns the left-out predictions of a fitted estimator."""
    posterior, scaler = model.posterior_, model.scaler_
    y = standardised_targets(model)
    found, exact = left_out(posterior, y)
    given = model.y_train_ if y is not None else scaler.y_back(targets_of(posterior).numpy())
    rows = model.training_rows_ if model.training_rows_ is not None else np.arange(len(given))
    error, std, left = (part.numpy() * scaler.y_scale for part in (found.error, found.variance.sqrt(), found.left))
    uncertain, residual = found.uncertain.numpy(), error / std
    by_mean = np.hypot(uncertain * error, left)
    return LeaveOneOut(
        rows=rows,
        y=given,
        mean=given - error,
        std=std,
        residual=residual,
        log_density=-0.5 * (residual**2 + np.log(2 * np.pi * std**2)),
        mean_error=by_mean,
        std_error=0.5 * uncertain,
        log_density_error=np.hypot(0.5 * uncertain * (1.0 + residual**2), left / std * residual),
        exact=exact,
    )


def standardised_targets(model: Any) -> torch.Tensor | None:
    """Returns the targets of the training rows in standardised units, with any trend, (n,) or (n, q); None where a file
    of an earlier version has none."""
    posterior: Posterior = model.posterior_
    if model.y_train_ is None:
        return None
    return _standardised(model, model.which_, model.y_train_).to(posterior.x.device)


def pattern_targets(model: Any) -> list[tuple[Pattern, torch.Tensor]]:
    """Returns the targets that are known in rows of their own, each with its values in standardised units."""
    return [(one, _standardised(model, one.which, one.y).to(one.posterior.x.device)) for one in model.patterns_]


def _standardised(model: Any, which: tuple[int, ...], y: FloatArray) -> torch.Tensor:
    """Returns values y, (n,) or (n, k), of these targets in standardised units."""
    scaler = model.scaler_
    if not model.target_names_:
        return torch.as_tensor(scaler.y(y))
    mean, scale = (part[list(which)] for part in (scaler.y_mean, scaler.y_scale))
    return torch.as_tensor((y.reshape(len(y), -1) - mean) / scale).reshape(y.shape)
