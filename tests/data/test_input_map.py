"""What columns are: names to numbers, inputs in their order, one unit for each thing, and what is refused."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from warmgp.data.column_kinds import KINDS, Geographic
from warmgp.data.input_map import InputMap
from warmgp.data.scaling import Standardizer

NAMES = ["year", "lat", "depth", "lon"]
PLACE = {("lat", "lon"): "geographic"}


def table(n: int = 50) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([rng.uniform(1990, 2020, n), rng.uniform(-90, 90, n), rng.exponential(1e3, n),
                     rng.uniform(-180, 540, n)], 1)  # fmt: skip


def test_a_pair_becomes_a_point_of_the_sphere_and_the_rest_stays() -> None:
    X, columns = table(), InputMap.of(PLACE, NAMES)
    x = columns.inputs(X)
    assert [(name, inputs) for name, inputs, _ in columns.groups] == [
        ("year", (0,)),
        ("lat, lon", (1, 2, 3)),
        ("depth", (4,)),
    ]
    assert columns.tied == (0, 1, 1, 1, 2) and columns.sources == (0, 1, 1, 1, 2)
    np.testing.assert_array_equal(x[:, [0, 4]], X[:, [0, 2]])
    np.testing.assert_allclose(np.linalg.norm(x[:, 1:4], axis=1), 1.0, rtol=1e-15)
    north, east = np.deg2rad(X[:, 1]), np.deg2rad(X[:, 3])
    between = np.sin(north[:, None]) * np.sin(north) + np.cos(north[:, None]) * np.cos(north) * np.cos(
        east[:, None] - east
    )
    chord = np.linalg.norm(x[:, None, 1:4] - x[None, :, 1:4], axis=-1)
    np.testing.assert_allclose(chord**2, 2 - 2 * between, atol=1e-12)


@pytest.mark.parametrize("turns", [-3.0, 1.0, 1e9])
def test_whole_turns_of_a_longitude_change_nothing(turns: float) -> None:
    X = np.array([[12.5, 180.0], [-90.0, -17.25], [0.0, 359.0]])
    place = Geographic((0, 1))
    moved = X + np.array([0.0, 360.0 * turns])
    np.testing.assert_allclose(place.inputs(moved), place.inputs(X), atol=1e-15)


def test_without_parts_a_table_is_its_own_inputs() -> None:
    X = table()
    assert InputMap.plain(4).inputs(X) is X and InputMap.plain(4).tied == ()
    assert InputMap.of(None, NAMES) == InputMap.of({}, NAMES) == InputMap(tuple(NAMES))


@pytest.mark.parametrize("names", [NAMES, range(4)])
def test_columns_by_number(names: list[str]) -> None:
    assert InputMap.of({(1, np.int64(3)): "geographic"}, names).parts == (Geographic((1, 3)),)


def test_a_sphere_stays_a_sphere() -> None:
    """One scale for the three inputs, also where one of them, or all, are constant."""
    X, y = table(), np.arange(50.0)
    columns = InputMap.of(PLACE, NAMES)
    for latitude in (X[:, 1], np.zeros(50), 1e-7 * X[:, 1]):
        some = X.copy()
        some[:, 1] = latitude
        scaler = Standardizer.fit(some, y, columns=columns)
        sphere = columns.inputs(some)[:, 1:4]
        assert len(set(scaler.x_scale[1:4])) == 1
        np.testing.assert_allclose(scaler.x_scale[1], np.sqrt(sphere.var(0).sum() / 2), rtol=1e-12)
        z = scaler.x(some)
        np.testing.assert_allclose(z[:, 1:4] * scaler.x_scale[1] + scaler.x_mean[1:4], sphere, atol=1e-14)
        np.testing.assert_allclose(z[:, [0, 4]].std(0), 1.0)
    pole = X.copy()
    X[:, [1, 3]], pole[:, 1] = [52.1, 13.4], 90.0
    for constant in (X, pole):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scaler = Standardizer.fit(constant, y, columns=columns)
        assert scaler.x_scale[1:4].tolist() == [1.0, 1.0, 1.0] and np.abs(scaler.x(constant)[:, 1:4]).max() < 1e-15


def test_a_small_country_has_the_units_of_a_plane() -> None:
    """Near the equator degrees of latitude and longitude are equal: both ways of standardising agree."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (4000, 2))
    scaler = Standardizer.fit(X, X[:, 0], columns=InputMap.of({(0, 1): "geographic"}, range(2)))
    np.testing.assert_allclose(scaler.x_scale, np.deg2rad(X.std(0).mean()), rtol=0.01)


def test_digits_that_float64_lost_stay_with_their_column() -> None:
    columns = InputMap.of({(1, 2): "geographic"}, range(4))
    rest = np.arange(8.0).reshape(2, 4)
    made = columns.rest(rest)
    assert made is not None and made.tolist() == [[0, 0, 0, 0, 3], [4, 0, 0, 0, 7]]


BAD = {
    "a list": ([("lat", "lon")], "columns must be a dict such as columns={.*}, got list"),
    "an unknown kind": ({("lat", "lon"): "globe"}, "columns.* must be one of 'geographic', .*, got 'globe'"),
    "a kind that is no text": ({("lat", "lon"): None}, "columns.* must be one of 'geographic', .*, got None"),
    "one column": ({"lat": "geographic"}, r"'geographic' takes a pair \(latitude, longitude\).*got 'lat'"),
    "three columns": ({("lat", "lon", "depth"): "geographic"}, "takes a pair.*got .*'depth'"),
    "a negative number": ({(0, -1): "geographic"}, r"by text or by number from 0.*got \(0, -1\)"),
    "a fraction": ({(0, 1.5): "geographic"}, "by text or by number from 0"),
    "a truth value": ({(0, True): "geographic"}, "by text or by number from 0"),
    "a misspelt column": ({("latt", "lon"): "geographic"}, "columns names 'latt', which X does not have: did you mean"),
    "no such column": ({("q", "lon"): "geographic"}, "'q', which X does not have: its columns are 'year', 'lat'"),
    "a number too high": ({(0, 4): "geographic"}, "columns names 4, which X does not have"),
    "twice in a pair": ({("lat", "lat"): "geographic"}, "uses column 'lat' twice"),
    "by name and number": ({("lat", "lon"): "geographic", (1, 2): "geographic"}, r"'lat' twice: in \('lat', 'lon'\)"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_is_refused(what: str) -> None:
    columns, message = BAD[what]
    with pytest.raises(ValueError, match=message):
        InputMap.of(columns, NAMES)  # type: ignore[arg-type]


def test_names_need_a_table_with_names() -> None:
    with pytest.raises(ValueError, match="columns names 'lat', but X has no names: give numbers, from 0 to 3"):
        InputMap.of(PLACE, range(4))


@pytest.mark.parametrize("latitude", [90.001, -91.0, 1e300])
def test_a_latitude_beyond_a_pole_is_named(latitude: float) -> None:
    X = table()
    X[[7, 9], 1] = latitude
    text = re.escape(f"validation X, column 'lat', row 7, counted from 0 (and 1 more rows), is {latitude:g}, but lat")
    with pytest.raises(ValueError, match=text + ".*between -90 and 90 degrees.*latitude, longitude"):
        InputMap.of(PLACE, NAMES).inputs(X, "validation X")


def test_every_kind_says_what_it_is() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name and kind.takes and kind.count >= 1
        for part in kind.made(tuple(range(kind.count)), (24,) if name == "periodic" else ()):
            assert part.width == len(part.axes) and part.dimension >= 1 and part.unit_length > 0
