"""A look inside a fitted estimator: left-out rows, a diagnosis and the value of its likelihood, each when asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from warmgp.data.scaling import Standardizer
from warmgp.estimator.diagnosis import Diagnosis, diagnosed
from warmgp.estimator.left_out import LeaveOneOut, leave_one_out_of, pattern_targets, standardised_targets
from warmgp.estimator.reported import Asked, report_on
from warmgp.estimator.targets import check_one_target
from warmgp.likelihood import Likelihood, likelihood_of
from warmgp.planning.memory import H_fits
from warmgp.planning.plan import Plan
from warmgp.planning.threads import free_threads
from warmgp.posterior import Posterior

MOST_STORED = 20_000
"""The most points for which H is stored to find a likelihood: 3.2 GB."""


class Insight:
    """Says of a fitted estimator how good it is: what it needs of it are the posterior, the scaler and the targets."""

    posterior_: Posterior
    scaler_: Standardizer
    plan_: Plan
    y_train_: NDArray[np.float64] | None = None
    training_rows_: NDArray[np.int64] | None = None
    likelihood_: Likelihood | None = None

    @cached_property
    def loo_(self) -> LeaveOneOut:
        """Every training row predicted from all others, at the hyperparameters of all: mean, std, log density and
        standardised residual of each, in units of y.

        It is computed when it is first asked for: exactly up to 2,500 points, and for a model with exact variances.
        Beyond, it comes from the model's samples with near points as their control, for about two products with the
        kernel matrix (none on a CPU beyond 30,000 points, for a model that has converged). ``loo_.mean_error`` and its
        like say how exact that is.
        """
        check_is_fitted(self, "hyperparameters_")
        check_one_target(self, "loo_")
        with self._at_work():
            return leave_one_out_of(self)

    def diagnose(self) -> Diagnosis:
        """Returns how good the model is by its own rows, each predicted from all others: ``print`` it.

        It has errors and log density, whether intervals hold what they should, the worst rows, whether residuals depend
        on an input or on the order of rows, how much each input counts, and remarks with what to do. See the page "Is
        my model any good?".
        """
        check_is_fitted(self, "hyperparameters_")
        check_one_target(self, "diagnose")
        return diagnosed(self, self.loo_)

    def report(
        self,
        path: str | os.PathLike[str],
        held_out: tuple[ArrayLike, ArrayLike] | None = None,
        *,
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Writes one HTML page about the model: its data, plan, training, inputs, calibration, sections and maps.

        The page needs nothing beside itself: no script, no network. With ``held_out=(X, y)``, rows that the model has
        not seen, it has their errors, too. ``units`` are those of columns and of the target, by name: {"air": "°C"}.
        Left-out rows (``loo_``) are computed for it if they have not been.
        """
        report_on(self, path, Asked(held_out, units))

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log marginal likelihood at the final hyperparameters, in standardised units.

        It is computed when it is first asked for: exactly up to 2,500 points, otherwise by some hundred products with
        the kernel matrix at most, and ``log_marginal_likelihood_error_`` says how exact it is. With a trend it is that
        of its estimated coefficients, the profile likelihood. Less n log(``scaler_.y_scale``) it is in units of y. Of
        several targets it is the sum.
        """
        return self._found_likelihood().value

    @property
    def log_marginal_likelihood_error_(self) -> float:
        """The standard error of ``log_marginal_likelihood_value_``: 0 where it is exact."""
        return self._found_likelihood().error

    def _found_likelihood(self) -> Likelihood:
        check_is_fitted(self, "hyperparameters_")
        if self.likelihood_ is None:
            n, stored = len(self.posterior_.x), False
            if n <= MOST_STORED:
                stored = H_fits(n, torch.float64, self.plan_.memory_budget)
            with self._at_work():
                found = [likelihood_of(self.posterior_, standardised_targets(self), stored=stored)]
                found += [likelihood_of(one.posterior, y, stored=stored) for one, y in pattern_targets(self)]
            self.likelihood_ = Likelihood(sum(one.value for one in found), sum(one.error for one in found))
        return self.likelihood_

    def _at_work(self) -> Any:
        """Lets torch use as many threads as are worth it for products with all rows."""
        return free_threads(self.posterior_.x.device, len(self.posterior_.x) ** 2)
