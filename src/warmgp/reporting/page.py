"""The page: its sections in order, each with what it is about, and one file that needs nothing else."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from importlib.resources import files

from warmgp.reporting.calibration import calibration
from warmgp.reporting.data_table import data_table
from warmgp.reporting.decisions import decisions
from warmgp.reporting.held_out import held_out
from warmgp.reporting.markup import Markup, empty, joined, paragraph, tag
from warmgp.reporting.reproduce import reproduce
from warmgp.reporting.slices import slices
from warmgp.reporting.subject import Subject, Target
from warmgp.reporting.summary import remarks, summary
from warmgp.reporting.surface import surface
from warmgp.reporting.training import training
from warmgp.reporting.words import listed
from warmgp.reporting.worth import worth

OF_TARGET: tuple[tuple[str, str, Callable[[Target], Markup]], ...] = (
    ("summary", "In short", summary),
    ("remarks", "Remarks", remarks),
    ("calibration", "Left-out rows: are predictions and error bars right?", calibration),
    ("sections", "The function along its inputs", slices),
    ("map", "The function over two inputs", surface),
    ("held-out", "Rows held out", held_out),
)
"""The sections about one target: the name of each, its title, and what makes it."""

SECTIONS: tuple[tuple[str, str, Callable[[Subject], Markup]], ...] = (
    ("data", "The data", data_table),
    ("decisions", "What was decided, and why", decisions),
    ("training", "How training went", training),
    ("inputs", "What the inputs are worth", worth),
)
"""The sections about the whole model."""

FIRST = 2
"""The sections about a target that come before those about the whole, where there is one target."""

FAILURES = (ValueError, RuntimeError, ArithmeticError, MemoryError)
"""What a section may run into without taking the page with it."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may load for the page: nothing but what is in it."""

Tell = Callable[[str, float], None]
"""Is told what is being made, and the share of the page that is done."""


def page_of(subject: Subject, version: str, tell: Tell = lambda what, share: None) -> str:
    """Returns the page about a model as HTML."""
    sections = list(_sections(subject, version, tell))
    names = listed([target.name for target in subject.targets])
    title = f"A Gaussian process for {names}"
    made = datetime.date.today().isoformat()
    links = tag("nav", tag("ul", *(tag("li", tag("a", text, href=f"#{name}")) for name, text, _ in sections)),
                aria_label="sections")  # fmt: skip
    told = " · ".join(part for part in (subject.called, f"warmgp {version}", made) if part)
    body = [
        tag("header", tag("h1", title), paragraph(told, class_="fine"), links),
        *(tag("section", tag("h2", text), content, id=name) for name, text, content in sections),
        tag("footer", f"Made by warmgp {version} on {made}. This page is one file: it loads nothing from elsewhere."),
    ]
    style = Markup(files("warmgp.reporting").joinpath("style.css").read_text(encoding="utf-8"))
    head = [
        empty("meta", charset="utf-8"),
        empty("meta", http_equiv="Content-Security-Policy", content=POLICY),
        empty("meta", name="viewport", content="width=device-width, initial-scale=1"),
        empty("meta", name="color-scheme", content="light dark"),
        empty("meta", name="generator", content=f"warmgp {version}"),
        empty("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", style),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', tag('main', *body)), lang='en')}\n"


def _sections(subject: Subject, version: str, tell: Tell) -> Iterator[tuple[str, str, Markup]]:
    """Yields name, title and content of every section, one after the other."""
    several = len(subject.targets) > 1
    order: list[tuple[str, str, Callable[[], Markup]]] = []
    for target in subject.targets:
        own = [
            (
                f"{name}-{target.number + 1}" if several else name,
                f"{target.name}: {text}" if several else text,
                lambda make=make, target=target: make(target),
            )
            for name, text, make in OF_TARGET
        ]
        order += own
    whole = [(name, text, lambda make=make: make(subject)) for name, text, make in SECTIONS]
    at = 0 if several else FIRST
    order[at:at] = whole
    order.append(("reproduce", "To make it again", lambda: reproduce(subject, version)))
    for k, (name, text, make) in enumerate(order):
        tell(text, k / len(order))
        try:
            content = make()
        except FAILURES as error:
            content = paragraph(f"This section could not be made: {error}")
        yield name, text, joined([content])
