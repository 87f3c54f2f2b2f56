"""A GPRegressor as one file: all that predictions need, and the settings, the plan and the history behind them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from warmgp.data.scaling import Standardizer
from warmgp.estimator.drift import Update
from warmgp.estimator.posterior_file import (
    PATTERN,
    pattern_of,
    pattern_tensors,
    posterior_of,
    posterior_tensors,
    rules_of,
    target_rules,
    trend_of,
)
from warmgp.estimator.report import Report
from warmgp.estimator.settings_json import NOT_SAVED, settings_from_json, settings_to_json
from warmgp.estimator.units import known
from warmgp.files import columns_json, plan_json
from warmgp.files.format import FileError, read, write
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.likelihood import Likelihood
from warmgp.planning.devices import resolve_device
from warmgp.schema import (
    DOUBLE,
    TensorRule,
    check_tensors,
    expect,
    list_of,
    maybe,
    number,
    of_class,
    one_of,
    record,
    text,
    truth,
    whole,
)
from warmgp.solvers import Solver

if TYPE_CHECKING:
    from warmgp.estimator.regressor import GPRegressor

TENSORS = {
    "theta": TensorRule(("t",), DOUBLE, positive=True),
    "x_mean": TensorRule(("d",), DOUBLE),
    "x_scale": TensorRule(("d",), DOUBLE, positive=True),
}
"""Tensors of every model beside those of its posterior."""
ROBUST = {"robust_weights": TensorRule(("rows",), DOUBLE)}
"""The weights that a robust fit gave to all rows of its data, used or not."""
SIGNED = maybe(number(-np.inf))
CONTENT = record(
    {
        "settings": lambda *_: None,  # checked against the estimator's parameters
        "plan": lambda *_: None,  # checked when it is read
        "history": plan_json.history,
        "kernel": one_of(KERNELS),
        "exact": truth,
        "converged": truth,
        "log_marginal_likelihood": maybe(number(-np.inf, finite=False, nan=True)),
        "feature_names": maybe(list_of(text)),
    },
    {
        "stop_reason": text,
        "solve_error": number(0.0, finite=False, nan=True),
        "report": of_class(Report),
        "columns": columns_json.MAP,
        "angle": number(),
        "trend_terms": list_of(list_of(whole(0))),
        "target_name": maybe(text),
        "log_marginal_likelihood_error": number(0.0),
        "target_names": list_of(text),
        "which": list_of(whole(0)),
        "patterns": list_of(PATTERN),
        "updates": list_of(of_class(Update, log_density=SIGNED, log_density_before=SIGNED, loss=SIGNED)),
    },
)


# -- there and back --------------------------------------------------------------------------------------------------
def save(model: GPRegressor, path: str | os.PathLike[str]) -> None:
    """Writes a fitted model; an exact model's factor is rebuilt on demand, never stored."""
    posterior = model.posterior_
    kernel = posterior.kernel
    if KERNELS.get(kernel.name) != kernel:
        raise ValueError(f"kernel {kernel.name!r} is not part of warmgp, and a file holds no code: it cannot be saved")
    scaler = model.scaler_
    tensors = {
        **posterior_tensors(posterior),
        "theta": posterior.theta.vector,
        "x_mean": torch.as_tensor(scaler.x_mean),
        "x_scale": torch.as_tensor(scaler.x_scale),
        "y_scaling": torch.as_tensor(np.array([scaler.y_mean, scaler.y_scale])),  # (2,), or (2, q)
    }
    trend = posterior.trend
    for place, pattern in enumerate(model.patterns_, 1):
        tensors |= pattern_tensors(pattern, place)
    if model.y_train_ is not None and model.training_rows_ is not None:
        tensors |= {"y_train": torch.as_tensor(model.y_train_), "training_rows": torch.as_tensor(model.training_rows_)}
    if model.robust_weights_ is not None:
        tensors["robust_weights"] = torch.as_tensor(model.robust_weights_)
    names = getattr(model, "feature_names_in_", None)
    likelihood = model.likelihood_
    content = {
        "settings": settings_to_json({k: v for k, v in model.get_params().items() if k not in NOT_SAVED}),
        "plan": plan_json.plan_to_json(model.plan_),
        "report": dataclasses.asdict(model.report_),
        "history": plan_json.history_to_json(model.history_),
        "kernel": kernel.name,
        "exact": posterior.exact,
        "converged": model.converged_,
        "solve_error": model.solve_error_,
        "stop_reason": model.stop_reason_,
        "log_marginal_likelihood": None if likelihood is None else likelihood.value,
        "feature_names": None if names is None else list(names),
        "target_name": getattr(model, "target_name_", None),
    }
    if model.target_names_:
        content |= {"target_names": list(model.target_names_), "which": list(model.which_)}
        content["patterns"] = [{"which": list(one.which), "exact": one.posterior.exact} for one in model.patterns_]
    if likelihood is not None:
        content["log_marginal_likelihood_error"] = likelihood.error
    if model.updates_:
        content["updates"] = [dataclasses.asdict(one) for one in model.updates_]
    if trend is not None:
        content["trend_terms"] = [list(term) for term in trend.basis.terms]
    if scaler.columns.parts:
        content["columns"] = columns_json.map_to_json(scaler.columns)
    if scaler.angle:
        content["angle"] = scaler.angle
    write(path, "model", tensors, content)


def load(
    cls: type[GPRegressor],
    path: str | os.PathLike[str],
    device: str | torch.device = "auto",
    solver: Solver | None = None,
) -> GPRegressor:
    """Reads a model onto a device, ready to predict."""
    place = resolve_device(device)
    tensors, content = read(path, "model")
    try:
        return _restore(cls, tensors, content, place, solver)
    except ValueError as error:
        raise FileError(
            f"{path} is not a model that this version of warmgp can use: it {error}. Give a whole copy, or fit it again"
        ) from error


