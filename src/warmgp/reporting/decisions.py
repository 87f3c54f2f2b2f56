"""What was decided and why: the model as a paper would state it, the plan, and what came of it."""

from __future__ import annotations

from warmgp.reporting.markup import Markup, bullets, facts, joined, paragraph, subtitle, table, tag
from warmgp.reporting.subject import Subject
from warmgp.reporting.words import listed, number, sentence

KERNELS = {"matern12": "Matérn-1/2", "matern32": "Matérn-3/2", "matern52": "Matérn-5/2", "rbf": "squared-exponential"}


def decisions(subject: Subject) -> Markup:
    """Returns the section on what was decided before training, and what came of it."""
    model, plan = subject.model, subject.model.plan_
    made = [
        paragraph(*_model(subject)),
        facts(_hyperparameters(subject)),
        _trend(subject),
        subtitle("The plan, and why"),
        paragraph(plan.headline),
        bullets(plan.why),
        paragraph(plan.details, class_="fine"),
        subtitle("What came of it"),
        paragraph(str(model.report_)),
        paragraph(*_converged(subject)),
    ]
    return joined(made)


def _model(subject: Subject) -> list[object]:
    """Says what the model is, in words for a paper."""
    model = subject.model
    kernel = KERNELS.get(model.kernel_.name, model.kernel_.name)
    lengths = "one length scale for each input" if model.ard else "one length scale for all inputs"
    names = listed([target.name for target in subject.targets])
    beside = "a constant mean" if model.posterior_.trend is None else f"a {_trend_name(model.trend)} trend"
    turned = ""
    if model.anisotropy_ is not None:
        turned = f" Inputs are turned before it: {model.anisotropy_}."
    are = "are functions" if len(subject.targets) > 1 else "is a function"
    return [
        "A Gaussian process: ",
        tag("i", names),
        f" {are} of the inputs with {beside} and a {kernel} kernel with {lengths}, plus independent normal noise.",
        turned,
    ]


def _trend_name(trend: object) -> str:
    return str(trend) if isinstance(trend, str) else "user's"


def _hyperparameters(subject: Subject) -> list[tuple[str, str]]:
    """Returns noise and signal of every target, and the likelihood where it is known."""
    rows = []
    for target in subject.targets:
        of = f" of {target.name}" if len(subject.targets) > 1 else ""
        rows.append((f"noise{of}, a standard deviation", f"{number(target.noise_std)}{target.in_unit}"))
        rows.append((f"signal{of}, a standard deviation", f"{number(target.signal_std)}{target.in_unit}"))
    likelihood = subject.model.likelihood_
    if likelihood is not None:
        rows.append(("log marginal likelihood", f"{likelihood} (standardised units)"))
    return rows


def _trend(subject: Subject) -> Markup:
    """Returns the coefficients of the trend of every target, where there is one."""
    made: list[Markup] = []
    for target in subject.targets:
        found = target.model.trend_
        if found is None:
            continue
        cells = zip(found.names, found.coefficients, found.std_errors, strict=True)
        rows = [(name, number(float(value)), number(float(error), 3)) for name, value, error in cells]
        made += [subtitle(f"The trend of {target.label}"), table(("term", "coefficient", "standard error"), rows)]
    return joined(made)


def _converged(subject: Subject) -> list[object]:
    """Says whether the last solve is exact enough."""
    model = subject.model
    if model.converged_:
        return ["The last solve converged: predictions are those of this model, but for a small part of their std."]
    return [
        tag("b", "The last solve did not converge: "),
        sentence(
            f"the mean may be {number(model.solve_error_, 2)} noise standard deviations from exact. Raise max_epochs, "
            "or leave it at None"
        ),
    ]
