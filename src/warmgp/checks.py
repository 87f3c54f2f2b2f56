"""Checks of single values that callers pass: what is a number, what is a count."""

from __future__ import annotations

import numbers
from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[float]:
    """Says whether a value is a real number of any library; a bool is not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raises unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
