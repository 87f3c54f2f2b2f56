"""Predictions of a fitted estimator: means, deviations, functions and densities, in the user's units."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from warmgp.checks import check_count
from warmgp.data.arrays import all_finite, check_inputs, check_targets, integer_rest, like, to_numpy
from warmgp.data.named_grids import is_named
from warmgp.data.scaling import Standardizer
from warmgp.estimator.anisotropy import Anisotropy, anisotropy_of
from warmgp.estimator.blocks import group_averages
from warmgp.estimator.gradients import functions, prediction, wants_gradient
from warmgp.estimator.maps import blocks_named, predict_named
from warmgp.estimator.parameters import check_seed
from warmgp.estimator.samples import new_samples
from warmgp.estimator.targets import Targets, check_one_target
from warmgp.estimator.trend import TrendCoefficients, coefficients_of
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.planning.plan import Plan
from warmgp.planning.threads import free_threads, limited_threads
from warmgp.posterior import Posterior
from warmgp.processes import current_team
from warmgp.training.state import TrainingOptions

FloatArray = NDArray[np.float64]


class Predicting(Targets):
    """Answers for a fitted estimator: what it needs of it are the posterior, the scaler and the plan."""

    posterior_: Posterior
    scaler_: Standardizer
    plan_: Plan
    hyperparameters_: Hyperparameters
    missing: str

    def __sklearn_tags__(self) -> Any:
        """Returns scikit-learn's tags: whether missing cells are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags

    @property
    def kernel_(self) -> Kernel:
        """The kernel of the model: the one that was given, or that the data have chosen."""
        return self.posterior_.kernel

    @property
    def anisotropy_(self) -> Anisotropy | None:
        """The angle and the two ranges where inputs were turned, in units of X; None where they were not."""
        return anisotropy_of(self.scaler_, self.hyperparameters_)

    @property
    def trend_(self) -> TrendCoefficients | None:
        """The coefficients of the trend and their standard errors, in the units of X and y; None without a trend."""
        check_is_fitted(self, "hyperparameters_")
        trend, scaler = self.posterior_.trend, self.scaler_
        if trend is not None:
            check_one_target(self, "trend_")
        return None if trend is None else coefficients_of(trend, scaler)

    def _options(self, plan: Plan, until: float | None = None) -> TrainingOptions:
        """Returns the plan and the parameters as training takes them, for functions that are solved for anew."""
        raise NotImplementedError

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> Any:
        """Returns the predictive mean at X; with ``return_std`` or ``return_cov`` also its deviation or covariance.

        Both are those of new observations, whose noise they include: the learned one, of weight one and without a known
        error; ``include_noise=False`` leaves it out. They are exact for a model trained exactly, and up to 2,500 points
        by default. Otherwise they come from the posterior samples, with near points as their control (:meth:`std_error`
        says how exact that is), and the covariance without noise has rank at most ``n_probes``. The mean alone is
        computed without them.

        Of q targets mean and std are (m, q), and the covariance is (m, m, q).

        X may also be an ``xarray.Dataset`` or ``DataArray`` whose coordinates or variables have the names of the
        inputs, such as :func:`warmgp.grid` makes. What comes back is then one Dataset over the same dimensions, with
        the variables "mean" and, with ``return_std``, "std"; NaN where an input is missing. Of several targets they are
        "mean_a" and so on, by their names.

        Where X is a tensor that requires a gradient, mean and std have one in X; a covariance of a few points that has
        one is that of :class:`warmgp.botorch.WarmModel`.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be asked for: the covariance has the variances")
        check_is_fitted(self, "hyperparameters_")
        if is_named(X):
            if return_cov:
                raise ValueError("return_cov is not for named grids: give rows of inputs, or ask for return_std")
            return predict_named(self, X, std=return_std, include_noise=include_noise, predict=self.predict)
        if wants_gradient(X):
            if return_cov:
                raise ValueError(
                    "return_cov has no gradient in X: warmgp.botorch.WarmModel(model).posterior(X) has, for a few "
                    "points; or pass X.detach()"
                )
            return prediction(self, X, return_std, include_noise)
        posterior, x = self.posterior_, self._standardised(X)
        rows = len(posterior.x) if posterior.exact and (return_std or return_cov) else len(x)
        with free_threads(x.device, rows * len(posterior.x)):
            if not (return_std or return_cov):
                mean = self._over_targets(lambda one: one.mean(x))
                return like(X, all_finite(self.scaler_.y_back(mean)))
            noise = posterior.noise_variance if include_noise else 0.0
            if return_cov:
                centre = self.scaler_.y_back(self._over_targets(lambda one: one.mean(x)))
                return like(X, all_finite(centre)), like(X, all_finite(self._covariance(x, noise)))
            both = self._over_targets(lambda one: _with_variance(*one.mean_and_variance(x)))
            std = torch.as_tensor(both[..., 1] + noise).sqrt().numpy()
            centre = self.scaler_.y_back(both[..., 0])
            return like(X, all_finite(centre)), like(X, all_finite(self.scaler_.y_scale_back(std)))

    def predict_together(self, X: ArrayLike, return_std: bool = False, include_noise: bool = True) -> Any:
        """Returns what :meth:`predict` does, at rows of X that several processes have divided among them.

        Under ``torchrun`` every process has to call it, with the same model and X: each predicts its part of the rows,
        all return the whole answer, and an error of one is raised by all. A process alone predicts all rows. There is
        no covariance, which is of all rows at once, and no gradient in X.
        """
        check_is_fitted(self, "hyperparameters_")
        if is_named(X):
            ask = self.predict_together
            return predict_named(self, X, std=return_std, include_noise=include_noise, predict=ask)
        if wants_gradient(X):
            raise ValueError("predict_together has no gradient in X: pass X.detach(), or ask predict")
        team = current_team()
        if team is None or team.size == 1 or len(X) == 0:  # type: ignore[arg-type]
            return self.predict(X, return_std, include_noise=include_noise)

        check_inputs(self, X)  # which counts rows as the caller does

        def part(rows: slice) -> tuple[FloatArray, ...]:
            some = X.iloc[rows] if hasattr(X, "iloc") else X[rows]  # type: ignore[index]
            found = self.predict(some, return_std, include_noise=include_noise)
            return tuple(to_numpy(one) for one in (found if return_std else (found,)))

        parts = team.divided(len(X), part)  # type: ignore[arg-type]
        made = [like(X, np.concatenate(one)) for one in zip(*parts, strict=True)]
        return tuple(made) if return_std else made[0]

    def _covariance(self, x: torch.Tensor, noise: float) -> FloatArray:
        """Returns the covariance in units of y, (m, m), or (m, m, q) for several targets."""
        q = self.n_targets_

        def of(posterior: Posterior) -> torch.Tensor:
            own = posterior.covariance(x).double()
            return own if q == 1 or posterior.n_targets == 1 else own[:, None].expand(-1, posterior.n_targets, -1)

        covariance = self._over_targets(of)  # (m, m) or (m, q, m)
        covariance = covariance if q == 1 else np.array(covariance.swapaxes(1, 2))
        covariance += noise * (np.eye(len(x)) if q == 1 else np.eye(len(x))[..., None])
        with np.errstate(over="ignore"):
            covariance *= self.scaler_.y_scale
            covariance *= self.scaler_.y_scale
        return covariance

    def std_error(self, X: ArrayLike, include_noise: bool = True) -> FloatArray:
        """Returns the relative error by chance of :meth:`predict`'s standard deviation at each row of X, (rows of X,).

        0.02 means that the std there is within about 2% of the exact one at the same hyperparameters, for two rows of
        three. It is estimated from the samples behind the std, and zero where that is exact. Of q targets it is (m, q).
        """
        check_is_fitted(self, "hyperparameters_")
        posterior, x = self.posterior_, self._standardised(X)
        with free_threads(x.device, len(x) * len(posterior.x)):
            noise = posterior.noise_variance if include_noise else 0.0
            error = self._over_targets(lambda one: _shared(one.std_error(x, noise), one))
        return like(X, error)

    def predict_blocks(self, X: ArrayLike, groups: ArrayLike | None = None, points: int | None = None) -> Any:
        """Returns mean and std of the field's average over blocks: block kriging, without the noise of observations.

        With ``groups``, one label for each row of X, (m,), blocks are the rows of a label, and (mean, std) come back in
        the order of ``numpy.unique(groups)``. X may instead be a grid of xarray (:meth:`predict`) whose coordinates are
        the middles of its cells; ``points`` says by how many points along each side a cell is averaged, and a Dataset
        with "mean" and "std" comes back. The cells must be evenly spaced, or have their edges in a variable that the
        coordinate's attribute "bounds" names.

        The std is exact for a model whose variances are, else it is that of the posterior functions, whose number s =
        ``n_probes`` leaves it a relative error of about 1/√(2s). Of q targets both are (blocks, q).
        """
        check_is_fitted(self, "hyperparameters_")
        if is_named(X):
            if groups is not None or points is None:
                raise ValueError("a named grid is averaged over its cells: give points, those along a side, no groups")
            return blocks_named(self, X, points)
        if groups is None or points is not None:
            raise ValueError("rows of X are averaged by their groups: give groups, one label for each row, no points")
        mean, std = group_averages(self, X, groups)
        return like(X, mean), like(X, std)

    def _standardised(self, X: ArrayLike) -> torch.Tensor:
        """Returns new inputs as the posterior takes them, (m, d)."""
        with limited_threads(1):
            return torch.as_tensor(self.scaler_.x(check_inputs(self, X), integer_rest(X))).to(self.posterior_.x)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Returns posterior functions at X without noise, (rows of X, n_samples), or (rows of X, q, n_samples) of q
        targets, which are independent of each other.

        The first ``n_probes`` are stored with the model. Any number can be had with a ``random_state``: the functions
        of a seed are new ones, and cost one more solve at every call. Either way the same arguments give the
        same functions at any X. Where X is a tensor that requires a gradient, the functions have one in X.
        """
        check_is_fitted(self, "hyperparameters_")
        check_count("n_samples", n_samples)
        if wants_gradient(X):
            check_one_target(self, "a gradient in X")
        posterior, x = self.posterior_, self._standardised(X.detach() if isinstance(X, torch.Tensor) else X)
        if random_state is None and n_samples > posterior.n_samples:
            raise ValueError(
                f"n_samples={n_samples} is more than the {posterior.n_samples} functions of the model: "
                f"give random_state to draw new ones, or fit with a larger n_probes"
            )
        together = max(one.n_targets for one in (posterior, *(pattern.posterior for pattern in self.patterns_)))
        if random_state is None and together > posterior.n_samples:
            raise ValueError(
                f"the {posterior.n_samples} functions of the model are too few for {together} targets, independent of "
                f"each other: give random_state to draw new ones, or fit with n_probes={together} or more"
            )
        with free_threads(x.device, len(posterior.x) * (len(x) if random_state is None else len(posterior.x))):
            if random_state is not None:
                check_seed(random_state)
                seed = int(check_random_state(random_state).randint(2**31 - 1))
                options, seeds = self._options(self.plan_), itertools.count(seed)

            def drawn(one: Posterior) -> Posterior:
                if random_state is None:
                    return one
                count = n_samples + one.n_targets - 1  # so many more that no two targets share one
                return new_samples(one, self.plan_, options, count, next(seeds))

            if wants_gradient(X):
                return functions(self, drawn(posterior), X, n_samples)
            found = self._over_targets(lambda one: drawn(one).samples(x)[..., :n_samples])
        if self.n_targets_ == 1:
            return like(X, all_finite(self.scaler_.y_back(found)))
        return like(X, all_finite(self.scaler_.y_back(found.swapaxes(1, 2)).swapaxes(1, 2)))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Returns scikit-learn's R² of the mean at X against y, of several targets the mean of theirs."""
        if self.target_names_:
            y = check_targets(y, len(to_numpy(y)), q=self.n_targets_, known=self.target_names_)
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Returns log p(y_i | x_i) of each row by the normal predictive distribution, in units of y, (rows of X,), or
        (rows of X, q) of q targets."""
        mean, std = self.predict(to_numpy(X), return_std=True)
        targets = check_targets(y, len(mean), q=self.n_targets_, known=self.target_names_)
        return like(X, -0.5 * (((targets - mean) / std) ** 2 + np.log(2 * np.pi * std**2)))


def _with_variance(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Returns means (m,) or (m, k) beside the variance (m,) that they share, (m, …, 2), in float64."""
    own = variance.double() if mean.ndim == 1 else variance.double()[:, None].expand(mean.shape)
    return torch.stack([mean.double(), own], -1)


def _shared(values: torch.Tensor, posterior: Posterior) -> torch.Tensor:
    """Returns what all targets of a posterior share, (m,), as each of several has it, (m, k)."""
    return values if posterior.n_targets == 1 else values[:, None].expand(-1, posterior.n_targets)
