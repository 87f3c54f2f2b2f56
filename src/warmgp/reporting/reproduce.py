"""How to make the model again: versions, settings, and the calls that fit it."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import torch

from warmgp.data.input_map import said
from warmgp.reporting.markup import Markup, facts, joined, paragraph, tag
from warmgp.reporting.subject import Subject

NOT_SETTINGS = ("callbacks", "verbose", "checkpoint", "checkpoint_every", "device", "memory_budget")
"""Parameters that a model does not depend on, or that belong to a machine."""

PYTHON_ONLY = ("solver_warm_start", "standardize")
"""Parameters that the command line does not have."""

FLAGS = {("ard", False): "--no-ard", ("learn_noise", False): "--no-learn-noise", ("robust", True): "--robust"}


def reproduce(subject: Subject, version: str) -> Markup:
    """Returns the section on how to make the model again."""
    model = subject.model
    changed = settings_of(model)
    seed = model.random_state
    seeded = f"random_state {seed!r}" if seed is not None else "not set: another fit differs by chance"
    where = f"{subject.model.report_.device or 'cpu'}, in {str(model.posterior_.x.dtype).removeprefix('torch.')}"
    rows = [
        ("model file", subject.called or "–"),
        ("warmgp", version),
        ("Python, torch, numpy, scipy", f"{platform.python_version()}, {torch.__version__}, {np.__version__}, "
         f"{scipy.__version__} ({sys.platform})"),
        ("seed", seeded),
        ("trained on", where),
        ("settings other than the defaults", ", ".join(f"{k}={told(v)}" for k, v in changed.items()) or "none"),
    ]  # fmt: skip
    made = [facts(rows), paragraph("In Python, with the training table as X and y:")]
    arguments = ", ".join(f"{name}={told(value)}" for name, value in changed.items())
    beside = "".join(f", {name}={name}" for name in _of_rows(model))
    made.append(tag("pre", f"from warmgp import GPRegressor\n\nmodel = GPRegressor({arguments}).fit(X, y{beside})"))
    command = command_for(subject, changed)
    if command:
        made += [paragraph("On the command line, with the training table as data.csv:"), tag("pre", command)]
    else:
        made.append(paragraph("The command line has no options for some of these settings."))
    if model.updates_:
        made.append(paragraph("The model was updated since its fit. One fit of all its rows may find others."))
    return joined(made)


def _of_rows(model: Any) -> list[str]:
    """Returns the arguments of fit that rows had beside X and y: weights, and the variances of known errors.

    Those of a robust fit are its own work; what a user gave beside cannot be told from them.
    """
    noise = model.posterior_.noise
    if noise is None:
        return []
    weighted, known = bool((noise.shares != 1).any()) and not model.robust, bool((noise.known != 0).any())
    return ["sample_weight"] * weighted + ["noise_variance"] * known


def settings_of(model: Any) -> dict[str, Any]:
    """Returns the parameters of an estimator that differ from the defaults."""
    default = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    return {k: v for k, v in given.items() if k not in NOT_SETTINGS and not _same(v, default[k])}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def told(value: Any) -> str:
    """Returns a setting as it is written in Python."""
    return str(value) if isinstance(value, torch.dtype | torch.device) else repr(value)


def command_for(subject: Subject, changed: Mapping[str, Any]) -> str:
    """Returns the command that fits the model; "" where the command line cannot say its settings."""
    parts = ["warmgp fit data.csv"]
    parts += [f"--target {shlex.quote(target.name)}" for target in subject.targets]
    columns = {"sample_weight": "--weight-column weight", "noise_variance": "--noise-column error"}
    parts += [columns[name] for name in _of_rows(subject.model)]
    for name, value in changed.items():
        option = f"--{'seed' if name == 'random_state' else name.replace('_', '-')}"
        if name in PYTHON_ONLY:
            return ""
        if name == "columns":
            parts += _columns(value)
        elif name == "trend" and not isinstance(value, str):
            parts.append(f"--trend {shlex.quote('drift:' + ','.join(map(str, value)))}")
        elif (name, value if isinstance(value, bool) else None) in FLAGS:
            parts.append(FLAGS[name, value])
        elif isinstance(value, str | int | float) or value is None:
            parts.append(f"{option} {'none' if value is None else shlex.quote(str(value))}")
        else:
            return ""  # an object: a solver, hyperparameters, a generator
    return " \\\n  ".join([*parts, f"--out {shlex.quote(subject.called or 'model.safetensors')}"])


def _columns(columns: Mapping[Any, Any]) -> list[str]:
    """Returns the options that say what columns are."""
    parts = []
    for key, given in columns.items():
        kind, options = said(given)
        name = ",".join(map(str, key)) if isinstance(key, tuple) else str(key)
        formats = [one for one in options if isinstance(one, str) and "%" in one]
        periods = [one for one in options if one not in formats]
        if kind == "date":
            parts.append(f"--date {shlex.quote('='.join([name, *formats]))}")
        elif kind != "periodic":
            option = "one-hot" if kind == "category" and "," in name else kind  # one name, whatever is in it
            parts.append(f"--{option} {shlex.quote(name)}")
        parts += [f"--periodic {shlex.quote(f'{name}={period}')}" for period in periods]
    return parts
