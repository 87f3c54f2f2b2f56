"""Maps as pictures in the page: a colour for every value, and a PNG written by hand, as text that a page can hold.

Colours are steps of equal size in lightness, by Ottosson's OKLab, so that a step looks as large everywhere, in grey
print, too.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Bytes = NDArray[np.uint8]

COLOURS = 256


def ramp(lightness: tuple[float, float], hue: tuple[float, float], chroma: tuple[float, ...]) -> Bytes:
    """Returns colours from dark to light, (256, 3), along a turn of the hue in degrees, with the chroma at places that
    are evenly spaced: as much as a screen has there, so that no step is cut."""
    t = np.linspace(0.0, 1.0, COLOURS)
    light = lightness[0] + (lightness[1] - lightness[0]) * t
    angle = np.deg2rad(hue[0] + (hue[1] - hue[0]) * t)
    strength = np.interp(t, np.linspace(0.0, 1.0, len(chroma)), chroma)
    return _srgb(light, strength * np.cos(angle), strength * np.sin(angle))


def _srgb(light: FloatArray, a: FloatArray, b: FloatArray) -> Bytes:
    """Returns OKLab colours as bytes of sRGB, (m, 3)."""
    roots = np.stack(
        [
            light + 0.3963377774 * a + 0.2158037573 * b,
            light - 0.1055613458 * a - 0.0638541728 * b,
            light - 0.0894841775 * a - 1.2914855480 * b,
        ]
    )
    to_rgb = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    plain = np.clip(to_rgb @ roots**3, 0.0, 1.0)
    coded = np.where(plain <= 0.0031308, 12.92 * plain, 1.055 * plain ** (1 / 2.4) - 0.055)
    return np.asarray(np.round(255 * coded).T, dtype=np.uint8)


MEAN = ramp((0.27, 0.94), (295.0, 105.0), (0.12, 0.105, 0.09, 0.13, 0.15))
"""From violet over teal to yellow, for means."""
STD = ramp((0.25, 0.96), (-15.0, 85.0), (0.09, 0.15, 0.17, 0.13, 0.04))
"""From dark red to pale yellow, for standard deviations."""


def indices(values: FloatArray, low: float, high: float) -> Bytes:
    """Returns the number of each value's colour, of the same shape, between those of low and high."""
    span = high - low if high > low else 1.0
    return np.asarray(np.clip(np.round((COLOURS - 1) * (values - low) / span), 0, COLOURS - 1), dtype=np.uint8)


def png(pixels: Bytes, palette: Bytes) -> bytes:
    """Returns a picture of numbers of colours, (rows, columns), the first row on top, as a PNG."""

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    height, width = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # eight bits a pixel, by a palette
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels], 1).tobytes()  # each line without a filter
    parts = (b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def data_uri(picture: bytes) -> str:
    """Returns a PNG as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")
