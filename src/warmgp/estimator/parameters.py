"""Checks of GPRegressor's parameters, before any data is touched; those that a plan depends on are checked with it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from warmgp.checks import check_count, check_noise_floor
from warmgp.data.input_map import InputMap, check_columns
from warmgp.hyperparameters import Hyperparameters
from warmgp.planning.request import Settings, is_auto

PLANNED = tuple(field.name for field in dataclasses.fields(Settings))
"""Parameters that a plan depends on, and that :class:`Settings` checks."""


def check_parameters(values: Mapping[str, Any]) -> Settings:
    """Returns the settings for a plan; raises a ValueError that names a wrong parameter, what came and the remedy."""
    check_count("checkpoint_every", values["checkpoint_every"])
    for name in ("ard", "learn_noise", "robust", "solver_warm_start", "standardize", "verbose"):
        if not isinstance(values[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {values[name]!r}")
    checkpoint = values["checkpoint"]
    if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(f"checkpoint must be a path or None, got {checkpoint!r}")
    check_seed(values["random_state"])
    callbacks = values["callbacks"]
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks must be a sequence of callables, got {callbacks!r}")
    if not is_auto(values["noise_floor"]):
        check_noise_floor(values["noise_floor"], ' or "auto"')
    check_columns(values["columns"])
    for name, known in (("missing", MISSING), ("unknown_category", UNKNOWN)):
        if not isinstance(values[name], str) or values[name] not in known:
            raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {values[name]!r}")
    check_anisotropy(values["anisotropy"], values["ard"])
    return Settings(**{name: values[name] for name in PLANNED})


USUAL_FLOOR = 1e-4
"""The least noise scale of "auto", in standardised units."""


def floor_of(noise_floor: float | str) -> float:
    """Returns the least noise scale that training goes to by this parameter."""
    return USUAL_FLOOR if isinstance(noise_floor, str) else float(noise_floor)


def check_seed(seed: Any) -> None:
    """Raises unless ``seed`` is one that numpy's RandomState takes, or a RandomState."""
    try:
        check_random_state(seed)
    except ValueError as error:
        raise ValueError(
            f"random_state must be None, a RandomState or an integer from 0 to 2**32 - 1, got {seed!r}"
        ) from error


MISSING = ("error", "mean")
"""What may come of missing cells in X."""
UNKNOWN = ("error", "zero")
"""What may come of a value of a category that training has not seen."""
ANISOTROPIES = ("rotated",)
"""The ways in which ranges may differ by direction, beside those along the inputs."""


def check_anisotropy(value: Any, ard: bool) -> None:
    """Raises unless ``value`` is None or one of ``ANISOTROPIES`` that goes with ``ard``."""
    if value is None:
        return
    if not isinstance(value, str) or value not in ANISOTROPIES:
        raise ValueError(f"anisotropy must be None or {' or '.join(map(repr, ANISOTROPIES))}, got {value!r}")
    if not ard:
        raise ValueError(f"anisotropy={value!r} learns two length scales and an angle, and ard=False has one for all")


def check_flat(anisotropy: str | None, columns: InputMap) -> None:
    """Raises where ranges are to differ by direction, and the inputs are no plane: two plain columns."""
    if anisotropy is None or (len(columns.names) == 2 and not columns.parts):
        return
    kinds = ", ".join(f"{name} ({kind.name})" if kind else name for name, _, kind in columns.groups)
    raise ValueError(
        f"anisotropy={anisotropy!r} turns the plane of two plain inputs, got {len(columns.names)} columns: {kinds}. "
        f"Leave it out, or turn the inputs yourself"
    )


def check_start(init: Any, columns: InputMap, ard: bool) -> None:
    """Raises where initial hyperparameters were given that do not fit the inputs."""
    if not isinstance(init, Hyperparameters):
        return
    lengths = init.length_scales
    if columns.parts and lengths.numel() not in (1, len(columns.sources)):
        made = ", ".join(f"{len(inputs)} for {name}" for name, inputs, _ in columns.groups)
        raise ValueError(
            f"length_scales has {lengths.numel()} entries but columns make {len(columns.sources)} inputs ({made}); "
            f"give one per input, or a single shared one"
        )
    init.check_dimension(len(columns.sources))
    if not ard and lengths.numel() != 1:
        raise ValueError(f"ard=False needs one length scale in init, got {lengths.numel()}")
    for name, inputs, _ in columns.groups:
        own = lengths.expand(len(columns.sources))[list(inputs)].tolist()
        if len(set(own)) > 1:
            raise ValueError(f"init has length scales {own} for {name}, whose inputs share one: give the same for each")