def _theta(tensors: Mapping[str, Tensor]) -> Hyperparameters:
    """Returns the hyperparameters of a file; raises where they, or the inputs beside them, are none."""
    expect("theta" in tensors and "x" in tensors, "tensors", "theta and x", "not")
    expect(tensors["theta"].ndim == 1 and len(tensors["theta"]) > 2, "theta", "at least 3 numbers", "not")
    expect(tensors["x"].ndim == 2, "x", "a matrix", "not")
    return Hyperparameters.from_vector(tensors["theta"])


def _restore(
    cls: type[GPRegressor],
    tensors: dict[str, Tensor],
    content: Mapping[str, Any],
    place: torch.device,
    solver: Solver | None,
) -> GPRegressor:
    """Checks content and tensors, and builds the model from them."""
    CONTENT(content, "")
    settings = settings_from_json(cls, content["settings"])
    plan = plan_json.plan_from_json(content["plan"], solver=solver, device=place)
    terms, kernel, which = content.get("trend_terms"), get_kernel(content["kernel"]), _targets(content)
    theta = _theta(tensors)
    others = tuple(
        pattern_of(one, tensors, number, place, kernel, theta, tensors["x"].shape[-1])
        for number, one in enumerate(content.get("patterns", []), 1)
    )
    scalings = (2, len(content["target_names"])) if "target_names" in content else (2,)
    rules = TENSORS | rules_of(tensors, terms) | {"y_scaling": TensorRule(scalings, DOUBLE)}
    for some in (target_rules(len(which)), ROBUST):
        rules |= some if some.keys() & tensors.keys() else {}
    sizes = check_tensors(tensors, rules)
    d, lengths = sizes["d"], sizes["t"] - 2
    expect(lengths in (1, d), "theta", f"{2 + d} or 3 numbers", sizes["t"])
    for one in content["history"]:
        expect(len(one["length_scales"]) == lengths, "length_scales", f"{lengths} numbers", len(one["length_scales"]))
    names, angle = content["feature_names"], content.get("angle", 0.0)
    columns = columns_json.map_from_json(content.get("columns", {"count": d, "parts": []}), names, d)
    expect(
        not angle or (d == lengths == 2 and not columns.parts and angle < 90), "angle", "below 90, of a plane", angle
    )
    y_mean, y_scale = tensors["y_scaling"].numpy()
    expect(bool((y_scale > 0).all()), "y_scaling", "a positive scale", y_scale)

    trend = None if terms is None else trend_of(terms, tensors, sizes, angle, len(which)).to(place)
    model = cls(**settings)
    model.plan_ = plan
    model.report_ = _report(content, sizes["s"]).read_on(place)
    scaling = tensors["x_mean"].numpy(), tensors["x_scale"].numpy(), y_mean, y_scale
    model.scaler_, model.columns_ = Standardizer(*scaling, columns, angle), columns
    model.posterior_ = posterior_of(
        tensors, sizes, place, kernel, theta, exact=content["exact"], n_targets=len(which), trend=trend
    )
    model.which_, model.patterns_ = which, others
    model.target_names_ = tuple(content.get("target_names", ()))
    model.hyperparameters_ = known(theta, model.scaler_)
    model.history_ = list(plan_json.history_from_json(content["history"]))
    model.n_steps_, model.converged_ = len(model.history_), content["converged"]
    model.solve_error_ = content.get("solve_error", float("nan"))
    model.stop_reason_ = content.get("stop_reason", "unknown")
    if (value := content["log_marginal_likelihood"]) is not None:
        model.likelihood_ = Likelihood(value, content.get("log_marginal_likelihood_error", 0.0))
    if "y_train" in tensors:
        model.y_train_, model.training_rows_ = tensors["y_train"].numpy(), tensors["training_rows"].numpy()
    model.n_features_in_ = len(columns.names)
    model.target_name_ = content.get("target_name")
    model.robust_weights_ = _robust_weights(tensors)
    model.updates_ = [Update(**one) for one in content.get("updates", [])]
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    return model


def _targets(content: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the numbers of the targets of a model's own posterior; every target has to be somewhere, once."""
    if "target_names" not in content:
        expect("patterns" not in content and "which" not in content, "patterns", "for several targets only", "others")
        return (0,)
    names, which = content["target_names"], tuple(content.get("which", ()))
    parts = [which, *(tuple(one["which"]) for one in content.get("patterns", []))]
    expect(1 < len(names) == len(set(names)), "target_names", "at least two different names", len(names))
    listed = sorted(j for part in parts for j in part)
    expect(all(parts) and listed == list(range(len(names))), "which", "every target once", str(listed))
    return which


def _robust_weights(tensors: Mapping[str, Tensor]) -> np.ndarray | None:
    """Returns the weights that a robust fit gave to rows; None where it was none."""
    weights = tensors.get("robust_weights")
    if weights is None:
        return None
    expect(bool(((weights >= 0) & (weights <= 1)).all()), "robust_weights", "weights from 0 to 1", "others")
    return weights.numpy()


def _report(content: Mapping[str, Any], samples: int) -> Report:
    """Returns the report of a file; for one of format 2, which has none, what the rest of the file says."""
    if "report" in content:
        return Report(**{**content["report"], "remarks": tuple(content["report"].get("remarks", ()))})
    return Report(
        seconds=plan_json.seconds_taken(content["plan"]),
        steps=len(content["history"]),
        exact_variances=content["exact"],
        samples=samples,
        device=content["plan"]["device"],
    )
