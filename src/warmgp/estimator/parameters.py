"""Checks of GPRegressor's own parameters, before any data is touched. The planner and the parts check the rest."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from warmgp.checks import check_count
from warmgp.hyperparameters import Hyperparameters


def check_parameters(values: Mapping[str, Any]) -> None:
    """Raise ValueError that names the parameter, what came, and what is accepted."""
    check_count("n_probes", values["n_probes"])
    check_count("checkpoint_every", values["checkpoint_every"])
    for name in ("ard", "solver_warm_start", "standardize", "verbose"):
        if not isinstance(values[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {values[name]!r}")
    init = values["init"]
    if not isinstance(init, Hyperparameters) and not (
        isinstance(init, str) and init in ("auto", "ones", "sample", "subset")
    ):
        raise ValueError(f'init must be "auto", "ones", "sample", "subset" or Hyperparameters, got {init!r}')
    checkpoint = values["checkpoint"]
    if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(f"checkpoint must be a path or None, got {checkpoint!r}")
    check_seed(values["random_state"])
    callbacks = values["callbacks"]
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks must be a sequence of callables, got {callbacks!r}")
    for name in ("tol", "noise_floor"):
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ValueError(f"{name} must be a number, got {value!r}")
    if not 0 < values["tol"] < 1:
        raise ValueError(f"tol must be positive and below 1, got {values['tol']!r}")
    if values["noise_floor"] < 0:
        raise ValueError(f"noise_floor must be at least 0, got {values['noise_floor']!r}")


def check_seed(seed: Any) -> None:
    """Raise unless numpy's RandomState takes it."""
    try:
        check_random_state(seed)
    except ValueError as error:
        raise ValueError(
            f"random_state must be None, a RandomState or an integer from 0 to 2**32 - 1, got {seed!r}"
        ) from error


def check_start(init: Any, d: int, ard: bool) -> None:
    """Raise unless given initial hyperparameters fit d inputs."""
    if not isinstance(init, Hyperparameters):
        return
    init.check_dimension(d)
    if not ard and init.length_scales.numel() != 1:
        raise ValueError(f"ard=False needs one length scale in init, got {init.length_scales.numel()}")
