"""The results page says what the committed records say."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.page import tables, trainings
from experiments.published import read_published
from experiments.store import Store
from experiments.summary import compared, orders, outside, summaries

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT.parent / "shared" / "paper_results.csv"
needs_paper = pytest.mark.skipif(not PAPER.exists(), reason="the paper's tables are not beside the checkout")


@needs_paper
def test_the_page_is_of_the_records_in_the_store() -> None:
    written = (ROOT / "docs" / "results.md").read_text()
    fresh = "\n\n".join(tables(Store(ROOT / "experiments" / "store"), read_published(PAPER)))
    assert written.startswith(fresh), "python -m experiments.page --paper … --out docs/results.md writes it again"


@needs_paper
def test_the_records_agree_with_the_paper_where_the_page_says_so() -> None:
    """At most one score in eight differs by more than two standard errors, and no order of costs does."""
    found, papers = summaries(trainings(Store(ROOT / "experiments" / "store"))), read_published(PAPER)
    every = compared(found, papers)
    assert len(every) >= 50 and 8 * len(outside(found, papers)) <= len(every)
    assert max(every.values()) < 1.5
    pairs = orders(found, papers)
    assert len(pairs) >= 50 and all(pair.good for pair in pairs)
