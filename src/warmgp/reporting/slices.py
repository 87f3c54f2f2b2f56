"""The function along one input at a time, all others in the middle of the data, with its uncertainty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warmgp.reporting.calibration import LEVELS, level_axis
from warmgp.reporting.markup import Markup, figure, figures, joined, paragraph, tag
from warmgp.reporting.subject import Target
from warmgp.reporting.svg import Plot, key
from warmgp.reporting.things import Thing
from warmgp.reporting.ticks import Axis, linear
from warmgp.reporting.words import listed, number

FloatArray = NDArray[np.float64]

MOST = 6
"""The inputs along which a section is drawn."""
POINTS = 161
"""The points of a section."""
RUG = 400
"""The rows whose values stand at the foot of a section."""
NORMAL = 1.959964
"""The standard deviations of a 95% interval."""

Found = tuple[Thing, FloatArray, FloatArray, FloatArray]
"""A thing, its values, and mean and std of the function at them."""


def slices(target: Target) -> Markup:
    """Returns the section with sections of a target's function along its most relevant inputs."""
    things = [thing for thing in target.by_effect() if not thing.is_place][:MOST]
    if not things:
        return paragraph("The only input is a place: the map shows the function.")
    found = [_along(target, thing) for thing in things]
    ends = [(mean - NORMAL * np.hypot(std, target.noise_std), mean + NORMAL * np.hypot(std, target.noise_std))
            for _, _, mean, std in found]  # fmt: skip
    y = linear(min(low.min() for low, _ in ends), max(high.max() for _, high in ends), target.label, margin=0.03)
    entries = key([("s0 strong", "mean"), ("band function", "the function, 95%"), ("band new", "a new row, 95%")])
    middle = listed([f"{thing.name} {thing.told(thing.middle)}" for thing in target.varying], 24)
    told = paragraph(
        "All sections have the same scale upward. Inputs that are not on the axis stand in the middle of the data: ",
        tag("span", middle, class_="fine"),
        ". Strokes at the foot are training rows. ",
        entries,
    )
    left = [thing for thing in target.by_effect() if thing not in things]
    notes = [f"{thing.name} is on the map." for thing in left if thing.is_place]
    rest = [thing.name for thing in left if not thing.is_place]
    notes += [f"The function changes less along {listed(rest, 12)}."] if rest else []
    note = paragraph(" ".join(notes), class_="fine")
    drawn = [_drawn(target, one, y) for one in found]
    return joined([told, figures(*drawn), note])


def _along(target: Target, thing: Thing) -> Found:
    """Returns mean and std of a target's function along a thing."""
    if thing.is_category:
        codes, counts = np.unique(thing.there[:, 0], return_counts=True)
        values = codes[np.argsort(-counts, kind="stable")][:LEVELS]
    else:
        axis = thing.axis()
        values = np.linspace(axis.low, axis.high, POINTS)
    return thing, values, *target.predicted(target.at({thing: values[:, None]}))


def _drawn(target: Target, found: Found, y: Axis) -> Markup:
    """Draws one section."""
    thing, values, mean, std = found
    function, new = NORMAL * std, NORMAL * np.hypot(std, target.noise_std)
    title = f"{target.name} along {thing.name}"
    if thing.is_category:
        at = np.arange(len(values), dtype=float)
        x, names = level_axis(thing, values)
        plot = Plot(x, y).ranges(at, mean - new, mean + new, "new")
        plot.ranges(at, mean - function, mean + function, "function").dots(at, mean, "point")
        more = len(thing.levels()) - len(values)
        rarer = f"; {more:,} rarer values are not shown" if more > 0 else ""
        return figure(plot.svg(title), f"{title}{rarer}.{names}" if rarer or names else title)
    plot = Plot(thing.axis(), y).band(values, mean - new, mean + new, "new")
    plot.band(values, mean - function, mean + function, "function").line(values, mean, "s0 strong")
    rows = thing.there[:, 0]
    plot.rug(rows[:: max(1, len(rows) // RUG)])
    return figure(plot.svg(title), title + _missing(target, thing))


def _missing(target: Target, thing: Thing) -> str:
    """Says what is predicted where the thing is missing, if it ever was."""
    if not thing.missing:
        return ""
    mean, std = target.predicted(target.at({thing: np.full((1, thing.cells.shape[1]), np.nan)}))
    return f"; where it is missing: {number(float(mean[0]))} ± {number(float(std[0]), 2)}{target.in_unit}"
