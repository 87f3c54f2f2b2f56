"""Records as cells of the paper's tables, and how they compare: with the paper, with each other, with exact training.

Two means over splits agree when they differ by at most two standard errors of a mean over as many splits as were run:
the paper's ± are standard errors over ten splits, so over k of them 2 · s.e. · √(10/k).

A run that was cut, that failed, or in which a solve ended short of the tolerance (where there is no budget) has cost
less than it should have: its epochs and seconds are lower bounds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from experiments.cells import ESTIMATORS, LARGE_BUDGET, NEAR
from experiments.published import Cell, Papers, Published
from experiments.store import Record

LABELS = {"cg": "CG", "ap": "AP", "sgd": "SGD", NEAR: "CG, near neighbours"}
WAYS = [(estimator, warm) for warm in (False, True) for estimator in ESTIMATORS]  # the order of the paper's rows
SCORES = ("llh", "rmse")


def by_run(records: list[Record], **match: Any) -> list[Record]:
    """Records whose run has these fields."""
    return [record for record in records if all(record["run"].get(name) == value for name, value in match.items())]


def cell_of(record: Record) -> Cell:
    run = record["run"]
    return run["dataset"], run["solver"], run["estimator"], run["warm"]


def plain(record: Record) -> bool:
    """Whether a record is a cell of table 1 or of the large tables: nothing beside them was changed."""
    run = record["run"]
    budget = LARGE_BUDGET if run["settings"]["large"] else None
    return (run["n_probes"], run["n_features"], run["prior"], run["budget"]) == (64, 2000, "plain", budget)


def is_finished(record: Record) -> bool:
    return record["outcome"] == "finished"


def is_bound(record: Record) -> bool:
    """Whether what the run cost is only a lower bound."""
    return not is_finished(record) or (record["run"]["budget"] is None and not record["converged"])


def score(record: Record, name: str, *, samples: bool = False) -> float:
    """Test log-likelihood or RMSE of a finished run: by exact prediction at its hyperparameters where that was
    affordable, else (or with ``samples``) by its own, from the last solve and the samples."""
    kind = "test" if samples or not record.get("test_exact") else "test_exact"
    return record[kind][name]


def error_of_mean(values: list[float]) -> float:
    """Standard error; NaN for one value."""
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.nan


@dataclass(frozen=True)
class Summary:
    """A cell over its splits."""

    records: tuple[Record, ...]

    @property
    def finished(self) -> list[Record]:
        return [record for record in self.records if is_finished(record)]

    def values(self, name: str) -> list[float]:
        """Of the finished runs for scores ("sample_llh": from samples); of all for costs; residuals are means over the
        steps of a run."""
        if name.removeprefix("sample_") in SCORES:
            samples = name.startswith("sample_")
            return [score(record, name.removeprefix("sample_"), samples=samples) for record in self.finished]
        if name.startswith("residual"):
            return [fmean(record["history"][name]) for record in self.finished]
        return [record[name] for record in self.records]

    def mean(self, name: str) -> float:
        values = self.values(name)
        return fmean(values) if values else math.nan

    def error(self, name: str) -> float:
        return error_of_mean(self.values(name))

    @property
    def bound(self) -> bool:
        return any(is_bound(record) for record in self.records)


Found = dict[Cell, Summary]


def summaries(records: list[Record]) -> Found:
    """The plain cells, each over its splits."""
    groups: dict[Cell, list[Record]] = defaultdict(list)
    for record in records:
        if plain(record):
            groups[cell_of(record)].append(record)
    return {cell: Summary(tuple(group)) for cell, group in groups.items()}


# -- with the paper --------------------------------------------------------------------------------------------------
def agreement(summary: Summary, published: Published, name: str) -> float | None:
    """|ours − theirs| in units of the allowed difference: at most 1 agrees. None where there is nothing to compare."""
    k = len(summary.finished)
    theirs, error = getattr(published, name), getattr(published, f"{name}_error")
    if k == 0 or math.isnan(theirs) or math.isnan(error):
        return None
    return abs(summary.mean(name) - theirs) / (2 * error * (10 / k) ** 0.5)


def compared(found: Found, published: Papers) -> dict[tuple[Cell, str], float]:
    """All agreements that there are, by cell and score."""
    every = {
        (cell, name): agreement(summary, published[cell], name)
        for cell, summary in found.items()
        if cell in published
        for name in SCORES
    }
    return {key: value for key, value in every.items() if value is not None}


def outside(found: Found, published: Papers) -> list[tuple[Cell, str, float]]:
    """What does not agree with the paper: (cell, score, how many allowed differences)."""
    every = compared(found, published).items()
    return [(cell, name, value) for (cell, name), value in every if not value <= 1]  # NaN does not agree


@dataclass(frozen=True)
class Order:
    """Two cells of which one takes over 20% more of the solver's time in the paper, and whether it takes more epochs
    here; ``whole`` where both ran to their ends (or that does not matter), else over the steps that both have."""

    cheap: Cell
    dear: Cell
    good: bool
    whole: bool


def orders(found: Found, published: Papers, *, across: bool = False) -> list[Order]:
    """All pairs of cells of one dataset and solver; ``across``, of two solvers."""
    pairs: list[Order] = []
    for cheap in found:
        for dear in found:
            if (
                cheap[0] != dear[0]
                or (cheap[1] != dear[1]) != across
                or cheap not in published
                or dear not in published
            ):
                continue
            if published[cheap].unfinished or not (
                published[dear].solver_seconds > 1.2 * published[cheap].solver_seconds
            ):
                continue
            both = paired(found[cheap], found[dear], "epochs")
            if both:
                pairs.append(Order(cheap, dear, *_in_order(both)))
    return pairs


def _in_order(pairs: list[tuple[Record, Record]], name: str = "epochs") -> tuple[bool, bool]:
    """Whether the second of each pair cost more epochs (or ``name``) in all, and whether that is of whole runs."""
    low, high = (sum(pair[k][name] for pair in pairs) for k in (0, 1))
    low_is_bound, high_is_bound = (any(is_bound(pair[k]) for pair in pairs) for k in (0, 1))
    if (high > low and not low_is_bound) or (high <= low and not high_is_bound):
        return high > low, True
    low, high = (sum(sum(pair[k]["history"][name][: _steps(pair)]) for pair in pairs) for k in (0, 1))
    return high > low, False


def seconds_in_order(found: Found, pair: Order) -> bool:
    """Whether the cell that is dear in the paper takes more of the solver's seconds here, too, on one device."""
    both = paired(found[pair.cheap], found[pair.dear], "solver_seconds")
    return bool(both) and _in_order(both, "solver_seconds") == (True, True)


