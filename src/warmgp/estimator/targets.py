"""The targets of a fitted estimator: how many, what they are called, and the model of each of them alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from warmgp.data.scaling import Standardizer
from warmgp.estimator.several import Pattern, gathered
from warmgp.estimator.units import known
from warmgp.posterior import Posterior

FloatArray = NDArray[np.float64]


class OneTargetError(ValueError, AttributeError):
    """Says that something is to be had for one target, and of a model that has several."""


class Targets:
    """Knows the targets of a fitted estimator: what it needs of it are the posterior, the patterns and the names."""

    posterior_: Posterior
    scaler_: Standardizer
    y_train_: FloatArray | None
    training_rows_: NDArray[np.int64] | None
    target_name_: str | None
    target_names_: tuple[str, ...] = ()
    patterns_: tuple[Pattern, ...] = ()
    which_: tuple[int, ...] = (0,)

    def __sklearn_tags__(self) -> Any:
        """Returns scikit-learn's tags: that y may have several columns."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    @property
    def n_targets_(self) -> int:
        """The number of targets."""
        return max(1, len(self.target_names_))

    def of_target(self, which: int | str) -> Self:
        """Returns the model of one of several targets, by its name or its number, counted from 0.

        It is a fitted estimator like one that was fitted to that target alone with the same hyperparameters, and has
        whatever is for one target: ``loo_``, :meth:`diagnose`, ``trend_``. It shares what it can with this one.
        """
        check_is_fitted(self, "hyperparameters_")
        j = self._number_of(which)
        if not self.target_names_:
            return self
        own = Pattern(self.which_, self.posterior_, self.training_rows_, self.y_train_)  # type: ignore[arg-type]
        pattern = next(one for one in (own, *self.patterns_) if j in one.which)
        place, y = pattern.which.index(j), pattern.y
        model = object.__new__(type(self))
        model.__dict__.update({name: value for name, value in vars(self).items() if name != "loo_"})
        model.posterior_ = pattern.posterior.of_target(place) if len(pattern.which) > 1 else pattern.posterior
        model.scaler_ = self.scaler_.of_target(j)
        model.y_train_ = np.ascontiguousarray(y[:, place]) if y is not None and y.ndim > 1 else y
        model.training_rows_ = pattern.rows
        model.target_name_, model.target_names_ = self.target_names_[j], ()
        model.which_, model.patterns_ = (0,), ()
        here: Any = model
        here.hyperparameters_ = known(model.posterior_.theta, model.scaler_)
        here.plan_ = replace(here.plan_, rule=replace(here.plan_.rule, n_targets=1))
        here.likelihood_, here.history_, here.updates_ = None, list(here.history_), list(here.updates_)
        return model

    def _number_of(self, which: int | str) -> int:
        """Returns the number of a target that is given by its name or number; raises where there is none such."""
        names: Any = self.target_names_ or (self.target_name_ or "y",)
        if isinstance(which, str) and which in names:
            return int(names.index(which))
        if isinstance(which, bool) or not isinstance(which, Integral) or not 0 <= which < len(names):
            raise ValueError(f"which must be one of the targets {', '.join(names)}, or its number, got {which!r}")
        return int(which)

    # -- of all targets ----------------------------------------------------------------------------------------------
    def _over_targets(self, answer: Callable[[Posterior], Tensor]) -> FloatArray:
        """Returns what posteriors say of their targets, (m, …) for one target, else (m, q, …), in standardised units;
        an answer of a posterior with several targets has them in its second axis."""
        if self.n_targets_ == 1:
            return np.asarray(answer(self.posterior_).double().cpu().numpy())
        both = ((self.which_, self.posterior_), *((one.which, one.posterior) for one in self.patterns_))
        return gathered([(which, answer(posterior).double().cpu().numpy()) for which, posterior in both])


def check_one_target(model: Any, what: str) -> None:
    """Raises where a model has several targets, and ``what`` is for one."""
    names = model.target_names_
    if names:
        raise OneTargetError(
            f"{what} is for one target, and the model has {len(names)}: use model.of_target({names[0]!r}), which is "
            "the model of that target alone"
        )
