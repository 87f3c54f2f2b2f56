"""A GPRegressor as one file: all that predictions need, and the settings, the plan and the history behind them."""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from warmgp.control import Targets
from warmgp.data.scaling import Standardizer
from warmgp.estimator.drift import Update
from warmgp.estimator.parameters import check_parameters
from warmgp.estimator.report import Report
from warmgp.estimator.units import known
from warmgp.files import columns_json, plan_json
from warmgp.files.format import FileError, fingerprint, read, to_json, write
from warmgp.gradient import GradientEstimator
from warmgp.gradient.features import FeaturePrior
from warmgp.hyperparameters import Hyperparameters, Units
from warmgp.kernels import KERNELS, Kernel, get_kernel
from warmgp.likelihood import Likelihood
from warmgp.operators.row_noise import RowNoise
from warmgp.planning.devices import resolve_device
from warmgp.planning.request import DTYPES, STARTS, bytes_of
from warmgp.posterior import Posterior
from warmgp.schema import (
    DOUBLE,
    Check,
    TensorRule,
    check_tensors,
    either,
    expect,
    list_of,
    maybe,
    number,
    of_class,
    of_hint,
    one_of,
    record,
    text,
    truth,
    whole,
)
from warmgp.solvers import SOLVERS, Solver
from warmgp.trend import NAMED, Basis, Trend

if TYPE_CHECKING:
    from warmgp.estimator.regressor import GPRegressor

NOT_SETTINGS = ("callbacks", "verbose", "checkpoint", "checkpoint_every", "memory_budget", "time_limit")
"""Parameters that the result of a resumed fit does not depend on: they are not part of a fingerprint."""
LATER = {
    "columns": None, "anisotropy": None, "trend": None, "missing": "error", "unknown_category": "error",
    "learn_noise": True, "robust": False,
}  # fmt: skip
"""Parameters that earlier versions did not have, and what means the same as not having them: no part of a fingerprint
then, so that checkpoints of those versions still go on."""
NOT_SAVED = ("callbacks", "checkpoint")
"""Parameters that belong to one fit, not to its model: a loaded model that is fitted again writes nowhere."""

TENSORS = {
    "x": TensorRule(("n", "d")),
    "theta": TensorRule(("t",), DOUBLE, positive=True),
    "solution": TensorRule(("n", "1 + s")),
    "frequencies": TensorRule(("m", "d")),
    "sin_weights": TensorRule(("m", "s")),
    "cos_weights": TensorRule(("m", "s")),
    "x_mean": TensorRule(("d",), DOUBLE),
    "x_scale": TensorRule(("d",), DOUBLE, positive=True),
    "y_scaling": TensorRule((2,), DOUBLE),
}
TREND = {
    "trend_transform": TensorRule(("p", "p"), DOUBLE),
    "trend_solution": TensorRule(("n", "p")),
    "trend_coefficients": TensorRule(("p", "1 + s"), DOUBLE),
    "trend_covariance": TensorRule(("p", "p"), DOUBLE),
}
"""Tensors of a model with a trend, whose terms the content names."""
TARGETS = {
    "targets": TensorRule(("n", "s"), (torch.int16, torch.int32)),
    "targets_step": TensorRule((1,), DOUBLE, positive=True),
}
"""What the samples were solved for, where variances come from them; files of earlier versions have none."""
NOISE = {
    "noise_shares": TensorRule(("n",), DOUBLE, positive=True),
    "noise_known": TensorRule(("n",), DOUBLE),
}
"""What the noise of each row is made of, where rows have noise of their own."""
TARGET = {"y_train": TensorRule(("n",), DOUBLE), "training_rows": TensorRule(("n",), (torch.int64,))}
"""The targets in the user's units, and the numbers of their rows; files of earlier versions have none."""
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
        "updates": list_of(of_class(Update, log_density=SIGNED, log_density_before=SIGNED, loss=SIGNED)),
    },
)


# -- settings --------------------------------------------------------------------------------------------------------
def settings_to_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the estimator's parameters as JSON values: objects by name and options, generators as None."""
    out: dict[str, Any] = {}
    for name, value in parameters.items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, Kernel):
            value = value.name
        elif isinstance(value, Solver | GradientEstimator):
            value = plan_json.options_to_json(value)
        elif isinstance(value, Hyperparameters):
            units = {} if value.units is None else {"units": [value.units.y, *value.units.x]}
            value = {"hyperparameters": value.vector.tolist(), **units}
        elif isinstance(value, torch.device | torch.dtype):
            value = str(value).removeprefix("torch.")
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif name == "columns":
            value = columns_json.said_to_json(value)
        elif name == "random_state":
            value = int(value) if isinstance(value, int) else None
        elif name == "memory_budget" and value is not None:
            value = bytes_of(value)
        elif name == "trend" and value is not None and not isinstance(value, str):
            value = [column if isinstance(column, str) else int(column) for column in value]
        out[name] = value
    return out


