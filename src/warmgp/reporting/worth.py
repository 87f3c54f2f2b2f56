"""What the inputs are worth: length scales in their units and in spreads of the data, and the change along each."""

from __future__ import annotations

import math

from warmgp.reporting.markup import Markup, joined, paragraph, table, tag
from warmgp.reporting.subject import Subject, Target
from warmgp.reporting.words import number, short

MOST = 60
"""The most inputs that are listed."""


def worth(subject: Subject) -> Markup:
    """Returns the section on the inputs: one table, with the change of every target along each."""
    relevance, targets = subject.relevance, subject.targets
    names = sorted(relevance, key=lambda name: -targets[0].effects.get(name, 0.0))
    in_units = _in_units(subject)
    heads = ["input"]
    for target in targets:
        heads += [f"change of {short(target.label)}", ""]
    heads += ["length scale", "in spreads of the data"]
    rows = []
    for name in names[:MOST]:
        row: list[object] = [name]
        for target in targets:
            row += [number(target.effects[name], 3), _bar(target, name)]
        rows.append([*row, in_units.get(name, "–"), number(relevance[name], 3)])
    constant = [thing.name for thing in subject.things if thing.constant]
    notes = [
        "A length scale is the distance over which the function forgets: below one spread of the data it goes up and "
        "down along an input, above ten it is nearly a straight line. The change is what the function differs by, a "
        "standard deviation, between two random rows that differ in that input alone.",
    ]
    if len(names) > MOST:
        notes.append(f"{len(names) - MOST:,} more inputs, which change it less, are not listed.")
    if constant:
        notes.append(f"Constant, and of no use: {', '.join(constant)}.")
    noise = ", ".join(f"{number(target.noise_std, 3)}{target.in_unit}" for target in targets)
    notes.append(f"The noise is {noise}: an input whose change is far below that hardly counts.")
    return joined([table(heads, rows), *(paragraph(note, class_="fine") for note in notes)])


def _in_units(subject: Subject) -> dict[str, str]:
    """Returns length scales in the units of each thing; those of turned inputs are along and across."""
    model = subject.model
    lengths = model.length_scales_.tolist()
    if model.anisotropy_ is not None:
        return dict(zip(("along", "across"), map(number, lengths), strict=True))
    found = {}
    for thing, length in zip(subject.things, lengths, strict=True):
        unit = thing.unit or ("" if thing.kind is None else thing.kind.unit)
        found[thing.name] = "–" if math.isnan(length) else f"{number(length, 3)} {unit}".strip()
    return found


def _bar(target: Target, name: str) -> Markup:
    """Returns a bar as long as a change is beside the largest."""
    largest = max(target.effects.values(), default=0.0) or 1.0
    width = 80.0 * target.effects[name] / largest
    bar = tag("rect", x=0, y=1, width=f"{max(width, 0.5):.1f}", height=10, class_="cells")
    return tag("svg", bar, viewBox="0 0 80 12", class_="spark", aria_hidden="true")
