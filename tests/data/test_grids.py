"""Grids from text and numbers: which values an axis has, which cells a chunk, and what is refused with which words."""

from __future__ import annotations

import numpy as np
import pytest

from warmgp.data.grids import MOST_CELLS, GridError, axis, boxes, chunks, even_bounds, grid_cells, parse_grid

NAMES = ["lat", "lon", "day"]
COLOURS = ["x", "bed=sand", "bed=gravel", "bed=3"]


# -- axes ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "values"),
    [
        ((0, 1, 0.25), [0, 0.25, 0.5, 0.75, 1]),
        ((0, 1, 0.3), [0, 0.3, 0.6, 0.9]),  # stop is not on the grid
        ((0, 0.3, 0.1), [0, 0.1, 0.2, 0.3]),  # 0.3/0.1 is 2.9999999999999996
        ((1, 0, -0.5), [1, 0.5, 0]),
        ((2, 2, 1), [2]),
    ],
)
def test_stop_is_included_where_it_falls_on_the_grid(given: tuple[float, float, float], values: list[float]) -> None:
    found = axis("x", *given)
    np.testing.assert_allclose(found, values, rtol=0, atol=1e-15)
    assert found[0] == given[0] and (found[-1] == given[1] or given[1] - found[-1] > 1e-3)


def test_what_is_named_first_is_the_last_dimension() -> None:
    cells = parse_grid(" lon = 5:7:1, day=180 ,lat=49:48:-0.5", NAMES)
    assert cells.dims == ("lat", "lon") and cells.shape == (3, 3) and cells.size == 9
    rows = cells.rows(NAMES, 2, 5)
    assert {name: list(values) for name, values in rows.items()} == {
        "lat": [49, 48.5, 48.5],
        "lon": [7, 5, 6],
        "day": [180, 180, 180],
    }


def test_a_text_column_is_fixed_by_its_value() -> None:
    for text, which in (("bed=gravel,x=0:1:1", 2), ("x=0:1:1,bed=3", 3)):
        rows = parse_grid(text, COLOURS).rows(COLOURS, 0, 2)
        assert [rows[name][0] for name in COLOURS[1:]] == [float(which == k) for k in (1, 2, 3)]
    rows = parse_grid("x=0:1:1,bed=sand=0.5,bed=gravel=0.5,bed=3=0", COLOURS).rows(COLOURS, 0, 1)
    assert rows["bed=sand"] == 0.5


# -- cells -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (1, 5), (2, 1, 3)])
def test_boxes_fill_what_chunks_cover(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    for start in range(size + 1):
        for stop in range(start, size + 1):
            filled, count = np.full(shape, -1), start
            found = list(boxes(shape, start, stop))
            for box in found:
                part = filled[box]
                part[...] = np.arange(count, count + part.size).reshape(part.shape)
                count += part.size
            truth = np.full(size, -1)
            truth[start:stop] = np.arange(start, stop)
            assert (filled.ravel() == truth).all() and len(found) <= 2 * len(shape) - 1


def test_points_are_the_middles_of_parts_of_a_cell() -> None:
    cells = grid_cells({"x": (0.0, 2.0, 1.0), "y": (5.0, 4.0, -0.5)}, {"z": 7.0})
    points = cells.points(["x", "y", "z"], 4, 6, 2)  # of the cells (4.5, 1) and (4.5, 2)
    assert np.allclose(points["x"], [0.75, 1.25, 0.75, 1.25, 1.75, 2.25, 1.75, 2.25])
    assert np.allclose(points["y"], [4.625, 4.625, 4.375, 4.375] * 2) and set(points["z"]) == {7.0}
    one = cells.points(["x", "y"], 0, 9, 1)
    centres = cells.rows(["x", "y"], 0, 9)
    assert all((one[name] == centres[name]).all() for name in one)


def test_even_coordinates_have_edges() -> None:
    single = np.linspace(5, 17, 241, dtype=np.float32)  # rounded as in files
    edges = even_bounds("lon", single)
    assert (
        edges.shape == (241, 2) and np.allclose(edges[:, 1] - edges[:, 0], 0.05) and np.allclose(edges.mean(1), single)
    )
    for values in ([1.0, 2.0, 4.0], [3.0], [2.0, 2.0]):
        with pytest.raises(GridError, match=r"'lon' is (not evenly spaced|one value).*'bounds'"):
            even_bounds("lon", np.array(values))


def test_chunks_cover_all() -> None:
    assert list(chunks(10, 4)) == [(0, 4), (4, 8), (8, 10)] and list(chunks(0, 4)) == []


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is not name=start:stop:step or name=value"),
        ("lon", "'lon' is not name=start:stop:step"),
        ("lon=", "'lon=' is not name=start:stop:step"),
        ("lon=1:2", "'lon' must be start:stop:step or one value, in finite numbers, got '1:2'"),
        ("lon=a:2:1", "'lon' must be start:stop:step or one value"),
        ("lon=0:inf:1", "'lon' must be start:stop:step or one value"),
        ("lon=0:1:0,lat=1,day=2", "use a step that is not zero"),
        ("lon=0:1:-0.5,lat=1,day=2", "'lon' cannot go from 0 to 1 by steps of -0.5: use a step of 0.5"),
        ("long=0:1:1", "'long', which is no input of the model (they are 'lat', 'lon', 'day'): did you mean 'lon'?"),
        ("lon=0:1:1,lon=3", "names 'lon' more than once"),
        ("lon=0:1:1,lat=1", "lacks the model's input 'day': add day=start:stop:step, or day=value"),
        ("lon=0:1:1", "lacks the model's inputs 'lat', 'day'"),
        ("lon=1,lat=2,day=3", "a single point: give at least one input as name=start:stop:step"),
        ("lon=0:1:1e-12,lat=1,day=2", "at most 100,000,000: use larger steps"),
        ("lon=0:10:0.001,lat=0:10:0.001,day=2", "has 100,020,001 points (10,001 of 'lat' × 10,001 of 'lon')"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(text: str, told: str) -> None:
    with pytest.raises(GridError) as caught:
        parse_grid(text, NAMES)
    assert told in str(caught.value)


def test_a_text_column_is_given_once() -> None:
    with pytest.raises(GridError, match="names 'bed' more than once"):
        parse_grid("x=0:1:1,bed=sand,bed=gravel", COLOURS)


def test_points_of_blocks_count_towards_the_limit() -> None:
    cells = grid_cells({"x": (0.0, 999.0, 1.0), "y": (0.0, 999.0, 1.0)}, {})
    assert cells.with_bounds(["x", "y"], 10).size * 100 == MOST_CELLS
    with pytest.raises(GridError, match=r"121,000,000 points \(1,000,000 cells of 11 points a side\)"):
        cells.with_bounds(["x", "y"], 11)