def _steps(pair: tuple[Record, Record]) -> int:
    """How many steps both have."""
    return min(record["steps"] for record in pair)


# -- with each other -------------------------------------------------------------------------------------------------
def paired(one: Summary, other: Summary, name: str) -> list[tuple[Record, Record]]:
    """Records of the same split; for seconds, of the same device, too, and of one that did not change on the way."""
    others = {record["run"]["split"]: record for record in other.records}
    pairs = [(r, others[r["run"]["split"]]) for r in one.records if r["run"]["split"] in others]
    places = [(a["machine"]["device"], b["machine"]["device"]) for a, b in pairs]
    same = [pair for pair, (one, two) in zip(pairs, places, strict=True) if one == two and ";" not in one]
    return same if name.endswith("seconds") else pairs


def speed_up(
    found: Found, cell: Cell, name: str = "epochs", base: tuple[str, bool] = ("standard", False)
) -> tuple[float, bool]:
    """How many times less a cell costs than ``base``, and whether that is a lower bound: NaN where nothing is known.

    Over the splits that both were run on. A base that was cut costs more than is known; of a cell that was cut nothing
    can be said.
    """
    whole, own = found.get((cell[0], cell[1], *base)), found.get(cell)
    if whole is None or own is None:
        return math.nan, False
    pairs = [(a, b) for a, b in paired(whole, own, name) if not is_bound(b)]
    if not pairs:
        return math.nan, False
    return sum(a[name] for a, _ in pairs) / sum(b[name] for _, b in pairs), any(is_bound(a) for a, _ in pairs)


# -- with exact training ---------------------------------------------------------------------------------------------
def less_exact(summary: Summary, truth: Summary, name: str, *, samples: bool = False) -> list[float]:
    """Scores less those of exact training on the same splits: what training alone has cost; with ``samples``, what
    solving and sampling add to it, too."""
    pairs = [(a, b) for a, b in paired(summary, truth, name) if is_finished(a)]
    return [score(a, name, samples=samples) - score(b, name) for a, b in pairs]
