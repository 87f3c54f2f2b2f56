"""A fitted regressor as a model of BoTorch."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from botorch.models.model import Model
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from warmgp.botorch.fantasies import FantasyModel, check_observations
from warmgp.botorch.joint_normal import JointNormal
from warmgp.botorch.paths import PathModel
from warmgp.checks import check_count
from warmgp.differentiable import Differentiable
from warmgp.estimator.gradients import standardised
from warmgp.estimator.parameters import check_seed
from warmgp.estimator.regressor import GPRegressor
from warmgp.estimator.samples import new_samples
from warmgp.estimator.targets import check_one_target
from warmgp.planning.threads import limited_threads
from warmgp.posterior import Posterior


class WarmModel(JointNormal):
    """Answers BoTorch's acquisition functions from a fitted regressor, with gradients in X.

    X and y are in the units that the regressor was fitted in: give bounds in them, and no transforms of inputs or
    outcomes. The distribution of a block of points is exact where the regressor's std is, up to 2,500 points by
    default. Beyond, it comes from the model's samples, with near points as their control: variances have an error by
    chance like that of ``predict``, and correlations one of at most about (1 − ρ²)/√n_probes. Computations are in
    float64 on the regressor's device; what comes back is on the device of X, in its dtype.

    Parameters
    ----------
    regressor : GPRegressor
        A fitted one, whose columns are plain numbers, periods of numbers or places on the globe. Later updates of it do
        not change this model.
    exact : bool
        Whether covariances are made exact by a factor of H: n³/3 operations once, 8n² bytes, and n² operations for each
        point of every call. Worth it up to about 10,000 points.
    """

    def __init__(self, regressor: GPRegressor, exact: bool = False) -> None:
        super().__init__()
        if not isinstance(regressor, GPRegressor):
            raise TypeError(f"regressor must be a fitted GPRegressor, got {type(regressor).__name__}")
        check_is_fitted(regressor, "hyperparameters_")
        check_one_target(regressor, "WarmModel")
        self.regressor = copy.copy(regressor)
        self.exact = bool(exact)
        posterior = regressor.posterior_
        self.answers = Differentiable(replace(posterior, exact=True) if exact else posterior, continuous=True)
        standardised(regressor.scaler_, torch.zeros(0, self.n_columns))  # raises for columns that have no gradient

    @property
    def n_columns(self) -> int:
        """The number of the user's columns, the size of the last dimension of X."""
        return len(self.regressor.scaler_.columns.names)

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of a batch of models: none, this is one."""
        return torch.Size()

    @property
    def noise_variance(self) -> float:
        """The variance of the noise of an observation, in squared units of y."""
        return float(self.regressor.noise_std_) ** 2

    def inputs(self, X: Tensor) -> Tensor:
        """Returns X (…, columns) as rows of standardised inputs, (m, d), on the regressor's device."""
        if X.ndim < 2 or X.shape[-1] != self.n_columns:
            raise ValueError(
                f"X must have shape (…, q, {self.n_columns}), the columns of the fit last, got {tuple(X.shape)}"
            )
        if not torch.isfinite(X.detach()).all():
            raise ValueError("X contains NaN or infinity: give finite points, in the units of the fit")
        posterior, rows = self.answers.posterior, X.reshape(-1, self.n_columns)
        return standardised(self.regressor.scaler_, rows.to(posterior.x.device))

    def joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Returns means, (…, q), and latent covariances, (…, q, q), of points X, (…, q, d), in the user's units."""
        batch, q = X.shape[:-2], X.shape[-2]
        scaler, x = self.regressor.scaler_, self.inputs(X)
        mean, covariance = self.answers.joint(x.reshape(batch.numel(), q, x.shape[1]))
        mean = (scaler.y_mean + scaler.y_scale * mean).reshape(*batch, q)
        return mean.to(X), (scaler.y_scale**2 * covariance).reshape(*batch, q, q).to(X)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Model:
        """Returns the model given more observations.

        Rows X (m, d) with targets Y (m, 1) become rows of the model, by ``GPRegressor.update``: hyperparameters stay,
        and so do the posterior functions. Batches of either, and tensors that require a gradient, are fantasies: the
        model that comes back conditions the joint distribution of their points and those that it is asked about.

        Parameters
        ----------
        X : Tensor, (…, m, d)
        Y : Tensor, (…, m, 1)
        noise : Tensor, optional
            The variances of the noise of Y, in squared units of y, which broadcast to Y; by default the learned one.
        """
        check_observations(X, Y, self.n_columns)
        recorded = torch.is_grad_enabled() and (X.requires_grad or Y.requires_grad)
        if X.ndim > 2 or Y.ndim > 2 or recorded or not len(X):
            return FantasyModel(self, X, Y, noise)
        weight = None
        if noise is not None:
            weight = (self.noise_variance / noise.detach().double().expand(Y.shape))[:, 0].cpu().numpy()
        told = copy.copy(self.regressor)
        names = getattr(told, "feature_names_in_", None)
        rows, targets = X.detach().double().cpu().numpy(), Y.detach().double()[:, 0].cpu().numpy()
        table = rows if names is None else pd.DataFrame(rows, columns=names)
        told.update(table, targets, sample_weight=weight)
        return WarmModel(told, self.exact)

    def paths(self, n: int | None = None, random_state: int | None = None) -> PathModel:
        """Returns posterior functions as a deterministic model: one, or n with the shape of a batch (n,).

        They are those of ``GPRegressor.sample_y``: without ``random_state`` the first of those that came with the fit;
        with it new ones, which cost a solve.
        """
        count = 1 if n is None else n
        check_count("n", count)
        answers = self.answers if random_state is None else Differentiable(self._drawn(count, random_state))
        if count > answers.posterior.n_samples:
            raise ValueError(
                f"n={count} is more than the {answers.posterior.n_samples} functions of the model: give random_state "
                "to draw new ones, or fit with a larger n_probes"
            )
        numbers = torch.arange(count)
        return PathModel(self, answers, numbers, torch.Size() if n is None else torch.Size([n]))

    def _drawn(self, count: int, random_state: int) -> Posterior:
        """Returns the posterior with so many new functions, those of ``GPRegressor.sample_y`` with this seed."""
        check_seed(random_state)
        told, seed = self.regressor, int(check_random_state(random_state).randint(2**31 - 1))
        with limited_threads(told.plan_.threads):
            return new_samples(told.posterior_, told.plan_, told._options(told.plan_), count, seed)
