"""What columns are, as JSON: what a user said of them, and the map that came of it."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warmgp.data.column_kinds import KINDS, PARTS, Category, Circle, ColumnKind, Days
from warmgp.data.gaps import Gaps
from warmgp.data.input_map import InputMap, said
from warmgp.schema import Check, either, expect, list_of, maybe, number, of_class, one_of, record, text, whole

GAP = record({"mean": list_of(number(-np.inf)), "jump": number(5e-324)})
"""What a file may say of how missing cells are filled in."""


def _part(value: Any, name: str) -> None:
    """Raises unless a value tells of a kind: its name, its columns and fields, and perhaps how it is filled in."""
    record({"kind": one_of(PARTS)}, _anything(value))(value, name)
    own = {key: item for key, item in value.items() if key not in ("kind", "gap")}
    of_class(PARTS[value["kind"]])(own, name)
    if "gap" in value:
        GAP(value["gap"], f"{name}.gap")


def _anything(value: Any) -> dict[str, Check]:
    """Returns checks that allow whatever keys an object has: those of its kind are looked at when that is known."""
    return {key: lambda *_: None for key in value if key != "kind"} if isinstance(value, dict) else {}


MAP = record({"count": whole(1), "parts": list_of(_part)})
"""What a file may say of an :class:`InputMap`."""

SAID = maybe(
    list_of(
        record(
            {"kind": one_of(KINDS), "columns": list_of(either(text, whole()))},
            {"options": list_of(either(text, number()))},
        )
    )
)
"""What a file may say that a user said of columns."""


def map_to_json(columns: InputMap) -> dict[str, Any]:
    """Returns a map as JSON values, but for the names of columns, which a model keeps anyway."""
    return {"count": len(columns.names), "parts": [_to_json(part) for part in columns.parts]}


def _to_json(part: ColumnKind) -> dict[str, Any]:
    """Returns a kind as JSON values: its name and fields, and how it is filled in where it is."""
    if isinstance(part, Gaps):
        return {**_to_json(part.of), "gap": {"mean": list(part.mean), "jump": part.jump}}
    own = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {"kind": part.name, **{key: list(item) if isinstance(item, tuple) else item for key, item in own.items()}}


def _from_json(value: Mapping[str, Any]) -> ColumnKind:
    """Returns the kind that :func:`_to_json` told of, checked by its own rules."""
    own: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}
    of, gap = PARTS[own.pop("kind")], own.pop("gap", None)
    expect(len(own["columns"]) == of.count, "columns", f"{of.count} of {of.name}", len(own["columns"]))
    part = of(**own)
    if isinstance(part, Category):
        expect(len(set(part.levels)) == len(part.levels) > 0, "columns", "different values", "one twice, or none")
    expect(getattr(part, "period", 1.0) > 0, "columns", "a period above 0", 0.0)
    if gap is None:
        expect(of.name != "number", "columns", "filled in", "a plain column")
        return part
    expect(len(gap["mean"]) == part.width, "columns", f"{part.width} means", len(gap["mean"]))
    return Gaps(part.columns, part, tuple(gap["mean"]), gap["jump"])


def map_from_json(values: Mapping[str, Any], names: Sequence[str] | None, d: int) -> InputMap:
    """Returns the map to d inputs that :func:`map_to_json` told of; raises a ValueError for one that cannot be."""
    count, parts = values["count"], tuple(_from_json(part) for part in values["parts"])
    used = [j for part in parts for j in part.columns]
    made = count - len(set(used)) + sum(part.width for part in parts)
    expect(made == d, "columns", f"of {d} inputs", made)  # so that count is a size that memory has
    expect(names is None or len(names) == count, "feature_names", f"{count} names", names and len(names))
    expect(max(used, default=0) < count, "columns", f"numbers below {count}", max(used, default=0))
    for j in {j for j in used if used.count(j) > 1}:
        inner = [part.of if isinstance(part, Gaps) else part for part in parts if j in part.columns]
        alike = all(isinstance(part, Days | Circle) and part.reads == inner[0].reads for part in inner)
        expect(alike and len(set(inner)) == len(inner), "columns", "different things", "one twice")
    return InputMap(tuple(range(count) if names is None else names), parts)


def said_to_json(columns: Mapping[Any, Any] | None) -> list[dict[str, Any]] | None:
    """Returns what a user said of columns as JSON values, which have no tuples for keys."""
    if columns is None:
        return None
    made = []
    for key, given in columns.items():
        listed = [int(one) if isinstance(one, numbers.Integral) else one for one in _listed(key)]
        kind, options = said(given)
        told = [one if isinstance(one, str) else float(one) for one in options]
        made.append({"kind": kind, "columns": listed} | ({"options": told} if told else {}))
    return made


def said_from_json(values: Sequence[Mapping[str, Any]] | None) -> dict[Any, Any] | None:
    """Returns what a user said of columns from what :func:`said_to_json` made of it."""
    if values is None:
        return None
    kinds = [(v["kind"], *v["options"]) if v.get("options") else v["kind"] for v in values]
    keys = [tuple(v["columns"]) if len(v["columns"]) != 1 else v["columns"][0] for v in values]
    return dict(zip(keys, kinds, strict=True))


def _listed(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
