"""The parameters of a GPRegressor as JSON values, there and back, and the fingerprint of a fit."""

from __future__ import annotations

import os
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warmgp.estimator.parameters import check_parameters, floor_of
from warmgp.files import columns_json, plan_json
from warmgp.files.format import fingerprint, to_json
from warmgp.gradient import GradientEstimator
from warmgp.hyperparameters import Hyperparameters, Units
from warmgp.kernels import KERNELS, Kernel
from warmgp.planning.request import DTYPES, STARTS, bytes_of, is_auto
from warmgp.schema import Check, either, expect, list_of, maybe, number, of_hint, one_of, record, text, whole
from warmgp.solvers import SOLVERS, Solver
from warmgp.trend import NAMED

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
            value = {"hyperparameters": value.vector.tolist(), **_units_to_json(value.units)}
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
    "init": either(one_of(STARTS), record({"hyperparameters": POSITIVE}, {"units": POSITIVE, "input_units": POSITIVE})),
    "device": either(one_of(("auto",)), plan_json.device),
    "dtype": one_of(("auto", *DTYPES)),
    "max_epochs": maybe(either(one_of(("auto",)), number(5e-324, finite=False))),
    "random_state": maybe(whole(0, 2**32 - 1)),
    "columns": columns_json.SAID,
    "trend": maybe(either(one_of(NAMED), list_of(either(text, whole(0))))),
}
"""Checks of the parameters whose annotations do not say what a file may hold."""


def _units_to_json(units: Units | None) -> dict[str, list[float]]:
    """Returns the units of hyperparameters as JSON: of the target and the inputs, or of the inputs alone."""
    if units is None:
        return {}
    return {"input_units": [*units.x]} if units.y is None else {"units": [units.y, *units.x]}


def settings_from_json(cls: Any, values: Any) -> dict[str, Any]:
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
        elif units := init.get("input_units"):
            out["init"] = out["init"].known_in(Units(None, tuple(units)))
    check_parameters({**cls(**out).get_params(deep=False), "device": "cpu"})  # the device of the fit need not be here
    return out


def settings_of(model: Any) -> dict[str, Any]:
    """Returns the parameters that change the result of a training as JSON values, by name; those that earlier versions
    did not have only where they mean something."""
    settings = settings_to_json({k: v for k, v in model.get_params().items() if k not in NOT_SETTINGS})
    if is_auto(settings["noise_floor"]):  # what that asks for beyond comes after all steps
        settings["noise_floor"] = floor_of("auto")
    return {name: value for name, value in settings.items() if name not in LATER or value != LATER[name]}


def made_from(model: Any, data: Mapping[str, np.ndarray], seed: int) -> tuple[str, dict[str, str]]:
    """Returns (fingerprint, parts by name) of the data and of every setting that changes the result.

    ``seed`` is the number that this fit draws from ``random_state``: of a generator it is all that counts.
    """
    settings = settings_of(model)
    if isinstance(model.kernel, Kernel):  # with its options, where it has any
        settings["kernel"] = f"{model.kernel!r} {sorted(vars(model.kernel).items())}"
    if model.random_state is not None and settings["random_state"] is None:
        settings["random_state"] = f"a generator that draws {seed}"
    return marked(settings, {name: torch.tensor(values) for name, values in data.items()})


def marked(settings: Mapping[str, Any], data: Mapping[str, Tensor]) -> tuple[str, dict[str, str]]:
    """Returns (fingerprint, parts by name) of settings, which are JSON values, and of data."""
    parts = {name: to_json(value) for name, value in settings.items()}
    marks = {name: fingerprint(values) for name, values in data.items()}
    return fingerprint(*data.values(), to_json(dict(settings))), {**marks, **parts}
