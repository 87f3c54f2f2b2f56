"""What columns are, in files: there and back, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from warmgp.data.input_map import InputMap
from warmgp.files.columns_json import MAP, SAID, map_from_json, map_to_json, said_from_json, said_to_json

NAMES = ["year", "lat", "depth", "lon"]
PLACE = {("lat", "lon"): "geographic"}


def test_there_and_back_in_json() -> None:
    columns = InputMap.of(PLACE, NAMES)
    assert map_from_json(map_to_json(columns), NAMES, 5) == columns
    for said in (PLACE, {(0, 1): "geographic", ("a", 3): "geographic"}, None, {}):
        assert said_from_json(said_to_json(said)) == said
    for wrong in (
        {"count": 4, "parts": []},
        {"count": 2**50, "parts": []},
        {"count": 4, "parts": [{"kind": "geographic", "columns": [1, 4]}]},
        {"count": 4, "parts": [{"kind": "geographic", "columns": [1]}]},
        {"count": 3, "parts": [{"kind": "geographic", "columns": [0, 1]}, {"kind": "geographic", "columns": [1, 2]}]},
        {"count": 3, "parts": [{"kind": "geographic", "columns": [0, 1]}] * 2},
    ):
        with pytest.raises(ValueError, match="columns"):
            map_from_json(wrong, None, 5)


def test_every_kind_there_and_back() -> None:
    circles = ("periodic", 24.0, 12.0)
    said: dict[Any, Any] = {"when": ("date", "year", "%d.%m.%Y"), "hour": circles, "colour": "category"}
    SAID(said_to_json(said), "columns")
    assert said_from_json(said_to_json(said)) == said
    names = ["age", "when", "hour", "colour"]
    columns = InputMap.of(said, names).learned(3, lambda part: replace(part, levels=("blue", "red")))  # type: ignore[call-arg]
    X = np.array([[1.0, 2.0, 3.0, 1.0], [np.nan, 4.0, 5.0, 0.0], [3.0, np.nan, 6.0, np.nan], [7.0, 8.0, 9.0, 1.0]])
    for one, d in ((columns, 10), (columns.filled(X), 14)):
        told = map_to_json(one)
        MAP(told, "columns")
        again = map_from_json(told, names, d)
        assert again == one
        np.testing.assert_array_equal(again.inputs(X), one.inputs(X))


PERIODIC = {"kind": "periodic", "columns": [0], "period": 24.0}
CATEGORY = {"kind": "category", "columns": [0], "levels": ["a", "b"]}
WRONG: dict[str, Any] = {
    "no period": [{"kind": "periodic", "columns": [0]}],
    "a period of zero": [PERIODIC | {"period": 0.0}],
    "a period that is text": [PERIODIC | {"period": "24"}],
    "a negative period": [PERIODIC | {"period": -1.0}],
    "values that are numbers": [CATEGORY | {"levels": [1, 2]}],
    "no values": [CATEGORY | {"levels": []}],
    "a value twice": [CATEGORY | {"levels": ["a", "a"]}],
    "a field of others": [CATEGORY | {"period": 3.0}],
    "an unknown kind": [{"kind": "circle", "columns": [0]}],
    "no kind": [{"columns": [0]}],
    "a number that is not filled in": [{"kind": "number", "columns": [0]}],
    "a gap of another width": [PERIODIC | {"gap": {"mean": [0.0], "jump": 1.0}}],
    "a gap without a jump": [CATEGORY | {"gap": {"mean": [0.0, 1.0], "jump": 0.0}}],
    "a mean that is NaN": [CATEGORY | {"gap": {"mean": [float("nan"), 1.0], "jump": 1.0}}],
    "a column that is two things": [PERIODIC, CATEGORY],
    "text for a part": ["periodic"],
}


@pytest.mark.parametrize("what", WRONG)
def test_parts_that_cannot_be_are_refused(what: str) -> None:
    values = {"count": 2, "parts": WRONG[what]}
    for d in range(1, 7):
        with pytest.raises(ValueError, match=r"columns|kind|part"):
            MAP(values, "columns")
            map_from_json(values, None, d)
