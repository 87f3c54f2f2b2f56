"""What a file may say: checks of JSON values and of tensors, made before anything is built from them.

A check is called with a value and its name, and raises :class:`SchemaError` for what is not allowed there. Checks of
dataclasses come from their own annotations, so that a field is described in one place: an ``int`` is a count, a
``float`` is finite and not negative; exceptions are given by name.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor

Check = Callable[[Any, str], None]

LARGEST = 1e150
"""The largest scale that a file may hold: its square is still finite in float64."""
LARGEST_COUNT = 2**53
"""The largest integer that a file may hold: many readers of JSON keep numbers in float64, which rounds larger ones."""


class SchemaError(ValueError):
    """Says that a file holds a value or a tensor that it may not hold."""


# -- JSON ------------------------------------------------------------------------------------------------------------
def number(least: float = 0.0, *, finite: bool = True, nan: bool = False) -> Check:
    """Returns a check for a number of at least ``least``.

    Where ``finite`` is False it may be infinite, where ``nan`` is True it may be NaN.
    """

    def check(value: Any, name: str) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and isinstance(value, int) and abs(value) > LARGEST_COUNT:
            is_number = False
        fits = is_number and ((value >= least and (math.isfinite(value) or not finite)) or (nan and math.isnan(value)))
        expect(fits, name, f"a {'finite ' if finite else ''}number of at least {least:g}", value)

    return check


def whole(least: int = 0, most: int = LARGEST_COUNT) -> Check:
    """Returns a check for an integer from ``least`` to ``most``."""
    return lambda value, name: expect(
        type(value) is int and least <= value <= most, name, f"a whole number from {least} to {most}", value
    )


def text(value: Any, name: str) -> None:
    """Raises unless ``value`` is a string that can be written as UTF-8."""
    fits = isinstance(value, str)
    if fits:
        try:
            value.encode()
        except UnicodeEncodeError:
            fits = False
    expect(fits, name, "text", value)


def truth(value: Any, name: str) -> None:
    """Raises unless ``value`` is True or False."""
    expect(isinstance(value, bool), name, "true or false", value)


def nothing(value: Any, name: str) -> None:
    """Raises unless ``value`` is None."""
    expect(value is None, name, "null", value)


def one_of(names: Collection[str]) -> Check:
    """Returns a check for one of these strings."""
    told = "one of " + ", ".join(map(repr, names))
    return lambda value, name: expect(isinstance(value, str) and value in names, name, told, value)


def either(*checks: Check) -> Check:
    """Returns a check for what at least one of ``checks`` allows."""

    def check(value: Any, name: str) -> None:
        errors = []
        for one in checks:
            try:
                return one(value, name)
            except SchemaError as error:
                errors.append(str(error))
        raise SchemaError(", or ".join(errors))

    return check


def maybe(check: Check) -> Check:
    """Returns a check for None or what ``check`` allows."""
    return lambda value, name: None if value is None else check(value, name)


def list_of(check: Check, length: int | None = None) -> Check:
    """Returns a check for a list of items that ``check`` allows, ``length`` of them where that is given."""

    def each(value: Any, name: str) -> None:
        long = "a list" if length is None else f"a list of {length}"
        expect(isinstance(value, list) and length in (None, len(value)), name, long, value)
        for i, item in enumerate(value):
            check(item, f"{name}[{i}]")

    return each


def dict_of(check: Check) -> Check:
    """Returns a check for an object with any keys, and values that ``check`` allows."""

    def each(value: Any, name: str) -> None:
        expect(isinstance(value, dict), name, "an object", value)
        for key, item in value.items():
            text(key, f"a key of {name}")
            check(item, f"{name}.{key}")

    return each


def record(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Returns a check for an object with all keys of ``needed``, any of ``optional``, and no others."""
    known = {**needed, **(optional or {})}

    def each(value: Any, name: str) -> None:
        expect(isinstance(value, dict), name, "an object", value)
        for key in needed:
            if key not in value:
                raise SchemaError(f"lacks {key!r}" + (f" in {name}" if name else ""))
        for key, item in value.items():
            where = f"{name}.{key}" if name else key
            if key not in known:
                raise SchemaError(f"has {where[:80]!r}, which this version of warmgp does not know")
            known[key](item, where)

    return each