POSITIVE = list_of(number(5e-324))
SPECIAL: dict[str, Check] = {
    "kernel": one_of(("auto", *KERNELS)),
    "solver": either(one_of(("auto", *SOLVERS)), plan_json.solver),
    "gradient": either(one_of(("auto", *plan_json.GRADIENTS)), plan_json.gradient),
    "init": either(one_of(STARTS), record({"hyperparameters": POSITIVE}, {"units": POSITIVE})),
    "device": either(one_of(("auto",)), plan_json.device),
    "dtype": one_of(("auto", *DTYPES)),
    "max_epochs": maybe(either(one_of(("auto",)), number(5e-324, finite=False))),
    "random_state": maybe(whole(0, 2**32 - 1)),
    "columns": columns_json.SAID,
    "trend": maybe(either(one_of(NAMED), list_of(either(text, whole(0))))),
}
"""Checks of the parameters whose annotations do not say what a file may hold."""


def settings_from_json(cls: type[GPRegressor], values: Any) -> dict[str, Any]:
    """Returns parameters for a new estimator, checked; a solver that is not ours becomes "auto"."""
    hints = typing.get_type_hints(cls.__init__)
    known = {name: SPECIAL[name] if name in SPECIAL else of_hint(hints[name]) for name in hints if name != "return"
             and name not in NOT_SAVED}  # fmt: skip
    values = {k: v for k, v in values.items() if k not in NOT_SAVED} if isinstance(values, dict) else values
    record({}, known)(values, "settings")
    out = dict(values)
    solver, gradient, init = out.get("solver"), out.get("gradient"), out.get("init")
    if isinstance(solver, dict):
        out["solver"] = SOLVERS[solver["name"]](**solver["options"]) if solver["name"] in SOLVERS else "auto"
    if isinstance(gradient, dict):
        out["gradient"] = plan_json.GRADIENTS[gradient["name"]](**gradient["options"])
    out["columns"] = columns_json.said_from_json(out.get("columns"))
    if isinstance(init, dict):
        expect(len(init["hyperparameters"]) > 2, "settings.init", "noise, signal and lengths", "too few numbers")
        out["init"] = Hyperparameters.from_vector(torch.tensor(init["hyperparameters"], dtype=torch.float64))
        if units := init.get("units"):
            out["init"] = out["init"].known_in(Units(units[0], tuple(units[1:])))
    check_parameters({**cls(**out).get_params(deep=False), "device": "cpu"})  # the device of the fit need not be here
    return out


def made_from(model: GPRegressor, data: Mapping[str, np.ndarray], seed: int) -> tuple[str, dict[str, str]]:
    """Returns (fingerprint, parts by name) of the data and of every setting that changes the result.

    ``seed`` is the number that this fit draws from ``random_state``: of a generator it is all that counts.
    """
    settings = settings_to_json({k: v for k, v in model.get_params().items() if k not in NOT_SETTINGS})
    for name, value in LATER.items():
        if settings[name] == value:
            del settings[name]
    if isinstance(model.kernel, Kernel):  # with its options, where it has any
        settings["kernel"] = f"{model.kernel!r} {sorted(vars(model.kernel).items())}"
    if model.random_state is not None and settings["random_state"] is None:
        settings["random_state"] = f"a generator that draws {seed}"
    parts = {name: to_json(value) for name, value in settings.items()}
    tensors = {name: torch.tensor(values) for name, values in data.items()}
    marks = {name: fingerprint(values) for name, values in tensors.items()}
    return fingerprint(*tensors.values(), to_json(settings)), {**marks, **parts}


