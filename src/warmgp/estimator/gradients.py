"""Predictions of a tensor that requires a gradient: the same answers in the user's units, differentiable in X."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import torch
from torch import Tensor

from warmgp.data.arrays import check_inputs
from warmgp.data.column_kinds import Circle, ColumnKind, Geographic
from warmgp.data.scaling import Standardizer
from warmgp.differentiable import Differentiable
from warmgp.estimator.targets import check_one_target
from warmgp.posterior import Posterior


def wants_gradient(X: Any) -> TypeGuard[Tensor]:
    """Says whether X is a tensor whose gradient is recorded at the moment."""
    return isinstance(X, Tensor) and X.requires_grad and torch.is_grad_enabled()


def standardised(scaler: Standardizer, X: Tensor) -> Tensor:
    """Returns inputs X (m, columns of the user) as the posterior takes them, (m, d) in float64, differentiable in X.

    That are plain columns, periods of numbers and places on the globe. Raises a ValueError that names any other kind.
    """
    table, made = X.double(), []
    for label, inputs, kind in scaler.columns.groups:
        column = scaler.columns.sources[inputs[0]]
        made.append(table[:, column, None] if kind is None else _inputs_of(kind, table, label))
    mean, scale = (torch.as_tensor(part, device=X.device) for part in (scaler.x_mean, scaler.x_scale))
    x = (torch.cat(made, 1) - mean) / scale
    if not scaler.angle:
        return x
    c, s = math.cos(math.radians(scaler.angle)), math.sin(math.radians(scaler.angle))
    return torch.stack([c * x[:, 0] + s * x[:, 1], c * x[:, 1] - s * x[:, 0]], 1)


def _inputs_of(kind: ColumnKind, X: Tensor, label: str) -> Tensor:
    """Returns what a kind makes of its columns, (m, width); raises for one along which nothing can be moved."""
    if isinstance(kind, Circle) and kind.reads == "number":
        angle = X[:, kind.columns[0]].remainder(kind.period) * (2 * math.pi / kind.period)
        return torch.stack([angle.cos(), angle.sin()], 1)
    if isinstance(kind, Geographic):
        latitude, longitude = (X[:, j] for j in kind.columns)
        phi, lam = torch.deg2rad(latitude), torch.deg2rad(longitude.remainder(360.0))
        return torch.stack([phi.cos() * lam.cos(), phi.cos() * lam.sin(), phi.sin()], 1)
    what = f"holds {kind.reads}s" if kind.reads in ("date", "category") else f"is a column {kind.name}"
    raise ValueError(
        f"column {label!r} of X {what}, and there is no gradient along it: fit a model whose columns are plain "
        "numbers, periods of numbers or places on the globe; or predict for X.detach()"
    )


def prediction(model: Any, X: Tensor, return_std: bool, include_noise: bool) -> Any:
    """Returns mean, and std where it is asked for, (m,) each, of a fitted estimator, differentiable in X."""
    check_one_target(model, "a gradient in X")
    posterior, scaler = model.posterior_, model.scaler_
    scaler.columns.inputs(check_inputs(model, X.detach()))
    x, answers = standardised(scaler, X).to(posterior.x.device), Differentiable(posterior)
    if not return_std:
        return (scaler.y_mean + scaler.y_scale * answers.mean(x)).to(X)
    mean, covariance = answers.joint(x[:, None])
    noise = posterior.noise_variance if include_noise else 0.0
    std = (covariance[:, 0, 0] + noise).sqrt()
    return (scaler.y_mean + scaler.y_scale * mean[:, 0]).to(X), (scaler.y_scale * std).to(X)


def functions(model: Any, posterior: Posterior, X: Tensor, n_samples: int) -> Tensor:
    """Returns the first posterior functions of a posterior in the units of a fitted estimator, (m, n_samples)."""
    scaler, numbers = model.scaler_, torch.arange(n_samples)
    x = standardised(scaler, X).to(posterior.x.device)
    return (scaler.y_mean + scaler.y_scale * Differentiable(posterior).samples(x, numbers)).to(X)
