"""Whether error bars are right, by rows that were left out: coverage, the PIT, and residuals against all there is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from warmgp.reporting.markup import Markup, figure, figures, joined, paragraph, subtitle, table
from warmgp.reporting.subject import Target
from warmgp.reporting.svg import Plot, key
from warmgp.reporting.things import Thing
from warmgp.reporting.ticks import MARGIN, Axis, linear
from warmgp.reporting.words import count, number, short

FloatArray = NDArray[np.float64]

INPUTS = 4
"""The inputs that residuals are drawn against."""
GROUPS, FEWEST = 12, 15
"""The most groups whose mean residual is drawn, and the fewest rows of each."""
REACH = 5.0
"""The residuals that a plot reaches to, at most."""
LEVELS = 12
"""The values of a category that have room beside each other."""
CURVE = 51
"""The points of the curve of coverage."""
LEAST = 1e-4
"""The least probability that is told."""
LETTERS = 52
"""The letters that have room below a plot."""
BY_CHANCE = 1.96
"""Standard errors within which a share lies by chance, 95 times of 100."""


def calibration(target: Target) -> Markup:
    """Returns the section on predictions of left-out rows of a target."""
    found = target.diagnosis
    if found is None:
        return paragraph(f"Rows could not be predicted from all others: {target.why_not}")
    how = "exactly" if found.exact else f"to {number(found.error, 2)} of their standard deviation"
    told = (
        f"Each of {count(found.rows, 'training row')} was predicted from all others, {how}, at the hyperparameters of "
        "all: what to expect of new rows like these."
    )
    tables = figures(_scores(target), coverage_table(found.coverage, found.rows))
    seen = observed(target.loo.y, target.loo.mean, target)
    plots = [seen, curve(target.loo.residual), _pit(found.pit, found.rows)]
    return joined(
        [
            paragraph(told),
            tables,
            figures(*plots),
            subtitle("Residuals"),
            paragraph(
                "In standard deviations of each prediction. Where the model is right they scatter about zero in the "
                "same way everywhere; the line is their mean in groups of rows, with what chance allows of it."
            ),
            figures(*_residual_plots(target)),
            subtitle("Rows that were least expected"),
            _worst(target),
        ]
    )


def _scores(target: Target) -> Markup:
    """Returns the scores of left-out rows."""
    found = target.diagnosis
    rows = [
        ("root mean square error", f"{number(found.rmse)}{target.in_unit}"),
        ("R²", number(found.r2, 3)),
        ("mean log predictive density", number(found.log_density)),
        ("residuals in predicted std (1 is right)", number(found.residual_std, 3)),
        ("largest distance of the PIT to uniform", number(found.pit_distance, 2)),
        ("probability of that by chance", chance(found.pit_probability)),
    ]
    return table(("left-out rows", ""), rows, caption="Scores")


def coverage_table(coverage: Any, rows: int) -> Markup:
    """Returns the shares of rows that intervals hold, and what chance makes of the right ones."""
    lines = []
    for level, share in coverage.items():
        wobble = BY_CHANCE * math.sqrt(level * (1 - level) / rows)
        allowed = f"{max(0.0, level - wobble):.1%} to {min(1.0, level + wobble):.1%}"
        lines.append((f"{level:.0%}", f"{share:.1%}", allowed))
    return table(("interval", "rows inside", "right, but for chance"), lines, caption="Coverage")


def observed(y: FloatArray, mean: FloatArray, target: Target) -> Markup:
    """Draws targets against their predictions."""
    low, high = float(min(y.min(), mean.min())), float(max(y.max(), mean.max()))
    axes = [linear(low, high, f"{what} {target.label}", margin=MARGIN, most=5) for what in ("predicted", "observed")]
    plot = Plot(*axes, grid="both", height=300.0).cloud(mean, y)
    plot.line([axes[0].low, axes[0].high], [axes[0].low, axes[0].high], "level")
    title = f"Observed against predicted {target.name}"
    return figure(plot.svg(title), f"{title}; on the line they are equal.")


def curve(z: FloatArray) -> Markup:
    """Draws the share of rows inside intervals of every level, from residuals in std, (m,)."""
    levels = np.linspace(0.0, 1.0, CURVE)[1:-1]
    inside = np.searchsorted(np.sort(np.abs(z)), ndtri(0.5 + levels / 2), side="right") / len(z)
    wobble = BY_CHANCE * np.sqrt(levels * (1 - levels) / len(z))
    plot = Plot(linear(0.0, 1.0, "level of the interval"), linear(0.0, 1.0, "rows inside"), height=300.0, grid="both")
    plot.band(levels, levels - wobble, levels + wobble, "chance").line([0, 1], [0, 1], "level")
    plot.line([0, *levels, 1], [0, *inside, 1], "s0 strong")
    title = "Share of rows inside intervals of every level"
    words = "Below the line error bars are too small, above it too wide."
    return figure(plot.svg(title), joined([f"{title}. {words} ", key([("band chance", "chance, 95%")])]))


def chance(probability: float) -> str:
    """Returns a probability; a very small one as less than what can be told."""
    return number(probability, 2) if probability >= LEAST else f"below {LEAST:.4f}"


def _pit(shares: FloatArray, rows: int) -> Markup:
    """Draws the shares of rows in each part of their predictive distributions."""
    parts = len(shares)
    even, wobble = 1 / parts, BY_CHANCE * math.sqrt((1 / parts) * (1 - 1 / parts) / rows)
    top = max(float(shares.max()), even + wobble) * 1.1
    x = linear(0.0, 1.0, "place in the predictive distribution")
    plot = Plot(x, linear(0.0, top, "share of rows"), height=300.0)
    plot.bars(np.linspace(0, 1, parts + 1), shares)
    plot.band([0, 1], [even - wobble] * 2, [even + wobble] * 2, "chance").level(even)
    title = "Where observations fall in their predictive distributions (PIT)"
    words = "Even where the model is right; a hump says that error bars are too wide, a trough that they are too small."
    entries = key([("level", "even"), ("band chance", "chance, 95%")])
    return figure(plot.svg(title), joined([f"{title}. {words} ", entries]))


def _residual_plots(target: Target) -> list[Markup]:
    """Draws residuals against the prediction, the most relevant inputs, and the order of rows."""
    loo = target.loo
    z = np.clip(loo.residual, -REACH, REACH)
    y = linear(-REACH, REACH, "residual (std)")
    low, high = np.quantile(loo.mean, [0.0, 1.0])
    drawn = [_against(linear(low, high, f"predicted {target.label}", margin=MARGIN), y, loo.mean, z, "the prediction")]
    for thing in [one for one in target.by_effect() if not one.is_place][:INPUTS]:
        values = thing.cells[:, 0]
        there = np.isfinite(values)
        if thing.is_category:
            drawn.append(_by_level(thing, y, values[there], z[there]))
        else:
            drawn.append(_against(thing.axis(), y, values[there], z[there], thing.name))
    order = linear(float(loo.rows.min()), float(loo.rows.max()), "number of the row, from 0")
    drawn.append(_against(order, y, loo.rows.astype(float), z, "the order of rows"))
    return drawn


def _against(x: Axis, y: Axis, values: FloatArray, z: FloatArray, name: str) -> Markup:
    """Draws residuals against a quantity, with the means of groups of rows by it."""
    plot = Plot(x, y).cloud(values, z).level(0.0)
    groups = min(GROUPS, len(z) // FEWEST)
    if groups >= 2:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, groups + 1)[1:-1]))
        at = np.searchsorted(edges, values)
        counts = np.bincount(at)
        kept = counts > 1
        middles, means = (np.bincount(at, weights=w)[kept] / counts[kept] for w in (values, z))
        error = BY_CHANCE / np.sqrt(counts[kept])
        plot.ranges(middles, means - error, means + error, "s1").line(middles, means, "s1 strong")
    title = f"Residuals against {name}"
    return figure(plot.svg(title), title)


def _by_level(thing: Thing, y: Axis, codes: FloatArray, z: FloatArray) -> Markup:
    """Draws residuals by the values of a category, the commonest first."""
    levels, counts = np.unique(codes, return_counts=True)
    levels = levels[np.argsort(-counts, kind="stable")][:LEVELS]
    x, names = level_axis(thing, levels)
    plot = Plot(x, y)
    for k, level in enumerate(levels):
        own = z[codes == level]
        mean, error = float(own.mean()), BY_CHANCE / math.sqrt(len(own))
        spread = np.quantile(own, [0.05, 0.95])
        plot.ranges([k], [spread[0]], [spread[1]], "faint").ranges([k], [mean - error], [mean + error], "s1 strong")
    plot.level(0.0)
    title = f"Residuals by {thing.name}"
    words = "thin: 90% of the rows; thick: the mean, with what chance allows of it."
    return figure(plot.svg(title), f"{title}; {words}{names}")


def level_axis(thing: Thing, levels: FloatArray) -> tuple[Axis, str]:
    """Returns an axis on which values of a category stand beside each other, by their names, or by numbers where names
    have no room, with what these stand for."""
    names = [thing.told(np.array([code])) for code in levels]
    texts, meant = names, ""
    if (max(map(len, names)) + 1) * len(names) > LETTERS:
        texts = [str(k + 1) for k in range(len(names))]
        meant = " " + "; ".join(f"{text}: {name}" for text, name in zip(texts, names, strict=True)) + "."
    ticks = tuple((float(k), text) for k, text in enumerate(texts))
    return Axis(-0.6, len(levels) - 0.4, ticks, thing.label), meant


def _worst(target: Target) -> Markup:
    """Returns the rows with the largest residuals, with their values of the most relevant inputs."""
    things = target.by_effect()[:3]
    place = {int(row): k for k, row in enumerate(target.loo.rows)}
    heads = ("row, from 0", "observed", "predicted", "std", "residual (std)", *(short(thing.name) for thing in things))
    rows = [
        (
            f"{w.row:,}",
            *(number(value) for value in (w.y, w.mean)),
            number(w.std, 3),
            number(w.residual, 3),
            *(thing.told(thing.cells[place[w.row]]) for thing in things),
        )
        for w in target.diagnosis.worst
    ]
    return table(heads, rows, words=0)
