"""Plots as SVG: lines, bands, points, bars and pictures over two axes, in colours that the page's style names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warmgp.reporting.markup import Markup, joined, tag
from warmgp.reporting.ticks import Axis

FloatArray = NDArray[np.float64]

WIDTH, HEIGHT = 400.0, 270.0
"""The size of a plot in its own units, which are about pixels on a phone."""
LETTER = 6.6
"""The width of a letter, on average."""
TOP, RIGHT, BOTTOM = 24.0, 12.0, 24.0
"""The room above a plot, which has the name of the upward axis, to its right, and below it."""
FEW_DOTS = 700
"""Points up to which each is drawn; more are counted in cells."""
CELLS = (44, 30)
"""Cells in which points are counted, across and up."""
SHADES = 7


class Plot:
    """Draws over two axes.

    Parameters
    ----------
    x, y : Axis
        Their labels are drawn, too.
    height, width : float
        The size of all.
    grid : bool
        Whether lines go across at the marks: upward ones, too, where it is "both".
    """

    def __init__(
        self, x: Axis, y: Axis, *, height: float = HEIGHT, width: float = WIDTH, grid: str = "y", left: float = 0.0
    ) -> None:
        self.x, self.y, self.width, self.height = x, y, width, height
        longest = max((len(text) for _, text in y.ticks), default=0)
        self.left = left or 12.0 + 1.1 * LETTER * longest
        self.right, self.top = width - RIGHT, TOP if y.label else 8.0
        self.bottom = height - BOTTOM - (16.0 if x.label else 0.0)
        self._drawn: list[Markup] = []
        self._over: list[Markup] = []
        self._draw_axes(grid)

    # -- places ------------------------------------------------------------------------------------------------------
    def across(self, values: ArrayLike) -> FloatArray:
        """Returns where values of the first axis stand, from the left."""
        return self.left + (self.right - self.left) * self.x.place(values)

    def down(self, values: ArrayLike) -> FloatArray:
        """Returns where values of the second axis stand, from the top."""
        return self.bottom - (self.bottom - self.top) * self.y.place(values)

    def _points(self, x: ArrayLike, y: ArrayLike) -> FloatArray:
        """Returns places, (m, 2), kept near the plot: far ones are cut by its frame anyway."""
        places = np.stack([self.across(x), self.down(y)], 1)
        return np.clip(places, [-self.width, -self.height], [2 * self.width, 2 * self.height])

    # -- what is drawn -----------------------------------------------------------------------------------------------
    def line(self, x: ArrayLike, y: ArrayLike, class_: str) -> Plot:
        """Draws a line through points."""
        self._add("path", d="M" + "L".join(_pair(p) for p in self._points(x, y)), class_=f"line {class_}")
        return self

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, class_: str) -> Plot:
        """Draws what is between two lines."""
        places = np.concatenate([self._points(x, high), self._points(x, low)[::-1]])
        self._add("path", d="M" + "L".join(_pair(p) for p in places) + "Z", class_=f"band {class_}")
        return self

    def dots(self, x: ArrayLike, y: ArrayLike, class_: str = "dots") -> Plot:
        """Draws a dot for each point, as strokes without length."""
        self._add("path", d="".join(f"M{_pair(p)}h0" for p in self._points(x, y)), class_=class_)
        return self

    def cloud(self, x: FloatArray, y: FloatArray) -> Plot:
        """Draws many points: each where they are few, else how many are in each cell, the darker the more."""
        if len(x) <= FEW_DOTS:
            return self.dots(x, y)
        inside = [np.linspace(0.0, 1.0, k + 1) for k in CELLS]
        places = np.clip(self.x.place(x), 0, 1), np.clip(self.y.place(y), 0, 1)
        counts = np.histogram2d(*places, bins=inside)[0]
        shade = np.ceil(SHADES * np.sqrt(counts / max(counts.max(), 1.0))).astype(int)
        w, h = (self.right - self.left) / CELLS[0], (self.bottom - self.top) / CELLS[1]
        for k in range(1, SHADES + 1):
            cells = np.argwhere(shade == k)
            at = [(self.left + i * w, self.bottom - (j + 1) * h) for i, j in cells]
            d = "".join(f"M{_pair(p)}h{w:.1f}v{h:.1f}h-{w:.1f}z" for p in at)
            if d:
                self._add("path", d=d, class_="cells", fill_opacity=f"{0.12 + 0.88 * k / SHADES:.2f}")
        return self

    def bars(self, edges: ArrayLike, heights: ArrayLike, class_: str = "bar") -> Plot:
        """Draws bars from zero between edges, (m + 1,)."""
        at, tops, floor = self.across(edges), self.down(heights), float(self.down(self.y.low))
        gap = min(1.0, 0.15 * float(np.diff(at).min()))
        for left, right, top in zip(at[:-1], at[1:], tops, strict=True):
            self._add(
                "rect", x=_n(left + gap / 2), y=_n(top), width=_n(right - left - gap), height=_n(max(floor - top, 0.0)),
                class_=class_,
            )  # fmt: skip
        return self

    def ranges(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, class_: str) -> Plot:
        """Draws an upright stroke from low to high at each x."""
        at, lows, highs = self.across(x), self.down(low), self.down(high)
        d = "".join(f"M{_n(a)} {_n(b)}V{_n(c)}" for a, b, c in zip(at, lows, highs, strict=True))
        self._add("path", d=d, class_=f"range {class_}")
        return self

    def level(self, value: float, class_: str = "level") -> Plot:
        """Draws a line across at a value."""
        return self.line([self.x.low, self.x.high], [value, value], class_)

    def rug(self, x: FloatArray) -> Plot:
        """Draws a short stroke at the foot for each value: where the data are."""
        at = np.unique(np.round(self.across(x), 0))
        self._add("path", d="".join(f"M{_n(a)} {_n(self.bottom)}v-5" for a in at), class_="rug")
        return self

    def picture(self, uri: str) -> Plot:
        """Draws a picture over all of the plot, below its lines."""
        size = {"width": _n(self.right - self.left), "height": _n(self.bottom - self.top)}
        self._add("image", href=uri, x=_n(self.left), y=_n(self.top), preserveAspectRatio="none", **size)
        return self

    def graticule(self) -> Plot:
        """Draws a net of lines at the marks of both axes, above what is drawn."""
        lines = [f"M{_n(float(self.across(v)))} {_n(self.top)}V{_n(self.bottom)}" for v, _ in self.x.ticks]
        lines += [f"M{_n(self.left)} {_n(float(self.down(v)))}H{_n(self.right)}" for v, _ in self.y.ticks]
        if lines:
            self._add("path", d="".join(lines), class_="graticule")
        return self

    # -- the whole ---------------------------------------------------------------------------------------------------
    def svg(self, title: str) -> Markup:
        """Returns the plot; ``title`` is what it shows, for those who cannot see it."""
        clip = {"x": _n(self.left), "y": _n(self.top - 1), "width": _n(self.right - self.left),
                "height": _n(self.bottom - self.top + 2), "overflow": "hidden"}  # fmt: skip
        box = f"{clip['x']} {clip['y']} {clip['width']} {clip['height']}"
        inside = tag("svg", *self._drawn, viewBox=box, **clip)
        return tag(
            "svg", tag("title", title), inside, *self._over, viewBox=f"0 0 {_n(self.width)} {_n(self.height)}",
            role="img", class_="plot",
        )  # fmt: skip

    def _add(self, name: str, **attributes: object) -> None:
        self._drawn.append(tag(name, **attributes))

    def _draw_axes(self, grid: str) -> None:
        """Draws marks, their texts, the lines across and the labels."""
        lines, texts = [], []
        for value, text in self.y.ticks:
            at = float(self.down(value))
            if grid in ("y", "both"):
                lines.append(f"M{_n(self.left)} {_n(at)}H{_n(self.right)}")
            texts.append(_text(self.left - 5, at + 4, text, "end"))
        for value, text, anchor in self._apart():
            at = float(self.across(value))
            if grid in ("x", "both"):
                lines.append(f"M{_n(at)} {_n(self.top)}V{_n(self.bottom)}")
            texts.append(_text(at, self.bottom + 15, text, anchor))
        if lines:
            self._add("path", d="".join(lines), class_="grid")
        foot = tag("path", d=f"M{_n(self.left)} {_n(self.bottom)}H{_n(self.right)}", class_="axis")
        self._over += [foot, *texts]
        if self.y.label:
            self._over.append(_text(2, 13, _short(self.y.label, self.width - 4), "start", "label"))
        if self.x.label:
            middle, room = (self.left + self.right) / 2, self.right - self.left + 20
            self._over.append(_text(middle, self.height - 5, _short(self.x.label, room), "middle", "label"))

    def _apart(self) -> list[tuple[float, str, str]]:
        """Returns the marks across whose texts have room, and to which side of the mark each goes."""
        kept: list[tuple[float, str, str]] = []
        end = -np.inf
        for value, text in self.x.ticks:
            at, half = float(self.across(value)), LETTER * len(text) / 2
            side = "end" if at + half > self.width - 1 else "start" if at < half else "middle"
            begin = at - {"start": 0.0, "middle": half, "end": 2 * half}[side]
            if begin >= end + 4:
                kept.append((value, text, side))
                end = begin + 2 * half
        return kept


def key(entries: Sequence[tuple[str, object]]) -> Markup:
    """Returns what lines and bands mean: (class, words) each, with a small drawing of it."""

    def sample(class_: str) -> Markup:
        if class_.startswith("band"):
            drawn = tag("rect", x=0, y=1, width=22, height=10, class_=class_)
        elif class_ in ("dots", "point"):
            drawn = tag("path", d="M11 6h0", class_=class_)
        else:
            drawn = tag("path", d="M0 6H22", class_=f"line {class_}")
        return tag("svg", drawn, viewBox="0 0 22 12", class_="key", aria_hidden="true")

    return joined((tag("span", sample(class_), " ", words, class_="entry") for class_, words in entries), " ")


def _text(x: float, y: float, text: str, anchor: str, class_: str = "") -> Markup:
    return tag("text", text, x=_n(x), y=_n(y), text_anchor=anchor, class_=class_)


def _short(text: str, room: float) -> str:
    """Returns a text cut to the room there is."""
    most = int(room / LETTER)
    return text if len(text) <= most else text[: max(most - 1, 1)] + "…"


def _n(value: float) -> str:
    """Returns a place to a tenth, without a useless end."""
    return f"{value:.1f}".removesuffix(".0")


def _pair(place: Sequence[float]) -> str:
    return f"{_n(float(place[0]))} {_n(float(place[1]))}"
