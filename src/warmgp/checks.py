"""Checks of single values that callers pass: what is a number, what is a count, what a number of features may be.

Each rule has its one home here, and is called by everything that takes such a value.
"""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[float]:
    """Says whether a value is a real number of any library; a bool is not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raises unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_features(value: object, otherwise: str = "") -> None:
    """Raises unless ``value`` is a number of random features: an even count, because each sine has its cosine.

    ``otherwise`` says what else is accepted there.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 2 or value % 2:
        raise ValueError(f"n_features must be an even number of at least 2 (sin/cos pairs){otherwise}, got {value!r}")


def check_positive(name: str, value: object) -> None:
    """Raises unless ``value`` is a number above zero; infinity is one."""
    if not (is_number(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value!r}")


def check_learning_rate(value: object, otherwise: str = "") -> None:
    """Raises unless ``value`` is the rate of a descent, by Adam or SGD: a finite number above zero.

    ``otherwise`` says what else is accepted there.
    """
    if not (is_number(value) and math.isfinite(value) and value > 0):
        raise ValueError(f"learning_rate must be a positive number{otherwise}, got {value!r}")


def check_noise_floor(value: object, otherwise: str = "") -> None:
    """Raises unless ``value`` is a least noise scale: a finite number of at least zero.

    ``otherwise`` says what else is accepted there.
    """
    if not (is_number(value) and math.isfinite(value) and value >= 0):
        raise ValueError(f"noise_floor must be a number of at least 0{otherwise}, got {value!r}")


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line that called the library, however deep inside it the reason was found."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "warmgp":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
