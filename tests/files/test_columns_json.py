"""What columns are, in files: there and back, and what cannot be is refused."""

from __future__ import annotations

import pytest

from warmgp.data.input_map import InputMap
from warmgp.files.columns_json import map_from_json, map_to_json, said_from_json, said_to_json

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
