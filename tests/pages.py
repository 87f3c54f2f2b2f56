"""What the tests of pages share: a page read as a browser does, and a table with every kind of column."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pandas as pd

VOID = {"meta", "link", "img", "br"}
"""Elements that have no end."""

ALLOWED = ("#", "data:")
"""How addresses of a page that needs nothing else begin."""


class Page(HTMLParser):
    """Reads a page: its elements have to be nested, its addresses to stay inside; texts are kept by section."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: dict[str, int] = {}
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: dict[str, str] = {}
        self.items: list[str] = []
        self._section = ""
        self.feed(html)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        assert len(said) == len(attrs), f"an attribute twice: {attrs}"
        assert not any(name.startswith("on") for name in said), f"a script in {tag}: {attrs}"
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name in ("href", "src", "action", "data", "xlink:href"):
            if name in said:
                assert str(said[name]).startswith(ALLOWED), f"{tag} loads {said[name]}"
                self.links.append(str(said[name]))
        if tag == "section":
            self._section = str(said["id"])
            self.ids.append(self._section)
        if tag == "li":
            self.items.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            assert "url(" not in data and "@import" not in data
            return
        if "li" in self.open:
            self.items[-1] += data
        self.text[self._section] = self.text.get(self._section, "") + data + "\n"


def table(n: int = 120) -> tuple[pd.DataFrame, pd.Series]:
    """Dates with a year, a category, a place, an hour, a column with gaps and a constant one; names that are markup."""
    rng = np.random.default_rng(3)
    when = pd.date_range("2019-03-01", "2022-11-30", periods=n)
    X = pd.DataFrame(
        {
            "when": when.strftime("%Y-%m-%d"),
            "bed": rng.choice(["gravel", "sand", "<script>alert(1)</script>"], n, p=[0.5, 0.3, 0.2]),
            "flow & <i>": np.exp(rng.normal(1.0, 0.5, n)),
            "lat": rng.uniform(44.0, 48.0, n),
            "lon": rng.uniform(175.0, 185.0, n),  # across the date line
            "hour": rng.uniform(0.0, 24.0, n),
            "same": np.full(n, 7.0),
        }
    )
    season = np.cos(2 * np.pi * when.day_of_year.to_numpy() / 365)
    y = 3 * season + (X["bed"] == "sand") + 0.5 * X["lat"] + np.sin(X["hour"] * np.pi / 12) + 0.3 * rng.normal(size=n)
    X.loc[::9, "flow & <i>"] = np.nan
    return X, pd.Series(np.asarray(y), name='<b onclick="x()">T</b>')


COLUMNS = {"when": ("date", "year"), "bed": "category", ("lat", "lon"): "geographic", "hour": ("periodic", 24)}
