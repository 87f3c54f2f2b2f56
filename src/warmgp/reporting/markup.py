"""HTML by functions: whatever is text is escaped, whatever is markup says so by its type."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Markup(str):
    """Holds text that is HTML already."""

    __slots__ = ()


def escaped(text: object) -> Markup:
    """Returns a text as HTML that shows it; markup as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(text), quote=True))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Returns parts as one piece of HTML, texts among them escaped."""
    return Markup(between.join(escaped(part) for part in parts))


def tag(name: str, /, *content: object, **attributes: object) -> Markup:
    """Returns an element with its content. ``class_`` is the attribute class, ``aria_label`` is aria-label."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    return Markup(f"<{name}{said}>{joined(content)}</{name}>")


def empty(name: str, /, **attributes: object) -> Markup:
    """Returns an element of HTML that has no content and no end, such as meta."""
    return Markup(tag(name, **attributes).removesuffix(f"</{name}>"))


def paragraph(*content: object, class_: str = "") -> Markup:
    """Returns a paragraph."""
    return tag("p", *content, class_=class_)


def bullets(items: Iterable[object], class_: str = "") -> Markup:
    """Returns a list with bullets; nothing where there are no items."""
    made = [tag("li", item) for item in items]
    return tag("ul", *made, class_=class_) if made else Markup("")


def table(heads: Sequence[object], rows: Iterable[Sequence[object]], *, words: int = 1, caption: str = "") -> Markup:
    """Returns a table: the first ``words`` columns are words, the others numbers, which stand to the right."""
    kinds = ["" if j < words else "n" for j in range(len(heads))]

    def line(cells: Sequence[object], cell: str) -> Markup:
        return tag("tr", *(tag(cell, text, class_=kind) for text, kind in zip(cells, kinds, strict=True)))

    head = tag("thead", line(heads, "th"))
    body = tag("tbody", *(line(row, "td") for row in rows))
    title = tag("caption", caption) if caption else ""
    return tag("div", tag("table", title, head, body), class_="wide")


def facts(rows: Iterable[tuple[object, object]]) -> Markup:
    """Returns names and what is said of each, as a list of definitions."""
    return tag("dl", *(part for name, text in rows for part in (tag("dt", name), tag("dd", text))))


def figure(drawing: Markup, caption: object = "") -> Markup:
    """Returns a drawing with its caption."""
    below = tag("figcaption", caption) if caption else ""
    return tag("figure", drawing, below)


def figures(*drawn: Markup, large: bool = False) -> Markup:
    """Returns figures side by side where there is room, ``large`` ones two at most."""
    return tag("div", *drawn, class_="figures large" if large else "figures")


def subtitle(text: object) -> Markup:
    """Returns the title of a part of a section."""
    return tag("h3", text)
