"""The results page says what the committed records say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from experiments.cells import Run, exact
from experiments.overview import scores_in_short, work_in_short
from experiments.page import tables, trainings
from experiments.published import read_published
from experiments.store import Store
from experiments.summary import Summary, agreement, compared, less_exact, orders, outside, summaries

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT.parent / "shared" / "paper_results.csv"
needs_paper = pytest.mark.skipif(not PAPER.exists(), reason="the paper's tables are not beside the checkout")


@needs_paper
def test_the_page_is_of_the_records_in_the_store() -> None:
    written = (ROOT / "docs" / "results.md").read_text()
    fresh = "\n\n".join(tables(Store(ROOT / "experiments" / "store"), read_published(PAPER)))
    assert written.startswith(fresh), "python -m experiments.page --paper … --out docs/results.md writes it again"


@needs_paper
def test_the_records_agree_with_the_paper_where_the_page_says_so() -> None:
    """At most one score in twelve differs by more than two standard errors, and no order of costs does."""
    found, papers = summaries(trainings(Store(ROOT / "experiments" / "store"))), read_published(PAPER)
    every = compared(found, papers)
    assert len(every) >= 70 and 12 * len(outside(found, papers)) <= len(every)
    assert max(every.values()) < 1.6
    assert {(cell[0], cell[2], name) for cell, name, _ in outside(found, papers)} <= {("protein", "pathwise", "llh")}
    pairs = orders(found, papers)
    assert len(pairs) >= 50 and all(pair.good for pair in pairs)


@needs_paper
@pytest.mark.parametrize(("dataset", "splits"), [("bike", 3), ("protein", 1)])
def test_features_of_the_product_kernel_give_the_papers_pathwise_scores(dataset: str, splits: int) -> None:
    """Within the allowed difference; and less than 0.01 nats from the paper's difference to its standard cells."""
    store, papers = Store(ROOT / "experiments" / "store"), read_published(PAPER)
    own, truth = (
        Summary(tuple(record for k in range(splits) if (record := store.get(make(k))) is not None))
        for make in (lambda k: Run(dataset, k, prior="product"), lambda k: exact(dataset, k))
    )
    assert len(own.finished) == len(truth.finished) == splits
    theirs, standard = (papers[dataset, "cg", estimator, True] for estimator in ("pathwise", "standard"))
    for name in ("llh", "rmse"):
        distance = agreement(own, theirs, name)
        assert distance is not None and distance < 1
    gaps = less_exact(own, truth, "llh")
    assert abs(sum(gaps) / len(gaps) - (theirs.llh - standard.llh)) < 0.01


@pytest.mark.parametrize("dataset", ["pol-0", "pol-1", "pol-2", "elevators-0", "protein-0", "keggdirected-0"])
@pytest.mark.parametrize(("way", "bound"), [("cg_standard", 0.02), ("cg_pathwise", 0.05), ("ap_pathwise", 0.05)])
def test_training_with_warm_starts_follows_exact_training(dataset: str, way: str, bound: float) -> None:
    """The noise scale, at every tenth of the 100 steps; the pathwise estimator has 2,000 random features."""
    own, truth = (
        json.loads((ROOT / "experiments" / "store" / f"{dataset}_{name}.json").read_text())["history"]["noise_scale"]
        for name in (f"{way}_warm", "exact")
    )
    assert len(own) == len(truth) == 100
    assert max(abs(a / b - 1) for a, b in list(zip(own, truth, strict=True))[9::10]) <= bound


def test_the_pages_have_the_tables_and_counts_of_the_records() -> None:
    records = trainings(Store(ROOT / "experiments" / "store"))
    found, results = summaries(records), (ROOT / "docs" / "results.md").read_text()
    scores = scores_in_short(records, found)
    for table in (scores, work_in_short(found)):
        assert table in results, f"docs/results.md should have:\n{table}"
    cut = sum(record["outcome"] == "cut" for record in records)
    gaps = [cell for row in scores.splitlines()[2:] for cell in row.split("|")[4:]]  # after set, splits, exact training
    furthest = max(float(gap) for cell in gaps for gap in re.findall(r"^ [+−-](\d\.\d+)", cell))
    for name in ("README.md", "docs/performance.md"):
        assert f"within {furthest:.3f} nats" in (ROOT / name).read_text(), f"{name}: exact training is {furthest} away"
    page = " ".join((ROOT / "docs" / "performance.md").read_text().split())
    assert f"{len(records)} trainings" in page and f"{cut} of them cut at a time limit" in page
