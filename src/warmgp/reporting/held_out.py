"""How a model does on rows that it was not trained on."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from warmgp.reporting.calibration import coverage_table, curve, observed
from warmgp.reporting.markup import Markup, figures, joined, paragraph, table, tag
from warmgp.reporting.subject import Target
from warmgp.reporting.words import count, number

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""The intervals whose coverage is counted."""


def held_out(target: Target) -> Markup:
    """Returns the section on rows that were given to be scored."""
    rows = target.held_out
    if rows is None:
        return paragraph(
            "No other rows were given. With a table of them, which the model has not seen, this section has their "
            "errors: warmgp report MODEL DATA --out report.html."
        )
    error = rows.y - rows.mean
    z, spread = error / rows.std, float(np.sum((rows.y - rows.y.mean()) ** 2))
    density = -0.5 * (z**2 + np.log(2 * np.pi * rows.std**2))
    coverage = {level: float(np.mean(np.abs(z) <= ndtri(0.5 + level / 2))) for level in LEVELS}
    scores = [
        ("root mean square error", f"{number(float(np.sqrt(np.mean(error**2))))}{target.in_unit}"),
        ("R²", number(1 - float(error @ error) / spread, 3) if spread > 0 else "undefined: they are constant"),
        ("mean log predictive density", number(float(density.mean()))),
        ("residuals in predicted std (1 is right)", number(float(np.sqrt(np.mean(z**2))), 3)),
    ]
    where = f" of {rows.called}" if rows.called else " that were given"
    told: list[object] = [f"{count(len(rows.y), 'row')}{where}."]
    if rows.repeated:
        told.append(tag("b", f" {rows.repeated:,} of them stand in the training data, too: the scores flatter."))
    tables = figures(table(("held-out rows", ""), scores, caption="Scores"), coverage_table(coverage, len(z)))
    return joined([paragraph(*told), tables, figures(observed(rows.y, rows.mean, target), curve(z))])
