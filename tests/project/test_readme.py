"""The README's Python works as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippet(snippet: str) -> None:
    names: dict[str, object] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    if "mean" in names:  # near the data the truth is sin(0.5)·cos(1); far away only the prior is left
        mean, std = names["mean"], names["std"]
        assert abs(mean[0] - 0.259) < 0.1 and std[0] < 0.15 < std[1]  # type: ignore[index]


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 2
