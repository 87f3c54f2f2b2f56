"""The whole of the paper's experiments on data that are smaller still: directions, figures, and the page.

`make reproduce-small` takes 300 and 1,200 points; here they are 150 and 500, in smaller blocks, with
fewer steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from experiments.cells import SETTINGS, Run, exact
from experiments.data import TOYS
from experiments.page import main as write_page
from experiments.run import main as run
from experiments.store import Store

POINTS = {"toy-quiet": 150, "toy-noisy": 150, "toy-large": 500}
pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        for name, n in POINTS.items():
            patch.setitem(TOYS, name, (n, TOYS[name][1]))
            shorter = min(SETTINGS[name].n_steps, 12)
            patch.setitem(SETTINGS, name, replace(SETTINGS[name], block_size=25, batch_size=25, n_steps=shorter))
        assert run(["all", "--small", "--device", "cpu", "--budgets", "10", "50", "--store", str(folder)]) == 0
        yield Store(folder)


def get(store: Store, item: Any) -> dict[str, Any]:
    record = store.get(item)
    assert record is not None, item.key
    return record


@pytest.mark.parametrize("dataset", ["toy-quiet", "toy-noisy"])
@pytest.mark.parametrize("solver", ["ap", "sgd"])
def test_pathwise_and_warm_starts_cut_epochs(store: Store, dataset: str, solver: str) -> None:
    cost = {
        (estimator, warm): get(store, Run(dataset, 0, solver, estimator, warm))["epochs"]
        for estimator in ("standard", "pathwise")
        for warm in (False, True)
    }
    slack = 1.0 if dataset == "toy-quiet" else 1.05  # with much noise the two start equally far away
    assert cost["pathwise", False] < slack * cost["standard", False]
    assert cost["pathwise", True] < cost["pathwise", False] and cost["standard", True] < cost["standard", False]


@pytest.mark.parametrize("solver", ["cg", "ap", "sgd"])
def test_all_ways_predict_alike(store: Store, solver: str) -> None:
    """Solved to the tolerance, every cell predicts as exact training does, by exact prediction at its θ."""
    truth = get(store, exact("toy-noisy", 0))["test"]["llh"]
    for estimator in ("standard", "pathwise"):
        for warm in (False, True):
            record = get(store, Run("toy-noisy", 0, solver, estimator, warm))
            assert record["converged"] and abs(record["test_exact"]["llh"] - truth) < 0.05, record["key"]


def test_distances_follow_the_theory(store: Store) -> None:
    """Cold: √n for the pathwise estimator at any noise, √tr(H⁻¹) for the standard one. Warm starts are nearer."""
    [quiet] = [r for r in store.records("distances") if r["run"]["dataset"] == "toy-quiet"]
    assert all(abs(value / POINTS["toy-quiet"] ** 0.5 - 1) < 0.1 for value in quiet["pathwise_cold"])
    assert quiet["standard_cold"][-1] > 1.5 * quiet["standard_cold"][0]
    for estimator in ("standard", "pathwise"):
        pairs = zip(quiet[f"{estimator}_warm"], quiet[f"{estimator}_cold"], strict=True)
        assert all(warm < 0.7 * cold for warm, cold in pairs)
    assert all(a <= 1.001 * b for a, b in zip(quiet["top_eigenvalue"], quiet["noise_precision"], strict=True))


def test_more_features_less_deviation(store: Store) -> None:
    truth = get(store, exact("toy-noisy", 0))["history"]["noise_scale"]

    def off(item: Run) -> float:
        own = get(store, item)["history"]["noise_scale"]
        return max(abs(a / b - 1) for a, b in zip(own, truth, strict=True))

    for more in ({"n_features": 16000}, {"prior": "features"}, {"prior": "exact"}):
        assert off(Run("toy-noisy", **more)) < 0.1, more


def test_progress_accumulates_under_a_budget(store: Store) -> None:
    for solver in ("ap", "sgd"):
        last = {
            warm: get(store, Run("toy-quiet", 0, solver, "pathwise", warm, 10.0))["history"]["residual_probes"][-1]
            for warm in (False, True)
        }
        assert last[True] < last[False], solver
        short, long = (
            get(store, Run("toy-quiet", 0, solver, "pathwise", False, budget))["history"]["residual_probes"]
            for budget in (10.0, 50.0)
        )
        assert sum(long) < sum(short), solver


def test_large_sets_are_scored_at_every_step(store: Store) -> None:
    record = get(store, Run("toy-large", solver="ap", budget=10.0))
    assert len(record["history"]["test_llh"]) == 8
    assert all(epochs <= 10.0 for epochs in record["history"]["iteration_epochs"])


def test_near_neighbours_solve_a_large_set(store: Store) -> None:
    for more in ({}, {"prior": "features"}, {"estimator": "standard"}):
        record = get(store, Run("toy-large", solver="near", **more))
        assert record["converged"] and record["epochs"] / record["steps"] < 20, more


def test_the_page_has_every_table_and_figure(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Figure.savefig
    plain = lambda figure, *how, **more: (figure.set_layout_engine("none"), save(figure, *how, **more))  # noqa: E731
    monkeypatch.setattr(Figure, "savefig", plain)  # where parts of a figure lie is matplotlib's, and most of the time
    out = tmp_path / "results.md"
    write_page(["--store", str(store.folder), "--out", str(out)])
    text = out.read_text()
    assert text.count("![") == len(list((tmp_path / "results").glob("*.png"))) == 17
    assert "| toy-noisy | exact training | 1 |" in text and "|  | of the product kernel | 1 |" in text
    for heading in (
        "In short",
        "What was run",
        "What was found",
        "Where we differ, and why",
        "Table 1",
        "toy-quiet",
        "toy-large",
        "Figures",
    ):
        assert f"## {heading}" in text
    assert "not run" not in text.split("## Table 1")[0].split("## What was found")[1]
    assert "not run" not in text.split("## Figures")[1]
    assert all(path.stat().st_size > 10_000 for path in (tmp_path / "results").glob("*.png"))


def test_the_page_of_an_empty_store(tmp_path: Path) -> None:
    write_page(["--store", str(tmp_path / "none"), "--out", str(tmp_path / "p.md")])
    assert "0 trainings" in (tmp_path / "p.md").read_text()
