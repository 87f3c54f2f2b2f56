"""Axes: where a value stands between the ends of an axis, and which values have a mark with which text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warmgp.reporting.words import day, number

FloatArray = NDArray[np.float64]

Ticks = tuple[tuple[float, str], ...]

STEPS = (1.0, 2.0, 5.0, 10.0)
MARGIN = 0.04
"""The share of an axis that is left free at each end."""

TWO_MONTHS = 62.0
"""The days from which on marks are at the beginnings of months."""

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WEEK = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
"""The days of a week that begins where days are counted from: 1970 began on a Thursday."""


@dataclass(frozen=True)
class Axis:
    """Holds the ends of an axis, its marks and what stands beside it.

    Attributes
    ----------
    low, high : float
        The ends; where ``log``, both are above zero.
    ticks : tuple of (float, str)
        The values that have a mark, and its text.
    label : str
        What the axis shows, with its unit.
    log : bool
        Whether equal distances are equal ratios.
    """

    low: float
    high: float
    ticks: Ticks = ()
    label: str = ""
    log: bool = False

    def place(self, values: ArrayLike) -> FloatArray:
        """Returns where values stand, from 0 at the low end to 1 at the high one."""
        at = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            at, low, high = np.log(np.maximum(at, 1e-300)), math.log(low), math.log(high)
        return np.asarray((at - low) / (high - low))


def wide_enough(low: float, high: float) -> tuple[float, float]:
    """Returns ends that are apart, also where all values are one."""
    if high - low > 1e-12 * max(abs(low), abs(high)) and high > low:
        return low, high
    half = 0.5 * abs(low) or 0.5
    return low - half, high + half


def step_of(span: float, most: int) -> float:
    """Returns the distance of marks, 1, 2 or 5 times a power of ten, of which at most so many fit into a span."""
    least = span / most
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in STEPS if step * power >= least * (1 - 1e-9))


def linear(low: float, high: float, label: str = "", *, most: int = 6, margin: float = 0.0) -> Axis:
    """Returns an axis of plain numbers from low to high, with a margin of that share."""
    low, high = wide_enough(low, high)
    free = margin * (high - low)
    low, high = low - free, high + free
    step = step_of(high - low, most)
    numbers = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    largest = max(abs(low), abs(high))
    digits = max(4, math.ceil(math.log10(max(largest / step, 1.0))) + 1)
    return Axis(low, high, tuple((float(k * step), number(float(k * step), min(digits, 12))) for k in numbers), label)


def logarithmic(low: float, high: float, label: str = "", *, most: int = 6) -> Axis:
    """Returns an axis of powers of ten, and of 2 and 5 times these where they are few."""
    low, high = max(low, 1e-300), max(high, 1e-300)
    if high / low < 1.2:
        low, high = low / 1.5, high * 1.5
    free = (high / low) ** MARGIN
    low, high = low / free, high * free
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = last - first
    steps = (1.0, 2.0, 5.0) if decades <= 2 else (1.0, 3.0) if decades <= 4 else (1.0,)
    every = max(1, math.ceil(decades / most))
    marks = [step * 10.0**p for p in range(first, last + 1, every) for step in steps]
    ticks = tuple((m, number(m, 2)) for m in marks if low <= m <= high)
    return Axis(low, high, ticks if len(ticks) > 1 else linear(low, high, most=4).ticks, label, log=True)


def dated(low: float, high: float, label: str = "", *, most: int = 5) -> Axis:
    """Returns an axis of days since the beginning of 1970, with marks at the beginnings of years, months or days."""
    low, high = wide_enough(low, high)
    span = high - low
    if span < 2 * most:
        step = next((s for s in (1 / 24, 0.125, 0.25, 0.5, 1.0, 2.0) if span / s <= most), 2.0)
        at = np.arange(math.ceil(low / step), math.floor(high / step) + 1) * step
        texts = [day(v, span)[5:] if step < 1 else day(v) for v in at]
        return Axis(low, high, tuple(zip(at.tolist(), texts, strict=True)), label)
    if span < TWO_MONTHS:
        step = step_of(span, most)
        at = np.arange(math.ceil(low / step), math.floor(high / step) + 1) * step
        return Axis(low, high, tuple((float(v), day(v)) for v in at), label)
    first, last = (int(np.datetime64(math.floor(end), "D").astype("datetime64[M]").astype(int)) for end in (low, high))
    lengths = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12000)
    every = next((months for months in lengths if span / (30.44 * months) <= most), 12000)
    marks: list[tuple[float, str]] = []
    for month in range(first - first % every, last + 1, every):
        began = np.datetime64(month, "M")
        start, text = float(began.astype("datetime64[D]").astype(int)), str(began)[: 4 if every % 12 == 0 else 7]
        if low <= start <= high:
            marks.append((start, text))
    return Axis(low, high, tuple(marks), label)


def within_period(period: float, called: str, label: str = "") -> Axis:
    """Returns an axis over one period: of a year by months, of a week by days, of a day by hours, else by numbers."""
    if called == "year":
        starts = np.cumsum([0, 31, 28.2425, 31, 30, 31, 30, 31, 31, 30, 31, 30])
        return Axis(0.0, period, tuple((float(starts[m]), MONTHS[m]) for m in range(0, 12, 2)), label)
    if called == "week":
        return Axis(0.0, period, tuple((k + 0.5, name) for k, name in enumerate(WEEK)), label)
    if called == "day":
        return Axis(0.0, period, tuple((h / 24, f"{h:02d}:00") for h in range(0, 25, 6)), label)
    return linear(0.0, period, label)


def degrees(low: float, high: float, letters: str, *, most: int = 5) -> Axis:
    """Returns an axis of degrees with marks such as 45°N, by the letters "NS" or "EW" for above and below zero."""
    nice = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 45.0, 60.0, 90.0)
    step = next((s for s in nice if (high - low) / s <= most), 90.0)
    if (high - low) / step < 1:
        step = step_of(high - low, most)
    at = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step

    def text(value: float) -> str:
        turned = (value + 180.0) % 360.0 - 180.0 if letters == "EW" else value
        letter = "" if turned == 0 or abs(turned) == 180 else letters[0] if turned > 0 else letters[1]
        return f"{number(abs(round(turned, 6)), 6)}°{letter}"

    return Axis(low, high, tuple((float(v), text(float(v))) for v in at))
