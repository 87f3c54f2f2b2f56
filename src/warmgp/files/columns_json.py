"""What columns are, as JSON: what a user said of them, and the map that came of it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from warmgp.data.column_kinds import KINDS
from warmgp.data.input_map import InputMap
from warmgp.schema import either, expect, list_of, maybe, one_of, record, text, whole

MAP = record({"count": whole(1), "parts": list_of(record({"kind": one_of(KINDS), "columns": list_of(whole())}))})
"""What a file may say of an :class:`InputMap`."""

SAID = maybe(list_of(record({"kind": one_of(KINDS), "columns": list_of(either(text, whole()))})))
"""What a file may say that a user said of columns."""


def map_to_json(columns: InputMap) -> dict[str, Any]:
    """Returns a map as JSON values, but for the names of columns, which a model keeps anyway."""
    parts = [{"kind": part.name, "columns": list(part.columns)} for part in columns.parts]
    return {"count": len(columns.names), "parts": parts}


def map_from_json(values: Mapping[str, Any], names: Sequence[str] | None, d: int) -> InputMap:
    """Returns the map to d inputs that :func:`map_to_json` told of; raises a ValueError for one that cannot be."""
    count, kinds = values["count"], [KINDS[part["kind"]] for part in values["parts"]]
    made = count + sum(kind.width - kind.count for kind in kinds)
    expect(made == d, "columns", f"of {d} inputs", made)  # so that count is a size that memory has
    told = {tuple(part["columns"]): part["kind"] for part in values["parts"]}
    expect(len(told) == len(kinds), "columns", "different things", "one twice")
    expect(names is None or len(names) == count, "feature_names", f"{count} names", names and len(names))
    parts = InputMap.of(told, range(count)).parts
    return InputMap(tuple(range(count) if names is None else names), parts)


def said_to_json(columns: Mapping[Any, str] | None) -> list[dict[str, Any]] | None:
    """Returns what a user said of columns as JSON values, which have no tuples for keys."""
    if columns is None:
        return None
    keys = [key if isinstance(key, tuple) else (key,) for key in columns]
    listed = [[int(one) if isinstance(one, numbers.Integral) else one for one in key] for key in keys]
    return [{"kind": kind, "columns": key} for key, kind in zip(listed, columns.values(), strict=True)]


def said_from_json(values: Sequence[Mapping[str, Any]] | None) -> dict[Any, str] | None:
    """Returns what a user said of columns from what :func:`said_to_json` made of it."""
    if values is None:
        return None
    return {tuple(v["columns"]) if len(v["columns"]) != 1 else v["columns"][0]: v["kind"] for v in values}
