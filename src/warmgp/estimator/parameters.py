"""Checks of GPRegressor's parameters, before any data is touched; those that a plan depends on are checked with it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from warmgp.checks import check_count, check_noise_floor
from warmgp.hyperparameters import Hyperparameters
from warmgp.planning.request import Settings

PLANNED = tuple(field.name for field in dataclasses.fields(Settings))
"""Parameters that a plan depends on, and that :class:`Settings` checks."""


def check_parameters(values: Mapping[str, Any]) -> Settings:
    """Returns the settings for a plan; raises a ValueError that names a wrong parameter, what came and the remedy."""
    check_count("checkpoint_every", values["checkpoint_every"])
    for name in ("ard", "solver_warm_start", "standardize", "verbose"):
        if not isinstance(values[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {values[name]!r}")
    checkpoint = values["checkpoint"]
    if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(f"checkpoint must be a path or None, got {checkpoint!r}")
    check_seed(values["random_state"])
    callbacks = values["callbacks"]
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks must be a sequence of callables, got {callbacks!r}")
    check_noise_floor(values["noise_floor"])
    return Settings(**{name: values[name] for name in PLANNED})


def check_seed(seed: Any) -> None:
    """Raises unless ``seed`` is one that numpy's RandomState takes, or a RandomState."""
    try:
        check_random_state(seed)
    except ValueError as error:
        raise ValueError(
            f"random_state must be None, a RandomState or an integer from 0 to 2**32 - 1, got {seed!r}"
        ) from error


def check_start(init: Any, d: int, ard: bool) -> None:
    """Raises where initial hyperparameters were given that do not fit d inputs."""
    if not isinstance(init, Hyperparameters):
        return
    init.check_dimension(d)
    if not ard and init.length_scales.numel() != 1:
        raise ValueError(f"ard=False needs one length scale in init, got {init.length_scales.numel()}")