def of_class(cls: type, **special: Check) -> Check:
    """Returns a check for the fields of a dataclass, each by its annotation or by the check of its name in ``special``.

    Fields with defaults may be missing.
    """
    hints = typing.get_type_hints(cls)
    needed: dict[str, Check] = {}
    optional: dict[str, Check] = {}
    for field in dataclasses.fields(cls):
        missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        check = special[field.name] if field.name in special else of_hint(hints[field.name])
        (needed if missing else optional)[field.name] = check
    return record(needed, optional)


def of_hint(hint: Any) -> Check:
    """Returns the check for what an annotation allows."""
    simple: dict[Any, Check] = {
        bool: truth,
        int: whole(),
        float: number(),
        str: text,
        types.NoneType: nothing,
        None: nothing,
    }
    if hint in simple:
        return simple[hint]
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return either(*map(of_hint, of))
    if origin is tuple and of[1:] == (...,):
        return list_of(of_hint(of[0]))
    if origin is dict and of[0] is str:
        return dict_of(of_hint(of[1]))
    raise TypeError(f"no check for {hint}")


def expect(true: bool, name: str, what: str, value: Any) -> None:
    """Raises a SchemaError that says what is expected and what is there, unless ``true``."""
    if not true:
        shown = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
        shown = shown.encode("ascii", "backslashreplace").decode()
        raise SchemaError(f"{name[:200]} must be {what}, got {shown[:40]}")


# -- tensors ---------------------------------------------------------------------------------------------------------
FLOATS = (torch.float32, torch.float64)
DOUBLE = (torch.float64,)


@dataclasses.dataclass(frozen=True)
class TensorRule:
    """States the shape, the dtypes and the range that a tensor must have.

    Attributes
    ----------
    shape : tuple
        Sizes as numbers or as names; sizes of the same name are equal throughout a file.
    dtypes : tuple of torch.dtype
    positive : bool
        Whether every number must be above zero and at most ``LARGEST``. Floating-point numbers must always be finite.
    """

    shape: tuple[int | str, ...]
    dtypes: tuple[torch.dtype, ...] = FLOATS
    positive: bool = False


def check_tensors(
    tensors: Mapping[str, Tensor], rules: Mapping[str, TensorRule], sizes: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Raises unless every tensor has a rule and fits it; returns the sizes that were found, by name.

    ``sizes`` holds those that are known beforehand.
    """
    found = dict(sizes or {})
    for name in tensors:
        if name not in rules:
            raise SchemaError(f"has the tensor {name[:80]!r}, which this version of warmgp does not know")
    for name, rule in rules.items():
        if name not in tensors:
            raise SchemaError(f"lacks {name!r}")
        tensor = tensors[name]
        if tensor.dtype not in rule.dtypes:
            raise SchemaError(f"{name} has numbers of {tensor.dtype}")
        wanted = tuple(size if isinstance(size, int) else found.get(size, size) for size in rule.shape)
        fits = tensor.ndim == len(wanted) and all(
            size >= 1 if isinstance(want, str) else size == want
            for size, want in zip(tensor.shape, wanted, strict=True)
        )
        if not fits:
            raise SchemaError(f"{name} must have shape ({', '.join(map(str, wanted))}), got {tuple(tensor.shape)}")
        found |= {size: there for size, there in zip(rule.shape, tensor.shape, strict=True) if isinstance(size, str)}
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise SchemaError(f"{name} must be finite, and holds NaN or infinity")
        if rule.positive and not bool(((tensor > 0) & (tensor <= LARGEST)).all()):
            raise SchemaError(
                f"{name} must be positive and at most {LARGEST:g}, and holds {tensor.min().item():g} to "
                f"{tensor.max().item():g}"
            )
    return found
