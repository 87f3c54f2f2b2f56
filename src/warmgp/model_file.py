"""A GPRegressor as one file: all that prediction needs, and the settings and history behind it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from warmgp import persistence
from warmgp.devices import resolve_device
from warmgp.gradient import GradientEstimator
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, Kernel
from warmgp.scaling import Standardizer
from warmgp.solvers import SOLVERS, Solver

if TYPE_CHECKING:
    from warmgp.regressor import GPRegressor

NOT_SETTINGS = ("callbacks", "verbose", "checkpoint", "checkpoint_every", "memory_budget")
"""Parameters that change nothing about the result: not part of a fingerprint."""


def settings_to_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The estimator's parameters, with objects by name and options. Callbacks and random states are left out."""
    out: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == "callbacks":
            continue
        if isinstance(value, Kernel):
            value = value.name
        elif isinstance(value, Solver | GradientEstimator):
            value = persistence.options_to_json(value)
        elif isinstance(value, Hyperparameters):
            value = {"hyperparameters": value.vector.tolist()}
        elif isinstance(value, torch.device | torch.dtype):
            value = str(value).removeprefix("torch.")
        elif isinstance(value, np.generic):
            value = value.item()
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif name == "random_state" and not isinstance(value, int):
            value = None
        out[name] = value
    return out


def settings_from_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters for a new estimator; a solver that is not ours becomes "auto"."""
    out = dict(values)
    solver, gradient, init = out.get("solver"), out.get("gradient"), out.get("init")
    if isinstance(solver, dict):
        out["solver"] = SOLVERS[solver["name"]](**solver["options"]) if solver["name"] in SOLVERS else "auto"
    if isinstance(gradient, dict):
        out["gradient"] = persistence.GRADIENTS[gradient["name"]](**gradient["options"])
    if isinstance(init, dict):
        out["init"] = Hyperparameters.from_vector(torch.tensor(init["hyperparameters"], dtype=torch.float64))
    return out


def fingerprint(model: GPRegressor, X: np.ndarray, y: np.ndarray) -> str:
    """Of the data and of every setting that changes the result."""
    settings = settings_to_json({k: v for k, v in model.get_params().items() if k not in NOT_SETTINGS})
    if isinstance(model.kernel, Kernel):  # with its options, where it has any
        settings["kernel"] = f"{model.kernel!r} {sorted(vars(model.kernel).items())}"
    return persistence.fingerprint(torch.tensor(X), torch.tensor(y), json.dumps(settings, sort_keys=True))


def save(model: GPRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted model."""
    kernel = model._posterior.kernel
    if kernel.name not in KERNELS or type(KERNELS[kernel.name]) is not type(kernel):
        raise ValueError(f"kernel {kernel.name!r} is not part of warmgp, and a file holds no code: it cannot be saved")
    scaler = model._scaler
    tensors = {
        **persistence.posterior_tensors(model._posterior),
        "x_mean": torch.as_tensor(scaler.x_mean),
        "x_scale": torch.as_tensor(scaler.x_scale),
        "y_scaling": torch.tensor([scaler.y_mean, scaler.y_scale], dtype=torch.float64),
    }
    names = getattr(model, "feature_names_in_", None)
    content = {
        "settings": settings_to_json(model.get_params()),
        "plan": persistence.plan_to_json(model.plan_),
        "history": persistence.history_to_json(model.history_),
        "kernel": kernel.name,
        "exact": model._posterior.exact,
        "converged": model.converged_,
        "stop_reason": model.stop_reason_,
        "log_marginal_likelihood": model.log_marginal_likelihood_value_,
        "feature_names": None if names is None else list(names),
    }
    persistence.write(path, "model", tensors, content)


def load(
    cls: type[GPRegressor],
    path: str | os.PathLike[str],
    device: str | torch.device = "auto",
    solver: Solver | None = None,
) -> GPRegressor:
    """Read a model onto a device, ready to predict."""
    place = resolve_device(device)
    tensors, content = persistence.read(path, "model")
    try:
        return _restore(cls, tensors, content, place, solver)
    except (KeyError, TypeError) as error:
        raise persistence.FileError(
            f"{path} is not a model of this version of warmgp, fit it again: it lacks {error}"
        ) from error


def _restore(
    cls: type[GPRegressor],
    tensors: dict[str, torch.Tensor],
    content: Mapping[str, Any],
    place: torch.device,
    solver: Solver | None,
) -> GPRegressor:
    model = cls(**settings_from_json(content["settings"]))
    model.plan_ = persistence.plan_from_json(content["plan"], solver=solver, device=place)
    scaling = {name: tensors.pop(name).numpy() for name in ("x_mean", "x_scale", "y_scaling")}
    y_mean, y_scale = scaling["y_scaling"].tolist()
    model._scaler = Standardizer(scaling["x_mean"], scaling["x_scale"], y_mean, y_scale)
    model._posterior = persistence.posterior_from_tensors(tensors, content["kernel"], content["exact"], place)
    model.hyperparameters_ = model._posterior.theta
    model.history_ = list(persistence.history_from_json(content["history"]))
    model.n_steps_ = len(model.history_)
    model.converged_ = content["converged"]
    model.stop_reason_ = content.get("stop_reason", "unknown")
    model.log_marginal_likelihood_value_ = content["log_marginal_likelihood"]
    model.n_features_in_ = model._posterior.x.shape[1]
    if content["feature_names"] is not None:
        model.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    return model
