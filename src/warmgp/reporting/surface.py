"""The function over two inputs: mean and std as maps beside each other, with colour bars; a graticule on the globe."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warmgp.reporting import raster
from warmgp.reporting.markup import Markup, figure, figures, joined, paragraph, tag
from warmgp.reporting.subject import Target
from warmgp.reporting.svg import WIDTH, Plot
from warmgp.reporting.things import Thing
from warmgp.reporting.ticks import Axis
from warmgp.reporting.words import listed, number

FloatArray = NDArray[np.float64]

FINEST, COARSEST = 128, 28
"""Cells along a side of a map, at most and at least."""
ENTRIES = {"cpu": 3e8, "cuda": 3e10}
"""Kernel entries that a map may cost, by device."""
DOTS = 500
"""The training rows that are drawn on a map."""


def surface(target: Target) -> Markup:
    """Returns the section with the map of a target over a place, or over the two most relevant inputs with an order."""
    things = target.by_effect()
    place = next((thing for thing in things if thing.is_place), None)
    if place is not None:
        x, y = place.place_axes()
        return _maps(target, (place,), x, y, f"{target.name} over {place.name}")
    two = [thing for thing in things if not thing.is_category][:2]
    if len(two) < 2:
        return paragraph("There are no two inputs with an order to draw a map over.")
    two.sort(key=lambda thing: thing.inputs)  # as the columns of the data: the first goes across
    x, y = two[0].axis(), two[1].axis()
    return _maps(target, tuple(two), x, y, f"{target.name} over {two[0].name} and {two[1].name}")


def _maps(target: Target, things: tuple[Thing, ...], x: Axis, y: Axis, title: str) -> Markup:
    """Draws mean and std over a grid between the ends of two axes."""
    height = _height(target, things, x, y)
    columns, rows = _cells(target, height)
    across = x.low + (x.high - x.low) * (np.arange(columns) + 0.5) / columns
    upward = y.low + (y.high - y.low) * (np.arange(rows) + 0.5) / rows
    grid = np.stack(np.meshgrid(across, upward[::-1]), -1).reshape(-1, 2)  # from the top
    cells = {things[0]: grid[:, ::-1]} if len(things) == 1 else {t: grid[:, [k]] for k, t in enumerate(things)}
    mean, std = target.predicted(target.at(cells))
    dots = _dots(things)
    drawn = [
        _map(values.reshape(rows, columns), colours, (x, y), height, dots, f"{what} of {title}", target)
        for values, colours, what in ((mean, raster.MEAN, "Mean"), (std, raster.STD, "Standard deviation"))
    ]
    return joined([paragraph(*_told(target, things)), figures(*drawn, large=True)])


def _told(target: Target, things: tuple[Thing, ...]) -> list[object]:
    """Says what the maps show."""
    others = [thing for thing in target.varying if thing not in things]
    middle = listed([f"{thing.name} {thing.told(thing.middle)}" for thing in others], 24)
    told: list[object] = ["The function without noise. Dots are training rows, some of them where they are many."]
    if others:
        told += [" All other inputs stand in the middle of the data: ", tag("span", middle, class_="fine"), "."]
    return told


def _height(target: Target, things: tuple[Thing, ...], x: Axis, y: Axis) -> float:
    """Returns how high a map is beside its width: true to scale on the globe, and where two inputs look alike."""
    ratio = (y.high - y.low) / (x.high - x.low)
    if things[0].is_place:
        ratio /= max(np.cos(np.deg2rad(0.5 * (y.low + y.high))), 0.05)
    elif len(target.things) > 2 or things[0].unit != things[1].unit or not 0.5 <= ratio <= 2.0:
        ratio = 0.8
    return float(np.clip(ratio, 0.4, 1.3)) * (WIDTH - 50.0) + 90.0


def _cells(target: Target, height: float) -> tuple[int, int]:
    """Returns how many cells a map has across and upward: fewer where a prediction is dear."""
    budget = ENTRIES.get(target.model.posterior_.x.device.type, ENTRIES["cpu"]) / len(target.y)
    ratio = (height - 90.0) / (WIDTH - 50.0)
    columns = int(np.clip(np.sqrt(budget / ratio), COARSEST, FINEST))
    return columns, max(8, round(columns * ratio))


def _dots(things: tuple[Thing, ...]) -> FloatArray:
    """Returns the places of some training rows on a map, (m, 2)."""
    if len(things) == 1:
        places = things[0].there[:, ::-1]
    else:
        places = np.concatenate([thing.cells[:, :1] for thing in things], 1)
        places = places[np.isfinite(places).all(1)]
    return places[:: max(1, -(-len(places) // DOTS))]


def _map(
    values: FloatArray, colours: raster.Bytes, axes: tuple[Axis, Axis], height: float, dots: FloatArray, title: str,
    target: Target,
) -> Markup:  # fmt: skip
    """Draws one map with its colour bar."""
    low, high = float(values.min()), float(values.max())
    plot = Plot(*axes, height=height, grid="", left=58.0)
    plot.picture(raster.data_uri(raster.png(raster.indices(values, low, high), colours)))
    plot.graticule().dots(dots[:, 0], dots[:, 1], "places")
    return figure(plot.svg(title), joined([_colour_bar(colours, low, high, target), " ", title, "."]))


def _colour_bar(colours: raster.Bytes, low: float, high: float, target: Target) -> Markup:
    """Returns the colours of a map from low to high, with what they stand for."""
    stripe = raster.data_uri(raster.png(np.arange(raster.COLOURS, dtype=np.uint8)[None], colours))
    bar = tag("img", src=stripe, alt="colours from low to high", class_="bar").removesuffix("</img>")
    ends = [f"{number(value, 3)}{target.in_unit}" for value in (low, high)]
    return tag("span", ends[0], " ", Markup(bar), " ", ends[1], class_="colours")
