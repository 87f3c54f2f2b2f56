"""Numbers, days and counts as people read them: few digits, real minus signs, dates as dates."""

from __future__ import annotations

import math

import numpy as np

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

LARGE = 1e7
"""From where on numbers are told by powers of ten."""

DAYS_WITH_HOURS = 10.0
"""Days up to which the hour matters beside the date."""


def number(value: float, digits: int = 4) -> str:
    """Returns a number to so many digits: 0.01234, 12,345, 1.2×10⁻⁷; a dash for none."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if 10.0**digits <= abs(value) < LARGE:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, power = text.split("e")
        head = "" if mantissa == "1" else f"{mantissa}×"
        text = f"{head}10{str(int(power)).translate(SUPERSCRIPTS)}"
        return text.replace("-", "−")
    return text.replace("-", "−")


def count(amount: int, one: str, many: str = "") -> str:
    """Returns an amount with its noun: "1 row", "2,000 rows"."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def day(value: float, span: float = math.inf) -> str:
    """Returns days since the beginning of 1970 as a date, with the time where ``span``, the days in view, is short."""
    if not math.isfinite(value):
        return "–"
    minutes = round(value * 1440) if span < DAYS_WITH_HOURS else 1440 * math.floor(value + 1 / 1440)
    text = str(np.datetime64(int(minutes), "m"))
    return text.replace("T", " ") if span < DAYS_WITH_HOURS else text[:10]


def sentence(text: str) -> str:
    """Returns a text that begins with a capital letter and ends with a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def short(name: str, most: int = 28) -> str:
    """Returns a name cut to so many letters, for where it has no room."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def listed(names: list[str], most: int = 8) -> str:
    """Returns names with commas between, and how many more there are than ``most``; semicolons where names have commas
    of their own."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    between = "; " if any(", " in name for name in names[:most]) else ", "
    return between.join(names[:most]) + more
