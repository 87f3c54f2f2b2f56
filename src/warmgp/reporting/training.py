"""How training went: hyperparameters, residuals and likelihood from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warmgp.reporting.markup import Markup, figure, figures, joined, paragraph
from warmgp.reporting.subject import Subject
from warmgp.reporting.svg import Plot, key
from warmgp.reporting.ticks import Axis, linear, logarithmic
from warmgp.reporting.words import count, number, short

LINES = 5
"""The length scales that are drawn by name; the others are thin lines."""

LEAST = 1e-8
"""The least residual that is drawn: below it is rounding."""

STOPPED = {
    "settled": "it settled: the likelihood was expected to rise no more",
    "flat": "the likelihood was flat: the model explains nothing",
    "steps": "all steps were taken: more may help",
    "time": "the time limit was reached",
    "callback": "a callback ended it",
    "interrupted": "it was interrupted",
}


def training(subject: Subject) -> Markup:
    """Returns the section on the steps of training."""
    model, history = subject.model, subject.model.history_
    if not history:
        start = model.report_.start or "from given values"
        return paragraph(
            f"No steps were taken: the hyperparameters come from the start of training, {start.rstrip(',')}, and one "
            "solve followed."
        )
    why = STOPPED.get(model.stop_reason_, model.stop_reason_)
    seconds, epochs = sum(h.step_seconds for h in history), sum(h.epochs for h in history)
    work = f", with the work of {number(epochs, 3)} products with the kernel matrix" if epochs else ""
    told = f"{count(len(history), 'step')} of Adam in {number(seconds, 3)} s{work}; they ended because {why}."
    drawn = [_hyperparameters(subject, history)]
    drawn += [plot for plot in (_residuals(model, history), _likelihood(history), _held_out(history)) if plot]
    return joined([paragraph(told), figures(*drawn)])


def _steps(history: Sequence[Any]) -> Axis:
    return linear(0, max(len(history) - 1, 1), "step")


def _hyperparameters(subject: Subject, history: Sequence[Any]) -> Markup:
    """Draws noise, signal and length scales by step, in standardised units."""
    steps = [h.step for h in history]
    lengths = np.array([h.length_scales for h in history])  # (steps, d or 1)
    things = {thing.name: thing.inputs[0] for thing in subject.things}
    named = [name for name in subject.relevance if name in things][:LINES] if lengths.shape[1] > 1 else []
    shown = {things[name] for name in named}
    rest = [j for j in things.values() if j not in shown] if lengths.shape[1] > 1 else [0]
    noise, signal = ([float(h[name]) for h in history] for name in ("noise_scale", "signal_scale"))
    drawn = np.concatenate([noise, signal, lengths[:, [*shown, *rest]].ravel()])
    plot = Plot(_steps(history), logarithmic(float(drawn.min()), float(drawn.max()), "standardised units"))
    for j in rest:
        plot.line(steps, lengths[:, j], "other")
    for k, name in enumerate(named):
        plot.line(steps, lengths[:, things[name]], f"s{k + 2}")
    plot.line(steps, signal, "s1 strong").line(steps, noise, "s0 strong")
    entries: list[tuple[str, object]] = [("s0 strong", "noise"), ("s1 strong", "signal")]
    entries += [(f"s{k + 2}", short(name)) for k, name in enumerate(named)]
    other = "length scales of other inputs" if named else "length scale"
    entries += [("other", other)] if rest else []
    title = "Noise, signal and length scales at every step of training"
    return figure(plot.svg(title), joined([title, ". ", key(entries)]))


def _residuals(model: Any, history: Sequence[Any]) -> Markup | None:
    """Draws what each solve has left, and the tolerance."""
    mean, probes = (np.array([h[name] for h in history]) for name in ("residual_mean", "residual_probes"))
    found = np.concatenate([mean, probes])
    found = found[found > LEAST]
    if not len(found):
        return None  # nothing was solved by iterations
    tol = model.plan_.rule.tol
    low, high = min(float(found.min()), tol), max(float(found.max()), tol)
    plot = Plot(_steps(history), logarithmic(low, high, "relative residual"))
    steps, entries = np.array([h.step for h in history]), [("level", "tolerance")]
    plot.level(tol)
    for values, class_, name in ((mean, "s0", "the mean's system"), (probes, "s1", "probes, on average")):
        if (values > LEAST).any():
            plot.line(steps, np.maximum(values, LEAST), class_)
            entries.append((class_, name))
    title = "What each solve has left"
    return figure(plot.svg(title), joined([title, ". ", key(entries)]))


def _likelihood(history: Sequence[Any]) -> Markup | None:
    """Draws the likelihood by step, where every step knows it."""
    values = [h.log_marginal_likelihood for h in history]
    if any(value is None or not np.isfinite(value) for value in values):
        return None
    plot = Plot(_steps(history), linear(min(values), max(values), "log marginal likelihood", margin=0.05))
    plot.line([h.step for h in history], values, "s0 strong")
    title = "Log marginal likelihood at every step, in standardised units"
    return figure(plot.svg(title), title)


def _held_out(history: Sequence[Any]) -> Markup | None:
    """Draws the error of rows that were held out for validation, where there were some."""
    values = [h.metrics.get("rmse", np.nan) for h in history]
    if not np.isfinite(values).all():
        return None
    plot = Plot(_steps(history), linear(min(values), max(values), "RMSE, standardised", margin=0.05))
    plot.line([h.step for h in history], values, "s0 strong")
    title = "Error of the rows held out for validation"
    return figure(plot.svg(title), title)
