"""What the data are: rows, and every column with its kind, its unit, its range and what it lacks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warmgp.data.column_kinds import Category, Circle, Days, Geographic
from warmgp.reporting.markup import Markup, joined, paragraph, table, tag
from warmgp.reporting.subject import Subject
from warmgp.reporting.things import Thing
from warmgp.reporting.words import count, day, listed, number

FloatArray = NDArray[np.float64]

MOST = 80
"""The most columns that are listed."""
LEVELS = 4
"""The values of a category that are named."""
BARS = 24

HEADS = ("column", "what it is", "unit", "least", "median", "largest", "missing", "distribution")


def data_table(subject: Subject) -> Markup:
    """Returns the section on the data of a model."""
    rows = [line for thing in subject.things if not _told_with_date(subject, thing) for line in _lines(subject, thing)]
    more = f"{len(rows) - MOST:,} more columns are not listed." if len(rows) > MOST else ""
    for target in subject.targets:
        values = target.y
        kept = (number(f(values)) for f in (np.min, np.median, np.max))
        missing = f"{subject.rows - len(values):,}"
        lines = (target.name, "target", target.unit or "–", *kept, missing, histogram(values))
        rows.insert(target.number, lines)
    return joined(
        [
            paragraph(*_rows(subject)),
            table(HEADS, rows[: MOST + len(subject.targets)], words=3),
            paragraph(more) if more else "",
        ]
    )


def _rows(subject: Subject) -> list[object]:
    """Says how many rows and columns there are, and what is known of the noise of rows."""
    model, columns = subject.model, len(subject.model.scaler_.columns.names)
    targets = listed([target.name for target in subject.targets])
    told: list[object] = [
        f"The model was trained on {count(subject.rows, 'row')} of {count(columns, 'input column')} to predict ",
        tag("b", targets),
        ".",
    ]
    if model.plan_.rows:
        told.append(" They were drawn at random from more, as the time limit of the fit allowed.")
    weights = getattr(model, "robust_weights_", None)
    if weights is not None:
        gone, fewer = int((weights == 0).sum()), int(((weights > 0) & (weights < 1)).sum())
        told.append(f" Outliers were set aside before training: {count(gone, 'row')} left out, {fewer:,} weakened.")
    if model.posterior_.noise is not None:
        told.append(" Rows have weights or known errors of their own.")
    if model.updates_:
        added, left = (sum(getattr(one, name) for one in model.updates_) for name in ("added", "forgotten"))
        told.append(f" Since the fit {count(added, 'row')} were added and {left:,} taken out.")
    return told


def _told_with_date(subject: Subject, thing: Thing) -> bool:
    """Says whether a thing is a period of a date that has a line of its own."""
    dates = {one.columns for one in subject.things if one.is_date}
    return thing.is_period and thing.columns in dates


def _lines(subject: Subject, thing: Thing) -> list[tuple[object, ...]]:
    """Returns the lines of the table for the columns of a thing."""
    part, missing = thing.part, f"{thing.missing:,}"
    if isinstance(part, Category):
        levels = thing.levels()
        shown = listed([f"{name} ({rows:,})" for name, rows in levels], LEVELS)
        bars = spark(np.array([rows for _, rows in levels[:BARS]], dtype=float))
        what = joined([f"category of {count(len(part.levels), 'value')}: {shown}"])
        return [(thing.name, what, "–", "", "", "", missing, bars)]
    lines: list[tuple[object, ...]] = []
    for k, name in enumerate(thing.columns):
        values = thing.there[:, k]
        if isinstance(part, Days):
            unit, ends = "–", tuple(day(f(values), thing.span) for f in (np.min, np.median, np.max))
        else:
            unit = "degrees" if isinstance(part, Geographic) else thing.unit or "–"
            ends = tuple(number(f(values)) for f in (np.min, np.median, np.max))
        if isinstance(part, Circle) and part.called:
            unit, ends = "–", ("", "", "")
        lines.append((name, _kind(subject, thing, k), unit, *ends, missing, histogram(values)))
    return lines


def _kind(subject: Subject, thing: Thing, k: int) -> str:
    """Says what a column is."""
    part = thing.part
    if isinstance(part, Geographic):
        return ("latitude", "longitude")[k]
    if isinstance(part, Days):
        circles = [one.part for one in subject.things if one.columns == thing.columns and one.is_period]
        called = [part.called for part in circles if isinstance(part, Circle)]
        return "date" + (f", and what repeats every {' and '.join(called)}" if called else "")
    if isinstance(part, Circle):
        every = part.called or number(part.period)
        return f"repeats every {every}"
    return "number, constant" if thing.constant else "number"


def histogram(values: FloatArray) -> Markup:
    """Returns a small histogram of values, (m,)."""
    found = values[np.isfinite(values)]
    if not len(found) or found.min() == found.max():
        return Markup("")
    return spark(np.histogram(found, bins=BARS)[0].astype(float))


def spark(heights: FloatArray) -> Markup:
    """Returns bars of these heights in the size of a line of text."""
    step = 72.0 / max(len(heights), 6)
    tops = 18.0 * heights / max(heights.max(initial=0.0), 1e-300)
    d = "".join(f"M{k * step:.1f} 18v-{h:.1f}h{step - 0.6:.1f}V18z" for k, h in enumerate(tops) if h > 0)
    return tag("svg", tag("path", d=d, class_="cells"), viewBox="0 0 72 18", class_="spark", aria_hidden="true")
