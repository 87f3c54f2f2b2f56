"""What there is to know in short, and what to do about it."""

from __future__ import annotations

from warmgp.reporting.markup import Markup, bullets, joined, paragraph, tag
from warmgp.reporting.subject import Target
from warmgp.reporting.words import count, listed, number

MOST = 3
"""The inputs that are named."""


def summary(target: Target) -> Markup:
    """Returns how good the model of a target is, in a few figures."""
    found = target.diagnosis
    most = [thing.name for thing in target.by_effect()[:MOST]]
    tiles = [("rows", f"{len(target.y):,}"), ("inputs", f"{len(target.things):,}")]
    if found is not None:
        tiles += [
            ("RMSE, left out", f"{number(found.rmse, 3)}{target.in_unit}"),
            ("R², left out", number(found.r2, 3)),
            ("rows in 90% intervals", f"{found.coverage[0.9]:.1%}"),
        ]
    if target.held_out is not None:
        error = target.held_out.y - target.held_out.mean
        tiles.append(("RMSE, held out", f"{number(float((error**2).mean() ** 0.5), 3)}{target.in_unit}"))
    tiles.append(("noise", f"{number(target.noise_std, 3)}{target.in_unit}"))
    shown = tag("div", *(tag("div", tag("b", value), " ", tag("span", name)) for name, value in tiles), class_="tiles")
    told = f"{target.name} changes most along {listed(most)}." if most else ""
    return joined([shown, paragraph(told)])


def remarks(target: Target) -> Markup:
    """Returns what was seen, what it means and what to do about it."""
    if target.diagnosis is None:
        return joined([bullets(target.model.report_.remarks), paragraph(f"More is not known: {target.why_not}")])
    found = target.diagnosis.remarks
    if not found:
        return paragraph("Nothing to remark: left-out rows are predicted as well as the model says, and residuals show "
                         "no pattern.")  # fmt: skip
    return joined([paragraph(f"{count(len(found), 'remark')}, with what may help:"), bullets(found)])