# -- there and back --------------------------------------------------------------------------------------------------
def save(model: GPRegressor, path: str | os.PathLike[str]) -> None:
    """Writes a fitted model; an exact model's factor is rebuilt on demand, never stored."""
    posterior = model.posterior_
    kernel = posterior.kernel
    if KERNELS.get(kernel.name) != kernel:
        raise ValueError(f"kernel {kernel.name!r} is not part of warmgp, and a file holds no code: it cannot be saved")
    scaler = model.scaler_
    tensors = {
        "x": posterior.x,
        "theta": posterior.theta.vector,
        "solution": posterior.solution,
        "frequencies": posterior.prior.frequencies,
        "sin_weights": posterior.prior.sin_weights,
        "cos_weights": posterior.prior.cos_weights,
        "x_mean": torch.as_tensor(scaler.x_mean),
        "x_scale": torch.as_tensor(scaler.x_scale),
        "y_scaling": torch.tensor([scaler.y_mean, scaler.y_scale], dtype=torch.float64),
    }
    trend = posterior.trend
    if trend is not None:
        parts = ("solution", "coefficients", "covariance")
        tensors |= {
            "trend_transform": trend.basis.transform,
            **{f"trend_{name}": getattr(trend, name) for name in parts},
        }
    if posterior.targets is not None:
        tensors["targets"] = posterior.targets.codes
        tensors["targets_step"] = torch.tensor([posterior.targets.step], dtype=torch.float64)
    if posterior.noise is not None:
        tensors |= {"noise_shares": posterior.noise.shares, "noise_known": posterior.noise.known}
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
    terms = content.get("trend_terms")
    more = dict(TREND) if terms is not None else {}
    for some in (TARGETS, NOISE, TARGET, ROBUST):
        more |= some if some.keys() & tensors.keys() else {}
    sizes = check_tensors(tensors, TENSORS | more)
    d, lengths = sizes["d"], sizes["t"] - 2
    expect(lengths in (1, d), "theta", f"{2 + d} or 3 numbers", sizes["t"])
    expect(sizes["1 + s"] == 1 + sizes["s"], "solution", f"of {1 + sizes['s']} columns", sizes["1 + s"])
    for one in content["history"]:
        expect(len(one["length_scales"]) == lengths, "length_scales", f"{lengths} numbers", len(one["length_scales"]))
    names, angle = content["feature_names"], content.get("angle", 0.0)
    columns = columns_json.map_from_json(content.get("columns", {"count": d, "parts": []}), names, d)
    expect(
        not angle or (d == lengths == 2 and not columns.parts and angle < 90), "angle", "below 90, of a plane", angle
    )
    y_mean, y_scale = tensors["y_scaling"].tolist()
    expect(y_scale > 0, "y_scaling", "a positive scale", y_scale)

    trend = None if terms is None else _trend(terms, tensors, sizes, angle).to(place)
    parts = ("x", "solution", "frequencies", "sin_weights", "cos_weights")
    there = {name: tensors[name].to(place) for name in parts}
    prior = FeaturePrior(there["frequencies"], there["sin_weights"], there["cos_weights"])
    theta = Hyperparameters.from_vector(tensors["theta"])
    targets = None
    if "targets" in tensors:
        targets = Targets(tensors["targets"].to(place), float(tensors["targets_step"]))
    model = cls(**settings)
    model.plan_ = plan
    model.report_ = _report(content, sizes["s"]).read_on(place)
    scaling = tensors["x_mean"].numpy(), tensors["x_scale"].numpy(), y_mean, y_scale
    model.scaler_, model.columns_ = Standardizer(*scaling, columns, angle), columns
    model.posterior_ = Posterior(
        there["x"], get_kernel(content["kernel"]), theta, there["solution"], prior, exact=content["exact"],
        trend=trend, targets=targets, noise=_noise(tensors, place),
    )  # fmt: skip
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


def _noise(tensors: Mapping[str, Tensor], place: torch.device) -> RowNoise | None:
    """Returns what the noise of each row of a file is made of; None where it is the same for all."""
    if "noise_known" not in tensors:
        return None
    expect(bool((tensors["noise_known"] >= 0).all()), "noise_known", "variances of at least 0", "negative ones")
    return RowNoise(tensors["noise_shares"], tensors["noise_known"]).to(place)


def _robust_weights(tensors: Mapping[str, Tensor]) -> np.ndarray | None:
    """Returns the weights that a robust fit gave to rows; None where it was none."""
    weights = tensors.get("robust_weights")
    if weights is None:
        return None
    expect(bool(((weights >= 0) & (weights <= 1)).all()), "robust_weights", "weights from 0 to 1", "others")
    return weights.numpy()


def _trend(terms: list[list[int]], tensors: Mapping[str, Tensor], sizes: Mapping[str, int], angle: float) -> Trend:
    """Returns the trend of a file, checked, over inputs that are turned by the angle."""
    expect(len(terms) == sizes["p"], "trend_terms", f"{sizes['p']} terms", len(terms))
    for term in terms:
        known = len(term) <= 2 and all(column < sizes["d"] for column in term) and term == sorted(term)
        expect(known, "trend_terms", f"products of at most two of {sizes['d']} columns", str(term))
    whole = {(), *((column,) for term in terms for column in term)} <= {tuple(term) for term in terms}
    expect(whole, "trend_terms", "a trend with the constant and every column of a product", str(terms))
    basis = Basis(tuple(tuple(term) for term in terms), tensors["trend_transform"], angle)
    return Trend(basis, *(tensors[f"trend_{name}"] for name in ("solution", "coefficients", "covariance")))


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
