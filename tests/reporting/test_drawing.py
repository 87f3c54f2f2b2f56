"""Axes, numbers, plots and pictures, each against what it should be by itself."""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np
import pytest

from pages import Page
from warmgp.reporting import raster
from warmgp.reporting.markup import Markup, escaped, tag
from warmgp.reporting.svg import CELLS, Plot
from warmgp.reporting.ticks import Axis, dated, degrees, linear, logarithmic, within_period
from warmgp.reporting.words import day, listed, number, short


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (-1.5, "−1.5"), (0.00012345, "0.0001234"), (123456.0, "123,456"), (1e-7, "10⁻⁷"), (2.5e9, "2.5×10⁹"),
     (float("nan"), "–"), (float("-inf"), "−∞"), (99999.6, "100,000")],
)  # fmt: skip
def test_numbers_read_well(value: float, told: str) -> None:
    assert number(value) == told


def test_days_and_lists_read_well() -> None:
    assert day(0.0) == "1970-01-01" and day(19000.99999999) == "2022-01-09" and day(-0.5) == "1969-12-31"
    assert day(0.5, 3.0) == "1970-01-01 12:00"
    assert short("a" * 30) == "a" * 27 + "…" and short("ab") == "ab"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more" and listed(["a, b", "c"]) == "a, b; c"


def test_axes_have_few_marks_inside_and_in_order() -> None:
    """For ends of any size: at least two marks, at most a few, all between the ends."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        low = float(rng.normal() * 10.0 ** rng.integers(-6, 7))
        high = low + float(10.0 ** rng.uniform(-3, 3)) * max(abs(low), 1e-3)
        axes = [linear(low, high), logarithmic(abs(low), abs(low) * 10 ** rng.uniform(0.1, 12))]
        for axis in [*axes, dated(low % 40000, low % 40000 + 10 ** float(rng.uniform(-1, 5)))]:
            values = [value for value, _ in axis.ticks]
            texts = [text for _, text in axis.ticks]
            assert 1 <= len(values) <= 13 and values == sorted(values) and len(set(texts)) == len(texts), axis
            slack = 1e-9 * (axis.high - axis.low)
            assert axis.low - slack <= values[0] and values[-1] <= axis.high + slack
            np.testing.assert_allclose(axis.place([axis.low, axis.high]), [0, 1], atol=1e-9)


def test_axes_of_dates_periods_and_degrees_speak_the_users_language() -> None:
    assert [text for _, text in dated(17897.0, 19360.0).ticks] == ["2019", "2020", "2021", "2022", "2023"]
    assert [text for _, text in dated(18262.0, 18300.0).ticks][:2] == ["2020-01-09", "2020-01-19"]
    assert [text for _, text in dated(18262.0, 18262.9).ticks][1] == "01-01 06:00"
    for value, text in dated(18262.0, 18700.0).ticks:
        assert day(value) == f"{text}-01"
    assert [text for _, text in within_period(7.0, "week").ticks][4] == "Mon"
    assert [text for _, text in within_period(1.0, "day").ticks] == ["00:00", "06:00", "12:00", "18:00", "24:00"]
    assert [text for _, text in degrees(170.0, 195.0, "EW").ticks] == [
        "170°E",
        "175°E",
        "180°",
        "175°W",
        "170°W",
        "165°W",
    ]
    assert [text for _, text in degrees(-10.0, 10.0, "NS").ticks] == ["10°S", "5°S", "0°", "5°N", "10°N"]


def test_a_picture_is_a_png_of_these_colours() -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(8, 32)
    made, at, chunks = raster.png(pixels, raster.MEAN), 8, {}
    while at < len(made):
        (size,) = struct.unpack(">I", made[at : at + 4])
        name, content = made[at + 4 : at + 8], made[at + 8 : at + 8 + size]
        assert struct.unpack(">I", made[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + content)
        chunks[name], at = content, at + 12 + size
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"] and made[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (32, 8, 8, 3, 0, 0, 0)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(8, 33)
    np.testing.assert_array_equal(lines[:, 1:], pixels)
    np.testing.assert_array_equal(np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(256, 3), raster.MEAN)
    values = np.array([[-1.0, 0.0, 0.5, 1.0, 9.0]])
    np.testing.assert_array_equal(raster.indices(values, 0.0, 1.0), [[0, 0, 128, 255, 255]])
    np.testing.assert_array_equal(raster.indices(values, 3.0, 3.0)[0, 0], 0)


@pytest.mark.parametrize("ramp", [raster.MEAN, raster.STD], ids=["mean", "std"])
def test_colours_go_from_dark_to_light_in_even_steps(ramp: np.ndarray) -> None:
    plain = ramp / 255.0
    linear_rgb = np.where(plain <= 0.04045, plain / 12.92, ((plain + 0.055) / 1.055) ** 2.4)
    luminance = linear_rgb @ [0.2126, 0.7152, 0.0722]
    lightness = 116 * np.cbrt(luminance) - 16  # of CIE, beside the OKLab they are made by
    assert lightness[0] < 30 and lightness[-1] > 88
    steps = np.diff(lightness[::15])
    assert (steps > 0).all() and steps.max() < 3 * steps.min()


def test_a_plot_puts_things_where_they_belong() -> None:
    plot = Plot(linear(0.0, 10.0, "x"), linear(-1.0, 1.0, "y"))
    d = re.findall(r'd="M([^"]+)" class="line s0"', plot.line([0, 5, 10], [-1, 0, 1], "s0").svg("a <b>"))[0]
    points = np.array([[float(v) for v in pair.split()] for pair in d.split("L")])
    np.testing.assert_allclose(points[0], [plot.left, plot.bottom], atol=0.06)
    np.testing.assert_allclose(points[1], (points[0] + points[2]) / 2, atol=0.11)
    np.testing.assert_allclose(points[2], [plot.right, plot.top], atol=0.06)
    assert Page(plot.svg("a <b>")).text[""].startswith("a <b>")


def test_marks_have_room_and_stay_inside() -> None:
    """Texts at the ends go inward, and those without room beside the last are left out."""
    marks = tuple((float(k), f"01-0{k} 12:00") for k in range(1, 9))
    plot = Plot(Axis(1.0, 8.0, marks), linear(0.0, 1.0))
    found = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)">01-', plot.svg("marks"))
    at = [float(x) - {"start": 0, "middle": 36, "end": 73}[side] for x, side in found]
    assert found[0][1] == "start" and 2 < len(found) < 8 and min(at) >= 0 and max(at) + 73 <= plot.width
    assert min(np.diff(at)) > 73


def test_many_points_are_counted_in_cells() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (2, 100_000))
    few = Plot(linear(0, 1), linear(0, 1)).cloud(x[:500], y[:500]).svg("few")
    many = Plot(linear(0, 1), linear(0, 1)).cloud(x, y).svg("many")
    assert few.count("h0") == 500 and len(many) < 50_000
    cells = sum(part.count("z") for part in re.findall(r'd="(M[^"]+z)" class="cells"', many))
    assert cells == CELLS[0] * CELLS[1]


def test_text_is_escaped_and_markup_is_not() -> None:
    assert escaped("<&\"'>") == "&lt;&amp;&quot;&#x27;&gt;" and escaped(Markup("<b>")) == "<b>"
    assert tag("p", "<i>", Markup("<b>x</b>"), class_='"', aria_label="a") == (
        '<p class="&quot;" aria-label="a">&lt;i&gt;<b>x</b></p>'
    )
